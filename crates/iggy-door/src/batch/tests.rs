use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::responses::messages::poll_messages::PolledBatchesIterator;
use iggy_binary_protocol::{WireIdentifier, WirePartitioning};
use milena_store::testing::{TestMessage, batch_of};
use proptest::prelude::*;

use super::*;

fn sent(messages: &[TestMessage]) -> Vec<u8> {
    let raw: Vec<_> = messages
        .iter()
        .map(|message| RawMessage {
            id: message.id,
            origin_timestamp: message.origin_micros,
            headers: Some(&message.headers),
            payload: &message.payload,
        })
        .collect();
    let (stream, topic) = (WireIdentifier::numeric(0), WireIdentifier::numeric(0));
    let mut bytes = BytesMut::new();
    SendMessagesEncoder::encode(&mut bytes, &stream, &topic, &WirePartitioning::Balanced, &raw).unwrap();
    let metadata = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    bytes[4 + metadata..].to_vec()
}

fn entry(base_offset: u64, messages: &[TestMessage]) -> Entry {
    let count = u32::try_from(messages.len()).unwrap();
    Entry { base_offset, count, append_time_micros: 77, frames: batch_of(messages).frames }
}

/// Offsets and messages as a client reads them.
fn read(bytes: &[u8]) -> Vec<(u64, TestMessage)> {
    PolledBatchesIterator::new(bytes)
        .map(|message| {
            let message = message.unwrap();
            assert_eq!(message.timestamp, 77);
            let payload = message.payload.to_vec();
            let headers = message.user_headers.to_vec();
            let (id, origin_micros) = (message.id, message.origin_timestamp);
            (message.offset, TestMessage { id, origin_micros, payload, headers })
        })
        .collect()
}

const ALL: Room = Room { messages: u32::MAX, bytes: usize::MAX };

fn three() -> Vec<TestMessage> {
    vec![
        TestMessage { headers: b"\x02\x01\0\0\0k\x01\x01\0\0\0v".to_vec(), ..TestMessage::new(9, b"one").at(5_000) },
        TestMessage::new(8, b"two").at(4_000),
        TestMessage::new(7, b"three").at(6_000),
    ]
}

#[test]
fn a_batch_becomes_the_frames_of_its_messages() {
    let decoded = decode(&sent(&three()), 3).unwrap();
    let expected = batch_of(&three());
    assert_eq!(decoded.frames, expected.frames);
    assert_eq!((decoded.count, decoded.has_untimed), (3, false));
    assert_eq!((decoded.origin_min_micros, decoded.origin_max_micros), (4_000, 6_000));
}

#[test]
fn messages_without_a_time_are_noted() {
    let decoded = decode(&sent(&[TestMessage::new(1, b"x"), TestMessage::new(2, b"y").at(3)]), 2).unwrap();
    assert!(decoded.has_untimed);
    assert_eq!((decoded.origin_min_micros, decoded.origin_max_micros), (3, 3));
}

#[test]
fn a_batch_of_another_count_or_length_is_refused() {
    let bytes = sent(&three());
    let refused = Err(Refusal::Denied(Code::INVALID_COMMAND));
    assert_eq!(decode(&bytes, 2).map(drop), refused);
    assert_eq!(decode(&bytes[..bytes.len() - 1], 3).map(drop), refused);
    assert_eq!(decode(&[&bytes[..], b"x"].concat(), 3).map(drop), refused);
}

#[test]
fn a_flipped_byte_is_refused_with_the_code_of_its_checksum() {
    let mut bytes = sent(&three());
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(decode(&bytes, 3).unwrap_err(), Refusal::Denied(Code::INVALID_MESSAGE_CHECKSUM));
    let mut bytes = sent(&three());
    bytes[40] ^= 1;
    assert_eq!(decode(&bytes, 3).unwrap_err(), Refusal::Denied(Code::INVALID_BATCH_CHECKSUM));
}

#[test]
fn an_empty_payload_and_too_many_headers_are_refused() {
    let empty = sent(&[TestMessage::new(1, b"")]);
    assert_eq!(decode(&empty, 1).unwrap_err(), Refusal::Denied(Code::EMPTY_PAYLOAD));
    let at = TestMessage { headers: vec![1; HEADERS_BYTES_MAX], ..TestMessage::new(1, b"x") };
    assert!(decode(&sent(&[at]), 1).is_ok());
    let over = TestMessage { headers: vec![1; HEADERS_BYTES_MAX + 1], ..TestMessage::new(1, b"x") };
    assert_eq!(decode(&sent(&[over]), 1).unwrap_err(), Refusal::Denied(Code::TOO_BIG_HEADERS));
}

#[test]
fn an_entry_is_read_from_its_middle_with_its_offsets() {
    let mut bytes = BytesMut::new();
    let written = encode(&mut bytes, 4, &entry(100, &three()), 101, ALL, true);
    assert_eq!(written, Written { messages: 2, last_offset: 102, full: false });
    assert_eq!(read(&bytes), [(101, three()[1].clone()), (102, three()[2].clone())]);
    assert!(decode_batch_slice(&bytes).is_ok(), "the checksums are right");
}

#[test]
fn an_entry_that_spans_more_than_a_batch_can_say_becomes_several() {
    let far = vec![
        TestMessage::new(1, b"epoch"),
        TestMessage::new(2, b"now").at(1_700_000_000_000_000),
        TestMessage::new(3, b"later").at(1_700_000_000_000_000 + MAX_TIMESTAMP_DELTA_MICROS),
        TestMessage::new(4, b"too late").at(1_700_000_000_000_001 + MAX_TIMESTAMP_DELTA_MICROS),
    ];
    let mut bytes = BytesMut::new();
    assert_eq!(encode(&mut bytes, 0, &entry(0, &far), 0, ALL, true).messages, 4);
    let expected: Vec<_> = (0..).zip(far).collect();
    assert_eq!(read(&bytes), expected);
}

#[test]
fn room_ends_an_answer_but_never_before_its_first_message() {
    let none = Room { messages: 10, bytes: 0 };
    let mut bytes = BytesMut::new();
    let written = encode(&mut bytes, 0, &entry(0, &three()), 0, none, true);
    assert_eq!(written, Written { messages: 1, last_offset: 0, full: true });
    let mut bytes = BytesMut::new();
    assert_eq!(encode(&mut bytes, 0, &entry(0, &three()), 0, none, false).messages, 0);
    assert!(bytes.is_empty());
    let two = Room { messages: 2, bytes: usize::MAX };
    assert!(encode(&mut bytes, 0, &entry(0, &three()), 0, two, true).full);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_sent_is_what_is_polled(
        messages in prop::collection::vec(
            (any::<u128>(), 0..u64::from(u32::MAX), prop::collection::vec(any::<u8>(), 1..40),
             prop::collection::vec(any::<u8>(), 0..40)), 1..20),
        base in 0..u64::MAX / 2,
    ) {
        let messages: Vec<_> = messages.into_iter()
            .map(|(id, origin_micros, payload, headers)| TestMessage { id, origin_micros, payload, headers }).collect();
        let count = u32::try_from(messages.len()).unwrap();
        let frames = decode(&sent(&messages), count).unwrap().frames;
        let stored = Entry { base_offset: base, count, append_time_micros: 77, frames };
        let mut bytes = BytesMut::new();
        encode(&mut bytes, 1, &stored, base, ALL, true);
        let expected: Vec<_> = (base..).zip(messages).collect();
        prop_assert_eq!(read(&bytes), expected);
    }
}
