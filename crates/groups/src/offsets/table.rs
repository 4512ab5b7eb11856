//! The table itself: group, topic, partition to offset.
//!
//! Sorted vectors instead of maps: there may be a million entries, most groups have few topics, and partitions are
//! dense. The partitions of a topic are shared with snapshots that are being written and copied on the next change
//! only.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::record::{Change, Mark, Store, Write};
use super::topic_counts::TopicCounts;
use crate::types::{Timestamp, TopicId};

/// A topic by name and incarnation. One that was deleted and created again is another, and inherits nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicKey {
    /// The name that clients use.
    pub name: Arc<str>,
    /// The incarnation, or [`TopicId::FOREIGN`].
    pub id: TopicId,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    /// `None` for the empty string, which most are.
    pub(crate) metadata: Option<Box<str>>,
    pub(crate) commit_time: Timestamp,
    pub(crate) expires: Option<Timestamp>,
}

impl Committed {
    /// The next offset to read, as the client committed it.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Leader epoch of the last record read, -1 when the client did not say.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// The client's own text; empty when there is none, since clients do not expect null.
    #[must_use]
    pub fn metadata(&self) -> &str {
        self.metadata.as_deref().unwrap_or_default()
    }

    /// When it was committed.
    #[must_use]
    pub fn commit_time(&self) -> Timestamp {
        self.commit_time
    }

    /// When it expires by its own retention (OffsetCommit 2 to 4), if the client set one.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) partition: i32,
    pub(crate) value: Committed,
}

pub(crate) type Slots = Arc<Vec<Slot>>;

/// Rows of one group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct GroupOffsets {
    pub(crate) mark: Mark,
    /// Sorted by name and id; no topic is without rows.
    pub(crate) topics: Vec<(TopicKey, Slots)>,
}

impl GroupOffsets {
    fn find(&self, name: &str, id: TopicId) -> Result<usize, usize> {
        self.topics.binary_search_by(|(key, _)| (&*key.name, key.id).cmp(&(name, id)))
    }

    pub(crate) fn get(&self, name: &str, id: TopicId, partition: i32) -> Option<&Committed> {
        let (_, slots) = self.topics.get(self.find(name, id).ok()?)?;
        let at = slots.binary_search_by_key(&partition, |slot| slot.partition).ok()?;
        slots.get(at).map(|slot| &slot.value)
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.iter().map(|(_, slots)| slots.len()).sum()
    }

    fn write(&mut self, topic: &TopicKey, writes: Vec<Write>, holders: &mut TopicCounts) {
        let at = match self.find(&topic.name, topic.id) {
            Ok(at) => at,
            Err(at) => {
                self.topics.insert(at, (topic.clone(), Arc::default()));
                holders.add(topic);
                at
            }
        };
        if let Some((_, slots)) = self.topics.get_mut(at) {
            let slots = Arc::make_mut(slots);
            if slots.is_empty() {
                slots.reserve_exact(writes.len());
            }
            for write in writes {
                put(slots, write);
            }
            if slots.is_empty() {
                self.topics.remove(at);
                holders.remove(topic);
            }
        }
    }

    fn remove(&mut self, topic: &TopicKey, partitions: &[i32], holders: &mut TopicCounts) {
        let Ok(at) = self.find(&topic.name, topic.id) else { return };
        if let Some((_, slots)) = self.topics.get_mut(at) {
            let gone: HashSet<i32> = partitions.iter().copied().collect();
            Arc::make_mut(slots).retain(|slot| !gone.contains(&slot.partition));
            if slots.is_empty() {
                self.topics.remove(at);
                holders.remove(topic);
            }
        }
    }

    /// Lets topics go with all their rows.
    fn remove_topics(&mut self, is_gone: impl Fn(&TopicKey) -> bool, holders: &mut TopicCounts) {
        for (topic, _) in self.topics.extract_if(.., |(topic, _)| is_gone(topic)) {
            holders.remove(&topic);
        }
    }
}

fn put(slots: &mut Vec<Slot>, write: Write) {
    let at = slots.binary_search_by_key(&write.partition, |slot| slot.partition);
    match (at, write.value) {
        (Ok(at), Some(value)) => {
            if let Some(slot) = slots.get_mut(at) {
                slot.value = value;
            }
        }
        (Ok(at), None) => {
            slots.remove(at);
        }
        (Err(at), Some(value)) => slots.insert(at, Slot { partition: write.partition, value }),
        (Err(_), None) => {}
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Sorted, so that a look at all of them can be interrupted.
    pub(crate) groups: BTreeMap<Arc<str>, GroupOffsets>,
    /// Topic names are shared between groups.
    names: HashSet<Arc<str>>,
    /// How many groups hold offsets of each topic: most topics that go are held by none, and a look at all groups is long.
    holders: TopicCounts,
    len: usize,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn has(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// True when a group has an offset of the topic.
    pub(crate) fn holds(&self, topic: &TopicKey) -> bool {
        self.holders.of(topic) > 0
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    pub(crate) fn mark(&self, group: &str) -> Mark {
        self.groups.get(group).map_or(Mark::Never, |offsets| offsets.mark)
    }

    /// The group's name, shared if it is known.
    pub(crate) fn group_name(&self, group: &str) -> Arc<str> {
        self.groups.get_key_value(group).map_or_else(|| Arc::from(group), |(name, _)| name.clone())
    }

    pub(crate) fn get(&self, group: &str, name: &str, id: TopicId, partition: i32) -> Option<&Committed> {
        self.groups.get(group)?.get(name, id, partition)
    }

    pub(crate) fn view(&self, group: &str) -> GroupView<'_> {
        GroupView { offsets: self.groups.get(group) }
    }

    /// Carries out one change. The same changes in the same order always give the same table.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Store(store) => self.store(store),
            Change::Remove { group, topics } => self.on_group(&group, |offsets, holders| {
                for (topic, partitions) in &topics {
                    offsets.remove(topic, partitions, holders);
                }
            }),
            Change::RemoveGroup { group } => {
                self.on_group(&group, |offsets, holders| offsets.remove_topics(|_| true, holders));
            }
            Change::RemoveTopic { topic } => {
                let holds = |offsets: &GroupOffsets| offsets.find(&topic.name, topic.id).is_ok();
                self.remove_where(holds, self.holders.of(&topic), |key| *key == topic);
            }
            Change::Mark { group, mark } => self.on_group(&group, |offsets, _| offsets.mark = mark),
        }
    }

    /// Lets topics go in all groups, in one walk.
    pub(crate) fn remove_topics(&mut self, topics: &BTreeSet<TopicKey>) {
        let gone: HashSet<&TopicKey> = topics.iter().filter(|topic| self.holds(topic)).collect();
        if !gone.is_empty() {
            let holds = |offsets: &GroupOffsets| offsets.topics.iter().any(|(key, _)| gone.contains(key));
            self.remove_where(holds, usize::MAX, |key| gone.contains(key));
        }
    }

    /// Lets topics go in the groups that hold some of them, of which there are no more than `count`.
    fn remove_where(
        &mut self,
        holds: impl Fn(&GroupOffsets) -> bool,
        count: usize,
        is_gone: impl Fn(&TopicKey) -> bool,
    ) {
        let holders = self.groups.iter().filter(|(_, offsets)| holds(offsets)).map(|(name, _)| name.clone());
        for group in holders.take(count).collect::<Vec<_>>() {
            self.on_group(&group, |offsets, holders| offsets.remove_topics(&is_gone, holders));
        }
    }

    fn store(&mut self, store: Store) {
        if !self.groups.contains_key(&store.group) {
            self.groups.insert(store.group.clone(), GroupOffsets::default());
        }
        let topics: Vec<_> = store
            .topics
            .into_iter()
            .map(|(topic, writes)| (TopicKey { name: self.intern(topic.name), id: topic.id }, writes))
            .collect();
        self.on_group(&store.group, |offsets, holders| {
            if store.by_member {
                offsets.mark = Mark::Occupied;
            }
            for (topic, writes) in topics {
                offsets.write(&topic, writes, holders);
            }
        });
    }

    /// Changes a group and keeps the count. One that has no rows left is forgotten.
    fn on_group(&mut self, group: &str, change: impl FnOnce(&mut GroupOffsets, &mut TopicCounts)) {
        let Some(offsets) = self.groups.get_mut(group) else { return };
        let before = offsets.len();
        change(offsets, &mut self.holders);
        self.len = (self.len + offsets.len()).saturating_sub(before);
        if offsets.topics.is_empty() {
            self.groups.remove(group);
        }
    }

    fn intern(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        self.names.insert(name.clone());
        name
    }

    /// Forgets names that no row uses.
    pub(crate) fn drop_unused_names(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
    }
}

/// What one group committed.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    offsets: Option<&'a GroupOffsets>,
}

impl<'a> GroupView<'a> {
    /// The offset of one partition. Nothing is found for another incarnation of the topic.
    #[must_use]
    pub fn get(&self, topic: &str, id: TopicId, partition: i32) -> Option<&'a Committed> {
        self.offsets?.get(topic, id, partition)
    }

    /// Everything, sorted by topic and partition. It may hold incarnations that are gone: of a name that is in the
    /// cluster only the current id counts, of one that is not only [`TopicId::FOREIGN`].
    pub fn iter(&self) -> impl Iterator<Item = (&'a TopicKey, i32, &'a Committed)> + 'a {
        let topics = self.offsets.map(|offsets| offsets.topics.as_slice()).unwrap_or_default();
        topics.iter().flat_map(|(key, slots)| slots.iter().map(move |slot| (key, slot.partition, &slot.value)))
    }

    /// True when the group has committed nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_none()
    }
}
