//! Requests by API: how many, how long they took, and the error codes in their answers.

use std::sync::OnceLock;

use super::{Counter, Histogram, LATENCY_BOUNDS};

/// Api keys below this number have counters of their own; a test holds the dispatch table to it.
pub const API_KEYS: usize = 96;

/// Error codes from -1 (`UNKNOWN_SERVER_ERROR`) below this one have counters of their own; the largest of Kafka 4 is 133.
pub const ERROR_CODES_END: i16 = 160;

const ERROR_COUNTERS: usize = ERROR_CODES_END.unsigned_abs() as usize + 1;

/// Requests by API.
#[derive(Debug)]
pub struct RequestMetrics {
    by_key: Box<[ApiMetrics]>,
}

/// Requests of one API.
#[derive(Debug)]
pub struct ApiMetrics {
    /// Requests whose header was read.
    pub requests: Counter,
    /// Time from a whole request to its answer, without the time that it was parked.
    pub latency: Histogram,
    /// Error codes in answers.
    pub errors: ErrorCounters,
}

/// How often each error code was answered.
#[derive(Debug, Default)]
pub struct ErrorCounters {
    /// From -1 on. Made by the first error: most APIs never have one.
    by_code: OnceLock<Box<[Counter; ERROR_COUNTERS]>>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let api = || ApiMetrics {
            requests: Counter::default(),
            latency: Histogram::new(LATENCY_BOUNDS),
            errors: ErrorCounters::default(),
        };
        Self { by_key: (0..API_KEYS).map(|_| api()).collect() }
    }
}

impl RequestMetrics {
    /// The counters of an api key; `None` for keys that are not counted.
    #[must_use]
    pub fn of(&self, api_key: i16) -> Option<&ApiMetrics> {
        self.by_key.get(usize::try_from(api_key).ok()?)
    }

    /// Counts the error codes in an answer to that key.
    pub(crate) fn note_errors(&self, api_key: i16, answer: &impl ErrorCodes) {
        if let Some(api) = self.of(api_key) {
            answer.each_code(&mut |code| api.errors.note(code));
        }
    }
}

impl ErrorCounters {
    /// Counts a code; 0 is none.
    pub fn note(&self, code: i16) {
        if code == 0 {
            return;
        }
        let counters = self.by_code.get_or_init(|| Box::new(std::array::from_fn(|_| Counter::default())));
        let counter = usize::try_from(i32::from(code) + 1).ok().and_then(|at| counters.get(at));
        if let Some(counter) = counter {
            counter.add(1);
        }
    }

    /// The codes that were answered, each with how often.
    pub fn counted(&self) -> impl Iterator<Item = (i16, u64)> {
        let counters = self.by_code.get().into_iter().flat_map(|counters| counters.iter());
        (-1..).zip(counters.map(Counter::get)).filter(|(_, count)| *count > 0)
    }
}

/// An answer that holds error codes.
pub trait ErrorCodes {
    /// Calls `count` with every code in the answer, 0 included.
    fn each_code(&self, count: &mut dyn FnMut(i16));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_counted_from_minus_1_on_and_0_is_none() {
        let errors = ErrorCounters::default();
        assert_eq!(errors.counted().count(), 0);
        for code in [0, -1, 25, 25, ERROR_CODES_END - 1, ERROR_CODES_END, i16::MAX, i16::MIN] {
            errors.note(code);
        }
        assert_eq!(errors.counted().collect::<Vec<_>>(), [(-1, 1), (25, 2), (ERROR_CODES_END - 1, 1)]);
    }
}
