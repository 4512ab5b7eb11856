//! Committed offsets over TCP: what is stored, what is refused, and what survives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use std::time::Duration;

use bytes::Bytes;
use groups_kit::{
    Member, builder, codes, commits, create, everything, fetched, group, offset_delete, offsets, server, subscription,
    topic,
};
use milena_server::ServerConfig;
use milena_server::config::MappedTopic;
use milena_server::groups::ForeignOffsets;
use milena_store::testing::{Fault, MemoryStore};
use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic};
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteTopicsRequest, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
};

const TAG: i32 = 10_000;

fn with_text(mut request: OffsetCommitRequest, epoch: i32, text: &str) -> OffsetCommitRequest {
    for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.committed_leader_epoch = epoch;
        partition.committed_metadata = Some(groups_kit::text(text));
    }
    request
}

fn expecting(mut request: OffsetCommitRequest, expected: &[u8]) -> OffsetCommitRequest {
    for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.unknown_tagged_fields.insert(TAG, Bytes::copy_from_slice(expected));
    }
    request
}

#[tokio::test]
async fn offsets_come_back_with_metadata_and_epoch_on_any_connection() {
    let server = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 3).await;
    let request = with_text(member.commits("t", &[(0, 0), (2, 42)]), 0, "who: \u{e9}");
    assert_eq!(codes(&member.client.request(9, &request).await), [0, 0]);
    let mut other = server.client().await;
    let none = (-1, -1, String::new());
    let there = |offset: i64| (offset, 0, "who: \u{e9}".to_owned());
    assert_eq!(fetched(&mut other, "t", &[0, 1, 2]).await, [there(0), none, there(42)]);
}

#[tokio::test]
async fn what_nobody_committed_is_minus_1_and_no_error() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let none = || (-1, -1, String::new());
    assert_eq!(fetched(&mut client, "t", &[0]).await, [none()], "an unknown group");
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
    assert_eq!(fetched(&mut client, "t", &[7, -1]).await, [none(), none()], "unknown partitions");
    assert_eq!(fetched(&mut client, "no such topic", &[7]).await, [none()]);
    for version in 1..=7 {
        let topic = OffsetFetchRequestTopic::default().with_name(topic("no such topic"));
        let request = OffsetFetchRequest::default().with_group_id(group("unknown"));
        let request = request.with_topics(Some(vec![topic.with_partition_indexes(vec![3])]));
        let answer = client.request(version, &request).await;
        let row = &answer.topics[0].partitions[0];
        assert_eq!((answer.error_code, row.error_code, row.partition_index), (0, 0, 3), "version {version}");
        assert_eq!((row.committed_offset, row.metadata.as_deref()), (-1, Some("")), "version {version}");
    }
}

#[tokio::test]
async fn offsets_of_an_overridden_topic_are_under_its_kafka_name_in_every_request() {
    let target = MappedTopic { stream: "shop".to_owned(), topic: "orders-v2".to_owned() };
    let config = |config: &mut ServerConfig| {
        config.topic_mapping.topics.insert("orders".to_owned(), target);
    };
    let server = builder().config(config).start().await;
    let mut client = server.client().await;
    create(&mut client, "orders", 1).await;
    assert_eq!(codes(&client.request(9, &commits("orders", &[(0, 5)])).await), [0]);
    assert_eq!(codes(&client.request(9, &commits("orders-v2", &[(0, 5)])).await), [3]);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(everything(&mut client).await, [("orders".to_owned(), 0, 5)]);
    assert_eq!(offsets(&mut client, "orders", &[0]).await, [5]);
    let answer = client.request(0, &offset_delete("orders", "g")).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    assert_eq!(offsets(&mut client, "orders", &[0]).await, [-1]);
}

#[tokio::test]
async fn one_bad_partition_does_not_fail_the_others() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let mut request = commits("t", &[(0, 5), (1, 5), (0, -3), (-1, 5)]);
    request.topics.extend(commits("unknown", &[(0, 1)]).topics);
    assert_eq!(codes(&client.request(9, &request).await), [0, 3, 1, 3, 3]);
    let long = with_text(commits("t", &[(0, 6)]), -1, &"x".repeat(4_097));
    assert_eq!(codes(&client.request(9, &long).await), [12]);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [5]);
}

#[tokio::test]
async fn who_is_not_the_member_of_the_generation_commits_nothing() {
    let server = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    let mut client = server.client().await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1)])).await), [25]);
    let late = member.commits("t", &[(0, 1)]).with_generation_id_or_member_epoch(9);
    assert_eq!(codes(&client.request(9, &late).await), [22]);
    let lost = member.commits("t", &[(0, 1)]).with_group_id(group("unknown"));
    assert_eq!(codes(&client.request(9, &lost).await), [25]);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [-1]);
}

#[tokio::test]
async fn minus_1_takes_the_offset_away_and_the_empty_group_id_is_a_group() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for offset in [3, -1] {
        assert_eq!(codes(&client.request(9, &commits("t", &[(0, offset)])).await), [0]);
        assert_eq!(offsets(&mut client, "t", &[0]).await, [offset]);
    }
    assert_eq!(codes(&client.request(2, &commits("t", &[(0, 4)]).with_group_id(group(""))).await), [0]);
    let all = OffsetFetchRequest::default().with_group_id(group("")).with_topics(None);
    assert_eq!(client.request(2, &all).await.topics[0].partitions[0].committed_offset, 4);
}

#[tokio::test]
async fn all_offsets_of_several_groups_are_fetched_at_once() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "a", 1).await;
    create(&mut client, "b", 2).await;
    let mut request = commits("b", &[(1, 2), (0, 1)]);
    request.topics.extend(commits("a", &[(0, 9)]).topics);
    assert_eq!(codes(&client.request(8, &request).await), [0, 0, 0]);
    let groups = ["g", "unknown"].map(|name| {
        OffsetFetchRequestGroup::default().with_group_id(group(name)).with_topics(None).with_member_epoch(-1)
    });
    let answer = client.request(8, &OffsetFetchRequest::default().with_groups(groups.to_vec())).await;
    let rows = answer.groups[0].topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (&**t.name, p)));
    let rows: Vec<_> = rows.map(|(name, p)| (name, p.partition_index, p.committed_offset)).collect();
    assert_eq!(rows, [("a", 0, 9), ("b", 0, 1), ("b", 1, 2)]);
    assert_eq!((answer.groups[1].error_code, answer.groups[1].topics.len()), (0, 0));
}

#[tokio::test]
async fn versions_before_5_return_no_epoch() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let request = with_text(commits("t", &[(0, 5)]), 0, "m");
    assert_eq!(codes(&client.request(6, &request).await), [0]);
    for version in 1..=7 {
        let wanted = OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(Some(vec![wanted]));
        let answer = client.request(version, &request).await;
        let row = &answer.topics[0].partitions[0];
        let epoch = if version < 5 { -1 } else { 0 };
        assert_eq!((row.committed_offset, row.committed_leader_epoch), (5, epoch), "version {version}");
        assert_eq!(row.metadata.as_deref(), Some("m"), "version {version}");
    }
}

#[tokio::test]
async fn a_conditional_commit_stores_only_over_the_offset_it_expects() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for version in [8, 9] {
        let first = expecting(commits("t", &[(0, 10)]), &(-1_i64).to_be_bytes());
        let first = first.with_group_id(group(&format!("v{version}")));
        assert_eq!(codes(&client.request(version, &first).await), [0]);
        let again = client.request(version, &first).await;
        let refused = &again.topics[0].partitions[0];
        assert_eq!(refused.error_code, 95);
        assert_eq!(refused.unknown_tagged_fields[&TAG], 10_i64.to_be_bytes().as_slice());
        let next = expecting(commits("t", &[(0, 11)]), &10_i64.to_be_bytes());
        let answer = client.request(version, &next.with_group_id(group(&format!("v{version}")))).await;
        assert!(answer.topics[0].partitions[0].unknown_tagged_fields.is_empty());
        assert_eq!(codes(&answer), [0]);
    }
    let odd = expecting(commits("t", &[(0, 1)]), b"1234567");
    assert_eq!(codes(&client.request(9, &odd).await), [42]);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [-1]);
}

#[tokio::test]
async fn commits_survive_a_restart_in_memory_and_in_a_folder() {
    for builder in [builder(), builder().in_folder()] {
        let server = builder.start().await;
        let mut client = server.client().await;
        create(&mut client, "t", 2).await;
        let request = with_text(commits("t", &[(0, 5), (1, 6)]), 3, "kept");
        assert_eq!(codes(&client.request(9, &request).await), [0, 0]);
        let server = server.restart().await;
        let rows = fetched(&mut server.client().await, "t", &[0, 1]).await;
        assert_eq!(rows, [(5, 3, "kept".to_owned()), (6, 3, "kept".to_owned())]);
        server.shutdown().await;
    }
}

#[tokio::test]
async fn an_acknowledged_commit_survives_a_server_that_is_killed() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for offset in 0..50 {
        assert_eq!(codes(&client.request(9, &commits("t", &[(0, offset)])).await), [0]);
    }
    let server = server.kill_and_start().await;
    assert_eq!(offsets(&mut server.client().await, "t", &[0]).await, [49]);
}

#[tokio::test]
async fn snapshots_keep_the_log_short_and_the_offsets_whole() {
    let server = builder().config(|config| config.groups.offsets_snapshot_bytes = 2_000).start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 20).await;
    for offset in 0..200 {
        let request = commits("t", &[(i32::try_from(offset % 20).unwrap(), offset)]);
        assert_eq!(codes(&client.request(9, &request).await), [0]);
    }
    assert!(server.server().broker().metrics.groups.snapshots.get() > 2);
    let server = server.restart().await;
    let all: Vec<i32> = (0..20).collect();
    assert_eq!(offsets(&mut server.client().await, "t", &all).await, (180..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_store_that_refuses_fails_the_commit_and_keeps_what_was_there() {
    let memory = MemoryStore::new();
    let server = builder().memory(memory.clone()).start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1)])).await), [0]);
    memory.plan(Fault::Full);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 2)])).await), [14]);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [1]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 3)])).await), [0]);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [3]);
}

#[tokio::test]
async fn a_store_that_hangs_fails_commits_in_time_and_holds_up_no_heartbeat() {
    let memory = MemoryStore::new();
    let builder = builder().memory(memory.clone());
    let builder = builder.config(|config| config.groups.session_timeout_min = Duration::from_millis(400));
    let server = builder.start().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    memory.plan(Fault::Hangs { applied: false });
    let request = member.commits("t", &[(0, 1)]);
    member.client.send(9, &request).await;
    let mut other = server.client().await;
    let mut beside = Member { client: server.client().await, id: member.id.clone(), instance: None, ..member };
    assert_eq!(beside.heartbeat().await, 0);
    let answer = member.client.receive::<OffsetCommitRequest>().await;
    assert_eq!(codes(&answer), [14]);
    assert_eq!(offsets(&mut other, "t", &[0]).await, [-1]);
}

#[tokio::test]
async fn while_too_many_bytes_wait_for_the_store_nothing_more_is_taken() {
    let memory = MemoryStore::new();
    let builder = builder().memory(memory.clone()).config(|config| {
        config.groups.offsets_in_flight_bytes = 10;
        config.groups.session_timeout_min = Duration::from_millis(100);
    });
    let server = builder.start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1)])).await), [0]);
    memory.plan(Fault::Hangs { applied: false });
    for _ in 0..2 {
        assert_eq!(codes(&client.request(9, &commits("t", &[(0, 2)])).await), [14]);
        assert_eq!(client.request(0, &offset_delete("t", "g")).await.error_code, 14);
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group("g")]);
        assert_eq!(client.request(2, &request).await.results[0].error_code, 14);
    }
    assert_eq!(offsets(&mut client, "t", &[0]).await, [1]);
}

#[tokio::test]
async fn a_deleted_topic_takes_its_offsets_with_it() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic("t")]).with_timeout_ms(5_000);
    assert_eq!(client.request(5, &delete).await.responses[0].error_code, 0);
    let gone = |server: &TestServer| server.server().broker().groups.offsets("g", |view| view.is_empty()).unwrap();
    assert!(gone(&server));
    create(&mut client, "t", 1).await;
    assert_eq!(offsets(&mut client, "t", &[0]).await, [-1]);
    let server = server.restart().await;
    assert!(gone(&server));
}

#[tokio::test]
async fn offsets_of_topics_elsewhere_are_stored_only_if_allowed() {
    let server = server().await;
    let mut client = server.client().await;
    assert_eq!(codes(&client.request(9, &commits("elsewhere", &[(3, 5)])).await), [3]);
    let server = server.restart_with(|config| config.groups.foreign_offsets = ForeignOffsets::Allow).await;
    let mut client = server.client().await;
    assert_eq!(codes(&client.request(9, &commits("elsewhere", &[(3, 5)])).await), [0]);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(offsets(&mut client, "elsewhere", &[3]).await, [5]);
    let all = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(None);
    assert_eq!(&**client.request(7, &all).await.topics[0].name, "elsewhere");
}

#[tokio::test]
async fn an_offset_of_a_topic_that_the_group_reads_is_kept_and_86_says_so() {
    let server = server().await;
    let mut client = server.client().await;
    for name in ["read", "left"] {
        create(&mut client, name, 1).await;
    }
    let mut member = Member::new(&server).await;
    member.metadata = subscription(&["read"]);
    member.join().await;
    let id = member.id.clone();
    member.sync(&[(&id, "all")]).await;
    assert_eq!(member.commit("read", &[(0, 1)]).await, [0]);
    assert_eq!(member.commit("left", &[(0, 2)]).await, [0]);
    let delete = |name: &str| offset_delete(name, "g");
    let mut both = delete("read");
    both.topics.extend(delete("left").topics);
    for _ in ["there", "absent"] {
        let answer = client.request(0, &both).await;
        let codes: Vec<_> = answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
        assert_eq!((answer.error_code, codes), (0, vec![86, 0]));
        assert_eq!(everything(&mut client).await, [("read".to_owned(), 0, 1)]);
    }
}

#[tokio::test]
async fn offsets_are_deleted_one_by_one_or_with_their_group() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5), (1, 6)])).await), [0, 0]);
    assert_eq!(client.request(0, &offset_delete("t", "unknown")).await.error_code, 69);
    let answer = client.request(0, &offset_delete("t", "g")).await;
    assert_eq!((answer.error_code, answer.topics[0].partitions[0].error_code), (0, 0));
    assert_eq!(offsets(&mut client, "t", &[0, 1]).await, [-1, 6]);

    let _member = Member::alone_in(&server, "busy").await;
    let names = ["g", "busy", "unknown", ""].map(group).to_vec();
    let answer = client.request(2, &DeleteGroupsRequest::default().with_groups_names(names)).await;
    let results: Vec<_> = answer.results.iter().map(|r| (&**r.group_id, r.error_code)).collect();
    assert_eq!(results, [("g", 0), ("busy", 68), ("unknown", 69), ("", 24)]);
    assert_eq!(offsets(&mut client, "t", &[1]).await, [-1]);
}

#[tokio::test]
async fn groups_without_offsets_and_members_expire_with_their_offsets() {
    let server = builder()
        .config(|config| {
            config.groups.session_timeout_min = Duration::from_millis(10);
            config.groups.session_timeout_max = Duration::from_millis(10);
            config.groups.offsets_retention = Duration::from_millis(10);
            config.groups.offsets_check_interval = Duration::from_millis(20);
        })
        .start()
        .await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    while codes(&client.request(9, &commits("t", &[(0, 5)])).await) != [0] {}
    while offsets(&mut client, "t", &[0]).await != [-1] {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(client.request(4, &ListGroupsRequest::default()).await.groups.is_empty());
}
