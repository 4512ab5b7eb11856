//! Consumer offsets: store, read, delete.

use bytes::Bytes;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::primitives::consumer::KIND_CONSUMER_GROUP;
use iggy_binary_protocol::requests::consumer_offsets::{
    DeleteConsumerOffsetRequest, GetConsumerOffsetRequest, StoreConsumerOffsetRequest,
};
use iggy_binary_protocol::responses::consumer_offsets::get_consumer_offset::ConsumerOffsetResponse;
use iggy_binary_protocol::{WireConsumer, WireDecode, WireIdentifier};
use milena_store::TopicRef;
use tokio::time::Instant;
use xxhash_rust::xxh32::xxh32;

use super::{Answer, Caller, groups, view};
use crate::catalog::Found;
use crate::codes::{Code, Refusal};
use crate::config::OffsetRules;
use crate::frame::{Reply, Request, malformed};
use crate::members::GroupKey;
use crate::service::Service;
use crate::state::{ConsumerKey, Incarnation, Record};

pub(super) async fn store(service: &Service, caller: &Caller, request: &Request) -> Answer {
    let wire = StoreConsumerOffsetRequest::decode_from(&request.body).map_err(malformed)?;
    let target = Target {
        consumer: &wire.consumer,
        stream: &wire.stream_id,
        topic: &wire.topic_id,
        partition: wire.partition_id,
    };
    let (found, partition, who) = target.find(service, caller).await?;
    if service.config.offset_rules == OffsetRules::Server {
        let bounds = service.catalog.store.bounds(&found.info.topic.partition(partition)).await?;
        // An offset is that of a message which was read, so where there never was one, there is no offset.
        if bounds.end == 0 || wire.offset > view::current(bounds) {
            return Err(Code::INVALID_OFFSET.into());
        }
    }
    write(service, &found.info.topic, partition, who, Some(wire.offset)).await?;
    Ok(Reply::empty(Operation::StoreConsumerOffset))
}

pub(super) async fn delete(service: &Service, caller: &Caller, request: &Request) -> Answer {
    let wire = DeleteConsumerOffsetRequest::decode_from(&request.body).map_err(malformed)?;
    let target = Target {
        consumer: &wire.consumer,
        stream: &wire.stream_id,
        topic: &wire.topic_id,
        partition: wire.partition_id,
    };
    let (found, partition, who) = target.find(service, caller).await?;
    if stored(service, &found.info.topic, partition, &who).is_none() {
        return Err(Code::OFFSET_NOT_FOUND.into());
    }
    write(service, &found.info.topic, partition, who, None).await?;
    Ok(Reply::empty(Operation::DeleteConsumerOffset))
}

/// Anybody may read any offset. Where there is none, for whatever reason but a wrong partition, the answer is empty.
pub(super) async fn get(service: &Service, body: &Bytes) -> Answer {
    let wire = GetConsumerOffsetRequest::decode_from(body).map_err(malformed)?;
    let nothing = || Ok(Reply::empty(Operation::NonReplicated));
    let Some(found) = service.catalog.topic_if_any(&wire.stream_id, &wire.topic_id).await? else {
        return nothing();
    };
    let partition_id = wire.partition_id.unwrap_or(0);
    let at = found.partition(partition_id)?;
    let topic = &found.info.topic;
    let offset = key(service, topic, &wire.consumer).and_then(|who| stored(service, topic, partition_id, &who));
    let Some(stored_offset) = offset else {
        return nothing();
    };
    let bounds = service.catalog.store.bounds(&at).await?;
    let response = ConsumerOffsetResponse { partition_id, current_offset: view::current(bounds), stored_offset };
    Ok(Reply::of(Operation::NonReplicated, &response))
}

/// Whose offset where.
struct Target<'a> {
    consumer: &'a WireConsumer,
    stream: &'a WireIdentifier,
    topic: &'a WireIdentifier,
    partition: Option<u32>,
}

impl Target<'_> {
    /// Finds it, and checks that the caller may change it. Whatever is wrong is one code, as on the server.
    async fn find(&self, service: &Service, caller: &Caller) -> Result<(Found, u32, ConsumerKey), Refusal> {
        const MISSING: Refusal = Refusal::Denied(Code::RESOURCE_NOT_FOUND);
        let found = service.catalog.topic_if_any(self.stream, self.topic).await?.ok_or(MISSING)?;
        let partition = self.partition.filter(|partition| *partition < found.info.partitions).ok_or(MISSING)?;
        let fenced = self.consumer.kind == KIND_CONSUMER_GROUP && service.config.offset_rules == OffsetRules::Server;
        if fenced && !owns(service, caller, &found, &self.consumer.id, partition) {
            return Err(MISSING);
        }
        let who = key(service, &found.info.topic, self.consumer).ok_or(MISSING)?;
        Ok((found, partition, who))
    }
}

/// True when the caller is the member of the group that has the partition.
fn owns(service: &Service, caller: &Caller, found: &Found, group: &WireIdentifier, partition: u32) -> bool {
    let of = Incarnation::of(&found.info.topic);
    let group = groups::find(service, of, group);
    group.is_some_and(|(id, _)| service.members.owns((of, id), caller.client(), partition, Instant::now()))
}

/// The group whose offset is kept under that key, if there is one.
pub(super) fn group_of(service: &Service, of: Incarnation, who: &ConsumerKey) -> Option<GroupKey> {
    match who {
        ConsumerKey::Group(id) => Some((of, *id)),
        ConsumerKey::GroupName(name) => {
            let name = WireIdentifier::named(name).ok()?;
            groups::find(service, of, &name).map(|(id, _)| (of, id))
        }
        ConsumerKey::Number(_) | ConsumerKey::Name(_) => None,
    }
}

/// Under which key the offset of a consumer is kept; `None` for a group that has to exist and does not.
pub(super) fn key(service: &Service, topic: &TopicRef, consumer: &WireConsumer) -> Option<ConsumerKey> {
    let server = service.config.offset_rules == OffsetRules::Server;
    if consumer.kind == KIND_CONSUMER_GROUP {
        let group = groups::find(service, Incarnation::of(topic), &consumer.id);
        return match (group, server) {
            (group, true) => group.map(|(id, _)| ConsumerKey::Group(id)),
            (Some((_, name)), false) => Some(ConsumerKey::GroupName(name)),
            (None, false) => Some(ConsumerKey::GroupName(consumer.id.to_string())),
        };
    }
    Some(match &consumer.id {
        WireIdentifier::Numeric(id) => ConsumerKey::Number(*id),
        WireIdentifier::String(name) if server => ConsumerKey::Number(xxh32(name.as_bytes(), 0)),
        WireIdentifier::String(name) => ConsumerKey::Name(name.as_str().to_owned()),
    })
}

/// The offset of a consumer.
pub(super) fn stored(service: &Service, topic: &TopicRef, partition: u32, who: &ConsumerKey) -> Option<u64> {
    service.catalog.state.look(|table| table.offset(Incarnation::of(topic), partition, who))
}

/// Stores an offset, or forgets it.
pub(super) async fn write(
    service: &Service,
    topic: &TopicRef,
    partition: u32,
    who: ConsumerKey,
    offset: Option<u64>,
) -> Result<(), Refusal> {
    let of = Incarnation::of(topic);
    let is_new = |table: &crate::state::Table| offset.is_some() && table.offset(of, partition, &who).is_none();
    let max = service.config.limits.offsets_max;
    // Two that pass this at once may both be stored: the bound keeps memory finite, and one more does not.
    if service.catalog.state.look(|table| table.offsets_count() >= max && is_new(table)) {
        return Err(Code::TOO_MANY_OFFSETS.into());
    }
    let group = group_of(service, of, &who);
    service.catalog.state.write(Record::Offset { of, partition, who, offset }).await?;
    if let (Some(group), Some(offset)) = (group, offset) {
        service.members.committed(group, partition, offset);
    }
    Ok(())
}
