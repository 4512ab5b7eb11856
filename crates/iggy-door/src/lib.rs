//! Iggy's binary protocol over TCP, on any store: Iggy clients and Kafka clients meet on the same topics, and no Iggy
//! server is needed.
//!
//! - [`door`]: start and end, the accept loop; [`config`], [`limits`]: what can be set
//! - `connection`, `reader`, [`frame`]: requests and answers as bytes, one after the other
//! - `handlers/`: one file per family of commands
//! - [`batch`]: messages of the protocol to frames of the store, and back
//! - `catalog`: streams and topics as clients name them; [`admin`]: who changes topics
//! - `state/`: streams, groups, offsets and tokens, kept in an internal topic
//! - `members`: who reads which partitions; `clients`: who is connected
//! - `auth`: the one user and its tokens
//! - [`codes`]: the server's error codes, and the one map to them
//! - [`fuzzing`]: the entry point of the fuzz target
//! - `faults` (feature `faults`): what tests let go wrong
//!
//! The wire format is that of the published crate `iggy_binary_protocol`, generation 0.11. It is one node and one user:
//! replication, other users, TLS, QUIC, HTTP and WebSocket are not here.

pub mod admin;
mod auth;
pub mod batch;
mod catalog;
mod clients;
pub mod codes;
pub mod config;
mod connection;
pub mod door;
#[cfg(feature = "faults")]
pub mod faults;
pub mod frame;
pub mod fuzzing;
mod handlers;
pub mod limits;
mod members;
mod reader;
mod secure;
mod service;
mod state;

pub use admin::TopicAdmin;
pub use config::{DoorConfig, OffsetRules, Secret};
pub use door::{ClosedDoor, Door, DoorError, DoorWatch};
pub use limits::DoorLimits;
pub use service::DoorMetrics;
