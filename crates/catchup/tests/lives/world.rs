//! What outlives a consumer.

use std::collections::BTreeSet;
use std::ops::Range;

use milena_catchup::{LogId, Progress, RangeSet, Reset};

pub(crate) const LOG: LogId = LogId(7);

/// Offsets `low..high`; those in `holes` have no record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) holes: BTreeSet<i64>,
}

impl Log {
    pub(crate) fn of(range: Range<i64>) -> Self {
        Self { low: range.start, high: range.end, holes: BTreeSet::new() }
    }

    pub(crate) fn without(mut self, holes: impl IntoIterator<Item = i64>) -> Self {
        self.holes.extend(holes);
        self
    }

    pub(crate) fn next(&self, from: i64) -> Option<i64> {
        (from.max(self.low)..self.high).find(|offset| !self.holes.contains(offset))
    }

    pub(crate) fn records(&self, within: Range<i64>) -> impl Iterator<Item = i64> {
        (within.start.max(self.low)..within.end.min(self.high)).filter(|offset| !self.holes.contains(offset))
    }
}

/// What outlives a consumer.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) log: Log,
    pub(crate) committed: Option<(i64, String)>,
    pub(crate) checkpoint: Option<Progress>,
    /// Acknowledged by anybody, ever.
    pub(crate) acked: BTreeSet<i64>,
    /// Reported as expired.
    pub(crate) expired: RangeSet,
    pub(crate) epochs: u64,
    pub(crate) reset: Option<Reset>,
    /// Does not look at what a commit says.
    pub(crate) trusting: bool,
}

impl World {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, ..Self::default() }
    }

    pub(crate) fn committed_at(mut self, floor: i64, ahead: &[Range<i64>]) -> Self {
        self.committed = Some((floor, metadata(floor, ahead)));
        self
    }

    /// Acknowledged or reported as expired.
    pub(crate) fn accounted(&self, offset: i64) -> bool {
        self.acked.contains(&offset) || self.expired.contains(offset)
    }

    /// I1 and I2: nothing is said to be finished that is not.
    pub(crate) fn assert_true(&self, floor: i64, ahead: &RangeSet) {
        for claimed in std::iter::once(0..floor).chain(ahead.iter()).filter(|_| !self.trusting) {
            for offset in self.log.records(claimed.clone()) {
                assert!(self.accounted(offset), "{offset} is in {claimed:?} and was never acknowledged: {self:?}");
            }
        }
    }
}

/// The written form of a progress in [`LOG`].
pub(crate) fn metadata(floor: i64, ahead: &[Range<i64>]) -> String {
    Progress { log: LOG, floor, ahead: ahead.iter().cloned().collect() }.encode("", usize::MAX).metadata
}

pub(crate) fn ranges(of: &[Range<i64>]) -> RangeSet {
    of.iter().cloned().collect()
}
