//! The mapping of records and messages, as Kafka clients and Iggy's SDK see it through one server: row by row, both ways.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod both_kit;
mod common;

use std::sync::Arc;

use both_kit::Both;
use bytes::Bytes;
use iggy::prelude::*;
use milena_records::client::{ProducerStamp, Record};
use milena_store::testing::{Layer, Layered, MemoryStore};
use milena_store::{Capabilities, Store};
use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::InitProducerIdRequest;

/// A time of records, in milliseconds.
const THEN: i64 = 1_700_000_000_123;
const HOUR: i64 = 3_600_000;
const RAW: u8 = 1;
const TEXT: u8 = 2;
const INT64: u8 = 7;

/// Name, kind and value of a user header.
type Header<'a> = (&'a str, u8, &'a [u8]);
/// Name and value of a record's header.
type RecordHeader<'a> = (&'a str, Option<&'a [u8]>);

/// Says which mapping it is; on every message with another header of ours.
const VERSION: Header<'_> = ("kafka.v", RAW, &[1]);
const ENVELOPE: Header<'_> = ("kafka.envelope", RAW, &[1]);

/// A block of user headers.
fn block(headers: &[Header<'_>]) -> Vec<u8> {
    let field =
        |kind: u8, bytes: &[u8]| [&[kind][..], &u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
    headers
        .iter()
        .flat_map(|(name, kind, value)| [field(TEXT, name.as_bytes()), field(*kind, value)].concat())
        .collect()
}

fn record(value: Option<&[u8]>) -> Record {
    Record { timestamp_ms: THEN, value: value.map(<[u8]>::to_vec), ..Record::default() }
}

fn keyed(key: &[u8], value: Option<&[u8]>) -> Record {
    Record { key: Some(key.to_vec()), ..record(value) }
}

fn headed(headers: &[RecordHeader<'_>]) -> Record {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)));
    Record { headers: headers.collect(), ..record(Some(b"v")) }
}

/// Payload and user headers.
type Stored = (Vec<u8>, Vec<u8>);

fn stored(payload: &[u8], headers: &[Header<'_>]) -> Stored {
    (payload.to_vec(), block(headers))
}

fn of(message: &IggyMessage) -> Stored {
    (message.payload.to_vec(), message.user_headers.clone().unwrap_or_default().to_vec())
}

/// An envelope whose key, value and headers may be missing.
fn envelope(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[RecordHeader<'_>]) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
    let mut out = vec![u8::from(key.is_some()) | u8::from(value.is_some()) << 1];
    out.extend(sized(key.unwrap_or_default()));
    out.extend(sized(value.unwrap_or_default()));
    out.extend(u32::try_from(headers.len()).unwrap().to_le_bytes());
    for (name, value) in headers {
        out.extend(sized(name.as_bytes()));
        out.push(u8::from(value.is_some()));
        out.extend(sized(value.unwrap_or_default()));
    }
    out
}

/// What an Iggy client polls of these records, which a Kafka client gets back as they were.
async fn polled(records: &[Record]) -> Vec<IggyMessage> {
    let mut both = Both::start().await;
    both.create_by_kafka("t").await;
    assert_eq!(both.produce("t", records).await, 0);
    let fetched = both.fetch("t", 0).await;
    let sent = (0..).zip(records).map(|(offset, record)| Record { offset, ..record.clone() });
    assert_eq!(fetched, sent.collect::<Vec<_>>());
    both.poll("t").await
}

async fn stored_of(records: &[Record]) -> Vec<Stored> {
    polled(records).await.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_null_present_up_to_255_bytes_or_in_an_envelope() {
    let long = [7; 256];
    let records = [
        record(Some(b"v")),
        keyed(b"k", Some(b"v")),
        keyed(&long[..255], Some(b"v")),
        keyed(b"", Some(b"v")),
        keyed(&long, Some(b"v")),
    ];
    let expected = [
        stored(b"v", &[]),
        stored(b"v", &[VERSION, ("kafka.key", RAW, b"k")]),
        stored(b"v", &[VERSION, ("kafka.key", RAW, &long[..255])]),
        stored(&envelope(Some(b""), Some(b"v"), &[]), &[VERSION, ENVELOPE]),
        stored(&envelope(Some(&long), Some(b"v"), &[]), &[VERSION, ENVELOPE]),
    ];
    assert_eq!(stored_of(&records).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_and_empty_values_are_one_byte_with_a_marker_also_with_a_key() {
    let records = [record(None), record(Some(b"")), keyed(b"gone", None), keyed(b"", None), record(Some(&[0]))];
    let expected = [
        stored(&[0], &[VERSION, ("kafka.value", RAW, b"null")]),
        stored(&[0], &[VERSION, ("kafka.value", RAW, b"empty")]),
        stored(&[0], &[VERSION, ("kafka.key", RAW, b"gone"), ("kafka.value", RAW, b"null")]),
        stored(&envelope(Some(b""), None, &[]), &[VERSION, ENVELOPE]),
        stored(&[0], &[]),
    ];
    assert_eq!(stored_of(&records).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_keep_their_order_and_those_that_fit_no_message_go_into_an_envelope() {
    let (value, name) = ([9; 256], "n".repeat(248));
    let odd: [&[RecordHeader<'_>]; 5] = [
        &[("a", None)],
        &[("a", Some(b""))],
        &[("a", Some(&value))],
        &[("a", Some(b"1")), ("b", Some(b"2")), ("a", Some(b"3"))],
        &[(&name, Some(b"x"))],
    ];
    let mut records =
        vec![headed(&[("b", Some(b"2")), ("a", Some(&value[..255]))]), headed(&[(&name[..247], Some(b"x"))])];
    records.extend(odd.map(headed));
    let longest = format!("kafka.h.{}", &name[..247]);
    let mut expected = vec![
        stored(b"v", &[VERSION, ("kafka.h.b", RAW, b"2"), ("kafka.h.a", RAW, &value[..255])]),
        stored(b"v", &[VERSION, (&longest, RAW, b"x")]),
    ];
    expected.extend(odd.map(|headers| stored(&envelope(None, Some(b"v"), headers), &[VERSION, ENVELOPE])));
    assert_eq!(stored_of(&records).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_over_100000_bytes_in_all_go_into_an_envelope() {
    let names: Vec<String> = (0..400).map(|number| format!("header-{number:03}")).collect();
    let all: Vec<RecordHeader<'_>> = names.iter().map(|name| (name.as_str(), Some(&[5; 255][..]))).collect();
    let messages = stored_of(&[headed(&all[..300]), headed(&all)]).await;
    assert_eq!(messages[0].0, b"v");
    assert_eq!(messages[1], stored(&envelope(None, Some(b"v"), &all), &[VERSION, ENVELOPE]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_are_origin_times_and_only_the_epoch_needs_a_header() {
    let at = |timestamp_ms| Record { timestamp_ms, ..record(Some(b"v")) };
    // An Iggy client could not send these in one batch: they lie further apart than 71.6 minutes.
    let messages = polled(&[at(THEN), at(THEN + 2 * HOUR), at(0), at(1)]).await;
    let origins: Vec<_> = messages.iter().map(|message| message.header.origin_timestamp).collect();
    let micros = |ms: i64| ms.cast_unsigned() * 1_000;
    assert_eq!(origins, [micros(THEN), micros(THEN + 2 * HOUR), 0, 1_000]);
    let epoch = [VERSION, ("kafka.ts", INT64, &[0; 8])];
    let expected = [stored(b"v", &[]), stored(b"v", &[]), stored(b"v", &epoch), stored(b"v", &[])];
    assert_eq!(messages.iter().map(of).collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_or_message_without_a_time_has_that_of_its_append() {
    let mut both = Both::start().await;
    both.create_by_kafka("t").await;
    both.produce("t", &[Record { timestamp_ms: -1, ..record(Some(b"v")) }]).await;
    let mut untimed = IggyMessage::from("w");
    untimed.header.origin_timestamp = 0;
    both.send("t", untimed).await;
    let messages = both.poll("t").await;
    assert_eq!(of(&messages[0]), stored(b"v", &[]));
    for (message, record) in messages.iter().zip(both.fetch("t", 0).await) {
        assert_eq!(message.header.origin_timestamp, 0);
        assert_eq!(record.timestamp_ms.cast_unsigned(), message.header.timestamp / 1_000);
    }
}

/// A store that takes in one append what an Iggy server does.
struct Narrow(MemoryStore);

impl Layer for Narrow {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { timestamp_span_micros: Some(u64::from(u32::MAX)), ..self.0.capabilities() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_outside_the_span_of_the_store_are_clamped_and_told_by_a_header() {
    let store = Arc::new(Layered(Narrow(MemoryStore::new())));
    let mut both = Both::over(TestServer::builder().store(store).only("its span is the test").start().await).await;
    both.create_by_kafka("t").await;
    let times = [THEN, THEN + 2 * HOUR, 0, -1];
    let records = times.map(|timestamp_ms| Record { timestamp_ms, ..record(Some(b"v")) });
    both.produce("t", &records).await;
    let messages = both.poll("t").await;
    let first = THEN.cast_unsigned() * 1_000;
    let origins: Vec<_> = messages.iter().map(|message| message.header.origin_timestamp).collect();
    assert_eq!(origins, [first, first + u64::from(u32::MAX), first, first]);
    let told: Vec<_> =
        times.iter().map(|time| stored(b"v", &[VERSION, ("kafka.ts", INT64, &time.to_le_bytes())])).collect();
    assert_eq!(of(&messages[0]), stored(b"v", &[]));
    assert_eq!(messages[1..].iter().map(of).collect::<Vec<_>>(), told[1..]);
    let fetched: Vec<_> = both.fetch("t", 0).await.iter().map(|record| record.timestamp_ms).collect();
    let appended = i64::try_from(messages[3].header.timestamp / 1_000).unwrap();
    assert_eq!(fetched, [THEN, THEN + 2 * HOUR, 0, appended]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_a_message_holds_producer_epoch_and_sequence() {
    let mut both = Both::start().await;
    both.create_by_kafka("t").await;
    let answer = both.kafka.request(4, &InitProducerIdRequest::default().with_transactional_id(None)).await;
    let producer_id = answer.producer_id.0;
    let producer = ProducerStamp { producer_id, epoch: 0, base_sequence: 0 };
    both.produce_as(Some(producer), "t", &[record(Some(b"v")), record(Some(b"w"))]).await;
    let ids: Vec<u128> = both.poll("t").await.iter().map(|message| message.header.id).collect();
    for (sequence, id) in (0..).zip(ids) {
        let (marker, producer, epoch) = (id >> 126, id >> 63 & u128::from(u64::MAX >> 1), id >> 48 & 0x7fff);
        assert_eq!((marker, producer, epoch), (1, u128::try_from(producer_id).unwrap(), 0));
        assert_eq!(id >> 17 & 0x7fff_ffff, sequence);
    }
}

fn message(payload: &[u8], headers: Vec<u8>) -> IggyMessage {
    let mut message = IggyMessage::builder().payload(Bytes::copy_from_slice(payload)).build().unwrap();
    message.header.origin_timestamp = THEN.cast_unsigned() * 1_000 + 999;
    message.header.user_headers_length = u32::try_from(headers.len()).unwrap();
    message.user_headers = Some(Bytes::from(headers));
    message
}

/// What a Kafka client fetches of messages that an Iggy client sends.
async fn fetched(messages: Vec<IggyMessage>) -> Vec<Record> {
    let mut both = Both::start().await;
    both.create_by_iggy("kafka", "t", 1).await;
    for message in messages {
        both.send("t", message).await;
    }
    both.fetch("t", 0).await.into_iter().map(|record| Record { offset: 0, ..record }).collect()
}

async fn fetched_of(messages: &[(&[u8], &[Header<'_>])]) -> Vec<Record> {
    fetched(messages.iter().map(|(payload, headers)| message(payload, block(headers))).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_iggy_producer_gives_its_messages_keys_headers_values_and_times() {
    let time = (THEN + 5).to_le_bytes();
    let wrapped = envelope(Some(b""), Some(b"w"), &[("a", None), ("a", Some(b""))]);
    let records = fetched_of(&[
        (b"v", &[("kafka.key", RAW, b"k"), ("kafka.h.b", RAW, b"2"), ("kafka.h.a", RAW, b"1")]),
        (&[0], &[("kafka.key", TEXT, b"gone"), ("kafka.value", RAW, b"null")]),
        (&[0], &[VERSION, ("kafka.value", RAW, b"empty")]),
        (b"v", &[("kafka.ts", INT64, &time)]),
        (&wrapped, &[VERSION, ENVELOPE]),
    ])
    .await;
    let expected = [
        Record { key: Some(b"k".to_vec()), ..headed(&[("b", Some(b"2")), ("a", Some(b"1"))]) },
        keyed(b"gone", None),
        record(Some(b"")),
        Record { timestamp_ms: THEN + 5, ..record(Some(b"v")) },
        Record { key: Some(Vec::new()), value: Some(b"w".to_vec()), ..headed(&[("a", None), ("a", Some(b""))]) },
    ];
    assert_eq!(records, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_an_iggy_producers_own_have_their_names_and_bytes_whatever_their_kind() {
    let five = 5i32.to_le_bytes();
    let own: &[Header<'_>] =
        &[("text", TEXT, b"t"), ("bool", 3, &[1]), ("int32", 6, &five), ("raw", RAW, &[0xff]), ("text", RAW, b"u")];
    let records = fetched_of(&[(b"v", own)]).await;
    let expected: Vec<_> = own.iter().map(|(name, _, value)| (*name, Some(*value))).collect();
    assert_eq!(records, [headed(&expected)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_markers_make_no_sense_is_fetched_as_it_is_stored() {
    let cut = &envelope(None, Some(b"w"), &[])[..12];
    let odd: &[(&[u8], &[Header<'_>])] = &[
        (b"v", &[("kafka.value", RAW, b"null")]),
        (&[0], &[("kafka.value", RAW, b"nil")]),
        (b"v", &[("kafka.ts", INT64, &[1, 2, 3, 4])]),
        (cut, &[VERSION, ENVELOPE]),
        (b"v", &[("kafka.envelope", RAW, &[2])]),
        (b"v", &[("kafka.v", RAW, &[2]), ("kafka.key", RAW, b"k")]),
        (b"v", &[("kafka.key", RAW, b"k"), ("kafka.key", RAW, b"l")]),
    ];
    let expected = odd.iter().map(|(payload, headers)| {
        let headers: Vec<_> = headers.iter().map(|(name, _, value)| (*name, Some(*value))).collect();
        Record { value: Some(payload.to_vec()), ..headed(&headers) }
    });
    assert_eq!(fetched_of(odd).await, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_none_cost_a_message_nothing_but_its_headers() {
    let whole = block(&[("kafka.key", RAW, b"k")]);
    let records = fetched(vec![message(b"v", vec![9]), message(b"w", whole[..whole.len() - 1].to_vec())]).await;
    assert_eq!(records, [record(Some(b"v")), record(Some(b"w"))]);
}
