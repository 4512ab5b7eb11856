//! The barrier: from "everybody join again" to a new generation.

use std::sync::Arc;

use crate::error::GroupError;
use crate::event::{Departure, GroupEvent, RebalanceCause};
use crate::group::{Barrier, Ctx, Group, Phase};
use crate::mutants::{self, Mutant};
use crate::output::Occupancy;
use crate::types::{Blob, Moment};

impl Group {
    /// Opens a rebalance. Members learn of it from their next heartbeat.
    pub(crate) fn prepare(&mut self, ctx: &mut Ctx<'_>, cause: RebalanceCause) {
        ctx.out.events.push(GroupEvent::RebalanceBegan(cause));
        self.rebalancing_since.get_or_insert(ctx.now);
        let timeout = self.rebalance_timeout();
        let first = self.phase == Phase::Empty;
        if matches!(self.phase, Phase::Completing { .. }) {
            // Who waits for the leader's work waits in vain.
            for member in self.members.iter_mut() {
                if let Some(token) = member.sync.take()
                    && !mutants::on(Mutant::ForgottenSync)
                {
                    member.refresh(ctx.now);
                    ctx.out.sync(token, Err(GroupError::RebalanceInProgress));
                }
            }
        }
        for member in self.members.iter_mut() {
            member.sync_due = false;
        }
        self.phase = Phase::Preparing(if first {
            let delay = u64::from(ctx.config.initial_rebalance_delay_ms);
            let remaining_ms = timeout.saturating_sub(delay);
            Barrier::Initial { until: ctx.now.plus(delay), remaining_ms, grew: false }
        } else {
            Barrier::Rejoin { until: ctx.now.plus(timeout) }
        });
    }

    /// Completes the rebalance if its time has come. Called after every change of who is here and who has joined.
    pub(crate) fn advance(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Preparing(barrier) = self.phase else { return };
        match barrier {
            Barrier::Initial { until, .. } if ctx.now < until => {}
            Barrier::Initial { remaining_ms, grew: true, .. }
                if remaining_ms > 0 && ctx.config.initial_rebalance_delay_ms > 0 =>
            {
                let delay = u64::from(ctx.config.initial_rebalance_delay_ms).min(remaining_ms);
                self.phase = Phase::Preparing(Barrier::Initial {
                    until: ctx.now.plus(delay),
                    remaining_ms: remaining_ms - delay,
                    grew: false,
                });
            }
            Barrier::Initial { .. } => self.complete(ctx),
            Barrier::Rejoin { until } => {
                // An id that was given out is about to be used. Not waiting for it would mean a second rebalance at
                // once.
                let all_here = self.pending.is_empty() && self.members.iter().all(|m| m.join.is_some());
                if all_here || ctx.now >= until {
                    self.complete(ctx);
                }
            }
        }
    }

    /// Whoever joined is in the new generation. Whoever did not is out, except static members: they may be
    /// restarting, and keep their place until their session ends.
    fn complete(&mut self, ctx: &mut Ctx<'_>) {
        let late: Vec<_> =
            self.members.iter().filter(|m| m.join.is_none() && m.instance_id.is_none()).map(|m| m.id.clone()).collect();
        for id in late {
            self.remove_member(ctx, &id, Departure::NotRejoined);
        }
        if self.members.is_empty() {
            self.become_empty(ctx);
            return;
        }
        if !self.elect_leader() {
            // Static members alone, and none of them is here: nobody could compute an assignment.
            let timeout = self.rebalance_timeout().max(1);
            self.phase = Phase::Preparing(Barrier::Rejoin { until: ctx.now.plus(timeout) });
            return;
        }
        self.generation = self.generation.next();
        self.protocol = self.select_protocol();
        self.phase = Phase::Completing { sync_until: ctx.now.plus(self.rebalance_timeout().max(1)) };
        if !self.told_occupied {
            self.tell_occupied(ctx, true);
        }
        self.answer_joins(ctx);
    }

    fn answer_joins(&mut self, ctx: &mut Ctx<'_>) {
        let nothing = Blob::from([]);
        for member in self.members.iter_mut() {
            if !mutants::on(Mutant::StaleAssignments) {
                member.assignment = Arc::clone(&nothing);
            }
            member.sync = None;
        }
        let here: Vec<_> = self.members.iter().filter_map(|m| Some((m.id.clone(), m.join?.token))).collect();
        for (id, token) in here {
            let Some(member) = self.members.get(&id) else { continue };
            let joined = self.joined(member, self.is_leader(&id));
            ctx.out.joined(token, joined);
            if let Some(member) = self.members.get_mut(&id) {
                member.join = None;
                member.nameless = false;
                member.new_until = None;
                member.sync_due = true;
                member.refresh(ctx.now);
            }
        }
    }

    /// Keeps the leader if it joined, else takes the first that did. False when nobody did.
    fn elect_leader(&mut self) -> bool {
        let stays = self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(|m| m.join.is_some());
        if !stays {
            let Some(next) = self.members.iter().find(|m| m.join.is_some()) else { return false };
            self.leader = Some(next.id.clone());
        }
        true
    }

    fn become_empty(&mut self, ctx: &mut Ctx<'_>) {
        self.generation = self.generation.next();
        self.protocol = None;
        self.leader = None;
        self.phase = Phase::Empty;
        self.rebalancing_since = None;
        if self.told_occupied {
            self.tell_occupied(ctx, false);
        }
    }

    fn tell_occupied(&mut self, ctx: &mut Ctx<'_>, occupied: bool) {
        self.told_occupied = occupied;
        ctx.out.occupancy.push(Occupancy { group: self.id.clone(), occupied });
    }

    /// When the barrier opens or the wait for SyncGroup ends, whatever happens until then.
    pub(crate) fn phase_ends(&self) -> Option<Moment> {
        match self.phase {
            Phase::Empty => None,
            Phase::Preparing(Barrier::Initial { until, .. } | Barrier::Rejoin { until }) => Some(until),
            Phase::Completing { sync_until } => Some(sync_until),
            Phase::Stable { sync_until } => sync_until,
        }
    }
}

#[cfg(test)]
mod tests;
