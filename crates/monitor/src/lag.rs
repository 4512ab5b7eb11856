//! How far groups are behind: the end of each partition that a group committed an offset of, less that offset.
//!
//! What is not known has no series: neither partitions that nobody committed, nor those whose topic is gone, nor what the
//! store did not answer in time. A sum is told only when all its parts are known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use milena_groups::{GroupError, TopicId, Walk};
use milena_server::Broker;
use milena_server::groups::Stored;
use milena_server::groups::topics::incarnation;
use milena_server::topics::Topic;
use milena_store::PartitionRef;
use tokio::time::timeout_at;

use crate::limits::{LAG_CONCURRENCY, LAG_TIME_MAX};
use crate::settings::LagDetail;

/// Groups after which other tasks get their turn.
const GROUPS_PER_TURN: usize = 16;

/// The lag of all groups, as far as it is told.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    pub(crate) groups: Vec<GroupLag>,
    /// Series that were left out because there would be too many.
    pub(crate) beyond_limit: u64,
    /// Partitions of groups whose end the store did not tell in time, and groups whose offsets it did not; 1 when it did not
    /// even tell which groups there are.
    pub(crate) unknown: u64,
    /// Groups with offsets, where the store keeps the offsets and was asked.
    pub(crate) stored_groups: Option<u64>,
    /// Offsets of all of them, when all were read.
    pub(crate) stored_offsets: Option<u64>,
}

/// The lag of one group.
#[derive(Debug)]
pub(crate) struct GroupLag {
    pub(crate) group: Arc<str>,
    /// Records in all partitions; `None` when some are not known.
    pub(crate) sum: Option<u64>,
    /// Records in each, if they are told.
    pub(crate) partitions: Vec<PartitionLag>,
}

#[derive(Debug)]
pub(crate) struct PartitionLag {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: String,
    pub(crate) lag: u64,
}

/// Measures what is to be told, in the order of the groups' names, so that the same groups are left out each time.
pub(crate) async fn measure(broker: &Broker, detail: LagDetail, series_max: usize) -> Lag {
    if detail == LagDetail::Off {
        return Lag::default();
    }
    if broker.groups.is_external() {
        return measure_stored(broker, detail, series_max).await;
    }
    let groups = broker.groups.usage().groups_with_offsets;
    let mut measuring = Measuring::new(Ends::new(broker), detail, series_max, groups);
    let mut walk = Walk::default();
    while !walk.is_over() && measuring.sums > 0 {
        for (at, group) in broker.groups.with_offsets(&mut walk).into_iter().enumerate() {
            if at % GROUPS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
            if measuring.sums > 0 {
                measuring.group(group).await;
            }
        }
    }
    measuring.lag
}

/// The same where the store keeps the offsets: they are read for the page, group by group while there is time.
async fn measure_stored(broker: &Broker, detail: LagDetail, series_max: usize) -> Lag {
    let ends = Ends::new(broker);
    let deadline = ends.deadline.into();
    let groups = match timeout_at(deadline, broker.groups.stored_groups()).await {
        Ok(Ok(groups)) => groups,
        // They are on the page of the server that coordinates them.
        Ok(Err(GroupError::NotCoordinator)) => return Lag::default(),
        Ok(Err(_)) | Err(_) => return Lag { unknown: 1, ..Lag::default() },
    };
    let mut measuring = Measuring::new(ends, detail, series_max, groups.len());
    let (all, mut offsets) = (groups.len(), Some(0));
    for (group, topics) in groups {
        if measuring.sums == 0 {
            offsets = None;
            break;
        }
        let Ok(Ok(stored)) = timeout_at(deadline, broker.groups.stored_of(&group, topics)).await else {
            measuring.lag.unknown += 1;
            measuring.sums -= 1;
            offsets = None;
            continue;
        };
        let rows: Vec<Row> = stored.iter().flat_map(Row::of_stored).collect();
        offsets = offsets.map(|offsets| offsets + rows.len() as u64);
        measuring.rows(Arc::from(group), &rows).await;
    }
    Lag { stored_groups: Some(all as u64), stored_offsets: offsets, ..measuring.lag }
}

struct Measuring<'a> {
    ends: Ends<'a>,
    /// Groups that there is room for.
    sums: usize,
    /// Partitions that there is room for; `None` when they are not told.
    partitions: Option<usize>,
    lag: Lag,
}

impl<'a> Measuring<'a> {
    fn new(ends: Ends<'a>, detail: LagDetail, series_max: usize, groups: usize) -> Self {
        let sums = groups.min(series_max);
        Self {
            ends,
            sums,
            // Every group has its sum; partitions get the room that is left.
            partitions: if detail == LagDetail::Partition { Some(series_max - sums) } else { None },
            lag: Lag { beyond_limit: (groups - sums) as u64, ..Lag::default() },
        }
    }

    async fn group(&mut self, group: Arc<str>) {
        let rows = committed(self.ends.broker, &group);
        self.rows(group, &rows).await;
    }

    async fn rows(&mut self, group: Arc<str>, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        self.ends.learn(rows).await;
        let known: Vec<(&Row, u64)> = rows.iter().filter_map(|row| Some((row, self.ends.lag(row)?))).collect();
        self.lag.unknown += (rows.len() - known.len()) as u64;
        let sum = (known.len() == rows.len()).then(|| known.iter().map(|(_, lag)| *lag).fold(0, u64::saturating_add));
        let partitions = match &mut self.partitions {
            None => Vec::new(),
            Some(room) if known.len() <= *room => {
                *room -= known.len();
                known.into_iter().map(|(row, lag)| row.told(lag)).collect()
            }
            Some(_) => {
                self.lag.beyond_limit += known.len() as u64;
                Vec::new()
            }
        };
        self.sums -= 1;
        self.lag.groups.push(GroupLag { group, sum, partitions });
    }
}

/// An offset that a group committed of a partition that is there.
struct Row {
    topic: Arc<Topic>,
    at: PartitionRef,
    committed: u64,
}

impl Row {
    /// What a group has of one topic.
    fn of_stored(stored: &Stored) -> impl Iterator<Item = Self> + '_ {
        let topic = &stored.topic;
        stored.offsets.iter().filter_map(move |(partition, offset)| {
            let (partition, committed) = (u32::try_from(*partition).ok()?, u64::try_from(*offset).ok()?);
            Some(Self { at: topic.store.partition(partition), topic: Arc::clone(topic), committed })
        })
    }

    fn told(&self, lag: u64) -> PartitionLag {
        PartitionLag { topic: Arc::clone(&self.topic.name), partition: self.at.partition.to_string(), lag }
    }
}

fn committed(broker: &Broker, group: &str) -> Vec<Row> {
    let stored = broker.groups.offsets(group, |view| {
        let rows = view.iter().filter(|(key, _, _)| key.id != TopicId::FOREIGN);
        rows.map(|(key, partition, committed)| (key.clone(), partition, committed.offset())).collect::<Vec<_>>()
    });
    let Ok(stored) = stored else { return Vec::new() };
    let mut rows: Vec<Row> = Vec::with_capacity(stored.len());
    for (key, partition, offset) in stored {
        let last = rows.last().map(|row| &row.topic).filter(|topic| topic.name == key.name);
        let topic = last.cloned().or_else(|| broker.topics.by_name(&key.name));
        let topic = topic.filter(|topic| incarnation(topic) == key.id);
        let partition = u32::try_from(partition).ok();
        if let (Some(topic), Some(partition), Ok(committed)) = (topic, partition, u64::try_from(offset))
            && partition < topic.partitions
        {
            rows.push(Row { at: topic.store.partition(partition), topic, committed });
        }
    }
    rows
}

/// Ends of partitions; several groups read the same.
struct Ends<'a> {
    broker: &'a Broker,
    deadline: Instant,
    known: HashMap<PartitionRef, Option<u64>>,
}

impl<'a> Ends<'a> {
    fn new(broker: &'a Broker) -> Self {
        Self { broker, deadline: Instant::now() + LAG_TIME_MAX, known: HashMap::new() }
    }

    /// Asks for those that were not asked for before.
    async fn learn(&mut self, rows: &[Row]) {
        let new: Vec<PartitionRef> =
            rows.iter().map(|row| &row.at).filter(|at| !self.known.contains_key(*at)).cloned().collect();
        let (store, deadline) = (self.broker.store.as_ref(), self.deadline.into());
        let mut asked = stream::iter(new)
            .map(|at| async move {
                let bounds = timeout_at(deadline, store.bounds(&at)).await;
                (at, bounds.ok().and_then(Result::ok).map(|bounds| bounds.end))
            })
            .buffer_unordered(LAG_CONCURRENCY);
        while let Some((at, end)) = asked.next().await {
            self.known.insert(at, end);
        }
    }

    fn lag(&self, row: &Row) -> Option<u64> {
        let end = (*self.known.get(&row.at)?)?;
        // A group may commit beyond the end; it is not behind then.
        Some(end.saturating_sub(row.committed))
    }
}
