//! Kafka topics over the store's topics: mapping, ids, configs, and a cache that is complete at any time.
//!
//! - [`names`]: Kafka's rules for topic names
//! - [`mapping`]: Kafka names to places in the store, and back
//! - [`ids`]: Kafka's topic ids, derived and never stored
//! - [`configs`]: every topic config of Kafka, the configs of the broker, and what they mean here
//! - [`directory`]: the cache
//! - `changes`: the steps in which topics change, and why in that order
//! - `alter`: changes of configs
//! - `config_log`: what users set, kept in an internal topic
//! - `foreign`: changes in the store's own terms, for another protocol; `taken`: those that Kafka does not have
//! - [`error`]: why a change was refused
//! - `fresh`: looking at stores on which others change topics too; `sought`: looking at once for what a client asks for

mod alter;
mod changes;
mod config_log;
pub mod configs;
pub mod directory;
pub mod error;
mod foreign;
mod fresh;
pub mod ids;
pub mod mapping;
pub mod names;
mod sought;
mod taken;
mod topic;

pub use configs::TopicConfig;
pub use directory::{OpenError, TopicDirectory};
pub use error::TopicError;
pub(crate) use sought::Sought;
pub use topic::Topic;
