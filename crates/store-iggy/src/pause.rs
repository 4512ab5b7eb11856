//! When something that failed may be tried again.

use std::time::{Duration, Instant};

use crate::limits;

/// Doubles with each failure.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    /// True when it is too early for another attempt.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Another attempt failed; the next one is due after at most `longest`.
    pub(crate) fn failed(&mut self, longest: Duration, now: Instant) {
        let doubled = limits::RECONNECT_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.until = Some(now + doubled.min(longest));
        self.failures = self.failures.saturating_add(1);
    }

    /// No other attempt before that.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.until = Some(until);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_success() {
        let (start, longest) = (Instant::now(), Duration::from_secs(2));
        let mut pause = Pause::default();
        assert!(!pause.holds(start));
        let mut lengths = Vec::new();
        for _ in 0..40 {
            pause.failed(longest, start);
            lengths.push(pause.until.unwrap() - start);
        }
        assert_eq!(lengths.first(), Some(&limits::RECONNECT_PAUSE));
        assert_eq!(lengths.get(1), Some(&(limits::RECONNECT_PAUSE * 2)));
        assert_eq!(lengths.last(), Some(&longest));
        assert!(pause.holds(start));
        pause.succeeded();
        assert!(!pause.holds(start));
    }
}
