//! How long a start takes with many stored offsets, or with much data.
//!
//! Groups without members commit; the server is killed as by `kill -9` and started again on its data. It is ready when
//! it answers a fetch of offsets with what was committed.

use std::time::Duration;

use clap::Args;
use milena_wire::kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use milena_wire::kafka_protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};
use milena_wire::kafka_protocol::protocol::StrBytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::load::store;
use crate::Result;
use crate::client::{Connection, refused};
use crate::members::{COMMIT, Plan, commit_request, stored};
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::{create_topic, group_id, topic_name};

/// Connections that commit.
const CONNECTIONS: usize = 4;

/// Commits of a connection without an answer.
const DEPTH: usize = 4;

/// Partitions of the stored records.
const DATA_PARTITIONS: i32 = 10;

/// What is committed.
const OFFSET: i64 = 1_234_567;

/// Offsets are being loaded.
const LOADING: i16 = 14;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Groups
    #[arg(long, default_value_t = 1_000)]
    pub groups: usize,
    /// Partitions for which each group has an offset
    #[arg(long, default_value_t = 1_000)]
    pub partitions: i32,
    /// Megabytes of records that are stored as well, in ten partitions
    #[arg(long, default_value_t = 0)]
    pub megabytes: u64,
    /// Starts; the median counts
    #[arg(long, default_value_t = 5)]
    pub starts: usize,
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a request is refused, or the server is none that can be started again.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub async fn round(&self, target: &mut Target) -> Result<Measures> {
        let topic = format!("bench-{}", self.partitions);
        create_topic(&mut target.connect().await?, &topic, self.partitions).await?;
        let plans: Vec<Plan> = (0..self.groups).map(|number| self.plan(target, &topic, number)).collect();
        let empty = self.start(target, None).await?;
        let filling = Instant::now();
        fill(&plans).await?;
        let filled = filling.elapsed();
        let mut measures = Measures::default();
        if self.megabytes > 0 {
            store(target, DATA_PARTITIONS, self.megabytes, &mut measures).await?;
        }
        let mut starts = Vec::new();
        for _ in 0..self.starts.max(1) {
            starts.push(self.start(target, plans.last()).await?);
        }
        starts.sort_unstable_by_key(|start| start.took);
        let start = starts.get(starts.len() / 2).copied().unwrap_or_default();
        let count = self.groups as f64 * f64::from(self.partitions);
        measures.add("offsets, millions", count / 1e6);
        measures.add("start to ready before, ms", empty.took.as_secs_f64() * 1e3);
        measures.add("start to ready, ms", start.took.as_secs_f64() * 1e3);
        measures.add("memory after the start, MB", start.resident as f64 / 1e6);
        if count > 0.0 {
            measures.add("partition-commits/s while filling", count / filled.as_secs_f64());
            measures.add("memory per offset, bytes", (start.resident as f64 - empty.resident as f64) / count);
        }
        Ok(measures)
    }

    /// Kills the server and starts it, until the offsets of `asked` are there.
    async fn start(&self, target: &mut Target, asked: Option<&Plan>) -> Result<Start> {
        target.kill()?;
        let start = Instant::now();
        target.restart()?;
        if let Some(plan) = asked {
            let mut connection = target.connect().await?;
            while !self.is_loaded(&mut connection, plan).await? {
                sleep(Duration::from_millis(1)).await;
            }
        }
        let took = start.elapsed();
        Ok(Start { took, resident: target.usage()?.unwrap_or_default().resident })
    }

    /// False while offsets are being loaded.
    async fn is_loaded(&self, connection: &mut Connection, plan: &Plan) -> Result<bool> {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(topic_name(&plan.topic))
            .with_partition_indexes((0..self.partitions).collect());
        let group =
            OffsetFetchRequestGroup::default().with_group_id(group_id(&plan.group)).with_topics(Some(vec![topic]));
        let answer = connection.call(8, &OffsetFetchRequest::default().with_groups(vec![group])).await?;
        let group = answer.groups.first().ok_or("an answer without the group")?;
        match group.error_code {
            0 => {}
            LOADING => return Ok(false),
            code => return Err(refused("OffsetFetch", code)),
        }
        let found = group.topics.iter().flat_map(|topic| &topic.partitions);
        let found = found.filter(|partition| partition.committed_offset == OFFSET).count();
        if found == usize::try_from(self.partitions)? { Ok(true) } else { Err("committed offsets are lost".into()) }
    }

    fn plan(&self, target: &Target, topic: &str, number: usize) -> Plan {
        Plan {
            address: target.address.clone(),
            group: format!("start-{number}"),
            topic: topic.to_owned(),
            partitions: self.partitions,
            members: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Start {
    took: Duration,
    resident: u64,
}

/// Commits for all groups.
async fn fill(plans: &[Plan]) -> Result<()> {
    let mut filling = JoinSet::new();
    for first in 0..CONNECTIONS.min(plans.len()) {
        let plans: Vec<Plan> = plans.iter().skip(first).step_by(CONNECTIONS).cloned().collect();
        filling.spawn(commit_all(plans));
    }
    while let Some(filled) = filling.join_next().await {
        filled??;
    }
    Ok(())
}

async fn commit_all(plans: Vec<Plan>) -> Result<()> {
    let Some(first) = plans.first() else { return Ok(()) };
    let mut connection = Connection::open(&first.address).await?;
    for plan in &plans {
        if connection.in_flight() >= DEPTH {
            stored(&connection.receive::<OffsetCommitRequest>().await?.0)?;
        }
        let partitions: Vec<i32> = (0..plan.partitions).collect();
        let request = commit_request(plan, &StrBytes::default(), -1, &partitions, OFFSET);
        connection.send(COMMIT, &request).await?;
    }
    while connection.in_flight() > 0 {
        stored(&connection.receive::<OffsetCommitRequest>().await?.0)?;
    }
    Ok(())
}
