//! Heartbeat, and the check of a commit's sender: both say "I am still here", and are told where the group stands.

use crate::error::GroupError;
use crate::group::{Ctx, Group, Phase};
use crate::types::Generation;

/// Who sends a request, and in which generation it thinks it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender<'a> {
    /// Group id.
    pub group: &'a str,
    /// Member id, empty for none.
    pub member_id: &'a str,
    /// `group.instance.id`; an empty one counts as none.
    pub instance_id: Option<&'a str>,
    /// Generation, negative for none.
    pub generation: Generation,
}

impl Sender<'_> {
    /// True for admin tools and consumers that assign partitions to themselves.
    pub(crate) fn is_outsider(&self) -> bool {
        self.generation.is_none() && self.member_id.is_empty() && self.instance().is_none()
    }

    fn instance(&self) -> Option<&str> {
        self.instance_id.filter(|id| !id.is_empty())
    }
}

impl Group {
    fn check_sender(&self, sender: &Sender<'_>) -> Result<(), GroupError> {
        self.current_member(sender.member_id, sender.instance())?;
        if sender.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(())
    }

    pub(crate) fn heartbeat(&mut self, ctx: &Ctx<'_>, sender: &Sender<'_>) -> Result<(), GroupError> {
        self.check_sender(sender)?;
        self.refresh(ctx, sender.member_id);
        match self.phase {
            Phase::Empty => Err(GroupError::UnknownMember),
            Phase::Preparing(_) => Err(GroupError::RebalanceInProgress),
            // Consumers begin to send heartbeats as soon as their join is answered.
            Phase::Completing { .. } | Phase::Stable { .. } => Ok(()),
        }
    }

    /// Whether offsets may be committed. True comes back for a member, false for an outsider.
    ///
    /// While the group prepares, a commit of the current generation is welcome: that is how a client commits what it
    /// is about to lose. Between join and sync nobody owns anything yet, so nobody has anything to commit.
    pub(crate) fn check_commit(&mut self, ctx: &Ctx<'_>, sender: &Sender<'_>) -> Result<bool, GroupError> {
        if sender.is_outsider() {
            return if self.members.is_empty() { Ok(false) } else { Err(GroupError::UnknownMember) };
        }
        self.check_sender(sender)?;
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(GroupError::RebalanceInProgress);
        }
        self.refresh(ctx, sender.member_id);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
