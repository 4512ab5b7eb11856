//! Fills the table of a partition from the end of its log: message ids carry producer, epoch and sequence.
//!
//! The tail is read backwards in windows that double, so that a quiet partition costs one read and a busy one is
//! bounded by count and bytes. What lies before is not known, and its producers are accepted as unknown.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use milena_records::ProducerSequence;
use milena_store::frame::Frames;
use milena_store::{Bounds, Entry, PartitionRef, ReadLimit, Store, StoreError};

use super::sequence::{Runs, Span, distance};

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

/// What the tail says of one producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TailProducer {
    /// Producer id.
    pub(super) producer_id: u64,
    /// Its newest epoch.
    pub(super) epoch: u16,
    /// Its last runs in that epoch.
    pub(super) runs: Runs,
    /// Append time of its newest message, microseconds.
    pub(super) append_time_micros: u64,
}

/// A tail that was read.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Producers, the one that wrote last at the end.
    pub(super) producers: Vec<TailProducer>,
    /// Copies of messages that are stored twice.
    pub(super) doubled: u64,
    /// End of the partition when it was read.
    pub(super) end: u64,
}

/// Consecutive sequences at consecutive offsets, as met in one entry.
#[derive(Debug, Clone, Copy)]
struct Piece {
    producer_id: u64,
    epoch: u16,
    span: Span,
    offset: u64,
    append_time_micros: u64,
}

/// Reads the tail of a partition. `ours` says whether a producer id was ever given out: a message of a native writer
/// must not make a producer, even when its random id happens to look like one.
///
/// A damaged entry ends the tail there: what lies before it is not known.
///
/// # Errors
/// As [`Store::bounds`] and [`Store::read`].
pub(super) async fn read_tail(
    store: &dyn Store,
    at: &PartitionRef,
    limit: TailLimit,
    now_micros: u64,
    ours: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Tail, StoreError> {
    let bounds = store.bounds(at).await?;
    let oldest_micros = now_micros.saturating_sub(u64::try_from(limit.age.as_micros()).unwrap_or(u64::MAX));
    let mut windows = Vec::new();
    let mut until = bounds.end;
    let (mut messages, mut bytes) = (0u64, 0usize);
    let mut want = 1u64;
    while until > bounds.start && messages < limit.messages && bytes < limit.bytes {
        let from = until.saturating_sub(want).max(bounds.start);
        let Some(window) = read_window(store, at, from..until, limit.bytes - bytes).await? else { break };
        messages += until.saturating_sub(window.first);
        bytes = bytes.saturating_add(window.bytes);
        until = window.first;
        let outdated = window.append_time_micros < oldest_micros;
        windows.push(window.pieces(ours));
        if outdated {
            break;
        }
        // The next window doubles, but asks for no more than the bytes that are left should hold.
        let average = (bytes as u64 / messages.max(1)).max(1);
        want = messages.min((limit.bytes.saturating_sub(bytes)) as u64 / average).max(1);
    }
    Ok(fold(windows.into_iter().rev().flatten(), bounds))
}

struct Window {
    entries: Vec<Entry>,
    until: u64,
    first: u64,
    bytes: usize,
    append_time_micros: u64,
}

/// Reads the entries that hold `range`; `None` when they are damaged, or more than `bytes_max`.
async fn read_window(
    store: &dyn Store,
    at: &PartitionRef,
    range: std::ops::Range<u64>,
    bytes_max: usize,
) -> Result<Option<Window>, StoreError> {
    let mut window =
        Window { entries: Vec::new(), until: range.end, first: range.start, bytes: 0, append_time_micros: u64::MAX };
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
            window.append_time_micros = window.append_time_micros.min(entry.append_time_micros);
            next = next.max(entry.base_offset.saturating_add(u64::from(entry.count)));
            window.entries.push(entry);
        }
        // One entry is taken whatever its size, or a partition of large batches would never be read.
        if window.bytes > bytes_max && next < range.end {
            return Ok(None);
        }
    }
    Ok(Some(window))
}

impl Window {
    fn pieces(self, ours: &(dyn Fn(u64) -> bool + Sync)) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for entry in &self.entries {
            for (offset, frame) in (entry.base_offset..self.until).zip(Frames::new(&entry.frames)) {
                if let Some(place) = ProducerSequence::from_message_id(frame.id) {
                    note(&mut pieces, place, offset, entry.append_time_micros, ours);
                }
            }
        }
        pieces
    }
}

fn note(
    pieces: &mut Vec<Piece>,
    place: ProducerSequence,
    offset: u64,
    append_time_micros: u64,
    ours: &(dyn Fn(u64) -> bool + Sync),
) {
    if let Some(last) = pieces.last_mut() {
        let follows = last.producer_id == place.producer_id
            && last.epoch == place.epoch
            && last.span.next() == place.sequence
            && last.offset.saturating_add(u64::from(last.span.count)) == offset;
        if follows {
            last.span.count += 1;
            last.append_time_micros = append_time_micros;
            return;
        }
    }
    if ours(place.producer_id) {
        pieces.push(Piece {
            producer_id: place.producer_id,
            epoch: place.epoch,
            span: Span { first: place.sequence, count: 1 },
            offset,
            append_time_micros,
        });
    }
}

/// Replays the pieces, oldest first.
fn fold(pieces: impl Iterator<Item = Piece>, bounds: Bounds) -> Tail {
    let mut tail = Tail { producers: Vec::new(), doubled: 0, end: bounds.end };
    let mut known: HashMap<u64, (u16, Runs, u64, u64)> = HashMap::new();
    for piece in pieces {
        let (epoch, runs, append_time, last_offset) =
            known.entry(piece.producer_id).or_insert_with(|| (piece.epoch, Runs::expecting(piece.span.first), 0, 0));
        if piece.epoch > *epoch {
            *epoch = piece.epoch;
            *runs = Runs::expecting(piece.span.first);
        }
        if piece.epoch < *epoch {
            continue;
        }
        *append_time = piece.append_time_micros;
        *last_offset = piece.offset;
        replay(runs, &piece, &mut tail.doubled);
    }
    let mut producers: Vec<_> = known.into_iter().collect();
    producers.sort_unstable_by_key(|(_, (.., last_offset))| *last_offset);
    tail.producers = producers
        .into_iter()
        .map(|(producer_id, (epoch, runs, append_time_micros, _))| TailProducer {
            producer_id,
            epoch,
            runs,
            append_time_micros,
        })
        .collect();
    tail
}

fn replay(runs: &mut Runs, piece: &Piece, doubled: &mut u64) {
    let next = runs.next();
    // A piece that starts with copies of known messages and goes on with new ones: a late copy of a batch, and right
    // behind it the batch that followed.
    let known = distance(piece.span.first, next);
    if known < piece.span.count {
        *doubled += u64::from(known);
        let span = Span { first: next, count: piece.span.count - known };
        runs.push(span, piece.offset.saturating_add(u64::from(known)));
    } else if runs.find(piece.span).is_some() {
        *doubled += u64::from(piece.span.count);
    } else if distance(next, piece.span.first) < 1 << 30 {
        // A gap: the gateway that wrote it did not know the producer. The newest sequence counts.
        runs.push(piece.span, piece.offset);
    }
}

/// The instant of a wall-clock time in the past, given both clocks' now.
pub(super) fn instant_of(time_micros: u64, now_micros: u64, now: Instant) -> Instant {
    let ago = Duration::from_micros(now_micros.saturating_sub(time_micros));
    now.checked_sub(ago).unwrap_or(now)
}
