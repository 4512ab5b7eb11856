use bytes::BytesMut;
use iggy_binary_protocol::batch::{BATCH_HEADER_SIZE, BatchHeader};
use iggy_binary_protocol::codec::WireEncode;
use milena_store::TopicRef;
use milena_store::frame::Frames;
use milena_store::testing::{TestMessage, batch_of};
use proptest::prelude::*;

use super::*;
use crate::names::Names;
use crate::send;

const ALL: ReadLimit = ReadLimit { bytes: usize::MAX, at_least_one: true };

/// A batch as the server stores it: what a producer sent, with offset and append time filled in.
fn stored(base_offset: u64, append_time: u64, messages: &[TestMessage]) -> Vec<u8> {
    let at = TopicRef::new("a", "t", 0, 0, 0).partition(0);
    let body = send::encode(&Names::new("s"), &at, &batch_of(messages)).unwrap();
    let metadata = 4 + u32::from_le_bytes(*body.first_chunk::<4>().unwrap()) as usize;
    let mut bytes = body[metadata..].to_vec();
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.base_offset = base_offset;
    header.base_timestamp = append_time;
    header.encode_into(&mut bytes[..BATCH_HEADER_SIZE]);
    bytes
}

fn reply(batches: &[Vec<u8>]) -> Bytes {
    let mut body = BytesMut::new();
    PollMessagesResponseHeader { partition_id: 0, current_offset: 0, messages_count: 0 }.encode(&mut body);
    for batch in batches {
        body.extend_from_slice(batch);
    }
    body.freeze()
}

fn messages(polled: &Polled) -> Vec<(u64, u64, TestMessage)> {
    let mut all = Vec::new();
    for entry in &polled.entries {
        let frames: Vec<_> = Frames::new(&entry.frames).collect();
        assert_eq!(frames.len(), entry.count as usize);
        for (offset, frame) in (entry.base_offset..).zip(frames) {
            let (payload, headers) = (frame.payload.to_vec(), frame.headers.to_vec());
            let message = TestMessage { id: frame.id, origin_micros: frame.origin_micros, payload, headers };
            all.push((offset, entry.append_time_micros, message));
        }
    }
    all
}

fn numbered(range: std::ops::Range<u64>) -> Vec<TestMessage> {
    range.map(|number| TestMessage::new(number.into(), &[1; 100]).at(number)).collect()
}

#[test]
fn every_batch_is_an_entry_with_its_own_append_time() {
    let body = reply(&[stored(10, 5_000, &numbered(10..12)), stored(12, 6_000, &numbered(12..13))]);
    let polled = decode(&body, 10, ALL);
    let entries: Vec<_> =
        polled.entries.iter().map(|entry| (entry.base_offset, entry.count, entry.append_time_micros)).collect();
    assert_eq!(entries, [(10, 2, 5_000), (12, 1, 6_000)]);
    assert_eq!((polled.damage, polled.cut, polled.first, polled.messages), (None, false, Some(10), 3));
}

#[test]
fn messages_below_the_wanted_offset_are_left_out() {
    let body = reply(&[stored(10, 5_000, &numbered(10..14))]);
    let polled = decode(&body, 12, ALL);
    assert_eq!(polled.entries.first().map(|entry| (entry.base_offset, entry.count)), Some((12, 2)));
    assert_eq!(polled.first, Some(12), "what is below the wanted one says nothing of what is missing");
}

#[test]
fn a_limit_cuts_between_messages() {
    let body = reply(&[stored(0, 1, &numbered(0..4)), stored(4, 2, &numbered(4..6))]);
    let limit = ReadLimit { bytes: 3 * 132 + 131, at_least_one: true };
    let polled = decode(&body, 0, limit);
    assert_eq!(messages(&polled).len(), 3);
    assert!(polled.cut);
    assert_eq!(polled.messages, 6, "what was left out counts for the size of messages");
    assert_eq!(messages(&decode(&body, 0, ReadLimit { bytes: 1, at_least_one: true })).len(), 1);
    assert_eq!(messages(&decode(&body, 0, ReadLimit { bytes: 131, at_least_one: false })).len(), 0);
}

#[test]
fn a_damaged_message_ends_the_answer_before_it() {
    let mut batch = stored(0, 1, &numbered(0..4));
    let at = batch.len() - 1;
    batch[at] ^= 1;
    let polled = decode(&reply(&[batch]), 0, ALL);
    assert_eq!(messages(&polled).len(), 3);
    assert!(polled.damage.unwrap().contains("offset 3"));
}

#[test]
fn a_gap_ends_the_answer_before_it() {
    let polled = decode(&reply(&[stored(0, 1, &numbered(0..2)), stored(3, 2, &numbered(3..4))]), 0, ALL);
    assert_eq!(messages(&polled).len(), 2);
    assert!(polled.damage.is_some());
}

#[test]
fn an_empty_reply_is_empty() {
    let polled = decode(&reply(&[]), 7, ALL);
    assert!(polled.entries.is_empty() && polled.damage.is_none() && polled.first.is_none());
    assert!(decode(&Bytes::new(), 7, ALL).damage.is_some());
}

fn message() -> impl Strategy<Value = TestMessage> {
    let bytes = |size| proptest::collection::vec(any::<u8>(), size);
    (any::<u128>(), 0..1_000_000_000u64, bytes(1..100usize), bytes(0..100usize))
        .prop_map(|(id, origin_micros, payload, headers)| TestMessage { id, origin_micros, payload, headers })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_sent_is_read_back_byte_for_byte(
        batches in proptest::collection::vec(proptest::collection::vec(message(), 1..6), 1..6),
        base in 0..1_000_000u64,
    ) {
        let mut offset = base;
        let (mut bodies, mut expected) = (Vec::new(), Vec::new());
        for (number, batch) in (1u64..).zip(&batches) {
            bodies.push(stored(offset, number, batch));
            expected.extend((offset..).zip(batch).map(|(offset, message)| (offset, number, message.clone())));
            offset += batch.len() as u64;
        }
        prop_assert_eq!(messages(&decode(&reply(&bodies), base, ALL)), expected);
    }

    #[test]
    fn no_reply_makes_it_panic(
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        keep in any::<usize>(),
        from in any::<u64>(),
        limit in 0..2_000usize,
    ) {
        let mut body = reply(&[stored(3, 1, &numbered(3..6)), stored(6, 2, &numbered(6..8))]).to_vec();
        for (at, value) in flips {
            let at = at % body.len();
            body[at] = value;
        }
        body.truncate(keep % (body.len() + 1));
        let polled = decode(&Bytes::from(body), from, ReadLimit { bytes: limit, at_least_one: true });
        messages(&polled);
    }
}
