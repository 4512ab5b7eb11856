//! What a record of the log says.

use std::sync::Arc;

use super::table::{Committed, TopicKey};
use crate::types::Timestamp;

/// Whether a group has members, as the log remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mark {
    /// It never had any: offsets of tools, and of consumers that assign partitions to themselves.
    #[default]
    Never,
    /// It had when that was written.
    Occupied,
    /// The last one went then.
    EmptySince(Timestamp),
}

/// One partition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) partition: i32,
    /// `None` takes the offset away.
    pub(crate) value: Option<Committed>,
}

/// Offsets of one group; a commit, or a piece of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) group: Arc<str>,
    /// The commit of a member shows that the group has members.
    pub(crate) by_member: bool,
    /// Most of the values carry this commit time.
    pub(crate) at: Timestamp,
    pub(crate) topics: Vec<(TopicKey, Vec<Write>)>,
}

/// One change of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Offsets are set or taken away.
    Store(Store),
    /// Offsets go.
    Remove { group: Arc<str>, topics: Vec<(TopicKey, Vec<i32>)> },
    /// A group goes with all its offsets.
    RemoveGroup { group: Arc<str> },
    /// A topic goes, in all groups.
    RemoveTopic { topic: TopicKey },
    /// A group has members, or has none since then.
    Mark { group: Arc<str>, mark: Mark },
}

impl Change {
    /// The group that it is about, if only one.
    pub(crate) fn group(&self) -> Option<&Arc<str>> {
        match self {
            Self::Store(Store { group, .. })
            | Self::Remove { group, .. }
            | Self::RemoveGroup { group }
            | Self::Mark { group, .. } => Some(group),
            Self::RemoveTopic { .. } => None,
        }
    }

    /// How many offsets it may add.
    pub(crate) fn adds(&self) -> usize {
        match self {
            Self::Store(store) => store.topics.iter().map(|(_, writes)| writes.len()).sum(),
            _ => 0,
        }
    }
}
