//! Topics as the offsets see them: their incarnation, and their end.

use std::collections::HashSet;
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

/// Takes offsets away whose topic is gone without a word: the process died at the wrong moment, or somebody else deleted it.
///
/// Compared by incarnation and not by name, so that a changed topic mapping takes nothing away. A store that does not
/// answer is asked again with the next round.
pub(super) async fn forget_missing(shared: &Shared, store: &dyn Store) {
    // Looked up first: a topic that is created in between is in the store's list, and its offsets are not in ours.
    let (mut walk, mut known) = (Walk::default(), HashSet::new());
    while !walk.is_over() {
        shared.read(|groups| groups.offsets().topics(&mut walk, &mut known));
        yield_now().await;
    }
    if known.is_empty() {
        return;
    }
    let there: HashSet<TopicId> = match answered("the topics", store.topics()).await {
        Ok(infos) => infos.iter().map(|info| TopicId(ids::topic_id(&info.topic).as_u128())).collect(),
        Err(error) => {
            tracing::warn!(%error, "committed offsets were not compared with the topics that exist");
            return;
        }
    };
    for key in known.iter().filter(|key| key.id != TopicId::FOREIGN && !there.contains(&key.id)) {
        tracing::info!(topic = %key.name, "committed offsets of a topic that is gone are deleted");
        shared.run(|groups, _, out| groups.topic_deleted(key, out));
        // Each is a look at all groups; between two of them others have their turn.
        yield_now().await;
    }
}
