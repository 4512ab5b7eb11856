//! The client's side of the `milena` command: what its commands speak Kafka with.
//!
//! - [`client`]: an async Kafka client over the project's own wire and record crates
//!
//! The server is `milena-server`; nothing here is needed to run one.

pub mod client;
