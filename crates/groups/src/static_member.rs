//! Static members (KIP-345): a client that returns under its `group.instance.id` takes the place of its old self.

use crate::error::GroupError;
use crate::event::{GroupEvent, RebalanceCause};
use crate::group::{Ctx, Group, Phase};
use crate::join::JoinRequest;
use crate::member::ParkedJoin;
use crate::types::Token;

impl Group {
    /// A static member came back without its member id, as after a restart. It gets a new id and what its old self
    /// had; whoever still runs under the old id is fenced off.
    ///
    /// In a stable group nobody else notices. That its metadata may differ is no reason to rebalance: sticky
    /// assignors put owned partitions into it, so it differs after every restart. Only another choice of protocol is
    /// a reason.
    pub(crate) fn join_returning(
        &mut self,
        ctx: &mut Ctx<'_>,
        token: Token,
        old_id: &str,
        request: &JoinRequest<'_>,
    ) -> Result<(), GroupError> {
        if !self.supports(request.protocol_type, request.protocols, Some(old_id)) {
            return Err(GroupError::InconsistentProtocol);
        }
        let leader_before = self.leader.clone();
        let new_id = request.mint();
        self.members.rename(old_id, new_id.clone());
        let Some(member) = self.members.update(&new_id, request) else {
            return Err(GroupError::UnknownMember);
        };
        if let Some(parked) = member.join.take() {
            ctx.out.refuse_join(parked.token, GroupError::FencedInstance, old_id.into());
        }
        if let Some(waiting) = member.sync.take() {
            ctx.out.sync(waiting, Err(GroupError::FencedInstance));
        }
        ctx.out.events.push(GroupEvent::MemberReturned);
        member.refresh(ctx.now);
        member.nameless = true;
        if member.new_until.is_some() {
            // Its old self was never answered; the new one has as much time as that had.
            member.new_until = Some(ctx.now.plus(u64::from(ctx.config.new_member_join_timeout_ms)));
        }
        if let Some(instance) = member.instance_id.clone() {
            self.instances.insert(instance, new_id.clone());
        }
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        if self.members.len() == 1 {
            self.protocol_type = Some(request.protocol_type.into());
        }
        if matches!(self.phase, Phase::Stable { .. }) && self.select_protocol() == self.protocol {
            self.answer_returned(ctx, token, &new_id, leader_before.as_deref(), request);
            return Ok(());
        }
        // While the leader computes, it computes for the old id; so a new round is needed then, too.
        if let Some(member) = self.members.get_mut(&new_id) {
            member.join = Some(ParkedJoin { token });
        }
        self.wait_for_barrier(ctx, RebalanceCause::Joined);
        Ok(())
    }

    /// A leader that returns must not compute an assignment that nobody waits for. From version 9 on it can be told
    /// so, and still learns who the members are; before, it is told that its old self leads.
    fn answer_returned(
        &mut self,
        ctx: &mut Ctx<'_>,
        token: Token,
        new_id: &str,
        leader_before: Option<&str>,
        request: &JoinRequest<'_>,
    ) {
        let leads = self.is_leader(new_id);
        let Some(member) = self.members.get(new_id) else { return };
        let mut joined = self.joined(member, leads && request.can_skip_assignment());
        if request.can_skip_assignment() {
            joined.skip_assignment = leads;
        } else if let Some(before) = leader_before {
            joined.leader = before.into();
        }
        ctx.out.joined(token, joined);
        if let Some(member) = self.members.get_mut(new_id) {
            member.nameless = false;
        }
    }
}

#[cfg(test)]
mod tests;
