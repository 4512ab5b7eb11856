//! Status and buffers.

use super::Partition;
use crate::buffers::{Buffer, Buffers};
use crate::flights::Phase;
use crate::lane::LaneState;
use crate::progress::encoded_len;
use crate::range_set::RangeSet;
use crate::status::PartitionStatus;

impl Partition {
    /// The partition in numbers.
    #[must_use]
    pub fn status(&self) -> PartitionStatus {
        let floor = self.ledger.floor;
        let gap = self.ledger.done.gaps(floor..self.fork.unwrap_or(floor));
        PartitionStatus {
            epoch: self.epoch,
            state: self.state,
            floor,
            committed: self.commits.last.as_ref().map(|last| last.floor),
            fork: self.fork,
            live: self.live.status(),
            backfill: self.backfill.as_ref().map(LaneState::status),
            gap: gap.map(|piece| piece.end.abs_diff(piece.start)).sum(),
            ranges: self.ledger.done.len(),
            metadata_bytes: encoded_len(floor, &self.ledger.done, &self.user),
            ranges_dropped: self.commits.dropped,
        }
    }

    /// What both lanes hold.
    #[must_use]
    pub fn buffers(&self) -> Buffers {
        let mut acknowledged = self.ledger.done.clone();
        let committed = self.commits.last.as_ref().map_or(self.start, |last| last.floor.max(self.start));
        acknowledged.insert(committed..self.ledger.floor);
        let kept = self.commits.last.iter().flat_map(|last| last.ahead.iter());
        for range in kept.chain(self.topic.stored().into_iter().flat_map(|stored| stored.ahead.iter())) {
            acknowledged.remove(range);
        }
        let mut above = acknowledged.clone();
        let fork = self.fork.unwrap_or(0);
        acknowledged.clip(0..fork);
        above.clip(fork..i64::MAX);
        Buffers { live: buffer(Some(&self.live), above), backfill: buffer(self.backfill.as_ref(), acknowledged) }
    }
}

fn buffer(lane: Option<&LaneState>, acknowledged: RangeSet) -> Buffer {
    let mut buffer = Buffer { acknowledged, ..Buffer::default() };
    for (offset, phase) in lane.into_iter().flat_map(LaneState::flights) {
        let into = if phase == Phase::InHand { &mut buffer.delivered } else { &mut buffer.held };
        into.insert(offset..offset.saturating_add(1));
    }
    buffer
}
