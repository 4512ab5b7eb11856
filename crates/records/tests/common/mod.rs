//! What the tests of this crate share: rules, the way of a batch through Produce and Fetch, odd records.

#![allow(dead_code, reason = "each test file uses a part of it")]

use bytes::Bytes;
use milena_records::client::{Record, read_record_set};
use milena_records::{
    BatchLimits, Budget, Compression, Encoded, FetchOptions, Mapped, MessageIds, ProduceRules, Refusal, Scratch,
    TimestampType, check_batch, encode_entries, map_batch,
};
use milena_store::Entry;
use proptest::prelude::*;

/// Append time of every entry, microseconds.
pub(crate) const APPEND_MICROS: u64 = 1_700_000_000_123_456;
pub(crate) const BUDGET: usize = 64 << 20;

pub(crate) fn rules(span_micros: Option<u64>) -> ProduceRules {
    ProduceRules {
        timestamp_span_micros: span_micros,
        payload_bytes_max: 64_000_000,
        header_bytes_max: 100_000,
        key_required: false,
        timestamps_ms: i64::MIN..=i64::MAX,
    }
}

pub(crate) fn limits() -> BatchLimits {
    BatchLimits { max_message_bytes: 256 << 20, zstd_allowed: true }
}

pub(crate) fn fetch_options() -> FetchOptions {
    FetchOptions {
        from: 0,
        max_bytes: usize::MAX,
        at_least_one: true,
        timestamp_type: TimestampType::CreateTime,
        compression: Compression::NONE,
        leader_epoch: 0,
    }
}

/// A batch through `check_batch` and `map_batch`.
pub(crate) fn produce(batch: &[u8], rules: &ProduceRules) -> Result<(Mapped, Vec<u8>), Refusal> {
    let checked = check_batch(batch, &limits())?;
    let mut out = Vec::new();
    let ids = MessageIds::Plain { seed: 1 };
    let mapped = map_batch(&checked, rules, ids, &mut Budget::new(BUDGET), &mut Scratch::default(), &mut out)?;
    Ok((mapped, out))
}

pub(crate) fn entry(base_offset: u64, count: u32, frames: Vec<u8>) -> Entry {
    Entry { base_offset, count, append_time_micros: APPEND_MICROS, frames: Bytes::from(frames) }
}

pub(crate) fn fetch(entries: &[Entry], options: &FetchOptions) -> (Encoded, Vec<Record>) {
    let mut out = Vec::new();
    let encoded = encode_entries(entries, options, &mut out);
    assert_eq!(encoded.bytes, out.len());
    (encoded, read_record_set(&out, BUDGET).unwrap())
}

/// The records as a consumer sees them: offsets from `base_offset`, the append time where there was none.
pub(crate) fn expected(records: &[Record], base_offset: i64) -> Vec<Record> {
    (base_offset..)
        .zip(records)
        .map(|(offset, record)| {
            let timestamp_ms = match record.timestamp_ms {
                -1 => (APPEND_MICROS / 1000).cast_signed(),
                ms => ms,
            };
            Record { offset, timestamp_ms, ..record.clone() }
        })
        .collect()
}

/// Bytes of every length that a rule turns on.
fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 1..20),
        Just(vec![0]),
        Just(vec![b'x'; 255]),
        Just(vec![b'x'; 256]),
        Just(vec![b'y'; 5000]),
    ]
}

fn odd_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("a".to_owned()),
        Just("kafka.key".to_owned()),
        Just("kafka.envelope".to_owned()),
        "[a-zäöü☂]{1,12}",
        Just("n".repeat(247)),
        Just("n".repeat(248)),
    ]
}

fn odd_time() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1_700_000_000_000i64..1_700_000_100_000,
        1 => Just(-1i64),
        1 => Just(0i64),
        1 => Just(1i64),
        1 => 1_600_000_000_000i64..1_800_000_000_000,
        1 => Just(18_446_744_073_709_551i64),
    ]
}

fn odd_headers() -> impl Strategy<Value = Vec<(String, Option<Vec<u8>>)>> {
    let one = || (odd_name(), prop::option::weighted(0.9, odd_bytes()));
    prop_oneof![
        4 => prop::collection::vec(one(), 0..4),
        1 => prop::collection::vec(one(), 0..40),
        // 400 times 255 bytes pass the limit of a header block, 300 times do not.
        1 => (299usize..400).prop_map(|count| {
            (0..count).map(|index| (format!("h{index}"), Some(vec![b'v'; 255]))).collect()
        }),
    ]
}

pub(crate) fn odd_record() -> impl Strategy<Value = Record> {
    let bytes = || prop::option::weighted(0.8, odd_bytes());
    (bytes(), bytes(), odd_headers(), odd_time()).prop_map(|(key, value, headers, timestamp_ms)| Record {
        offset: 0,
        timestamp_ms,
        key,
        value,
        headers,
    })
}

pub(crate) fn odd_records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(odd_record(), 1..12)
}
