//! What the gateway needs from a message engine, in the engine's own terms: streams, topics, partitions and
//! messages. There are no Kafka types here, no async runtime, no clock and no random numbers.
//!
//! - [`engine`]: the [`Store`] trait and the promise that each method makes
//! - [`frame`]: the frame block, the contiguous form in which messages travel to and from an engine
//! - [`types`]: names, identities, settings, limits
//! - [`epochs`]: where the end of a partition moved back
//! - [`error`]: [`StoreError`], the one error enum of this boundary
//! - [`metrics`]: counters as plain atomics
//! - [`offsets`]: committed offsets that an engine keeps by itself, where it can
//! - [`state_log`]: state of our own, as a log with snapshots over an internal topic
//! - `conformance` (feature `conformance`): the suite that every engine must pass
//! - `testing` (feature `conformance`): an engine in memory, the reference, with fault hooks
//!
//! It is not an engine: those are `milena-store-embedded` and, later, `milena-store-iggy`.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod engine;
pub mod epochs;
pub mod error;
pub mod frame;
pub mod metrics;
pub mod offsets;
pub mod state_log;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
pub mod types;

pub use engine::{GrowthWatcher, Store, StoreFuture};
pub use epochs::{EpochStart, Epochs};
pub use error::StoreError;
pub use offsets::OffsetStore;
pub use types::{
    AppendBatch, Appended, Bounds, Capabilities, Durability, Entry, Found, PartitionId, PartitionRef, PartitionSize,
    ProducerSpan, ReadLimit, TimeKind, TopicInfo, TopicRef, TopicSettings, Volume,
};

/// The stream that holds Milena's own state; its topics are never shown to Kafka clients unless asked for.
pub const INTERNAL_STREAM: &str = "__milena";
