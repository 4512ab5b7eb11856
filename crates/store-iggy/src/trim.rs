//! Trimming. The server removes whole sealed segments only, so the exact start is a record of our own; segments that
//! lie wholly below it are removed where that is known to be safe.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use iggy_binary_protocol::WirePollingStrategy;
use iggy_common::SegmentClient;
use milena_store::{Bounds, INTERNAL_STREAM, PartitionRef, ReadLimit, StoreError};
use tokio::time::sleep;

use crate::error::Op;
use crate::inner::Inner;
use crate::journal::Record;
use crate::limits;
use crate::poll;

/// Bytes of the header that the server keeps in front of each batch, and delivers with it.
const BATCH_HEADER_BYTES: usize = 256;
/// Bytes of a poll's reply before its batches.
const REPLY_PREFIX_BYTES: usize = 16;
/// What a segment may hold beyond its size: the server seals it after the write that fills it, and one write carries
/// up to a MiB of batches and the batch that made it so.
const SEAL_SLACK_BYTES: usize = 8 << 20;
/// Segments removed in one go.
const SEGMENTS_PER_TRIM: usize = 64;

impl Inner {
    pub(crate) async fn trim(self: &Arc<Self>, at: &PartitionRef, before: u64) -> Result<Bounds, StoreError> {
        let (state, partition) = self.partition(at).await?;
        self.look(&state, Instant::now()).await?;
        self.settle(at, &partition).await?;
        let (bounds, epoch) = {
            let known = partition.lock();
            (known.bounds(), known.epochs().current())
        };
        let before = before.min(bounds.end);
        if before > bounds.start {
            self.write(Record::trim(at, before, epoch)).await?;
            let mut known = partition.lock();
            // After a fall meanwhile the messages below are others.
            if known.epochs().current() == epoch && !known.is_raising() {
                known.trim(before);
            }
        }
        // Only Milena's own topics are small enough to be measured for it; others lose their segments to retention.
        if at.topic.stream() == INTERNAL_STREAM && !state.trimming.swap(true, Ordering::AcqRel) {
            let (inner, at) = (Arc::clone(self), at.clone());
            tokio::spawn(async move {
                let dropped = inner.drop_segments(&at, None, None).await;
                drop(inner);
                if let Err(error) = dropped {
                    tracing::debug!(partition = ?at, %error, "old segments stay for now");
                    if let StoreError::InDoubt { .. } = error {
                        sleep(limits::DELETION_DOUBT).await;
                    }
                }
                state.trimming.store(false, Ordering::Release);
            });
        }
        let bounds = partition.lock().bounds();
        Ok(bounds)
    }

    /// Removes the oldest segments while it is certain that they lie wholly below `until`, or else below the start.
    /// `claimed` says until when this gateway may, if it asked already.
    pub(crate) async fn drop_segments(
        &self,
        at: &PartitionRef,
        until: Option<u64>,
        mut claimed: Option<Instant>,
    ) -> Result<(), StoreError> {
        let (state, partition) = self.partition(at).await?;
        let segment_bytes = state.facts().segment_bytes.unwrap_or(limits::SEGMENT_BYTES_MAX);
        let segment_bytes = usize::try_from(segment_bytes).unwrap_or(usize::MAX);
        for _ in 0..SEGMENTS_PER_TRIM {
            let (from, until) = {
                let known = partition.lock();
                (known.server_start(), until.unwrap_or(known.bounds().start))
            };
            if !self.holds_two_segments(at, from, until, segment_bytes).await? {
                return Ok(());
            }
            if claimed.is_none_or(|claimed| Instant::now() >= claimed) {
                claimed = self.claim(at).await?;
                if claimed.is_none() {
                    return Ok(());
                }
                self.look(&state, Instant::now()).await?;
                if partition.lock().server_start() != from {
                    // Whoever had the claim before removed what was measured.
                    continue;
                }
            }
            let (stream_id, topic_id) = self.names.topic(at.topic.stream(), at.topic.topic())?;
            let number = at.partition;
            let removed =
                self.change(|client| async move { client.delete_segments(&stream_id, &topic_id, number, 1).await });
            removed.await.map_err(|error| error.of(Op::Change, "segments"))?;
            self.look(&state, Instant::now()).await?;
            if partition.lock().server_start() == from {
                return Ok(());
            }
        }
        Ok(())
    }

    /// True when `from..until` holds more bytes than the two oldest segments can: then both end within, so that our
    /// deletion takes nothing that is wanted when it arrives twice. Those of other gateways are kept off by the claim.
    async fn holds_two_segments(
        &self,
        at: &PartitionRef,
        from: u64,
        until: u64,
        segment_bytes: usize,
    ) -> Result<bool, StoreError> {
        let (_, partition) = self.partition(at).await?;
        let expected = partition.lock().expected_bytes();
        let guessed = until.saturating_sub(from).saturating_mul(expected.unwrap_or(0));
        if guessed < (segment_bytes as u64).saturating_mul(2) {
            return Ok(false);
        }
        let all = ReadLimit { bytes: usize::MAX, at_least_one: true };
        let (mut next, mut stored, mut largest) = (from, 0usize, 0usize);
        while next < until {
            let count = partition.lock().poll_count(limits::SEARCH_STEP_BYTES, until - next);
            let body = self.poll(at, WirePollingStrategy::offset(next), count).await?;
            let polled = poll::decode(&body, next, all);
            partition.lock().met(polled.messages, polled.bytes, polled.largest);
            let Some(last) = polled.entries.last().filter(|_| polled.damage.is_none()) else { return Ok(false) };
            next = last.base_offset.saturating_add(u64::from(last.count));
            // The header of a batch that was cut is delivered twice.
            let bytes = body.len().saturating_sub(REPLY_PREFIX_BYTES + BATCH_HEADER_BYTES);
            (stored, largest) = (stored.saturating_add(bytes), largest.max(bytes));
            if next <= until && stored > certain_bytes(segment_bytes, largest) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The most that the two oldest segments hold, and what the largest reply of a poll may count too much: its ends.
fn certain_bytes(segment_bytes: usize, largest_reply: usize) -> usize {
    let segments = segment_bytes.saturating_add(SEAL_SLACK_BYTES).saturating_mul(2);
    segments.saturating_add(largest_reply.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_removed_only_when_two_that_are_overfull_lie_below_the_start() {
        let (segment, reply) = (1 << 20, 4_096);
        assert_eq!(certain_bytes(segment, reply), 2 * (segment + SEAL_SLACK_BYTES) + 2 * reply);
        assert_eq!(certain_bytes(usize::MAX, reply), usize::MAX, "never, rather than too early");
    }
}
