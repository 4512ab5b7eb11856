//! Stores of finished ranges: what a partition's next owner reads beside the committed offset.
//!
//! [`MetadataStore`] has them in the metadata of that offset; [`TopicStore`] in a topic of their own. The calls wait for the broker.
//! A consumer makes those of a topic in threads that do nothing else; those of the metadata it does not need, because there the ranges
//! travel with its own reads and commits.

mod metadata;
mod topic;
mod writer;

pub use metadata::MetadataStore;
pub use topic::TopicStore;
pub(crate) use writer::{Write, Writer};

use crate::delivery::TopicPartition;
use crate::{Error, Progress};

/// Where one group's finished ranges are kept, one checkpoint for each partition of its topics.
///
/// Each call takes many partitions and answers for each of them, in the order they were named in; a partition is named once. It waits
/// for the broker, in a bounded time, and may be made from several threads.
pub trait CheckpointStore: Send + Sync {
    /// Reads what was stored last; `None` where there is nothing that could count.
    fn load(&self, partitions: &[TopicPartition]) -> Vec<Result<Option<Progress>, Error>>;

    /// Stores these in place of what is there. After an error the old or the new one is there.
    fn save(&self, checkpoints: &[(TopicPartition, Progress)]) -> Vec<Result<(), Error>>;

    /// Removes what is stored. After an error it is there or not.
    fn clear(&self, partitions: &[TopicPartition]) -> Vec<Result<(), Error>>;
}
