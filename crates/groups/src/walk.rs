//! Looks at all groups, a slice at a time: there may be a hundred thousand of them, and a member whose heartbeat waits for
//! the whole walk would be late.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Groups in one slice. Whatever is done to a group in passing takes some microseconds.
pub(crate) const GROUPS_PER_SLICE: usize = 256;

/// Work in one slice, where groups differ: a group counts for one, and so does each of its rows that is looked at.
const WORK_PER_SLICE: usize = 20_000;

/// How far a walk over all groups has come, in the order of their ids. A group that comes or goes while it is under way is
/// seen or not; every other one is seen once.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    after: Option<Arc<str>>,
    work: usize,
    over: bool,
}

impl Walk {
    /// True when all groups were seen.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The next slice, in order.
    pub(crate) fn next_of<'a, V>(&mut self, groups: &'a BTreeMap<Arc<str>, V>) -> Vec<(&'a Arc<str>, &'a V)> {
        let slice: Vec<_> = self.rest(groups).take(GROUPS_PER_SLICE).collect();
        self.begin(slice.len());
        slice
    }

    /// The next slice of ids that are in either.
    pub(crate) fn next_of_both<A, B>(
        &mut self,
        groups: &BTreeMap<Arc<str>, A>,
        others: &BTreeMap<Arc<str>, B>,
    ) -> Vec<Arc<str>> {
        let mut slice: Vec<&Arc<str>> = self.rest(groups).map(|(id, _)| id).take(GROUPS_PER_SLICE).collect();
        slice.extend(self.rest(others).map(|(id, _)| id).take(GROUPS_PER_SLICE));
        // Both are sorted, and each may hold all that comes next.
        slice.sort();
        slice.dedup();
        slice.truncate(GROUPS_PER_SLICE);
        self.begin(slice.len());
        slice.into_iter().cloned().collect()
    }

    /// A group of the slice was seen, which was so much work. False when the slice ends with it: the next one goes on
    /// behind it.
    pub(crate) fn passed(&mut self, id: &Arc<str>, work: usize) -> bool {
        self.after = Some(Arc::clone(id));
        self.work += 1 + work;
        let goes_on = self.work < WORK_PER_SLICE;
        // What is left of the slice was not seen.
        self.over &= goes_on;
        goes_on
    }

    /// Nothing more is to be seen.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    fn begin(&mut self, found: usize) {
        self.work = 0;
        self.over = found < GROUPS_PER_SLICE;
    }

    fn rest<'a, V>(
        &self,
        groups: &'a BTreeMap<Arc<str>, V>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a V)> + use<'a, V> {
        let from = self.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        groups.range::<str, _>((from, Bound::Unbounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(ids: impl Iterator<Item = usize>) -> BTreeMap<Arc<str>, ()> {
        ids.map(|n| (Arc::from(format!("{n:05}")), ())).collect()
    }

    /// The ids that a walk sees, and in how many slices.
    fn seen(groups: &BTreeMap<Arc<str>, ()>, others: &BTreeMap<Arc<str>, ()>, work: usize) -> (Vec<Arc<str>>, usize) {
        let (mut walk, mut seen, mut slices) = (Walk::default(), Vec::new(), 0);
        while !walk.is_over() {
            slices += 1;
            for id in walk.next_of_both(groups, others) {
                seen.push(Arc::clone(&id));
                if !walk.passed(&id, work) {
                    break;
                }
            }
        }
        (seen, slices)
    }

    #[test]
    fn every_group_of_both_is_seen_once_and_in_order() {
        let (even, some) = (groups((0..2_000).step_by(2)), groups((0..2_000).step_by(3)));
        let all: Vec<_> = even.keys().chain(some.keys().filter(|id| !even.contains_key(*id))).cloned().collect();
        let (ids, slices) = seen(&even, &some, 0);
        assert!(ids.is_sorted());
        assert_eq!((ids.len(), slices), (all.len(), all.len() / GROUPS_PER_SLICE + 1));
    }

    #[test]
    fn a_slice_ends_early_when_its_groups_are_much_work() {
        let few = groups(0..10);
        assert_eq!(seen(&few, &groups(0..0), WORK_PER_SLICE / 3), (few.keys().cloned().collect(), 4));
        assert_eq!(seen(&few, &groups(0..0), WORK_PER_SLICE), (few.keys().cloned().collect(), 11));
    }

    #[test]
    fn a_walk_over_nothing_is_over_with_its_first_slice() {
        let mut walk = Walk::default();
        assert!(!walk.is_over() && walk.next_of(&groups(0..0)).is_empty() && walk.is_over());
    }

    #[test]
    fn a_slice_that_is_just_full_is_followed_by_an_empty_one() {
        let full = groups(0..GROUPS_PER_SLICE);
        assert_eq!(seen(&full, &full, 0).1, 2);
    }
}
