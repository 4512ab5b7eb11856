//! Fuzz targets: each takes any bytes and must neither panic nor take more memory than its budget.
//!
//! They are plain functions, so that the tests run them over a corpus and a fuzzer needs no more than a call.

use bytes::Bytes;
use milena_store::Entry;
use milena_store::frame::{Frame, Frames, frame_header};

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, HEADER_ROOM, HeaderFields, finish_batch};
use crate::client::read_record_set;
use crate::user_headers::UserHeaders;
use crate::{
    BatchLimits, Budget, Codec, FetchOptions, MessageIds, ProduceRules, ProducerSequence, Scratch, TimestampType,
    check_batch, encode_entries, envelope, map_batch, record_timestamp_ms,
};

/// What one input may decompress to.
const BUDGET: usize = 1 << 20;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("produce_entry", produce_entry),
    ("produce_batch", produce_batch),
    ("record_set", record_set),
    ("frame_block", frame_block),
    ("stored_message", stored_message),
    ("message_id", message_id),
];

/// The bytes as one partition entry of a Produce request.
pub fn produce_entry(data: &[u8]) {
    let Ok(batch) = check_batch(data, &BatchLimits { max_message_bytes: BUDGET, zstd_allowed: true }) else { return };
    let rules = ProduceRules {
        timestamp_span_micros: Some(u64::from(u32::MAX)),
        payload_bytes_max: BUDGET,
        header_bytes_max: 100_000,
        key_required: false,
        timestamps_ms: i64::MIN..=i64::MAX,
    };
    let mut out = Vec::new();
    let mut scratch = Scratch::default();
    let mut budget = Budget::new(BUDGET);
    let ids = MessageIds::Plain { seed: 1 };
    if let Ok(mapped) = map_batch(&batch, &rules, ids, &mut budget, &mut scratch, &mut out) {
        let frames = Bytes::from(out);
        debug_assert_eq!(Frames::new(&frames).count(), mapped.count as usize);
        fetch_all(frames, mapped.count, Codec::None);
    } else {
        debug_assert!(out.is_empty());
    }
}

/// The bytes as what lies behind a batch header that matches them: first byte codec, second number of records.
pub fn produce_batch(data: &[u8]) {
    let Some((&[codec, count], records)) = data.split_first_chunk::<2>() else { return };
    let mut batch = HEADER_ROOM.to_vec();
    batch.extend_from_slice(records);
    let fields = BatchHeader {
        attributes: i16::from(codec & 7),
        last_offset_delta: i32::from(count) - 1,
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: i32::from(count),
    };
    debug_assert_eq!(batch.len(), BATCH_HEADER_BYTES + records.len());
    finish_batch(&mut batch, 0, &HeaderFields { base_offset: 0, leader_epoch: 0, fields });
    produce_entry(&batch);
    record_set(&batch);
}

/// The bytes as a fetched record set.
pub fn record_set(data: &[u8]) {
    let _ = read_record_set(data, BUDGET);
}

/// The bytes as a stored frame block.
pub fn frame_block(data: &[u8]) {
    fetch_all(Bytes::copy_from_slice(data), u32::MAX, Codec::None);
}

/// The bytes as one stored message: two bytes say where the payload ends and the user headers begin.
pub fn stored_message(data: &[u8]) {
    let Some((split, rest)) = data.split_first_chunk::<2>() else { return };
    let at = usize::from(u16::from_le_bytes(*split)).min(rest.len());
    let (payload, headers) = rest.split_at(at);
    let _ = envelope::decode(payload);
    UserHeaders::new(headers).for_each(drop);
    let (Ok(payload_len), Ok(headers_len)) = (u32::try_from(payload.len()), u32::try_from(headers.len())) else {
        return;
    };
    let mut frames = frame_header(1, 1, payload_len, headers_len).to_vec();
    frames.extend_from_slice(rest);
    debug_assert!(record_timestamp_ms(&Frame { id: 1, origin_micros: 1, payload, headers }, 1) >= 0);
    fetch_all(Bytes::from(frames), 1, Codec::Lz4);
}

/// The bytes as a message id.
pub fn message_id(data: &[u8]) {
    let Some(id) = data.first_chunk::<16>() else { return };
    let id = u128::from_le_bytes(*id);
    if let Some(place) = ProducerSequence::from_message_id(id) {
        debug_assert_eq!(place.to_message_id(), id);
    }
}

/// Whatever is stored is written in a form that a client reads without error, every message of it.
fn fetch_all(frames: Bytes, count: u32, codec: Codec) {
    let whole = Frames::new(&frames).count();
    let entry = Entry { base_offset: 3, count, append_time_micros: 1_700_000_000_000_000, frames };
    let options = FetchOptions {
        from: 0,
        max_bytes: usize::MAX,
        at_least_one: false,
        timestamp_type: TimestampType::CreateTime,
        compression: codec.into(),
        leader_epoch: 0,
    };
    let mut out = Vec::new();
    let encoded = encode_entries(&[entry], &options, &mut out);
    debug_assert_eq!(encoded.records as usize, whole.min(count as usize));
    let read = read_record_set(&out, 1 << 30);
    debug_assert_eq!(read.map(|records| records.len()), Ok(encoded.records as usize));
}
