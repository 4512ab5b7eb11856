//! Golden vectors of the stored form: made by the published `iggy_common` crate, kept here as literals too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::collections::BTreeMap;

use common::{entry, fetch, fetch_options, produce, rules};
use iggy_common::{HeaderKey, HeaderKind, HeaderValue, IggyMessage};
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_store::frame::Frames;

type Header<'a> = (&'a str, HeaderKind, &'a [u8]);

/// The block that the engine's own encoder makes of these headers. Its map sorts, so that each header is encoded by
/// itself; the block has no count and no frame, which makes the concatenation the block of all.
fn golden(headers: &[Header<'_>]) -> Vec<u8> {
    headers
        .iter()
        .flat_map(|&(name, kind, value)| {
            let key = HeaderKey::try_from(name).unwrap();
            let value = HeaderValue::from_raw(kind, value).unwrap();
            let message = IggyMessage::builder()
                .payload("payload".into())
                .user_headers(BTreeMap::from([(key, value)]))
                .build()
                .unwrap();
            message.user_headers.unwrap().to_vec()
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Payload and header block as Produce stores them, origin timestamp in microseconds.
fn store(record: Record, span_micros: Option<u64>) -> (Vec<u8>, Vec<u8>, u64) {
    let first = Record { timestamp_ms: 1_000, value: Some(b"first".to_vec()), ..Record::default() };
    let records = [first, record];
    let (_, frames) = produce(&build_batch(&records, Codec::None, None), &rules(span_micros)).unwrap();
    let frame = Frames::new(&frames).nth(1).unwrap();
    (frame.payload.to_vec(), frame.headers.to_vec(), frame.origin_micros)
}

fn record(value: Option<&[u8]>) -> Record {
    Record { timestamp_ms: 1_001, value: value.map(<[u8]>::to_vec), ..Record::default() }
}

const VERSION: Header<'_> = ("kafka.v", HeaderKind::Raw, &[1]);

#[test]
fn a_value_alone_is_stored_without_any_header() {
    let (payload, block, origin) = store(record(Some(b"v")), None);
    assert_eq!((payload, block, origin), (b"v".to_vec(), Vec::new(), 1_001_000));
}

#[test]
fn a_key_and_headers_in_their_order() {
    let keyed = Record {
        key: Some(b"k1".to_vec()),
        headers: vec![("b".into(), Some(b"2".to_vec())), ("a".into(), Some(vec![0xff]))],
        ..record(Some(b"v"))
    };
    let (payload, block, _) = store(keyed, None);
    let expected = golden(&[
        VERSION,
        ("kafka.key", HeaderKind::Raw, b"k1"),
        ("kafka.h.b", HeaderKind::Raw, b"2"),
        ("kafka.h.a", HeaderKind::Raw, &[0xff]),
    ]);
    assert_eq!((payload, hex(&block)), (b"v".to_vec(), hex(&expected)));
    assert_eq!(
        hex(&block),
        "02070000006b61666b612e76010100000001\
         02090000006b61666b612e6b657901020000006b31\
         02090000006b61666b612e682e62010100000032\
         02090000006b61666b612e682e610101000000ff"
    );
}

#[test]
fn a_key_alone_takes_the_same_form() {
    let (_, block, _) = store(Record { key: Some(vec![7; 255]), ..record(Some(b"v")) }, None);
    assert_eq!(hex(&block), hex(&golden(&[VERSION, ("kafka.key", HeaderKind::Raw, &[7; 255])])));
}

#[test]
fn null_and_empty_values() {
    for (value, name) in [(None, &b"null"[..]), (Some(&b""[..]), b"empty")] {
        let (payload, block, _) = store(record(value), None);
        let expected = golden(&[VERSION, ("kafka.value", HeaderKind::Raw, name)]);
        assert_eq!((payload, hex(&block)), (vec![0], hex(&expected)));
    }
    let (_, block, _) = store(record(None), None);
    assert_eq!(hex(&block), "02070000006b61666b612e76010100000001020b0000006b61666b612e76616c756501040000006e756c6c");
}

#[test]
fn the_epoch_and_times_out_of_the_window() {
    let span = Some(5_000);
    let far = 9_000i64;
    // The batch begins at 1,000 ms. The epoch and a missing time lie outside any window of real times: they move into
    // it when a window is needed, and stay origin 0 when none is.
    let cases = [(0, None, 0), (far, span, 1_005_000), (0, span, 1_000_000), (-1, span, 1_000_000)];
    for (time, span, origin) in cases {
        let (_, block, stored) = store(Record { timestamp_ms: time, ..record(Some(b"v")) }, span);
        assert_eq!((stored, hex(&block)), (origin, hex(&golden(&[VERSION, ts(&time.to_le_bytes())]))));
    }
    let (_, block, _) = store(Record { timestamp_ms: far, ..record(Some(b"v")) }, span);
    assert_eq!(hex(&block), "02070000006b61666b612e7601010000000102080000006b61666b612e747307080000002823000000000000");
}

fn ts(bytes: &[u8]) -> Header<'_> {
    ("kafka.ts", HeaderKind::Int64, bytes)
}

#[test]
fn an_envelope() {
    let odd = Record {
        key: Some(Vec::new()),
        headers: vec![("a".into(), None), ("a".into(), Some(b"x".to_vec()))],
        ..record(Some(b"vv"))
    };
    let (payload, block, _) = store(odd, None);
    assert_eq!(hex(&block), hex(&golden(&[VERSION, ("kafka.envelope", HeaderKind::Raw, &[1])])));
    assert_eq!(hex(&block), "02070000006b61666b612e76010100000001020e0000006b61666b612e656e76656c6f7065010100000001");
    assert_eq!(
        hex(&payload),
        "0300000000020000007676020000000100000061000000000001000000610101000000".to_owned() + "78"
    );
}

#[test]
fn the_engine_reads_what_is_stored() {
    let keyed = Record {
        key: Some(b"k".to_vec()),
        headers: vec![("trace".into(), Some(b"t".to_vec()))],
        timestamp_ms: 0,
        ..record(None)
    };
    let (payload, block, _) = store(keyed, None);
    let mut message = IggyMessage::builder().payload(payload.into()).build().unwrap();
    message.header.user_headers_length = u32::try_from(block.len()).unwrap();
    message.user_headers = Some(block.into());
    let map = message.user_headers_map().unwrap().unwrap();
    let value = |name: &str| map.get(&HeaderKey::try_from(name).unwrap()).unwrap();
    assert_eq!(map.len(), 5);
    assert_eq!(value("kafka.v").as_raw().unwrap(), [1]);
    assert_eq!(value("kafka.key").as_raw().unwrap(), b"k");
    assert_eq!(value("kafka.value").as_raw().unwrap(), b"null");
    assert_eq!(value("kafka.ts").as_int64().unwrap(), 0);
    assert_eq!(value("kafka.h.trace").as_raw().unwrap(), b"t");
}

#[test]
fn what_the_engine_writes_is_read_whatever_its_kind() {
    let block = golden(&[
        ("raw", HeaderKind::Raw, &[0, 1]),
        ("string", HeaderKind::String, b"s"),
        ("bool", HeaderKind::Bool, &[1]),
        ("int32", HeaderKind::Int32, &5i32.to_le_bytes()),
        ("uint128", HeaderKind::Uint128, &[9; 16]),
        ("float64", HeaderKind::Float64, &1.5f64.to_le_bytes()),
    ]);
    let mut frames = milena_store::frame::frame_header(1, 0, 1, u32::try_from(block.len()).unwrap()).to_vec();
    frames.push(b'v');
    frames.extend_from_slice(&block);
    let (encoded, records) = fetch(&[entry(0, 1, frames)], &fetch_options());
    assert_eq!(encoded.unmapped, 0);
    let names: Vec<_> = records[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["raw", "string", "bool", "int32", "uint128", "float64"]);
    assert_eq!(records[0].headers[3].1, Some(vec![5, 0, 0, 0]));
}
