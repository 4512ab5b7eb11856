//! Kafka consumer groups as a state machine: membership and committed offsets. No I/O, no clock, no random numbers.
//!
//! A caller hands in a request with the time and drains [`Outputs`]: answers to send, records to make durable.
//! Requests that wait for others (JoinGroup, SyncGroup) or for the store (OffsetCommit and deletions) carry a
//! [`Token`]; their answer comes out of whichever call brings it about. [`Groups`] is all of it; the parts can be
//! used alone.
//!
//! The classic protocol, after Apache Kafka's group coordinator:
//!
//! - [`Coordinator`]: all groups, bounds, timers
//! - `group`, `member`: what a group is; `join`, `static_member` (KIP-345, KIP-814), `rebalance` (the barrier),
//!   `protocol`,
//!   `sync`, `heartbeat`, `leave`, `timers`: one concept each
//! - [`Description`], [`Listed`]: what DescribeGroups and ListGroups show
//! - [`Walk`]: a look at all groups that lets others in between
//! - [`GroupEvent`], [`Census`]: what happened and how many there are, for counters
//! - [`Readers`]: topics that a group subscribes to, the only thing that is read out of clients' metadata
//!
//! Offsets:
//!
//! - [`Offsets`]: the table, and records on their way to the log
//! - `offsets/commit`, `delete`, `expiry` (KIP-211): the rules; `codec`: the stored form; `snapshot`: the table as
//!   records
//!
//! [`GroupError`] has one variant per case, [`GroupConfig`] and [`OffsetConfig`] hold every bound.
//!
//! Not here: the next-generation protocol (KIP-848), transactions, and membership that outlives the process. After a
//! restart every member is unknown and joins again; its offsets are where it left them.

mod census;
mod coordinator;
mod describe;
mod error;
mod event;
mod group;
mod heartbeat;
mod join;
mod leave;
mod limits;
mod member;
mod mutants;
mod offsets;
mod output;
mod protocol;
mod rebalance;
mod service;
#[cfg(test)]
mod simulation;
mod static_member;
mod subscription;
mod sync;
#[cfg(test)]
mod testing;
mod timers;
mod types;
mod walk;

pub use census::Census;
pub use coordinator::Coordinator;
pub use describe::{DescribedMember, Description, GROUP_TYPE, ListFilter, Listed};
pub use error::GroupError;
pub use event::{Departure, GroupEvent, RebalanceCause};
pub use heartbeat::Sender;
pub use join::JoinRequest;
pub use leave::Leaving;
pub use limits::{GroupConfig, OffsetConfig};
pub use offsets::{
    CodecError, CommitPartition, CommitRequest, CommitTopic, Committed, DeletePartitions, DeleteRequest, Frozen,
    GroupView, Offsets, TopicKey,
};
pub use output::{Answer, Append, JoinRefused, Joined, JoinedMember, Occupancy, Outputs, Synced, Ticket};
pub use service::Groups;
pub use subscription::Readers;
pub use sync::SyncRequest;
pub use types::{Blob, Generation, GroupState, MemberId, Moment, Now, Timestamp, Token, TopicId};
pub use walk::Walk;
