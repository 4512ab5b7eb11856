//! Kafka batch to frame block.

use std::ops::RangeInclusive;

use milena_store::frame::FRAME_HEADER_BYTES;

use crate::batch::{CheckedBatch, Refusal};
use crate::compress::{Budget, Codec, Decoders};
use crate::message_id::MessageIds;
use crate::record::RECORD_BYTES_MIN;

mod mapper;
mod names;
mod times;

use mapper::Mapper;

/// Rules of the topic and of the store that records must satisfy.
#[derive(Debug, Clone)]
pub struct ProduceRules {
    /// Widest span of origin timestamps the store takes in one append, microseconds.
    pub timestamp_span_micros: Option<u64>,
    /// Largest payload of one message.
    pub payload_bytes_max: usize,
    /// Largest user-header block of one message.
    pub header_bytes_max: usize,
    /// True on compacted topics: a record without a key is `INVALID_RECORD`.
    pub key_required: bool,
    /// Record timestamps (ms, other than -1) that the topic accepts (`message.timestamp.before/after.max.ms` around now).
    pub timestamps_ms: RangeInclusive<i64>,
}

/// Reused memory of the mapping.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Decompressed bytes.
    pub plain: Vec<u8>,
    pub(crate) decoders: Decoders,
}

impl Scratch {
    /// Gives memory back when more than `keep_bytes` are held, so that one huge batch does not stay for ever.
    pub fn trim(&mut self, keep_bytes: usize) {
        if self.plain.capacity() > keep_bytes {
            self.plain = Vec::new();
            self.decoders = Decoders::default();
        }
    }
}

/// What a mapped batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Number of frames written.
    pub count: u32,
    /// Smallest origin timestamp above 0, microseconds; 0 when none.
    pub origin_min_micros: u64,
    /// Largest origin timestamp, microseconds.
    pub origin_max_micros: u64,
    /// True when a frame has origin timestamp 0.
    pub has_untimed: bool,
    /// How many records went into the envelope.
    pub enveloped: u32,
}

/// Writes the stored messages of `batch` behind what `out` holds, in one pass. On error `out` is as before.
///
/// The bytes are read a second time only when the timestamps of the batch lie further apart than the store takes in
/// one append: which ones must be clamped is known at the end.
///
/// # Errors
/// The first record that cannot be stored.
pub fn map_batch(
    batch: &CheckedBatch<'_>,
    rules: &ProduceRules,
    ids: MessageIds,
    budget: &mut Budget,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<Mapped, Refusal> {
    let count = u32::try_from(batch.header.records_count)
        .map_err(|_| Refusal::batch("the record batch declares no records"))?;
    let records = if batch.codec == Codec::None {
        budget.charge(batch.payload.len(), 0)?;
        batch.payload
    } else {
        scratch.decoders.decompress(batch.codec, batch.payload, count, budget, &mut scratch.plain)?;
        if count as usize > scratch.plain.len() / RECORD_BYTES_MIN {
            return Err(Refusal::batch("the record batch declares more records than it can hold"));
        }
        &scratch.plain
    };
    let start = out.len();
    // Counts are checked against real bytes by now, and the sum is a fair guess for records without headers.
    out.reserve(records.len().saturating_add((count as usize * FRAME_HEADER_BYTES).min(records.len())));
    let mut mapper = Mapper::new(rules, ids, &batch.header, out);
    let result = mapper.map_all(records, count, start);
    if result.is_err() {
        out.truncate(start);
    }
    result
}
