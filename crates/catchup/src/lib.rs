//! A consumer that delivers new records at once while old ones are caught up beside them: KIP-333, at-least-once, with
//! any Kafka broker.
//!
//! After a crash a plain consumer works through everything since its last commit before it sees a new record. Here the
//! log is *forked* where it ends at that moment: a live lane goes on from there, a backfill lane reads what lies
//! between. What is finished ahead of the committed offset is kept in the metadata of that offset, which stays a
//! plain Kafka offset: any other consumer can take over.
//!
//! The pure parts, without I/O and clock:
//!
//! - [`RangeSet`]: sets of offsets
//! - [`Progress`]: what is finished of a partition, and its written form; [`LogId`]
//! - [`partition`]: the state machine of one assignment, [`Partition`]
//! - [`Settings`] and its parts: [`Order`], [`Lag`], [`Commit`], [`Checkpoint`], [`Bound`]
//! - [`Event`], [`PartitionStatus`], [`Buffers`]: what can be seen from outside
//!
//! The consumer, over rdkafka:
//!
//! - [`CatchUpConsumer`], its [`Builder`], [`Delivery`] and [`Ack`], [`Events`]
//! - [`CheckpointStore`]: where finished ranges are kept, [`MetadataStore`] or [`TopicStore`]
//! - [`inspect`]: what is committed for a group, from outside
//! - [`fuzzing`]: the entry points of the fuzz target
//! - `member` and `reader`: the two clients; `broker`: the calls that wait; `driver`: the thread that drives all of them; `shared`:
//!   what it has in common with the application; `records`: records on their way there

mod broker;
mod buffers;
mod checkpoint;
mod consumer;
mod delivery;
mod driver;
mod error;
mod event;
mod flights;
pub mod fuzzing;
mod inspect;
mod lane;
mod member;
pub mod partition;
mod progress;
mod queues;
mod range_set;
mod reader;
mod receivers;
mod records;
mod settings;
mod shared;
mod status;
mod wake;

pub use buffers::{Buffer, Buffers};
pub use checkpoint::{CheckpointStore, MetadataStore, TopicStore};
pub use consumer::{Builder, CatchUpConsumer, Events, Happened};
pub use delivery::{Ack, Delivery, TopicPartition};
pub use error::Error;
pub use event::{Event, ResetReason, ResolveFault};
pub use inspect::{Checkpointed, Inspected, inspect};
pub use lane::Lane;
pub use partition::{AckOutcome, CommitFailure, CommitId, Epoch, Input, Output, Partition, Reset, Resolved};
pub use progress::{Encoded, LogId, NotCounted, Progress, user_metadata};
pub use range_set::RangeSet;
pub use settings::{
    Bound, CHECKPOINT_BYTES_MAX, Checkpoint, Commit, Lag, METADATA_BYTES_MAX, Order, Settings, USER_METADATA_BYTES_MAX,
};
pub use status::{LaneStatus, PartitionStatus, State};
