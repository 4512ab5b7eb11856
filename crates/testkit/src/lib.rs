//! For tests only: in-process server, raw wire client, child processes.
//!
//! - [`raw`]: a client that sends what it is told, right or wrong, and reads frames in order
//! - [`server`]: a server in this process, over memory or a folder, which can be restarted on its data
//! - [`child`]: the `milena` binary as a child process, which can be killed and started again
//! - [`port`]: ports that nobody else gets
//! - [`chosen`]: the store that the environment chooses, so that one test runs over each
//! - [`door`]: the `milena` binary as a child process that serves Iggy's protocol
//! - [`kafka`]: an Apache Kafka broker as a child process
//! - [`iggy_server`]: Apache Iggy's own server as child processes, one or a cluster
//! - [`logged`]: what is logged, counted
//! - [`proxy`]: a proxy that copies bytes, and can cut, hold or lose them
//! - [`tls`]: an authority whose certificates are made while the test runs, and clients that trust it
//! - [`shared`]: one Iggy server for several gateways
//! - `iggy` (feature `iggy`): servers over Iggy instead of memory
//!
//! Everything here panics where a test should fail: each call has a deadline, and what it waited for is in the message.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests only: what goes wrong here is a failed test"
)]

pub mod child;
pub mod chosen;
pub mod door;
#[cfg(feature = "iggy")]
mod iggy;
pub mod iggy_server;
pub mod kafka;
pub mod logged;
pub mod port;
pub mod proxy;
pub mod raw;
pub mod server;
pub mod shared;
pub mod tls;

use std::time::Duration;

pub use child::ChildServer;
pub use chosen::ChosenStore;
pub use door::DoorChild;
pub use iggy_server::IggyServers;
pub use kafka::KafkaChild;
pub use logged::Logged;
pub use port::ReservedPort;
pub use proxy::Proxy;
pub use raw::RawClient;
pub use server::TestServer;
pub use shared::SharedIggy;
pub use tls::Authority;

/// Time after which something that should happen at once has not happened. Long, because test machines are busy.
pub const SOON: Duration = Duration::from_secs(30);
