//! Clients that are slow, send half of things, or too many, or read nothing: what they cost others, and when they go.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::time::{Duration, Instant};

use bytes::BytesMut;
use common::raw::{Raw, command, credentials, operation, ping, register};
use common::{TestDoor, USER, config, id, send, topic};
use iggy::prelude::*;
use iggy_binary_protocol::consensus::{Command, HEADER_SIZE, Operation, RequestHeader};
use iggy_binary_protocol::requests::consumer_groups::JoinConsumerGroupRequest;
use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::version::IGGY_PROTOCOL_VERSION;
use iggy_binary_protocol::{WireEncode, WireIdentifier, WirePartitioning};
use milena_iggy_door::DoorLimits;
use milena_iggy_door::faults::{Fault, On};
use milena_store::testing::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

const SHORT: Duration = Duration::from_millis(300);

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

/// A budget of requests that a few of them fill.
const BUDGET: usize = 1 << 20;

/// A payload after which the budget has no room for a step of another request.
const MOST: usize = 1_010_000;

/// How long such a request is held.
const HELD: Duration = Duration::from_secs(3);

const SEND: On = On::Operation(Operation::SendMessages);

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A door with little memory, and a topic behind it.
async fn small(change: impl FnOnce(&mut DoorLimits)) -> (TestDoor, TcpClient) {
    let mut config = config();
    change(&mut config.limits);
    let door = TestDoor::within(BUDGET, MemoryStore::new(), config).await;
    let client = door.client().await;
    topic(&client, 1).await;
    (door, client)
}

fn named(name: &str) -> WireIdentifier {
    WireIdentifier::named(name).unwrap()
}

/// A send of that many bytes of payload, as bytes.
fn large(payload: usize) -> Vec<u8> {
    let (payload, mut body) = (vec![1; payload], BytesMut::new());
    let message = RawMessage { id: 1, origin_timestamp: 5, headers: None, payload: &payload };
    let to = WirePartitioning::PartitionId(0);
    SendMessagesEncoder::encode(&mut body, &named("s"), &named("t"), &to, &[message]).unwrap();
    let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
    let header = RequestHeader { command: Command::Request, size, ..operation(Operation::SendMessages, 1) };
    [bytemuck::bytes_of(&header), &body[..]].concat()
}

/// Sends a byte at a time until the door closes the connection, or all are sent.
async fn trickle(raw: &mut Raw, bytes: &[u8]) {
    for byte in bytes {
        sleep(Duration::from_millis(20)).await;
        if raw.0.write_all(std::slice::from_ref(byte)).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_one_address_above_their_bound_are_closed_at_accept() {
    let door = TestDoor::with(|config| config.limits.connections_per_address_max = Some(1)).await;
    let mut first = Raw::connect(&door).await;
    first.login(7).await;
    assert!(Raw::connect(&door).await.is_closed().await);
    assert_eq!((door.door.metrics().refused_per_address.get(), door.door.metrics().refused.get()), (1, 0));
    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind(std::net::SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    let mut other = Raw(elsewhere.connect(door.door.address()).await.unwrap());
    other.login(8).await;
    drop(first);
    until("the place did not come back", || door.door.connections() == 1).await;
    Raw::connect(&door).await.login(9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_waits_for_its_answer_is_not_idle() {
    let (door, _) = small(|limits| limits.idle_timeout = SHORT).await;
    let mut waiting = Raw::connect(&door).await;
    waiting.login(7).await;
    door.door.faults().plan(SEND, Fault::DelayBefore(SHORT * 3));
    waiting.0.write_all(&large(10)).await.unwrap();
    assert_eq!(waiting.status().await, 0);
    waiting.send(ping(), b"").await;
    assert_eq!(waiting.status().await, 0);
    assert!(waiting.is_closed().await, "now it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_slowly_is_served() {
    let (door, _) = small(|limits| limits.read_timeout = SHORT).await;
    let mut slow = Raw::connect(&door).await;
    slow.login(7).await;
    for piece in large(50_000).chunks(10_000) {
        slow.0.write_all(piece).await.unwrap();
        sleep(SHORT / 3).await;
    }
    assert_eq!(slow.status().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trickle_keeps_no_connection_beyond_the_idle_timeout() {
    let (door, client) = small(|limits| limits.idle_timeout = SHORT).await;
    client.disconnect().await.unwrap();
    until("the first client is gone", || door.door.connections() == 0).await;
    let whole = large(20_000);
    for at_once in [0, HEADER_SIZE + 100] {
        let mut raw = Raw::connect(&door).await;
        raw.login(7).await;
        let (closed, begun) = (door.door.metrics().closed_idle.get(), Instant::now());
        raw.0.write_all(&whole[..at_once]).await.unwrap();
        trickle(&mut raw, &whole[at_once..]).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "after {at_once} bytes");
        assert_eq!(door.door.metrics().closed_idle.get(), closed + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trickle_keeps_no_partitions_of_a_group() {
    let (door, client) = small(|limits| limits.heartbeat_timeout = SHORT).await;
    client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    let join = JoinConsumerGroupRequest { stream_id: named("s"), topic_id: named("t"), group_id: named("g") };
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    assert_eq!(raw.result(Operation::JoinConsumerGroup, 1, &join.to_bytes()).await, Some(0));
    let begun = Instant::now();
    trickle(&mut raw, bytemuck::bytes_of(&ping())).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let group = client.get_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap().unwrap();
    assert_eq!(group.members_count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_size_holds_no_memory() {
    let (door, client) = small(|_| ()).await;
    let mut silent = Vec::new();
    for number in 0..20 {
        let mut raw = Raw::connect(&door).await;
        raw.login(7 + number).await;
        let header =
            RequestHeader { command: Command::Request, size: 60 << 20, ..operation(Operation::SendMessages, 1) };
        raw.0.write_all(bytemuck::bytes_of(&header)).await.unwrap();
        raw.0.write_all(&[0; 1_000]).await.unwrap();
        silent.push(raw);
    }
    send(&client, 0, &[&"x".repeat(500_000)]).await.unwrap();
    assert_eq!((door.budget.available(), door.budget.waits()), (BUDGET, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_pauses_while_the_budget_is_spent_and_small_requests_go_on() {
    let (door, client) = small(|_| ()).await;
    // The first spends the budget, the second may exceed it, and the third has to wait.
    let mut raws = Vec::new();
    for number in 0..3 {
        let mut raw = Raw::connect(&door).await;
        raw.login(7 + number).await;
        if number < 2 {
            door.door.faults().plan(SEND, Fault::DelayBefore(HELD));
        }
        raw.0.write_all(&large(MOST)).await.unwrap();
        until("it did not arrive", || door.door.faults().left() == 0).await;
        raws.push(raw);
    }
    let begun = Instant::now();
    client.ping().await.unwrap();
    assert!(!client.get_streams().await.unwrap().is_empty());
    assert!(timeout(SHORT, raws[2].0.read(&mut [0; 1])).await.is_err(), "the third is answered");
    assert!(begun.elapsed() < HELD, "{:?}", begun.elapsed());
    for raw in &mut raws {
        assert_eq!(raw.status().await, 0);
    }
    until("the budget did not come back", || door.budget.available() == BUDGET).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_larger_than_the_budget_gets_through_alone() {
    let (door, client) = small(|_| ()).await;
    for _ in 0..3 {
        send(&client, 0, &[&"x".repeat(3 * BUDGET)]).await.unwrap();
    }
    assert_eq!(door.budget.available(), BUDGET);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_beyond_the_budget_may_not_trickle() {
    let (door, _) = small(|limits| limits.read_timeout = SHORT).await;
    door.door.faults().plan(SEND, Fault::DelayBefore(HELD));
    let mut holder = Raw::connect(&door).await;
    holder.login(7).await;
    holder.0.write_all(&large(MOST)).await.unwrap();
    until("it did not arrive", || door.door.faults().left() == 0).await;
    let mut trickler = Raw::connect(&door).await;
    trickler.login(8).await;
    let whole = large(500_000);
    trickler.0.write_all(&whole[..100_000]).await.unwrap();
    let begun = Instant::now();
    trickle(&mut trickler, &whole[100_000..101_000]).await;
    assert!(begun.elapsed() < HELD, "{:?}", begun.elapsed());
    assert_eq!(door.door.metrics().closed_stalled.get(), 1);
    assert_eq!(holder.status().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_request_and_an_end_is_an_end() {
    let (door, client) = small(|_| ()).await;
    let whole = large(100_000);
    for sent in [1, 48, 52, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, 30_000, 90_000] {
        let mut raw = Raw::connect(&door).await;
        raw.login(7).await;
        raw.0.write_all(&whole[..sent]).await.unwrap();
        raw.0.shutdown().await.unwrap();
        assert!(raw.is_closed().await, "{sent} bytes");
    }
    until("connections stay", || door.door.connections() == 1).await;
    assert_eq!(door.budget.available(), BUDGET);
    let confirmed = send(&client, 0, &["first"]).await.unwrap();
    assert_eq!(confirmed.confirmations[0].base_offset, 0, "nothing of a half is stored");
}

/// Each request is small and so is its answer, but nobody takes the answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_all_the_time_and_never_reads_is_closed_and_holds_nothing() {
    let (door, client) = small(|limits| limits.write_timeout = SHORT).await;
    let mut flood = Raw::connect(&door).await;
    flood.login(7).await;
    let one = RequestHeader { size: u32::try_from(HEADER_SIZE).unwrap(), ..command(10) };
    let many = bytemuck::bytes_of(&RequestHeader { command: Command::Request, ..one }).repeat(1_000);
    let flooding = async { while flood.0.write_all(&many).await.is_ok() {} };
    let others = async {
        while door.door.metrics().closed_stalled.get() == 0 {
            client.ping().await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, async { tokio::join!(flooding, others) }).await.expect("it is closed");
    assert_eq!(door.budget.available(), BUDGET);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_sent_at_once_are_answered_in_their_order() {
    let (door, _) = small(|_| ()).await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let numbered = |request| {
        let header = RequestHeader { request, command: Command::Request, ..command(10) };
        RequestHeader { size: u32::try_from(HEADER_SIZE).unwrap(), ..header }
    };
    let all: Vec<u8> = (1..=500).flat_map(|request| bytemuck::bytes_of(&numbered(request)).to_vec()).collect();
    let (mut read, mut write) = raw.0.split();
    let sending = async { write.write_all(&all).await.unwrap() };
    let receiving = async {
        for request in 1..=500u64 {
            let mut header = [0; HEADER_SIZE];
            read.read_exact(&mut header).await.unwrap();
            let header: iggy_binary_protocol::consensus::ReplyHeader = bytemuck::checked::pod_read_unaligned(&header);
            assert_eq!((header.request, header.status), (request, 0));
            let mut body = vec![0; header.size as usize - HEADER_SIZE];
            read.read_exact(&mut body).await.unwrap();
        }
    };
    timeout(SOON, async { tokio::join!(sending, receiving) }).await.expect("all are answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_logins_that_fail_hurts_nobody_and_leaves_nothing() {
    const CONNECTIONS: u32 = 100;
    let (door, client) = small(|_| ()).await;
    let tries = u64::from(DoorLimits::default().login_failures_max);
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let mut raw = Raw::connect(&door).await;
        flood.spawn(async move {
            let guess = credentials(IGGY_PROTOCOL_VERSION, USER, "guess");
            for _ in 0..tries {
                raw.send(register(100 + u128::from(number)), &guess).await;
                raw.evicted().await;
            }
            assert!(raw.is_closed().await, "it may not go on");
        });
    }
    let mut slowest = Duration::ZERO;
    while !flood.is_empty() {
        let begun = Instant::now();
        client.ping().await.unwrap();
        slowest = slowest.max(begun.elapsed());
        sleep(Duration::from_millis(1)).await;
        while let Some(done) = flood.try_join_next() {
            done.unwrap();
        }
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert_eq!(door.door.metrics().logins_failed.get(), u64::from(CONNECTIONS) * tries);
    until("connections stay", || door.door.connections() == 1).await;
    assert_eq!(client.get_clients().await.unwrap().len(), 1);
}

/// Whoever never logs in keeps a place for the time that a login has, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_that_strangers_took_come_back() {
    let door = TestDoor::with(|config| {
        config.limits.connections_max = 20;
        config.limits.login_timeout = Duration::from_secs(1);
    })
    .await;
    let mut strangers = Vec::new();
    for _ in 0..20 {
        strangers.push(Raw::connect(&door).await);
    }
    until("all places are taken", || door.door.connections() == 20).await;
    assert!(Raw::connect(&door).await.is_closed().await);
    until("no place comes back", || door.door.connections() == 0).await;
    door.client().await.ping().await.unwrap();
}
