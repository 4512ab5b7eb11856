//! Commits under load: nothing waits for them that need not, and a start does not pay for all that were ever made.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use groups_kit::clock::HeldClock;
use groups_kit::gate::Gated;
use groups_kit::{Member, builder, codes, commits, create, group, offsets, one_record};
use milena_groups::{CommitPartition, CommitRequest, CommitTopic, Generation, Sender, TopicId};
use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::testing::{Layered, MemoryStore};
use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::{
    HeartbeatRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest,
};

/// A server over a store that holds up the appends to a topic.
async fn gated(topic: &str, in_flight_max: usize) -> (Gated, TestServer) {
    let store = Gated::new(topic);
    let builder = builder().store(Arc::new(Layered(store.clone())));
    let server = builder.config(|config| config.groups.offsets_in_flight_max = in_flight_max).start().await;
    store.hold();
    (store, server)
}

#[tokio::test]
async fn heartbeats_are_answered_at_once_while_the_store_hangs_and_as_many_commits_wait_as_may() {
    let clock = HeldClock::hold();
    let (store, server) = gated("offsets", 4).await;
    let mut busy = Member::alone(&server).await;
    create(&mut busy.client, "t", 1).await;
    // One hangs in the store, three wait for it, and for eight there is no room: they are refused at once.
    let mut answers = FuturesUnordered::new();
    for offset in 0..12 {
        let mut client = server.client().await;
        client.send(9, &busy.commits("t", &[(0, offset)])).await;
        answers.push(async move { codes(&client.receive::<OffsetCommitRequest>().await) });
    }
    for _ in 0..8 {
        assert_eq!(answers.next().await, Some(vec![14]));
    }
    store.arrived(1).await;
    let mut beside = server.client().await;
    for _ in 0..50 {
        assert_eq!(beside.request(4, &busy.heartbeat_request()).await.error_code, 0);
    }
    let mut other = Member::alone_in(&server, "other").await;
    let all = OffsetFetchRequest::default().with_group_id(group("other")).with_topics(None);
    assert_eq!(other.request(7, &all).await.error_code, 0);
    // No time has passed. Half of the shortest session later those that wait are answered, too.
    clock.seconds(4).await;
    for _ in 0..4 {
        assert_eq!(answers.next().await, Some(vec![14]));
    }
    assert_eq!(busy.heartbeat().await, 0);
    assert_eq!(offsets(&mut beside, "t", &[0]).await, [-1]);
}

#[tokio::test]
async fn a_heartbeat_behind_a_stuck_commit_waits_no_longer_than_half_of_the_shortest_session() {
    let clock = HeldClock::hold();
    let (store, server) = gated("offsets", 4).await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    let (commit, beat) = (member.commits("t", &[(0, 1)]), member.heartbeat_request());
    member.client.send(9, &commit).await;
    member.client.send(4, &beat).await;
    store.arrived(1).await;
    clock.seconds(4).await;
    assert_eq!(codes(&member.client.receive::<OffsetCommitRequest>().await), [14]);
    assert_eq!(member.client.receive::<HeartbeatRequest>().await.error_code, 0);
}

#[tokio::test]
async fn commits_do_not_wait_for_a_produce_that_the_store_does_not_answer() {
    let _clock = HeldClock::hold();
    let (store, server) = gated("t", 1_000).await;
    let mut producer = server.client().await;
    create(&mut producer, "t", 1).await;
    producer.send(9, &one_record("t")).await;
    store.arrived(1).await;
    // Without a moment passing: a member, an outsider, and the very group that reads the topic.
    let mut member = Member::alone(&server).await;
    for offset in 0..20 {
        assert_eq!(member.commit("t", &[(0, offset)]).await, [0]);
        let beside = commits("t", &[(0, offset)]).with_group_id(group("beside"));
        assert_eq!(codes(&member.client.request(9, &beside).await), [0]);
    }
    assert_eq!(offsets(&mut member.client, "t", &[0]).await, [19]);
    store.open(1);
    let answer = producer.receive::<ProduceRequest>().await;
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!((partition.error_code, partition.base_offset), (0, 0), "it was stuck all the time");
}

#[tokio::test]
async fn on_one_connection_a_commit_is_carried_out_behind_the_produce_before_it() {
    let clock = HeldClock::hold();
    let (store, server) = gated("t", 1_000).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    client.send(9, &one_record("t")).await;
    client.send(9, &commits("t", &[(0, 1)])).await;
    store.arrived(1).await;
    let mut beside = server.client().await;
    for _ in 0..20 {
        assert_eq!(offsets(&mut beside, "t", &[0]).await, [-1]);
    }
    // The produce gives up in its own time, which ends the wait of the commit as well.
    clock.seconds(21).await;
    let answer = client.receive::<ProduceRequest>().await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 7);
    assert_eq!(codes(&client.receive::<OffsetCommitRequest>().await), [0]);
    assert_eq!(offsets(&mut beside, "t", &[0]).await, [1]);
    store.open(1);
}

const COMMITS: i64 = 100_000;
const SNAPSHOT_BYTES: u64 = 256 << 10;

/// A commit of an offset to one of a hundred partitions.
fn numbered(offset: i64) -> CommitRequest {
    let partition = CommitPartition {
        partition: i32::try_from(offset % 100).unwrap(),
        exists: true,
        offset,
        leader_epoch: -1,
        metadata: None,
        expected: None,
    };
    let topic = CommitTopic { name: Arc::from("t"), id: Some(TopicId::FOREIGN), partitions: vec![partition] };
    CommitRequest { group: Arc::from("g"), retention_ms: None, topics: vec![topic] }
}

/// Records in a message of the log of offsets, and their bytes: a version, then each behind its length.
fn records_of(bundle: &[u8]) -> usize {
    let mut rest = bundle.split_first().unwrap().1;
    let mut count = 0;
    while let Some((length, behind)) = rest.split_first_chunk() {
        rest = &behind[usize::try_from(u32::from_be_bytes(*length)).unwrap()..];
        count += 1;
    }
    count
}

#[tokio::test]
async fn after_100_000_commits_a_start_replays_no_more_than_a_snapshot_and_what_came_since() {
    let memory = MemoryStore::new();
    let config = |config: &mut milena_server::ServerConfig| {
        config.groups.offsets_snapshot_bytes = SNAPSHOT_BYTES;
        config.groups.foreign_offsets = milena_server::groups::ForeignOffsets::Allow;
        // The test machine may be slow, and none of these commits may be given up.
        config.groups.session_timeout_min = Duration::from_secs(1_000);
    };
    let server = builder().memory(memory.clone()).config(config).start().await;
    let sender = Sender { group: "g", member_id: "", instance_id: None, generation: Generation(-1) };
    let groups = &server.server().broker().groups;
    for first in (0..COMMITS).step_by(200) {
        let stored = join_all((first..first + 200).map(|offset| groups.commit(&sender, numbered(offset)))).await;
        assert!(stored.iter().all(|results| results.as_deref() == Some(&[Ok(())])));
    }
    server.shutdown().await;

    let (mut records, mut bytes) = (0, 0_u64);
    let store = Arc::new(memory.again());
    let log = StateLog::open(store, "offsets", StateLogOptions::default(), |event| match event {
        StateEvent::Reset => (records, bytes) = (0, 0),
        StateEvent::Record(bundle) => {
            records += records_of(bundle);
            bytes += bundle.len() as u64;
        }
    });
    drop(log.await.unwrap());
    // The table is small, so the snapshot is. What comes behind it is a snapshot interval and what was under way.
    assert!(bytes < 2 * SNAPSHOT_BYTES, "{bytes} bytes are replayed");
    assert!(records < 15_000, "{records} of {COMMITS} commits are replayed");

    let server = builder().memory(memory).config(config).start().await;
    let mut client = server.client().await;
    let all: Vec<i32> = (0..100).collect();
    assert_eq!(offsets(&mut client, "t", &all).await, (COMMITS - 100..COMMITS).collect::<Vec<_>>());
}
