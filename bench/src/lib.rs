//! Load harness: drives Milena and other Kafka brokers side by side, over the wire, and prints ratios.
//!
//! - [`args`]: the command line
//! - [`servers`]: what is measured: a Milena or a Kafka that is started here, or any address
//! - [`scenarios`]: what is measured about it, one file each
//! - [`report`]: rounds on several servers in turn, their medians as a table and as JSON
//! - [`client`]: a connection with pipelined requests
//! - [`pulse`]: requests at a fixed rate on one connection
//! - [`members`]: members of consumer groups
//! - [`setup`]: topics, and a coordinator that is there
//! - [`latency`], [`usage`]: percentiles; CPU time and memory of a process
//!
//! It is a client like any other: nothing in it knows how a server works inside.

pub mod args;
pub mod client;
pub mod latency;
pub mod members;
pub mod pulse;
pub mod report;
pub mod scenarios;
pub mod servers;
pub mod setup;
pub mod usage;

/// Whatever ends a measurement. It is read by a person, who needs the text and nothing else.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result of the harness.
pub type Result<T, E = Error> = std::result::Result<T, E>;
