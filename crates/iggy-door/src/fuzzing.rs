//! What a client can send, without sockets: any bytes, through everything that reads them.

use bytes::{Bytes, BytesMut};
use iggy_binary_protocol::consensus::HEADER_SIZE;
use iggy_binary_protocol::requests::{
    consumer_groups, consumer_offsets, messages, partitions, personal_access_tokens, segments, streams, system, topics,
    users,
};
use iggy_binary_protocol::{ClientVersionInfo, WireDecode};
use milena_store::{AppendBatch, Entry};

use crate::batch::{self, Room};
use crate::frame::{Request, body_len};
use crate::handlers::fuzz_body;

/// Largest request that is looked at.
const FRAME_BYTES_MAX: usize = 64 << 20;

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
    for count in [1, 2, 3] {
        if let Ok(taken) = batch::decode(body, count) {
            comes_back(&taken);
        }
    }
}

/// What was taken is what a poll returns.
fn comes_back(taken: &AppendBatch) {
    let entry = Entry { base_offset: 7, count: taken.count, append_time_micros: 1, frames: taken.frames.clone() };
    let room = Room { messages: u32::MAX, bytes: usize::MAX };
    let mut bytes = BytesMut::new();
    let written = batch::encode(&mut bytes, 0, &entry, 7, room, true);
    assert_eq!((written.messages, written.full), (taken.count, false), "a message that was taken is not returned");
}
