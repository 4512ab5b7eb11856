//! Partitions and segments.

use bytes::Bytes;
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::partitions::{CreatePartitionsRequest, DeletePartitionsRequest};
use iggy_binary_protocol::requests::segments::DeleteSegmentsRequest;
use milena_store::TopicRef;

use super::{Answer, topics};
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::service::Service;
use crate::state::{Incarnation, Record};

/// Adds partitions behind those that are there.
pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreatePartitionsRequest::decode_from(body).map_err(malformed)?;
    let more = request.partitions_count;
    check(more)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let change = service.catalog.state.change().await;
    let partitions = count(service, &found.info.topic).await?;
    let partitions = partitions.checked_add(more).ok_or(Code::INVALID_PARTITIONS_COUNT)?;
    let grown = service.admin.grow_topic(&found.info.topic, partitions).await.map_err(topics::gone)?;
    drop(change);
    service.members.resize(Incarnation::of(&grown.topic), grown.partitions);
    Ok(Reply::empty(Operation::CreatePartitions))
}

/// Takes the last partitions away with their messages and consumer offsets. One stays, as Kafka knows no topic without.
pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeletePartitionsRequest::decode_from(body).map_err(malformed)?;
    check(request.partitions_count)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let topic = &found.info.topic;
    let change = service.catalog.state.change().await;
    let stay = count(service, topic).await?.checked_sub(request.partitions_count).filter(|stay| *stay > 0);
    let stay = stay.ok_or(Code::INVALID_PARTITIONS_COUNT)?;
    service.admin.shrink_topic(topic, stay).await.map_err(topics::gone)?;
    let of = Incarnation::of(topic);
    service.members.resize(of, stay);
    // They are gone whatever becomes of this. A partition that is added again goes on behind these offsets.
    if change.look(|table| table.knows(of))
        && let Err(error) = change.write(Record::DropPartitions { of, from: stay }).await
    {
        tracing::warn!(?topic, %error, "consumer offsets of deleted partitions stay behind");
    }
    Ok(Reply::empty(Operation::DeletePartitions))
}

/// How many partitions a topic has now: of two changes at once the second one counts from what the first one left.
async fn count(service: &Service, topic: &TopicRef) -> Result<u32, Refusal> {
    let topics = service.catalog.store.topics().await?;
    let info = topics.iter().find(|info| info.topic == *topic);
    Ok(info.ok_or(Code::TOPIC_NOT_FOUND)?.partitions)
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
