//! Messages: sends, polls, segments, purges.

use bytes::BytesMut;
use iggy_binary_protocol::batch::{
    BATCH_HEADER_SIZE, BATCH_MESSAGE_HEADER_SIZE, BatchHeader, calculate_batch_checksum,
};
use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::messages::{PollMessagesRequest, RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::requests::segments::DeleteSegmentsRequest;
use iggy_binary_protocol::{
    WireConsumer, WireIdentifier, WireOptions, WirePartitioning as To, WirePollingStrategy as From,
};
use xxhash_rust::xxh3::xxh3_64;

use super::admin::topic;
use super::groups::{delete, get, store};
use super::{Script, What, bytes, ids, named, text_options};

/// A time in 2023, in microseconds: the origin of messages that have one.
const THEN: u64 = 1_700_000_000_000_000;

/// The longest distance of two times in one batch.
const SPREAD: u64 = u32::MAX as u64;

fn message(id: u128, origin_timestamp: u64, payload: &[u8]) -> RawMessage<'_> {
    RawMessage { id, origin_timestamp, headers: None, payload }
}

fn batch(stream: &str, topic: &str, to: &To, messages: &[RawMessage<'_>]) -> Vec<u8> {
    let mut body = BytesMut::new();
    SendMessagesEncoder::encode(&mut body, &named(stream), &named(topic), to, messages).unwrap();
    body.to_vec()
}

/// A batch to the first partition of the topic of this script.
pub(super) fn to_first(topic: &str, messages: &[RawMessage<'_>]) -> Vec<u8> {
    batch("s", topic, &To::PartitionId(0), messages)
}

/// One message with this payload.
pub(super) fn plain(topic: &str, payload: &[u8]) -> Vec<u8> {
    to_first(topic, &[message(0, 0, payload)])
}

/// The same to a partition.
pub(super) fn plain_to(topic: &str, partition: u32, payload: &[u8]) -> Vec<u8> {
    batch("s", topic, &To::PartitionId(partition), &[message(0, 0, payload)])
}

pub(super) fn sends(script: &mut Script) {
    let send = Operation::SendMessages;
    script.does("create a topic for messages", Operation::CreateTopic, topic("s", "m", 2, WireOptions::empty()));
    script.does("send one message", send, plain("m", b"one"));
    let headers: &[u8] =
        b"\x02\x01\0\0\0k\x02\x01\0\0\0v\x02\x01\0\0\0a\x01\x02\0\0\0\0\xff\x02\x01\0\0\0k\x01\x01\0\0\0w";
    let many = [
        message(1, THEN, b"two"),
        message(u128::MAX, THEN + SPREAD, b"three"),
        RawMessage { id: 3, origin_timestamp: THEN + 1, headers: Some(headers), payload: b"four" },
        message(1, THEN, b"five"),
    ];
    script.does("send messages with ids, times and headers", send, to_first("m", &many));
    script.does("send without ids and times", send, to_first("m", &[message(0, 0, b"six"), message(0, 0, b"seven")]));
    script.again("send under the same number");
    for number in 0..3 {
        let body = batch("s", "m", &To::Balanced, &[message(9, 0, b"balanced")]);
        script.does(&format!("send balanced {number}"), send, body);
    }
    for key in ["a", "b", "c", "order-7", "\u{0}"] {
        let to = To::messages_key(key.as_bytes().to_vec()).unwrap();
        script.does(&format!("send by key {key:?}"), send, batch("s", "m", &to, &[message(9, 0, b"keyed")]));
    }
    let by_number = {
        let mut body = BytesMut::new();
        let (stream, topic) = (WireIdentifier::numeric(0), named("m"));
        SendMessagesEncoder::encode(&mut body, &stream, &topic, &To::PartitionId(1), &[message(0, 0, b"x")]).unwrap();
        body.to_vec()
    };
    script.does("send to a stream by number", send, by_number);
    let header = [b"\x02\xff\0\0\0".as_slice(), &[b'k'; 255], b"\x01\xff\0\0\0", &[b'v'; 255]].concat();
    let large = RawMessage { id: 0, origin_timestamp: 0, headers: Some(&header), payload: &[b'p'; 5_000] };
    script.does("send a message with long headers", send, to_first("m", &[large]));
    script.asks("a topic with messages", code::GET_TOPIC_CODE, ids(&["s", "m"]));
}

pub(super) fn refused_sends(script: &mut Script) {
    let send = Operation::SendMessages;
    let one = [message(0, 0, b"x")];
    script.does("create a topic to refuse", Operation::CreateTopic, topic("s", "r", 1, WireOptions::empty()));
    let nowhere = [
        ("send to no partition", batch("s", "r", &To::PartitionId(9), &one)),
        ("send to no topic", batch("s", "none", &To::PartitionId(0), &one)),
        ("send to no stream", batch("none", "r", &To::PartitionId(0), &one)),
        ("send balanced to no topic", batch("s", "none", &To::Balanced, &one)),
    ];
    for (name, body) in nowhere {
        script.does(name, send, body);
    }
    let good = plain("r", b"x");
    let split = good.len() - BATCH_HEADER_SIZE - BATCH_MESSAGE_HEADER_SIZE - 1;
    let changed = |at: usize, byte: u8| {
        let mut body = good.clone();
        body[split + at] = byte;
        body
    };
    let headers = vec![b'h'; 100_001];
    let too_large = RawMessage { id: 0, origin_timestamp: 0, headers: Some(&headers), payload: b"x" };
    let bad = [
        ("no message", empty_batch(&good[..split])),
        ("another number of messages", [&good[..split - 4], &[2, 0, 0, 0], &good[split..]].concat()),
        ("an empty payload", to_first("r", &[message(0, 0, b"")])),
        ("user headers of 100001 bytes", to_first("r", &[too_large])),
        (
            "user headers that are none",
            to_first("r", &[RawMessage { headers: Some(b"\x09"), ..message(0, 0, b"odd") }]),
        ),
        ("a byte of the payload changed", changed(BATCH_HEADER_SIZE + BATCH_MESSAGE_HEADER_SIZE, b'y')),
        ("a byte of the batch header changed", changed(24, 1)),
        ("a checksum of a message changed", recalculated(&good, split, |batch| batch[BATCH_HEADER_SIZE] ^= 1)),
        ("an offset of a message changed", recalculated(&good, split, |batch| batch[BATCH_HEADER_SIZE + 24] = 5)),
        ("bytes behind the batch", [good.clone(), vec![0; 3]].concat()),
        ("half a batch", good[..good.len() - 20].to_vec()),
        ("no batch", good[..split].to_vec()),
    ];
    // Each on a connection of its own: the server may have nothing to say, or hang up.
    for (on, (name, body)) in ('m'..).zip(bad) {
        script.on(on);
        script.does(&format!("send with {name}"), send, body);
    }
    script.on('a');
    script.does("send after refused sends", send, plain("r", b"good"));
    script.asks("a topic after refused sends", code::GET_TOPIC_CODE, ids(&["s", "r"]));
}

fn empty_batch(start: &[u8]) -> Vec<u8> {
    let mut header = BatchHeader::new(0, 0, BATCH_HEADER_SIZE as u64, 0);
    header.batch_checksum = calculate_batch_checksum(&header, &[]);
    let mut batch = vec![0; BATCH_HEADER_SIZE];
    header.encode_into(&mut batch);
    [&start[..start.len() - 4], &[0; 4], &batch].concat()
}

/// A batch of one message with a change, whose checksums are right again except for what was changed.
fn recalculated(good: &[u8], split: usize, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut body = good.to_vec();
    let batch = &mut body[split..];
    change(batch);
    let message = &batch[BATCH_HEADER_SIZE..];
    if message[24] != 0 {
        let sum = xxh3_64(&message[8..]);
        batch[BATCH_HEADER_SIZE..BATCH_HEADER_SIZE + 8].copy_from_slice(&sum.to_le_bytes());
    }
    let mut header = BatchHeader::decode(batch).unwrap();
    header.batch_checksum = calculate_batch_checksum(&header, &batch[BATCH_HEADER_SIZE..]);
    header.encode_into(&mut batch[..BATCH_HEADER_SIZE]);
    body
}

pub(super) fn poll(topic: &str, partition: Option<u32>, strategy: From, count: u32, auto_commit: bool) -> Vec<u8> {
    poll_as(WireConsumer::consumer(named("reader")), topic, partition, strategy, count, auto_commit)
}

pub(super) fn poll_as(
    consumer: WireConsumer,
    topic: &str,
    partition_id: Option<u32>,
    strategy: From,
    count: u32,
    auto_commit: bool,
) -> Vec<u8> {
    let (stream_id, topic_id) = (named("s"), named(topic));
    bytes(&PollMessagesRequest { consumer, stream_id, topic_id, partition_id, strategy, count, auto_commit })
}

pub(super) fn polls(script: &mut Script) {
    let first = Some(0);
    let steps = [
        ("from the first", poll("m", first, From::first(), 20, false)),
        ("one from the first", poll("m", first, From::first(), 1, false)),
        ("from an offset", poll("m", first, From::offset(2), 2, false)),
        ("from the last offset", poll("m", first, From::offset(7), 20, false)),
        ("from behind the end", poll("m", first, From::offset(5_000), 20, false)),
        ("the last two", poll("m", first, From::last(), 2, false)),
        ("the last thousand", poll("m", first, From::last(), 1_000, false)),
        ("what is next for a consumer without an offset", poll("m", first, From::next(), 2, false)),
        ("what is next with auto commit", poll("m", first, From::next(), 2, true)),
        ("what is next after an auto commit", poll("m", first, From::next(), 1, false)),
        ("from an offset with auto commit", poll("m", first, From::offset(1), 1, true)),
        ("what is next after a commit further back", poll("m", first, From::next(), 1, true)),
        ("from the beginning of time", poll("m", first, From::timestamp(0), 1, false)),
        ("from the origin time of a message", poll("m", first, From::timestamp(THEN + 1), 1, false)),
        ("from the end of time", poll("m", first, From::timestamp(u64::MAX), 1, false)),
        ("no message", poll("m", first, From::first(), 0, false)),
        ("with no partition named", poll("m", None, From::first(), 1, false)),
        ("a partition that is none", poll("m", Some(9), From::first(), 1, false)),
        ("a topic that is none", poll("none", first, From::first(), 1, false)),
        ("an empty partition", poll("t", first, From::first(), 5, false)),
        ("the next of an empty partition", poll("t", first, From::next(), 5, true)),
        ("a strategy that is none", poll("m", first, From { kind: 9, value: 0 }, 1, false)),
        (
            "a kind of consumer that is none",
            poll_as(
                WireConsumer { kind: 7, ..WireConsumer::consumer(named("x")) },
                "m",
                first,
                From::first(),
                1,
                false,
            ),
        ),
        (
            "for a group that is none",
            poll_as(WireConsumer::consumer_group(named("none")), "m", first, From::first(), 1, false),
        ),
    ];
    for (name, body) in steps {
        script.asks(&format!("poll {name}"), code::POLL_MESSAGES_CODE, body);
    }
}

pub(super) fn segments(script: &mut Script) {
    let options = text_options(&[("segment_size", "1 MiB"), ("messages_required_to_save", "1")]);
    script.does("create a topic for segments", Operation::CreateTopic, topic("s", "g", 1, options));
    for number in 0..5u8 {
        let payload = vec![b'0' + number; 600 << 10];
        script.does(&format!("send a large message {number}"), Operation::SendMessages, plain("g", &payload));
    }
    let delete = |topic: &str, partition_id, segments_count| {
        let (stream_id, topic_id) = (named("s"), named(topic));
        let request = DeleteSegmentsRequest { stream_id, topic_id, partition_id, segments_count };
        (Operation::DeleteSegments, bytes(&request))
    };
    let steps = [
        ("delete no segment", delete("g", 0, 0)),
        ("delete segments of no partition", delete("g", 7, 1)),
        ("delete segments of no topic", delete("none", 0, 1)),
        ("delete a segment of an empty partition", delete("t", 0, 1)),
        ("delete a segment", delete("g", 0, 1)),
    ];
    for (name, (operation, body)) in steps {
        script.does(name, operation, body);
    }
    script.settle(1_000);
    script.asks(
        "poll below the first that is left",
        code::POLL_MESSAGES_CODE,
        poll("g", Some(0), From::offset(0), 1, false),
    );
    let (operation, body) = delete("g", 0, 1_000);
    script.does("delete more segments than there are", operation, body);
    script.settle(1_000);
    script.asks(
        "poll the last after all that can go",
        code::POLL_MESSAGES_CODE,
        poll("g", Some(0), From::last(), 1, false),
    );
    script.does("delete the topic for segments", Operation::DeleteTopic, ids(&["s", "g"]));
}

pub(super) fn purges(script: &mut Script) {
    let send = Operation::SendMessages;
    script.does("create a topic to purge", Operation::CreateTopic, topic("s", "u", 1, WireOptions::empty()));
    script.does("send before a purge", send, to_first("u", &[message(1, 0, b"a"), message(2, 0, b"b")]));
    let next = || poll("u", Some(0), From::next(), 1, true);
    script.asks("poll and commit before a purge", code::POLL_MESSAGES_CODE, next());
    script.does("purge a topic", Operation::PurgeTopic, ids(&["s", "u"]));
    script.settle(1_000);
    script.asks("a purged topic", code::GET_TOPIC_CODE, ids(&["s", "u"]));
    script.asks("poll a purged topic", code::POLL_MESSAGES_CODE, next());
    script.does("send after a purge", send, plain("u", b"c"));
    script.asks("poll after a purge and a send", code::POLL_MESSAGES_CODE, next());
    script.does("purge a topic that is none", Operation::PurgeTopic, ids(&["s", "none"]));
    script.does("delete the purged topic", Operation::DeleteTopic, ids(&["s", "u"]));
}

/// More messages than one answer of the door may hold.
pub(super) fn large_polls(script: &mut Script) {
    script.does("create a topic for large polls", Operation::CreateTopic, topic("s", "l", 1, WireOptions::empty()));
    for number in 0..4u8 {
        let payload = vec![b'0' + number; 900 << 10];
        script.does(&format!("send a larger message {number}"), Operation::SendMessages, plain("l", &payload));
    }
    let steps = [
        ("one large message", poll("l", Some(0), From::first(), 1, false)),
        ("many large messages", poll("l", Some(0), From::first(), 4, false)),
        ("many large messages with auto commit", poll("l", Some(0), From::next(), 4, true)),
        ("what is next after many large messages", poll("l", Some(0), From::next(), 4, false)),
    ];
    for (name, body) in steps {
        script.asks(&format!("poll {name}"), code::POLL_MESSAGES_CODE, body);
    }
    script.does("delete the topic for large polls", Operation::DeleteTopic, ids(&["s", "l"]));
}

/// Requests that do not wait for the answers to those before.
pub(super) fn at_once(script: &mut Script) {
    let options = text_options(&[("messages_required_to_save", "1"), ("enforce_fsync", "true")]);
    script.does("create a topic for requests at once", Operation::CreateTopic, topic("s", "once", 1, options));
    let send = |payload: &[u8]| (What::Operation(Operation::SendMessages), plain("once", payload));
    let ping = || (What::Command(code::PING_CODE), Vec::new());
    script.at_once("three sends at once", vec![send(b"0"), send(b"1"), send(b"2")]);
    script.at_once("a send and a ping at once", vec![send(&[b'3'; 512 << 10]), ping()]);
    script.asks("poll what was sent at once", code::POLL_MESSAGES_CODE, poll("once", Some(0), From::first(), 9, false));
    script.does("delete the topic for requests at once", Operation::DeleteTopic, ids(&["s", "once"]));
}

/// Messages that expire, with and without a stored offset before them.
pub(super) fn retention(script: &mut Script) {
    let reader = WireConsumer::consumer(named("slow"));
    let from_first = || poll("e", Some(0), From::first(), 1, false);
    let options =
        text_options(&[("segment_size", "1 MiB"), ("messages_required_to_save", "1"), ("message_expiry", "100ms")]);
    script.does("create a topic whose messages expire", Operation::CreateTopic, topic("s", "e", 1, options));
    script.does("send a message that is read", Operation::SendMessages, plain("e", b"read"));
    script.does(
        "store an offset of messages that expire",
        Operation::StoreConsumerOffset,
        store(&reader, "e", Some(0), 0),
    );
    for number in 0..4u8 {
        let payload = vec![b'0' + number; 700 << 10];
        script.does(&format!("send a message that expires {number}"), Operation::SendMessages, plain("e", &payload));
    }
    script.settle(3_000);
    script.wait(2_000);
    script.asks("poll what expired behind a stored offset", code::POLL_MESSAGES_CODE, from_first());
    script.asks("get an offset of messages that expired", code::GET_CONSUMER_OFFSET_CODE, get(&reader, "e", Some(0)));
    script.does(
        "delete the offset of messages that expired",
        Operation::DeleteConsumerOffset,
        delete(&reader, "e", Some(0)),
    );
    script.settle(3_000);
    script.asks("poll what expired without a stored offset", code::POLL_MESSAGES_CODE, from_first());
    script.does("delete the topic whose messages expire", Operation::DeleteTopic, ids(&["s", "e"]));
}
