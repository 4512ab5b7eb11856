//! What is committed for a group, read from outside of it.

use std::ops::Range;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::broker::committed;
use crate::delivery::TopicPartition;
use crate::member::Context;
use crate::{Error, LogId, NotCounted, Progress, RangeSet, user_metadata};

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
}

impl Inspected {
    /// What is left to be done up to the end of the log, lowest first. Offsets that the log skips are among it.
    #[must_use]
    pub fn pieces(&self) -> Vec<Range<i64>> {
        let from = self.floor.max(self.low);
        let within = from..self.high.max(from);
        self.ahead.as_ref().map_or_else(|_| vec![within.clone()], |ahead| ahead.gaps(within.clone()).collect())
    }
}

/// Reads what is committed for the group in `config`, of these topics or, when there are none, of all topics; partitions without a
/// committed offset are left out. It does not join the group. Waits for the broker, for as long as `patience` at each question.
///
/// # Errors
/// [`Error::Client`] when the broker does not answer, or with an error.
pub fn inspect(config: &ClientConfig, topics: &[String], patience: Duration) -> Result<Vec<Inspected>, Error> {
    let consumer: BaseConsumer<Context> = config.create_with_context(Context::new())?;
    let cluster = consumer.client().fetch_cluster_id(patience).unwrap_or_default();
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
    let mut all = Vec::new();
    for (partition, found) in committed(&consumer, list)? {
        let Some((floor, metadata)) = found? else { continue };
        let (low, high) = consumer.fetch_watermarks(&partition.topic, partition.partition, patience)?;
        let log = LogId::of(&cluster, &partition.topic, partition.partition);
        let ahead = Progress::ahead_of(&metadata, log, floor);
        let user = user_metadata(&metadata).to_owned();
        all.push(Inspected { partition, floor, low, high, ahead, metadata_bytes: metadata.len(), user });
    }
    all.sort_by(|one, other| one.partition.cmp(&other.partition));
    Ok(all)
}
