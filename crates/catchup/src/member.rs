//! The client that is the member of the group: it subscribes and reads the live lane, and commits are made with it.
//!
//! Its callbacks only write down what happened. A rebalance is answered later, by [`Member::take`] and [`Member::give_back`],
//! outside of the callback: librdkafka waits for that answer for as long as `max.poll.interval.ms` allows, and meanwhile the
//! other partitions go on, commits are answered and nothing blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use crate::delivery::TopicPartition;
use crate::queues::Queues;
use crate::wake::Wake;

/// Where a partition stands between its assignment and the first seek. It is paused there, so that nothing is fetched; an absolute
/// offset needs no question to the broker, which a logical one would.
const PARKED: Offset = Offset::Offset(0);

/// How long librdkafka may take to move a partition.
const SEEK_PATIENCE: Duration = Duration::from_secs(1);

/// What the callbacks of a client have seen, oldest first.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The group gives these partitions to this member. It waits for [`Member::take`].
    Assigned(Vec<TopicPartition>),
    /// The group takes these partitions back. It waits for [`Member::give_back`].
    Revoked(Vec<TopicPartition>),
}

/// Context of both clients. It holds no consumer, which would hold it in turn.
pub(crate) struct Context {
    notices: Mutex<VecDeque<Notice>>,
    /// Events that polling has served, so that a poll without a record can be told from an empty queue.
    served: AtomicU64,
    /// What librdkafka said of the last error. The poll that serves an error answers with its code alone.
    reason: Mutex<String>,
    /// Set when nobody answers rebalances any more: they are then answered in the callback.
    closing: AtomicBool,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {
            notices: Mutex::default(),
            served: AtomicU64::new(0),
            reason: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// The words for the error that the last poll answered with.
    pub(crate) fn reason(&self) -> String {
        std::mem::take(&mut *self.reason.lock())
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Option<Notice> {
        self.notices.lock().pop_front()
    }

    fn note(&self, notice: Notice) {
        self.notices.lock().push_back(notice);
    }

    fn count(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        self.count();
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::error!(target: "librdkafka", "{fac} {message}");
            }
            RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", "{fac} {message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(target: "librdkafka", "{fac} {message}"),
            RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", "{fac} {message}"),
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.count();
        tracing::debug!(target: "librdkafka::stats", "{}", String::from_utf8_lossy(statistics));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.count();
        // The end of a partition comes by the same way.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::warn!(target: "librdkafka", "{error}: {reason}");
        }
        reason.clone_into(&mut self.reason.lock());
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        self.count();
        let assigned = error == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            // Whoever would answer is gone; without an answer the client would never close.
            let nothing = TopicPartitionList::new();
            let answered = if assigned { accept(consumer, &nothing) } else { release(consumer, partitions) };
            if let Err(error) = answered {
                tracing::warn!("a rebalance while closing: {error}");
            }
            return;
        }
        let partitions = named(partitions);
        self.note(if assigned { Notice::Assigned(partitions) } else { Notice::Revoked(partitions) });
    }
}

/// The group member.
pub(crate) struct Member {
    pub(crate) queues: Queues,
}

impl Member {
    /// A client with that configuration and what this library must have: no automatic commits, and no automatic reset, since every
    /// position is set here.
    pub(crate) fn create(config: &ClientConfig, ahead: u64, wake: &Arc<Wake>) -> KafkaResult<Self> {
        let mut config = config.clone();
        config
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "false")
            .set("auto.offset.reset", "error");
        Ok(Self { queues: Queues::create(config, ahead, wake)? })
    }

    /// The client itself, for the calls that wait for the broker.
    pub(crate) fn consumer(&self) -> &Arc<BaseConsumer<Context>> {
        self.queues.consumer()
    }

    pub(crate) fn notice(&self) -> Option<Notice> {
        self.consumer().context().take()
    }

    /// From now on rebalances are answered at once, with nothing kept.
    pub(crate) fn close(&self) {
        self.consumer().context().close();
    }

    /// True when the group has given the partitions to somebody else, or may have.
    pub(crate) fn lost(&self) -> bool {
        self.consumer().assignment_lost()
    }

    /// Answers an assignment: takes the partitions, parked until [`Member::begin`].
    pub(crate) fn take(&mut self, partitions: &[TopicPartition]) -> KafkaResult<()> {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            self.queues.split(partition)?;
            list.add_partition_offset(&partition.topic, partition.partition, PARKED)?;
        }
        accept(self.consumer(), &list)?;
        self.consumer().pause(&list)
    }

    /// Answers a revocation.
    pub(crate) fn give_back(&mut self, partitions: &[TopicPartition]) -> KafkaResult<()> {
        for partition in partitions {
            self.queues.remove(partition);
        }
        release(self.consumer(), &list_of(partitions))
    }

    /// Moves a partition to that offset and lets it fetch from there.
    pub(crate) fn begin(&self, partition: &TopicPartition, at: i64) -> KafkaResult<()> {
        let sought = seek(self.consumer(), partition, at)?;
        self.consumer().resume(&sought)
    }

    /// As [`Member::begin`], for a partition that librdkafka does not read any more, since its position was out of the log: it is
    /// assigned again. The eager protocol can only assign all partitions at once, so `others` are those beside it, with the offset that
    /// each goes on at, or none where it is parked.
    pub(crate) fn begin_again(
        &self,
        partition: &TopicPartition,
        at: i64,
        others: &[(TopicPartition, Option<i64>)],
    ) -> KafkaResult<()> {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(at))?;
        if let RebalanceProtocol::Cooperative = self.consumer().rebalance_protocol() {
            self.consumer().incremental_unassign(&list)?;
            self.consumer().incremental_assign(&list)?;
            return self.consumer().resume(&list);
        }
        let mut parked = TopicPartitionList::new();
        for (other, at) in others {
            list.add_partition_offset(&other.topic, other.partition, at.map_or(PARKED, Offset::Offset))?;
            if at.is_none() {
                parked.add_partition(&other.topic, other.partition);
            }
        }
        self.consumer().assign(&list)?;
        // A pause outlives the assignment it was made in.
        self.consumer().resume(&list)?;
        self.consumer().pause(&parked)
    }

    /// Parks a partition again.
    pub(crate) fn park(&mut self, partition: &TopicPartition) -> KafkaResult<()> {
        self.queues.open(partition, false);
        self.consumer().pause(&list_of(std::slice::from_ref(partition)))
    }
}

/// Moves a partition of either client to that offset.
pub(crate) fn seek(
    consumer: &BaseConsumer<Context>,
    partition: &TopicPartition,
    to: i64,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(to))?;
    // Answered by librdkafka's own thread, without asking a broker.
    let sought = consumer.seek_partitions(list, SEEK_PATIENCE)?;
    sought.elements().iter().try_for_each(rdkafka::topic_partition_list::TopicPartitionListElem::error)?;
    Ok(sought)
}

/// The partitions of a list.
pub(crate) fn named(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(|element| TopicPartition::new(element.topic(), element.partition())).collect()
}

/// A list of partitions, without offsets.
pub(crate) fn list_of(partitions: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition(&partition.topic, partition.partition);
    }
    list
}

fn accept(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(list),
    }
}

fn release(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    }
}
