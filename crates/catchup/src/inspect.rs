//! What is committed for a group, and what its checkpoint topic has, read from outside of it.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::broker::committed;
use crate::checkpoint::{CheckpointStore, TopicStore};
use crate::delivery::TopicPartition;
use crate::member::{Context, named};
use crate::{Checkpoint, Error, LogId, NotCounted, Progress, RangeSet, user_metadata};

/// What is committed for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Where.
    pub partition: TopicPartition,
    /// The committed offset: everything below is finished.
    pub floor: i64,
    /// The first offset that the log still has.
    pub low: i64,
    /// The end of the log.
    pub high: i64,
    /// Finished ranges at or above the floor, or why there are none that count.
    pub ahead: Result<RangeSet, NotCounted>,
    /// Length of the metadata string, in bytes.
    pub metadata_bytes: usize,
    /// The user's own part of it.
    pub user: String,
    /// What the checkpoint topic has; `None` where it has nothing, and where it was not asked for.
    pub checkpoint: Option<Checkpointed>,
}

/// The newest checkpoint of one partition in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpointed {
    /// The last committed offset that its writer knew of.
    pub base: i64,
    /// Finished ranges, or why they do not count: it belongs to another log, or to an offset above the committed one.
    pub ahead: Result<RangeSet, NotCounted>,
}

impl Checkpointed {
    /// By the rule that a consumer goes by (`Partition::take_checkpoint`).
    fn beside(floor: i64, log: LogId, found: Progress) -> Self {
        let base = found.floor;
        let ahead = match (found.log == log, floor >= base) {
            (false, _) => Err(NotCounted::OtherLog),
            (true, false) => Err(NotCounted::OtherFloor(base)),
            (true, true) => Ok(found.ahead),
        };
        Self { base, ahead }
    }
}

impl Inspected {
    /// All finished ranges that count, from the metadata and from the topic.
    #[must_use]
    pub fn finished(&self) -> RangeSet {
        let checkpoint = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.ahead.as_ref().ok());
        self.ahead.as_ref().into_iter().chain(checkpoint).flat_map(RangeSet::iter).collect()
    }

    /// What is left to be done up to the end of the log, lowest first. Offsets that the log skips are among it.
    #[must_use]
    pub fn pieces(&self) -> Vec<Range<i64>> {
        let from = self.floor.max(self.low);
        self.finished().gaps(from..self.high.max(from)).collect()
    }
}

/// Reads what is committed for the group in `config`, of these topics or, when there are none, of all topics; partitions without a
/// committed offset are left out. With [`Checkpoint::Topic`] the ranges in that topic are read too; one that is missing is not made. It
/// does not join the group. Waits for the broker, for as long as `patience` at each question, and up to 10 s for the topic.
///
/// # Errors
/// [`Error::Client`] when the broker does not answer, or with an error; [`Error::Checkpoint`] when the checkpoint topic cannot be read;
/// [`Error::Setting`] for one without a name.
pub fn inspect(
    config: &ClientConfig,
    topics: &[String],
    checkpoint: &Checkpoint,
    patience: Duration,
) -> Result<Vec<Inspected>, Error> {
    let store = match checkpoint {
        Checkpoint::Metadata => None,
        Checkpoint::Topic(name) => Some(TopicStore::looking(config, name)?),
    };
    let consumer: BaseConsumer<Context> = config.create_with_context(Context::new())?;
    let cluster = consumer.client().fetch_cluster_id(patience).unwrap_or_default();
    let list = partitions_of(&consumer, topics, patience)?;
    // Before the offsets, as a consumer does.
    let named = named(&list);
    let loaded = store.map_or_else(Vec::new, |store| store.load(&named));
    let mut checkpoints = HashMap::new();
    for (partition, found) in named.into_iter().zip(loaded) {
        if let Some(found) = found? {
            checkpoints.insert(partition, found);
        }
    }
    let mut all = Vec::new();
    for (partition, found) in committed(&consumer, list)? {
        let Some((floor, metadata)) = found? else { continue };
        let (low, high) = consumer.fetch_watermarks(&partition.topic, partition.partition, patience)?;
        let log = LogId::of(&cluster, &partition.topic, partition.partition);
        let ahead = Progress::ahead_of(&metadata, log, floor);
        let user = user_metadata(&metadata).to_owned();
        let checkpoint = checkpoints.remove(&partition).map(|found| Checkpointed::beside(floor, log, found));
        all.push(Inspected { partition, floor, low, high, ahead, metadata_bytes: metadata.len(), user, checkpoint });
    }
    all.sort_by(|one, other| one.partition.cmp(&other.partition));
    Ok(all)
}

/// All partitions of these topics, or of all there are.
fn partitions_of(
    consumer: &BaseConsumer<Context>,
    topics: &[String],
    patience: Duration,
) -> Result<TopicPartitionList, Error> {
    let metadata = match topics {
        [topic] => consumer.fetch_metadata(Some(topic), patience)?,
        _ => consumer.fetch_metadata(None, patience)?,
    };
    let mut list = TopicPartitionList::new();
    for topic in metadata.topics() {
        if topics.is_empty() || topics.iter().any(|wanted| wanted == topic.name()) {
            for partition in topic.partitions() {
                list.add_partition(topic.name(), partition.id());
            }
        }
    }
    Ok(list)
}
