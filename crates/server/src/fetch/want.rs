//! One partition that a consumer asks for.

use std::sync::Arc;

use uuid::Uuid;

/// How a request names a topic: by name up to version 12, by id from version 13 on.
///
/// Names are copies: a session keeps them, and a slice of the request would keep its whole frame in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// Kafka name.
    Name(Arc<str>),
    /// Kafka topic id.
    Id(Uuid),
}

impl TopicKey {
    /// Bytes of the name.
    #[must_use]
    pub fn name_bytes(&self) -> usize {
        match self {
            Self::Name(name) => name.len(),
            Self::Id(_) => 0,
        }
    }
}

/// A partition as a request names it; it need not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicKey,
    /// Partition index as sent.
    pub partition: i32,
}

/// What is wanted of a partition. All fields are as the client sent them, nothing is checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// First offset wanted.
    pub offset: i64,
    /// Bytes of records at most, unless it is the first record of the response.
    pub max_bytes: i32,
    /// Leader epoch that the client knows; -1 is none.
    pub leader_epoch: i32,
    /// Epoch of the last record that it read, sent by replicas only; -1 is none.
    pub fetched_epoch: i32,
}

/// A partition and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The partition.
    pub key: PartitionKey,
    /// What is wanted.
    pub position: Position,
}
