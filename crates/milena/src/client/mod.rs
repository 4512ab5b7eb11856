//! An async Kafka client for the command line: small, and with errors that a person can act on.
//!
//! - [`Client`]: bootstrap, brokers, metadata, and a request to any broker, to the controller, a leader or a coordinator
//! - [`Address`], [`Settings`]: where and how to connect
//! - [`topics`]: list, describe, create, delete, grow; configs
//! - [`produce`]: a [`Producer`] that batches and retries without doubling
//! - [`fetch`]: a [`Fetcher`] that reads partitions from positions
//! - [`groups`]: list, describe, delete consumer groups; read and set what they committed
//! - [`offsets`]: where partitions begin and end, and what was written when; deletion of records
//! - [`Login`]: who the client is, where servers ask
//! - [`ClientError`]: sentences that say what to do
//! - `assignment`: the bytes that say which partitions a group member has
//! - `connection`, `versions`: one socket; which version of a request both sides speak
//!
//! It works with any Kafka broker. It is used from one task and keeps one request in flight per broker, except that a
//! fetch asks all leaders at once. Connections may be over TLS, and servers are always verified then. It joins no consumer
//! group: consuming is by position.

mod address;
mod assignment;
mod cluster;
mod connection;
mod error;
pub mod fetch;
pub mod groups;
mod login;
pub mod offsets;
pub mod produce;
pub mod topics;
mod versions;

#[cfg(test)]
mod tests;

pub use address::Address;
pub use cluster::{Broker, Client, Settings};
pub use error::ClientError;
pub use fetch::{FetchSettings, Fetched, Fetcher};
pub use groups::{CommittedOffset, Group, ListedGroup, Member, TopicPartition};
pub use login::Login;
pub use offsets::{At, Listed};
pub use produce::{Acknowledged, Producer, ProducerSettings};
pub use topics::{Config, CreatedTopic, NewTopic, Partition, Topic};

/// What a call of the client gives.
pub type Result<T> = std::result::Result<T, ClientError>;
