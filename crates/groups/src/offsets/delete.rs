//! Offsets go: OffsetDelete, DeleteGroups, and topics that were deleted.

use std::sync::Arc;

use super::Offsets;
use super::codec;
use super::in_flight::Reply;
use super::record::Change;
use super::table::TopicKey;
use crate::error::GroupError;
use crate::limits::OWED_REMOVALS_MAX;
use crate::output::{Answer, Outputs};
use crate::subscription::Readers;
use crate::types::Token;

/// An OffsetDelete request.
#[derive(Debug, Clone)]
pub struct DeleteRequest {
    /// Group id.
    pub group: Arc<str>,
    /// What shall go.
    pub topics: Vec<DeletePartitions>,
}

/// Partitions of a topic whose offsets shall go. Every incarnation under the name is meant.
#[derive(Debug, Clone)]
pub struct DeletePartitions {
    /// The name that clients use.
    pub name: Arc<str>,
    /// The partitions.
    pub partitions: Vec<i32>,
}

impl Offsets {
    /// Deletes offsets of topics that nobody in the group reads. `readers` is what
    /// [`Coordinator::readers`](crate::Coordinator::readers) says. Offsets that are not there count as deleted.
    ///
    /// Answered with [`Answer::DeleteOffsets`].
    pub fn delete_offsets(&mut self, token: Token, request: &DeleteRequest, readers: &Readers, out: &mut Outputs) {
        if let Some(error) = self.refuses() {
            out.answers.push((token, Answer::DeleteOffsets(Err(error))));
            return;
        }
        if *readers == Readers::Others {
            out.answers.push((token, Answer::DeleteOffsets(Err(GroupError::NonEmptyGroup))));
            return;
        }
        let mut results = Vec::new();
        let mut topics = Vec::new();
        for topic in &request.topics {
            let result = if readers.read(&topic.name) { Err(GroupError::SubscribedToTopic) } else { Ok(()) };
            results.extend(topic.partitions.iter().map(|_| result));
            if result.is_ok() {
                topics.push(topic);
            }
        }
        if topics.is_empty() || !self.knows(&request.group) {
            out.answers.push((token, Answer::DeleteOffsets(Ok(results))));
            return;
        }
        let topics = topics.into_iter().flat_map(|topic| self.incarnations(&request.group, topic)).collect();
        let group = self.table.group_name(&request.group);
        let change = Change::Remove { group, topics };
        let record = codec::encode(&change);
        if record.len() > self.config.record_bytes_max {
            let error = GroupError::CommitTooLarge { bytes: record.len(), max: self.config.record_bytes_max };
            out.answers.push((token, Answer::DeleteOffsets(Err(error))));
            return;
        }
        self.stage_encoded(change, record, Reply::DeleteOffsets(token, results), out);
    }

    /// The topics that a name may stand for in this group: those with rows, and those of commits under way.
    fn incarnations(&self, group: &str, topic: &DeletePartitions) -> Vec<(TopicKey, Vec<i32>)> {
        let mut keys: Vec<TopicKey> = self.in_flight.topics_of(group, &topic.name);
        let stored = self.table.groups.get(group).map(|offsets| offsets.topics.as_slice()).unwrap_or_default();
        keys.extend(stored.iter().map(|(key, _)| key).filter(|key| key.name == topic.name).cloned());
        keys.sort();
        keys.dedup();
        keys.into_iter().map(|key| (key, topic.partitions.clone())).collect()
    }

    /// Deletes all offsets of a group whose members are gone. Answered with [`Answer::DeleteGroup`].
    pub fn delete_group(&mut self, token: Token, group: &str, out: &mut Outputs) {
        if let Some(error) = self.refuses() {
            out.answers.push((token, Answer::DeleteGroup(Err(error))));
            return;
        }
        let group = self.table.group_name(group);
        self.stage(Change::RemoveGroup { group: group.clone() }, Reply::DeleteGroup(token, group), out);
    }

    /// A topic was deleted, or has another name, so nobody may see its offsets under this one from now on. They go at once;
    /// the record only keeps them from coming back with a restart. While so much is under way that the rest of the room is for
    /// clients it is owed: it is written when there is room, or before the next offset of that topic. So it is when the log did
    /// not take it.
    ///
    /// While offsets are being loaded there is nothing yet to take them from: it is kept in mind for those that take
    /// this one's place.
    pub fn topic_deleted(&mut self, topic: &TopicKey, out: &mut Outputs) {
        if !self.is_loaded() {
            self.owe(topic);
            return;
        }
        if self.is_half_full() {
            self.table.apply(Change::RemoveTopic { topic: topic.clone() });
            self.owe(topic);
        } else {
            self.remove_topic(topic.clone(), out);
        }
    }

    /// Takes over which topics were deleted while these here were loaded in place of `loading`, which heard of it. Nobody sees
    /// an offset of theirs, whether or not the name is in use again.
    pub(crate) fn catch_up(&mut self, loading: &mut Self) {
        self.owed.append(&mut loading.owed);
        self.table.remove_topics(&self.owed);
    }

    /// True when a removal of the topic is owed or under way, so that an offset of it that was committed before goes with it.
    pub(super) fn is_removing(&self, topic: &TopicKey) -> bool {
        self.owed.contains(topic) || self.in_flight.removes(topic)
    }

    fn remove_topic(&mut self, topic: TopicKey, out: &mut Outputs) {
        let change = Change::RemoveTopic { topic };
        self.table.apply(change.clone());
        self.stage(change, Reply::None, out);
    }

    /// The log did not take the removal of a topic.
    pub(super) fn removal_failed(&mut self, topic: &TopicKey) {
        // An offset that was committed behind it must not go with those that were before it.
        if !self.table.holds(topic) && !self.in_flight.stores(topic) {
            self.owe(topic);
        }
    }

    /// Writes a removal that is owed, if there is room beside what is for clients; false when there was nothing to do.
    pub fn pay(&mut self, out: &mut Outputs) -> bool {
        if !self.is_loaded() || self.is_half_full() {
            return false;
        }
        let owed = self.owed.pop_first();
        owed.map(|topic| self.remove_topic(topic, out)).is_some()
    }

    /// Writes the removal of a topic that is owed, because an offset of it will follow: the name is in use again.
    pub(super) fn pay_for(&mut self, topic: &TopicKey, out: &mut Outputs) {
        if let Some(topic) = self.owed.take(topic) {
            self.remove_topic(topic, out);
        }
    }

    fn owe(&mut self, topic: &TopicKey) {
        if self.owed.len() < OWED_REMOVALS_MAX {
            self.owed.insert(topic.clone());
        }
    }

    fn refuses(&self) -> Option<GroupError> {
        if !self.is_loaded() {
            return Some(GroupError::Loading);
        }
        self.is_full().then_some(GroupError::TooManyInFlight { max: self.config.in_flight_max })
    }
}

#[cfg(test)]
mod tests;
