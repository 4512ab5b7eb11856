//! Names, identities, settings and limits of the engine boundary.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// Index of a partition within its topic, counted from 0.
pub type PartitionId = u32;

/// One incarnation of a topic.
///
/// Equality and hashing use the numbers only: a topic that was deleted and created again under the same name is a
/// different `TopicRef`, even on an engine that reuses numeric ids. Cloning is a reference count.
#[derive(Clone)]
pub struct TopicRef(Arc<TopicIdentity>);

#[derive(Debug)]
struct TopicIdentity {
    stream: String,
    topic: String,
    stream_id: u32,
    topic_id: u32,
    created_at_micros: u64,
}

impl TopicRef {
    /// An identity as the engine knows it. `created_at_micros` is the creation time since the Unix epoch.
    #[must_use]
    pub fn new(stream: &str, topic: &str, stream_id: u32, topic_id: u32, created_at_micros: u64) -> Self {
        Self(Arc::new(TopicIdentity {
            stream: stream.to_owned(),
            topic: topic.to_owned(),
            stream_id,
            topic_id,
            created_at_micros,
        }))
    }

    /// Name of the stream that holds the topic.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.0.stream
    }

    /// Name of the topic within its stream.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The engine's number for the stream.
    #[must_use]
    pub fn stream_id(&self) -> u32 {
        self.0.stream_id
    }

    /// The engine's number for the topic.
    #[must_use]
    pub fn topic_id(&self) -> u32 {
        self.0.topic_id
    }

    /// Creation time in microseconds since the Unix epoch.
    #[must_use]
    pub fn created_at_micros(&self) -> u64 {
        self.0.created_at_micros
    }

    /// The partition `partition` of this topic; it need not exist.
    #[must_use]
    pub fn partition(&self, partition: PartitionId) -> PartitionRef {
        PartitionRef { topic: self.clone(), partition }
    }

    fn key(&self) -> (u32, u32, u64) {
        (self.0.stream_id, self.0.topic_id, self.0.created_at_micros)
    }
}

impl PartialEq for TopicRef {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for TopicRef {}

impl Hash for TopicRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Debug for TopicRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.stream, self.0.topic)
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartitionRef {
    /// The topic.
    pub topic: TopicRef,
    /// Index within the topic.
    pub partition: PartitionId,
}

impl fmt::Debug for PartitionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.topic, self.partition)
    }
}

/// What an acknowledged append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The bytes are with the operating system: they survive the death of the process, not of the machine.
    Os,
    /// As `Os`, and flushed to the device at least this often, or after this many bytes.
    Interval {
        /// Longest time that acknowledged bytes stay unflushed.
        every: Duration,
        /// Most acknowledged bytes that stay unflushed.
        bytes: u64,
    },
    /// Flushed to the device before the acknowledgement; waiting appends share one flush.
    Always,
}

/// Settings of a topic that an engine acts on. `None` means the engine's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicSettings {
    /// Age by append time after which whole segments are removed; `Some(None)` keeps them for ever.
    pub retention: Option<Option<Duration>>,
    /// Bytes per partition above which the oldest whole segments are removed; `Some(None)` is unlimited.
    pub retention_bytes: Option<Option<u64>>,
    /// Bytes after which a segment is sealed.
    pub segment_bytes: Option<u64>,
    /// Age by append time of its first entry after which a segment is sealed.
    pub segment_age: Option<Duration>,
    /// True when old segments must never be removed by age or size.
    pub keep_forever: bool,
    /// Overrides the durability of the store for this topic.
    pub durability: Option<Durability>,
    /// Flush after this many messages (on top of `durability`).
    pub flush_messages: Option<u64>,
    /// Flush when acknowledged messages are older than this (on top of `durability`).
    pub flush_every: Option<Duration>,
}

/// A topic as the engine describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its identity.
    pub topic: TopicRef,
    /// Number of partitions; ids are `0..partitions`.
    pub partitions: u32,
    /// Settings as stored.
    pub settings: TopicSettings,
}

/// Offsets of a partition: `start` is the first retained one, `end` the next to be written. Neither ever falls on
/// the embedded store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First retained offset.
    pub start: u64,
    /// Next offset to be written.
    pub end: u64,
}

/// Size of one partition on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionSize {
    /// Partition index.
    pub partition: PartitionId,
    /// Bytes of retained segments.
    pub bytes: u64,
}

/// The volume that an engine keeps its data on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    /// Bytes of the whole volume.
    pub total_bytes: u64,
    /// Bytes that may still be written to it.
    pub usable_bytes: u64,
}

/// The producer section of an append, for engines that deduplicate by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerSpan {
    /// Producer id, never negative.
    pub producer_id: u64,
    /// Producer epoch.
    pub epoch: u16,
    /// Sequence of the first message.
    pub base_sequence: u32,
}

/// Messages to append, in one piece: they get consecutive offsets or none.
#[derive(Debug, Clone)]
pub struct AppendBatch {
    /// Frames as [`crate::frame`] lays them out, back to back.
    pub frames: Bytes,
    /// How many frames there are; at least 1.
    pub count: u32,
    /// Smallest origin timestamp above 0, in microseconds; 0 when no frame has one.
    pub origin_min_micros: u64,
    /// Largest origin timestamp, in microseconds; 0 when no frame has one.
    pub origin_max_micros: u64,
    /// True when at least one frame has origin timestamp 0 (its time is the append time).
    pub has_untimed: bool,
    /// Producer section, if the messages came from an idempotent producer.
    pub producer: Option<ProducerSpan>,
}

/// Answer to a successful append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first message; `None` when the engine confirmed the append but not the offset.
    pub base_offset: Option<u64>,
    /// Append time of the batch in microseconds since the Unix epoch; 0 when the engine does not say.
    pub append_time_micros: u64,
    /// First retained offset of the partition.
    pub log_start: u64,
}

/// A run of stored messages with consecutive offsets and one append time.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Offset of the first frame.
    pub base_offset: u64,
    /// Number of frames.
    pub count: u32,
    /// Append time in microseconds since the Unix epoch.
    pub append_time_micros: u64,
    /// The frames, back to back. None in place of messages at the end of the log that were cut out of it: a reader goes on
    /// behind them.
    pub frames: Bytes,
}

/// How much a read may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Bytes of frames, counted by whole entries. The first entry that holds the wanted offset is returned even when
    /// it alone is larger, if `at_least_one` is set.
    pub bytes: usize,
    /// Return one entry whatever its size.
    pub at_least_one: bool,
}

/// Which clock a search by time looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeKind {
    /// The message's origin timestamp, or its append time where that is 0.
    Origin,
    /// The append time.
    Append,
}

/// Result of a search by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Offset of the message.
    pub offset: u64,
    /// Its time of the kind asked for, in microseconds.
    pub time_micros: u64,
}

/// Limits of an engine, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Widest span of origin timestamps in one append, in microseconds; `None` is unlimited.
    pub timestamp_span_micros: Option<u64>,
    /// Smallest payload of one message in bytes: 1 where the engine does not take an empty one.
    pub payload_bytes_min: usize,
    /// Largest payload of one message in bytes.
    pub payload_bytes_max: usize,
    /// Largest user-header block of one message in bytes.
    pub header_bytes_max: usize,
    /// Most partitions of one topic.
    pub partitions_max: u32,
    /// True when [`crate::Store::trim`] works at any offset.
    pub trims: bool,
    /// True when somebody else may append to the same partitions, so that growth is not always announced.
    pub foreign_writers: bool,
    /// How old an answer of [`crate::Store::bounds`] may be: zero where each call looks. What was appended by somebody else
    /// longer ago than that is in the answer.
    pub bounds_age: Duration,
}
