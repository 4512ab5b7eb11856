//! Stored entries to Kafka batches.

use milena_store::Entry;
use milena_store::frame::{Frame, Frames};

use crate::batch::BATCH_HEADER_BYTES;
use crate::compress::Compression;
use crate::stored::StoredRecord;

mod direct;
mod empty;
mod writer;

pub use empty::encode_empty;

use writer::Writer;

/// Offset deltas are signed 32-bit numbers.
const OFFSET_DELTA_MAX: u64 = i32::MAX.cast_unsigned() as u64;

/// `message.timestamp.type` of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The record's own.
    CreateTime,
    /// The append time, one batch for each.
    LogAppendTime,
}

/// How records are written for a consumer.
#[derive(Debug, Clone, Copy)]
pub struct FetchOptions {
    /// First offset wanted; earlier frames of the first entry are skipped.
    pub from: u64,
    /// Bytes to write at most; cut at a record.
    pub max_bytes: usize,
    /// Write one record even when it passes `max_bytes`.
    pub at_least_one: bool,
    /// Timestamp type of the topic.
    pub timestamp_type: TimestampType,
    /// Codec to compress with, and its level.
    pub compression: Compression,
    /// Leader epoch to write into batch headers.
    pub leader_epoch: i32,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Encoded {
    /// Bytes written.
    pub bytes: usize,
    /// Records written.
    pub records: u32,
    /// Offset behind the last record written; `from` when there is none.
    pub next_offset: u64,
    /// Messages delivered unmapped because a marker or header block was malformed (`records_unmapped_total`).
    pub unmapped: u32,
    /// Header names that had to be replaced lossily.
    pub lossy_names: u32,
    /// Messages that were enveloped.
    pub enveloped: u32,
}

/// Writes `entries` as record batches v2 behind what `out` holds. Total: no stored bytes make it fail.
///
/// All records go into one batch, but for topics with `LogAppendTime` (a batch for each append time) and offsets that
/// lie further apart than a batch can say. Offsets are as stored, gaps included. With a codec, `max_bytes` counts the
/// bytes before compression, and a batch that compression would not make smaller stays as it is.
pub fn encode_entries(entries: &[Entry], options: &FetchOptions, out: &mut Vec<u8>) -> Encoded {
    // A record hardly ever takes more than its frame: lengths take fewer bytes here, and markers are left out.
    let stored: usize = entries.iter().map(|entry| entry.frames.len()).sum();
    out.reserve(options.max_bytes.min(stored) + BATCH_HEADER_BYTES);
    let mut writer = Writer::new(options, out);
    'entries: for entry in entries {
        // A frame block that ends early leaves a gap, which consumers pass over as they do in compacted topics.
        for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)).take(entry.count as usize) {
            if offset >= options.from && !writer.write(offset, &frame, entry.append_time_micros) {
                break 'entries;
            }
        }
    }
    writer.finish()
}

/// The Kafka timestamp (ms) of a stored message, as Fetch would show it under `CreateTime`.
#[must_use]
pub fn record_timestamp_ms(frame: &Frame<'_>, append_time_micros: u64) -> i64 {
    StoredRecord::read(frame).timestamp_ms(frame.origin_micros, append_time_micros)
}
