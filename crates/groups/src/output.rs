//! What comes out of the state machines: answers to parked requests, and records to make durable.

use std::sync::Arc;

use crate::error::GroupError;
use crate::event::GroupEvent;
use crate::types::{Blob, Generation, MemberId, Token};

/// Collects what an event brings about. The caller keeps one, hands it to every call and drains it afterwards.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Answers to requests, also to requests of other clients that were waiting.
    pub answers: Vec<(Token, Answer)>,
    /// Records to append to the log, in this order.
    pub appends: Vec<Append>,
    /// Groups that got their first members or lost their last ones. [`Groups`](crate::Groups) drains it itself.
    pub occupancy: Vec<Occupancy>,
    /// What happened to groups, for counters.
    pub events: Vec<GroupEvent>,
}

/// An answer to the request of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To JoinGroup.
    Join(Result<Joined, JoinRefused>),
    /// To SyncGroup.
    Sync(Result<Synced, GroupError>),
    /// To OffsetCommit: one result per partition, in the order of the request.
    Commit(Vec<Result<(), GroupError>>),
    /// To OffsetDelete: one result per partition in the order of the request, or one for all.
    DeleteOffsets(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// To DeleteGroups, for one group.
    DeleteGroup(Result<(), GroupError>),
}

/// A member is in a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its name from now on.
    pub member_id: MemberId,
    /// The generation.
    pub generation: Generation,
    /// Protocol type of the group, sent from version 7 on.
    pub protocol_type: Option<Arc<str>>,
    /// The chosen protocol.
    pub protocol: Option<Arc<str>>,
    /// The member that computes the assignment.
    pub leader: MemberId,
    /// All members, for the leader; empty for the others.
    pub members: Vec<JoinedMember>,
    /// The leader shall not compute an assignment, since the group has one (KIP-814), sent from version 9 on.
    pub skip_assignment: bool,
}

/// What the leader hears about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its name.
    pub member_id: MemberId,
    /// Its static name, sent from version 5 on.
    pub instance_id: Option<Arc<str>>,
    /// Its metadata for the chosen protocol.
    pub metadata: Blob,
}

/// A join that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRefused {
    /// Why.
    pub error: GroupError,
    /// What goes into the member id of the answer: the id to join with after
    /// [`MemberIdRequired`](GroupError::MemberIdRequired), else what the request had.
    pub member_id: MemberId,
}

/// A member's assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// Protocol type of the group, sent from version 5 on.
    pub protocol_type: Option<Arc<str>>,
    /// The chosen protocol, sent from version 5 on.
    pub protocol: Option<Arc<str>>,
    /// What the leader filed for this member; empty when it left the member out.
    pub assignment: Blob,
}

/// A record to make durable. The caller appends in the order in which records come out, and tells how each went
/// through [`Offsets::settled`](crate::Offsets::settled).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// What to settle.
    pub ticket: Ticket,
    /// The bytes.
    pub record: Vec<u8>,
}

/// The number of a record on its way to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// A group got its first members or lost its last ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupancy {
    /// The group.
    pub group: Arc<str>,
    /// True when it has members now.
    pub occupied: bool,
}

impl Outputs {
    /// True when there is nothing to do. Events are nothing that has to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.appends.is_empty() && self.occupancy.is_empty()
    }

    pub(crate) fn joined(&mut self, token: Token, joined: Joined) {
        self.answers.push((token, Answer::Join(Ok(joined))));
    }

    pub(crate) fn refuse_join(&mut self, token: Token, error: GroupError, member_id: MemberId) {
        self.answers.push((token, Answer::Join(Err(JoinRefused { error, member_id }))));
    }

    pub(crate) fn sync(&mut self, token: Token, result: Result<Synced, GroupError>) {
        self.answers.push((token, Answer::Sync(result)));
    }
}
