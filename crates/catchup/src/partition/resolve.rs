//! The start: from what is stored and what the log has to one lane or two.

use super::{Output, Partition, Reset, Resolved};
use crate::event::{Event, ResetReason, ResolveFault};
use crate::lane::{Lane, LaneState};
use crate::progress::{NotCounted, Progress, user_metadata};
use crate::settings::{Commit, USER_METADATA_BYTES_MAX};
use crate::status::State;

impl Partition {
    pub(super) fn resolve_failed(&mut self, fault: ResolveFault, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Resolving | State::Failed) {
            return;
        }
        self.state = State::Failed;
        self.resolve_attempts = self.resolve_attempts.saturating_add(1);
        Self::tell(Event::ResolveFailed(fault), out);
        out.push(Output::RetryResolve { attempt: self.resolve_attempts });
    }

    pub(super) fn resolved(&mut self, found: &Resolved, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Resolving | State::Failed) {
            return;
        }
        let (low, high) = (found.low, found.high);
        if low < 0 || high < low {
            return self.resolve_failed(ResolveFault::Watermarks { low, high }, out);
        }
        let committed = found.committed.as_ref().filter(|(floor, _)| *floor >= 0);
        let counts = committed.filter(|(floor, _)| *floor <= high);
        let mut progress = match (counts, found.reset) {
            (Some((floor, _)), _) => Progress::new(found.log, *floor),
            (None, Reset::Earliest) => Progress::new(found.log, low),
            (None, Reset::Latest) => Progress::new(found.log, high),
            (None, Reset::Error) => {
                Self::tell_beyond(committed, high, out);
                return self.resolve_failed(ResolveFault::NoOffset, out);
            }
        };
        self.log = found.log;
        if let Some((floor, metadata)) = counts {
            match Progress::ahead_of(metadata, found.log, *floor) {
                Ok(ahead) => progress.ahead = ahead,
                Err(NotCounted::Foreign) => {}
                Err(why) => Self::tell(Event::ProgressReset(ResetReason::Metadata(why)), out),
            }
            self.take_checkpoint(found.checkpoint.as_ref(), Some(*floor), &mut progress, out);
            self.commits.found(*floor, metadata.clone(), progress.ahead.clone());
            // Whose it ever was: another program may still look for it.
            let user = Some(user_metadata(metadata)).filter(|user| user.len() <= USER_METADATA_BYTES_MAX);
            self.user = user.unwrap_or_default().to_owned();
        } else {
            Self::tell_beyond(committed, high, out);
            self.take_checkpoint(found.checkpoint.as_ref(), None, &mut progress, out);
        }
        for expired in progress.ahead.gaps(progress.floor..low) {
            Self::tell(Event::GapExpired(expired), out);
        }
        progress.clip(low..high);
        self.begin(progress, high, out);
    }

    fn tell_beyond(committed: Option<&(i64, String)>, end: i64, out: &mut Vec<Output>) {
        if let Some((committed, _)) = committed {
            Self::tell(Event::ProgressReset(ResetReason::BeyondLog { committed: *committed, end }), out);
        }
    }

    fn begin(&mut self, progress: Progress, high: i64, out: &mut Vec<Output>) {
        self.start = progress.floor;
        self.ledger.floor = progress.floor;
        self.ledger.done = progress.ahead;
        let floor = self.start;
        Self::tell(Event::Assigned { floor, end: high }, out);
        let gap: u64 = self.ledger.done.gaps(floor..high).map(|piece| piece.end.abs_diff(piece.start)).sum();
        // The lag in Kafka's meaning, finished ranges included: one lane would have to read through those.
        if gap > 0 && high.abs_diff(floor) > self.settings.fork_when.offsets() {
            self.state = State::CatchingUp;
            self.fork = Some(high);
            self.live = LaneState::new(high, i64::MAX, self.settings.live, true);
            self.backfill = Some(LaneState::new(floor, high, self.settings.backfill, false));
            Self::tell(Event::Forked { floor, fork: high, gap }, out);
            out.push(Output::Seek { offset: high });
            out.push(Output::StartReader { from: floor, fork: high });
        } else {
            self.state = State::Live;
            self.live = LaneState::new(floor, i64::MAX, self.settings.live, true);
            out.push(Output::Seek { offset: floor });
        }
        self.gate(Lane::Live, out);
        self.overwrite_checkpoint(out);
        // Without a committed offset, a crash before the first commit would start by `auto.offset.reset` again, at
        // another place, and what was delivered and not finished would be passed over.
        if !self.commits.any() && matches!(self.settings.commit, Commit::Every(_)) {
            self.commit_due(out);
        }
    }
}
