//! What an engine holds always reads, whoever wrote it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{APPEND_MICROS, entry, fetch, fetch_options};
use milena_records::client::Record;
use milena_records::{FetchOptions, TimestampType, record_timestamp_ms};
use milena_store::frame::{Frame, frame_header};
use proptest::prelude::*;

type Header = (Vec<u8>, u8, Vec<u8>);

fn block(headers: &[Header]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, kind, value) in headers {
        block.push(2);
        block.extend_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
        block.extend_from_slice(name);
        block.push(*kind);
        block.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
        block.extend_from_slice(value);
    }
    block
}

fn raw(name: &str, value: &[u8]) -> Header {
    (name.as_bytes().to_vec(), 1, value.to_vec())
}

fn message(payload: &[u8], block: &[u8]) -> Vec<u8> {
    let payload_len = u32::try_from(payload.len()).unwrap();
    let mut frames = frame_header(9, 5_000_000, payload_len, u32::try_from(block.len()).unwrap()).to_vec();
    frames.extend_from_slice(payload);
    frames.extend_from_slice(block);
    frames
}

fn read(payload: &[u8], headers: &[Header]) -> (u32, Record) {
    let (encoded, mut records) = fetch(&[entry(0, 1, message(payload, &block(headers)))], &fetch_options());
    assert_eq!(records.len(), 1);
    (encoded.unmapped, records.remove(0))
}

fn names(record: &Record) -> Vec<&str> {
    record.headers.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_native_message_is_a_value_and_its_headers_whatever_their_kind() {
    let headers = [(b"count".to_vec(), 6, vec![1, 0, 0, 0]), (b"text".to_vec(), 2, b"x".to_vec())];
    let (unmapped, record) = read(b"native", &headers);
    assert_eq!(unmapped, 0);
    assert_eq!((record.key, record.value, record.timestamp_ms), (None, Some(b"native".to_vec()), 5_000));
    let expected = [("count".to_owned(), Some(vec![1, 0, 0, 0])), ("text".to_owned(), Some(b"x".to_vec()))];
    assert_eq!(record.headers, expected);
}

#[test]
fn a_native_producer_sets_key_and_headers_itself() {
    let (unmapped, record) = read(b"v", &[raw("own", b"1"), raw("kafka.h.trace", b"2"), raw("kafka.key", b"k")]);
    assert_eq!((unmapped, record.key.as_deref()), (0, Some(&b"k"[..])));
    assert_eq!(names(&record), ["own", "trace"]);
}

#[test]
fn a_foreign_header_named_like_ours_keeps_everything_else() {
    let (unmapped, record) = read(b"v", &[raw("kafka.partition", b"3"), raw("other", b"o")]);
    assert_eq!((unmapped, record.value.as_deref()), (0, Some(&b"v"[..])));
    assert_eq!(names(&record), ["kafka.partition", "other"]);
}

#[test]
fn malformed_and_repeated_markers_deliver_the_message_as_it_is_stored() {
    let cases: Vec<(&[u8], Vec<Header>)> = vec![
        (b"v", vec![raw("kafka.v", &[2]), raw("kafka.key", b"k")]),
        (b"v", vec![raw("kafka.v", &[0])]),
        (b"v", vec![raw("kafka.v", &[1, 0])]),
        (b"v", vec![raw("kafka.key", b"k"), raw("kafka.key", b"k")]),
        (b"v", vec![raw("kafka.value", b"null")]),
        (b"\0", vec![raw("kafka.value", b"nil")]),
        (b"v", vec![raw("kafka.ts", &[0; 7])]),
        (b"v", vec![raw("kafka.ts", &(-2i64).to_le_bytes())]),
        (b"v", vec![raw("kafka.envelope", &[1])]),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0", vec![raw("kafka.envelope", &[2])]),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0", vec![raw("kafka.envelope", &[1]), raw("kafka.key", b"k")]),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0!", vec![raw("kafka.envelope", &[1])]),
    ];
    for (payload, mut headers) in cases {
        headers.push(raw("kafka.h.x", b"1"));
        let (unmapped, record) = read(payload, &headers);
        assert_eq!(unmapped, 1, "{headers:?}");
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (None, Some(payload)));
        assert_eq!(record.timestamp_ms, 5_000);
        let stored: Vec<_> = headers.iter().map(|(name, ..)| String::from_utf8(name.clone()).unwrap()).collect();
        assert_eq!(names(&record), stored);
    }
}

#[test]
fn a_header_block_that_does_not_parse_is_delivered_without_headers() {
    for damaged in [&b"x"[..], b"\x02\0\0\0\0\x01\x01\0\0\0v", b"\x02\xff\xff\xff\xffkey"] {
        let (encoded, records) = fetch(&[entry(0, 1, message(b"v", damaged))], &fetch_options());
        assert_eq!(encoded.unmapped, 1);
        assert_eq!((records[0].value.as_deref(), records[0].headers.len()), (Some(&b"v"[..]), 0));
    }
}

#[test]
fn names_that_are_not_utf8_are_replaced_and_counted() {
    let headers = [(b"bad\xff".to_vec(), 1, b"1".to_vec()), (b"kafka.h.\xfe".to_vec(), 1, b"2".to_vec())];
    let (encoded, records) = fetch(&[entry(0, 1, message(b"v", &block(&headers)))], &fetch_options());
    assert_eq!((encoded.lossy_names, encoded.unmapped), (2, 0));
    assert_eq!(names(&records[0]), ["bad\u{fffd}", "\u{fffd}"]);
}

#[test]
fn markers_are_honoured() {
    let (_, null) = read(b"\0", &[raw("kafka.v", &[1]), raw("kafka.value", b"null")]);
    assert_eq!(null.value, None);
    let (_, empty) = read(b"\0", &[raw("kafka.value", b"empty")]);
    assert_eq!(empty.value.as_deref(), Some(&b""[..]));
    let (_, epoch) = read(b"v", &[(b"kafka.ts".to_vec(), 7, 0i64.to_le_bytes().to_vec())]);
    assert_eq!((epoch.timestamp_ms, epoch.headers.len()), (0, 0));
    let (_, appended) = read(b"v", &[raw("kafka.ts", &(-1i64).to_le_bytes())]);
    assert_eq!(appended.timestamp_ms, (APPEND_MICROS / 1000).cast_signed());
}

#[test]
fn foreign_headers_follow_those_of_an_envelope() {
    let envelope = b"\x01\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0a\0\0\0\0\0";
    let (unmapped, record) = read(envelope, &[raw("kafka.envelope", &[1]), raw("kafka.v", &[1]), raw("own", b"1")]);
    assert_eq!((unmapped, record.key.as_deref(), record.value), (0, Some(&b""[..]), None));
    assert_eq!(record.headers, [("a".to_owned(), None), ("own".to_owned(), Some(b"1".to_vec()))]);
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let known = ["kafka.v", "kafka.key", "kafka.value", "kafka.ts", "kafka.envelope", "kafka.h.", "kafka.h.x", "plain"];
    prop_oneof![
        6 => prop::sample::select(known.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..256),
    ]
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(vec![1]),
        1 => prop::sample::select(vec![b"null".to_vec(), b"empty".to_vec(), vec![0; 8], vec![0xff; 8]]),
        2 => prop::collection::vec(any::<u8>(), 1..256),
    ]
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![0]),
        Just(b"\x03\x01\0\0\0k\x02\0\0\0vv\x01\0\0\0\x01\0\0\0a\x01\x01\0\0\0x".to_vec()),
        prop::collection::vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_stored_message_reads_and_an_unmapped_one_keeps_payload_and_headers(
        payload in any_payload(),
        headers in prop::collection::vec((any_name(), any::<u8>(), any_value()), 0..20),
        append_time_only in any::<bool>(),
    ) {
        let block = block(&headers);
        let stored = message(&payload, &block);
        let timestamp_type =
            if append_time_only { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let options = FetchOptions { timestamp_type, ..fetch_options() };
        let (encoded, records) = fetch(&[entry(4, 1, stored)], &options);
        prop_assert_eq!((records.len(), records[0].offset, encoded.next_offset), (1, 4, 5));
        let frame = Frame { id: 9, origin_micros: 5_000_000, payload: &payload, headers: &block };
        let time = if append_time_only {
            (APPEND_MICROS / 1000).cast_signed()
        } else {
            record_timestamp_ms(&frame, APPEND_MICROS)
        };
        prop_assert_eq!(records[0].timestamp_ms, time);
        if encoded.unmapped == 1 {
            prop_assert_eq!(records[0].value.as_ref(), Some(&payload));
            let values: Vec<_> = records[0].headers.iter().map(|(_, value)| value.clone().unwrap()).collect();
            prop_assert_eq!(values, headers.into_iter().map(|(_, _, value)| value).collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_block_of_headers_reads(payload in any_payload(), block in prop::collection::vec(any::<u8>(), 0..80)) {
        let (_, records) = fetch(&[entry(0, 1, message(&payload, &block))], &fetch_options());
        prop_assert_eq!(records.len(), 1);
    }
}
