//! The cluster id: what makes clients notice that they talk to another cluster than before.

use std::sync::Arc;

use milena_store::{INTERNAL_STREAM, Store, StoreError, TopicInfo, TopicRef, TopicSettings};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

/// The internal topic whose identity is the cluster's. It holds no messages.
const CLUSTER_TOPIC: &str = "cluster";

/// Finds the cluster id of a store, or gives it one.
///
/// The id is a digest of the identity (numbers and creation time) of one internal topic. The store keeps that identity
/// durably and never changes it, so the id survives restarts and is the same for every gateway in front of one store,
/// without a second place that could disagree with the data.
///
/// # Errors
/// When the store cannot say whether the topic is there, or cannot create it.
pub async fn cluster_id(store: &Arc<dyn Store>) -> Result<String, StoreError> {
    if let Some(found) = store.topic(INTERNAL_STREAM, CLUSTER_TOPIC).await? {
        return Ok(id_of(&found.topic));
    }
    let settings = TopicSettings { keep_forever: true, ..TopicSettings::default() };
    let created = match store.create_topic(INTERNAL_STREAM, CLUSTER_TOPIC, 1, &settings).await {
        // Another gateway was faster: its topic is the cluster.
        Err(StoreError::Exists { .. }) => store.topic(INTERNAL_STREAM, CLUSTER_TOPIC).await?,
        other => Some(other?),
    };
    let missing = || StoreError::NotFound { what: format!("topic {INTERNAL_STREAM}/{CLUSTER_TOPIC}") };
    created.map(|TopicInfo { topic, .. }| id_of(&topic)).ok_or_else(missing)
}

fn id_of(topic: &TopicRef) -> String {
    let mut identity = Vec::with_capacity(32);
    identity.extend_from_slice(b"milena cluster");
    identity.extend_from_slice(&topic.stream_id().to_le_bytes());
    identity.extend_from_slice(&topic.topic_id().to_le_bytes());
    identity.extend_from_slice(&topic.created_at_micros().to_le_bytes());
    Uuid::from_u128(xxh3_128(&identity)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_never_changes_for_one_identity() {
        let topic = TopicRef::new("__milena", "cluster", 1, 2, 1_764_000_000_000_000);
        assert_eq!(id_of(&topic), "3f8ad8ba-7fcd-891c-b773-89d4e9dabca7");
    }

    #[test]
    fn another_store_is_another_cluster() {
        let one = TopicRef::new("__milena", "cluster", 0, 0, 1_764_000_000_000_000);
        let two = TopicRef::new("__milena", "cluster", 0, 0, 1_764_000_000_000_001);
        assert_ne!(id_of(&one), id_of(&two));
    }
}
