//! Apache Iggy as the engine: the [`milena_store::Store`] of this crate keeps everything on an Iggy server, over Iggy's own SDK.
//!
//! - `engine`: [`IggyStore`], opening it, and the trait
//! - `config`, `limits`, [`url`]: how the server is reached, and every bound
//! - `dialer`, `line`, `name`, `pause`, `pool`: connections: logging in, one request at a time, which connection is for what
//! - `roster`, `sweep`, `barrier`: the nodes of a cluster, reaching one, and what a new leader has of appends in doubt
//! - `error`: the one map from the server's errors to the store's
//! - `inner`, `topics`, `partition`, `look`: what is known of topics and of the ends of their partitions
//! - `append`, `send`: a frame block becomes one request, its confirmation becomes a base offset
//! - `read`, `poll`: a poll's reply becomes entries
//! - `visits`, `nodes`, `gap`, `starts`: what all nodes of a cluster say, where one may lag or lack messages
//! - `search`: by time; `probe`: messages of other writers; `trim`: where a partition begins
//! - `admin`, `options`: topics, and their settings as the server's options
//! - `offsets`: consumer offsets of the server, for whom it lets store them
//! - `journal`, `table`, `state`, `compact`: what the server has no field for, in a topic of the internal stream
//! - `epochs`: ends that move back
//!
//! It knows nothing of Kafka. It does not decide what became of an append in doubt: it says that it is, and lets the
//! log be read.

mod admin;
mod append;
mod barrier;
mod compact;
mod config;
mod dialer;
mod engine;
mod epochs;
mod error;
mod gap;
mod inner;
mod journal;
mod limits;
mod line;
mod look;
mod name;
mod names;
mod nodes;
mod offsets;
mod options;
mod partition;
mod pause;
mod poll;
mod pool;
mod probe;
mod read;
mod roster;
mod search;
mod send;
mod starts;
mod state;
mod sweep;
mod table;
mod topics;
mod trim;
pub mod url;
mod visits;

pub use config::{AckDurability, IggyConfig, TlsConfig};
pub use engine::{IggyStore, OpenError};
pub use limits::CONNECTIONS_MAX;
pub use secrecy::{ExposeSecret, SecretString};
