//! The rules of OffsetCommit over TCP: who may commit when, what is stored, and what is refused.

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

use groups_kit::clock::HeldClock;
use groups_kit::{
    Member, builder, codes, commits, create, everything, fetched, group, join_request, offsets, one_record, pair,
    server, text,
};
use milena_store::testing::{Fault, MemoryStore};
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::{
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
};

#[tokio::test]
async fn a_generation_without_its_group_is_25_for_every_partition_and_founds_no_group() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    for version in 2..=9 {
        let mut request = commits("t", &[(0, 1), (1, 1)]).with_generation_id_or_member_epoch(0);
        request.topics.extend(commits("unknown", &[(0, 1)]).topics);
        let request = request.with_member_id(text("somebody"));
        assert_eq!(codes(&client.request(version, &request).await), [25, 25, 25], "version {version}");
    }
    assert_eq!(everything(&mut client).await, []);
    assert!(client.request(4, &ListGroupsRequest::default()).await.groups.is_empty());
}

#[tokio::test]
async fn in_a_group_that_everybody_has_left_outsiders_commit_and_former_members_do_not() {
    let server = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    let leaving = MemberIdentity::default().with_member_id(text(&member.id));
    let leave = LeaveGroupRequest::default().with_group_id(group("g")).with_members(vec![leaving]);
    assert_eq!(member.client.request(5, &leave).await.members[0].error_code, 0);
    assert_eq!(member.commit("t", &[(0, 7)]).await, [25]);
    let nameless = commits("t", &[(0, 7)]).with_generation_id_or_member_epoch(1);
    assert_eq!(codes(&member.client.request(9, &nameless).await), [25]);
    assert_eq!(everything(&mut member.client).await, []);
    assert_eq!(codes(&member.client.request(9, &commits("t", &[(0, 7)])).await), [0]);
    assert_eq!(offsets(&mut member.client, "t", &[0]).await, [7]);
}

#[tokio::test]
async fn a_member_may_commit_what_it_was_not_assigned_and_go_backwards() {
    let server = server().await;
    let (mut one, mut two) = pair(&server).await;
    create(&mut one.client, "t", 2).await;
    for offset in [5, 3, 0] {
        assert_eq!(one.commit("t", &[(0, offset), (1, offset)]).await, [0, 0]);
        assert_eq!(two.commit("t", &[(0, offset + 1)]).await, [0]);
        assert_eq!(offsets(&mut one.client, "t", &[0, 1]).await, [offset + 1, offset]);
    }
}

#[tokio::test]
async fn an_accepted_commit_refreshes_the_session_of_a_stable_member_and_a_refused_one_does_not() {
    let clock = HeldClock::hold();
    let server = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    // The session lasts ten seconds.
    for offset in 0..3 {
        clock.seconds(9).await;
        assert_eq!(member.commit("t", &[(0, offset)]).await, [0]);
    }
    clock.seconds(9).await;
    let late = member.commits("t", &[(0, 9)]).with_generation_id_or_member_epoch(7);
    assert_eq!(codes(&member.client.request(9, &late).await), [22]);
    clock.seconds(2).await;
    assert_eq!(member.heartbeat().await, 25);
    assert_eq!(offsets(&mut member.client, "t", &[0]).await, [2]);
}

#[tokio::test]
async fn a_commit_while_the_group_prepares_is_stored_and_refreshes_and_a_refused_one_does_not() {
    let clock = HeldClock::hold();
    let server = server().await;
    let (mut leader, mut other) = pair(&server).await;
    create(&mut other.client, "t", 1).await;
    leader.send_join().await;
    while other.heartbeat().await != 27 {}
    for offset in 0..3 {
        clock.seconds(9).await;
        assert_eq!(other.commit("t", &[(0, offset)]).await, [0]);
    }
    assert_eq!(offsets(&mut other.client, "t", &[0]).await, [2]);
    clock.seconds(9).await;
    let late = other.commits("t", &[(0, 9)]).with_generation_id_or_member_epoch(7);
    assert_eq!(codes(&other.client.request(9, &late).await), [22]);
    clock.seconds(2).await;
    assert_eq!(leader.joined().await.members.len(), 1, "nobody else is waited for");
    assert_eq!(other.heartbeat().await, 25);
}

#[tokio::test]
async fn a_commit_between_join_and_sync_is_27_stores_nothing_and_does_not_refresh_the_session() {
    let clock = HeldClock::hold();
    let server = server().await;
    let mut member = Member::new(&server).await;
    member.join().await;
    create(&mut member.client, "t", 2).await;
    assert_eq!(member.commit("t", &[(0, 1), (1, 1)]).await, [27, 27]);
    assert_eq!(everything(&mut member.client).await, []);
    clock.seconds(9).await;
    assert_eq!(member.commit("t", &[(0, 1)]).await, [27]);
    clock.seconds(2).await;
    assert_eq!(member.heartbeat().await, 25);
    let mut member = Member::alone(&server).await;
    assert_eq!(member.commit("t", &[(0, 1)]).await, [0]);
}

fn with_metadata(partition: i32, metadata: &str) -> OffsetCommitRequest {
    let mut request = commits("t", &[(partition, 1)]);
    request.topics[0].partitions[0].committed_metadata = Some(text(metadata));
    request
}

#[tokio::test]
async fn metadata_of_4096_utf_16_units_comes_back_and_one_more_is_12_for_its_partition_only() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 3).await;
    // Three bytes and one unit each, four bytes and two units each.
    let (fits, pairs) = ("\u{20ac}".repeat(4_096), "\u{1f600}".repeat(2_048));
    for version in 2..=9 {
        let mut request = with_metadata(0, &fits);
        for (partition, metadata) in [(1, format!("{fits}a")), (2, pairs.clone())] {
            request.topics[0].partitions.extend(with_metadata(partition, &metadata).topics.remove(0).partitions);
        }
        assert_eq!(codes(&client.request(version, &request).await), [0, 12, 0], "version {version}");
        let stored = |metadata: &String| (1, -1, metadata.clone());
        let expected = [stored(&fits), (-1, -1, String::new()), stored(&pairs)];
        assert_eq!(fetched(&mut client, "t", &[0, 1, 2]).await, expected, "version {version}");
    }
}

#[tokio::test]
async fn the_leader_epoch_is_stored_from_version_6_on() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for version in 2..=9 {
        let mut request = commits("t", &[(0, i64::from(version))]);
        request.topics[0].partitions[0].committed_leader_epoch = 4;
        assert_eq!(codes(&client.request(version, &request).await), [0]);
        let epoch = if version < 6 { -1 } else { 4 };
        assert_eq!(fetched(&mut client, "t", &[0]).await, [(i64::from(version), epoch, String::new())]);
    }
}

#[tokio::test]
async fn any_offset_is_stored_wherever_the_log_ends() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 0)])).await), [0], "0 of an empty partition");
    assert_eq!(offsets(&mut client, "t", &[0]).await, [0]);
    for end in 1..=3 {
        assert_eq!(client.request(9, &one_record("t")).await.responses[0].partition_responses[0].base_offset, end - 1);
    }
    for offset in [3, 3 + 10, i64::MAX] {
        assert_eq!(codes(&client.request(9, &commits("t", &[(0, offset)])).await), [0]);
        assert_eq!(offsets(&mut client, "t", &[0]).await, [offset]);
    }
}

#[tokio::test]
async fn an_offset_that_was_taken_away_is_minus_1_and_in_no_list() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 3), (1, 4)])).await), [0, 0]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, -1)])).await), [0]);
    assert_eq!(offsets(&mut client, "t", &[0, 1]).await, [-1, 4]);
    assert_eq!(everything(&mut client).await, [("t".to_owned(), 1, 4)]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, -1), (1, -1)])).await), [0, 0], "absent is taken away too");
    assert_eq!(everything(&mut client).await, []);
}

#[tokio::test]
async fn one_failure_of_the_store_is_14_for_every_partition_that_would_be_stored_and_stores_none() {
    let memory = MemoryStore::new();
    let server = builder().memory(memory.clone()).start().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    create(&mut client, "u", 1).await;
    for fault in [Fault::Full, Fault::Busy, Fault::InDoubtLost] {
        memory.plan(fault);
        let mut request = commits("t", &[(0, 1), (1, 1)]);
        request.topics.extend(commits("u", &[(0, 1)]).topics);
        assert_eq!(codes(&client.request(9, &request).await), [14, 14, 14], "{fault:?}");
        assert_eq!(everything(&mut client).await, [], "{fault:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_killed_between_append_and_answer_leaves_the_old_offset_or_the_new_one_whole() {
    let faults = [
        (Fault::Hangs { applied: true }, 2),
        (Fault::Hangs { applied: false }, 1),
        (Fault::InDoubtApplied, 2),
        (Fault::InDoubtLost, 1),
    ];
    for (fault, expected) in faults {
        let memory = MemoryStore::new();
        let server = builder().memory(memory.clone()).start().await;
        let mut client = server.client().await;
        create(&mut client, "t", 2).await;
        let request = |offset: i64| {
            let mut request = commits("t", &[(0, offset), (1, offset)]);
            for partition in &mut request.topics[0].partitions {
                partition.committed_metadata = Some(text(&format!("of {offset}")));
            }
            request
        };
        assert_eq!(codes(&client.request(9, &request(1)).await), [0, 0]);
        memory.plan(fault);
        client.send(9, &request(2)).await;
        while memory.faults_left() > 0 {
            tokio::task::yield_now().await;
        }
        // Neither asked to stop nor let look what became of its append.
        drop(server);
        let server = builder().memory(memory).start().await;
        let row = (expected, -1, format!("of {expected}"));
        assert_eq!(fetched(&mut server.client().await, "t", &[0, 1]).await, [row.clone(), row], "{fault:?}");
    }
}

#[tokio::test]
async fn commits_and_fetches_that_cannot_be_decoded_or_are_of_another_version_close_the_connection() {
    let server = server().await;
    let mut beside = server.client().await;
    let whole_v2 = || [&b"\0\x01g\xff\xff\xff\xff\0\0"[..], &[0xff; 8], &[0; 4]].concat();
    let mut client = server.client().await;
    client.send_frame(8, 2, 1, &whole_v2()).await;
    assert!(client.read_frame().await.is_some(), "this one is right");
    let bad: [(i16, i16, Vec<u8>); 9] = [
        (8, 0, whole_v2()),
        (8, 1, whole_v2()),
        (8, 10, whole_v2()),
        (9, 0, whole_v2()),
        (9, 10, whole_v2()),
        (8, 2, whole_v2()[..10].to_vec()),
        (8, 2, [whole_v2(), vec![0]].concat()),
        (8, 9, vec![0xff; 40]),
        (9, 8, vec![0xff; 40]),
    ];
    for (key, version, body) in bad {
        let mut client: RawClient = server.client().await;
        client.send_frame(key, version, 1, &body).await;
        client.expect_close().await;
    }
    assert_eq!(beside.request(7, &OffsetFetchRequest::default().with_group_id(group("g"))).await.error_code, 0);
}

/// A server whose groups expire as soon as they can.
async fn hasty(retention: Duration) -> milena_testkit::TestServer {
    let config = move |config: &mut milena_server::ServerConfig| {
        config.groups.session_timeout_min = Duration::from_millis(10);
        config.groups.session_timeout_max = Duration::from_millis(10);
        config.groups.offsets_retention = retention;
        config.groups.offsets_check_interval = Duration::from_millis(20);
    };
    builder().config(config).start().await
}

/// Commits with a retention of its own, to a group named after the version.
async fn commit_for(client: &mut RawClient, version: i16, retention_ms: i64) {
    let request = commits("t", &[(0, 5)]).with_group_id(group(&format!("v{version}")));
    let request = request.with_retention_time_ms(retention_ms);
    // A store that took longer than half of the short session is asked again.
    while codes(&client.request(version, &request).await) != [0] {}
}

async fn groups(client: &mut RawClient) -> Vec<String> {
    let groups = client.request(4, &ListGroupsRequest::default()).await.groups;
    groups.iter().map(|listed| listed.group_id.to_string()).collect()
}

#[tokio::test]
async fn a_retention_in_versions_2_to_4_is_longer_than_the_configured_one() {
    let server = hasty(Duration::from_millis(50)).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for version in 2..=4 {
        commit_for(&mut client, version, 3_600_000).await;
    }
    // Two that go as configured, committed last: when they are gone, the others could be.
    for version in [5, 9] {
        commit_for(&mut client, version, -1).await;
    }
    while groups(&mut client).await.len() > 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(groups(&mut client).await, ["v2", "v3", "v4"]);
}

#[tokio::test]
async fn a_retention_in_versions_2_to_4_is_shorter_than_the_configured_one() {
    let server = hasty(Duration::from_secs(3_600)).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for version in [2, 3, 4, 5, 9] {
        commit_for(&mut client, version, if version < 5 { 1 } else { -1 }).await;
    }
    while groups(&mut client).await.len() > 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(groups(&mut client).await, ["v5", "v9"]);
}

#[tokio::test]
async fn a_group_id_may_be_as_long_as_an_int16_says_and_a_longer_one_is_24() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let (longest, longer) = ("g".repeat(32_767), "g".repeat(32_768));
    for version in [2, 7, 8, 9] {
        let request = commits("t", &[(0, i64::from(version))]).with_group_id(group(&longest));
        assert_eq!(codes(&client.request(version, &request).await), [0], "version {version}");
        let all = OffsetFetchRequest::default().with_group_id(group(&longest)).with_topics(None);
        let row = &client.request(7, &all).await.topics[0].partitions[0];
        assert_eq!(row.committed_offset, i64::from(version), "version {version}");
    }
    let joined = client.request(3, &join_request("", None).with_group_id(group(&longest))).await;
    assert_eq!(joined.error_code, 0);
    // Only the compact form of a text can be longer.
    for version in [8, 9] {
        let request = commits("t", &[(0, 1)]).with_group_id(group(&longer));
        assert_eq!(codes(&client.request(version, &request).await), [24], "version {version}");
    }
    let refused = client.request(9, &join_request("", None).with_group_id(group(&longer))).await;
    assert_eq!(refused.error_code, 24);
}
