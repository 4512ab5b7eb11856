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
use crate::subscription::Readers;
use crate::sync::SyncRequest;
use crate::types::{GroupState, MemberId, Moment, Now, Timestamp, Token};
use crate::walk::Walk;

/// The whole service for consumer groups, offsets included.
///
/// The caller's duties:
///
/// - Drain [`Outputs`] after every call: send the answers, append the records *in their order*, and report each with
///   [`Groups::settled`].
/// - Call [`Groups::tick`] when [`Groups::deadline`] has come, and [`Groups::expire`] every few minutes, slice by slice.
/// - Call [`Groups::forget`] when a connection with a waiting join or sync is gone. A commit whose caller gave up is
///   still settled, its answer is thrown away.
/// - Before the first request: [`Groups::replay`] for every record of the log, then [`Groups::loaded`]. Until then,
///   whatever needs the offsets is answered with [`GroupError::Loading`].
/// - When another node coordinates: [`Groups::resign`], or [`Groups::elsewhere`] from the start. All is answered with
///   [`GroupError::NotCoordinator`] from then on. To coordinate again takes a new one, and loading.
///
/// Where something else keeps the offsets, the table here is loaded with nothing and stays empty: membership works as ever,
/// and the caller asks [`Groups::check_commit`] and [`Groups::check_deletion`] before it writes.
#[derive(Debug)]
pub struct Groups {
    coordinator: Coordinator,
    offsets: Offsets,
    resigned: bool,
}

impl Groups {
    /// Without groups; offsets still have to be loaded.
    #[must_use]
    pub fn new(groups: GroupConfig, offsets: OffsetConfig) -> Self {
        Self { coordinator: Coordinator::new(groups), offsets: Offsets::new(offsets), resigned: false }
    }

    /// Of a node that does not coordinate.
    #[must_use]
    pub fn elsewhere(groups: GroupConfig, offsets: OffsetConfig) -> Self {
        Self { resigned: true, ..Self::new(groups, offsets) }
    }

    /// Gives everything up: members are forgotten, whoever waits is answered with [`GroupError::NotCoordinator`], a
    /// commit that is under way too. No success comes out, whatever becomes of the records.
    pub fn resign(&mut self, out: &mut Outputs) {
        self.resigned = true;
        self.coordinator.resign(out);
        self.offsets.resign(out);
    }

    /// Whether groups are served.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`], [`GroupError::Loading`].
    pub fn check_serving(&self) -> Result<(), GroupError> {
        if self.resigned {
            return Err(GroupError::NotCoordinator);
        }
        if self.offsets.is_loaded() { Ok(()) } else { Err(GroupError::Loading) }
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
        if let Err(error) = self.check_serving() {
            out.refuse_join(token, error, MemberId::from(request.member_id));
            return;
        }
        self.coordinator.join(token, request, now.moment, out);
        self.note_occupancy(now, out);
    }

    /// SyncGroup, answered with [`Answer::Sync`]. While offsets are loaded it is answered as during a rebalance, upon
    /// which clients join again: none of them expects to hear of loading here.
    pub fn sync(&mut self, token: Token, request: &SyncRequest<'_>, now: Now, out: &mut Outputs) {
        if let Err(error) = self.check_serving() {
            let error = if error == GroupError::Loading { GroupError::RebalanceInProgress } else { error };
            out.sync(token, Err(error));
            return;
        }
        self.coordinator.sync(token, request, now.moment, out);
        self.note_occupancy(now, out);
    }

    /// Heartbeat. While offsets are loaded it is always good: no member is known yet, and whoever was told so would
    /// only join in vain until loading ends.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`], and as [`Coordinator::heartbeat`].
    pub fn heartbeat(&mut self, sender: &Sender<'_>, now: Now) -> Result<(), GroupError> {
        match self.check_serving() {
            Ok(()) => self.coordinator.heartbeat(sender, now.moment),
            Err(GroupError::Loading) => Ok(()),
            Err(error) => Err(error),
        }
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
        self.check_serving()?;
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
        match self.check_serving().and_then(|()| self.coordinator.check_commit(sender, now.moment)) {
            Ok(by_member) => self.offsets.commit(token, request, by_member, now.wall, out),
            Err(error) => out.answers.push((token, Answer::Commit(request.refused(error)))),
        }
    }

    /// Whether the sender may commit now, for a caller that keeps the offsets elsewhere; for a member it counts as a sign of
    /// life.
    ///
    /// # Errors
    /// As [`Coordinator::check_commit`], and while groups are not served.
    pub fn check_commit(&mut self, sender: &Sender<'_>, now: Now) -> Result<(), GroupError> {
        self.check_serving()?;
        self.coordinator.check_commit(sender, now.moment).map(|_| ())
    }

    /// Whether a group may be deleted, or who reads what it would miss, for a caller that keeps the offsets elsewhere and
    /// says whether it has some of the group.
    ///
    /// # Errors
    /// [`GroupError::GroupIdNotFound`], [`GroupError::InvalidGroupId`], and while groups are not served.
    pub fn check_deletion(&self, group: &str, has_offsets: bool) -> Result<Readers, GroupError> {
        self.check_serving()?;
        self.coordinator.check_group_id(group)?;
        if self.coordinator.state(group) == GroupState::Dead && !has_offsets {
            return Err(GroupError::GroupIdNotFound);
        }
        Ok(self.coordinator.readers(group))
    }

    /// Forgets a group whose offsets, which are kept elsewhere, were deleted. One that has members again stays.
    pub fn deleted(&mut self, group: &str) {
        let _ = self.coordinator.remove(group);
    }

    /// What a group committed, for OffsetFetch.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`], [`GroupError::Loading`]. Never answer "no offset" instead.
    pub fn view(&self, group: &str) -> Result<GroupView<'_>, GroupError> {
        self.check_serving()?;
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
        let result = self.check_known(&request.group);
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
        self.check_known(group)?;
        match self.coordinator.state(group) {
            GroupState::Empty | GroupState::Dead => Ok(()),
            _ => Err(GroupError::NonEmptyGroup),
        }
    }

    fn check_known(&self, group: &str) -> Result<(), GroupError> {
        self.check_serving()?;
        self.coordinator.check_group_id(group)?;
        if self.coordinator.state(group) == GroupState::Dead && !self.offsets.knows(group) {
            return Err(GroupError::GroupIdNotFound);
        }
        Ok(())
    }

    /// As [`Offsets::topic_deleted`]. A node that does not coordinate has nothing to take away.
    pub fn topic_deleted(&mut self, topic: &TopicKey, out: &mut Outputs) {
        if !self.resigned {
            self.offsets.topic_deleted(topic, out);
        }
    }

    /// As [`Groups::loaded`], in place of `loading`, which heard of topics that were deleted in the meantime. Call
    /// [`Groups::pay`] then until there is nothing to do.
    pub fn loaded_in_place_of(&mut self, loading: &mut Self, now: Timestamp) {
        self.loaded(now);
        self.offsets.catch_up(&mut loading.offsets);
    }

    /// As [`Offsets::pay`].
    pub fn pay(&mut self, out: &mut Outputs) -> bool {
        self.offsets.pay(out)
    }

    /// Lets go of offsets that are too old, and of groups that have neither members nor offsets, in the next slice of a
    /// walk over all groups. While too much is on its way to the store the walk ends early: the next one comes in some
    /// minutes, and clients need the rest of the room.
    pub fn expire(&mut self, walk: &mut Walk, now: Now, out: &mut Outputs) {
        if self.check_serving().is_err() || self.offsets.is_half_full() {
            walk.end();
            return;
        }
        self.offsets.pay(out);
        for id in walk.next_of_both(self.coordinator.groups(), self.offsets.by_group()) {
            let rows = self.offsets.rows(&id);
            let occupied = !matches!(self.coordinator.state(&id), GroupState::Empty | GroupState::Dead);
            if rows == 0 {
                // The first commit of a group may be under way: it exists already, and its generation must not fall.
                if !self.offsets.knows(&id) {
                    self.coordinator.sweep(&id);
                }
            } else if !occupied || self.offsets.needs_look(&id, now.wall) {
                let readers = self.coordinator.readers(&id);
                self.offsets.expire(&id, &readers, now.wall, out);
                if !occupied && !self.offsets.has_rows(&id) {
                    self.coordinator.sweep(&id);
                }
            }
            if !walk.passed(&id, rows) {
                return;
            }
        }
        if walk.is_over() {
            self.offsets.drop_unused_names();
        }
    }

    /// A group as DescribeGroups shows it. A group that has only offsets is empty; one that has nothing is dead.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`], [`GroupError::Loading`], [`GroupError::InvalidGroupId`].
    pub fn describe(&self, group: &str) -> Result<Description, GroupError> {
        self.check_serving()?;
        self.coordinator.check_group_id(group)?;
        Ok(self.coordinator.describe(group).unwrap_or_else(|| {
            if self.offsets.has_rows(group) { Description::only_offsets() } else { Description::dead() }
        }))
    }

    /// The groups that ListGroups shows, of the next slice of a walk, sorted by id. A node that does not coordinate has
    /// none.
    ///
    /// # Errors
    /// [`GroupError::Loading`]: a list without the groups that are not loaded yet would be taken for the whole.
    pub fn list(&self, filter: &ListFilter, walk: &mut Walk) -> Result<Vec<Listed>, GroupError> {
        match self.check_serving() {
            Ok(()) => {}
            Err(GroupError::NotCoordinator) => {
                walk.end();
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        }
        let ids = walk.next_of_both(self.coordinator.groups(), self.offsets.by_group());
        if let Some(last) = ids.last() {
            walk.passed(last, 0);
        }
        let only_offsets = |group| Listed { group, state: GroupState::Empty, protocol_type: Arc::from("") };
        let listed = ids.into_iter().map(|id| self.coordinator.listed(&id).unwrap_or_else(|| only_offsets(id)));
        Ok(listed.filter(|group| filter.wants(group.state)).collect())
    }

    /// As [`Offsets::freeze`].
    #[must_use]
    pub fn freeze(&self, walk: &mut Walk) -> Frozen {
        self.offsets.freeze(walk)
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
