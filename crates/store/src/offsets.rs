//! Committed offsets that an engine keeps by itself, as consumer offsets of its own consumer groups.
//!
//! An engine may offer this beside its topics ([`Store::offset_store`]). It is nothing that Milena needs: offsets in a
//! state log work on every engine. It is there for operators who want to see them with the engine's own tools.
//!
//! Engines differ in what they let somebody store who is no member of the group. [`probe`] finds out.

use bytes::Bytes;

use crate::engine::{Store, StoreFuture};
use crate::error::StoreError;
use crate::frame::frame_header;
use crate::types::{AppendBatch, PartitionRef, TopicRef, TopicSettings};

/// One number per group and partition. It is kept as it was given; nothing ever reads messages by it.
///
/// Groups belong to a topic, and go with it: a topic that is created again has none. Calls about one group and partition
/// take effect in the order in which they are made when each waits for the one before it.
pub trait OffsetStore: Send + Sync {
    /// Longest name of a group, in bytes.
    fn group_bytes_max(&self) -> usize;

    /// Creates a group of a topic, which nobody joins by that. A group that is there is success.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when that incarnation of the topic is gone, whatever has its name now.
    fn create_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()>;

    /// Whether a topic has the group.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when that incarnation of the topic is gone.
    fn has_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, bool>;

    /// Names of the groups of a topic, of whatever origin.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when that incarnation of the topic is gone.
    fn groups<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<String>>;

    /// Deletes a group of a topic with its offsets. A group that is not there is success.
    ///
    /// # Errors
    /// What keeps the engine from doing it.
    fn delete_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()>;

    /// The offset of a group, `None` when none is stored.
    ///
    /// # Errors
    /// A read that failed is never `None`. [`StoreError::NotFound`] when the partition is gone.
    fn load<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, Option<u64>>;

    /// Stores the offset of a group; it is as durable as the engine keeps consumer offsets when this returns.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the group or the partition is gone. [`StoreError::Refused`] or
    /// [`StoreError::Unsupported`] when the engine will not take it. After [`StoreError::InDoubt`], it is
    /// [`StoreError::Busy`] until the call before can no longer take effect.
    fn store<'a>(&'a self, at: &'a PartitionRef, group: &'a str, offset: u64) -> StoreFuture<'a, ()>;

    /// Takes the offset of a group away. One that is not there is success.
    ///
    /// # Errors
    /// As [`OffsetStore::store`], but that what is gone has no offset either.
    fn forget<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, ()>;
}

/// Why committed offsets cannot be kept as consumer offsets of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ProbeRefusal {
    /// What a Kafka consumer needs and did not get.
    pub what: &'static str,
    /// What the engine said.
    pub why: String,
}

/// Tries what Kafka consumers need: to store without being a member of the group, 0 on an empty partition, and the offset
/// behind the last message. It works on a topic of the internal stream of its own, `topic`, which it deletes.
///
/// # Errors
/// The outer error when the engine did not answer the question.
pub async fn probe(store: &dyn Store, topic: &str) -> Result<Result<(), ProbeRefusal>, StoreError> {
    let Some(offsets) = store.offset_store() else {
        let why = "it has no consumer groups".to_owned();
        return Ok(Err(ProbeRefusal { what: "this store keeps no consumer offsets", why }));
    };
    // What a probe before this one left.
    if let Some(old) = store.topic(crate::INTERNAL_STREAM, topic).await? {
        store.delete_topic(&old.topic).await?;
    }
    let created = store.create_topic(crate::INTERNAL_STREAM, topic, 2, &TopicSettings::default()).await?;
    let verdict = probe_topic(store, offsets, &created.topic).await;
    let deleted = store.delete_topic(&created.topic).await;
    let verdict = verdict?;
    deleted?;
    Ok(verdict)
}

async fn probe_topic(
    store: &dyn Store,
    offsets: &dyn OffsetStore,
    topic: &TopicRef,
) -> Result<Result<(), ProbeRefusal>, StoreError> {
    const GROUP: &str = "milena.probe";
    let (empty, written) = (topic.partition(0), topic.partition(1));
    // First, as engines build the partitions of a new topic in their own time, and an append waits for that.
    let base = store.append(&written, one_message()).await?.base_offset.unwrap_or(0);
    // One behind the other: an engine may begin with a call before its answer is waited for.
    let steps = async {
        let create = offsets.create_group(topic, GROUP).await;
        refused("a group cannot be created", create)?;
        let zero = offsets.store(&empty, GROUP, 0).await;
        refused("offset 0 of an empty partition is not stored for who is no member of the group", zero)?;
        let end = offsets.store(&written, GROUP, base + 1).await;
        refused("the offset behind the last message is not stored", end)?;
        let kept = expect(offsets, &written, GROUP, Some(base + 1)).await;
        refused("an offset that was stored is not what is read", kept)?;
        let taken = offsets.forget(&written, GROUP).await;
        refused("an offset cannot be taken away", taken)?;
        let gone = expect(offsets, &written, GROUP, None).await;
        refused("an offset that was taken away is still there", gone)
    };
    match steps.await {
        Ok(()) => Ok(Ok(())),
        Err(Step::Refused(refusal)) => Ok(Err(refusal)),
        Err(Step::Failed(error)) => Err(error),
    }
}

/// Why a step of a probe did not succeed.
enum Step {
    Refused(ProbeRefusal),
    /// The engine did not say.
    Failed(StoreError),
}

fn refused(what: &'static str, result: Result<(), StoreError>) -> Result<(), Step> {
    result.map_err(|error| match error {
        StoreError::NotFound { .. } | StoreError::Refused { .. } | StoreError::Unsupported { .. } => {
            Step::Refused(ProbeRefusal { what, why: error.to_string() })
        }
        error => Step::Failed(error),
    })
}

async fn expect(
    offsets: &dyn OffsetStore,
    at: &PartitionRef,
    group: &str,
    expected: Option<u64>,
) -> Result<(), StoreError> {
    let found = offsets.load(at, group).await?;
    if found == expected { Ok(()) } else { Err(StoreError::Unsupported { what: "another answer came" }) }
}

fn one_message() -> AppendBatch {
    const PAYLOAD: &[u8] = b"probe";
    let mut frames = frame_header(1, 0, 5, 0).to_vec();
    frames.extend_from_slice(PAYLOAD);
    AppendBatch {
        frames: Bytes::from(frames),
        count: 1,
        origin_min_micros: 0,
        origin_max_micros: 0,
        has_untimed: true,
        producer: None,
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;

    use super::*;
    use crate::testing::{MemoryStore, OffsetFault, OffsetRules};

    const TOPIC: &str = "offset-probe";

    fn probed(store: &MemoryStore) -> Result<Result<(), ProbeRefusal>, StoreError> {
        block_on(probe(store, TOPIC))
    }

    #[test]
    fn an_engine_that_takes_any_offset_passes_and_nothing_is_left() {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        assert_eq!(probed(&store), Ok(Ok(())));
        assert_eq!(probed(&store), Ok(Ok(())));
        assert!(block_on(store.topics()).unwrap().is_empty());
    }

    #[test]
    fn each_rule_that_a_kafka_consumer_breaks_is_found_and_named() {
        let rules = [
            (OffsetRules::MembersOnly, "no member of the group"),
            (OffsetRules::WithinLog, "offset 0 of an empty partition"),
            (OffsetRules::BelowEnd, "behind the last message"),
        ];
        for (rules, named) in rules {
            let store = MemoryStore::with_offsets(rules);
            let refusal = probed(&store).unwrap().unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal}");
            assert!(block_on(store.topics()).unwrap().is_empty());
        }
        let refusal = probed(&MemoryStore::new()).unwrap().unwrap_err();
        assert_eq!(refusal.to_string(), "this store keeps no consumer offsets: it has no consumer groups");
    }

    #[test]
    fn an_engine_that_does_not_answer_is_no_refusal_and_what_a_probe_left_is_cleared_away() {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        store.plan_offsets(OffsetFault::Busy);
        assert!(matches!(probed(&store), Err(StoreError::Busy { .. })));
        block_on(store.create_topic(crate::INTERNAL_STREAM, TOPIC, 1, &TopicSettings::default())).unwrap();
        assert_eq!(probed(&store), Ok(Ok(())));
        assert!(block_on(store.topics()).unwrap().is_empty());
    }
}
