//! kill -9 of the server between the append of a commit and its answer, again and again: the offset is there afterwards, the
//! last that was acknowledged or one that was sent after it, with the metadata and the epoch that belong to it.
//!
//! `TEST_KILL_CYCLES` sets the number of kills (default 8), `TEST_BINARY` another binary to kill.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use milena_testkit::{ChildServer, RawClient};
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;
use milena_wire::{decode_response, encode_request};

const PATIENCE: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 3;
/// Commits that are sent ahead of their answers, so that a kill always meets some.
const AHEAD: i64 = 4;
const VERSION: i16 = 9;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn metadata(offset: i64) -> String {
    format!("{offset} ").repeat(10)
}

fn epoch(offset: i64) -> i32 {
    i32::try_from(offset % 1_000).unwrap()
}

/// The same offset for each partition, with what belongs to it.
fn commit(offset: i64) -> OffsetCommitRequest {
    let partitions = (0..PARTITIONS).map(|partition| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch(offset))
            .with_committed_metadata(Some(text(&metadata(offset))))
    });
    let topic =
        OffsetCommitRequestTopic::default().with_name(TopicName(text("t"))).with_partitions(partitions.collect());
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Commits one offset after the other until the connection ends; the last one that was sent.
fn commit_on(address: SocketAddr, first: i64, acknowledged: &AtomicI64) -> i64 {
    runtime().block_on(async {
        let mut client = RawClient::connect(address).await;
        let (mut next, mut answered) = (first, first);
        loop {
            while next < answered + AHEAD {
                let id = i32::try_from(next).unwrap();
                let frame = encode_request(ApiKey::OffsetCommit, VERSION, id, "kill9", &commit(next)).unwrap();
                client.send_bytes(&frame).await;
                next += 1;
            }
            let Some(frame) = client.read_frame().await else { return next - 1 };
            let (id, answer): (i32, OffsetCommitResponse) =
                decode_response(ApiKey::OffsetCommit, VERSION, frame).unwrap();
            assert_eq!(i64::from(id), answered);
            assert!(answer.topics[0].partitions.iter().all(|partition| partition.error_code == 0), "{answer:?}");
            acknowledged.store(answered, Ordering::SeqCst);
            answered += 1;
        }
    })
}

/// The offset that all partitions have, which must come with its own metadata and epoch.
fn stored(server: &ChildServer) -> i64 {
    runtime().block_on(async {
        let request = OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(None);
        let answer = server.client().await.request(7, &request).await;
        assert_eq!((answer.error_code, answer.topics.len()), (0, 1), "an offset was there before the kill");
        let rows = &answer.topics[0].partitions;
        let offset = rows[0].committed_offset;
        assert_eq!(rows.len(), usize::try_from(PARTITIONS).unwrap());
        for row in rows {
            assert_eq!((row.error_code, row.committed_offset), (0, offset), "a request is stored whole or not at all");
            assert_eq!(row.metadata.as_deref(), Some(metadata(offset).as_str()));
            assert_eq!(row.committed_leader_epoch, epoch(offset));
        }
        offset
    })
}

fn create(server: &ChildServer) {
    runtime().block_on(async {
        let topic = CreatableTopic::default().with_name(TopicName(text("t"))).with_num_partitions(PARTITIONS);
        let request = CreateTopicsRequest::default().with_topics(vec![topic.with_replication_factor(-1)]);
        let answer = server.client().await.request(5, &request.with_timeout_ms(10_000)).await;
        assert_eq!(answer.topics[0].error_code, 0);
    });
}

#[test]
fn after_kill_9_a_group_has_its_last_acknowledged_commit_or_a_later_one_whole() {
    let cycles: u64 = std::env::var("TEST_KILL_CYCLES").map_or(8, |cycles| cycles.parse().unwrap());
    let binary = std::env::var("TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_milena").to_owned());
    let mut server =
        ChildServer::builder(&binary).alone().args(["--set", "groups.offsets_snapshot_bytes=64KiB"]).start();
    create(&server);
    let acknowledged = Arc::new(AtomicI64::new(-1));
    let mut next = 0;
    for cycle in 0..cycles {
        let committer = {
            let (address, acknowledged) = (server.address(), Arc::clone(&acknowledged));
            thread::spawn(move || commit_on(address, next, &acknowledged))
        };
        let start = Instant::now();
        while acknowledged.load(Ordering::SeqCst) < next + 50 {
            assert!(start.elapsed() < PATIENCE, "no progress before kill {cycle}");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(cycle * 137 % 5_000));
        server.kill();
        let sent = committer.join().unwrap();
        server.restart();
        let (stored, acknowledged) = (stored(&server), acknowledged.load(Ordering::SeqCst));
        assert!(
            (acknowledged..=sent).contains(&stored),
            "{stored} is stored, {acknowledged} acknowledged, {sent} sent"
        );
        next = sent + 1;
    }
}
