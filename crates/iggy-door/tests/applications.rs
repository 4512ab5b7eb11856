//! Iggy's SDK as applications have it: a connection string, builders of producers and consumers, groups, reconnection.

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
use std::net::SocketAddr;
use std::time::Duration;

use common::{PASSWORD, TestDoor, USER, id};
use futures_util::StreamExt as _;
use iggy::prelude::*;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

const PARTITIONS: u32 = 4;

async fn application(address: SocketAddr) -> IggyClient {
    let options = "heartbeat_interval=50ms&reconnection_interval=50ms&reestablish_after=50ms";
    let client = IggyClient::from_connection_string(&format!("iggy://{USER}:{PASSWORD}@{address}?{options}")).unwrap();
    client.connect().await.unwrap();
    client
}

fn producer(client: &IggyClient) -> IggyProducerBuilder {
    client
        .producer("orders", "created")
        .unwrap()
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(PARTITIONS, IggyExpiry::ServerDefault, MaxTopicSize::ServerDefault)
        .partitioning(Partitioning::balanced())
}

async fn worker(client: &IggyClient) -> IggyConsumer {
    let builder = client.consumer_group("workers", "orders", "created").unwrap();
    let builder = builder.create_consumer_group_if_not_exists().auto_join_consumer_group();
    let builder = builder.auto_commit(AutoCommit::When(AutoCommitWhen::ConsumingEachMessage));
    let builder = builder.polling_strategy(PollingStrategy::next()).batch_length(7);
    let mut consumer = builder.poll_interval(IggyDuration::new(Duration::from_millis(1))).build();
    consumer.init().await.unwrap();
    consumer
}

async fn next(consumer: &mut IggyConsumer) -> String {
    loop {
        match timeout(SOON, consumer.next()).await.expect("a message").expect("no end") {
            Ok(received) => return String::from_utf8(received.message.payload.to_vec()).unwrap(),
            // It is on its way to a connection, or to an assignment.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Tells what a consumer is given until nobody listens, and shuts it down.
fn work(mut consumer: IggyConsumer, told: mpsc::UnboundedSender<(usize, String)>, number: usize) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = told.closed() => break,
                payload = next(&mut consumer) => drop(told.send((number, payload))),
            }
            // What it does with it takes a while.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        consumer.shutdown().await.unwrap();
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_grows_at_work_is_given_each_message_once() {
    const MESSAGES: usize = 400;
    let door = TestDoor::open().await;
    let clients = [application(door.door.address()).await, application(door.door.address()).await];
    let producer = producer(&clients[0]).build();
    producer.init().await.unwrap();
    for number in 0..MESSAGES {
        producer.send(vec![IggyMessage::from(format!("order {number}").as_str())]).await.unwrap();
    }
    let mut first = worker(&clients[0]).await;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..20 {
        *seen.entry(next(&mut first).await).or_default() += 1;
    }
    let second = worker(&clients[1]).await;
    let (told, mut tells) = mpsc::unbounded_channel();
    let workers = [work(first, told.clone(), 0), work(second, told, 1)];
    let mut shares = [0, 0];
    while seen.len() < MESSAGES {
        let (number, payload) = timeout(SOON, tells.recv()).await.expect("the rest").unwrap();
        shares[number] += 1;
        *seen.entry(payload).or_default() += 1;
    }
    drop(tells);
    for worker in workers {
        worker.await.unwrap();
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}: both have work");
    let again: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(again.is_empty(), "given twice: {again:?}");
    let (client, group) = (common::client_of(door.door.address()).await, Consumer::group(id("workers")));
    let mut committed = 0;
    for partition in 0..PARTITIONS {
        let (stream, topic) = (id("orders"), id("created"));
        let stored = client.get_consumer_offset(&group, &stream, &topic, Some(partition)).await.unwrap().unwrap();
        assert_eq!(stored.stored_offset, stored.current_offset, "all of partition {partition} is committed");
        committed += stored.stored_offset + 1;
    }
    assert_eq!(committed, MESSAGES as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_goes_on_when_the_door_was_closed_and_opened() {
    let door = TestDoor::open().await;
    let client = application(door.door.address()).await;
    let producer = producer(&client).build();
    producer.init().await.unwrap();
    producer.send(vec![IggyMessage::from("before")]).await.unwrap();
    let background = self::producer(&client).background(BackgroundConfig::builder().build()).build();
    background.init().await.unwrap();
    background.send(vec![IggyMessage::from("before, by and by")]).await.unwrap();
    background.shutdown().await;
    let mut consumer = worker(&client).await;
    let mut seen = [next(&mut consumer).await, next(&mut consumer).await];
    seen.sort();
    assert_eq!(seen, ["before", "before, by and by"]);
    let _door = door.reopen().await;
    let sent = async {
        while producer.send(vec![IggyMessage::from("after")]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SOON, sent).await.expect("it is sent");
    while next(&mut consumer).await != "after" {}
}
