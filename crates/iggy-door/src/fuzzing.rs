//! What a client can send, without sockets: any bytes, through everything that reads them.

use bytes::{Bytes, BytesMut};
use iggy_binary_protocol::batch::{
    BATCH_HEADER_SIZE, BatchHeader, BatchMessageHeader, calculate_batch_checksum, decode_batch_slice,
};
use iggy_binary_protocol::consensus::HEADER_SIZE;
use iggy_binary_protocol::requests::{
    consumer_groups, consumer_offsets, messages, partitions, personal_access_tokens, segments, streams, system, topics,
    users,
};
use iggy_binary_protocol::{ClientVersionInfo, WireDecode};
use milena_store::frame::Frames;
use milena_store::{AppendBatch, Entry};
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{self, Room};
use crate::frame::{Request, body_len};
use crate::handlers::{fuzz_body, fuzz_split};

/// Largest request that is looked at.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// The checksum at the beginning of a message.
const CHECKSUM_BYTES: usize = size_of::<u64>();

/// The decoder of every body that a handler reads. Errors are fine answers.
const BODIES: &[fn(&[u8])] = &[
    |bytes| drop(ClientVersionInfo::decode_from(bytes)),
    |bytes| drop(consumer_groups::CreateConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::DeleteConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::GetConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::GetConsumerGroupsRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::JoinConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::LeaveConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_groups::SyncConsumerGroupRequest::decode_from(bytes)),
    |bytes| drop(consumer_offsets::DeleteConsumerOffsetRequest::decode_from(bytes)),
    |bytes| drop(consumer_offsets::GetConsumerOffsetRequest::decode_from(bytes)),
    |bytes| drop(consumer_offsets::StoreConsumerOffsetRequest::decode_from(bytes)),
    |bytes| drop(messages::PollMessagesRequest::decode_from(bytes)),
    |bytes| drop(messages::SendMessagesHeader::decode_from(bytes)),
    |bytes| drop(partitions::CreatePartitionsRequest::decode_from(bytes)),
    |bytes| drop(partitions::DeletePartitionsRequest::decode_from(bytes)),
    |bytes| drop(personal_access_tokens::CreatePersonalAccessTokenRequest::decode_from(bytes)),
    |bytes| drop(personal_access_tokens::DeletePersonalAccessTokenRequest::decode_from(bytes)),
    |bytes| drop(segments::DeleteSegmentsRequest::decode_from(bytes)),
    |bytes| drop(streams::CreateStreamRequest::decode_from(bytes)),
    |bytes| drop(streams::DeleteStreamRequest::decode_from(bytes)),
    |bytes| drop(streams::GetStreamRequest::decode_from(bytes)),
    |bytes| drop(streams::PurgeStreamRequest::decode_from(bytes)),
    |bytes| drop(streams::UpdateStreamRequest::decode_from(bytes)),
    |bytes| drop(system::DescribeOptionsRequest::decode_from(bytes)),
    |bytes| drop(system::GetClientRequest::decode_from(bytes)),
    |bytes| drop(topics::CreateTopicRequest::decode_from(bytes)),
    |bytes| drop(topics::DeleteTopicRequest::decode_from(bytes)),
    |bytes| drop(topics::GetTopicRequest::decode_from(bytes)),
    |bytes| drop(topics::GetTopicsRequest::decode_from(bytes)),
    |bytes| drop(topics::PurgeTopicRequest::decode_from(bytes)),
    |bytes| drop(topics::UpdateTopicRequest::decode_from(bytes)),
    |bytes| drop(users::GetUserRequest::decode_from(bytes)),
];

/// Reads `data` as a request, and what follows the header as every kind of body. No input may make it panic.
///
/// A send is also tried with its checksums put right, and what is taken of it must come back from a poll.
///
/// # Panics
/// When a batch that was taken does not come back as it was sent.
pub fn frame(data: &[u8]) {
    let body = match data.split_first_chunk::<HEADER_SIZE>() {
        Some((header, rest)) => {
            if let Ok(len) = body_len(header, FRAME_BYTES_MAX) {
                let body = Bytes::copy_from_slice(rest.get(..len).unwrap_or(rest));
                let _ = Request::parse(header, body).map(|request| (request.is_intact(), request.code()));
            }
            rest
        }
        None => data,
    };
    for decode in BODIES {
        decode(body);
    }
    fuzz_body(body);
    let sent = fuzz_split(body).unwrap_or(body);
    send(sent);
    if let Some(sealed) = sealed(sent) {
        send(&sealed);
    }
}

fn send(bytes: &[u8]) {
    // A send says the count once more, in front of the batch: what does not agree is refused before anything else.
    let Ok(header) = BatchHeader::decode(bytes) else { return };
    if let Ok(taken) = batch::decode(bytes, header.message_count) {
        comes_back(&taken);
    }
}

/// The batch in `bytes` with its length and all its checksums put right, as those of a client that means harm are: a changed
/// byte would else be found by them, and nothing behind them be reached.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let (head, blob) = bytes.split_at_mut_checked(BATCH_HEADER_SIZE)?;
    let mut rest = &mut *blob;
    while let Ok(message) = BatchMessageHeader::decode(rest) {
        let Some((frame, behind)) = rest.split_at_mut_checked(message.total_size()) else { break };
        let sum = xxh3_64(frame.get(CHECKSUM_BYTES..)?);
        frame.get_mut(..CHECKSUM_BYTES)?.copy_from_slice(&sum.to_le_bytes());
        rest = behind;
    }
    let mut header = BatchHeader::decode(head).ok()?;
    header.batch_length = (BATCH_HEADER_SIZE + blob.len()) as u64;
    header.batch_checksum = calculate_batch_checksum(&header, blob);
    header.encode_into(head);
    Some(bytes)
}

/// What was taken is what a poll returns, in batches that a client's decoder takes.
fn comes_back(taken: &AppendBatch) {
    let entry = Entry { base_offset: 7, count: taken.count, append_time_micros: 1, frames: taken.frames.clone() };
    let room = Room { messages: u32::MAX, bytes: usize::MAX };
    let mut bytes = BytesMut::new();
    let written = batch::encode(&mut bytes, 0, &entry, 7, room, true);
    assert_eq!((written.messages, written.full), (taken.count, false), "a message that was taken is not returned");
    let mut stored = (7..).zip(Frames::new(&taken.frames));
    let mut rest = bytes.freeze();
    while !rest.is_empty() {
        let decoded = decode_batch_slice(&rest);
        assert!(decoded.is_ok(), "what a poll returns is no batch: {decoded:?}");
        let Ok(batch) = decoded else { return };
        for message in &batch {
            let is_same = stored.next().is_some_and(|(offset, frame)| {
                let at = batch.header.base_offset + u64::from(message.header.offset_delta);
                let origin = batch.header.origin_timestamp + u64::from(message.header.timestamp_delta);
                let sent = (frame.id, frame.origin_micros, frame.payload, frame.headers);
                (offset, sent) == (at, (message.header.id, origin, message.payload, message.user_headers))
            });
            assert!(is_same, "a message comes back changed");
        }
        let size = batch.header.total_size();
        rest = rest.split_off(size);
    }
    assert!(stored.next().is_none(), "a message does not come back");
}
