//! Records, from the readers to the application and back as acknowledgements.

use super::{AckOutcome, Output, Partition};
use crate::event::Event;
use crate::flights::Phase;
use crate::lane::Lane;
use crate::progress::encoded_len;
use crate::settings::Commit;
use crate::status::State;

/// What becomes of a record that was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It goes to the end of the queue to the application.
    Deliver,
    /// It is kept until [`Output::Deliver`] names it.
    Hold,
    /// It is forgotten.
    Drop,
}

impl Partition {
    pub(super) fn fetched(&mut self, lane: Lane, offset: i64, bytes: u64, out: &mut Vec<Output>) {
        out.push(match self.take(lane, offset, bytes) {
            Taken::Deliver => Output::Deliver { lane, offset },
            Taken::Hold => Output::Hold,
            Taken::Drop => Output::Drop,
        });
        self.settle(out);
    }

    /// A reader has a record. After one or more of them a [`Partition::settle`] must follow.
    pub(crate) fn take(&mut self, lane: Lane, offset: i64, bytes: u64) -> Taken {
        let hold = lane == Lane::Live && self.state == State::CatchingUp && self.ordered();
        let active = self.active();
        let finished = self.ledger.finished(offset);
        let Some(at) = self.lane(lane).filter(|at| active && offset >= at.position && offset < i64::MAX) else {
            return Taken::Drop;
        };
        let skipped = at.position..offset.min(at.end);
        let taken = if finished || offset >= at.end {
            // Behind the end of the backfill the record belongs to the live lane.
            at.position = offset.saturating_add(1).min(at.end);
            Taken::Drop
        } else if hold {
            at.take(offset, bytes, Phase::Held);
            Taken::Hold
        } else {
            at.take(offset, bytes, Phase::Queued);
            Taken::Deliver
        };
        if !skipped.is_empty() {
            self.ledger.finish(skipped);
        }
        taken
    }

    pub(super) fn end(&mut self, lane: Lane, next: i64, out: &mut Vec<Output>) {
        let active = self.active();
        let Some(at) = self.lane(lane).filter(|at| active && next > at.position) else { return };
        let skipped = at.position..next.min(at.end);
        at.position = skipped.end;
        self.ledger.finish(skipped);
        self.settle(out);
    }

    pub(super) fn log_start(&mut self, low: i64, out: &mut Vec<Output>) {
        for lane in [Lane::Backfill, Lane::Live] {
            let active = self.active();
            let Some(at) = self.lane(lane).filter(|at| active && low > at.position) else { continue };
            let gone = at.position..low.min(at.end);
            if gone.is_empty() {
                continue;
            }
            at.position = gone.end;
            let expired: Vec<_> = self.ledger.done.gaps(gone.start.max(self.ledger.floor)..gone.end).collect();
            for range in expired {
                Self::tell(Event::GapExpired(range), out);
            }
            self.ledger.finish(gone.clone());
            match lane {
                Lane::Live => out.push(Output::Seek { offset: gone.end }),
                Lane::Backfill => out.push(Output::SeekReader { offset: gone.end }),
            }
        }
        self.settle(out);
    }

    pub(super) fn hand_out(&mut self, offset: i64, out: &mut Vec<Output>) {
        let (active, lane) = (self.active(), self.lane_of(offset));
        let given = self.lane(lane).is_some_and(|at| active && at.shift(offset, Phase::Queued, Phase::InHand));
        if !given {
            out.push(Output::Drop);
        }
    }

    pub(super) fn ack(&mut self, offset: i64, out: &mut Vec<Output>) {
        let lane = self.lane_of(offset);
        if !(self.active() || self.state == State::Draining) {
            out.push(Output::Ack(AckOutcome::Stale));
            return;
        }
        if !self.lane(lane).is_some_and(|at| at.land(offset)) {
            let before = self.ledger.finished(offset);
            out.push(Output::Ack(if before { AckOutcome::Duplicate } else { AckOutcome::Stale }));
            return;
        }
        out.push(Output::Ack(AckOutcome::Counted));
        self.ledger.finish(offset..offset.saturating_add(1));
        self.commits.acks = self.commits.acks.saturating_add(1);
        if self.state == State::Draining {
            return self.drain(false, out);
        }
        self.settle(out);
        if self.commits.acks >= self.settings.commit_acks.max(1) && matches!(self.settings.commit, Commit::Every(_)) {
            self.commit_due(out);
        }
    }

    pub(super) fn defer(&mut self, offset: i64, out: &mut Vec<Output>) {
        let lane = self.lane_of(offset);
        if !self.lane(lane).is_some_and(|at| at.shift(offset, Phase::InHand, Phase::Queued)) {
            out.push(Output::Drop);
        } else if self.active() {
            out.push(Output::Deliver { lane, offset });
        } else {
            // Nothing is handed out any more, and so it is not waited for either.
            out.push(Output::Drop);
            self.drain(false, out);
        }
    }

    /// What follows from a ledger or a position that moved.
    pub(crate) fn settle(&mut self, out: &mut Vec<Output>) {
        if !self.active() {
            return;
        }
        if self.state == State::CatchingUp {
            self.advance_backfill(out);
        }
        if self.state == State::Merging && self.fork.is_some_and(|fork| self.ledger.floor >= fork) {
            self.state = State::Live;
            Self::tell(Event::CaughtUp, out);
        }
        self.gate(Lane::Backfill, out);
        self.gate(Lane::Live, out);
    }

    /// Jumps over what is finished, and ends the backfill when nothing is left of it.
    fn advance_backfill(&mut self, out: &mut Vec<Output>) {
        let Some(at) = &mut self.backfill else { return };
        let done = if at.position < self.ledger.floor {
            Some(self.ledger.floor)
        } else {
            self.ledger.done.at(at.position).map(|range| range.end)
        };
        let target = done.unwrap_or(at.position).min(at.end);
        if target >= at.end {
            at.position = at.end;
            self.state = State::Merging;
            out.push(Output::StopReader);
            for offset in self.live.release_held() {
                out.push(Output::Deliver { lane: Lane::Live, offset });
            }
        } else if target.abs_diff(at.position) >= self.settings.jump_offsets.max(1) {
            at.position = target;
            out.push(Output::SeekReader { offset: target });
        }
    }

    /// Pauses or resumes a lane when its bounds, or those of the metadata, say so.
    pub(super) fn gate(&mut self, lane: Lane, out: &mut Vec<Output>) {
        let crowded = lane == Lane::Live && self.check_crowded();
        // A backfill that has read everything has no reader to pause.
        if lane == Lane::Backfill && self.state != State::CatchingUp {
            return;
        }
        let Some(at) = self.lane(lane) else { return };
        let pause = at.full() || crowded;
        if pause != at.paused {
            at.paused = pause;
            out.push(if pause { Output::Pause(lane) } else { Output::Resume(lane) });
        }
    }

    /// Above three quarters of the metadata the live lane waits, until they take half of it.
    fn check_crowded(&mut self) -> bool {
        let limit = self.commits.budget();
        let share = |part: usize, of: usize| limit.saturating_mul(part) / of;
        // A range takes at most two numbers of ten bytes: most of the time there is nothing to count.
        let at_most = (self.ledger.done.len().saturating_mul(20) + 40).saturating_mul(4) / 3 + 4 + self.user.len();
        // Ranges that the lane has still before it come from an earlier life, and only going on fills their gaps.
        let before_it = || self.ledger.done.last().is_some_and(|last| last.end > self.live.position);
        if self.in_topic() || limit == 0 || at_most <= share(1, 2) || before_it() {
            self.crowded = false;
            return false;
        }
        let len = encoded_len(self.ledger.floor, &self.ledger.done, &self.user);
        self.crowded = len > if self.crowded { share(1, 2) } else { share(3, 4) };
        self.crowded
    }
}
