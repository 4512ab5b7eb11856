//! What is promised about the order of deliveries (O1 to O4), asserted of each of them.

use std::collections::{HashMap, HashSet};

/// One assignment of one partition.
type Assignment = (String, i32, u64);

/// One delivery.
pub(crate) struct Delivered<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) epoch: u64,
    pub(crate) live: bool,
    pub(crate) offset: i64,
    pub(crate) fork: Option<i64>,
}

/// All deliveries of one consumer so far.
#[derive(Default)]
pub(crate) struct Order {
    last: HashMap<(Assignment, bool), i64>,
    forks: HashMap<Assignment, Option<i64>>,
    one_lane: HashSet<Assignment>,
}

impl Order {
    pub(crate) fn check(&mut self, delivered: &Delivered<'_>) {
        let Delivered { topic, partition, epoch, live, offset, fork } = *delivered;
        let assignment = (topic.to_owned(), partition, epoch);
        let place = format!("{topic}/{partition}@{offset}, epoch {epoch}");
        let last = self.last.insert((assignment.clone(), live), offset);
        assert!(last.is_none_or(|last| last < offset), "O1: {place} after {last:?} in the same lane, live: {live}");
        if live {
            assert!(fork.is_none_or(|fork| offset >= fork), "O2: {place} is live, and the fork {fork:?}");
        } else {
            assert!(fork.is_some_and(|fork| offset < fork), "O2: {place} is backfill, and the fork {fork:?}");
        }
        let named = *self.forks.entry(assignment.clone()).or_insert(fork);
        assert_eq!(named, fork, "O3: {place} names another fork than the deliveries before it");
        assert!(live || !self.one_lane.contains(&assignment), "O4: {place} is backfill after CaughtUp");
    }

    /// That assignment is caught up.
    pub(crate) fn caught_up(&mut self, topic: &str, partition: i32, epoch: u64) {
        self.one_lane.insert((topic.to_owned(), partition, epoch));
    }
}
