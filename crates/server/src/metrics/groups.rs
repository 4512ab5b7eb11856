//! Counters of consumer groups and committed offsets.

use std::time::Duration;

use milena_groups::{Departure, GroupEvent, RebalanceCause};

use super::{Counter, Histogram, LATENCY_BOUNDS};

/// Ranges of the time that a rebalance takes, in nanoseconds: from what a group on one machine needs to the rebalance
/// timeout of a patient client.
const REBALANCE_BOUNDS: &[u64] = &[
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
    600_000_000_000,
];

/// Ranges of the number of records in one append to the log of offsets.
const RECORDS_BOUNDS: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000];

/// Counters of consumer groups.
#[derive(Debug)]
pub struct GroupMetrics {
    /// OffsetCommit requests.
    pub commits: Counter,
    /// Of those, requests that were told to try again because the store was too slow or too much waited for it.
    pub commits_late: Counter,
    /// Partitions of OffsetCommit requests whose offset was stored.
    pub partitions_stored: Counter,
    /// Partitions of OffsetCommit requests that were refused.
    pub partitions_refused: Counter,
    /// Records in one append to the log of offsets: requests that come together share an append.
    pub append_records: Histogram,
    /// Bytes of records that were appended to the log of offsets.
    pub append_bytes: Counter,
    /// Time of an append to the log of offsets that succeeded.
    pub append_time: Histogram,
    /// Appends that failed.
    pub append_failures: Counter,
    /// Times that the log of offsets was loaded.
    pub loads: Counter,
    /// Snapshots of the offsets.
    pub snapshots: Counter,
    /// Snapshots that failed.
    pub snapshot_failures: Counter,
    /// Offsets that were let go because they were too old.
    pub offsets_expired: Counter,
    /// Clients that became members.
    pub members_joined: Counter,
    /// Static members that took the place of their old selves.
    pub members_returned: Counter,
    members_gone: [Counter; Departure::ALL.len()],
    rebalances: [Counter; RebalanceCause::ALL.len()],
    /// Time from the first request to join again to the leader's assignments.
    pub rebalance_time: Histogram,
}

impl Default for GroupMetrics {
    fn default() -> Self {
        Self {
            commits: Counter::default(),
            commits_late: Counter::default(),
            partitions_stored: Counter::default(),
            partitions_refused: Counter::default(),
            append_records: Histogram::new(RECORDS_BOUNDS),
            append_bytes: Counter::default(),
            append_time: Histogram::new(LATENCY_BOUNDS),
            append_failures: Counter::default(),
            loads: Counter::default(),
            snapshots: Counter::default(),
            snapshot_failures: Counter::default(),
            offsets_expired: Counter::default(),
            members_joined: Counter::default(),
            members_returned: Counter::default(),
            members_gone: Default::default(),
            rebalances: Default::default(),
            rebalance_time: Histogram::new(REBALANCE_BOUNDS),
        }
    }
}

impl GroupMetrics {
    /// Counts what happened to a group.
    pub fn note(&self, event: &GroupEvent) {
        match event {
            GroupEvent::RebalanceBegan(cause) => count(&RebalanceCause::ALL, &self.rebalances, cause),
            GroupEvent::RebalanceEnded { millis } => self.rebalance_time.observe_time(Duration::from_millis(*millis)),
            GroupEvent::MemberJoined => self.members_joined.add(1),
            GroupEvent::MemberReturned => self.members_returned.add(1),
            GroupEvent::MemberGone(why) => count(&Departure::ALL, &self.members_gone, why),
            GroupEvent::OffsetsExpired { count } => self.offsets_expired.add(*count),
            _ => {}
        }
    }

    /// Rebalances that began, by their causes.
    pub fn rebalances(&self) -> impl Iterator<Item = (RebalanceCause, u64)> {
        RebalanceCause::ALL.into_iter().zip(self.rebalances.iter().map(Counter::get))
    }

    /// Members that went, by how.
    pub fn members_gone(&self) -> impl Iterator<Item = (Departure, u64)> {
        Departure::ALL.into_iter().zip(self.members_gone.iter().map(Counter::get))
    }

    /// Counts the partitions of an answered commit.
    pub(crate) fn note_commit<E>(&self, results: &[Result<(), E>]) {
        let stored = results.iter().filter(|result| result.is_ok()).count();
        self.partitions_stored.add(stored as u64);
        self.partitions_refused.add((results.len() - stored) as u64);
    }
}

fn count<T: PartialEq>(all: &[T], counters: &[Counter], which: &T) {
    let counter = all.iter().zip(counters).find(|(known, _)| *known == which);
    if let Some((_, counter)) = counter {
        counter.add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_and_every_departure_has_a_counter_of_its_own() {
        let metrics = GroupMetrics::default();
        for cause in RebalanceCause::ALL {
            metrics.note(&GroupEvent::RebalanceBegan(cause));
        }
        for departure in Departure::ALL {
            metrics.note(&GroupEvent::MemberGone(departure));
        }
        assert!(metrics.rebalances().all(|(_, count)| count == 1));
        assert!(metrics.members_gone().all(|(_, count)| count == 1));
    }
}
