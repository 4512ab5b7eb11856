//! What is known of one partition: its ends, and what was said of them to the watcher. Pure: times are arguments.
//!
//! The server tells its ends only when it is asked, and other writers may append at any time. Three things are kept
//! apart here: what the server last said, what confirmations of our own appends prove, and what was announced. An
//! answer that was asked for before a confirmation and comes after it must not move the end back; an end that really
//! fell (a server that was killed and had acknowledged from memory, a purge) must not stay hidden.
//!
//! When it fell, the epoch has to rise before anybody sees the lower end: a reader that got one of the new messages as
//! one of the old epoch would not be told that what it read before is gone. So the partition waits for the record of it
//! in the journal, and shows no bounds meanwhile.

use std::time::{Duration, Instant};

use milena_store::{Bounds, Epochs};

use crate::gap::Gaps;
use crate::limits;
use crate::table::Marks;

mod described;

pub(crate) use described::{Described, probe_pause};
use described::{Falling, poll_count};

/// What the watcher is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) end: u64,
    pub(crate) bytes: usize,
}

/// What an observation brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    pub(crate) growth: Option<Growth>,
    /// The end fell for good: from there, to here.
    pub(crate) fell: Option<(u64, u64)>,
}

/// What is known when a question is asked, to be handed back with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Floor {
    end: u64,
    falls: u32,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Partition {
    bounds: Bounds0,
    described: Described,
    announced: u64,
    /// Appends of ours that have no outcome yet.
    in_flight: u32,
    falling: Option<Falling>,
    /// The newest answer about it was not taken in.
    passed_over: bool,
    /// How often the end fell, so that what was known before is not held against what is seen later.
    falls: u32,
    /// Start that was asked for; what lies below is hidden although the server still has it.
    trimmed: u64,
    /// True when nothing was ever announced, so that what is there already is no growth.
    heard_of: bool,
    /// Frame bytes of a message, as last read or written.
    message_bytes: Option<u64>,
    /// Frame bytes of the largest message of late.
    largest_bytes: u64,
    /// Messages that the next poll may ask for, once one was answered or lost.
    poll_max: Option<u32>,
    /// True when the journal keeps marks of it.
    marked: bool,
    epochs: Epochs,
    /// Where an epoch begins that is not in the journal yet.
    raising: Option<u64>,
    /// The end that the journal knows.
    saved_end: u64,
    /// What the node that leads lacks.
    pub(crate) gaps: Gaps,
}

/// `Bounds` has no default; an untouched partition begins and ends at 0.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds0 {
    start: u64,
    end: u64,
}

impl Partition {
    /// The bounds as readers see them.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { start: self.bounds.start.max(self.trimmed).min(self.bounds.end), end: self.bounds.end }
    }

    /// First offset that the server still has.
    pub(crate) fn server_start(&self) -> u64 {
        self.bounds.start
    }

    /// As the server last described it.
    pub(crate) fn described(&self) -> Described {
        self.described
    }

    /// Sets the trim point; it never moves back.
    pub(crate) fn trim(&mut self, before: u64) {
        self.trimmed = self.trimmed.max(before);
    }

    /// Takes in what the journal says. When somebody else saw the end fall, the answer says from where to where.
    pub(crate) fn learn(&mut self, marks: &Marks) -> Seen {
        let known = self.epochs.current();
        let newer = marks.epochs.starts().iter().filter(|start| start.epoch > known);
        let begins = newer.map(|start| start.start).min();
        (self.marked, self.saved_end) = (true, marks.end);
        if marks.epochs != self.epochs {
            self.epochs = marks.epochs.clone();
        }
        if let Some(ours) = self.raising {
            let Some(begins) = begins else { return Seen::default() };
            // What is known here is of the new epoch already, unless the end fell once more.
            let last = marks.epochs.starts().last().map_or(0, |last| last.start);
            self.raising = Some(ours).filter(|ours| *ours < last);
            self.trimmed = marks.trim;
            // Who saw it sooner saw how far it really fell.
            return Seen { growth: None, fell: Some((ours, begins)).filter(|(ours, begins)| begins < ours) };
        }
        let Some(begins) = begins.filter(|_| self.heard_of) else {
            // The end of the last run, and a trim point that lay within, were there once: less is a fall.
            self.bounds.end = self.bounds.end.max(marks.end).max(marks.trim);
            self.trimmed = self.trimmed.max(marks.trim);
            return Seen::default();
        };
        let seen = self.fell_to(Bounds { start: self.bounds.start.min(marks.end), end: marks.end });
        (self.raising, self.trimmed) = (None, marks.trim);
        // What is there behind where the epoch begins is not what was.
        let fell = seen.fell.map(|(from, to)| (from, to.min(begins)));
        Seen { fell: fell.filter(|(from, to)| from > to), ..seen }
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// True while a lower end is believed and its epoch is not in the journal.
    pub(crate) fn is_raising(&self) -> bool {
        self.raising.is_some()
    }

    /// The epoch that is to be written, and where it begins.
    pub(crate) fn raise_wanted(&self) -> Option<(u32, u64)> {
        Some((self.epochs.current().saturating_add(1), self.raising?))
    }

    /// Epoch and end, when the journal does not know this end.
    pub(crate) fn unsaved_end(&self) -> Option<(u32, u64)> {
        let unsaved = self.marked && self.heard_of && self.raising.is_none() && self.bounds.end > self.saved_end;
        unsaved.then(|| (self.epochs.current(), self.bounds.end))
    }

    /// Before a question to the server.
    pub(crate) fn floor(&self) -> Floor {
        Floor { end: self.bounds.end, falls: self.falls }
    }

    /// The end below which an answer to a question of then is a lower one; 0 when the end fell since.
    fn end_of(&self, floor: Floor) -> u64 {
        if floor.falls == self.falls { floor.end } else { 0 }
    }

    /// True when an answer to a question before which `floor` was known names a lower end than the known one.
    pub(crate) fn would_fall(&self, described: &Described, floor: Floor) -> bool {
        described.bounds(self.end_of(floor)).end < self.end_of(floor)
    }

    /// True when an answer is not to be taken in, for it may not be what the leader says: of a partition that is or was in doubt
    /// unless it names a lower end, and where its leader was not heard when it names a higher one.
    pub(crate) fn is_hearsay(&self, described: &Described, floor: Floor, in_doubt: bool, is_heard: bool) -> bool {
        if in_doubt {
            return !self.would_fall(described, floor);
        }
        !is_heard && described.bounds(self.bounds.end).end > self.bounds.end
    }

    /// An answer about it is not taken in, see [`Self::is_hearsay`].
    pub(crate) fn pass_over(&mut self) {
        self.passed_over = true;
    }

    /// True when the newest answer was not taken in.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.passed_over
    }

    /// As [`Self::observe`], of where the leader says that the log ends behind all that it took over. `false` while it names a
    /// lower end than the known one, and that is not believed yet: what it lacks may have been shown by another node.
    pub(crate) fn led_to(
        &mut self,
        described: &Described,
        floor: Floor,
        grace: Duration,
        now: Instant,
    ) -> (Seen, bool) {
        if floor.falls != self.falls {
            return (Seen::default(), false);
        }
        let end = described.bounds(floor.end).end;
        if end < floor.end {
            let seen = self.fall(Bounds { start: self.bounds.start.min(end), end }, grace, now);
            return (seen, seen.fell.is_some());
        }
        self.falling = None;
        self.bounds.end = self.bounds.end.max(end);
        let growth = if self.heard_of { self.grow(None) } else { None };
        (Seen { growth, ..Seen::default() }, true)
    }

    /// The server's answer to a question before which `floor` was known. A lower end is believed when it lasted for
    /// `grace`.
    pub(crate) fn observe(&mut self, described: Described, floor: Floor, grace: Duration, now: Instant) -> Seen {
        // What was known when the question was asked: a first message that was stored meanwhile has not expired.
        let said = described.bounds(self.end_of(floor));
        let old_bytes = self.described.bytes;
        (self.described, self.passed_over) = (described, false);
        if said.end < self.end_of(floor) {
            return self.fall(said, grace, now);
        }
        self.falling = None;
        if said.end < self.bounds.end {
            // Asked before a confirmation and answered after it.
            self.bounds.start = self.bounds.start.max(said.start.min(self.bounds.end));
            return Seen::default();
        }
        self.bounds = Bounds0 { start: said.start.max(self.bounds.start).min(said.end), end: said.end };
        if !self.heard_of {
            (self.heard_of, self.announced) = (true, self.bounds.end);
            return Seen::default();
        }
        let grown = Some(described.bytes.saturating_sub(old_bytes)).filter(|grown| *grown > 0);
        Seen { growth: self.grow(grown), ..Seen::default() }
    }

    fn fall(&mut self, said: Bounds, grace: Duration, now: Instant) -> Seen {
        // A partition that a starting server still builds reads as an empty one.
        let grace = if said.end == 0 { grace.max(limits::FALL_GRACE_EMPTY) } else { grace };
        let since = match self.falling {
            Some(falling) if falling.is_recent(now) => falling.since,
            _ => now,
        };
        // Of what nobody bears out, and of an empty partition that may only seem to be one, nothing is kept.
        let lowest = Some(said.end).filter(|end| grace < Duration::MAX && *end > 0);
        let before = self.falling.filter(|falling| falling.is_recent(now)).and_then(|falling| falling.lowest);
        let lowest = lowest.into_iter().chain(before).min();
        self.falling = Some(Falling { since, last: now, lowest });
        if now.saturating_duration_since(since) < grace {
            return Seen::default();
        }
        let end = lowest.map_or(said.end, |lowest| lowest.min(said.end));
        let mut seen = self.fell_to(Bounds { start: said.start.min(end), end });
        self.bounds.end = said.end;
        seen.growth = self.grow(None);
        seen
    }

    fn fell_to(&mut self, said: Bounds) -> Seen {
        let from = self.bounds.end;
        self.bounds = Bounds0 { start: said.start, end: said.end };
        (self.announced, self.heard_of) = (said.end, true);
        (self.falling, self.falls) = (None, self.falls.wrapping_add(1));
        self.gaps = Gaps::default();
        if self.trimmed > said.end {
            // It would hide new messages when they reach it.
            self.trimmed = 0;
        }
        if self.marked {
            self.raising = Some(self.raising.map_or(said.end, |start| start.min(said.end)));
        }
        Seen { growth: None, fell: Some((from, said.end)) }
    }

    /// True when a lower end was seen of late, so that seeing it once more counts as the same.
    pub(crate) fn is_falling_still(&self, now: Instant) -> bool {
        self.falling.is_some_and(|falling| falling.is_recent(now))
    }

    /// True while a lower end is seen and not yet believed.
    pub(crate) fn is_falling(&self) -> bool {
        self.falling.is_some()
    }

    /// An append is about to be sent; the answer is to be handed to [`Self::confirmed`].
    pub(crate) fn begin(&mut self) -> Floor {
        self.in_flight = self.in_flight.saturating_add(1);
        self.floor()
    }

    /// An append has an outcome that is not a confirmation with an offset.
    pub(crate) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// An append of `count` messages and `bytes` frame bytes that began at `floor` was confirmed at `base`.
    pub(crate) fn confirmed(&mut self, floor: Floor, base: u64, count: u64, bytes: usize) -> Seen {
        self.ended();
        let mut seen = Seen::default();
        if base < self.end_of(floor) {
            // The leader itself gave this offset: what was there before it is gone. Others may have written before it since.
            let lowest = self.falling.and_then(|falling| falling.lowest);
            let end = lowest.map_or(base, |lowest| lowest.min(base));
            seen = self.fell_to(Bounds { start: self.bounds.start.min(end), end });
        }
        // The leader goes on from the known end, so whoever named a lower one lagged behind it.
        self.falling = None;
        let average = (bytes as u64 / count.max(1)).max(1);
        self.message_bytes = Some(average);
        self.largest_bytes = self.largest_bytes.max(average);
        let end = base.saturating_add(count);
        self.bounds.end = self.bounds.end.max(end);
        if !self.heard_of {
            (self.heard_of, self.announced) = (true, base);
        }
        // Between what was announced and our base lies what others wrote.
        let others = base.saturating_sub(self.announced).saturating_mul(self.average_bytes());
        if self.bounds.end > self.announced {
            seen.growth = Some(self.announce(others.saturating_add(bytes as u64)));
        }
        seen
    }

    /// Announces what is there and was not announced, unless an append of ours is under way, which will be. `bytes` of it where they
    /// are known, else as many as so many messages have on average.
    fn grow(&mut self, bytes: Option<u64>) -> Option<Growth> {
        if self.in_flight > 0 || self.bounds.end <= self.announced {
            return None;
        }
        let messages = self.bounds.end - self.announced;
        let bytes = bytes.unwrap_or_else(|| messages.saturating_mul(self.average_bytes()));
        Some(self.announce(bytes))
    }

    fn announce(&mut self, bytes: u64) -> Growth {
        self.announced = self.bounds.end;
        Growth { end: self.announced, bytes: usize::try_from(bytes).unwrap_or(usize::MAX).max(1) }
    }

    /// A read found nothing below `start`: retention moved on.
    pub(crate) fn starts_at(&mut self, start: u64) {
        self.bounds.start = self.bounds.start.max(start).min(self.bounds.end);
    }

    /// A poll brought `messages` messages of `bytes` frame bytes, the largest of `largest`.
    pub(crate) fn met(&mut self, messages: u64, bytes: u64, largest: u64) {
        let Some(average) = bytes.checked_div(messages) else { return };
        self.message_bytes = Some(average.max(1));
        // One large message must not keep all later polls small, so it is forgotten by and by.
        self.largest_bytes = largest.max(self.largest_bytes - self.largest_bytes / 8);
        let doubled = u32::try_from(messages.saturating_mul(2)).unwrap_or(u32::MAX).min(limits::POLL_COUNT_MAX);
        self.poll_max = Some(self.poll_max().max(doubled));
    }

    /// A poll for `count` messages had no answer: its reply may have been too large to come in time.
    pub(crate) fn poll_lost(&mut self, count: u32) {
        self.poll_max = Some(self.poll_max().min(count / 2).max(1));
    }

    fn poll_max(&self) -> u32 {
        self.poll_max.unwrap_or(limits::POLL_COUNT_FIRST)
    }

    /// How many messages the next poll asks for. Nobody knows the size of what it will bring, and the reply is as
    /// large as the messages are: so it counts with the largest of late, and asks for at most twice as many as came
    /// before.
    pub(crate) fn poll_count(&self, bytes: usize, remaining: u64) -> u32 {
        let expected = self.expected_bytes().map(|average| average.max(self.largest_bytes));
        poll_count(bytes, expected, remaining).min(self.poll_max())
    }

    /// Frame bytes of a message, as far as is known: the larger of what was met last and what the server's figures
    /// say, so that a poll asks for too few rather than too many.
    pub(crate) fn expected_bytes(&self) -> Option<u64> {
        let stored = self.described.bytes.checked_div(self.described.messages).filter(|average| *average > 0);
        self.message_bytes.into_iter().chain(stored).max()
    }

    fn average_bytes(&self) -> u64 {
        self.expected_bytes().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
