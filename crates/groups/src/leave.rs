//! LeaveGroup: members go at once instead of with the end of their session.

use crate::error::GroupError;
use crate::event::Departure;
use crate::group::{Ctx, Group};

/// One of those who leave. Below version 3 of the request there is exactly one, without an instance id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving<'a> {
    /// Member id; an admin that removes a static member leaves it empty.
    pub member_id: &'a str,
    /// `group.instance.id`; an empty one counts as none.
    pub instance_id: Option<&'a str>,
}

impl Group {
    /// One answer per identity, in order; then one rebalance for all.
    pub(crate) fn leave(&mut self, ctx: &mut Ctx<'_>, leaving: &[Leaving<'_>]) -> Vec<Result<(), GroupError>> {
        let mut removed = false;
        let answers = leaving
            .iter()
            .map(|who| {
                let is_member = self.leave_one(ctx, who)?;
                removed |= is_member;
                Ok(())
            })
            .collect();
        if removed {
            self.after_removal(ctx, Departure::Left);
        } else {
            // An id that was given out and is handed back may be all that the barrier waited for.
            self.advance(ctx);
        }
        answers
    }

    /// True when a member went, false when an unused id was handed back.
    fn leave_one(&mut self, ctx: &mut Ctx<'_>, who: &Leaving<'_>) -> Result<bool, GroupError> {
        let instance = who.instance_id.filter(|id| !id.is_empty());
        if let Some(instance) = instance
            && who.member_id.is_empty()
        {
            let id = self.instances.get(instance).cloned().ok_or(GroupError::UnknownMember)?;
            self.remove_member(ctx, &id, Departure::Left);
            return Ok(true);
        }
        if instance.is_none() && self.pending.remove(who.member_id).is_some() {
            return Ok(false);
        }
        self.current_member(who.member_id, instance)?;
        self.remove_member(ctx, who.member_id, Departure::Left);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
