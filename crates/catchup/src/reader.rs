//! The client that reads the backfill lane: it is assigned, never subscribes, and never commits.
//!
//! It is there only while a partition has a gap. Each partition has a queue of its own, because the end of a partition is reported
//! by its number alone, and two topics may share that number.

use std::sync::Arc;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use crate::delivery::TopicPartition;
use crate::member::{list_of, seek};
use crate::queues::Queues;
use crate::wake::Wake;

/// What is added to the group's name and to the client's, so that a broker's log tells the two clients apart.
const SUFFIX: &str = "catchup";

/// Settings that make a client a member of a group, or say how its members share; they mean nothing to a reader. And the rack: a
/// follower that lags names an end of the log that is none (KIP-392), so the gap is read from the leader.
const NOT_OF_READERS: [&str; 5] =
    ["group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy", "client.rack"];

/// The reader.
pub(crate) struct Reader {
    pub(crate) queues: Queues,
}

impl Reader {
    /// A client beside the member that `config` describes.
    pub(crate) fn create(config: &ClientConfig, ahead: u64, wake: &Arc<Wake>) -> KafkaResult<Self> {
        let mut config = config.clone();
        for setting in NOT_OF_READERS {
            config.remove(setting);
        }
        let named = |key: &str, or: &str| config.get(key).unwrap_or(or).to_owned();
        let (group, client) = (named("group.id", ""), named("client.id", "rdkafka"));
        config
            .set("group.id", format!("{group}.{SUFFIX}"))
            .set("client.id", format!("{client}.{SUFFIX}"))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error");
        Ok(Self { queues: Queues::create(config, ahead, wake)? })
    }

    /// Reads the partition from that offset on.
    pub(crate) fn start(&mut self, partition: &TopicPartition, from: i64) -> KafkaResult<()> {
        self.stop(partition)?;
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(from))?;
        self.queues.split(partition)?;
        self.queues.consumer().incremental_assign(&list)?;
        self.queues.open(partition, true);
        Ok(())
    }

    /// Goes on at that offset. What was fetched before may still come for a moment.
    pub(crate) fn seek(&mut self, partition: &TopicPartition, to: i64) -> KafkaResult<()> {
        match seek(self.queues.consumer(), partition, to) {
            Ok(_) => Ok(()),
            // librdkafka does not read a partition any more whose position was out of the log.
            Err(_) => self.start(partition, to),
        }
    }

    /// Reads the partition no longer; nothing happens when it was not read.
    pub(crate) fn stop(&mut self, partition: &TopicPartition) -> KafkaResult<()> {
        if self.queues.remove(partition) {
            self.queues.consumer().incremental_unassign(&list_of(std::slice::from_ref(partition)))
        } else {
            Ok(())
        }
    }
}
