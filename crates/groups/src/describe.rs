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

/// What a ListGroups request wants to see. Names are compared without regard to case; one that means nothing selects
/// nothing, and no names at all select everything (KIP-518, KIP-848).
#[derive(Debug, Clone, Copy, Default)]
pub struct ListFilter<'a> {
    /// Names of states, from version 4 on.
    pub states: &'a [&'a str],
    /// Names of group types, from version 5 on.
    pub types: &'a [&'a str],
}

impl ListFilter<'_> {
    /// True when a group in that state is wanted.
    #[must_use]
    pub fn wants(&self, state: GroupState) -> bool {
        let selects =
            |names: &[&str], name: &str| names.is_empty() || names.iter().any(|n| n.eq_ignore_ascii_case(name));
        selects(self.states, state.name()) && selects(self.types, GROUP_TYPE)
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
