use milena_store::testing::{MemoryStore, TestMessage, batch_of};
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic;

use super::*;
use crate::config::ServerConfig;
use crate::handlers::testing::{Bench, name};

/// Error, epoch and end offset of partition `partition` of topic `orders`.
async fn asked(bench: &Bench, version: i16, partition: i32, current: i32, epoch: i32) -> (i16, i32, i64) {
    let wanted = OffsetForLeaderPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default().with_topic(name("orders")).with_partitions(vec![wanted]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let response = bench.ask(version, &request).await;
    let answered = &response.topics[0];
    assert_eq!((response.topics.len(), answered.topic.as_str()), (1, "orders"));
    assert_eq!((answered.partitions.len(), answered.partitions[0].partition), (1, partition));
    (answered.partitions[0].error_code, answered.partitions[0].leader_epoch, answered.partitions[0].end_offset)
}

/// Topic `orders` with 10 messages in each of two partitions.
async fn ten() -> (Bench, MemoryStore, Vec<milena_store::PartitionRef>) {
    let memory = MemoryStore::new();
    let bench = Bench::over(ServerConfig::default(), Arc::new(memory.clone())).await;
    let topic = bench.topic("orders", 2).await;
    let partitions: Vec<_> = (0..2).map(|index| topic.store.partition(index)).collect();
    for at in &partitions {
        append(&memory, at, 10).await;
    }
    (bench, memory, partitions)
}

async fn append(memory: &MemoryStore, at: &milena_store::PartitionRef, count: usize) {
    for _ in 0..count {
        memory.append(at, batch_of(&[TestMessage::new(1, b"x")])).await.unwrap();
    }
}

#[tokio::test]
async fn the_only_epoch_ends_where_the_log_does() {
    let (bench, ..) = ten().await;
    for version in 2..=4 {
        assert_eq!(asked(&bench, version, 0, -1, 0).await, (0, 0, 10), "version {version}");
        assert_eq!(asked(&bench, version, 0, 0, 0).await, (0, 0, 10), "version {version}");
    }
}

#[tokio::test]
async fn an_older_epoch_ends_where_the_end_fell_to() {
    let (bench, memory, partitions) = ten().await;
    memory.lose_tail(&partitions[0], 4);
    append(&memory, &partitions[0], 3).await;
    memory.lose_tail(&partitions[0], 6);
    append(&memory, &partitions[0], 5).await;
    for version in 2..=4 {
        for (epoch, end) in [(0, 4), (1, 6), (2, 11)] {
            assert_eq!(asked(&bench, version, 0, 2, epoch).await, (0, epoch, end), "version {version} epoch {epoch}");
        }
        assert_eq!(asked(&bench, version, 1, 0, 0).await, (0, 0, 10), "its neighbour did not fall");
    }
}

#[tokio::test]
async fn a_stale_current_epoch_is_74_and_one_from_the_future_75() {
    let (bench, memory, partitions) = ten().await;
    memory.lose_tail(&partitions[0], 4);
    for (current, expected) in [(-1, 0), (0, 74), (1, 0), (2, 75), (-2, 74)] {
        assert_eq!(asked(&bench, 4, 0, current, 0).await.0, expected, "current epoch {current}");
    }
}

#[tokio::test]
async fn no_epoch_and_one_that_has_not_begun_have_no_end() {
    let (bench, ..) = ten().await;
    for epoch in [-1, -7, 1, i32::MAX] {
        assert_eq!(asked(&bench, 4, 0, -1, epoch).await, (0, -1, -1), "epoch {epoch}");
    }
}

#[tokio::test]
async fn an_unknown_partition_is_3() {
    let (bench, ..) = ten().await;
    for partition in [2, -1] {
        assert_eq!(asked(&bench, 4, partition, -1, 0).await, (3, -1, -1));
    }
}

#[tokio::test]
async fn a_topic_created_again_begins_at_epoch_0() {
    let (bench, memory, partitions) = ten().await;
    memory.lose_tail(&partitions[0], 4);
    let old = bench.broker.topics.by_name("orders").unwrap();
    bench.broker.topics.delete(&old).await.unwrap();
    bench.topic("orders", 1).await;
    assert_eq!(asked(&bench, 4, 0, 0, 0).await, (0, 0, 0));
}

#[tokio::test]
async fn ends_that_cannot_be_read_now_are_never_answered_as_unknown_epochs() {
    let (bench, memory, _) = ten().await;
    memory.close().await.unwrap();
    assert_eq!(asked(&bench, 4, 0, 0, 0).await, (ResponseError::NotLeaderOrFollower.code(), -1, -1));
}
