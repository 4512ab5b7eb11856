//! How far a partition is known here, where other gateways may append to it too. Pure.
//!
//! A producer that is served here without a pause must not cost a look at the log for each of its batches. Its own appends
//! tell: one that lands right behind what is known proves that nobody else had appended when it was sent.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Own appends that are remembered although what lies before them is not known. Passed: they are read again with it.
const AHEAD_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Everything below was read here or appended by this process; `None` until the tail was read.
    below: Option<u64>,
    /// Own appends above it: first offset, end, and when they were sent.
    ahead: BTreeMap<u64, (u64, Instant)>,
    /// Whatever was stored by then lies below.
    as_of: Option<Instant>,
    /// After a fall: everything below was known before it.
    sure: Option<u64>,
}

impl Known {
    /// Everything below was read or appended here; `None` until the tail was read.
    pub(super) fn below(&self) -> Option<u64> {
        self.below
    }

    /// After a fall, until the tail was read again: everything below was known before it.
    pub(super) fn sure(&self) -> Option<u64> {
        self.sure
    }

    /// What lay at `end` and behind it is gone, and what is there instead is not known.
    pub(super) fn fell(&mut self, end: u64) {
        let sure = self.below.or(self.sure).map(|sure| sure.min(end));
        *self = Self { sure, ..Self::default() };
    }

    /// True when nothing is unknown that was stored by `then`.
    pub(super) fn is_as_of(&self, then: Instant) -> bool {
        self.as_of.is_some_and(|as_of| as_of >= then)
    }

    /// An append of this process that was sent at `sent` lies from `offset` up to `end`.
    pub(super) fn landed(&mut self, offset: u64, end: u64, sent: Instant) {
        let Some(below) = self.below else { return };
        if offset > below {
            if self.ahead.len() < AHEAD_MAX {
                self.ahead.insert(offset, (end, sent));
            }
            return;
        }
        self.advance(end, sent);
        self.join();
    }

    /// Everything up to `end` was read; that was the end of the partition at `as_of` or later.
    pub(super) fn read_to(&mut self, end: u64, as_of: Instant) {
        self.below.get_or_insert(0);
        self.sure = None;
        self.advance(end, as_of);
        self.join();
    }

    fn advance(&mut self, end: u64, as_of: Instant) {
        self.below = self.below.map(|below| below.max(end));
        self.as_of = self.as_of.max(Some(as_of));
    }

    /// Takes in the appends that are no longer ahead.
    fn join(&mut self) {
        while let (Some(below), Some(first)) = (self.below, self.ahead.first_entry()) {
            if *first.key() > below {
                return;
            }
            let (end, sent) = first.remove();
            self.advance(end, sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn times() -> [Instant; 4] {
        let zero = Instant::now();
        [0, 1, 2, 3].map(|ms| zero + Duration::from_millis(ms))
    }

    #[test]
    fn nothing_is_known_before_the_tail_was_read() {
        let [zero, ..] = times();
        let mut known = Known::default();
        known.landed(0, 5, zero);
        assert_eq!((known.below(), known.is_as_of(zero)), (None, false));
    }

    #[test]
    fn appends_that_follow_each_other_keep_it_known() {
        let [zero, one, two, three] = times();
        let mut known = Known::default();
        known.read_to(10, zero);
        known.landed(10, 15, one);
        assert_eq!(known.below(), Some(15));
        assert!(known.is_as_of(one) && !known.is_as_of(two));
        known.landed(15, 16, three);
        assert!(known.is_as_of(three));
    }

    #[test]
    fn an_append_behind_somebody_elses_is_known_once_that_was_read() {
        let [zero, one, two, three] = times();
        let mut known = Known::default();
        known.read_to(10, zero);
        known.landed(12, 15, two);
        assert_eq!(known.below(), Some(10));
        assert!(!known.is_as_of(one));
        known.read_to(12, one);
        assert_eq!(known.below(), Some(15));
        assert!(known.is_as_of(two) && !known.is_as_of(three));
    }

    #[test]
    fn appends_that_are_confirmed_in_another_order_are_joined() {
        let [zero, one, two, three] = times();
        let mut known = Known::default();
        known.read_to(0, zero);
        known.landed(5, 6, three);
        known.landed(2, 5, two);
        assert_eq!(known.below(), Some(0));
        known.landed(0, 2, one);
        assert_eq!(known.below(), Some(6));
        assert!(known.is_as_of(three));
    }

    #[test]
    fn an_append_that_was_read_before_it_was_confirmed_moves_nothing_back() {
        let [zero, one, ..] = times();
        let mut known = Known::default();
        known.read_to(10, zero);
        known.landed(3, 5, one);
        assert_eq!(known.below(), Some(10));
        assert!(known.is_as_of(one), "when it was sent, the end was no higher");
    }

    #[test]
    fn behind_a_fall_nothing_is_known_but_how_far_it_was_before() {
        let [zero, one, ..] = times();
        let mut known = Known::default();
        known.fell(5);
        assert_eq!(known.sure(), None, "nothing was read before");
        known.read_to(10, zero);
        known.fell(7);
        known.fell(12);
        assert_eq!((known.below(), known.sure(), known.is_as_of(zero)), (None, Some(7), false));
        known.read_to(8, one);
        assert_eq!((known.below(), known.sure()), (Some(8), None));
        known.fell(9);
        assert_eq!(known.sure(), Some(8));
    }

    #[test]
    fn only_so_many_appends_are_remembered_ahead() {
        let [zero, one, ..] = times();
        let mut known = Known::default();
        known.read_to(0, zero);
        for append in 0..1_000 {
            known.landed(10 + append * 2, 11 + append * 2, one);
        }
        assert_eq!(known.ahead.len(), AHEAD_MAX);
    }
}
