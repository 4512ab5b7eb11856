//! What happens to a group when nobody talks to it.

use crate::event::Departure;
use crate::group::{Ctx, Group, Phase};
use crate::member::Member;
use crate::types::{Moment, Token};

impl Group {
    /// Carries out everything whose time has come.
    pub(crate) fn run_timers(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        self.pending.retain(|_, until| now < *until);
        let gone: Vec<_> = self
            .members
            .iter()
            .filter(|m| m.session_ends().is_some_and(|at| at <= now))
            .map(|m| m.id.clone())
            .collect();
        for id in &gone {
            self.remove_member(ctx, id, Departure::SessionEnded);
        }
        let evicted = self.evict_unsynced(ctx);
        if !gone.is_empty() {
            self.after_removal(ctx, Departure::SessionEnded);
        } else if evicted {
            self.after_removal(ctx, Departure::NotSynced);
        } else {
            self.advance(ctx);
        }
    }

    /// Members that joined and never asked for their assignment hold partitions that nobody reads. True if some went.
    fn evict_unsynced(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let due = match self.phase {
            Phase::Completing { sync_until } | Phase::Stable { sync_until: Some(sync_until) } => ctx.now >= sync_until,
            Phase::Empty | Phase::Preparing(_) | Phase::Stable { sync_until: None } => false,
        };
        if !due {
            return false;
        }
        let late: Vec<_> = self.members.iter().filter(|m| m.sync_due).map(|m| m.id.clone()).collect();
        for id in &late {
            self.remove_member(ctx, id, Departure::NotSynced);
        }
        if let Phase::Stable { sync_until } = &mut self.phase {
            *sync_until = None;
        }
        // While the leader is awaited, it is among the late ones. Whatever the reason if it is not, a deadline that
        // has passed must not stay.
        !late.is_empty() || matches!(self.phase, Phase::Completing { .. })
    }

    /// When [`Group::run_timers`] has something to do, if nothing happens until then.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let sessions = self.members.iter().filter_map(Member::session_ends);
        sessions.chain(self.pending.values().copied()).chain(self.phase_ends()).min()
    }

    /// Nobody waits for that answer any more. The member's session begins to run; one that never heard its own name
    /// cannot come back and goes at once. A token that is not waiting is ignored.
    pub(crate) fn forget(&mut self, ctx: &mut Ctx<'_>, token: Token) {
        let waits = |m: &&mut Member| m.sync == Some(token) || m.join.is_some_and(|parked| parked.token == token);
        let Some(member) = self.members.iter_mut().find(waits) else { return };
        member.refresh(ctx.now);
        if member.sync == Some(token) {
            member.sync = None;
            return;
        }
        member.join = None;
        if member.nameless && member.instance_id.is_none() {
            let id = member.id.clone();
            self.remove_member(ctx, &id, Departure::Disconnected);
            self.after_removal(ctx, Departure::Disconnected);
        }
    }
}

#[cfg(test)]
mod tests;
