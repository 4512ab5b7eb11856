//! The async shell: listeners, connections, dispatch, and one handler per Kafka API key.
//!
//! - [`config`]: everything an operator can set
//! - [`limits`]: every bound, its default and what happens when it is passed
//! - [`server`]: start and end; [`lifecycle`]: the phases between
//! - [`listener`], `secure`, `connection`, [`peer`]: sockets, TLS, frames, the order of answers
//! - [`memory`]: the byte budget of requests in flight
//! - [`dispatch`]: the table of APIs, and the shape of a handler
//! - [`authentication`]: SASL on listeners that ask for it
//! - `handlers/`: one file per API key
//! - [`broker`]: what all handlers share, and where it is put together
//! - [`cluster`], [`watchers`]: the cluster id; who is told when partitions grow
//! - [`topics`]: Kafka topics over the store's topics: mapping, ids, configs
//! - `produce`, `fetch`: deduplication; fetch sessions and parked fetches
//! - [`groups`]: consumer groups and committed offsets
//! - [`gateways`]: several gateways in front of one store
//! - [`backup_rank`]: in which order a store in use is copied
//! - [`answered`], [`open_log`]: opening on a store that may hang
//! - [`metrics`], [`quiet`]: counters; log lines that must not flood
//! - [`codes`]: the one map from our errors to Kafka error codes

pub mod authentication;
mod backup;
pub mod broker;
pub mod cluster;
pub mod codes;
pub mod config;
mod connection;
pub mod dispatch;
pub mod fetch;
pub mod gateways;
pub mod groups;
pub mod handlers;
pub mod lifecycle;
pub mod limits;
pub mod listener;
pub mod memory;
pub mod metrics;
mod opening;
pub mod peer;
pub mod produce;
pub mod quiet;
mod secure;
pub mod server;
pub mod topics;
pub mod watchers;

pub use backup::backup_rank;
pub use broker::Broker;
pub use config::{ConfigError, ListenerConfig, ServerConfig};
pub use listener::Bound;
pub use opening::{answered, open_log};
pub use server::{Server, StartError};
