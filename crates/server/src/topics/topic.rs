//! A topic as handlers see it.

use std::sync::Arc;

use milena_store::TopicRef;
use uuid::Uuid;

use super::configs::TopicConfig;

/// A Kafka topic as handlers see it. Immutable; a change makes a new one.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Kafka name.
    pub name: Arc<str>,
    /// Kafka topic id, derived from the store's identity.
    pub id: Uuid,
    /// Identity in the store.
    pub store: TopicRef,
    /// Number of partitions.
    pub partitions: u32,
    /// True for topics of the internal stream.
    pub internal: bool,
    /// Effective configuration.
    pub config: TopicConfig,
}
