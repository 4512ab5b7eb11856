//! All groups: finds the one an event is for, keeps the bounds, and knows which timer is next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::census::Census;
use crate::describe::{Description, Listed};
use crate::error::GroupError;
use crate::event::{Departure, GroupEvent};
use crate::group::{Ctx, Group};
use crate::heartbeat::Sender;
use crate::join::JoinRequest;
use crate::leave::Leaving;
use crate::limits::GroupConfig;
use crate::output::Outputs;
use crate::subscription::Readers;
use crate::sync::SyncRequest;
use crate::types::{GroupState, MemberId, Moment, Token};
use crate::walk::GROUPS_PER_SLICE;

/// The coordinator of the classic group protocol.
///
/// Every method takes the time. Requests that may have to wait carry a [`Token`], and their answers come out of
/// whichever call brings them about. [`Coordinator::tick`] must be called when [`Coordinator::deadline`] has come.
///
/// Membership lives in memory only. After a restart every member is unknown and joins again.
#[derive(Debug)]
pub struct Coordinator {
    config: GroupConfig,
    /// Sorted, so that a look at all of them can be interrupted.
    groups: BTreeMap<Arc<str>, Group>,
    timers: BTreeSet<(Moment, Arc<str>)>,
    /// Bytes that are kept of all groups and their members.
    bytes: usize,
    census: Census,
}

impl Coordinator {
    /// Without groups.
    #[must_use]
    pub fn new(config: GroupConfig) -> Self {
        Self { config, groups: BTreeMap::new(), timers: BTreeSet::new(), bytes: 0, census: Census::default() }
    }

    /// JoinGroup. Answered with [`Answer::Join`](crate::Answer::Join), perhaps later.
    pub fn join(&mut self, token: Token, request: &JoinRequest<'_>, now: Moment, out: &mut Outputs) {
        if let Err(error) = self.admit(request) {
            out.refuse_join(token, error, MemberId::from(request.member_id));
            return;
        }
        let id = match self.groups.get_key_value(request.group) {
            Some((id, _)) => id.clone(),
            None => {
                let id: Arc<str> = Arc::from(request.group);
                let group = Group::new(id.clone());
                self.census.count(&group);
                self.bytes += group.bytes();
                self.groups.insert(id.clone(), group);
                id
            }
        };
        self.on_group(&id, now, out, |group, ctx| group.join(ctx, token, request));
    }

    fn admit(&self, request: &JoinRequest<'_>) -> Result<(), GroupError> {
        self.check_group_id(request.group)?;
        request.check(&self.config)?;
        let newcomer = request.member_id.is_empty();
        if !self.groups.contains_key(request.group) {
            if !newcomer {
                return Err(GroupError::UnknownMember);
            }
            if self.groups.len() >= self.config.groups_max {
                return Err(GroupError::TooManyGroups { max: self.config.groups_max });
            }
        }
        if newcomer && self.members() >= self.config.members_max && !self.returns(request) {
            return Err(GroupError::TooManyMembers { max: self.config.members_max });
        }
        self.admit_bytes(request)
    }

    /// True when a static member takes its own place, which needs no room.
    fn returns(&self, request: &JoinRequest<'_>) -> bool {
        self.groups.get(request.group).and_then(|group| group.replaced_by(request)).is_some()
    }

    /// Whoever is in and says no more than before needs no room.
    fn admit_bytes(&self, request: &JoinRequest<'_>) -> Result<(), GroupError> {
        let group = self.groups.get(request.group);
        let replaced = group.and_then(|group| group.replaced_by(request)).map_or(0, |member| member.bytes);
        let Some(added) = request.bytes().checked_sub(replaced).filter(|added| *added > 0) else { return Ok(()) };
        let bytes = group.map_or(0, |group| group.members.said()) + added;
        if bytes > self.config.group_bytes_max {
            return Err(GroupError::GroupTooLarge { bytes, max: self.config.group_bytes_max });
        }
        if added > self.room() {
            return Err(GroupError::MembersTooLarge { max: self.config.members_bytes_max });
        }
        Ok(())
    }

    fn room(&self) -> usize {
        self.config.members_bytes_max.saturating_sub(self.bytes)
    }

    /// SyncGroup. Answered with [`Answer::Sync`](crate::Answer::Sync), perhaps later.
    pub fn sync(&mut self, token: Token, request: &SyncRequest<'_>, now: Moment, out: &mut Outputs) {
        if let Err(error) = self.find(request.group) {
            out.sync(token, Err(error));
            return;
        }
        self.on_group(request.group, now, out, |group, ctx| group.sync(ctx, token, request));
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// [`GroupError::RebalanceInProgress`] asks the member to join again; the others say that it is not in the group.
    pub fn heartbeat(&mut self, sender: &Sender<'_>, now: Moment) -> Result<(), GroupError> {
        self.check_group_id(sender.group)?;
        // A session that is refreshed only moves timers back, so none has to be filed anew: the old one fires and
        // looks.
        let group = self.groups.get_mut(sender.group).ok_or(GroupError::UnknownMember)?;
        let mut out = Outputs::default();
        group.heartbeat(&Ctx { config: &self.config, now, room: 0, out: &mut out }, sender)
    }

    /// LeaveGroup. One result per identity, in the order of the request.
    ///
    /// # Errors
    /// One for the whole request.
    pub fn leave(
        &mut self,
        group: &str,
        leaving: &[Leaving<'_>],
        now: Moment,
        out: &mut Outputs,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        self.check_group_id(group)?;
        if !self.groups.contains_key(group) {
            return Ok(leaving.iter().map(|_| Err(GroupError::UnknownMember)).collect());
        }
        Ok(self.on_group(group, now, out, |group, ctx| group.leave(ctx, leaving)).unwrap_or_default())
    }

    /// Whether the sender may commit offsets now; for a member it counts as a sign of life. True comes back for a
    /// member, false for an admin tool or a consumer that assigns partitions to itself. The empty group id is
    /// allowed.
    ///
    /// # Errors
    /// For an unknown group always [`GroupError::UnknownMember`]: it is what makes every client join again.
    pub fn check_commit(&mut self, sender: &Sender<'_>, now: Moment) -> Result<bool, GroupError> {
        if sender.group.len() > self.config.group_id_bytes_max {
            return Err(GroupError::InvalidGroupId);
        }
        let Some(group) = self.groups.get_mut(sender.group) else {
            return if sender.is_outsider() { Ok(false) } else { Err(GroupError::UnknownMember) };
        };
        let mut out = Outputs::default();
        group.check_commit(&Ctx { config: &self.config, now, room: 0, out: &mut out }, sender)
    }

    /// Takes the token of a join or sync back, because its connection is gone. It is not answered after that; the
    /// member's session begins to run. A token that is not waiting is ignored.
    pub fn forget(&mut self, group: &str, token: Token, now: Moment, out: &mut Outputs) {
        self.on_group(group, now, out, |group, ctx| group.forget(ctx, token));
    }

    /// Forgets everything. Whoever waits for a join or a sync is sent to look for the coordinator.
    pub(crate) fn resign(&mut self, out: &mut Outputs) {
        for member in self.groups.values().flat_map(|group| group.members.iter()) {
            if let Some(parked) = member.join {
                out.refuse_join(parked.token, GroupError::NotCoordinator, member.id.clone());
            }
            if let Some(token) = member.sync {
                out.sync(token, Err(GroupError::NotCoordinator));
            }
            out.events.push(GroupEvent::MemberGone(Departure::CoordinatorMoved));
        }
        self.groups.clear();
        self.timers.clear();
        (self.census, self.bytes) = (Census::default(), 0);
    }

    /// Carries out what is due: ends sessions, opens barriers. Of very many groups only the first are looked at, each
    /// once; then [`Coordinator::deadline`] has come again already.
    pub fn tick(&mut self, now: Moment, out: &mut Outputs) {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now).take(GROUPS_PER_SLICE);
        let due: Vec<Arc<str>> = due.map(|(_, group)| group.clone()).collect();
        for id in due {
            self.on_group(&id, now, out, Group::run_timers);
        }
    }

    /// When [`Coordinator::tick`] is due, at the latest. It may find nothing to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A group as DescribeGroups shows it; `None` when it does not exist here, though it may have offsets.
    #[must_use]
    pub fn describe(&self, group: &str) -> Option<Description> {
        self.groups.get(group).map(Group::describe)
    }

    /// A group as ListGroups shows it.
    #[must_use]
    pub fn listed(&self, group: &str) -> Option<Listed> {
        self.groups.get(group).map(Group::listed)
    }

    pub(crate) fn groups(&self) -> &BTreeMap<Arc<str>, Group> {
        &self.groups
    }

    /// Where a group stands; [`GroupState::Dead`] when it does not exist here.
    #[must_use]
    pub fn state(&self, group: &str) -> GroupState {
        self.groups.get(group).map_or(GroupState::Dead, Group::state)
    }

    /// Who could miss offsets of a group.
    #[must_use]
    pub fn readers(&self, group: &str) -> Readers {
        self.groups.get(group).map_or(Readers::Nobody, Group::readers)
    }

    /// Removes a group that has no members. Ids that were given out in it are unknown from then on.
    ///
    /// # Errors
    /// [`GroupError::NonEmptyGroup`], [`GroupError::GroupIdNotFound`].
    pub fn remove(&mut self, group: &str) -> Result<(), GroupError> {
        match self.state(group) {
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::Empty => {
                self.drop_group(group);
                Ok(())
            }
            _ => Err(GroupError::NonEmptyGroup),
        }
    }

    /// Removes a group that has neither members nor ids that were given out and may yet be used.
    pub(crate) fn sweep(&mut self, group: &str) {
        let idle = |group: &Group| group.state() == GroupState::Empty && group.pending.is_empty();
        if self.groups.get(group).is_some_and(idle) {
            self.drop_group(group);
        }
    }

    /// Number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// True when there is no group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// How many groups and members there are.
    #[must_use]
    pub fn census(&self) -> Census {
        self.census
    }

    /// Number of members and given-out ids in all groups.
    #[must_use]
    pub fn members(&self) -> usize {
        self.census.members + self.census.pending
    }

    /// Checks a group id where the empty one is not allowed.
    ///
    /// # Errors
    /// [`GroupError::InvalidGroupId`].
    pub fn check_group_id(&self, group: &str) -> Result<(), GroupError> {
        if group.is_empty() || group.len() > self.config.group_id_bytes_max {
            return Err(GroupError::InvalidGroupId);
        }
        Ok(())
    }

    fn find(&self, group: &str) -> Result<&Group, GroupError> {
        self.check_group_id(group)?;
        self.groups.get(group).ok_or(GroupError::UnknownMember)
    }

    /// Runs something on a group and brings the counts and timers up to date.
    fn on_group<T>(
        &mut self,
        id: &str,
        now: Moment,
        out: &mut Outputs,
        run: impl FnOnce(&mut Group, &mut Ctx<'_>) -> T,
    ) -> Option<T> {
        let room = self.room();
        let group = self.groups.get_mut(id)?;
        let bytes = group.bytes();
        self.census.discount(group);
        let result = run(group, &mut Ctx { config: &self.config, now, room, out });
        self.bytes = (self.bytes + group.bytes()).saturating_sub(bytes);
        self.census.count(group);
        let wake = group.next_timer();
        if wake != group.wake {
            if let Some(at) = group.wake {
                self.timers.remove(&(at, group.id.clone()));
            }
            if let Some(at) = wake {
                self.timers.insert((at, group.id.clone()));
            }
            group.wake = wake;
        }
        if group.is_void() {
            self.drop_group(id);
        }
        Some(result)
    }

    fn drop_group(&mut self, id: &str) {
        if let Some(group) = self.groups.remove(id) {
            self.bytes = self.bytes.saturating_sub(group.bytes());
            self.census.discount(&group);
            if let Some(at) = group.wake {
                self.timers.remove(&(at, group.id));
            }
        }
    }
}

#[cfg(test)]
mod tests;
