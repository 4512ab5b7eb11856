//! Sending messages.

use std::sync::atomic::Ordering;

use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::messages::SendMessagesHeader;
use iggy_binary_protocol::responses::messages::send_messages::{
    SendMessagesConfirmationResponse, SendMessagesResponse,
};
use iggy_binary_protocol::{WireDecode, WirePartitioning};
use milena_store::StoreError;
use xxhash_rust::xxh32::xxh32;

use super::Answer;
use crate::batch;
use crate::catalog::Found;
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, Request, malformed};
use crate::service::Service;

/// Bytes of the length in front of what says where the messages go.
const LENGTH_BYTES: usize = 4;

/// Appends a batch, and says at which offset it begins.
///
/// A stream, a topic or a partition that does not exist is one code here, unlike everywhere else, as on the server.
pub(super) async fn send(service: &Service, request: &Request) -> Answer {
    let (header, batch) = split(&request.body)?;
    let messages = batch::decode(batch, header.messages_count)?;
    let count = u64::from(messages.count);
    let found = service.catalog.topic(&header.stream_id, &header.topic_id).await.map_err(nowhere)?;
    let partition = choose(service, &found, &header.partitioning)?;
    let at = found.partition(partition).map_err(nowhere)?;
    let appended = service.catalog.store.append(&at, messages).await.map_err(not_appended)?;
    service.metrics.messages_in.add(count);
    // An engine that does not know the offset leaves the client without one, which is better than a wrong one.
    let confirmation = appended.base_offset.map(|base_offset| SendMessagesConfirmationResponse {
        stream_id: found.stream_id,
        topic_id: found.info.topic.topic_id(),
        partition_id: partition,
        base_offset,
    });
    let response = SendMessagesResponse { confirmations: confirmation.into_iter().collect() };
    Ok(Reply::of(Operation::SendMessages, &response))
}

/// Where the messages go, and the messages.
pub(super) fn split(body: &[u8]) -> Result<(SendMessagesHeader, &[u8]), Refusal> {
    let denied = Refusal::Denied(Code::INVALID_COMMAND);
    let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>().ok_or(denied)?;
    let (metadata, batch) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(denied)?;
    let (header, read) = SendMessagesHeader::decode(metadata).map_err(malformed)?;
    if read == metadata.len() { Ok((header, batch)) } else { Err(denied) }
}

fn choose(service: &Service, found: &Found, partitioning: &WirePartitioning) -> Result<u32, Refusal> {
    let partitions = found.info.partitions;
    if partitions == 0 {
        return Err(Code::RESOURCE_NOT_FOUND.into());
    }
    Ok(match partitioning {
        WirePartitioning::PartitionId(partition) => *partition,
        WirePartitioning::Balanced => service.next_partition.fetch_add(1, Ordering::Relaxed) % partitions,
        // The hash that clients use who choose for themselves.
        WirePartitioning::MessagesKey(key) => xxh32(key, 0) % partitions,
    })
}

fn nowhere(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Rejected(Code::STREAM_NOT_FOUND | Code::TOPIC_NOT_FOUND | Code::PARTITION_NOT_FOUND) => {
            Refusal::Denied(Code::RESOURCE_NOT_FOUND)
        }
        other => other,
    }
}

fn not_appended(error: StoreError) -> Refusal {
    match error {
        StoreError::Broken { .. } => Code::CANNOT_APPEND.into(),
        other => other.into(),
    }
}
