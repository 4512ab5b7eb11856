//! Partitions and segments.

use bytes::Bytes;
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::partitions::{CreatePartitionsRequest, DeletePartitionsRequest};
use iggy_binary_protocol::requests::segments::DeleteSegmentsRequest;

use super::{Answer, topics};
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::service::Service;
use crate::state::Incarnation;

/// Adds partitions behind those that are there.
pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreatePartitionsRequest::decode_from(body).map_err(malformed)?;
    let more = request.partitions_count;
    check(more)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let partitions = found.info.partitions.checked_add(more).ok_or(Code::INVALID_PARTITIONS_COUNT)?;
    let grown = service.admin.grow_topic(&found.info.topic, partitions).await.map_err(topics::gone)?;
    service.members.resize(Incarnation::of(&grown.topic), grown.partitions);
    Ok(Reply::empty(Operation::CreatePartitions))
}

/// A topic never shrinks: Kafka clients take it for granted, and so does the store.
pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeletePartitionsRequest::decode_from(body).map_err(malformed)?;
    check(request.partitions_count)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let fits = request.partitions_count <= found.info.partitions;
    Err(if fits { Refusal::Denied(Code::FEATURE_UNAVAILABLE) } else { Code::INVALID_PARTITIONS_COUNT.into() })
}

/// Removes the oldest segments; the one that is written to stays. It is success when there is nothing to remove.
pub(super) async fn delete_segments(service: &Service, body: &Bytes) -> Answer {
    let request = DeleteSegmentsRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let at = found.partition(request.partition_id)?;
    let store = &service.catalog.store;
    let sealed = store.sealed_segments(&at, request.segments_count as usize).await?;
    if let Some(end) = sealed.last() {
        store.trim(&at, *end).await?;
    }
    Ok(Reply::empty(Operation::DeleteSegments))
}

/// One code for none and for too many, as on the server.
fn check(partitions: u32) -> Result<(), Refusal> {
    let fits = (1..=PARTITIONS_PER_REQUEST_MAX).contains(&partitions);
    if fits { Ok(()) } else { Err(Refusal::Denied(Code::TOO_MANY_PARTITIONS)) }
}
