//! OffsetCommit: what becomes of each partition of a request.

use std::collections::HashMap;
use std::sync::Arc;

use super::Offsets;
use super::codec;
use super::in_flight::Reply;
use super::record::{Change, Store, Write};
use super::table::{Committed, TopicKey};
use crate::error::GroupError;
use crate::mutants::{self, Mutant};
use crate::output::{Answer, Outputs};
use crate::types::{Timestamp, Token, TopicId};

/// Commits this "offset" to take the stored one away, which is also what "nothing stored" reads as.
const NONE: i64 = -1;

/// The beginning of the partition, which kafkajs commits when the offsets of a group are reset to the earliest.
const BEGINNING: i64 = -2;

/// An OffsetCommit request, after its sender was checked.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// Group id; the empty one is allowed.
    pub group: Arc<str>,
    /// Retention of its own in milliseconds (versions 2 to 4), counted from the commit; it wins over the configured
    /// one.
    pub retention_ms: Option<i64>,
    /// The topics.
    pub topics: Vec<CommitTopic>,
}

/// A topic of a commit.
#[derive(Debug, Clone)]
pub struct CommitTopic {
    /// The name that clients use.
    pub name: Arc<str>,
    /// `None` when the topic is not in the cluster.
    pub id: Option<TopicId>,
    /// The partitions.
    pub partitions: Vec<CommitPartition>,
}

/// A partition of a commit.
#[derive(Debug, Clone)]
pub struct CommitPartition {
    /// Index.
    pub partition: i32,
    /// True when the topic has it.
    pub exists: bool,
    /// The next offset to read; -1 or -2 takes the stored one away.
    pub offset: i64,
    /// Leader epoch, negative for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: Option<Box<str>>,
    /// Store only if this is what is stored now; -1 if nothing is.
    pub expected: Option<i64>,
}

impl CommitPartition {
    /// The offset to store, `None` to take the stored one away; what can be said without knowing what is stored.
    ///
    /// # Errors
    /// [`GroupError::OffsetMetadataTooLarge`], [`GroupError::OffsetOutOfRange`].
    pub fn wanted(&self, metadata_units_max: usize) -> Result<Option<i64>, GroupError> {
        if self.metadata.as_ref().is_some_and(|metadata| is_longer(metadata, metadata_units_max)) {
            return Err(GroupError::OffsetMetadataTooLarge { max: metadata_units_max });
        }
        match self.offset {
            // kafkajs takes any negative offset that it fetches for none and follows its reset policy. A refusal would
            // end its consumer, and its reset of offsets would wait for ever.
            NONE | BEGINNING => Ok(None),
            offset if offset < 0 => Err(GroupError::OffsetOutOfRange),
            offset => Ok(Some(offset)),
        }
    }
}

impl CommitRequest {
    pub(crate) fn is_conditional(&self) -> bool {
        self.topics.iter().flat_map(|topic| &topic.partitions).any(|partition| partition.expected.is_some())
    }

    /// The results when all of it is refused.
    #[must_use]
    pub fn refused(&self, error: GroupError) -> Vec<Result<(), GroupError>> {
        vec![Err(error); self.topics.iter().map(|topic| topic.partitions.len()).sum()]
    }
}

/// A request that waits for what its group has under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    token: Token,
    pub(crate) request: CommitRequest,
    by_member: bool,
    at: Timestamp,
}

impl Waiting {
    pub(crate) fn refuse(self, error: GroupError, out: &mut Outputs) {
        out.answers.push((self.token, Answer::Commit(self.request.refused(error))));
    }
}

impl Offsets {
    /// Commits offsets. `by_member` is what [`Coordinator::check_commit`](crate::Coordinator::check_commit) answered;
    /// it must be asked right before, so that commits come in the order in which they were allowed.
    ///
    /// Answered with [`Answer::Commit`], once the record that comes out is settled, or at once when there is nothing
    /// to store.
    pub fn commit(&mut self, token: Token, request: CommitRequest, by_member: bool, now: Timestamp, out: &mut Outputs) {
        let refused = if !self.is_loaded() {
            Some(GroupError::Loading)
        } else if self.is_full() {
            Some(GroupError::TooManyInFlight { max: self.config.in_flight_max })
        } else {
            None
        };
        if let Some(error) = refused {
            out.answers.push((token, Answer::Commit(request.refused(error))));
            return;
        }
        let busy = request.is_conditional() && self.in_flight.is_busy(&request.group);
        let waiting = Waiting { token, request, by_member, at: now };
        if busy || self.in_flight.has_waiting(&waiting.request.group) {
            self.in_flight.wait(waiting);
        } else {
            self.stage_commit(waiting, out);
        }
    }

    /// Something of the group is settled: requests that waited for it go on.
    pub(super) fn release(&mut self, group: &str, out: &mut Outputs) {
        while let Some(waiting) = self.in_flight.next_waiting(group) {
            self.stage_commit(waiting, out);
        }
    }

    fn stage_commit(&mut self, waiting: Waiting, out: &mut Outputs) {
        let Waiting { token, request, by_member, at } = waiting;
        let group = self.table.group_name(&request.group);
        let (mut results, topics) = self.judge(request, at);
        if topics.is_empty() {
            out.answers.push((token, Answer::Commit(results)));
            return;
        }
        let change = Change::Store(Store { group, by_member, at, topics });
        let record = codec::encode(&change);
        if record.len() > self.config.record_bytes_max {
            let error = GroupError::CommitTooLarge { bytes: record.len(), max: self.config.record_bytes_max };
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(error);
            }
            out.answers.push((token, Answer::Commit(results)));
            return;
        }
        if let Change::Store(store) = &change {
            for (topic, _) in &store.topics {
                self.pay_for(topic, out);
            }
        }
        if mutants::on(Mutant::EarlyAnswer) {
            out.answers.push((token, Answer::Commit(results)));
            self.stage_encoded(change, record, Reply::None, out);
            return;
        }
        self.stage_encoded(change, record, Reply::Commit(token, results), out);
    }

    /// The result of every partition in order, and what is to be stored.
    #[expect(clippy::type_complexity, reason = "both halves are taken apart by the only caller")]
    fn judge(
        &self,
        request: CommitRequest,
        at: Timestamp,
    ) -> (Vec<Result<(), GroupError>>, Vec<(TopicKey, Vec<Write>)>) {
        let mut judge = Judge {
            offsets: self,
            expires: request.retention_ms.filter(|ms| *ms >= 0).map(|ms| at.plus(ms)),
            at,
            conditional: request.is_conditional(),
            decided: HashMap::new(),
            added: 0,
        };
        let mut results = Vec::new();
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut writes = Vec::new();
            let name = topic.name;
            for partition in topic.partitions {
                let result = judge.partition(&request.group, &name, topic.id, partition);
                results.push(result.map(|write| writes.push(write)));
            }
            if !writes.is_empty() {
                topics.push((TopicKey { name, id: topic.id.unwrap_or(TopicId::FOREIGN) }, writes));
            }
        }
        (results, topics)
    }
}

/// Decides partition after partition of one request.
struct Judge<'a> {
    offsets: &'a Offsets,
    expires: Option<Timestamp>,
    at: Timestamp,
    conditional: bool,
    /// What this very request stores where, for a condition on a partition that it names twice.
    decided: HashMap<(Arc<str>, i32), i64>,
    added: usize,
}

impl Judge<'_> {
    fn partition(
        &mut self,
        group: &str,
        topic: &Arc<str>,
        id: Option<TopicId>,
        asked: CommitPartition,
    ) -> Result<Write, GroupError> {
        let config = &self.offsets.config;
        let exists = id.is_some() && asked.exists;
        if asked.partition < 0 || (!exists && !config.foreign_offsets) {
            return Err(GroupError::UnknownTopicOrPartition);
        }
        let offset = asked.wanted(config.metadata_units_max)?;
        let id = id.unwrap_or(TopicId::FOREIGN);
        let table = &self.offsets.table;
        if let Some(expected) = asked.expected {
            let decided = self.decided.get(&(topic.clone(), asked.partition)).copied();
            let stored =
                decided.unwrap_or_else(|| table.get(group, topic, id, asked.partition).map_or(NONE, Committed::offset));
            if stored != expected {
                return Err(GroupError::OffsetMismatch { stored });
            }
        }
        if offset.is_some() {
            self.added += 1;
            let room = config.offsets_max.saturating_sub(table.len() + self.offsets.in_flight.adds());
            if self.added > room && table.get(group, topic, id, asked.partition).is_none() {
                return Err(GroupError::TooManyOffsets { max: config.offsets_max });
            }
        }
        if self.conditional {
            self.decided.insert((topic.clone(), asked.partition), offset.unwrap_or(NONE));
        }
        let value = offset.map(|offset| Committed {
            offset,
            leader_epoch: asked.leader_epoch.max(-1),
            metadata: asked.metadata.filter(|metadata| !metadata.is_empty()),
            commit_time: self.at,
            expires: self.expires,
        });
        Ok(Write { partition: asked.partition, value })
    }
}

/// UTF-16 units are what Kafka's limit counts. No text has more of them than bytes.
fn is_longer(text: &str, units: usize) -> bool {
    text.len() > units && text.encode_utf16().count() > units
}

#[cfg(test)]
mod tests;
