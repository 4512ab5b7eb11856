//! Committed offsets: the table in memory and the records that rebuild it.
//!
//! The rules that everything here serves:
//!
//! 1. Never answer a commit before it is durable, and never put it into the table before that.
//! 2. Never answer "no offset" unless the table is fully loaded: a consumer would reset its position.
//! 3. Either all partitions of a request are stored or none, except those that the answer refuses by name.
//!
//! So a request first becomes a *record* ([`Append`](crate::Append)) that the caller appends to a log. When the
//! caller says that it is durable ([`Offsets::settled`]), the table changes and the answer comes out, in the order of
//! the records, whatever the order in which they are settled. The number stored is Kafka's: the *next* offset to
//! read, verbatim.
//!
//! A log with snapshots under it is all that is needed: [`Offsets::replay`] takes each record back,
//! [`Offsets::freeze`] gives the records of a snapshot.

mod codec;
mod commit;
mod delete;
mod expiry;
mod in_flight;
mod record;
mod snapshot;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod topic_counts;
mod varint;

pub use codec::CodecError;
pub use commit::{CommitPartition, CommitRequest, CommitTopic};
pub use delete::{DeletePartitions, DeleteRequest};
pub use snapshot::Frozen;
pub use table::{Committed, GroupView, TopicKey};

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::error::GroupError;
use crate::limits::OffsetConfig;
use crate::output::{Answer, Outputs, Ticket};
use crate::types::Timestamp;
use crate::walk::Walk;
use in_flight::{InFlight, Reply};
use record::{Change, Mark};
use table::{GroupOffsets, Table};

/// Committed offsets of all groups.
#[derive(Debug)]
pub struct Offsets {
    config: OffsetConfig,
    table: Table,
    in_flight: InFlight,
    /// When loading ended; `None` while it lasts.
    loaded_at: Option<Timestamp>,
    /// Groups whose deletion became durable since the facade last asked.
    deleted: Vec<Arc<str>>,
    /// Topics that were deleted, and the log does not know.
    owed: BTreeSet<TopicKey>,
}

impl Offsets {
    /// An empty table that still has to be loaded.
    #[must_use]
    pub fn new(config: OffsetConfig) -> Self {
        Self {
            config,
            table: Table::default(),
            in_flight: InFlight::default(),
            loaded_at: None,
            deleted: Vec::new(),
            owed: BTreeSet::new(),
        }
    }

    /// Begins loading anew. Every record on its way to the old log must have been settled before.
    pub fn reset(&mut self) {
        self.table = Table::default();
        self.loaded_at = None;
        self.owed.clear();
    }

    /// Carries out a record of the log, in the log's order.
    ///
    /// # Errors
    /// When it is none of ours, or of a newer format. The table is unchanged then, and must not be served from: an
    /// offset that is missing is worse than none at all.
    pub fn replay(&mut self, record: &[u8]) -> Result<(), CodecError> {
        self.table.apply(codec::decode(record)?);
        Ok(())
    }

    /// All records were replayed; from here on the table answers. Expiry counts its grace from `now`.
    pub fn loaded(&mut self, now: Timestamp) {
        self.loaded_at = Some(now);
    }

    /// True when the table answers.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded_at.is_some()
    }

    /// Number of stored offsets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True when no offset is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The groups that hold offsets, in no order.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.table.groups()
    }

    pub(crate) fn by_group(&self) -> &BTreeMap<Arc<str>, GroupOffsets> {
        &self.table.groups
    }

    /// Number of offsets that the group holds.
    pub(crate) fn rows(&self, group: &str) -> usize {
        self.table.groups.get(group).map_or(0, GroupOffsets::len)
    }

    pub(crate) fn drop_unused_names(&mut self) {
        self.table.drop_unused_names();
    }

    /// The groups that hold offsets, in the next slice of a walk over all of them.
    #[must_use]
    pub fn next_groups(&self, walk: &mut Walk) -> Vec<Arc<str>> {
        let slice: Vec<_> = walk.next_of(&self.table.groups).into_iter().map(|(id, _)| Arc::clone(id)).collect();
        if let Some(last) = slice.last() {
            walk.passed(last, 0);
        }
        slice
    }

    /// Number of groups that hold offsets.
    #[must_use]
    pub fn groups_len(&self) -> usize {
        self.table.groups.len()
    }

    /// True when the group holds offsets.
    #[must_use]
    pub fn has_rows(&self, group: &str) -> bool {
        self.table.has(group)
    }

    /// True when the group holds offsets or is about to.
    #[must_use]
    pub fn knows(&self, group: &str) -> bool {
        self.table.has(group) || self.in_flight.is_busy(group)
    }

    /// What a group committed, as far as it is durable. An unknown group has committed nothing.
    ///
    /// # Errors
    /// [`GroupError::Loading`].
    pub fn view(&self, group: &str) -> Result<GroupView<'_>, GroupError> {
        if !self.is_loaded() {
            return Err(GroupError::Loading);
        }
        Ok(self.table.view(group))
    }

    /// Adds the topics that groups hold offsets of, of the next slice of a walk. The caller compares with the topics that
    /// exist, and reports those that went behind its back with [`Offsets::topic_deleted`].
    pub fn topics(&self, walk: &mut Walk, topics: &mut HashSet<TopicKey>) {
        for (id, offsets) in walk.next_of(&self.table.groups) {
            for (key, _) in &offsets.topics {
                if !topics.contains(key) {
                    topics.insert(key.clone());
                }
            }
            if !walk.passed(id, offsets.topics.len()) {
                break;
            }
        }
    }

    /// Tells what became of a record: true when it is durable, false when it does not count and never will.
    ///
    /// Where the log takes snapshots of the table, call this before another append can come between, so that no
    /// snapshot misses a record that it claims to cover.
    pub fn settled(&mut self, ticket: Ticket, durable: bool, out: &mut Outputs) {
        self.in_flight.note(ticket, durable);
        while let Some(mut settled) = self.in_flight.pop() {
            let group = settled.change.group().cloned();
            if let Change::Store(store) = &mut settled.change {
                store.topics.retain(|(topic, _)| !self.is_removing(topic));
            }
            if settled.durable {
                self.table.apply(settled.change);
                // A log that takes something again; one that fails would only be asked the more.
                self.pay(out);
            } else if let Change::RemoveTopic { topic } = &settled.change {
                self.removal_failed(topic);
            }
            let verdict = if settled.durable { Ok(()) } else { Err(GroupError::StoreFailed) };
            self.answer(settled.reply, verdict, out);
            if let Some(group) = group {
                self.release(&group, out);
                if let Some(mark) = settled.next_mark
                    && self.knows(&group)
                {
                    self.stage(Change::Mark { group, mark }, Reply::None, out);
                }
            }
        }
    }

    fn answer(&mut self, reply: Reply, verdict: Result<(), GroupError>, out: &mut Outputs) {
        let each =
            |results: Vec<Result<(), GroupError>>| results.into_iter().map(|result| result.and(verdict)).collect();
        match reply {
            Reply::None => {}
            Reply::Commit(token, results) => out.answers.push((token, Answer::Commit(each(results)))),
            Reply::DeleteOffsets(token, results) => {
                out.answers.push((token, Answer::DeleteOffsets(Ok(each(results)))));
            }
            Reply::DeleteGroup(token, group) => {
                if verdict.is_ok() {
                    self.deleted.push(group);
                }
                out.answers.push((token, Answer::DeleteGroup(verdict)));
            }
        }
    }

    /// Gives everything up, because another node coordinates from here on. What is under way is answered with
    /// [`GroupError::NotCoordinator`], whether it reaches the log or not: nobody here will know. A ticket from before
    /// settles nothing afterwards.
    pub(crate) fn resign(&mut self, out: &mut Outputs) {
        let (replies, waiting) = self.in_flight.give_up();
        for reply in replies {
            self.answer(reply, Err(GroupError::NotCoordinator), out);
        }
        for request in waiting {
            request.refuse(GroupError::NotCoordinator, out);
        }
        self.reset();
    }

    /// Groups whose deletion became durable since the last call.
    pub(crate) fn take_deleted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.deleted)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.len() >= self.config.in_flight_max
    }

    /// True when the other half of the room is for clients: what is recorded for our own sake can wait, and a commit that
    /// finds no room is refused.
    pub(crate) fn is_half_full(&self) -> bool {
        self.in_flight.len() >= self.config.in_flight_max.div_ceil(2)
    }

    /// Sends a change on its way to the log.
    fn stage(&mut self, change: Change, reply: Reply, out: &mut Outputs) {
        let record = codec::encode(&change);
        self.stage_encoded(change, record, reply, out);
    }

    fn stage_encoded(&mut self, change: Change, record: Vec<u8>, reply: Reply, out: &mut Outputs) {
        let ticket = self.in_flight.push(change, reply);
        out.appends.push(crate::output::Append { ticket, record });
    }

    /// Records that a group has members, or has none since `now`. It matters after a restart, when nobody else knows
    /// how long a group has been empty. Nothing is recorded for a group without offsets, nor while too much is under
    /// way: [`Offsets::expire`] makes up for it. Of one group a single such record is under way, and all of them leave
    /// half of the room to commits.
    pub fn mark(&mut self, group: &str, occupied: bool, now: Timestamp, out: &mut Outputs) {
        if !self.is_loaded() || !self.knows(group) {
            return;
        }
        let mark = if occupied { Mark::Occupied } else { Mark::EmptySince(now) };
        if self.in_flight.hold_mark(group, mark) || self.is_half_full() {
            return;
        }
        if occupied && !self.in_flight.is_busy(group) && self.table.mark(group) == mark {
            return;
        }
        let group = self.table.group_name(group);
        self.stage(Change::Mark { group, mark }, Reply::None, out);
    }
}
