//! Topics as the offsets see them: their incarnation, and their end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use milena_groups::{TopicId, TopicKey, Walk};
use milena_store::{GrowthWatcher, PartitionRef, Store, TopicRef};

use tokio::task::yield_now;

use super::shared::Shared;
use crate::opening::answered;
use crate::topics::mapping::{Mapping, Seen};
use crate::topics::{Topic, ids};

/// The incarnation that offsets are stored under.
#[must_use]
pub fn incarnation(topic: &Topic) -> TopicId {
    TopicId(topic.id.as_u128())
}

/// Hears of topics that are deleted.
pub(super) struct Deletions {
    pub(super) shared: Arc<Shared>,
    pub(super) mapping: Mapping,
}

impl GrowthWatcher for Deletions {
    fn grown(&self, _partition: &PartitionRef, _end: u64, _bytes: usize) {}

    fn deleted(&self, topic: &TopicRef) {
        let (Seen::As(name) | Seen::Internal(name)) = self.mapping.seen(topic.stream(), topic.topic()) else { return };
        let key = TopicKey { name: Arc::from(name), id: TopicId(ids::topic_id(topic).as_u128()) };
        self.shared.run(|groups, _, out| groups.topic_deleted(&key, out));
    }
}

/// The topics that exist, and how clients see them.
#[derive(Clone)]
pub(super) struct Existing {
    pub(super) store: Arc<dyn Store>,
    pub(super) mapping: Mapping,
}

impl Existing {
    /// Whether a topic of that incarnation had another name when offsets were stored under this one.
    ///
    /// The mapping may have changed instead, and what was committed must outlast that: it may be a mistake that is put right
    /// with the next start. So a rename is only what cannot well be anything else: clients see the topic under another name,
    /// and the old one leads to another topic of the same stream.
    fn is_renamed(&self, name: &str, topic: &TopicRef) -> bool {
        let Seen::As(seen) = self.mapping.seen(topic.stream(), topic.topic()) else { return false };
        let led_to = self.mapping.place(name);
        seen != name && led_to.is_ok_and(|place| place.stream == topic.stream() && place.topic != topic.topic())
    }
}

/// Takes offsets away whose topic is gone without a word, or has another name: the process died at the wrong moment, or
/// somebody else did it.
///
/// Compared by incarnation before the name, so that a changed topic mapping takes nothing away. A store that does not
/// answer is asked again with the next round.
pub(super) async fn forget_missing(shared: &Shared, existing: &Existing) {
    // Looked up first: a topic that is created in between is in the store's list, and its offsets are not in ours.
    let (mut walk, mut known) = (Walk::default(), HashSet::new());
    while !walk.is_over() {
        shared.read(|groups| groups.offsets().topics(&mut walk, &mut known));
        yield_now().await;
    }
    if known.is_empty() {
        return;
    }
    let there: HashMap<TopicId, TopicRef> = match answered("the topics", existing.store.topics()).await {
        Ok(infos) => {
            infos.into_iter().map(|info| (TopicId(ids::topic_id(&info.topic).as_u128()), info.topic)).collect()
        }
        Err(error) => {
            tracing::warn!(%error, "committed offsets were not compared with the topics that exist");
            return;
        }
    };
    let is_gone = |key: &TopicKey| there.get(&key.id).is_none_or(|topic| existing.is_renamed(&key.name, topic));
    for key in known.iter().filter(|key| key.id != TopicId::FOREIGN && is_gone(key)) {
        tracing::info!(topic = %key.name, "committed offsets of a topic that is gone or was renamed are deleted");
        shared.run(|groups, _, out| groups.topic_deleted(key, out));
        // Each is a look at all groups; between two of them others have their turn.
        yield_now().await;
    }
}

#[cfg(test)]
mod tests;
