//! Membership and offsets together: the rules that need both.

use std::sync::Arc;

use crate::coordinator::Coordinator;
use crate::describe::{Description, ListFilter, Listed};
use crate::error::GroupError;
use crate::heartbeat::Sender;
use crate::join::JoinRequest;
use crate::leave::Leaving;
use crate::limits::{GroupConfig, OffsetConfig};
use crate::offsets::{CodecError, CommitRequest, DeleteRequest, Frozen, GroupView, Offsets, TopicKey};
use crate::output::{Answer, Outputs, Ticket};
use crate::sync::SyncRequest;
use crate::types::{GroupState, MemberId, Moment, Now, Timestamp, Token};

/// The whole service for consumer groups, offsets included.
///
/// The caller's duties:
///
/// - Drain [`Outputs`] after every call: send the answers, append the records *in their order*, and report each with
///   [`Groups::settled`].
/// - Call [`Groups::tick`] when [`Groups::deadline`] has come, and [`Groups::expire`] every few minutes.
/// - Call [`Groups::forget`] when a connection with a waiting join or sync is gone. A commit whose caller gave up is
///   still settled, its answer is thrown away.
/// - Before the first request: [`Groups::replay`] for every record of the log, then [`Groups::loaded`].
///
/// A store that keeps offsets by itself uses [`Coordinator`] alone, and asks its `check_commit` before it writes.
#[derive(Debug)]
pub struct Groups {
    coordinator: Coordinator,
    offsets: Offsets,
}

impl Groups {
    /// Without groups; offsets still have to be loaded.
    #[must_use]
    pub fn new(groups: GroupConfig, offsets: OffsetConfig) -> Self {
        Self { coordinator: Coordinator::new(groups), offsets: Offsets::new(offsets) }
    }

    /// As [`Offsets::reset`].
    pub fn reset(&mut self) {
        self.offsets.reset();
    }

    /// As [`Offsets::replay`].
    ///
    /// # Errors
    /// As [`Offsets::replay`].
    pub fn replay(&mut self, record: &[u8]) -> Result<(), CodecError> {
        self.offsets.replay(record)
    }

    /// As [`Offsets::loaded`].
    pub fn loaded(&mut self, now: Timestamp) {
        self.offsets.loaded(now);
    }

    /// JoinGroup, answered with [`Answer::Join`]. A member that joins fetches its offsets next, so it has to wait
    /// until they are loaded.
    pub fn join(&mut self, token: Token, request: &JoinRequest<'_>, now: Now, out: &mut Outputs) {
        if !self.offsets.is_loaded() {
            out.refuse_join(token, GroupError::Loading, MemberId::from(request.member_id));
            return;
        }
        self.coordinator.join(token, request, now.moment, out);
        self.note_occupancy(now, out);
    }

    /// SyncGroup, answered with [`Answer::Sync`].
    pub fn sync(&mut self, token: Token, request: &SyncRequest<'_>, now: Now, out: &mut Outputs) {
        self.coordinator.sync(token, request, now.moment, out);
        self.note_occupancy(now, out);
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// As [`Coordinator::heartbeat`].
    pub fn heartbeat(&mut self, sender: &Sender<'_>, now: Now) -> Result<(), GroupError> {
        self.coordinator.heartbeat(sender, now.moment)
    }

    /// LeaveGroup: one result per identity, in order.
    ///
    /// # Errors
    /// One for the whole request.
    pub fn leave(
        &mut self,
        group: &str,
        leaving: &[Leaving<'_>],
        now: Now,
        out: &mut Outputs,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let result = self.coordinator.leave(group, leaving, now.moment, out);
        self.note_occupancy(now, out);
        result
    }

    /// As [`Coordinator::forget`].
    pub fn forget(&mut self, group: &str, token: Token, now: Now, out: &mut Outputs) {
        self.coordinator.forget(group, token, now.moment, out);
        self.note_occupancy(now, out);
    }

    /// As [`Coordinator::tick`].
    pub fn tick(&mut self, now: Now, out: &mut Outputs) {
        self.coordinator.tick(now.moment, out);
        self.note_occupancy(now, out);
    }

    /// As [`Coordinator::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.coordinator.deadline()
    }

    /// OffsetCommit, answered with [`Answer::Commit`]. The group of the sender and that of the request are the same.
    pub fn commit(&mut self, token: Token, sender: &Sender<'_>, request: CommitRequest, now: Now, out: &mut Outputs) {
        let checked = if self.offsets.is_loaded() {
            self.coordinator.check_commit(sender, now.moment)
        } else {
            Err(GroupError::Loading)
        };
        match checked {
            Ok(by_member) => self.offsets.commit(token, request, by_member, now.wall, out),
            Err(error) => out.answers.push((token, Answer::Commit(request.refused(error)))),
        }
    }

    /// What a group committed, for OffsetFetch.
    ///
    /// # Errors
    /// [`GroupError::Loading`]. Never answer "no offset" instead.
    pub fn view(&self, group: &str) -> Result<GroupView<'_>, GroupError> {
        self.offsets.view(group)
    }

    /// As [`Offsets::settled`].
    pub fn settled(&mut self, ticket: Ticket, durable: bool, out: &mut Outputs) {
        self.offsets.settled(ticket, durable, out);
        for group in self.offsets.take_deleted() {
            // Whoever joined in the meantime founded the group anew, and keeps it.
            let _ = self.coordinator.remove(&group);
        }
    }

    /// OffsetDelete, answered with [`Answer::DeleteOffsets`].
    pub fn delete_offsets(&mut self, token: Token, request: &DeleteRequest, out: &mut Outputs) {
        let result = self.coordinator.check_group_id(&request.group).and_then(|()| self.check_exists(&request.group));
        match result {
            Ok(()) => {
                let readers = self.coordinator.readers(&request.group);
                self.offsets.delete_offsets(token, request, &readers, out);
            }
            Err(error) => out.answers.push((token, Answer::DeleteOffsets(Err(error)))),
        }
    }

    /// DeleteGroups for one group, answered with [`Answer::DeleteGroup`].
    pub fn delete_group(&mut self, token: Token, group: &str, out: &mut Outputs) {
        match self.check_deletable(group) {
            Ok(()) if self.offsets.knows(group) => self.offsets.delete_group(token, group, out),
            Ok(()) => out.answers.push((token, Answer::DeleteGroup(self.coordinator.remove(group)))),
            Err(error) => out.answers.push((token, Answer::DeleteGroup(Err(error)))),
        }
    }

    fn check_deletable(&self, group: &str) -> Result<(), GroupError> {
        self.coordinator.check_group_id(group)?;
        self.check_exists(group)?;
        match self.coordinator.state(group) {
            GroupState::Empty | GroupState::Dead => Ok(()),
            _ => Err(GroupError::NonEmptyGroup),
        }
    }

    fn check_exists(&self, group: &str) -> Result<(), GroupError> {
        if !self.offsets.is_loaded() {
            return Err(GroupError::Loading);
        }
        if self.coordinator.state(group) == GroupState::Dead && !self.offsets.knows(group) {
            return Err(GroupError::GroupIdNotFound);
        }
        Ok(())
    }

    /// As [`Offsets::topic_deleted`].
    pub fn topic_deleted(&mut self, topic: &TopicKey, out: &mut Outputs) {
        self.offsets.topic_deleted(topic, out);
    }

    /// Lets go of offsets that are too old, and of groups that have neither members nor offsets.
    pub fn expire(&mut self, now: Now, out: &mut Outputs) {
        self.offsets.expire(now.wall, |group| self.coordinator.readers(group), out);
        if self.offsets.is_loaded() {
            self.coordinator.sweep(|group| self.offsets.has_rows(group));
        }
    }

    /// A group as DescribeGroups shows it. A group that has only offsets is empty; one that has nothing is dead.
    #[must_use]
    pub fn describe(&self, group: &str) -> Description {
        self.coordinator.describe(group).unwrap_or_else(|| {
            if self.offsets.has_rows(group) { Description::only_offsets() } else { Description::dead() }
        })
    }

    /// The groups that ListGroups shows, sorted by id.
    #[must_use]
    pub fn list(&self, filter: &ListFilter<'_>) -> Vec<Listed> {
        let mut listed: Vec<Listed> = self.coordinator.list(filter).collect();
        if filter.wants(GroupState::Empty) {
            let alone = self.offsets.groups().filter(|group| self.coordinator.state(group) == GroupState::Dead);
            listed.extend(alone.map(|group| Listed {
                group: group.clone(),
                state: GroupState::Empty,
                protocol_type: Arc::from(""),
            }));
        }
        listed.sort_by(|a, b| a.group.cmp(&b.group));
        listed
    }

    /// As [`Offsets::freeze`].
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        self.offsets.freeze()
    }

    /// The membership half.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The offsets half.
    #[must_use]
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    fn note_occupancy(&mut self, now: Now, out: &mut Outputs) {
        for change in std::mem::take(&mut out.occupancy) {
            self.offsets.mark(&change.group, change.occupied, now.wall, out);
        }
    }
}

#[cfg(test)]
mod tests;
