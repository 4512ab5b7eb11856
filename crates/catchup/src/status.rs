//! Where a partition stands.

use crate::Epoch;

/// The states of one partition in one assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Committed offset and the log's ends are being read.
    Resolving,
    /// One lane.
    Live,
    /// Two lanes.
    CatchingUp,
    /// The backfill has delivered everything, acknowledgements are pending.
    Merging,
    /// Leaving: no new deliveries, acknowledgements are waited for, one last commit.
    Draining,
    /// Taken away: nothing is committed any more.
    Lost,
    /// Resolving failed and will be tried again.
    Failed,
    /// Left.
    Released,
}

/// A lane in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneStatus {
    /// The next offset to fetch.
    pub position: i64,
    /// Records that were fetched and not acknowledged.
    pub in_flight: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them the application has in hand.
    pub in_hand: usize,
    /// The lowest offset that was fetched and not acknowledged: what holds the floor back.
    pub oldest: Option<i64>,
    /// Whether fetching is paused by a bound.
    pub paused: bool,
}

/// A partition in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Of this assignment.
    pub epoch: Epoch,
    /// See [`State`].
    pub state: State,
    /// Everything below is finished. 0 before the partition is resolved.
    pub floor: i64,
    /// The last floor that the broker took: its committed offset. `None`: none is committed.
    pub committed: Option<i64>,
    /// Where the live lane began; `None` without a fork.
    pub fork: Option<i64>,
    /// The live lane, or the only one.
    pub live: LaneStatus,
    /// The backfill lane; `None` without a fork.
    pub backfill: Option<LaneStatus>,
    /// Offsets below the fork that are not finished.
    pub gap: u64,
    /// Finished ranges above the floor.
    pub ranges: usize,
    /// Characters that floor and ranges take as metadata, before anything is left out.
    pub metadata_bytes: usize,
    /// Ranges that were left out of commits and checkpoints in this assignment, all together.
    pub ranges_dropped: u64,
}
