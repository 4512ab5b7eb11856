//! Consumer groups: list, describe, create, delete, join, leave, and the assignment of a member.

use bytes::Bytes;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::consumer_groups::{
    CreateConsumerGroupRequest, DeleteConsumerGroupRequest, GetConsumerGroupRequest, GetConsumerGroupsRequest,
    JoinConsumerGroupRequest, LeaveConsumerGroupRequest, SyncConsumerGroupRequest,
};
use iggy_binary_protocol::responses::consumer_groups::consumer_group_response::ConsumerGroupResponse;
use iggy_binary_protocol::responses::consumer_groups::get_consumer_group::{
    ConsumerGroupDetailsResponse, ConsumerGroupMemberResponse,
};
use iggy_binary_protocol::responses::consumer_groups::get_consumer_groups::GetConsumerGroupsResponse;
use iggy_binary_protocol::responses::consumer_groups::sync_consumer_group::SyncConsumerGroupResponse;
use iggy_binary_protocol::{WireConsumer, WireDecode, WireIdentifier};
use tokio::time::Instant;

use super::{Answer, Caller, offsets, view};
use crate::catalog::Found;
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::members::{GroupKey, Joining};
use crate::service::Service;
use crate::state::{Incarnation, Record};

pub(super) async fn one(service: &Service, body: &Bytes) -> Answer {
    let request = GetConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let of = Incarnation::of(&found.info.topic);
    let Some((id, name)) = find(service, of, &request.group_id) else {
        return Ok(Reply::empty(Operation::NonReplicated));
    };
    Ok(Reply::of(Operation::NonReplicated, &describe(service, &found, id, &name)?))
}

pub(super) async fn all(service: &Service, body: &Bytes) -> Answer {
    let request = GetConsumerGroupsRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let of = Incarnation::of(&found.info.topic);
    let known: Vec<(u32, String)> =
        service.catalog.state.look(|table| table.groups(of).map(|(id, name)| (id, name.to_owned())).collect());
    let groups: Result<Vec<_>, Refusal> =
        known.into_iter().map(|(id, name)| Ok(describe(service, &found, id, &name)?.group)).collect();
    Ok(Reply::of(Operation::NonReplicated, &GetConsumerGroupsResponse { groups: groups? }))
}

pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreateConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let of = Incarnation::of(&found.info.topic);
    let change = service.catalog.state.change().await;
    let (taken, count, id) = change.look(|table| {
        let taken = table.groups(of).any(|(_, name)| name == request.name.as_str());
        (taken, table.groups(of).count(), table.next_group(of))
    });
    if taken {
        return Err(Code::GROUP_EXISTS.into());
    }
    if count >= service.config.limits.groups_max {
        return Err(Code::CANNOT_CREATE_GROUP.into());
    }
    let name = request.name.as_str().to_owned();
    change.write(Record::Group { of, id, name }).await?;
    Ok(Reply::of(Operation::CreateConsumerGroup, &describe(service, &found, id, &request.name)?))
}

pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeleteConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let of = Incarnation::of(&found.info.topic);
    let change = service.catalog.state.change().await;
    let (id, _) = find(service, of, &request.group_id).ok_or(Code::GROUP_NOT_FOUND)?;
    change.write(Record::DropGroup { of, id }).await?;
    service.members.remove((of, id));
    Ok(Reply::empty(Operation::DeleteConsumerGroup))
}

pub(super) async fn join(service: &Service, caller: &Caller, body: &Bytes) -> Answer {
    let request = JoinConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let (found, key) = existing(service, &request.stream_id, &request.topic_id, &request.group_id).await?;
    admit(service, caller, &request, (found, key)).await
}

/// Takes the caller into the group that was found.
async fn admit(
    service: &Service,
    caller: &Caller,
    request: &JoinConsumerGroupRequest,
    (found, key): (Found, GroupKey),
) -> Answer {
    let (limits, now) = (&service.config.limits, Instant::now());
    let until = now + limits.rebalancing_timeout;
    let (client, partitions, max) = (caller.client(), found.info.partitions, limits.members_max);
    let who = offsets::key(service, &found.info.topic, &WireConsumer::consumer_group(request.group_id.clone()));
    let committed = |partition| offsets::stored(service, &found.info.topic, partition, who.as_ref()?);
    let is_in_force = || caller.session.as_ref().is_some_and(|session| !session.is_fenced());
    let joining = Joining { client, partitions, max, now, until };
    if !service.members.join(key, joining, committed, is_in_force) {
        let code = if is_in_force() { Code::CANNOT_CREATE_GROUP } else { Code::UNAUTHENTICATED };
        return Err(code.into());
    }
    // Group or topic may have been deleted since it was found, and nothing would ever clear its members away.
    let again = existing(service, &request.stream_id, &request.topic_id, &request.group_id).await;
    if !again.as_ref().is_ok_and(|(_, now)| *now == key) {
        service.members.leave(key, caller.client());
        return Err(again.err().unwrap_or(Code::GROUP_NOT_FOUND.into()));
    }
    if let Some(session) = &caller.session {
        session.joins();
    }
    Ok(Reply::empty(Operation::JoinConsumerGroup))
}

pub(super) async fn leave(service: &Service, caller: &Caller, body: &Bytes) -> Answer {
    let request = LeaveConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let (_, key) = existing(service, &request.stream_id, &request.topic_id, &request.group_id).await?;
    let left = service.members.leave(key, caller.client());
    if left { Ok(Reply::empty(Operation::LeaveConsumerGroup)) } else { Err(Code::MEMBER_NOT_FOUND.into()) }
}

/// What a member shall poll. Who is no member, of whatever, gets an empty answer, and joins again.
pub(super) async fn sync(service: &Service, caller: &Caller, body: &Bytes) -> Answer {
    let request = SyncConsumerGroupRequest::decode_from(body).map_err(malformed)?;
    let found = service.catalog.topic_if_any(&request.stream_id, &request.topic_id).await?;
    let assignment = found.and_then(|found| {
        let of = Incarnation::of(&found.info.topic);
        let (id, _) = find(service, of, &request.group_id)?;
        // Partitions that the Kafka side added are dealt out when a member asks, which it does with every heartbeat.
        service.members.assignment((of, id), caller.client(), found.info.partitions, Instant::now())
    });
    Ok(match assignment {
        Some((generation, partitions)) => {
            Reply::of(Operation::NonReplicated, &SyncConsumerGroupResponse { generation, partitions })
        }
        None => Reply::empty(Operation::NonReplicated),
    })
}

/// Number and name of a group of a topic.
pub(super) fn find(service: &Service, of: Incarnation, group: &WireIdentifier) -> Option<(u32, String)> {
    service.catalog.state.look(|table| {
        let mut groups = table.groups(of);
        let found = match group {
            WireIdentifier::Numeric(id) => groups.find(|(known, _)| known == id),
            WireIdentifier::String(name) => groups.find(|(_, known)| *known == name.as_str()),
        };
        found.map(|(id, name)| (id, name.to_owned()))
    })
}

async fn existing(
    service: &Service,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
    group: &WireIdentifier,
) -> Result<(Found, GroupKey), Refusal> {
    let found = service.catalog.topic(stream, topic).await?;
    let of = Incarnation::of(&found.info.topic);
    let (id, _) = find(service, of, group).ok_or(Code::GROUP_NOT_FOUND)?;
    Ok((found, (of, id)))
}

fn describe(service: &Service, found: &Found, id: u32, name: &str) -> Result<ConsumerGroupDetailsResponse, Refusal> {
    let key = (Incarnation::of(&found.info.topic), id);
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let members: Vec<_> = service
        .members
        .of(key, Instant::now())
        .into_iter()
        .map(|member| ConsumerGroupMemberResponse {
            id: member.id,
            partitions_count: length(member.partitions.len()),
            partitions: member.partitions,
        })
        .collect();
    let group = ConsumerGroupResponse {
        id,
        partitions_count: found.info.partitions,
        members_count: length(members.len()),
        name: view::name(name)?,
    };
    Ok(ConsumerGroupDetailsResponse { group, members })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use milena_server::memory::Memory;
    use milena_store::testing::MemoryStore;
    use milena_store::{Store, TopicSettings};

    use super::*;
    use crate::admin::TopicAdmin;
    use crate::config::{DoorConfig, OffsetRules, Secret};
    use crate::limits::DoorLimits;
    use crate::state::State;

    async fn service() -> Service {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        store.create_topic("s", "t", 1, &TopicSettings::default()).await.unwrap();
        let config = DoorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            username: "iggy".to_owned(),
            password: Some(Secret::new("secret")),
            offset_rules: OffsetRules::Server,
            instance_id: 0,
            tls: None,
            limits: DoorLimits::default(),
        };
        let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
        let state = State::open(Arc::clone(&store), 0).await.unwrap();
        Service::open(config, store, state, admin, Arc::new(Memory::new(1 << 20))).await.unwrap().0
    }

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    /// A connection of client 7 that asks to join the one group, and the group as it was found for it.
    async fn joining(service: &Service) -> (Caller, JoinConsumerGroupRequest, (Found, GroupKey)) {
        let id = service.clients.enter(ADDRESS);
        let (session, _) = service.clients.login(id, 7);
        let caller = Caller { id, local: ADDRESS, session: Some(session), last: tokio::sync::Mutex::default() };
        let named = |name: &str| WireIdentifier::named(name).unwrap();
        let request = JoinConsumerGroupRequest { stream_id: named("s"), topic_id: named("t"), group_id: named("g") };
        let topic = service.catalog.topic(&request.stream_id, &request.topic_id).await.unwrap();
        let of = Incarnation::of(&topic.info.topic);
        let group = Record::Group { of, id: 0, name: "g".to_owned() };
        service.catalog.state.write(group).await.unwrap();
        let found = existing(service, &request.stream_id, &request.topic_id, &request.group_id).await.unwrap();
        (caller, request, found)
    }

    #[tokio::test]
    async fn a_join_under_way_while_its_session_is_taken_over_makes_nobody_a_member() {
        let service = service().await;
        let (caller, request, found) = joining(&service).await;
        let (_, took_over) = service.clients.login(service.clients.enter(ADDRESS), 7);
        assert!(took_over);
        service.members.leave_all(7);
        let answer = admit(&service, &caller, &request, found).await;
        assert_eq!(answer.unwrap_err(), Refusal::Rejected(Code::UNAUTHENTICATED));
        assert!(service.members.groups_of(7).is_empty());
    }

    #[tokio::test]
    async fn who_joins_a_group_that_is_deleted_meanwhile_is_no_member_of_anything() {
        let service = service().await;
        let (caller, request, found) = joining(&service).await;
        let (of, _) = found.1;
        service.catalog.state.write(Record::DropGroup { of, id: 0 }).await.unwrap();
        service.members.remove((of, 0));
        let answer = admit(&service, &caller, &request, found).await;
        assert_eq!(answer.unwrap_err(), Refusal::Rejected(Code::GROUP_NOT_FOUND));
        assert!(service.members.groups_of(7).is_empty());
    }
}
