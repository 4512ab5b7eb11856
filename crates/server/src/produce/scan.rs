//! Reads a partition forward from a known end in search of a message id: did that append land?

use std::time::Duration;

use milena_store::frame::Frames;
use milena_store::{Bounds, PartitionRef, ReadLimit, Store, StoreError};

use super::dedup::Doubt;
use super::tail::{TailLimit, read_tail};

/// Bytes of one read. Small enough that a scan does not hold much memory, large enough to be few calls.
const READ_BYTES: usize = 1 << 20;

/// How far to go back when the end of a partition fell below where the search was to begin, or may have.
const FALLEN_MESSAGES: u64 = 4096;

/// Where the batch in doubt lies shortly before the offset from which on it is looked for, at most `bytes` of frames before it.
/// Nothing says that an end fell when just as many records took the place of those that were lost.
///
/// # Errors
/// As [`Store::read`].
pub(super) async fn find_before(
    store: &dyn Store,
    at: &PartitionRef,
    doubt: &Doubt,
    bytes: usize,
) -> Result<Option<u64>, StoreError> {
    let bounds = store.bounds(at).await?;
    let end = doubt.from.min(bounds.end);
    let start = end.saturating_sub(FALLEN_MESSAGES).max(bounds.start);
    if start >= end {
        return Ok(None);
    }
    let limit = TailLimit { messages: FALLEN_MESSAGES, bytes, age: Duration::MAX };
    let tail = read_tail(store, at, Bounds { start, end }, limit, 0).await?;
    Ok(tail.pieces.iter().rev().find_map(|piece| piece.offset_of(&doubt.batch)))
}

/// A search that can go on where it ended.
#[derive(Debug, Clone)]
pub(super) struct Scan {
    id: u128,
    next: u64,
    first: Option<u64>,
    copies: u32,
}

impl Scan {
    /// For the message `id` at or behind `from`.
    pub(super) fn new(id: u128, from: u64) -> Self {
        Self { id, next: from, first: None, copies: 0 }
    }

    /// Offset of the first copy that was found.
    pub(super) fn found(&self) -> Option<u64> {
        self.first
    }

    /// How many copies were found.
    pub(super) fn copies(&self) -> u32 {
        self.copies
    }

    /// Reads on to the end that the partition has now.
    ///
    /// # Errors
    /// As [`Store::read`]; what was read before stays noted.
    pub(super) async fn advance(&mut self, store: &dyn Store, at: &PartitionRef) -> Result<(), StoreError> {
        let bounds = store.bounds(at).await?;
        if self.next > bounds.end {
            self.next = bounds.end.saturating_sub(FALLEN_MESSAGES);
        }
        self.next = self.next.max(bounds.start);
        while self.next < bounds.end {
            let limit = ReadLimit { bytes: READ_BYTES, at_least_one: true };
            let entries = match store.read(at, self.next, limit).await {
                Ok(entries) => entries,
                // Retention passed the search: what is gone cannot be found, what is left can.
                Err(StoreError::OutOfRange { bounds: now }) if now.start > self.next => {
                    self.next = now.start;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let before = self.next;
            for entry in &entries {
                for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                    if frame.id == self.id && offset >= before {
                        self.first.get_or_insert(offset);
                        self.copies = self.copies.saturating_add(1);
                    }
                }
                self.next = self.next.max(entry.base_offset.saturating_add(u64::from(entry.count)));
            }
            if self.next == before {
                return Ok(());
            }
        }
        Ok(())
    }
}
