//! Sequence numbers of one producer in one partition, and the runs of them that are known to be stored.
//!
//! A sequence has 31 bits and wraps from 2^31-1 to 0. All arithmetic goes through [`advance`] and [`distance`], so no
//! caller can forget the wrap.

use std::collections::VecDeque;

const MASK: u32 = (1 << 31) - 1;

/// Sequences further back than this are not kept: on a ring of 2^31, only half of it can be told from the future.
pub const WINDOW: u32 = 1 << 30;

/// Runs kept per producer. A batch is at most one run, so five runs hold at least the last five batches, which is what
/// a producer may have in flight.
const RUNS_MAX: usize = 5;

/// The sequence `by` steps behind `sequence`.
#[must_use]
pub fn advance(sequence: u32, by: u32) -> u32 {
    sequence.wrapping_add(by) & MASK
}

/// Steps forward from `from` to `to`, below 2^31.
#[must_use]
pub fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & MASK
}

/// The sequences of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First sequence.
    pub first: u32,
    /// How many; at least 1.
    pub count: u32,
}

impl Span {
    /// The sequence that follows the last one.
    #[must_use]
    pub fn next(self) -> u32 {
        advance(self.first, self.count)
    }
}

/// Sequences that are stored at consecutive offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The sequences.
    pub span: Span,
    /// Offset of the first of them.
    pub first_offset: u64,
}

impl Run {
    /// The part of it that lies at `offset` and behind it.
    #[must_use]
    pub fn at_or_behind(self, offset: u64) -> Option<Self> {
        let skipped = u32::try_from(offset.saturating_sub(self.first_offset)).unwrap_or(u32::MAX);
        let count = self.span.count.checked_sub(skipped).filter(|count| *count > 0)?;
        let span = Span { first: advance(self.span.first, skipped), count };
        Some(Self { span, first_offset: self.first_offset.saturating_add(u64::from(skipped)) })
    }
}

/// What is known of one producer's stored sequences: its last runs, oldest first, and the sequence expected next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    runs: VecDeque<Run>,
    next: u32,
}

impl Runs {
    /// Nothing stored yet, `next` is expected.
    #[must_use]
    pub fn expecting(next: u32) -> Self {
        Self { runs: VecDeque::new(), next }
    }

    /// The sequence that the next fresh batch must begin with.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Makes `next` the sequence that the next fresh batch must begin with.
    pub fn expect(&mut self, next: u32) {
        self.next = next;
    }

    /// True when nothing is known to be stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// Offset of the first record of `span` when every record of it is stored.
    ///
    /// A span may lie across runs that follow each other without a gap: all of it is stored, and the offset answered
    /// is the true one of its first record. Refusing it would make the producer send stored records once more.
    #[must_use]
    pub fn find(&self, span: Span) -> Option<u64> {
        let mut found = None;
        let mut at = span.first;
        let mut left = span.count;
        for run in &self.runs {
            let skipped = distance(run.span.first, at);
            if skipped >= run.span.count {
                if found.is_some() {
                    return None;
                }
                continue;
            }
            if found.is_none() {
                found = Some(run.first_offset.saturating_add(u64::from(skipped)));
            }
            let here = run.span.count - skipped;
            if here >= left {
                return found;
            }
            left -= here;
            at = advance(at, here);
        }
        None
    }

    /// Takes note that `span` is stored from `first_offset` on. It becomes the newest run, or lengthens it.
    pub fn push(&mut self, span: Span, first_offset: u64) {
        let joined = self.runs.back_mut().is_some_and(|last| {
            let follows = last.span.next() == span.first
                && last.first_offset.saturating_add(u64::from(last.span.count)) == first_offset;
            if follows {
                last.span.count = last.span.count.saturating_add(span.count);
            }
            follows
        });
        if !joined {
            self.runs.push_back(Run { span, first_offset });
        }
        self.next = span.next();
        self.trim();
    }

    /// Takes note of what the log says: `span` lies at `first_offset`. Answers how many of its records are copies of ones
    /// that are stored elsewhere.
    ///
    /// Finding what is known already changes nothing, so that a stretch of the log may be read twice.
    pub fn replay(&mut self, span: Span, first_offset: u64) -> u32 {
        let copies = |runs: &Self, span: Span| match runs.find(span) {
            Some(offset) if offset == first_offset => 0,
            _ => span.count,
        };
        // A piece that starts with copies of known messages and goes on with new ones: a late copy of a batch, and right
        // behind it the batch that followed.
        let known = distance(span.first, self.next);
        if known == 0 {
            self.push(span, first_offset);
            0
        } else if known < span.count {
            let copies = copies(self, Span { count: known, ..span });
            let rest = Span { first: self.next, count: span.count - known };
            self.push(rest, first_offset.saturating_add(u64::from(known)));
            copies
        } else if self.find(span).is_some() {
            copies(self, span)
        } else {
            // A gap: the gateway that wrote it did not know the producer. The newest sequence counts.
            if distance(self.next, span.first) < WINDOW {
                self.push(span, first_offset);
            }
            0
        }
    }

    /// Forgets what is stored at `end` and behind it. What the next fresh batch begins with is the first sequence that is gone,
    /// as far as is known.
    pub fn cut(&mut self, end: u64) {
        while let Some(last) = self.runs.back_mut() {
            let kept = u32::try_from(end.saturating_sub(last.first_offset)).unwrap_or(u32::MAX);
            if kept >= last.span.count {
                return;
            }
            self.next = advance(last.span.first, kept);
            if kept > 0 {
                last.span.count = kept;
                return;
            }
            self.runs.pop_back();
        }
    }

    fn trim(&mut self) {
        while self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
        }
        // The newest run holds the newest sequence, so the loop ends there at the latest; each turn removes a run.
        while let Some(oldest) = self.runs.front_mut() {
            let last = self.next.wrapping_sub(1) & MASK;
            // A run that was longer than the window is cut before its length could pass half of the ring.
            let back = u64::from(distance(oldest.span.first, last)) + 1;
            let excess = u32::try_from(back.saturating_sub(u64::from(WINDOW))).unwrap_or(u32::MAX);
            if excess == 0 {
                return;
            }
            if excess < oldest.span.count {
                oldest.span = Span { first: advance(oldest.span.first, excess), count: oldest.span.count - excess };
                oldest.first_offset = oldest.first_offset.saturating_add(u64::from(excess));
                return;
            }
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u32 = MASK;

    fn span(first: u32, count: u32) -> Span {
        Span { first, count }
    }

    #[test]
    fn a_sequence_wraps_from_its_largest_value_to_zero() {
        assert_eq!(advance(LAST, 1), 0);
        assert_eq!(distance(LAST, 1), 2);
        assert_eq!(span(LAST - 1, 3).next(), 1);
    }

    #[test]
    fn batches_at_consecutive_offsets_are_one_run() {
        let mut runs = Runs::expecting(0);
        runs.push(span(0, 3), 10);
        runs.push(span(3, 2), 13);
        assert_eq!(runs.iter().copied().collect::<Vec<_>>(), [Run { span: span(0, 5), first_offset: 10 }]);
        assert_eq!(runs.find(span(3, 2)), Some(13));
        assert_eq!(runs.find(span(2, 2)), Some(12));
        assert_eq!(runs.find(span(4, 2)), None);
        assert_eq!(runs.next(), 5);
    }

    #[test]
    fn a_run_across_the_wrap_finds_both_halves() {
        let mut runs = Runs::expecting(LAST - 1);
        runs.push(span(LAST - 1, 4), 7);
        runs.push(span(2, 1), 11);
        assert_eq!(runs.find(span(LAST, 1)), Some(8));
        assert_eq!(runs.find(span(LAST, 3)), Some(8));
        assert_eq!(runs.find(span(1, 2)), Some(10));
        assert_eq!(runs.find(span(2, 2)), None);
        assert_eq!(runs.find(span(LAST - 2, 2)), None);
    }

    #[test]
    fn a_span_across_two_runs_without_a_gap_is_stored() {
        let mut runs = Runs::expecting(0);
        runs.push(span(0, 2), 0);
        runs.push(span(2, 2), 50);
        assert_eq!(runs.find(span(1, 3)), Some(1));
        assert_eq!(runs.find(span(1, 4)), None);
    }

    #[test]
    fn a_span_across_a_gap_is_not_stored() {
        let mut runs = Runs::expecting(0);
        runs.push(span(0, 2), 0);
        runs.push(span(4, 2), 2);
        assert_eq!(runs.find(span(1, 3)), None);
        assert_eq!(runs.find(span(1, 5)), None);
    }

    #[test]
    fn the_last_five_batches_are_kept_when_other_producers_write_between_them() {
        let mut runs = Runs::expecting(0);
        for batch in 0..9 {
            runs.push(span(batch * 10, 10), u64::from(batch) * 100);
        }
        assert_eq!(runs.find(span(40, 10)), Some(400));
        assert_eq!(runs.find(span(30, 10)), None);
    }

    #[test]
    fn a_stretch_that_is_read_twice_changes_nothing_and_holds_no_copies() {
        let mut runs = Runs::expecting(0);
        assert_eq!(runs.replay(span(0, 3), 10), 0);
        assert_eq!(runs.replay(span(3, 2), 20), 0);
        let once = runs.clone();
        assert_eq!(runs.replay(span(0, 3), 10), 0);
        assert_eq!(runs.replay(span(3, 2), 20), 0);
        assert_eq!(runs, once);
        assert_eq!(runs.replay(span(3, 4), 20), 0, "the rest of a run of which the beginning is known");
        assert_eq!(runs.find(span(3, 4)), Some(20));
    }

    #[test]
    fn copies_are_counted_and_do_not_hide_what_follows_them() {
        let mut runs = Runs::expecting(0);
        runs.replay(span(0, 3), 10);
        assert_eq!(runs.replay(span(0, 3), 20), 3);
        assert_eq!(runs.replay(span(1, 5), 31), 2);
        assert_eq!((runs.find(span(0, 3)), runs.find(span(3, 3)), runs.next()), (Some(10), Some(33), 6));
    }

    #[test]
    fn of_a_gap_the_newest_sequence_counts_and_of_what_is_too_old_nothing() {
        let mut runs = Runs::expecting(0);
        runs.replay(span(0, 3), 10);
        assert_eq!(runs.replay(span(8, 2), 20), 0);
        assert_eq!(runs.next(), 10);
        assert_eq!(runs.replay(span(5, 2), 30), 0);
        assert_eq!((runs.find(span(5, 2)), runs.next()), (None, 10));
    }

    #[test]
    fn what_lies_behind_an_end_is_cut_off_and_expected_again() {
        let runs = |end| {
            let mut runs = Runs::expecting(LAST);
            runs.push(span(LAST, 3), 10);
            runs.push(span(2, 2), 20);
            runs.cut(end);
            (runs.next(), runs.find(span(LAST, 1)), runs.find(span(1, 1)), runs.find(span(2, 1)), runs.find(span(3, 1)))
        };
        assert_eq!(runs(22), (4, Some(10), Some(12), Some(20), Some(21)), "nothing lies behind it");
        assert_eq!(runs(21), (3, Some(10), Some(12), Some(20), None));
        assert_eq!(runs(20), (2, Some(10), Some(12), None, None));
        assert_eq!(runs(13), (2, Some(10), Some(12), None, None));
        assert_eq!(runs(11), (0, Some(10), None, None, None));
        assert_eq!(runs(0), (LAST, None, None, None, None));
        let mut nothing = Runs::expecting(7);
        nothing.cut(0);
        assert_eq!(nothing.next(), 7);
    }

    #[test]
    fn sequences_half_a_ring_back_are_forgotten() {
        let mut runs = Runs::expecting(0);
        runs.push(span(0, WINDOW), 0);
        assert_eq!(runs.find(span(0, 1)), Some(0));
        runs.push(span(WINDOW, 1), u64::from(WINDOW));
        assert_eq!(runs.find(span(0, 1)), None);
        assert_eq!(runs.find(span(1, 1)), Some(1));
        for turn in 1..6u32 {
            let first = runs.next();
            runs.push(span(first, WINDOW), u64::from(WINDOW) * u64::from(turn) + 1);
            assert_eq!(runs.find(span(runs.next(), 1)), None, "the future is never found");
        }
    }
}
