//! The server itself: the one node of its cluster, its numbers, its clients.

use std::net::SocketAddr;

use bytes::Bytes;
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::system::GetClientRequest;
use iggy_binary_protocol::responses::clients::{
    ClientDetailsResponse, ClientResponse, ConsumerGroupInfoResponse, GetClientsResponse,
};
use iggy_binary_protocol::responses::system::get_cluster_metadata::{ClusterMetadataResponse, ClusterNodeResponse};
use iggy_binary_protocol::responses::system::get_stats::StatsResponse;
use milena_store::TopicInfo;

use super::{Answer, Caller, view};
use crate::auth::{ROOT_ID, now_micros};
use crate::clients::Listed;
use crate::frame::{Reply, malformed};
use crate::service::Service;
use crate::state::Incarnation;

const LEADER: u8 = 0;
const HEALTHY: u8 = 0;
const TCP: u8 = 1;

/// In place of a user for who has not logged in.
const NOBODY: u32 = u32::MAX;

/// One node, under the address that this client reached: it is the one that works for it.
pub(super) fn cluster(service: &Service, caller: &Caller) -> Reply {
    let local = SocketAddr::new(caller.local.ip().to_canonical(), caller.local.port());
    let (ip, tcp_port) = service.config.advertised.clone().unwrap_or_else(|| (local.ip().to_string(), local.port()));
    let node = ClusterNodeResponse {
        name: "milena".to_owned(),
        ip,
        tcp_port,
        quic_port: 0,
        http_port: 0,
        websocket_port: 0,
        role: LEADER,
        status: HEALTHY,
    };
    let response = ClusterMetadataResponse { name: "milena".to_owned(), nodes: vec![node] };
    Reply::of(Operation::NonReplicated, &response)
}

/// Counts of what is stored. Figures of the process and the machine are for its own tools and stay 0.
pub(super) async fn stats(service: &Service) -> Answer {
    let mut stats = StatsResponse {
        process_id: std::process::id(),
        start_time: service.started_at_micros,
        run_time: now_micros().saturating_sub(service.started_at_micros),
        os_name: std::env::consts::OS.to_owned(),
        iggy_server_version: format!("milena {}", env!("CARGO_PKG_VERSION")),
        ..nothing()
    };
    let store = service.catalog.store.as_ref();
    for (_, infos) in service.catalog.streams().await? {
        stats.streams_count += 1;
        for described in view::all(store, &infos).await? {
            stats.topics_count += 1;
            stats.partitions_count += described.topic.partitions_count;
            stats.segments_count += described.partitions.iter().map(|partition| partition.segments_count).sum::<u32>();
            stats.messages_count += described.topic.messages_count;
            stats.messages_size_bytes += described.topic.size_bytes;
        }
    }
    stats.clients_count = u32::try_from(service.clients.list().len()).unwrap_or(u32::MAX);
    let groups = service.catalog.state.look(crate::state::Table::groups_count);
    stats.consumer_groups_count = u32::try_from(groups).unwrap_or(u32::MAX);
    Ok(Reply::of(Operation::NonReplicated, &stats))
}

fn nothing() -> StatsResponse {
    StatsResponse {
        process_id: 0,
        cpu_usage: 0.0,
        total_cpu_usage: 0.0,
        memory_usage: 0,
        total_memory: 0,
        available_memory: 0,
        run_time: 0,
        start_time: 0,
        read_bytes: 0,
        written_bytes: 0,
        messages_size_bytes: 0,
        streams_count: 0,
        topics_count: 0,
        partitions_count: 0,
        segments_count: 0,
        messages_count: 0,
        clients_count: 0,
        consumer_groups_count: 0,
        hostname: String::new(),
        os_name: String::new(),
        os_version: String::new(),
        kernel_version: String::new(),
        iggy_server_version: String::new(),
        iggy_server_semver: None,
        cache_metrics: Vec::new(),
        threads_count: 0,
        free_disk_space: 0,
        total_disk_space: 0,
    }
}

pub(super) fn clients(service: &Service) -> Reply {
    let clients = service.clients.list().iter().map(|listed| describe(service, listed)).collect();
    Reply::of(Operation::NonReplicated, &GetClientsResponse { clients })
}

pub(super) async fn one_client(service: &Service, body: &Bytes) -> Answer {
    let request = GetClientRequest::decode_from(body).map_err(malformed)?;
    Ok(client(service, request.client_id).await)
}

/// A connection with its memberships; empty when there is none of that number.
pub(super) async fn client(service: &Service, id: u32) -> Reply {
    let Some(listed) = service.clients.find(id) else {
        return Reply::empty(Operation::NonReplicated);
    };
    // A store that does not answer leaves the memberships out; the rest is known here.
    let streams = service.catalog.streams().await.unwrap_or_default();
    let groups = listed.session.as_ref().map(|session| service.members.groups_of(session.client)).unwrap_or_default();
    let place = |of: Incarnation| {
        let is_it = |info: &&TopicInfo| Incarnation::of(&info.topic) == of;
        let mut found =
            streams.iter().filter_map(|(stream, infos)| infos.iter().find(is_it).map(|info| (stream, info)));
        found.next().map(|(stream, info)| (stream.id, info.topic.topic_id()))
    };
    let consumer_groups = groups
        .into_iter()
        .filter_map(|(of, group_id)| {
            let (stream_id, topic_id) = place(of)?;
            Some(ConsumerGroupInfoResponse { stream_id, topic_id, group_id })
        })
        .collect();
    let response = ClientDetailsResponse { client: describe(service, &listed), consumer_groups };
    Reply::of(Operation::NonReplicated, &response)
}

fn describe(service: &Service, listed: &Listed) -> ClientResponse {
    let groups = listed.session.as_ref().map_or(0, |session| service.members.groups_of(session.client).len());
    ClientResponse {
        client_id: listed.id,
        user_id: if listed.session.is_some() { ROOT_ID } else { NOBODY },
        transport: TCP,
        address: listed.address.to_string(),
        consumer_groups_count: u32::try_from(groups).unwrap_or(u32::MAX),
    }
}
