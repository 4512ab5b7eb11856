//! What clients hear when groups are coordinated elsewhere, by nobody, or not yet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use groups_kit::{Member, builder, codes, commits, create, group, join_request, offsets, text, topic};
use milena_server::groups::{Coordinator, Coordinators, Endpoint, Node};
use milena_store::testing::{Fault, MemoryStore};
use milena_testkit::RawClient;
use milena_testkit::server::Builder;
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest,
};
use tokio::sync::watch;

/// Says what the test says.
#[derive(Debug)]
struct Told {
    coordinator: Mutex<Coordinator>,
    mandate: watch::Sender<bool>,
}

impl Told {
    fn new(coordinator: Coordinator, mandated: bool) -> Arc<Self> {
        Arc::new(Self { coordinator: Mutex::new(coordinator), mandate: watch::Sender::new(mandated) })
    }

    fn say(&self, coordinator: Coordinator) {
        *self.coordinator.lock().unwrap() = coordinator;
    }
}

impl Coordinators for Told {
    fn coordinator_of(&self, _group: &str) -> Coordinator {
        self.coordinator.lock().unwrap().clone()
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        self.mandate.subscribe()
    }
}

fn elsewhere() -> Coordinator {
    let endpoint =
        |listener: &str, host: &str, port| Endpoint { listener: listener.to_owned(), host: host.to_owned(), port };
    let endpoints = vec![endpoint("another", "wrong.example", 1), endpoint("test", "right.example", 9_093)];
    Coordinator::At(Arc::new(Node { id: 7, endpoints }))
}

fn server(told: &Arc<Told>) -> Builder {
    let told = Arc::clone(told) as Arc<dyn Coordinators>;
    builder().config(|config| config.coordinators = told)
}

/// Error, node, host and port in the answer of each version.
async fn found(client: &mut RawClient, version: i16) -> (i16, i32, String, i32) {
    let request = FindCoordinatorRequest::default();
    if version < 4 {
        let answer = client.request(version, &request.with_key(text("g"))).await;
        return (answer.error_code, answer.node_id.0, answer.host.to_string(), answer.port);
    }
    let answer = client.request(version, &request.with_coordinator_keys(vec![text("g")])).await;
    let one = &answer.coordinators[0];
    assert_eq!(&*one.key, "g");
    (one.error_code, one.node_id.0, one.host.to_string(), one.port)
}

#[tokio::test]
async fn clients_are_sent_to_the_node_that_coordinates_as_their_listener_reaches_it() {
    let told = Told::new(Coordinator::Here, true);
    let server = server(&told).start().await;
    let mut client = server.client().await;
    let port = i32::from(server.address().port());
    for version in 0..=6 {
        told.say(elsewhere());
        assert_eq!(found(&mut client, version).await, (0, 7, "right.example".to_owned(), 9_093), "{version}");
        told.say(Coordinator::Here);
        assert_eq!(found(&mut client, version).await, (0, 0, "127.0.0.1".to_owned(), port), "{version}");
        told.say(Coordinator::Unknown);
        assert_eq!(found(&mut client, version).await, (15, -1, String::new(), -1), "{version}");
        told.say(Coordinator::At(Arc::new(Node { id: 7, endpoints: Vec::new() })));
        assert_eq!(found(&mut client, version).await, (15, -1, String::new(), -1), "{version}");
    }
}

fn joined(version: i16) -> JoinGroupRequest {
    let instance = (version >= 5).then_some("i");
    let request = join_request("m", instance);
    if version == 0 { request.with_rebalance_timeout_ms(-1) } else { request }
}

/// Codes of the answers to everything that one can ask about groups, by key and version. What has an error of its own for
/// each group, member or partition has it there.
async fn everything(client: &mut RawClient) -> Vec<(&'static str, i16, i16)> {
    let mut answers = Vec::new();
    for version in 0..=9 {
        let answer = client.request(version, &joined(version)).await;
        assert_eq!((answer.generation_id, &*answer.member_id, answer.members.len()), (-1, "m", 0));
        answers.push(("JoinGroup", version, answer.error_code));
    }
    for version in 0..=5 {
        let request = SyncGroupRequest::default().with_group_id(group("g")).with_member_id(text("m"));
        answers.push(("SyncGroup", version, client.request(version, &request).await.error_code));
    }
    for version in 0..=4 {
        let request = HeartbeatRequest::default().with_group_id(group("g")).with_member_id(text("m"));
        answers.push(("Heartbeat", version, client.request(version, &request).await.error_code));
    }
    for version in 0..=5 {
        let request = LeaveGroupRequest::default().with_group_id(group("g"));
        let who = MemberIdentity::default().with_member_id(text("m"));
        let request = if version < 3 { request.with_member_id(text("m")) } else { request.with_members(vec![who]) };
        let answer = client.request(version, &request).await;
        assert!(answer.members.is_empty());
        answers.push(("LeaveGroup", version, answer.error_code));
    }
    for version in 2..=9 {
        let both = codes(&client.request(version, &commits("t", &[(0, 1), (7, 1)])).await);
        assert_eq!(both.len(), 2);
        answers.extend(both.into_iter().map(|code| ("OffsetCommit", version, code)));
    }
    offset_fetches(client, &mut answers).await;
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let one = OffsetDeleteRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![one]);
    answers.push(("OffsetDelete", 0, client.request(0, &request).await.error_code));
    for version in 0..=6 {
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
        answers.push(("DescribeGroups", version, client.request(version, &request).await.groups[0].error_code));
    }
    for version in 0..=2 {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group("g")]);
        answers.push(("DeleteGroups", version, client.request(version, &request).await.results[0].error_code));
    }
    for version in 0..=5 {
        let answer = client.request(version, &ListGroupsRequest::default()).await;
        assert!(answer.groups.is_empty());
        answers.push(("ListGroups", version, answer.error_code));
    }
    answers
}

async fn offset_fetches(client: &mut RawClient, answers: &mut Vec<(&'static str, i16, i16)>) {
    let one = OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(Some(vec![one]));
    for version in 1..=7 {
        let answer = client.request(version, &request).await;
        if version == 1 {
            let row = &answer.topics[0].partitions[0];
            answers.push(("OffsetFetch", version, row.error_code));
        } else {
            assert!(answer.topics.is_empty());
            answers.push(("OffsetFetch", version, answer.error_code));
        }
    }
    for version in 8..=9 {
        let one = OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(group("g"))
            .with_member_epoch(-1)
            .with_topics(Some(vec![one]));
        let answer = client.request(version, &OffsetFetchRequest::default().with_groups(vec![asked])).await;
        assert!(answer.groups[0].topics.is_empty());
        answers.push(("OffsetFetch", version, answer.groups[0].error_code));
    }
}

#[tokio::test]
async fn every_group_request_of_every_version_is_sent_elsewhere() {
    let told = Told::new(Coordinator::Here, true);
    let server = server(&told).start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
    // A mandate that ran out counts before it is given up; one that is given up counts by itself.
    for (coordinator, mandated) in [(elsewhere(), true), (Coordinator::Unknown, true), (Coordinator::Here, false)] {
        told.say(coordinator);
        if !mandated {
            told.mandate.send_replace(false);
            while client.request(4, &heartbeat()).await.error_code == 25 {}
        }
        for (what, version, code) in everything(&mut client).await {
            let expected = if what == "ListGroups" { 0 } else { 16 };
            assert_eq!(code, expected, "{what} {version}");
        }
    }
    told.mandate.send_replace(true);
    while client.request(4, &heartbeat()).await.error_code != 25 {}
    assert_eq!(offsets(&mut client, "t", &[0]).await, [5], "nothing of what was sent elsewhere took effect");
}

fn heartbeat() -> HeartbeatRequest {
    HeartbeatRequest::default().with_group_id(group("g")).with_member_id(text("m"))
}

#[tokio::test]
async fn while_offsets_are_loaded_clients_are_told_to_wait_and_never_that_nothing_is_stored() {
    let memory = MemoryStore::new();
    let told = Told::new(Coordinator::Here, true);
    let server = server(&told).memory(memory.clone()).start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
    told.mandate.send_replace(false);
    while client.request(4, &heartbeat()).await.error_code == 25 {}
    memory.plan(Fault::Hangs { applied: false });
    told.mandate.send_replace(true);
    while client.request(4, &heartbeat()).await.error_code == 16 {}
    for (what, version, code) in everything(&mut client).await {
        let expected = match what {
            "Heartbeat" => 0,
            "SyncGroup" => 27,
            _ => 14,
        };
        assert_eq!(code, expected, "{what} {version}");
    }
    // The store that hangs is left behind with the mandate.
    told.mandate.send_replace(true);
    while client.request(4, &heartbeat()).await.error_code != 25 {}
    assert_eq!(offsets(&mut client, "t", &[0]).await, [5]);
}

#[tokio::test]
async fn who_waits_for_a_group_is_sent_elsewhere_when_its_coordinator_resigns() {
    let memory = MemoryStore::new();
    let told = Told::new(Coordinator::Here, true);
    let server = server(&told).memory(memory.clone()).start().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    let mut joining = server.client().await;
    joining.send(3, &join_request("", None)).await;
    while member.heartbeat().await != 27 {}
    memory.plan(Fault::Hangs { applied: false });
    let commit = member.commits("t", &[(0, 1)]);
    member.client.send(9, &commit).await;
    assert!(member.client.is_quiet_for(Duration::from_millis(50)).await);
    told.mandate.send_replace(false);
    assert_eq!(joining.receive::<JoinGroupRequest>().await.error_code, 16);
    assert_eq!(codes(&member.client.receive::<OffsetCommitRequest>().await), [16]);
    told.mandate.send_replace(true);
    while member.heartbeat().await != 25 {}
    member.id.clear();
    let again = member.join().await;
    assert_eq!((again.error_code, again.generation_id, again.members.len()), (0, 1, 1));
}
