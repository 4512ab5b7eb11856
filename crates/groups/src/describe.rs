//! What DescribeGroups and ListGroups show.

use std::sync::Arc;

use crate::group::Group;
use crate::types::{Blob, GroupState, MemberId};

/// A group as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Where it stands; [`GroupState::Dead`] for a group that does not exist.
    pub state: GroupState,
    /// For instance `consumer`; empty when it never had members.
    pub protocol_type: Arc<str>,
    /// The chosen protocol; empty unless the group is stable, since another may be chosen next.
    pub protocol: Arc<str>,
    /// The members, in the order in which they came.
    pub members: Vec<DescribedMember>,
}

/// A member as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its name.
    pub member_id: MemberId,
    /// Its static name.
    pub instance_id: Option<Arc<str>>,
    /// Client id of its last join.
    pub client_id: Arc<str>,
    /// Address of its last join.
    pub client_host: Arc<str>,
    /// What it said for the chosen protocol; empty unless the group is stable.
    pub metadata: Blob,
    /// What the leader filed for it; empty unless the group is stable.
    pub assignment: Blob,
}

/// A group as ListGroups shows it. All of them are of the type [`GROUP_TYPE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Group id.
    pub group: Arc<str>,
    /// Where it stands.
    pub state: GroupState,
    /// For instance `consumer`; empty when it never had members.
    pub protocol_type: Arc<str>,
}

/// What ListGroups 5 calls groups of this protocol.
pub const GROUP_TYPE: &str = "classic";

/// What a ListGroups request wants to see. The default is everything.
///
/// It holds what the names mean and not the names: a request may list a million of them, and every group is compared.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// `None` is any.
    states: Option<Vec<GroupState>>,
    no_type: bool,
}

impl ListFilter {
    /// From the names of states, from version 4 on, and of group types, from version 5 on. They are compared without regard
    /// to case; one that means nothing selects nothing, and no names at all select everything (KIP-518, KIP-848).
    #[must_use]
    pub fn named(states: &[&str], types: &[&str]) -> Self {
        let is_among = |names: &[&str], name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let named = || GroupState::ALL.into_iter().filter(|state| is_among(states, state.name())).collect();
        Self { states: (!states.is_empty()).then(named), no_type: !types.is_empty() && !is_among(types, GROUP_TYPE) }
    }

    /// True when a group in that state is wanted.
    #[must_use]
    pub fn wants(&self, state: GroupState) -> bool {
        !self.no_type && self.states.as_ref().is_none_or(|states| states.contains(&state))
    }
}

impl Description {
    /// Of a group that does not exist.
    #[must_use]
    pub fn dead() -> Self {
        Self::bare(GroupState::Dead)
    }

    /// Of a group that consists of offsets alone.
    #[must_use]
    pub fn only_offsets() -> Self {
        Self::bare(GroupState::Empty)
    }

    fn bare(state: GroupState) -> Self {
        Self { state, protocol_type: Arc::from(""), protocol: Arc::from(""), members: Vec::new() }
    }
}

impl Group {
    pub(crate) fn describe(&self) -> Description {
        let state = self.state();
        let protocol = self.protocol.as_ref().filter(|_| state == GroupState::Stable);
        let nothing = Blob::from([]);
        let members = self.members.iter().map(|m| DescribedMember {
            member_id: m.id.clone(),
            instance_id: m.instance_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            metadata: protocol.and_then(|p| m.metadata(p)).unwrap_or(&nothing).clone(),
            assignment: if protocol.is_some() { m.assignment.clone() } else { nothing.clone() },
        });
        Description {
            state,
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
            protocol: protocol.cloned().unwrap_or_else(|| Arc::from("")),
            members: members.collect(),
        }
    }

    pub(crate) fn listed(&self) -> Listed {
        Listed {
            group: self.id.clone(),
            state: self.state(),
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
        }
    }
}

#[cfg(test)]
mod tests;
