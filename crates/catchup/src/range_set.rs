//! Sets of offsets, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of offsets as half-open ranges `start..end`. The ranges never overlap and never touch: neighbours are merged.
///
/// Empty and reversed ranges are taken as "nothing" everywhere. Every operation on one range costs the logarithm of the
/// number of ranges, plus the ranges it swallows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<i64, i64>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds all offsets of a range.
    pub fn insert(&mut self, range: Range<i64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some((&before, &its_end)) = self.ranges.range(..=start).next_back()
            && its_end >= start
        {
            if its_end >= end {
                return;
            }
            start = before;
        }
        while let Some((&next, &its_end)) = self.ranges.range(start..=end).next() {
            end = end.max(its_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    /// Takes all offsets of a range out.
    pub fn remove(&mut self, range: Range<i64>) {
        let Range { start, end } = range;
        if start >= end {
            return;
        }
        if let Some((&before, &its_end)) = self.ranges.range(..start).next_back()
            && its_end > start
        {
            self.ranges.insert(before, start);
            if its_end > end {
                self.ranges.insert(end, its_end);
            }
        }
        while let Some((&next, &its_end)) = self.ranges.range(start..end).next() {
            self.ranges.remove(&next);
            if its_end > end {
                self.ranges.insert(end, its_end);
            }
        }
    }

    /// Takes out everything outside of a range.
    pub fn clip(&mut self, range: Range<i64>) {
        self.remove(i64::MIN..range.start);
        self.remove(range.end.max(range.start)..i64::MAX);
    }

    /// Whether an offset is in the set.
    #[must_use]
    pub fn contains(&self, offset: i64) -> bool {
        self.at(offset).is_some()
    }

    /// The range that an offset lies in.
    #[must_use]
    pub fn at(&self, offset: i64) -> Option<Range<i64>> {
        let (&start, &end) = self.ranges.range(..=offset).next_back()?;
        (offset < end).then_some(start..end)
    }

    /// The lowest range.
    #[must_use]
    pub fn first(&self) -> Option<Range<i64>> {
        self.iter().next()
    }

    /// The highest range.
    #[must_use]
    pub fn last(&self) -> Option<Range<i64>> {
        self.iter().next_back()
    }

    /// What a range has that the set does not, lowest first.
    pub fn gaps(&self, within: Range<i64>) -> impl Iterator<Item = Range<i64>> {
        let mut from = self.at(within.start).map_or(within.start, |range| range.end);
        // `range` of a B-tree panics when its start is behind its end.
        let above = self.ranges.range(from.min(within.end)..within.end);
        let starts = above.map(|(&start, &end)| (start, end)).chain(std::iter::once((within.end, within.end)));
        starts.filter_map(move |(start, end)| {
            let gap = from..start;
            from = end;
            (gap.start < gap.end).then_some(gap)
        })
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<i64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Whether all offsets of another set are in this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|range| self.at(range.start).is_some_and(|own| own.end >= range.end))
    }

    /// How many ranges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no offset in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many offsets there are.
    #[must_use]
    pub fn offsets(&self) -> u64 {
        self.iter().fold(0, |sum, range| sum.saturating_add(range.end.abs_diff(range.start)))
    }
}

impl Extend<Range<i64>> for RangeSet {
    fn extend<T: IntoIterator<Item = Range<i64>>>(&mut self, ranges: T) {
        for range in ranges {
            self.insert(range);
        }
    }
}

impl FromIterator<Range<i64>> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range<i64>>>(ranges: T) -> Self {
        let mut set = Self::new();
        set.extend(ranges);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn naive(set: &RangeSet) -> BTreeSet<i64> {
        set.iter().flatten().collect()
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is what is tested")]
    fn empty_and_reversed_ranges_are_nothing() {
        let mut set = RangeSet::new();
        set.insert(5..9);
        let before = set.clone();
        for range in [7..7, 8..6] {
            set.insert(range.clone());
            set.remove(range.clone());
            assert_eq!(set.gaps(range).count(), 0);
        }
        assert_eq!(set, before);
        set.clip(8..6);
        assert!(set.is_empty());
    }

    proptest! {
        #[test]
        fn the_set_is_what_a_set_of_single_offsets_is(
            steps in prop::collection::vec((any::<bool>(), 0_i64..60, 0_i64..12), 0..40),
            (from, length) in (0_i64..60, 0_i64..40),
        ) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (add, start, length) in steps {
                let range = start..start + length;
                if add {
                    set.insert(range.clone());
                    model.extend(range);
                } else {
                    set.remove(range.clone());
                    model.retain(|offset| !range.contains(offset));
                }
            }
            prop_assert_eq!(naive(&set), model.clone());
            prop_assert_eq!(set.offsets(), model.len() as u64);
            let ends: Vec<_> = set.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start), "neighbours are merged: {ends:?}");
            for offset in 0..80 {
                prop_assert_eq!(set.contains(offset), model.contains(&offset));
            }
            let window = from..from + length;
            let missing: BTreeSet<i64> = set.gaps(window.clone()).flatten().collect();
            let wanted: BTreeSet<i64> = window.clone().filter(|offset| !model.contains(offset)).collect();
            prop_assert_eq!(missing, wanted);
            let mut part = set.clone();
            part.clip(window.clone());
            prop_assert!(set.covers(&part));
            prop_assert_eq!(part.covers(&set), part == set);
            prop_assert_eq!(naive(&part), model.into_iter().filter(|offset| window.contains(offset)).collect());
        }
    }
}
