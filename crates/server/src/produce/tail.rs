//! What the end of a log says of its producers: message ids carry producer, epoch and sequence.
//!
//! The tail is read backwards in windows that double, so that a quiet partition costs one read and a busy one is
//! bounded by count and bytes. What lies before is not known, and its producers are accepted as unknown.

use std::time::{Duration, Instant};

use milena_records::ProducerSequence;
use milena_store::frame::Frames;
use milena_store::{Bounds, PartitionRef, ReadLimit, Store, StoreError};

use super::dedup::Batch;
use super::sequence::{Span, distance};

/// How much of a tail is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct TailLimit {
    /// Messages.
    pub(super) messages: u64,
    /// Bytes of frames.
    pub(super) bytes: usize,
    /// Age by append time; older messages' producers have expired.
    pub(super) age: Duration,
}

/// A tail that was read.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// What looks like batches of producers, in the order of the log. Whether their ids were ever given out is not looked at:
    /// a random message id of a native writer may look like one.
    pub(super) pieces: Vec<Piece>,
    /// The first offset of what was read.
    pub(super) first: u64,
    /// True when nothing was left out that matters: all was read from where it was to begin, or as much of it as is not too
    /// old.
    pub(super) whole: bool,
}

/// Consecutive sequences at consecutive offsets, as met in one stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) batch: Batch,
    /// Offset of its first record.
    pub(super) offset: u64,
    /// Append time of its newest message, microseconds.
    pub(super) append_time_micros: u64,
}

impl Piece {
    /// Where `batch` begins, when it does so in here.
    pub(super) fn offset_of(&self, batch: &Batch) -> Option<u64> {
        let (ours, theirs) = (&self.batch, batch);
        let skipped = distance(ours.span.first, theirs.span.first);
        let is_here = (ours.producer_id, ours.epoch) == (theirs.producer_id, theirs.epoch) && skipped < ours.span.count;
        is_here.then(|| self.offset.saturating_add(u64::from(skipped)))
    }
}

/// Reads the last messages of a partition that begins and ends at `bounds`, or begins where `bounds` says that what is known
/// ends.
///
/// A damaged entry ends the tail there: what lies before it is not known.
///
/// # Errors
/// As [`Store::read`].
pub(super) async fn read_tail(
    store: &dyn Store,
    at: &PartitionRef,
    bounds: Bounds,
    limit: TailLimit,
    now_micros: u64,
) -> Result<Tail, StoreError> {
    let oldest_micros = now_micros.saturating_sub(u64::try_from(limit.age.as_micros()).unwrap_or(u64::MAX));
    let mut windows = Vec::new();
    let mut until = bounds.end;
    let (mut messages, mut bytes) = (0u64, 0usize);
    let mut want = 1u64;
    let mut outdated = false;
    while !outdated && until > bounds.start && messages < limit.messages && bytes < limit.bytes {
        let from = until.saturating_sub(want).max(bounds.start);
        let Some(window) = read_window(store, at, from..until, limit.bytes - bytes).await? else { break };
        messages += until.saturating_sub(window.first);
        bytes = bytes.saturating_add(window.bytes);
        until = window.first;
        outdated = window.append_time_micros < oldest_micros;
        windows.push(window.pieces);
        // The next window doubles, but asks for no more than the bytes that are left should hold.
        let average = (bytes as u64 / messages.max(1)).max(1);
        want = messages.min((limit.bytes.saturating_sub(bytes)) as u64 / average).max(1);
    }
    let pieces = windows.into_iter().rev().flatten().collect();
    Ok(Tail { pieces, first: until, whole: outdated || until <= bounds.start })
}

struct Window {
    pieces: Vec<Piece>,
    first: u64,
    bytes: usize,
    append_time_micros: u64,
}

/// Reads the entries that hold `range`; `None` when they are damaged, or more than `bytes_max`. Their frames are let go of as
/// they are read: many partitions may be read at a time.
async fn read_window(
    store: &dyn Store,
    at: &PartitionRef,
    range: std::ops::Range<u64>,
    bytes_max: usize,
) -> Result<Option<Window>, StoreError> {
    let mut window = Window { pieces: Vec::new(), first: range.start, bytes: 0, append_time_micros: u64::MAX };
    let mut next = range.start;
    while next < range.end {
        let limit = ReadLimit { bytes: bytes_max.saturating_sub(window.bytes).min(1 << 20), at_least_one: true };
        let entries = match store.read(at, next, limit).await {
            Ok(entries) if entries.is_empty() => return Ok(None),
            Ok(entries) => entries,
            // Damage, or retention that passed by: nothing before the next window is known.
            Err(StoreError::Broken { .. } | StoreError::OutOfRange { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        for entry in entries {
            window.first = window.first.min(entry.base_offset);
            window.bytes = window.bytes.saturating_add(entry.frames.len());
            // Messages that were cut out have no time, and must not make the window look outdated.
            if !entry.frames.is_empty() {
                window.append_time_micros = window.append_time_micros.min(entry.append_time_micros);
            }
            next = next.max(entry.base_offset.saturating_add(u64::from(entry.count)));
            for (offset, frame) in (entry.base_offset..range.end).zip(Frames::new(&entry.frames)) {
                if let Some(place) = ProducerSequence::from_message_id(frame.id) {
                    note(&mut window.pieces, place, offset, entry.append_time_micros);
                }
            }
        }
        // One entry is taken whatever its size, or a partition of large batches would never be read.
        if window.bytes > bytes_max && next < range.end {
            return Ok(None);
        }
    }
    Ok(Some(window))
}

fn note(pieces: &mut Vec<Piece>, place: ProducerSequence, offset: u64, append_time_micros: u64) {
    let ProducerSequence { producer_id, epoch, sequence } = place;
    if let Some(last) = pieces.last_mut() {
        let Batch { span, .. } = last.batch;
        let follows = (last.batch.producer_id, last.batch.epoch, span.next()) == (producer_id, epoch, sequence)
            && last.offset.saturating_add(u64::from(span.count)) == offset;
        if follows {
            last.batch.span.count += 1;
            last.append_time_micros = append_time_micros;
            return;
        }
    }
    let span = Span { first: sequence, count: 1 };
    pieces.push(Piece { batch: Batch { producer_id, epoch, span }, offset, append_time_micros });
}

/// The instant of a wall-clock time in the past, given both clocks' now.
pub(super) fn instant_of(time_micros: u64, now_micros: u64, now: Instant) -> Instant {
    let ago = Duration::from_micros(now_micros.saturating_sub(time_micros));
    now.checked_sub(ago).unwrap_or(now)
}
