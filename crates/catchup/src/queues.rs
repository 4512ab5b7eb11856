//! A queue for each partition of a client.
//!
//! Backpressure is not to poll a partition's queue. A pause of librdkafka's would throw away what it has fetched ahead, and fetch it
//! again afterwards; unread, its queue fills up to `queued.max.messages.kbytes` and waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message};

use crate::Bound;
use crate::delivery::TopicPartition;
use crate::member::Context;
use crate::records::Batch;
use crate::wake::Wake;

/// librdkafka's bound on what it fetches ahead, in KiB: for one queue, so for one partition here.
const AHEAD: &str = "queued.max.messages.kbytes";

/// The most that librdkafka takes for it.
const AHEAD_MAX: u64 = 2_097_151;

/// How long librdkafka waits, in milliseconds, before it looks again at a queue that was full or a partition that was paused. Its own
/// default of a second would be what a lane with a small bound spends most of its time with.
const LOOK_AGAIN: (&str, &str) = ("fetch.queue.backoff.ms", "10");

/// What one poll gave.
pub(crate) enum Polled<T> {
    /// What was made of a record.
    Record(T),
    /// Everything up to the end of the log has been read. Only where it was asked for.
    End,
    Failed(Failure),
    /// Nothing is left for now.
    Empty,
}

/// An error that a client reports.
pub(crate) struct Failure {
    pub(crate) error: KafkaError,
    /// librdkafka's words for it.
    pub(crate) reason: String,
}

struct Queue {
    queue: PartitionQueue<Context>,
    /// Whether it is polled.
    open: bool,
}

/// A client with its queues.
pub(crate) struct Queues {
    // Before the client, which each of them holds too.
    of: HashMap<TopicPartition, Queue>,
    consumer: Arc<BaseConsumer<Context>>,
    wake: Arc<Wake>,
}

impl Queues {
    /// A client with that configuration. `ahead` says how many bytes it may fetch ahead for each partition, where the configuration
    /// does not.
    pub(crate) fn create(mut config: ClientConfig, ahead: u64, wake: &Arc<Wake>) -> KafkaResult<Self> {
        if config.get(AHEAD).is_none() {
            config.set(AHEAD, (ahead / 1_024).clamp(1, AHEAD_MAX).to_string());
        }
        if config.get(LOOK_AGAIN.0).is_none() {
            config.set(LOOK_AGAIN.0, LOOK_AGAIN.1);
        }
        let mut consumer: BaseConsumer<Context> = config.create_with_context(Context::new())?;
        let waker = Arc::clone(wake);
        consumer.set_nonempty_callback(move || waker.up());
        Ok(Self { of: HashMap::new(), consumer: Arc::new(consumer), wake: Arc::clone(wake) })
    }

    pub(crate) fn consumer(&self) -> &Arc<BaseConsumer<Context>> {
        &self.consumer
    }

    /// Gives the partition a queue, closed. Before it is assigned, so that nothing comes by the client's common queue.
    pub(crate) fn split(&mut self, partition: &TopicPartition) -> KafkaResult<()> {
        // The old one first: both would be the same to librdkafka, and its end would silence the new one.
        self.of.remove(partition);
        let queue = self.consumer.split_partition_queue(&partition.topic, partition.partition);
        let mut queue = queue.ok_or_else(|| KafkaError::Subscription(format!("no queue for {partition}")))?;
        let wake = Arc::clone(&self.wake);
        queue.set_nonempty_callback(move || wake.up());
        self.of.insert(partition.clone(), Queue { queue, open: false });
        Ok(())
    }

    /// Lets the queue be polled, or not.
    pub(crate) fn open(&mut self, partition: &TopicPartition, open: bool) {
        if let Some(queue) = self.of.get_mut(partition) {
            queue.open = open;
            // What is in it already wakes nobody.
            self.wake.up();
        }
    }

    /// `true` when there was one.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) -> bool {
        self.of.remove(partition).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Partitions whose queues are polled.
    pub(crate) fn opened(&self) -> Vec<TopicPartition> {
        self.of.iter().filter(|(_, queue)| queue.open).map(|(partition, _)| partition.clone()).collect()
    }

    /// Whether the partition has a queue, open or not.
    pub(crate) fn has(&self, partition: &TopicPartition) -> bool {
        self.of.contains_key(partition)
    }

    /// Takes records of the partition until there is something else, which is the answer, or until one of the bounds is reached: `None`.
    /// They are copied: librdkafka's own would keep the whole response in memory that it came with, and so a single one in the
    /// application's hand up to a megabyte.
    pub(crate) fn fill(&self, partition: &TopicPartition, room: Bound, batch: &mut Batch) -> Option<Polled<u64>> {
        let Some(queue) = self.of.get(partition).filter(|queue| queue.open) else { return Some(Polled::Empty) };
        let mut left = room.bytes;
        for _ in 0..room.records {
            match self.poll_with(|| queue.queue.poll(Duration::ZERO), |record| batch.push(record)) {
                Polled::Record(bytes) => {
                    left = left.saturating_sub(bytes);
                    if left == 0 {
                        break;
                    }
                }
                other => return Some(other),
            }
        }
        None
    }

    /// What belongs to no partition: rebalances, logs, errors of connections. And a record that was fetched before its queue was split off.
    pub(crate) fn poll_common(&self) -> Polled<(TopicPartition, Batch)> {
        let early = |record: &BorrowedMessage<'_>| {
            let mut batch = Batch::default();
            batch.push(record);
            (TopicPartition::new(record.topic(), record.partition()), batch)
        };
        self.poll_with(|| self.consumer.poll(Duration::ZERO), early)
    }

    /// Polls until there is a record, an error, or really nothing: serving an event also ends a poll without a record.
    fn poll_with<'a, T>(
        &self,
        poll: impl Fn() -> Option<KafkaResult<BorrowedMessage<'a>>>,
        take: impl FnOnce(&BorrowedMessage<'a>) -> T,
    ) -> Polled<T> {
        let context = self.consumer.context();
        loop {
            let before = context.served();
            match poll() {
                Some(Ok(record)) => return Polled::Record(take(&record)),
                Some(Err(KafkaError::PartitionEOF(_))) => return Polled::End,
                Some(Err(error)) => return Polled::Failed(Failure { error, reason: context.reason() }),
                None if context.served() == before => return Polled::Empty,
                None => {}
            }
        }
    }
}
