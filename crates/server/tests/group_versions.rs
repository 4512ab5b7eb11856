//! Every version of every group API is decoded and answered in its own layout.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use groups_kit::{codes, commits, create, group, join_request, server, text, topic};
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use milena_wire::kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetFetchRequest, SyncGroupRequest,
};

/// A join as a client of that version sends it.
fn join_of(version: i16, name: &str, member: &str) -> JoinGroupRequest {
    let request = join_request(member, None).with_group_id(group(name));
    let request = if version == 0 { request.with_rebalance_timeout_ms(-1) } else { request };
    if version >= 8 { request.with_reason(Some(text("because"))) } else { request }
}

/// Joins alone with that version of JoinGroup; the member id.
async fn join(client: &mut RawClient, version: i16, name: &str) -> String {
    let mut answer = client.request(version, &join_of(version, name, "")).await;
    if version >= 4 {
        assert_eq!(answer.error_code, 79, "version {version}");
        answer = client.request(version, &join_of(version, name, &answer.member_id)).await;
    }
    assert_eq!((answer.error_code, answer.generation_id), (0, 1), "version {version}");
    assert_eq!(answer.protocol_name.as_deref(), Some("range"), "version {version}");
    assert_eq!(answer.protocol_type.as_deref(), (version >= 7).then_some("consumer"), "version {version}");
    assert_eq!((answer.members.len(), &answer.leader), (1, &answer.member_id), "version {version}");
    answer.member_id.to_string()
}

fn sync_of(name: &str, member: &str) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment("all".into());
    SyncGroupRequest::default()
        .with_group_id(group(name))
        .with_generation_id(1)
        .with_member_id(text(member))
        .with_assignments(vec![assignment])
}

#[tokio::test]
async fn join_group() {
    let server = server().await;
    let mut client = server.client().await;
    for version in 0..=9 {
        join(&mut client, version, &format!("v{version}")).await;
        // Refusals have a layout of their own: names are null only where that is allowed.
        let refused = client.request(version, &join_of(version, &format!("v{version}"), "stranger")).await;
        assert_eq!((refused.error_code, refused.generation_id), (25, -1), "version {version}");
        assert_eq!(refused.protocol_name.as_deref(), (version < 7).then_some(""), "version {version}");
    }
}

#[tokio::test]
async fn sync_group() {
    let server = server().await;
    let mut client = server.client().await;
    for version in 0..=5 {
        let name = format!("v{version}");
        let id = join(&mut client, 5, &name).await;
        let answer = client.request(version, &sync_of(&name, &id)).await;
        assert_eq!((answer.error_code, &*answer.assignment), (0, b"all".as_slice()), "version {version}");
        assert_eq!(answer.protocol_name.as_deref(), (version >= 5).then_some("range"), "version {version}");
        let refused = client.request(version, &sync_of(&name, "stranger")).await;
        assert_eq!((refused.error_code, refused.assignment.len()), (25, 0), "version {version}");
    }
}

#[tokio::test]
async fn heartbeat() {
    let server = server().await;
    let mut client = server.client().await;
    let id = join(&mut client, 5, "g").await;
    client.request(5, &sync_of("g", &id)).await;
    for version in 0..=4 {
        let beat = HeartbeatRequest::default().with_group_id(group("g")).with_generation_id(1);
        assert_eq!(client.request(version, &beat.clone().with_member_id(text(&id))).await.error_code, 0);
        assert_eq!(client.request(version, &beat.with_member_id(text("stranger"))).await.error_code, 25);
    }
}

#[tokio::test]
async fn leave_group() {
    let server = server().await;
    let mut client = server.client().await;
    for version in 0..=5 {
        let name = format!("v{version}");
        let id = join(&mut client, 5, &name).await;
        let request = LeaveGroupRequest::default().with_group_id(group(&name));
        for code in [0, 25] {
            if version < 3 {
                let answer = client.request(version, &request.clone().with_member_id(text(&id))).await;
                assert_eq!(answer.error_code, code, "version {version}");
                continue;
            }
            let who = MemberIdentity::default().with_member_id(text(&id));
            let answer = client.request(version, &request.clone().with_members(vec![who])).await;
            assert_eq!((answer.error_code, answer.members[0].error_code), (0, code), "version {version}");
        }
        let answer = client.request(version, &LeaveGroupRequest::default().with_group_id(group(""))).await;
        assert_eq!(answer.error_code, 24, "version {version}");
    }
}

#[tokio::test]
async fn offset_commit_answers_every_partition_in_order() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    for version in 2..=9 {
        let mut request = commits("t", &[(1, 5), (7, 5), (0, 5), (1, 6)]);
        request.topics.extend(commits("unknown", &[(0, 1)]).topics);
        let answer = client.request(version, &request).await;
        assert_eq!(codes(&answer), [0, 3, 0, 0, 3], "version {version}");
        let indexes: Vec<_> = answer.topics[0].partitions.iter().map(|p| p.partition_index).collect();
        assert_eq!((indexes, &**answer.topics[1].name), (vec![1, 7, 0, 1], "unknown"), "version {version}");
        // The last of two for one partition stands.
        assert_eq!(groups_kit::offsets(&mut client, "t", &[1]).await, [6], "version {version}");
    }
}

#[tokio::test]
async fn offset_fetch() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
    for version in 1..=9 {
        for all in [false, true] {
            if all && version == 1 {
                continue;
            }
            let row = if version < 8 {
                let one = OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0]);
                let request = OffsetFetchRequest::default()
                    .with_group_id(group("g"))
                    .with_topics((!all).then(|| vec![one]))
                    .with_require_stable(version >= 7);
                let answer = client.request(version, &request).await;
                assert_eq!(answer.error_code, 0, "version {version}");
                let row = &answer.topics[0].partitions[0];
                (row.committed_offset, row.metadata.clone(), row.error_code)
            } else {
                let one = OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0]);
                let asked = OffsetFetchRequestGroup::default()
                    .with_group_id(group("g"))
                    .with_member_epoch(-1)
                    .with_topics((!all).then(|| vec![one]));
                let answer = client.request(version, &OffsetFetchRequest::default().with_groups(vec![asked])).await;
                assert_eq!((&**answer.groups[0].group_id, answer.groups[0].error_code), ("g", 0));
                let row = &answer.groups[0].topics[0].partitions[0];
                (row.committed_offset, row.metadata.clone(), row.error_code)
            };
            assert_eq!(row, (5, Some(text("")), 0), "version {version}, all: {all}");
        }
    }
}

#[tokio::test]
async fn list_and_describe_groups() {
    let server = server().await;
    let mut client = server.client().await;
    join(&mut client, 5, "g").await;
    for version in 0..=5 {
        let groups = client.request(version, &ListGroupsRequest::default()).await.groups;
        let shown = (&**groups[0].group_id, &*groups[0].group_state, &*groups[0].group_type);
        let state = if version >= 4 { "CompletingRebalance" } else { "" };
        let kind = if version >= 5 { "classic" } else { "" };
        assert_eq!(shown, ("g", state, kind), "version {version}");
    }
    for version in 0..=6 {
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g"), group("none")]);
        let groups = client.request(version, &request).await.groups;
        assert_eq!((groups[0].error_code, groups[0].members.len()), (0, 1), "version {version}");
        let missing = if version >= 6 { 69 } else { 0 };
        assert_eq!((groups[1].error_code, &*groups[1].group_state), (missing, "Dead"), "version {version}");
    }
}

#[tokio::test]
async fn delete_groups() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for version in 0..=2 {
        assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group("g"), group("none")]);
        let results = client.request(version, &request).await.results;
        let results: Vec<_> = results.iter().map(|result| result.error_code).collect();
        assert_eq!(results, [0, 69], "version {version}");
    }
}
