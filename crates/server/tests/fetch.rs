//! Fetch and ListOffsets over TCP, together with what wakes a parked fetch: Produce, DeleteTopics, shutdown.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use milena_records::Codec;
use milena_records::client::{Record, build_batch, read_record_set};
use milena_server::Server;
use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    ApiKey, DeleteTopicsRequest, FetchRequest, FetchResponse, ListOffsetsRequest, ProduceRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;
use milena_wire::{decode_response, encode_request};

fn orders() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

/// A server with the topic `orders` of two partitions.
async fn with_orders() -> TestServer {
    let server = TestServer::start().await;
    server.server().broker().topics.create("orders", 2, BTreeMap::new()).await.unwrap();
    server
}

fn produce(values: &[&str]) -> ProduceRequest {
    let record =
        |value: &&str| Record { timestamp_ms: 1_000, value: Some(value.as_bytes().into()), ..Record::default() };
    let batch = build_batch(&values.iter().map(record).collect::<Vec<_>>(), Codec::None, None);
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(Bytes::from(batch)));
    let topic = TopicProduceData::default().with_name(orders()).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![topic])
}

fn fetch(offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition =
        FetchPartition::default().with_partition(0).with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(orders()).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_topics(vec![topic])
}

fn values(response: &FetchResponse) -> Vec<String> {
    let records = response.responses[0].partitions[0].records.as_ref().unwrap();
    let records = read_record_set(records, 1 << 20).unwrap();
    records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

/// Sends a fetch that waits for up to 30 seconds, and returns when it is parked.
async fn park(server: &Server, client: &mut Client, version: i16) {
    client.send(&encode_request(ApiKey::Fetch, version, 9, "test", &fetch(0, 30_000)).unwrap()).await;
    until("the fetch does not wait", || server.broker().fetches.purgatory.parked() == 1).await;
}

async fn parked_answer(client: &mut Client, version: i16) -> FetchResponse {
    let frame = client.receive().await.expect("an answer");
    decode_response(ApiKey::Fetch, version, frame).unwrap().1
}

#[tokio::test]
async fn what_was_produced_is_fetched_in_every_version() {
    let server = with_orders().await;
    let mut client = Client::connect(server.server()).await;
    let answer = client.ask(9, &produce(&["a", "b", "c"])).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    for version in 4..=12 {
        let answer: FetchResponse = client.ask(version, &fetch(1, 0)).await;
        assert_eq!(values(&answer), ["b", "c"], "version {version}");
        assert_eq!(answer.responses[0].partitions[0].high_watermark, 3);
    }
    let id = server.server().broker().topics.by_name("orders").unwrap().id;
    for version in 13..=17 {
        let mut by_id = fetch(1, 0);
        by_id.topics[0].topic = TopicName::default();
        by_id.topics[0].topic_id = id;
        assert_eq!(values(&client.ask(version, &by_id).await), ["b", "c"], "version {version}");
    }
}

#[tokio::test]
async fn offsets_are_listed_in_every_version() {
    let server = with_orders().await;
    let mut client = Client::connect(server.server()).await;
    client.ask(9, &produce(&["a", "b"])).await;
    for version in 1..=10 {
        for (time, offset) in [(-2, 0), (-1, 2), (1_000, 0), (1_001, -1)] {
            let partition = ListOffsetsPartition::default().with_timestamp(time);
            let topic = ListOffsetsTopic::default().with_name(orders()).with_partitions(vec![partition]);
            let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
            let partition = &client.ask(version, &request).await.topics[0].partitions[0];
            assert_eq!((partition.error_code, partition.offset), (0, offset), "version {version} time {time}");
        }
    }
}

#[tokio::test]
async fn a_produce_on_one_connection_wakes_a_fetch_on_another() {
    let server = with_orders().await;
    let (mut consumer, mut producer) = (Client::connect(server.server()).await, Client::connect(server.server()).await);
    park(server.server(), &mut consumer, 12).await;
    producer.ask(9, &produce(&["woken"])).await;
    assert_eq!(values(&parked_answer(&mut consumer, 12).await), ["woken"]);
}

#[tokio::test]
async fn the_deletion_of_its_topic_answers_a_parked_fetch() {
    let server = with_orders().await;
    let (mut consumer, mut admin) = (Client::connect(server.server()).await, Client::connect(server.server()).await);
    park(server.server(), &mut consumer, 12).await;
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![orders()]).with_timeout_ms(5_000);
    assert_eq!(admin.ask(5, &delete).await.responses[0].error_code, 0);
    assert_eq!(parked_answer(&mut consumer, 12).await.responses[0].partitions[0].error_code, 3);
}

#[tokio::test]
async fn a_new_name_of_its_topic_answers_a_parked_fetch() {
    let server = TestServer::builder().only("an Iggy server's topics are not renamed through Milena").start().await;
    server.server().broker().topics.create("orders", 2, BTreeMap::new()).await.unwrap();
    let mut consumer = Client::connect(server.server()).await;
    park(server.server(), &mut consumer, 12).await;
    let start = Instant::now();
    let broker = server.server().broker();
    let topic = broker.topics.by_name("orders").unwrap();
    broker.store.rename_topic(&topic.store, "bills").await.unwrap();
    assert_eq!(values(&parked_answer(&mut consumer, 12).await), [""; 0]);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_parked_fetch_along() {
    let server = with_orders().await;
    let mut consumer = Client::connect(server.server()).await;
    park(server.server(), &mut consumer, 12).await;
    drop(consumer);
    until("the fetch of a closed connection still waits", || server.server().broker().fetches.purgatory.parked() == 0)
        .await;
}

#[tokio::test]
async fn shutdown_answers_a_parked_fetch() {
    let server = with_orders().await;
    let mut consumer = Client::connect(server.server()).await;
    park(server.server(), &mut consumer, 12).await;
    let start = Instant::now();
    let shutdown = tokio::spawn(server.shutdown());
    let answer = parked_answer(&mut consumer, 12).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, 0);
    shutdown.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
