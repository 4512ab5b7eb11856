//! One assignment of one partition as a state machine: no client, no clock, no payloads.
//!
//! A caller hands in what happened ([`Input`]) and does what comes out ([`Output`]), in that order. Any input is
//! answered in any state; what makes no sense there changes nothing. The machine knows records by their offsets; the
//! caller keeps them until it is told to drop them or they are acknowledged.
//!
//! The ledger, in six rules:
//!
//! 1. A record is in flight from the step on in which its lane's position moves past it.
//! 2. Only an acknowledgement of this epoch, for a record that the application has, takes it out of flight.
//! 3. Offsets that the log skips need no acknowledgement: the position jumps over them.
//! 4. The backfill ends only when that is proven: by a record at or behind the fork, or by the end of the log.
//! 5. Stored facts are clipped to the log. Below its start is expired and reported, behind its end nothing counts.
//! 6. Finished ranges are left out by whichever lane comes across them.
//!
//! Modules: `types` (inputs and outputs), `resolve` (the start), `flow` (records and acknowledgements), `commit`,
//! `checkpoint` (the topic store), `leave` (revoke, close, loss), `look` (status and buffers).

mod checkpoint;
mod commit;
mod flow;
mod leave;
mod look;
mod resolve;
mod types;

pub use commit::CommitFailure;
pub(crate) use commit::Covering;
pub(crate) use flow::Taken;
pub use types::{AckOutcome, CommitId, Epoch, Input, Output, Reset, Resolved};

use crate::event::{Event, ResolveFault};
use crate::lane::{Lane, LaneState};
use crate::range_set::RangeSet;
use crate::settings::{Bound, Checkpoint, Order, Settings};
use crate::status::State;
use crate::{LogId, Progress};

/// How often a commit or a checkpoint is tried before the user hears of it.
pub const TRIES_MAX: u32 = 5;

/// One assignment of one partition. See the [module](self) for what it is.
#[derive(Debug)]
pub struct Partition {
    epoch: Epoch,
    settings: Settings,
    state: State,
    resolve_attempts: u32,
    log: LogId,
    /// The floor at the start.
    start: i64,
    ledger: Ledger,
    fork: Option<i64>,
    live: LaneState,
    backfill: Option<LaneState>,
    /// Whether the live lane waits because the ranges take too much of the metadata.
    crowded: bool,
    /// The user's own part of the metadata.
    user: String,
    commits: commit::Commits,
    topic: checkpoint::TopicStore,
    /// The last commit of a drain was made.
    last_made: bool,
}

/// What is finished. `done` holds nothing at or below the floor.
#[derive(Debug, Default)]
struct Ledger {
    floor: i64,
    done: RangeSet,
}

impl Ledger {
    fn finish(&mut self, range: std::ops::Range<i64>) {
        if range.start > self.floor {
            return self.done.insert(range);
        }
        // Most of the time, and then most of the time nothing is ahead: nothing is put into the set to be taken out again.
        self.floor = self.floor.max(range.end);
        while let Some(first) = self.done.first().filter(|first| first.start <= self.floor) {
            self.floor = self.floor.max(first.end);
            self.done.remove(first);
        }
    }

    fn finished(&self, offset: i64) -> bool {
        offset < self.floor || self.done.contains(offset)
    }
}

impl Partition {
    /// A partition that was just assigned: in [`State::Resolving`], its member paused. `epoch` must be another one for
    /// each assignment.
    #[must_use]
    pub fn new(epoch: Epoch, settings: Settings) -> Self {
        let live = LaneState::new(0, i64::MAX, settings.live, true);
        let commits = commit::Commits::new(settings.metadata_bytes_max);
        Self {
            epoch,
            settings,
            state: State::Resolving,
            resolve_attempts: 0,
            log: LogId(0),
            start: 0,
            ledger: Ledger::default(),
            fork: None,
            live,
            backfill: None,
            crowded: false,
            user: String::new(),
            commits,
            topic: checkpoint::TopicStore::default(),
            last_made: false,
        }
    }

    /// Takes one input. With another epoch than the partition's it changes nothing: records are dropped,
    /// acknowledgements are [`AckOutcome::Stale`].
    pub fn on(&mut self, epoch: Epoch, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.step(epoch, input, &mut out);
        out
    }

    /// As [`Partition::on`]; what comes out is added to `out`.
    pub(crate) fn step(&mut self, epoch: Epoch, input: Input, out: &mut Vec<Output>) {
        if epoch != self.epoch {
            match input {
                Input::Ack { .. } => out.push(Output::Ack(AckOutcome::Stale)),
                Input::Fetched { .. } | Input::HandOut { .. } | Input::Defer { .. } => out.push(Output::Drop),
                _ => {}
            }
            return;
        }
        match input {
            Input::Resolved(resolved) => self.resolved(&resolved, out),
            Input::ResolveFailed => self.resolve_failed(ResolveFault::Backend, out),
            Input::Fetched { lane, offset, bytes } => self.fetched(lane, offset, bytes, out),
            Input::End { lane, next } => self.end(lane, next, out),
            Input::LogStart { low } => self.log_start(low, out),
            Input::HandOut { offset } => self.hand_out(offset, out),
            Input::Ack { offset } => self.ack(offset, out),
            Input::Defer { offset } => self.defer(offset, out),
            Input::UserMetadata(user) => self.set_user(user, out),
            Input::CommitDue => self.commit_due(out),
            Input::Committed { id, result } => self.committed(id, result, out),
            Input::ReadBack { floor, metadata } => self.read_back(floor, &metadata, out),
            Input::Saved { id, ok } => self.saved(id, ok, out),
            Input::Revoke => self.revoke(out),
            Input::DrainDeadline => self.drain_deadline(out),
            Input::Lost => self.lost(out),
        }
    }

    /// The epoch of this assignment.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The state it is in.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Where the live lane began; `None` without a fork.
    #[must_use]
    pub fn fork(&self) -> Option<i64> {
        self.fork
    }

    /// What is finished now: what a commit would say.
    #[must_use]
    pub fn view(&self) -> Progress {
        Progress { log: self.log, floor: self.ledger.floor, ahead: self.ledger.done.clone() }
    }

    /// The lane that an offset belongs to.
    #[must_use]
    pub fn lane_of(&self, offset: i64) -> Lane {
        if self.fork.is_some_and(|fork| offset < fork) { Lane::Backfill } else { Lane::Live }
    }

    /// How many records, and bytes of them, a lane takes before it is full; always at least one of each.
    pub(crate) fn room(&self, lane: Lane) -> Bound {
        let at = if lane == Lane::Live { Some(&self.live) } else { self.backfill.as_ref() };
        at.map_or(Bound { records: 1, bytes: 1 }, LaneState::room)
    }

    fn active(&self) -> bool {
        matches!(self.state, State::Live | State::CatchingUp | State::Merging)
    }

    fn lane(&mut self, lane: Lane) -> Option<&mut LaneState> {
        match lane {
            Lane::Live => Some(&mut self.live),
            Lane::Backfill => self.backfill.as_mut(),
        }
    }

    fn ordered(&self) -> bool {
        self.settings.order == Order::Offset
    }

    fn in_topic(&self) -> bool {
        matches!(self.settings.checkpoint, Checkpoint::Topic(_))
    }

    fn tell(event: Event, out: &mut Vec<Output>) {
        out.push(Output::Event(event));
    }
}
