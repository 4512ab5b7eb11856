//! The end of an assignment: in good order, in time, or by loss.

use super::{Output, Partition};
use crate::event::Event;
use crate::lane::LaneState;
use crate::status::State;

impl Partition {
    pub(super) fn revoke(&mut self, out: &mut Vec<Output>) {
        match self.state {
            State::Resolving | State::Failed => {
                Self::tell(Event::Revoked, out);
                self.release(State::Released, out);
            }
            State::Live | State::CatchingUp | State::Merging => {
                self.stop_reader(out);
                self.state = State::Draining;
                Self::tell(Event::Draining, out);
                out.push(Output::DropQueued);
                self.drain(false, out);
            }
            State::Draining | State::Lost | State::Released => {}
        }
    }

    pub(super) fn drain_deadline(&mut self, out: &mut Vec<Output>) {
        if self.state != State::Draining {
            return;
        }
        if self.last_made {
            Self::tell(Event::Revoked, out);
            return self.release(State::Released, out);
        }
        self.drain(true, out);
    }

    pub(super) fn lost(&mut self, out: &mut Vec<Output>) {
        if matches!(self.state, State::Lost | State::Released) {
            return;
        }
        self.stop_reader(out);
        out.push(Output::DropQueued);
        Self::tell(Event::Lost, out);
        self.release(State::Lost, out);
    }

    /// Makes the last commit when the application has nothing in hand any more, or when the time is over.
    pub(super) fn drain(&mut self, over: bool, out: &mut Vec<Output>) {
        if self.state != State::Draining || self.last_made {
            return;
        }
        let in_hand = self.live.in_hand() + self.backfill.as_ref().map_or(0, LaneState::in_hand);
        if over || in_hand == 0 {
            self.last_made = true;
            self.commit_last(out);
            self.leave_if_quiet(out);
        }
    }

    /// Leaves when the last commit and checkpoint are answered.
    pub(super) fn leave_if_quiet(&mut self, out: &mut Vec<Output>) {
        let quiet = !self.commits.in_flight() && !self.topic.in_flight();
        if self.state == State::Draining && self.last_made && quiet {
            Self::tell(Event::Revoked, out);
            self.release(State::Released, out);
        }
    }

    fn stop_reader(&self, out: &mut Vec<Output>) {
        if self.state == State::CatchingUp {
            out.push(Output::StopReader);
        }
    }

    fn release(&mut self, state: State, out: &mut Vec<Output>) {
        self.state = state;
        self.live = LaneState::new(self.live.position, i64::MAX, self.settings.live, true);
        self.backfill = None;
        self.commits.end();
        self.topic.end();
        out.push(Output::Released);
    }
}
