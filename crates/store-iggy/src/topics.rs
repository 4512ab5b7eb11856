//! The topics that are known, by identity and by name, with the state of their partitions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use milena_store::{Bounds, PartitionId, TopicRef};
use parking_lot::{Mutex, RwLock};

use crate::barrier::Settling;
use crate::limits;
use crate::options::Facts;
use crate::partition::Partition;
use crate::starts::Refuted;

/// One incarnation of a topic.
pub(crate) struct TopicState {
    pub(crate) topic: TopicRef,
    facts: Mutex<Facts>,
    partitions: RwLock<Vec<Arc<Mutex<Partition>>>>,
    /// When the question was asked whose answer is the newest.
    looked: Mutex<Option<Instant>>,
    /// When all nodes of a cluster were last asked.
    nodes_asked: Mutex<Option<Instant>>,
    /// One question at a time; whoever waited for it uses its answer.
    pub(crate) looking: tokio::sync::Mutex<()>,
    /// For each partition that was in doubt, the one question at a time to its leader.
    settling: Mutex<HashMap<PartitionId, Arc<Settling>>>,
    /// When somebody last asked for an end.
    wanted: Mutex<Instant>,
    /// True while the topic is on the list of those that are looked at by themselves.
    pub(crate) probed: AtomicBool,
    /// True once it was said that acknowledged messages of this topic can be lost.
    pub(crate) undurable: AtomicBool,
    /// Starts that the server's figures say and that its messages refute, by partition; see `starts.rs`.
    pub(crate) refuted: Mutex<HashMap<PartitionId, Refuted>>,
    /// True while sealed segments are being removed.
    pub(crate) trimming: AtomicBool,
}

impl TopicState {
    fn new(topic: TopicRef, facts: Facts) -> Self {
        let state = Self {
            topic,
            facts: Mutex::new(facts),
            partitions: RwLock::default(),
            looked: Mutex::new(None),
            nodes_asked: Mutex::new(None),
            looking: tokio::sync::Mutex::new(()),
            settling: Mutex::default(),
            wanted: Mutex::new(Instant::now()),
            probed: AtomicBool::new(false),
            undurable: AtomicBool::new(false),
            refuted: Mutex::default(),
            trimming: AtomicBool::new(false),
        };
        state.widen(facts.partitions);
        state
    }

    pub(crate) fn facts(&self) -> Facts {
        *self.facts.lock()
    }

    /// Takes in what the server says; partitions never become fewer here, since a topic of fewer is another one.
    pub(crate) fn learn(&self, facts: Facts) {
        *self.facts.lock() = facts;
        self.widen(facts.partitions);
    }

    fn widen(&self, partitions: u32) {
        let wanted = partitions as usize;
        if self.partitions.read().len() < wanted {
            let mut known = self.partitions.write();
            let missing = wanted.saturating_sub(known.len());
            known.extend((0..missing).map(|_| Arc::default()));
        }
    }

    pub(crate) fn partition(&self, partition: PartitionId) -> Option<Arc<Mutex<Partition>>> {
        self.partitions.read().get(partition as usize).cloned()
    }

    pub(crate) fn partitions(&self) -> Vec<Arc<Mutex<Partition>>> {
        self.partitions.read().clone()
    }

    /// True when the newest answer belongs to a question that was not asked before `since`.
    pub(crate) fn looked_since(&self, since: Instant) -> bool {
        self.looked.lock().is_some_and(|looked| looked >= since)
    }

    pub(crate) fn note_look(&self, asked: Instant) {
        *self.looked.lock() = Some(asked);
    }

    /// True when all nodes of a cluster may be asked now, which is noted.
    pub(crate) fn may_ask_nodes(&self, now: Instant) -> bool {
        let mut asked = self.nodes_asked.lock();
        let may = asked.is_none_or(|asked| now.saturating_duration_since(asked) >= limits::NODES_PAUSE);
        if may {
            *asked = Some(now);
        }
        may
    }

    /// How the doubts about a partition are settled.
    pub(crate) fn settling(&self, partition: PartitionId) -> Arc<Settling> {
        Arc::clone(self.settling.lock().entry(partition).or_default())
    }

    /// The next question about an end goes to the server.
    pub(crate) fn expire(&self) {
        *self.looked.lock() = None;
    }

    /// Notes that somebody asks for an end; true when the topic must be put on the list for it.
    pub(crate) fn want(&self) -> bool {
        let mut wanted = self.wanted.lock();
        *wanted = Instant::now();
        !self.probed.swap(true, Ordering::AcqRel)
    }

    /// True while somebody asked for an end within that time. Else the topic is noted as one that is not on the list of those
    /// that are looked at, and who asks for an end from then on puts it there again.
    pub(crate) fn stays_wanted(&self, now: Instant, within: Duration) -> bool {
        // Locked over both, so that nobody asks in between and believes that it is on the list.
        let wanted = self.wanted.lock();
        let stays = now.saturating_duration_since(*wanted) < within;
        if !stays {
            self.probed.store(false, Ordering::Release);
        }
        stays
    }

    /// The bounds of a partition if they are not older than `age`.
    pub(crate) fn recent_bounds(&self, partition: PartitionId, now: Instant, age: Duration) -> Option<Bounds> {
        let since = now.checked_sub(age)?;
        if !self.looked_since(since) {
            return None;
        }
        let partition = self.partition(partition)?;
        let known = partition.lock();
        // While an epoch is to rise nobody may see the lower end.
        (!known.is_raising() && !known.is_passed_over()).then(|| known.bounds())
    }
}

/// All known topics.
#[derive(Default)]
pub(crate) struct Topics {
    tables: RwLock<Tables>,
}

#[derive(Default)]
struct Tables {
    by_ref: HashMap<TopicRef, Arc<TopicState>>,
    by_name: HashMap<(String, String), TopicRef>,
}

impl Topics {
    pub(crate) fn get(&self, topic: &TopicRef) -> Option<Arc<TopicState>> {
        self.tables.read().by_ref.get(topic).cloned()
    }

    /// True while this is the state of its topic: not after the topic went.
    pub(crate) fn is_known(&self, state: &Arc<TopicState>) -> bool {
        self.tables.read().by_ref.get(&state.topic).is_some_and(|known| Arc::ptr_eq(known, state))
    }

    pub(crate) fn named(&self, stream: &str, topic: &str) -> Option<Arc<TopicState>> {
        let tables = self.tables.read();
        let topic = tables.by_name.get(&(stream.to_owned(), topic.to_owned()))?;
        tables.by_ref.get(topic).cloned()
    }

    /// Takes a topic in as the server describes it; the second answer is the incarnation that it replaces.
    pub(crate) fn put(&self, topic: &TopicRef, facts: Facts) -> (Arc<TopicState>, Option<TopicRef>) {
        if let Some(state) = self.get(topic) {
            state.learn(facts);
            return (state, None);
        }
        let mut tables = self.tables.write();
        let fresh = || Arc::new(TopicState::new(topic.clone(), facts));
        let state = Arc::clone(tables.by_ref.entry(topic.clone()).or_insert_with(fresh));
        let name = (topic.stream().to_owned(), topic.topic().to_owned());
        let replaced = tables.by_name.insert(name, topic.clone()).filter(|old| old != topic);
        if let Some(old) = &replaced {
            tables.by_ref.remove(old);
        }
        (state, replaced)
    }

    /// Forgets a topic; false when it was not known.
    pub(crate) fn remove(&self, topic: &TopicRef) -> bool {
        let mut tables = self.tables.write();
        let name = (topic.stream().to_owned(), topic.topic().to_owned());
        if tables.by_name.get(&name).is_some_and(|known| known == topic) {
            tables.by_name.remove(&name);
        }
        tables.by_ref.remove(topic).is_some()
    }

    pub(crate) fn all(&self) -> Vec<Arc<TopicState>> {
        self.tables.read().by_ref.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use iggy_common::{IggyExpiry, MaxTopicSize};

    use super::*;

    fn facts(partitions: u32) -> Facts {
        let (expiry, max_size) = (IggyExpiry::NeverExpire, MaxTopicSize::Unlimited);
        Facts { expiry, max_size, partitions, segment_bytes: None, persists: None }
    }

    fn topic(created_at: u64) -> TopicRef {
        TopicRef::new("kafka", "orders", 1, 2, created_at)
    }

    #[test]
    fn a_topic_that_was_created_again_replaces_the_old_one_of_the_same_number() {
        let topics = Topics::default();
        topics.put(&topic(1), facts(1));
        let (state, replaced) = topics.put(&topic(2), facts(1));
        assert_eq!(replaced, Some(topic(1)));
        assert!(topics.get(&topic(1)).is_none());
        assert_eq!(topics.named("kafka", "orders").map(|known| known.topic.clone()), Some(state.topic.clone()));
        assert!(!topics.remove(&topic(1)), "the old one is gone already");
        assert!(topics.named("kafka", "orders").is_some(), "and its name belongs to the new one");
    }

    #[test]
    fn a_topic_that_grew_keeps_what_is_known_of_its_partitions() {
        let topics = Topics::default();
        let (state, _) = topics.put(&topic(1), facts(1));
        state.partition(0).unwrap().lock().trim(5);
        let before = state.partition(0).unwrap();
        let (grown, replaced) = topics.put(&topic(1), facts(3));
        assert!(replaced.is_none() && grown.partition(2).is_some() && grown.partition(3).is_none());
        assert!(Arc::ptr_eq(&before, &grown.partition(0).unwrap()));
    }

    #[test]
    fn bounds_are_used_again_only_while_they_are_recent() {
        let (state, _) = Topics::default().put(&topic(1), facts(1));
        let (now, age) = (Instant::now(), Duration::from_millis(5));
        assert_eq!(state.recent_bounds(0, now, age), None);
        state.note_look(now);
        assert!(state.recent_bounds(0, now + age, age).is_some());
        assert_eq!(state.recent_bounds(0, now + age * 2, age), None);
        state.note_look(now);
        state.expire();
        assert_eq!(state.recent_bounds(0, now, age), None);
    }

    #[test]
    fn a_topic_is_listed_for_looks_once() {
        let (state, _) = Topics::default().put(&topic(1), facts(1));
        let minute = Duration::from_secs(60);
        assert!(state.want());
        assert!(!state.want());
        assert!(state.stays_wanted(Instant::now(), minute));
        assert!(!state.want(), "it is on the list still");
        assert!(!state.stays_wanted(Instant::now() + minute * 2, minute));
        assert!(state.want(), "it left the list");
    }
}
