//! A group: its phase, its members, and what every operation shares.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::GroupError;
use crate::event::{Departure, GroupEvent, RebalanceCause};
use crate::join::{JoinRequest, MINTED_BYTES_MAX};
use crate::limits::GroupConfig;
use crate::member::Member;
use crate::output::{Joined, JoinedMember, Outputs, Synced};
use crate::types::{Blob, Generation, GroupState, MemberId, Moment};

/// What every operation on a group gets along.
pub(crate) struct Ctx<'a> {
    pub(crate) config: &'a GroupConfig,
    pub(crate) now: Moment,
    /// Bytes that may yet be kept of members, of this group or others.
    pub(crate) room: usize,
    pub(crate) out: &'a mut Outputs,
}

/// How a rebalance waits for its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The first of an empty group waits a fixed time and, as long as members arrive, again.
    Initial { until: Moment, remaining_ms: u64, grew: bool },
    /// Waits until all known members joined again, at most until then.
    Rejoin { until: Moment },
}

/// Where a group stands, with the deadline that belongs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Empty,
    Preparing(Barrier),
    Completing {
        sync_until: Moment,
    },
    /// The deadline stays until everybody asked for the assignment.
    Stable {
        sync_until: Option<Moment>,
    },
}

/// The members in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Boxed, because a node of the map has room for eleven, and most groups have few members.
    by_seq: BTreeMap<u64, Box<Member>>,
    seqs: HashMap<MemberId, u64>,
    next_seq: u64,
    said: usize,
    assigned: usize,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.by_seq.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Member> {
        self.by_seq.get(self.seqs.get(id)?).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.by_seq.get_mut(self.seqs.get(id)?).map(Box::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.by_seq.values().map(Box::as_ref)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_seq.values_mut().map(Box::as_mut)
    }

    /// Bytes that are kept of the joins of all of them: about what the leader is told.
    pub(crate) fn said(&self) -> usize {
        self.said
    }

    /// Bytes of their assignments.
    pub(crate) fn assigned(&self) -> usize {
        self.assigned
    }

    /// Gives each of them its assignment.
    pub(crate) fn assign(&mut self, assignment: impl Fn(&Member) -> Blob) {
        self.assigned = 0;
        for member in self.by_seq.values_mut() {
            member.assignment = assignment(member);
            self.assigned += member.assignment.len();
        }
    }

    pub(crate) fn insert(&mut self, member: Member) {
        self.said += member.bytes;
        self.seqs.insert(member.id.clone(), self.next_seq);
        self.by_seq.insert(self.next_seq, Box::new(member));
        self.next_seq += 1;
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.by_seq.remove(&self.seqs.remove(id)?)?;
        self.said = self.said.saturating_sub(member.bytes);
        self.assigned = self.assigned.saturating_sub(member.assignment.len());
        Some(*member)
    }

    /// A member joins again with what it says now.
    pub(crate) fn update(&mut self, id: &str, request: &JoinRequest<'_>) -> Option<&mut Member> {
        let member = self.by_seq.get_mut(self.seqs.get(id)?)?.as_mut();
        let before = member.bytes;
        member.update(request);
        self.said = (self.said + member.bytes).saturating_sub(before);
        Some(member)
    }

    /// Gives a member another name; it keeps its place.
    pub(crate) fn rename(&mut self, from: &str, to: MemberId) {
        let Some(seq) = self.seqs.remove(from) else { return };
        self.seqs.insert(to.clone(), seq);
        if let Some(member) = self.by_seq.get_mut(&seq) {
            member.id = to;
        }
    }
}

/// A group of the classic protocol.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: Arc<str>,
    pub(crate) phase: Phase,
    pub(crate) generation: Generation,
    /// Kept when the last member goes, so that tools still see what kind of group it was.
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) leader: Option<MemberId>,
    pub(crate) members: Members,
    /// Who holds a static name.
    pub(crate) instances: HashMap<Arc<str>, MemberId>,
    /// Ids given out with "join again under this name", and until when they are good.
    pub(crate) pending: BTreeMap<MemberId, Moment>,
    /// When members were first asked to join again, until the leader's assignments are there.
    pub(crate) rebalancing_since: Option<Moment>,
    /// What was last told about the group having members.
    pub(crate) told_occupied: bool,
    /// When the timers of this group run next, as the coordinator filed it.
    pub(crate) wake: Option<Moment>,
}

impl Group {
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            phase: Phase::Empty,
            generation: Generation::ZERO,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: Members::default(),
            instances: HashMap::new(),
            pending: BTreeMap::new(),
            rebalancing_since: None,
            told_occupied: false,
            wake: None,
        }
    }

    /// Bytes that are kept of it and its members. Its own id counts too: whoever asks for a member id in ever new groups
    /// would otherwise fill the memory with the names of groups that nobody joins.
    pub(crate) fn bytes(&self) -> usize {
        self.id.len() + self.pending.len() * MINTED_BYTES_MAX + self.members.said() + self.members.assigned()
    }

    pub(crate) fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing(_) => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable { .. } => GroupState::Stable,
        }
    }

    /// True when nothing would be lost with it: nobody ever was in a generation, and nobody is on the way.
    pub(crate) fn is_void(&self) -> bool {
        self.phase == Phase::Empty && self.pending.is_empty() && self.generation == Generation::ZERO
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Checks that a request comes from a member, and from the one that holds the static name it gives.
    pub(crate) fn current_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance_id {
            return match self.instances.get(instance) {
                Some(holder) if &**holder == member_id => Ok(()),
                Some(_) if crate::mutants::on(crate::mutants::Mutant::NoFencing) => Ok(()),
                Some(_) => Err(GroupError::FencedInstance),
                None => Err(GroupError::UnknownMember),
            };
        }
        self.members.get(member_id).map(|_| ()).ok_or(GroupError::UnknownMember)
    }

    /// The member whose place a join takes: its own, or that of the holder of its static name.
    pub(crate) fn replaced_by(&self, request: &JoinRequest<'_>) -> Option<&Member> {
        if !request.member_id.is_empty() {
            return self.members.get(request.member_id);
        }
        self.members.get(self.instances.get(request.instance()?)?)
    }

    /// The largest rebalance timeout of the members, in milliseconds.
    pub(crate) fn rebalance_timeout(&self) -> u64 {
        u64::from(self.members.iter().map(|m| m.rebalance_timeout_ms).max().unwrap_or(0))
    }

    /// Takes a member out and answers what it waits for: its request is of a connection that may still live, and
    /// would otherwise wait for ever.
    pub(crate) fn remove_member(&mut self, ctx: &mut Ctx<'_>, id: &str, why: Departure) {
        let Some(member) = self.members.remove(id) else { return };
        ctx.out.events.push(GroupEvent::MemberGone(why));
        if let Some(parked) = member.join {
            // With an empty id, so that it comes back under a new one.
            ctx.out.refuse_join(parked.token, GroupError::UnknownMember, MemberId::from(""));
        }
        if let Some(token) = member.sync {
            ctx.out.sync(token, Err(GroupError::UnknownMember));
        }
        if let Some(instance) = &member.instance_id
            && self.instances.get(instance) == Some(&member.id)
        {
            self.instances.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.iter().next().map(|m| m.id.clone());
        }
    }

    /// After members went: the others have to share anew, or a barrier that waited for them may open.
    pub(crate) fn after_removal(&mut self, ctx: &mut Ctx<'_>, why: Departure) {
        if matches!(self.phase, Phase::Stable { .. } | Phase::Completing { .. }) {
            self.prepare(ctx, RebalanceCause::Gone(why));
        }
        self.advance(ctx);
    }

    /// The answer to a member that is in the current generation.
    pub(crate) fn joined(&self, member: &Member, with_members: bool) -> Joined {
        let members = if with_members { self.roster() } else { Vec::new() };
        Joined {
            member_id: member.id.clone(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| MemberId::from("")),
            members,
            skip_assignment: false,
        }
    }

    /// All members with their metadata for the chosen protocol.
    fn roster(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members
            .iter()
            .map(|m| JoinedMember {
                member_id: m.id.clone(),
                instance_id: m.instance_id.clone(),
                metadata: m.metadata(protocol).cloned().unwrap_or_else(|| Blob::from([])),
            })
            .collect()
    }

    /// The answer to a member that asks for its assignment.
    pub(crate) fn synced(&self, assignment: Blob) -> Synced {
        Synced { protocol_type: self.protocol_type.clone(), protocol: self.protocol.clone(), assignment }
    }
}
