//! Why a topic was not created, changed or deleted.

use milena_store::StoreError;

use super::configs::ConfigError;
use super::names::NameRefusal;

/// The error of [`super::TopicDirectory`]. Its text goes to clients: it is short, whatever they sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// No topic can have that name.
    #[error("{0}")]
    Name(#[from] NameRefusal),
    /// There is a topic of that name.
    #[error("the topic exists already")]
    Exists,
    /// There is no topic of that name, or no longer this incarnation of it.
    #[error("the topic does not exist")]
    NotFound,
    /// A topic of Milena's own, which clients cannot change.
    #[error("the topic is internal")]
    Internal,
    /// A partition count that is not taken.
    #[error("{asked} partitions are outside of 1 to {limit}")]
    Partitions {
        /// What was asked for.
        asked: i64,
        /// The most this server takes.
        limit: u32,
    },
    /// A partition count that is not above the present one.
    #[error("the topic has {now} partitions, and {asked} are not more")]
    NotMore {
        /// Partitions it has.
        now: u32,
        /// Partitions asked for.
        asked: i64,
    },
    /// A config was refused; nothing was changed.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
}

impl From<StoreError> for TopicError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } => TopicError::NotFound,
            StoreError::Exists { .. } => TopicError::Exists,
            other => TopicError::Store(other),
        }
    }
}
