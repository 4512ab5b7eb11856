//! Streams: list, describe, create, rename, delete, purge.

use bytes::Bytes;
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::streams::{
    CreateStreamRequest, DeleteStreamRequest, GetStreamRequest, PurgeStreamRequest, UpdateStreamRequest,
};
use iggy_binary_protocol::responses::streams::{GetStreamResponse, GetStreamsResponse};

use super::{Answer, topics, view};
use crate::auth::now_micros;
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::service::Service;
use crate::state::{Record, Stream};

pub(super) async fn one(service: &Service, body: &Bytes) -> Answer {
    let request = GetStreamRequest::decode_from(body).map_err(malformed)?;
    let catalog = &service.catalog;
    let Some(stream) = catalog.stream(&request.stream_id).await? else {
        return Ok(Reply::empty(Operation::NonReplicated));
    };
    let topics = catalog.topics_of(&stream).await?;
    let response = view::stream(catalog.store.as_ref(), &stream, &topics).await?;
    Ok(Reply::of(Operation::NonReplicated, &response))
}

pub(super) async fn all(service: &Service) -> Answer {
    let mut streams = Vec::new();
    for (stream, topics) in service.catalog.streams().await? {
        streams.push(view::stream(service.catalog.store.as_ref(), &stream, &topics).await?.stream);
    }
    Ok(Reply::of(Operation::NonReplicated, &GetStreamsResponse { streams }))
}

pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreateStreamRequest::decode_from(body).map_err(malformed)?;
    if !request.options.is_empty() {
        return Err(Refusal::Denied(Code::UNSUPPORTED_OPTION));
    }
    let stream = service.catalog.create_stream(&request.name, now_micros()).await?;
    let described = view::stream(service.catalog.store.as_ref(), &stream, &[]).await?;
    let response = GetStreamResponse { stream: described.stream, topics: Vec::new() };
    Ok(Reply::of(Operation::CreateStream, &response))
}

/// Another name. Kafka clients see the topics of a stream, or not, by it: those under the old name are gone for them.
pub(super) async fn update(service: &Service, body: &Bytes) -> Answer {
    let request = UpdateStreamRequest::decode_from(body).map_err(malformed)?;
    if !request.options.is_empty() {
        return Err(Refusal::Denied(Code::UNSUPPORTED_OPTION));
    }
    let stream = service.catalog.stream(&request.stream_id).await?.ok_or(Code::STREAM_NOT_FOUND)?;
    if stream.name == request.name.as_str() {
        return Ok(Reply::empty(Operation::UpdateStream));
    }
    service.catalog.rename_stream(service.admin.as_ref(), &stream, &request.name).await?;
    Ok(Reply::empty(Operation::UpdateStream))
}

/// Topics go first: a stream that is off the list while topics are left would come back under another number.
pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeleteStreamRequest::decode_from(body).map_err(malformed)?;
    let stream = service.catalog.stream(&request.stream_id).await?.ok_or(Code::STREAM_NOT_FOUND)?;
    for info in service.catalog.topics_of(&stream).await? {
        match topics::remove(service, &info.topic).await {
            Ok(()) | Err(Refusal::Rejected(Code::TOPIC_NOT_FOUND)) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let change = service.catalog.state.change().await;
    if change.look(|table| table.stream(stream.id).is_none_or(|known| known != &stream)) {
        return Err(Code::STREAM_NOT_FOUND.into());
    }
    let Stream { id, .. } = stream;
    change.write(Record::DropStream { id }).await?;
    Ok(Reply::empty(Operation::DeleteStream))
}

pub(super) async fn purge(service: &Service, body: &Bytes) -> Answer {
    let request = PurgeStreamRequest::decode_from(body).map_err(malformed)?;
    let stream = service.catalog.stream(&request.stream_id).await?.ok_or(Code::STREAM_NOT_FOUND)?;
    for info in service.catalog.topics_of(&stream).await? {
        topics::empty(service, &info).await?;
    }
    Ok(Reply::empty(Operation::PurgeStream))
}
