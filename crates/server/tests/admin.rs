//! The answers that admin tools ask for, over TCP: every version of each, and records that are deleted under readers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::*;
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_server::Server;
use milena_store::testing::MemoryStore;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;
use milena_wire::{decode_response, encode_request};

fn orders() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

/// A server with the topic `orders` of one partition, and a client.
async fn with_orders() -> (Server, Client) {
    let server = Server::start(config(), Arc::new(MemoryStore::new())).await.unwrap();
    let mut client = Client::connect(&server).await;
    let topic = CreatableTopic::default().with_name(orders()).with_num_partitions(1).with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
    assert_eq!(client.ask(7, &request).await.topics[0].error_code, 0);
    (server, client)
}

/// Sends records, each in a batch of its own; the log start in the last answer.
async fn produce(client: &mut Client, count: usize) -> i64 {
    let mut log_start = -1;
    for _ in 0..count {
        let record = Record { timestamp_ms: 1_000, value: Some("v".into()), ..Record::default() };
        let batch = Bytes::from(build_batch(&[record], Codec::None, None));
        let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch));
        let data = TopicProduceData::default().with_name(orders()).with_partition_data(vec![partition]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![data]);
        let answer = client.ask(9, &request).await.responses.remove(0).partition_responses.remove(0);
        assert_eq!(answer.error_code, 0);
        log_start = answer.log_start_offset;
    }
    log_start
}

fn deletion(offset: i64) -> DeleteRecordsRequest {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(orders()).with_partitions(vec![partition]);
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000)
}

/// A fetch that waits for more than there is.
fn fetch(offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(orders()).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1 << 20)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
}

async fn delete(client: &mut Client, offset: i64) -> (i16, i64) {
    let answer = client.ask(2, &deletion(offset)).await.topics.remove(0).partitions.remove(0);
    (answer.error_code, answer.low_watermark)
}

#[tokio::test]
async fn a_fetch_that_waits_below_the_new_start_hears_1_at_once() {
    let (server, mut client) = with_orders().await;
    produce(&mut client, 3).await;
    let mut reader = Client::connect(&server).await;
    reader.send(&encode_request(ApiKey::Fetch, 12, 5, "test", &fetch(1, 30_000)).unwrap()).await;
    let parked = || server.broker().fetches.purgatory.parked();
    until("the fetch waits", || parked() == 1).await;
    assert_eq!(delete(&mut client, 1).await, (0, 1));
    assert!(reader.is_quiet().await, "the start is where it reads");
    assert_eq!(delete(&mut client, -1).await, (0, 3));
    let (_, answer) = decode_response::<FetchResponse>(ApiKey::Fetch, 12, reader.receive().await.unwrap()).unwrap();
    let partition = &answer.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.log_start_offset, partition.high_watermark), (1, 3, 3));
}

#[tokio::test]
async fn the_new_start_is_told_by_every_answer_that_has_one() {
    let (_server, mut client) = with_orders().await;
    produce(&mut client, 5).await;
    assert_eq!(delete(&mut client, 2).await, (0, 2));
    assert_eq!(produce(&mut client, 1).await, 2);
    let earliest = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(-2);
    let topic = ListOffsetsTopic::default().with_name(orders()).with_partitions(vec![earliest]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    assert_eq!(client.ask(7, &request).await.topics[0].partitions[0].offset, 2);
    for (offset, code) in [(0, 1), (1, 1), (2, 0), (6, 0)] {
        let partition = client.ask(12, &fetch(offset, 0)).await.responses.remove(0).partitions.remove(0);
        assert_eq!((partition.error_code, partition.log_start_offset, partition.high_watermark), (code, 2, 6));
    }
}
