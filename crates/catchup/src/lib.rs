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
//! Not here yet: the consumer itself, that is these parts over rdkafka.

mod buffers;
mod event;
mod lane;
pub mod partition;
mod progress;
mod range_set;
mod settings;
mod status;

pub use buffers::{Buffer, Buffers};
pub use event::{Event, ResetReason, ResolveFault};
pub use lane::Lane;
pub use partition::{AckOutcome, CommitFailure, CommitId, Epoch, Input, Output, Partition, Reset, Resolved};
pub use progress::{Encoded, LogId, NotCounted, Progress, user_metadata};
pub use range_set::RangeSet;
pub use settings::{Bound, Checkpoint, Commit, Lag, METADATA_BYTES_MAX, Order, Settings, USER_METADATA_BYTES_MAX};
pub use status::{LaneStatus, PartitionStatus, State};
