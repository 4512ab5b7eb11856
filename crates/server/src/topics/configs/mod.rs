//! Configs of topics and of the broker: names, values, and what they mean.
//!
//! - [`keys`]: every topic config of Kafka 4, its default, its rule, and whether it has an effect here
//! - [`value`]: values, read and checked as Kafka reads and checks them
//! - [`change`]: what a client wants of configs that are set already
//! - [`rules`]: a server's defaults over Kafka's; from what a user set to what the data path and the store act on
//! - [`broker`], [`others`]: what DescribeConfigs answers for the broker, and for groups and client metrics

pub mod broker;
pub mod change;
pub mod keys;
pub mod others;
pub mod rules;
pub mod value;

pub use change::{ConfigChange, ConfigEdit, EditOp};
pub use keys::{Class, ConfigKey, Kind, TOPIC_KEYS};
pub use rules::{ConfigError, ConfigRules, TopicConfig};

/// Where a config's value comes from, as DescribeConfigs numbers it (KIP-226).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Set on the topic.
    Topic,
    /// Set in the server's configuration.
    Server,
    /// Nobody set it.
    Default,
}

impl Source {
    /// Its number on the wire.
    #[must_use]
    pub fn code(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::Server => 4,
            Source::Default => 5,
        }
    }
}

/// A value under another name, from which a config takes its own when that is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// A config as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Name.
    pub name: &'static str,
    /// Value in force.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// True when no client can change it.
    pub read_only: bool,
    /// Type.
    pub kind: Kind,
    /// All values that were set, the one in force first.
    pub synonyms: Vec<Synonym>,
    /// What it does.
    pub documentation: String,
}
