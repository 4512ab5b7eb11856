//! One partition of the reference engine.

use crate::epochs::Epochs;
use crate::error::StoreError;
use crate::frame::Frames;
use crate::types::{Bounds, Entry, Found, ReadLimit, TimeKind};

#[derive(Clone, Default)]
pub(super) struct PartitionState {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) epochs: Epochs,
}

impl PartitionState {
    /// An empty one whose first message has offset `start`.
    pub(super) fn beginning_at(start: u64) -> Self {
        Self { start, end: start, ..Self::default() }
    }

    pub(super) fn read(&self, from: u64, limit: ReadLimit) -> Result<Vec<Entry>, StoreError> {
        let bounds = Bounds { start: self.start, end: self.end };
        if from < bounds.start || from > bounds.end {
            return Err(StoreError::OutOfRange { bounds });
        }
        let mut bytes = 0;
        let wanted = self.entries.iter().filter(|entry| entry.base_offset + u64::from(entry.count) > from);
        Ok(wanted
            .enumerate()
            .take_while(|(index, entry)| {
                bytes += entry.frames.len();
                bytes <= limit.bytes || (*index == 0 && limit.at_least_one)
            })
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    pub(super) fn times(&self, from: u64, kind: TimeKind) -> impl Iterator<Item = Found> + '_ {
        let from = from.max(self.start);
        let all = self.entries.iter().flat_map(move |entry| {
            (entry.base_offset..).zip(Frames::new(&entry.frames)).map(move |(offset, frame)| Found {
                offset,
                time_micros: match kind {
                    TimeKind::Origin if frame.origin_micros > 0 => frame.origin_micros,
                    TimeKind::Origin | TimeKind::Append => entry.append_time_micros,
                },
            })
        });
        all.filter(move |found| found.offset >= from)
    }

    /// Drops the entries that reach behind `from`; the answer is the new end if it moved back.
    pub(super) fn lose_tail(&mut self, from: u64) -> Option<u64> {
        let behind = |entry: &Entry| entry.base_offset + u64::from(entry.count);
        self.entries.retain(|entry| behind(entry) <= from);
        let kept = self.entries.last().map_or(0, behind);
        if kept >= self.end {
            return None;
        }
        self.epochs.begin(self.epochs.current() + 1, kept, usize::MAX);
        (self.start, self.end) = (self.start.min(kept), kept);
        Some(kept)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { start: self.start, end: self.end }
    }
}
