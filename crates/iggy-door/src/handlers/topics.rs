//! Topics: list, describe, create, change, delete, purge.

use bytes::Bytes;
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::topics::{
    CreateTopicRequest, DeleteTopicRequest, GetTopicRequest, GetTopicsRequest, PurgeTopicRequest, UpdateTopicRequest,
};
use iggy_binary_protocol::responses::topics::get_topics::GetTopicsResponse;
use milena_store::{StoreError, TopicInfo, TopicRef};

use super::{Answer, options, view};
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::service::Service;
use crate::state::{Incarnation, Record};

pub(super) async fn one(service: &Service, body: &Bytes) -> Answer {
    let request = GetTopicRequest::decode_from(body).map_err(malformed)?;
    let Some(found) = service.catalog.topic_if_any(&request.stream_id, &request.topic_id).await? else {
        return Ok(Reply::empty(Operation::NonReplicated));
    };
    let response = view::topic(service.catalog.store.as_ref(), &found.info).await?;
    Ok(Reply::of(Operation::NonReplicated, &response))
}

/// A stream that does not exist has no topics: the server says no more than that.
pub(super) async fn all(service: &Service, body: &Bytes) -> Answer {
    let request = GetTopicsRequest::decode_from(body).map_err(malformed)?;
    let catalog = &service.catalog;
    let infos = match catalog.stream(&request.stream_id).await? {
        Some(stream) => catalog.topics_of(&stream).await?,
        None => Vec::new(),
    };
    let topics = view::topics(catalog.store.as_ref(), &infos).await?;
    Ok(Reply::of(Operation::NonReplicated, &GetTopicsResponse { topics }))
}

pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreateTopicRequest::decode_from(body).map_err(malformed)?;
    let partitions = request.partitions_count;
    let settings = options::settings(&request.options, partitions).map_err(Refusal::Denied)?;
    if partitions > PARTITIONS_PER_REQUEST_MAX {
        return Err(Refusal::Denied(Code::TOO_MANY_PARTITIONS));
    }
    let stream = service.catalog.stream(&request.stream_id).await?.ok_or(Code::STREAM_NOT_FOUND)?;
    if partitions == 0 {
        return Err(Code::INVALID_PARTITIONS_COUNT.into());
    }
    let created = service.admin.create_topic(&stream.name, &request.name, partitions, &settings).await;
    let info = created.map_err(|error| match error {
        StoreError::Refused { what, .. } if what.contains("name") => Refusal::Rejected(Code::INVALID_TOPIC_NAME),
        other => other.into(),
    })?;
    // The topic is there: a code that says "not done" would make the client create it again, and find that it exists.
    let response = view::topic(service.catalog.store.as_ref(), &info).await.map_err(|_| Refusal::InDoubt)?;
    Ok(Reply::of(Operation::CreateTopic, &response))
}

/// Expiry, size and name can change. The name comes last: it is where a client that was not answered looks.
pub(super) async fn update(service: &Service, body: &Bytes) -> Answer {
    let request = UpdateTopicRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let info = &found.info;
    let changed = options::changed(&info.settings, &request.options, info.partitions).map_err(Refusal::Denied)?;
    let is_renamed = info.topic.topic() != request.name.as_str();
    if is_renamed && service.catalog.store.topic(info.topic.stream(), &request.name).await?.is_some() {
        return Err(Code::TOPIC_EXISTS.into());
    }
    if changed != info.settings {
        service.admin.update_settings(&info.topic, &changed).await.map_err(gone)?;
    }
    if is_renamed {
        service.admin.rename_topic(&info.topic, &request.name).await.map_err(gone)?;
    }
    Ok(Reply::empty(Operation::UpdateTopic))
}

pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeleteTopicRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    remove(service, &found.info.topic).await?;
    Ok(Reply::empty(Operation::DeleteTopic))
}

pub(super) async fn purge(service: &Service, body: &Bytes) -> Answer {
    let request = PurgeTopicRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    empty(service, &found.info).await?;
    Ok(Reply::empty(Operation::PurgeTopic))
}

/// Deletes a topic with its groups and offsets.
pub(super) async fn remove(service: &Service, topic: &TopicRef) -> Result<(), Refusal> {
    service.admin.delete_topic(topic).await.map_err(gone)?;
    service.members.remove_topic(Incarnation::of(topic));
    let change = service.catalog.state.change().await;
    // The topic is gone whatever becomes of this; what stays behind is forgotten with the next snapshot or start.
    if let Err(error) = change.forget(topic).await {
        tracing::warn!(topic = ?topic, %error, "groups and offsets of a deleted topic stay behind");
    }
    Ok(())
}

/// Removes all messages and consumer offsets. Offsets go on from where they are: they are Kafka's, too, and a Kafka
/// consumer that has read up to 100 would miss what comes at 0.
pub(super) async fn empty(service: &Service, info: &TopicInfo) -> Result<(), Refusal> {
    let store = &service.catalog.store;
    for partition in 0..info.partitions {
        store.trim(&info.topic.partition(partition), u64::MAX).await.map_err(gone)?;
    }
    let of = Incarnation::of(&info.topic);
    let change = service.catalog.state.change().await;
    if change.look(|table| table.knows(of)) {
        change.write(Record::DropOffsets { of }).await?;
    }
    service.members.purged(of);
    Ok(())
}

pub(super) fn gone(error: StoreError) -> Refusal {
    match error {
        StoreError::NotFound { .. } => Code::TOPIC_NOT_FOUND.into(),
        other => other.into(),
    }
}
