//! The client that reads the backfill lane: it is assigned, never subscribes, and never commits.
//!
//! It is there only while a partition has a gap. Each partition has a queue of its own, because the end of a partition is reported
//! by its number alone, and two topics may share that number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::OwnedMessage;
use rdkafka::{Offset, TopicPartitionList};

use crate::delivery::TopicPartition;
use crate::member::{Context, Polled, list_of, poll_with};
use crate::wake::Wake;

/// What is added to the group's name and to the client's, so that a broker's log tells the two clients apart.
const SUFFIX: &str = "catchup";

/// Settings that make a client a member of a group, or say how its members share; they mean nothing to a reader.
const OF_MEMBERS: [&str; 4] =
    ["group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy"];

/// What one poll of a partition gave.
pub(crate) enum Read {
    Record(OwnedMessage),
    /// Everything up to the end of the log has been read.
    End,
    Failed(KafkaError),
    Empty,
}

/// The reader.
pub(crate) struct Reader {
    consumer: Arc<BaseConsumer<Context>>,
    queues: HashMap<TopicPartition, PartitionQueue<Context>>,
    wake: Arc<Wake>,
}

impl Reader {
    /// A client beside the member that `config` describes.
    pub(crate) fn create(config: &ClientConfig, wake: &Arc<Wake>) -> KafkaResult<Self> {
        let mut config = config.clone();
        for setting in OF_MEMBERS {
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
        let mut consumer: BaseConsumer<Context> = config.create_with_context(Context::new())?;
        let waker = Arc::clone(wake);
        consumer.set_nonempty_callback(move || waker.up());
        Ok(Self { consumer: Arc::new(consumer), queues: HashMap::new(), wake: Arc::clone(wake) })
    }

    /// Reads the partition from that offset on.
    pub(crate) fn start(&mut self, partition: &TopicPartition, from: i64) -> KafkaResult<()> {
        self.stop(partition)?;
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(from))?;
        // The queue first: what is fetched before would come by the common queue.
        let queue = self.consumer.split_partition_queue(&partition.topic, partition.partition);
        let mut queue = queue.ok_or_else(|| KafkaError::Subscription(format!("no queue for {partition}")))?;
        let wake = Arc::clone(&self.wake);
        queue.set_nonempty_callback(move || wake.up());
        self.consumer.incremental_assign(&list)?;
        self.queues.insert(partition.clone(), queue);
        // A pause outlives the assignment it was made in.
        self.resume(partition)
    }

    /// Goes on at that offset. What was fetched before may still come for a moment.
    pub(crate) fn seek(&self, partition: &TopicPartition, to: i64) -> KafkaResult<()> {
        self.consumer.seek(&partition.topic, partition.partition, Offset::Offset(to), Duration::ZERO)
    }

    pub(crate) fn pause(&self, partition: &TopicPartition) -> KafkaResult<()> {
        self.consumer.pause(&list_of(std::slice::from_ref(partition)))
    }

    pub(crate) fn resume(&self, partition: &TopicPartition) -> KafkaResult<()> {
        self.consumer.resume(&list_of(std::slice::from_ref(partition)))
    }

    /// Reads the partition no longer; nothing happens when it was not read.
    pub(crate) fn stop(&mut self, partition: &TopicPartition) -> KafkaResult<()> {
        match self.queues.remove(partition) {
            Some(_) => self.consumer.incremental_unassign(&list_of(std::slice::from_ref(partition))),
            None => Ok(()),
        }
    }

    /// True when it reads nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// Partitions it reads.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.queues.keys()
    }

    /// Serves what belongs to no partition, logs and errors of connections above all. A record that came this way, around the queue
    /// of its partition, is passed on.
    pub(crate) fn serve(&self) -> Option<OwnedMessage> {
        let context = self.consumer.context();
        loop {
            match poll_with(context, || self.consumer.poll(Duration::ZERO).map(|got| got.map(|it| it.detach()))) {
                Polled::Empty => return None,
                Polled::Failed(error) => tracing::debug!("reader: {error}"),
                Polled::Record(record) => return Some(record),
            }
        }
    }

    /// What is next from the partition.
    pub(crate) fn poll(&self, partition: &TopicPartition) -> Read {
        let Some(queue) = self.queues.get(partition) else { return Read::Empty };
        match poll_with(self.consumer.context(), || queue.poll(Duration::ZERO).map(|got| got.map(|it| it.detach()))) {
            Polled::Record(record) => Read::Record(record),
            Polled::Failed(KafkaError::PartitionEOF(_)) => Read::End,
            Polled::Failed(error) => Read::Failed(error),
            Polled::Empty => Read::Empty,
        }
    }
}
