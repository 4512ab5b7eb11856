//! Which protocol (assignor) a generation uses.

use std::collections::HashMap;
use std::sync::Arc;

use crate::group::Group;
use crate::types::Blob;

/// A protocol that a member can run, with its metadata for it, which nobody here looks into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) name: Arc<str>,
    pub(crate) metadata: Blob,
}

impl Protocol {
    pub(crate) fn new(name: &str, metadata: &[u8]) -> Self {
        Self { name: Arc::from(name), metadata: Blob::from(metadata) }
    }
}

impl Group {
    /// True when a member with these protocols leaves the group one that all others know too. `except` is left out of
    /// the others: the old self of a static member, or the member itself.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[(&str, &[u8])], except: Option<&str>) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        let mut others = self.members.iter().filter(|m| Some(&*m.id) != except).peekable();
        if others.peek().is_none() {
            return true;
        }
        if self.protocol_type.as_deref() != Some(protocol_type) {
            return false;
        }
        let others: Vec<_> = others.collect();
        protocols.iter().any(|(name, _)| others.iter().all(|m| m.metadata(name).is_some()))
    }

    /// Of the protocols that all members know, the one that most members put first; the leader's order decides ties.
    pub(crate) fn select_protocol(&self) -> Option<Arc<str>> {
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id)).or_else(|| self.members.iter().next())?;
        let candidates: Vec<&Arc<str>> = leader
            .protocols
            .iter()
            .map(|p| &p.name)
            .filter(|name| self.members.iter().all(|m| m.metadata(name).is_some()))
            .collect();
        let mut votes: HashMap<&str, usize> = HashMap::new();
        for member in self.members.iter() {
            if let Some(first) = member.protocols.iter().find(|p| candidates.contains(&&p.name)) {
                *votes.entry(&first.name).or_default() += 1;
            }
        }
        // The last of several maxima would win, so the leader's favourite comes last.
        candidates.into_iter().rev().max_by_key(|name| votes.get(&***name).copied().unwrap_or(0)).cloned()
    }
}

#[cfg(test)]
mod tests;
