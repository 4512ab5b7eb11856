//! A frame block as the body of the server's send command, and the reply to it.
//!
//! The block is written into the request in one pass, which is the only copy of the payloads: message ids, origin
//! timestamps and raw user-header blocks go as they are. The server keeps and serves them byte for byte.

use bytes::{Bytes, BytesMut};
use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::{WireIdentifier, WirePartitioning};
use iggy_common::{IggyError, decode_send_confirmations};
use milena_store::frame::Frames;
use milena_store::{AppendBatch, PartitionRef, StoreError};

use crate::limits;
use crate::names::Names;

/// The body of the command that appends `batch` at `at`.
///
/// # Errors
/// [`StoreError::Refused`] for what the server does not take: it would answer some of these by closing the connection.
pub(crate) fn encode(names: &Names, at: &PartitionRef, batch: &AppendBatch) -> Result<Bytes, StoreError> {
    let span = origin_span(batch);
    if span > limits::TIMESTAMP_SPAN_MICROS {
        return Err(refused("the span of timestamps in microseconds", span, limits::TIMESTAMP_SPAN_MICROS));
    }
    let mut frames = Frames::new(&batch.frames);
    let mut messages = Vec::with_capacity(batch.count.min(1 << 20) as usize);
    for frame in frames.by_ref() {
        check_frame(frame.payload.len(), frame.headers.len())?;
        messages.push(RawMessage {
            id: frame.id,
            origin_timestamp: frame.origin_micros,
            headers: Some(frame.headers).filter(|headers| !headers.is_empty()),
            payload: frame.payload,
        });
    }
    if frames.is_damaged() || messages.is_empty() || messages.len() as u64 != u64::from(batch.count) {
        return Err(refused("whole frames in the block", messages.len() as u64, u64::from(batch.count)));
    }
    let (stream, topic) = names.wire(&at.topic)?;
    let partitioning = WirePartitioning::PartitionId(at.partition);
    let size = SendMessagesEncoder::encoded_size(&stream, &topic, &partitioning, &messages);
    let size_max = limits::REQUEST_BYTES_MAX;
    if size > size_max {
        return Err(refused("a batch in bytes", size as u64, size_max as u64));
    }
    encode_messages(size, &stream, &topic, &partitioning, &messages)
}

fn encode_messages(
    size: usize,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
    partitioning: &WirePartitioning,
    messages: &[RawMessage<'_>],
) -> Result<Bytes, StoreError> {
    let mut body = BytesMut::with_capacity(size);
    match SendMessagesEncoder::encode(&mut body, stream, topic, partitioning, messages) {
        Ok(()) => Ok(body.freeze()),
        // The summary of the batch was wrong; the encoder looks at the messages themselves.
        Err(_) => Err(refused("the span of timestamps in microseconds", u64::MAX, limits::TIMESTAMP_SPAN_MICROS)),
    }
}

fn check_frame(payload: usize, headers: usize) -> Result<(), StoreError> {
    if payload == 0 {
        return Err(StoreError::Unsupported { what: "a message with an empty payload" });
    }
    if payload > limits::PAYLOAD_BYTES_MAX {
        return Err(refused("a payload in bytes", payload as u64, limits::PAYLOAD_BYTES_MAX as u64));
    }
    if headers > limits::HEADER_BYTES_MAX {
        return Err(refused("the user headers in bytes", headers as u64, limits::HEADER_BYTES_MAX as u64));
    }
    Ok(())
}

/// The server counts an origin timestamp of 0 like any other.
fn origin_span(batch: &AppendBatch) -> u64 {
    let low = if batch.has_untimed { 0 } else { batch.origin_min_micros };
    batch.origin_max_micros.saturating_sub(low)
}

fn refused(what: &'static str, actual: u64, limit: u64) -> StoreError {
    StoreError::Refused { what, actual, limit }
}

/// The offset of the first message, from the server's reply; `None` when the server confirms without one.
///
/// # Errors
/// When the reply cannot be read, or confirms something else: then it is not known what became of ours.
pub(crate) fn base_offset(reply: &Bytes, at: &PartitionRef) -> Result<Option<u64>, IggyError> {
    let reply = decode_send_confirmations(reply)?;
    let ours = (at.topic.stream_id(), at.topic.topic_id(), at.partition);
    let found = reply.confirmations.iter().find(|said| (said.stream_id, said.topic_id, said.partition_id) == ours);
    match found {
        Some(said) => Ok(Some(said.base_offset)),
        None if reply.confirmations.is_empty() => Ok(None),
        None => Err(IggyError::InvalidFormat),
    }
}

#[cfg(test)]
mod tests {
    use iggy_binary_protocol::batch::decode_batch_slice;
    use iggy_binary_protocol::codec::{WireDecode, WireEncode};
    use iggy_binary_protocol::requests::messages::SendMessagesHeader;
    use iggy_binary_protocol::responses::messages::SendMessagesResponse;
    use iggy_common::SendMessagesConfirmationResponse;
    use milena_store::TopicRef;
    use milena_store::testing::{TestMessage, batch_of};
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        Names::new(milena_store::INTERNAL_STREAM)
    }

    fn at() -> PartitionRef {
        TopicRef::new("kafka", "123", 1, 2, 3).partition(7)
    }

    /// What the server reads out of a body.
    fn decoded(body: &Bytes) -> (SendMessagesHeader, Vec<TestMessage>) {
        let (length, rest) = body.split_first_chunk::<4>().unwrap();
        let (header, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let (header, _) = SendMessagesHeader::decode(header).unwrap();
        let batch = decode_batch_slice(rest).unwrap();
        let messages = batch.iter().map(|message| TestMessage {
            id: message.header.id,
            origin_micros: batch.header.origin_timestamp + u64::from(message.header.timestamp_delta),
            payload: message.payload.to_vec(),
            headers: message.user_headers.to_vec(),
        });
        (header, messages.collect())
    }

    #[test]
    fn names_are_sent_as_names_and_the_partition_is_explicit() {
        let body = encode(&names(), &at(), &batch_of(&[TestMessage::new(1, b"a")])).unwrap();
        let (header, _) = decoded(&body);
        assert_eq!(header.stream_id, WireIdentifier::named("kafka").unwrap());
        assert_eq!(header.topic_id, WireIdentifier::named("123").unwrap());
        assert_eq!(header.partitioning, WirePartitioning::PartitionId(7));
    }

    #[test]
    fn what_the_server_does_not_take_is_refused_before_it_is_sent() {
        let refused = |messages: &[TestMessage]| encode(&names(), &at(), &batch_of(messages)).unwrap_err();
        let headers = TestMessage { headers: vec![0; limits::HEADER_BYTES_MAX + 1], ..TestMessage::new(1, b"a") };
        assert!(matches!(refused(&[headers]), StoreError::Refused { actual: 100_001, .. }));
        assert!(matches!(refused(&[TestMessage::new(1, b"")]), StoreError::Unsupported { .. }));
        let far = limits::TIMESTAMP_SPAN_MICROS + 2;
        let apart = [TestMessage::new(1, b"a").at(1), TestMessage::new(1, b"a").at(far)];
        assert!(matches!(refused(&apart), StoreError::Refused { .. }));
        let untimed = [TestMessage::new(1, b"a"), TestMessage::new(1, b"a").at(far)];
        assert!(matches!(refused(&untimed), StoreError::Refused { .. }));
        assert!(matches!(refused(&[]), StoreError::Refused { .. }));
        let large = vec![TestMessage::new(1, &vec![0; 1 << 20]); 64];
        assert!(matches!(refused(&large), StoreError::Refused { .. }));
    }

    #[test]
    fn a_summary_that_lies_about_its_messages_is_refused() {
        let far = limits::TIMESTAMP_SPAN_MICROS * 2;
        let mut batch = batch_of(&[TestMessage::new(1, b"a").at(1), TestMessage::new(1, b"a").at(far)]);
        batch.origin_max_micros = 1;
        assert!(matches!(encode(&names(), &at(), &batch), Err(StoreError::Refused { .. })));
        let batch = AppendBatch { count: 2, ..batch_of(&[TestMessage::new(1, b"a")]) };
        assert!(matches!(encode(&names(), &at(), &batch), Err(StoreError::Refused { .. })));
    }

    #[test]
    fn a_reply_without_confirmation_is_no_offset_and_one_to_something_else_leaves_it_open() {
        assert_eq!(base_offset(&Bytes::new(), &at()), Ok(None));
        let none = SendMessagesResponse { confirmations: Vec::new() };
        assert_eq!(base_offset(&none.to_bytes(), &at()), Ok(None));
        let of = |partition_id| SendMessagesConfirmationResponse {
            stream_id: 1,
            topic_id: 2,
            partition_id,
            base_offset: 42,
        };
        let reply = SendMessagesResponse { confirmations: vec![of(6), of(7)] };
        assert_eq!(base_offset(&reply.to_bytes(), &at()), Ok(Some(42)));
        assert!(base_offset(&reply.to_bytes(), &at().topic.partition(8)).is_err());
        let others = TopicRef::new("kafka", "456", 1, 3, 3).partition(7);
        assert!(base_offset(&reply.to_bytes(), &others).is_err(), "the same partition of another topic");
        assert!(base_offset(&Bytes::from_static(b"garbage"), &at()).is_err());
    }

    fn message() -> impl Strategy<Value = TestMessage> {
        let bytes = |size| proptest::collection::vec(any::<u8>(), size);
        (any::<u128>(), 0..limits::TIMESTAMP_SPAN_MICROS, bytes(1..200usize), bytes(0..200usize))
            .prop_map(|(id, origin_micros, payload, headers)| TestMessage { id, origin_micros, payload, headers })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_server_reads_what_was_appended_byte_for_byte(messages in proptest::collection::vec(message(), 1..20)) {
            let body = encode(&names(), &at(), &batch_of(&messages)).unwrap();
            let (header, found) = decoded(&body);
            prop_assert_eq!(header.messages_count as usize, messages.len());
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn no_block_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in any::<u32>()) {
            let batch = AppendBatch { frames: Bytes::from(bytes), count, ..batch_of(&[]) };
            let _ = encode(&names(), &at(), &batch);
        }
    }
}
