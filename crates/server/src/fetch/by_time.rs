//! Search by the timestamp that a Kafka consumer sees.
//!
//! The store searches by its own times. They agree with Kafka's except for a message with a `kafka.ts` header: a record
//! stamped with the epoch itself is stored without an origin timestamp, so the store takes its append time. So what the
//! store finds is only a candidate. It is read and looked at; when it is none, the messages behind it are looked at as
//! they were read, and the store is asked again behind those.

use milena_records::{TimestampType, record_timestamp_ms};
use milena_store::frame::Frames;
use milena_store::{Bounds, Entry, PartitionRef, ReadLimit, Store, StoreError, TimeKind};

use super::reader::kafka_offset;

/// Bytes read around a candidate: neighbours are often stored alike.
const CANDIDATE_BYTES: usize = 256 << 10;

/// Candidates looked at for one answer. Passed: the last candidate is the answer, which lies before the true one, so
/// that a consumer that starts there misses nothing.
const CANDIDATES_MAX: usize = 1024;

/// A record and its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Offset of the record.
    pub offset: i64,
    /// Its timestamp in ms; -1 where none is asked for.
    pub timestamp_ms: i64,
}

/// First record of the partition whose timestamp is at or behind `time_ms`.
///
/// # Errors
/// As the store's search and read.
pub async fn first_at_or_behind(
    store: &dyn Store,
    at: &PartitionRef,
    timestamp_type: TimestampType,
    bounds: Bounds,
    time_ms: i64,
) -> Result<Option<Timed>, StoreError> {
    let time_micros = u64::try_from(time_ms).unwrap_or(0).saturating_mul(1000);
    let kind = kind(timestamp_type);
    let mut from = bounds.start;
    for round in 0..CANDIDATES_MAX {
        let Some(found) = store.find(at, from, time_micros, kind).await? else { return Ok(None) };
        let candidate = Timed { offset: kafka_offset(found.offset), timestamp_ms: millis(found.time_micros) };
        if kind == TimeKind::Append || round == CANDIDATES_MAX - 1 {
            return Ok(Some(candidate));
        }
        let entries = store.read(at, found.offset, ReadLimit { bytes: CANDIDATE_BYTES, at_least_one: true }).await?;
        let mut behind = found.offset + 1;
        for (offset, timestamp_ms) in timestamps(&entries).filter(|(offset, _)| *offset >= found.offset) {
            if timestamp_ms >= time_ms {
                return Ok(Some(Timed { offset: kafka_offset(offset), timestamp_ms }));
            }
            behind = offset + 1;
        }
        from = behind;
    }
    Ok(None)
}

/// The record with the largest timestamp, the first of several.
///
/// # Errors
/// As the store's search and read.
pub async fn newest(
    store: &dyn Store,
    at: &PartitionRef,
    timestamp_type: TimestampType,
) -> Result<Option<Timed>, StoreError> {
    let kind = kind(timestamp_type);
    let Some(found) = store.newest(at, kind).await? else { return Ok(None) };
    let candidate = Timed { offset: kafka_offset(found.offset), timestamp_ms: millis(found.time_micros) };
    if kind == TimeKind::Append {
        return Ok(Some(candidate));
    }
    let entries = store.read(at, found.offset, ReadLimit { bytes: 1, at_least_one: true }).await?;
    let seen = timestamps(&entries).find(|(offset, _)| *offset == found.offset).map(|(_, timestamp_ms)| timestamp_ms);
    if seen.is_none_or(|timestamp_ms| timestamp_ms == candidate.timestamp_ms) {
        return Ok(Some(candidate));
    }
    newest_by_reading(store, at, Timed { timestamp_ms: seen.unwrap_or(-1), ..candidate }).await
}

/// The store's answer was none of a Kafka timestamp: looks at every record, up to `CANDIDATES_MAX` reads.
async fn newest_by_reading(
    store: &dyn Store,
    at: &PartitionRef,
    candidate: Timed,
) -> Result<Option<Timed>, StoreError> {
    let bounds = store.bounds(at).await?;
    let mut newest = candidate;
    let mut from = bounds.start;
    for _ in 0..CANDIDATES_MAX {
        if from >= bounds.end {
            break;
        }
        let entries = store.read(at, from, ReadLimit { bytes: CANDIDATE_BYTES, at_least_one: true }).await?;
        let before = from;
        for (offset, timestamp_ms) in timestamps(&entries).filter(|(offset, _)| *offset >= before) {
            let offset_first = timestamp_ms == newest.timestamp_ms && kafka_offset(offset) < newest.offset;
            if timestamp_ms > newest.timestamp_ms || offset_first {
                newest = Timed { offset: kafka_offset(offset), timestamp_ms };
            }
            from = offset + 1;
        }
        if from == before {
            break;
        }
    }
    Ok(Some(newest))
}

fn kind(timestamp_type: TimestampType) -> TimeKind {
    match timestamp_type {
        TimestampType::CreateTime => TimeKind::Origin,
        TimestampType::LogAppendTime => TimeKind::Append,
    }
}

fn millis(micros: u64) -> i64 {
    kafka_offset(micros / 1000)
}

/// Offset and Kafka timestamp of every message of `entries`.
fn timestamps(entries: &[Entry]) -> impl Iterator<Item = (u64, i64)> {
    entries.iter().flat_map(|entry| {
        (entry.base_offset..)
            .zip(Frames::new(&entry.frames))
            .map(|(offset, frame)| (offset, record_timestamp_ms(&frame, entry.append_time_micros)))
    })
}
