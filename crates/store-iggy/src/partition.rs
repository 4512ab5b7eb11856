//! What is known of one partition: its ends, and what was said of them to the watcher. Pure: times are arguments.
//!
//! The server tells its ends only when it is asked, and other writers may append at any time. Three things are kept
//! apart here: what the server last said, what confirmations of our own appends prove, and what was announced. An
//! answer that was asked for before a confirmation and comes after it must not move the end back; an end that really
//! fell (a server that was killed and had acknowledged from memory, a purge) must not stay hidden.

use std::time::{Duration, Instant};

use milena_store::Bounds;

use crate::limits;

/// A partition as the server describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Described {
    /// Offset of the last message, 0 when there is none.
    pub(crate) current_offset: u64,
    /// Retained messages.
    pub(crate) messages: u64,
    /// Bytes of retained segments.
    pub(crate) bytes: u64,
}

impl Described {
    /// The bounds that this means; `known_end` settles what the server's answer leaves open.
    ///
    /// No message and current offset 0 is what an untouched partition says, a purged one, and one whose only message
    /// expired. Only the last of them has end 1, and only who saw that end knows.
    pub(crate) fn bounds(&self, known_end: u64) -> Bounds {
        if self.messages == 0 && self.current_offset == 0 {
            let end = u64::from(known_end == 1);
            return Bounds { start: end, end };
        }
        let end = self.current_offset.saturating_add(1);
        Bounds { start: end.saturating_sub(self.messages), end }
    }
}

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
    /// The trim point belonged to messages that are no longer there and was forgotten; the journal still has it.
    pub(crate) trim_void: bool,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Partition {
    bounds: Bounds0,
    described: Described,
    announced: u64,
    /// Appends of ours that have no outcome yet.
    in_flight: u32,
    /// A lower end than the known one, and since when it is seen.
    falling: Option<(u64, Instant)>,
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
        // A trim point above the end belongs to messages that a purge took away.
        let trimmed = if self.trimmed > self.bounds.end { 0 } else { self.trimmed };
        Bounds { start: self.bounds.start.max(trimmed).min(self.bounds.end), end: self.bounds.end }
    }

    /// First offset that the server still has.
    pub(crate) fn server_start(&self) -> u64 {
        self.bounds.start
    }

    /// As the server last described it.
    pub(crate) fn described(&self) -> Described {
        self.described
    }

    /// True when the trim point belongs to messages that are no longer there.
    pub(crate) fn trim_is_void(&self) -> bool {
        self.trimmed > self.bounds.end
    }

    /// Sets the trim point; it never moves back, except to 0, which forgets it.
    pub(crate) fn trim(&mut self, before: u64) {
        self.trimmed = if before == 0 { 0 } else { self.trimmed.max(before) };
    }

    /// Before a question to the server: what is known now, to be handed to [`Self::observe`].
    pub(crate) fn floor(&self) -> u64 {
        self.bounds.end
    }

    /// The server's answer to a question that was asked when the end was `floor`.
    pub(crate) fn observe(&mut self, described: Described, floor: u64, now: Instant) -> Seen {
        let said = described.bounds(self.bounds.end);
        let old_bytes = self.described.bytes;
        self.described = described;
        if said.end < floor {
            return self.fall(said, now);
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
            // The journal's trim point is from before this start; the messages may have been purged meanwhile.
            return Seen { trim_void: self.forget_void_trim(), ..Seen::default() };
        }
        if self.in_flight > 0 || self.bounds.end <= self.announced {
            return Seen::default();
        }
        let messages = self.bounds.end - self.announced;
        let grown = described.bytes.saturating_sub(old_bytes);
        let bytes = if grown > 0 { grown } else { messages.saturating_mul(self.average_bytes()) };
        Seen { growth: Some(self.announce(bytes)), ..Seen::default() }
    }

    fn fall(&mut self, said: Bounds, now: Instant) -> Seen {
        let since = match self.falling {
            // What was seen long ago and not since was another moment's lag, and says nothing of this one.
            Some((_, since)) if now.saturating_duration_since(since) <= limits::FALL_GRACE * 3 => since,
            _ => now,
        };
        self.falling = Some((said.end, since));
        if now.saturating_duration_since(since) < limits::FALL_GRACE {
            return Seen::default();
        }
        self.fell_to(said)
    }

    fn fell_to(&mut self, said: Bounds) -> Seen {
        let from = self.bounds.end;
        self.bounds = Bounds0 { start: said.start, end: said.end };
        self.announced = said.end;
        self.falling = None;
        Seen { growth: None, fell: Some((from, said.end)), trim_void: self.forget_void_trim() }
    }

    /// Forgets a trim point above the end, which would hide new messages when they reach it.
    fn forget_void_trim(&mut self) -> bool {
        let void = self.trim_is_void();
        if void {
            self.trimmed = 0;
        }
        void
    }

    /// True while a lower end is seen and not yet believed.
    pub(crate) fn is_falling(&self) -> bool {
        self.falling.is_some()
    }

    /// An append is about to be sent; the answer is to be handed to [`Self::confirmed`].
    pub(crate) fn begin(&mut self) -> u64 {
        self.in_flight = self.in_flight.saturating_add(1);
        self.bounds.end
    }

    /// An append has an outcome that is not a confirmation with an offset.
    pub(crate) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// An append of `count` messages and `bytes` frame bytes that began at `floor` was confirmed at `base`.
    pub(crate) fn confirmed(&mut self, floor: u64, base: u64, count: u64, bytes: usize) -> Seen {
        self.ended();
        let mut seen = Seen::default();
        if base < floor {
            // The leader itself gave this offset: what was there before it is gone.
            seen = self.fell_to(Bounds { start: self.bounds.start.min(base), end: base });
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

/// How many messages a poll asks for, so that its reply is about `bytes` large and not far above.
fn poll_count(bytes: usize, expected_bytes: Option<u64>, remaining: u64) -> u32 {
    let wanted = match expected_bytes {
        Some(average) => (bytes as u64 / average.max(1)).max(1),
        None => u64::from(limits::POLL_COUNT_FIRST),
    };
    let count = wanted.min(remaining).min(u64::from(limits::POLL_COUNT_MAX));
    u32::try_from(count).unwrap_or(limits::POLL_COUNT_MAX).max(1)
}

/// When a topic is looked at next: soon after it grew, later the longer nothing happens, and never so often that the
/// looks at all `topics` together are too many.
pub(crate) fn probe_pause(last: Duration, grew: bool, longest: Duration, topics: usize) -> Duration {
    let wanted = if grew { limits::PROBE_INTERVAL_MIN } else { last.saturating_mul(2) };
    let topics = u32::try_from(topics).unwrap_or(u32::MAX);
    let fair = Duration::from_secs(1) / limits::PROBES_PER_SECOND * topics.max(1);
    wanted.clamp(limits::PROBE_INTERVAL_MIN, longest.max(limits::PROBE_INTERVAL_MIN)).max(fair)
}

#[cfg(test)]
mod tests;
