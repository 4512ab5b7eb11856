//! Graceful shutdown.

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
use std::time::{Duration, Instant};

use common::*;
use milena_server::limits::Limits;
use milena_server::{Server, ServerConfig};
use milena_store::testing::MemoryStore;
use milena_store::{Store, TopicSettings};
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;
use milena_wire::{decode_response, encode_request};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[tokio::test]
async fn idle_connections_do_not_delay_it_and_the_store_is_closed() {
    let store = Arc::new(MemoryStore::new());
    let server = Server::start_with(config(), Arc::clone(&store) as _, TABLE).await.unwrap();
    let address = address(&server);
    let mut used = Client::connect(&server).await;
    used.send(&obedient(1, ANSWER, 1)).await;
    used.receive_id().await;
    let mut fresh = Client::connect(&server).await;
    let mut within_frame = Client::connect(&server).await;
    within_frame.send(&obedient(2, ANSWER, 100)[..50]).await;
    until("not all connections are there", || server.broker().lifecycle.connections() == 3).await;
    let start = Instant::now();
    server.shutdown().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(is_closed(&store).await);
    assert!(used.is_closed().await && fresh.is_closed().await && within_frame.is_closed().await);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_store_is_closed() {
    let store = Arc::new(MemoryStore::new());
    let server = Server::start_with(config(), Arc::clone(&store) as _, TABLE).await.unwrap();
    let mut client = Client::connect(&server).await;
    let mut bytes = obedient(100, GATE, 1);
    bytes.extend(obedient(101, ANSWER, 1));
    client.send(&bytes).await;
    gate(100).arrived().await;
    let read = bytes.len() as u64;
    until("no read ahead", || server.broker().metrics.connections.bytes_in.get() == read).await;
    let shutdown = tokio::spawn(server.shutdown());
    assert!(client.is_quiet().await);
    assert!(!is_closed(&store).await);
    gate(100).open();
    assert_eq!([client.receive_id().await, client.receive_id().await], [100, 101]);
    assert!(client.is_closed().await);
    shutdown.await.unwrap().unwrap();
    assert!(is_closed(&store).await);
}

#[tokio::test]
async fn answers_reach_a_client_that_is_still_sending() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(400, GATE, 1)).await;
    gate(400).arrived().await;
    for id in 401..420 {
        client.send(&obedient(id, ANSWER, 50_000)).await;
    }
    let shutdown = tokio::spawn(server.shutdown());
    gate(400).open();
    assert_eq!(client.receive_id().await, 400);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.expect("an orderly end and no reset");
    drop(client);
    shutdown.await.unwrap().unwrap();
}

#[tokio::test]
async fn parked_requests_are_answered_at_once() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(200, PARK, 1)).await;
    gate(200).arrived().await;
    let start = Instant::now();
    server.shutdown().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(client.receive_id().await, 200);
}

#[tokio::test]
async fn what_does_not_end_within_the_drain_time_is_dropped() {
    let limits = Limits { shutdown_drain: Duration::from_millis(200), ..Limits::default() };
    let server = start(ServerConfig { limits, ..config() }).await;
    let broker = Arc::clone(server.broker());
    let mut client = Client::connect(&server).await;
    client.send(&obedient(300, GATE, 1)).await;
    gate(300).arrived().await;
    server.shutdown().await.unwrap();
    assert!(client.is_closed().await);
    assert!(gate(300).nobody_passed());
    assert_eq!(broker.metrics.connections.closed_undrained.get(), 1);
}

#[tokio::test]
async fn a_server_that_is_dropped_drops_its_connections() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(1, ANSWER, 1)).await;
    client.receive_id().await;
    drop(server);
    assert!(client.is_closed().await);
}

/// A server with the whole table, and a client whose fetch of an empty partition is parked for half a minute.
async fn parked() -> (Server, Client) {
    let store = Arc::new(MemoryStore::new());
    store.create_topic("kafka", "quiet", 1, &TopicSettings::default()).await.unwrap();
    let server = Server::start(config(), store).await.unwrap();
    let mut client = Client::connect(&server).await;
    let partition = FetchPartition::default().with_partition(0).with_partition_max_bytes(1000);
    let topic = FetchTopic::default().with_topic(TopicName(StrBytes::from_static_str("quiet")));
    let request = FetchRequest::default()
        .with_max_wait_ms(30_000)
        .with_min_bytes(1)
        .with_topics(vec![topic.with_partitions(vec![partition])]);
    client.send(&encode_request(ApiKey::Fetch, 4, 5, "test", &request).unwrap()).await;
    until("the fetch did not park", || server.broker().fetches.purgatory.parked() == 1).await;
    (server, client)
}

#[tokio::test]
async fn a_parked_fetch_is_answered_when_the_server_ends() {
    let (server, mut client) = parked().await;
    let start = Instant::now();
    server.shutdown().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    let answer = client.receive().await.unwrap();
    let (_, response) = decode_response::<FetchResponse>(ApiKey::Fetch, 4, answer).unwrap();
    assert_eq!(response.responses[0].partitions[0].error_code, 0);
}

#[tokio::test]
async fn a_parked_fetch_does_not_outlive_its_client() {
    let (server, client) = parked().await;
    drop(client);
    until("the fetch is still parked", || server.broker().fetches.purgatory.parked() == 0).await;
}
