//! A partition as the server describes it, and what that means for the questions about it. Pure.

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

impl From<&iggy_common::Partition> for Described {
    fn from(said: &iggy_common::Partition) -> Self {
        Self { current_offset: said.current_offset, messages: said.messages_count, bytes: said.size.as_bytes_u64() }
    }
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

/// A lower end than the known one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Falling {
    pub(super) since: Instant,
    pub(super) last: Instant,
    /// The lowest of those that were seen: others may have written behind it meanwhile.
    pub(super) lowest: Option<u64>,
}

impl Falling {
    /// What was seen long ago and not since was another moment's lag, and says nothing of this one.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= limits::FALL_SEEN_AGAIN
    }
}

/// How many messages a poll asks for, so that its reply is about `bytes` large and not far above.
pub(super) fn poll_count(bytes: usize, expected_bytes: Option<u64>, remaining: u64) -> u32 {
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
