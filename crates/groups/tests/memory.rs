//! What offsets and idle groups cost in memory: there may be a million of the one and many thousands of the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::sync::Arc;

use milena_groups::{
    CommitPartition, CommitRequest, CommitTopic, Coordinator, GroupConfig, JoinRequest, Moment, OffsetConfig, Offsets,
    Outputs, SyncRequest, Timestamp, Token, TopicId,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const GROUPS: usize = 10_000;
const PARTITIONS: i32 = 10;

fn commit(group: usize, topics: usize) -> CommitRequest {
    let partition = |partition| CommitPartition {
        partition,
        exists: true,
        offset: 1 << 40,
        leader_epoch: 0,
        metadata: None,
        expected: None,
    };
    let per_topic = PARTITIONS / i32::try_from(topics).unwrap();
    let topics = (0..topics).map(|n| CommitTopic {
        name: Arc::from(format!("topic-with-a-usual-name-{n}")),
        id: Some(TopicId(n as u128 + 1)),
        partitions: (0..per_topic).map(partition).collect(),
    });
    CommitRequest {
        group: Arc::from(format!("group-with-a-usual-name-{group}")),
        retention_ms: None,
        topics: topics.collect(),
    }
}

/// The records of one commit per group.
fn records(topics: usize) -> Vec<Vec<u8>> {
    let mut offsets = Offsets::new(OffsetConfig { in_flight_max: usize::MAX, ..OffsetConfig::default() });
    offsets.loaded(Timestamp(0));
    let mut out = Outputs::default();
    for group in 0..GROUPS {
        offsets.commit(Token(0), commit(group, topics), true, Timestamp(1_700_000_000_000), &mut out);
    }
    out.appends.into_iter().map(|append| append.record).collect()
}

fn bytes_per_offset(topics: usize) -> usize {
    let records = records(topics);
    let before = ALLOCATOR.current_usage();
    let mut offsets = Offsets::new(OffsetConfig::default());
    for record in &records {
        offsets.replay(record).unwrap();
    }
    let bytes = (ALLOCATOR.current_usage() - before) / offsets.len();
    assert_eq!(offsets.len(), GROUPS * usize::try_from(PARTITIONS).unwrap());
    bytes
}

fn bytes_per_idle_group() -> usize {
    let mut coordinator = Coordinator::new(GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() });
    let before = ALLOCATOR.current_usage();
    for n in 0..GROUPS {
        let (group, fresh) = (format!("group-with-a-usual-name-{n}"), format!("{n:036}"));
        let mut out = Outputs::default();
        let join = JoinRequest {
            version: 3,
            group: &group,
            member_id: "",
            instance_id: None,
            client_id: "consumer-group-with-a-usual-name-1",
            client_host: "/127.0.0.1",
            session_timeout_ms: 45_000,
            rebalance_timeout_ms: Some(300_000),
            protocol_type: "consumer",
            protocols: &[("range", &[0; 64]), ("cooperative-sticky", &[0; 128])],
            fresh: &fresh,
        };
        coordinator.join(Token(0), &join, Moment::default(), &mut out);
        let Some((_, milena_groups::Answer::Join(Ok(joined)))) = out.answers.pop() else { panic!("not joined") };
        let sync = SyncRequest {
            group: &group,
            member_id: &joined.member_id,
            instance_id: None,
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: &[(&joined.member_id, &[0; 64])],
        };
        coordinator.sync(Token(1), &sync, Moment::default(), &mut out);
    }
    (ALLOCATOR.current_usage() - before) / coordinator.len()
}

/// One test, because all of the process counts.
#[test]
fn an_offset_costs_at_most_200_bytes_and_an_idle_group_with_a_member_less_than_2_kilobytes() {
    for topics in [1, 2] {
        let bytes = bytes_per_offset(topics);
        assert!(bytes <= 200, "{bytes} bytes an offset with {topics} topics");
    }
    let bytes = bytes_per_idle_group();
    assert!(bytes < 2 << 10, "{bytes} bytes a group");
}
