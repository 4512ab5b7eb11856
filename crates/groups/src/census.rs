//! How many groups and members there are, kept up to date with every event, so that to ask costs nothing.

use crate::group::Group;
use crate::types::GroupState;

/// Groups by state, and members of all groups. Groups that consist of offsets alone are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Groups without members.
    pub empty: usize,
    /// Groups whose members are asked to join again.
    pub preparing_rebalance: usize,
    /// Groups that wait for their leader.
    pub completing_rebalance: usize,
    /// Groups that have their assignments.
    pub stable: usize,
    /// Members.
    pub members: usize,
    /// Of those, members with a static name.
    pub static_members: usize,
    /// Member ids that were given out and are not used yet.
    pub pending: usize,
}

impl Census {
    /// Groups in that state.
    #[must_use]
    pub const fn groups(&self, state: GroupState) -> usize {
        match state {
            GroupState::Empty => self.empty,
            GroupState::PreparingRebalance => self.preparing_rebalance,
            GroupState::CompletingRebalance => self.completing_rebalance,
            GroupState::Stable => self.stable,
            GroupState::Dead => 0,
        }
    }

    /// Counts a group in, as it is now.
    pub(crate) fn count(&mut self, group: &Group) {
        self.on(group, usize::saturating_add);
    }

    /// Takes a group out that was counted as it is now.
    pub(crate) fn discount(&mut self, group: &Group) {
        self.on(group, usize::saturating_sub);
    }

    fn on(&mut self, group: &Group, change: fn(usize, usize) -> usize) {
        let groups = match group.state() {
            GroupState::Empty => &mut self.empty,
            GroupState::PreparingRebalance => &mut self.preparing_rebalance,
            GroupState::CompletingRebalance => &mut self.completing_rebalance,
            GroupState::Stable => &mut self.stable,
            GroupState::Dead => return,
        };
        *groups = change(*groups, 1);
        self.members = change(self.members, group.members.len());
        self.static_members = change(self.static_members, group.instances.len());
        self.pending = change(self.pending, group.pending.len());
    }
}
