//! JoinGroup: a client wants to be in the next generation.

use std::sync::Arc;

use crate::error::GroupError;
use crate::event::{GroupEvent, RebalanceCause};
use crate::group::{Barrier, Ctx, Group, Phase};
use crate::limits::GroupConfig;
use crate::member::{Member, ParkedJoin};
use crate::types::{MemberId, Token};

/// Bytes of a client id that go into a member id, which must fit the wire's int16 length.
const CLIENT_ID_IN_MEMBER_ID_MAX: usize = 255;

/// Bytes of a member id that is given out: behind the client id a UUID.
pub(crate) const MINTED_BYTES_MAX: usize = CLIENT_ID_IN_MEMBER_ID_MAX + 37;

/// First version whose clients can join under an id they are told to use (KIP-394).
const KNOWN_ID_VERSION: i16 = 4;

/// First version that can tell a leader to compute no assignment (KIP-814).
const SKIP_ASSIGNMENT_VERSION: i16 = 9;

/// A JoinGroup request.
#[derive(Debug, Clone, Copy)]
pub struct JoinRequest<'a> {
    /// Version of the request; it decides what the client can be told.
    pub version: i16,
    /// Group id.
    pub group: &'a str,
    /// Empty when the client has none.
    pub member_id: &'a str,
    /// `group.instance.id` (KIP-345); an empty one counts as none.
    pub instance_id: Option<&'a str>,
    /// Client id of the request header.
    pub client_id: &'a str,
    /// Address of the client, for DescribeGroups.
    pub client_host: &'a str,
    /// Session timeout in milliseconds.
    pub session_timeout_ms: i32,
    /// Rebalance timeout in milliseconds; `None` below version 1, where the session timeout serves.
    pub rebalance_timeout_ms: Option<i32>,
    /// For instance `consumer` or `connect`.
    pub protocol_type: &'a str,
    /// Names of protocols with metadata, best first.
    pub protocols: &'a [(&'a str, &'a [u8])],
    /// A text that no other call brings, for instance a random UUID: it becomes part of a new member id.
    pub fresh: &'a str,
}

impl JoinRequest<'_> {
    pub(crate) fn instance(&self) -> Option<&str> {
        self.instance_id.filter(|id| !id.is_empty())
    }

    pub(crate) fn rebalance_timeout(&self) -> u32 {
        u32::try_from(self.rebalance_timeout_ms.unwrap_or(self.session_timeout_ms)).unwrap_or(0)
    }

    pub(crate) fn can_skip_assignment(&self) -> bool {
        self.version >= SKIP_ASSIGNMENT_VERSION
    }

    /// What has to be kept of it for a member of that name.
    pub(crate) fn bytes_as(&self, id: &str) -> usize {
        self.bytes() - self.member_id.len() + id.len()
    }

    /// What has to be kept of it.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.group.len() + self.member_id.len() + self.instance_id.map_or(0, str::len);
        let client = self.client_id.len() + self.client_host.len() + self.protocol_type.len();
        let protocols: usize = self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum();
        names + client + protocols
    }

    /// Checks what does not depend on the group.
    pub(crate) fn check(&self, config: &GroupConfig) -> Result<(), GroupError> {
        let (min, max) = (config.session_timeout_min_ms, config.session_timeout_max_ms);
        if !u32::try_from(self.session_timeout_ms).is_ok_and(|asked| (min..=max).contains(&asked)) {
            return Err(GroupError::InvalidSessionTimeout { asked: self.session_timeout_ms, min, max });
        }
        if self.protocols.len() > config.protocols_max {
            return Err(GroupError::TooManyProtocols { max: config.protocols_max });
        }
        let bytes = self.bytes();
        if bytes > config.member_bytes_max {
            return Err(GroupError::MemberTooLarge { bytes, max: config.member_bytes_max });
        }
        Ok(())
    }

    /// A name for a new member. It begins with what an operator recognises: the static name, else the client id.
    pub(crate) fn mint(&self) -> MemberId {
        let from = self.instance().unwrap_or(self.client_id);
        let mut end = from.len().min(CLIENT_ID_IN_MEMBER_ID_MAX);
        while !from.is_char_boundary(end) {
            end -= 1;
        }
        let (head, _) = from.split_at(end);
        Arc::from(format!("{head}-{}", self.fresh))
    }
}

impl Group {
    /// Takes a join whose request alone is in order.
    pub(crate) fn join(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &JoinRequest<'_>) {
        let result = if request.member_id.is_empty() {
            self.join_new(ctx, token, request)
        } else {
            self.join_known(ctx, token, request)
        };
        if let Err(error) = result {
            ctx.out.refuse_join(token, error, MemberId::from(request.member_id));
        }
    }

    fn join_new(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &JoinRequest<'_>) -> Result<(), GroupError> {
        if let Some(holder) = request.instance().and_then(|instance| self.instances.get(instance)).cloned() {
            return self.join_returning(ctx, token, &holder, request);
        }
        self.check_newcomer(ctx, request)?;
        let id = request.mint();
        if request.instance().is_some() || request.version < KNOWN_ID_VERSION {
            self.add_member(ctx, token, id, request);
            return Ok(());
        }
        // A client that never comes back for this id has cost nobody a rebalance: that is what the detour is for.
        if self.pending.len() >= ctx.config.group_size_max {
            return Err(GroupError::GroupFull { max: ctx.config.group_size_max });
        }
        let until = ctx.now.plus(u64::from(request.session_timeout_ms.unsigned_abs()));
        self.pending.insert(id.clone(), until);
        ctx.out.refuse_join(token, GroupError::MemberIdRequired, id);
        Ok(())
    }

    fn join_known(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &JoinRequest<'_>) -> Result<(), GroupError> {
        if request.instance().is_none()
            && let Some((id, until)) = self.pending.remove_entry(request.member_id)
        {
            if let Err(error) = self.check_newcomer(ctx, request) {
                self.pending.insert(id, until);
                return Err(error);
            }
            self.add_member(ctx, token, id, request);
            return Ok(());
        }
        self.current_member(request.member_id, request.instance())?;
        let Some(member) = self.members.get(request.member_id) else {
            return Err(GroupError::UnknownMember);
        };
        if !self.supports(request.protocol_type, request.protocols, Some(request.member_id)) {
            return Err(GroupError::InconsistentProtocol);
        }
        let unchanged = member.says_the_same(request);
        let leader = self.is_leader(request.member_id);
        let keeps_generation = match self.phase {
            Phase::Empty => return Err(GroupError::UnknownMember),
            Phase::Preparing(_) => false,
            // The same again: the first answer was lost. The generation is still good.
            Phase::Completing { .. } => unchanged,
            // A leader that joins again wants a new assignment: it may have seen new partitions.
            Phase::Stable { .. } => unchanged && !leader,
        };
        if keeps_generation {
            let with_members = leader;
            let joined = self.joined(member, with_members);
            ctx.out.joined(token, joined);
            self.refresh(ctx, request.member_id);
        } else {
            let cause = if unchanged { RebalanceCause::Leader } else { RebalanceCause::Subscription };
            self.rejoin(ctx, token, request, cause);
        }
        Ok(())
    }

    fn check_newcomer(&self, ctx: &Ctx<'_>, request: &JoinRequest<'_>) -> Result<(), GroupError> {
        if self.members.len() >= ctx.config.group_size_max {
            return Err(GroupError::GroupFull { max: ctx.config.group_size_max });
        }
        if !self.supports(request.protocol_type, request.protocols, None) {
            return Err(GroupError::InconsistentProtocol);
        }
        Ok(())
    }

    fn add_member(&mut self, ctx: &mut Ctx<'_>, token: Token, id: MemberId, request: &JoinRequest<'_>) {
        if self.members.is_empty() {
            self.protocol_type = Some(Arc::from(request.protocol_type));
        }
        let mut member = Member::new(id.clone(), request, ctx.config, ctx.now);
        member.join = Some(ParkedJoin { token });
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(id);
        }
        self.members.insert(member);
        if let Phase::Preparing(Barrier::Initial { grew, .. }) = &mut self.phase {
            *grew = true;
        }
        ctx.out.events.push(GroupEvent::MemberJoined);
        self.wait_for_barrier(ctx, RebalanceCause::Joined);
    }

    /// A member joins again with what it says now.
    fn rejoin(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &JoinRequest<'_>, cause: RebalanceCause) {
        if self.members.len() == 1 {
            self.protocol_type = Some(Arc::from(request.protocol_type));
        }
        if let Some(member) = self.members.update(request.member_id, request) {
            member.refresh(ctx.now);
            if let Some(before) = member.join.replace(ParkedJoin { token }) {
                // The client gave up on that request; whoever still reads its answer shall try again.
                ctx.out.refuse_join(before.token, GroupError::RebalanceInProgress, member.id.clone());
            }
        }
        self.wait_for_barrier(ctx, cause);
    }

    /// A join was parked: a rebalance is under way from here on.
    pub(crate) fn wait_for_barrier(&mut self, ctx: &mut Ctx<'_>, cause: RebalanceCause) {
        if !matches!(self.phase, Phase::Preparing(_)) {
            self.prepare(ctx, cause);
        }
        self.advance(ctx);
    }

    pub(crate) fn refresh(&mut self, ctx: &Ctx<'_>, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.refresh(ctx.now);
        }
    }
}

#[cfg(test)]
mod tests;
