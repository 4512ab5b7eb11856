//! Keeping the journal short.
//!
//! When much was written behind the newest snapshot, some gateway writes another: neighbouring records, stored all or
//! none, that say what all records below an offset say. A gateway that reads the journal from its beginning starts at the
//! newest whole snapshot; one that has read what it stands for passes over it. Only what lies below is removed, and only
//! by a gateway that holds the claim on it, so that two never remove segments at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use milena_store::{PartitionRef, StoreError};

use crate::inner::Inner;
use crate::journal::{Incarnation, Record};
use crate::limits;

/// A snapshot in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Offset of its first part.
    pub(crate) first: u64,
    /// Offset of its last part.
    pub(crate) last: u64,
    /// It stands for everything below.
    pub(crate) covers: u64,
}

/// Recognises whole snapshots among records that are read in order.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Identity and first offset of the one under way, and the part that comes next.
    open: Option<(u64, u64, u32)>,
}

impl Snapshots {
    /// Takes a record in; the answer is the snapshot that it completes.
    pub(crate) fn note(&mut self, offset: u64, record: &Record) -> Option<Whole> {
        let Record::Snapshot { id, covers, part, parts, .. } = record else {
            self.open = None;
            return None;
        };
        let first = match self.open {
            Some((open, first, next)) if open == *id && next == *part => first,
            _ if *part == 0 => offset,
            _ => {
                self.open = None;
                return None;
            }
        };
        self.open = Some((*id, first, part.saturating_add(1)));
        (part.saturating_add(1) == *parts).then_some(Whole { first, last: offset, covers: *covers })
    }
}

/// Splits `records` into parts of a snapshot, each of bounded size; nothing to keep is one empty part.
fn parts(id: u64, covers: u64, records: Vec<Record>) -> Vec<Record> {
    let mut chunks: Vec<Vec<Record>> = vec![Vec::new()];
    let mut bytes = 0;
    for record in records {
        let size = record.encode().map_or(0, |encoded| encoded.len());
        if bytes > 0 && bytes + size > limits::SNAPSHOT_PART_BYTES {
            (bytes, _) = (0, chunks.push(Vec::new()));
        }
        bytes += size;
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(record);
        }
    }
    let parts = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    (0..).zip(chunks).map(|(part, records)| Record::Snapshot { id, covers, part, parts, records }).collect()
}

impl Inner {
    /// Writes a snapshot when one is due and nobody else is at it, and removes what it stands for.
    pub(crate) async fn compact(self: &Arc<Self>) {
        if self.compacting.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.snapshot().await {
            tracing::debug!(%error, "the journal stays as long as it is for now");
        }
        self.compacting.store(false, Ordering::Release);
    }

    async fn snapshot(self: &Arc<Self>) -> Result<(), StoreError> {
        let at = self.journal().await?;
        let Some(until) = self.claim(&at).await? else { return Ok(()) };
        // Reads the journal first. A topic that it does not list is gone, or younger than the list.
        let living: HashSet<_> = self.list().await?.iter().map(|info| Incarnation::from(&info.topic)).collect();
        let (covers, records) = {
            let reader = self.reader.lock().await;
            if reader.behind_snapshot <= self.config().snapshot_behind_bytes {
                return Ok(());
            }
            (reader.next, self.table.lock().records(&living))
        };
        let parts = parts(covers ^ self.gateway, covers, records);
        let bytes: usize = parts.iter().filter_map(|part| part.encode().ok()).map(|part| part.len()).sum();
        if bytes > limits::SNAPSHOT_BYTES_MAX {
            return Err(StoreError::Refused {
                what: "bytes of a snapshot of the journal",
                actual: bytes as u64,
                limit: limits::SNAPSHOT_BYTES_MAX as u64,
            });
        }
        self.record(&parts).await?;
        self.catch_up().await?;
        tracing::info!(covers, bytes, "wrote a snapshot of the journal");
        self.drop_segments(&at, Some(covers), Some(until)).await
    }

    /// Asks to be the one that removes segments of a partition; the answer is until when it may, `None` while another
    /// gateway may.
    ///
    /// The server removes its oldest segment, whichever that is by then. So of all gateways one at a time may ask for it,
    /// and a claim lasts longer than its use and a deletion that is on its way together.
    pub(crate) async fn claim(&self, at: &PartitionRef) -> Result<Option<Instant>, StoreError> {
        let until = Instant::now() + limits::CLAIM_USE;
        self.record(&[Record::claim(at, self.gateway)]).await?;
        self.catch_up().await?;
        let held = self.table.lock().holder(at) == Some(self.gateway);
        Ok(held.then_some(until))
    }
}

#[cfg(test)]
mod tests {
    use milena_store::TopicRef;

    use super::*;

    fn ends(count: u32) -> Vec<Record> {
        let topic = |id| TopicRef::new("s", "t", 1, id, 3);
        (0..count).map(|id| Record::ends(&topic(id), vec![(0, 0, 1)])).collect()
    }

    /// What is recognised in records at offsets from 10 on.
    fn recognised(records: &[Record]) -> Vec<Whole> {
        let mut snapshots = Snapshots::default();
        (10..).zip(records).filter_map(|(offset, record)| snapshots.note(offset, record)).collect()
    }

    #[test]
    fn a_snapshot_comes_in_parts_of_bounded_size_that_are_whole_together_only() {
        let all = parts(7, 5, ends(10_000));
        assert!(all.len() > 1);
        assert!(all.iter().all(|part| part.encode().unwrap().len() < limits::SNAPSHOT_PART_BYTES + 200));
        let last = 10 + all.len() as u64 - 1;
        assert_eq!(recognised(&all), [Whole { first: 10, last, covers: 5 }]);
        assert_eq!(recognised(&all[1..]), []);
        assert_eq!(recognised(&all[..all.len() - 1]), []);
        let broken = [&all[..1], &ends(1), &all[1..]].concat();
        assert_eq!(recognised(&broken), []);
        let after_another = [&all[..1], &parts(8, 6, ends(1))[..]].concat();
        assert_eq!(recognised(&after_another), [Whole { first: 11, last: 11, covers: 6 }]);
    }

    #[test]
    fn nothing_to_keep_is_a_snapshot_too() {
        assert_eq!(recognised(&parts(7, 5, Vec::new())), [Whole { first: 10, last: 10, covers: 5 }]);
    }
}
