//! Every bound of a connection, passed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::time::Duration;

use common::*;
use milena_server::ServerConfig;
use milena_server::limits::Limits;

/// Long enough for a busy machine to do what is expected, short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);

fn limited(limits: Limits) -> ServerConfig {
    ServerConfig { limits, ..config() }
}

#[tokio::test]
async fn a_frame_above_the_bound_is_refused_and_one_at_the_bound_is_not() {
    let server = start(limited(Limits { max_frame_bytes: 10_000, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    let header = obedient(0, ANSWER, 1).len() - 1 - 4;
    client.send(&obedient(1, ANSWER, 10_000 - header)).await;
    assert_eq!(client.receive_id().await, 1);
    client.send(&obedient(2, ANSWER, 10_001 - header)).await;
    assert!(client.is_closed().await);
    assert_eq!(server.broker().metrics.connections.closed_frame_too_large.get(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not() {
    let server = start(limited(Limits { idle_timeout: SHORT, ..Limits::default() })).await;
    let mut idle = Client::connect(&server).await;
    let mut waiting = Client::connect(&server).await;
    waiting.send(&obedient(100, GATE, 1)).await;
    gate(100).arrived().await;
    assert!(idle.is_closed().await);
    tokio::time::sleep(SHORT * 2).await;
    gate(100).open();
    assert_eq!(waiting.receive_id().await, 100);
    waiting.send(&obedient(1, ANSWER, 1)).await;
    assert_eq!(waiting.receive_id().await, 1);
    assert!(waiting.is_closed().await);
    assert_eq!(server.broker().metrics.connections.closed_idle.get(), 2);
}

#[tokio::test]
async fn a_frame_that_stops_arriving_closes_the_connection() {
    let server = start(limited(Limits { read_timeout: SHORT, ..Limits::default() })).await;
    let whole = obedient(1, ANSWER, 100_000);
    for sent in [1, 3, 4, 20, 50_000] {
        let mut client = Client::connect(&server).await;
        client.send(&whole[..sent]).await;
        assert!(client.is_closed().await, "{sent} bytes");
    }
    assert_eq!(server.broker().metrics.connections.closed_read_stalled.get(), 5);
}

#[tokio::test]
async fn a_frame_that_arrives_slowly_is_served() {
    let server = start(limited(Limits { read_timeout: SHORT, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    for part in obedient(1, ANSWER, 50_000).chunks(10_000) {
        client.send(part).await;
        tokio::time::sleep(SHORT / 3).await;
    }
    assert_eq!(client.receive_id().await, 1);
}

#[tokio::test]
async fn a_trickle_does_not_keep_a_connection_beyond_the_idle_timeout() {
    let server = start(limited(Limits { idle_timeout: SHORT, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    let whole = obedient(1, ANSWER, 10_000);
    for byte in &whole {
        use tokio::io::AsyncWriteExt;
        tokio::time::sleep(Duration::from_millis(20)).await;
        if client.stream.write_all(std::slice::from_ref(byte)).await.is_err() {
            break;
        }
    }
    assert_eq!(server.broker().metrics.connections.closed_idle.get(), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_dropped() {
    let server = start(limited(Limits { write_timeout: SHORT, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    client.send(&raw_request(0, 0, 1, &[LARGE, 100])).await;
    until("the connection did not end", || server.broker().metrics.connections.closed_write_stalled.get() == 1).await;
}

#[tokio::test]
async fn a_declared_length_holds_no_memory() {
    let server = start(limited(Limits { in_flight_bytes: 1 << 20, ..Limits::default() })).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(&server).await;
        client.send(&(100_i32 << 20).to_be_bytes()).await;
        client.send(&[0; 1000]).await;
        silent.push(client);
    }
    let mut client = Client::connect(&server).await;
    client.send(&obedient(1, ANSWER, 500_000)).await;
    assert_eq!(client.receive_id().await, 1);
    assert_eq!(server.broker().memory.available(), 1 << 20);
    assert_eq!(server.broker().memory.waits(), 0);
}

#[tokio::test]
async fn reading_pauses_while_the_budget_is_spent() {
    let server = start(limited(Limits { in_flight_bytes: 1 << 20, ..Limits::default() })).await;
    // The first spends the budget, the second takes the overdraft, the third has to wait.
    let mut clients = Vec::new();
    for id in [200, 201, 202] {
        let mut client = Client::connect(&server).await;
        client.send(&obedient(id, GATE, 1_000_000)).await;
        if id < 202 {
            gate(id).arrived().await;
        }
        clients.push(client);
    }
    let mut small = Client::connect(&server).await;
    small.send(&obedient(1, ANSWER, 10_000)).await;
    assert_eq!(small.receive_id().await, 1, "small requests are not delayed");
    assert!(clients[2].is_quiet().await);
    for (id, client) in (200..).zip(&mut clients) {
        gate(id).open();
        assert_eq!(client.receive_id().await, id);
    }
    until("the budget did not come back", || server.broker().memory.available() == 1 << 20).await;
}

#[tokio::test]
async fn a_request_that_grows_when_it_is_decoded_is_charged_for_that() {
    let total = 8 << 20;
    let server = start(limited(Limits { in_flight_bytes: total, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    let request = growing(400, GATE, 100_000);
    let frame_bytes = request.len() - 4;
    client.send(&request).await;
    gate(400).arrived().await;
    assert_eq!(server.broker().memory.available(), total - (frame_bytes - (16 << 10)) - 16 * frame_bytes);
    gate(400).open();
    assert_eq!(client.receive_id().await, 400);
    assert_eq!(server.broker().memory.available(), total);
}

#[tokio::test]
async fn a_request_larger_than_the_budget_gets_through_with_one_read_ahead() {
    let server = start(limited(Limits { in_flight_bytes: 1 << 20, ..Limits::default() })).await;
    let mut client = Client::connect(&server).await;
    for id in 1..=3 {
        client.send(&growing(id, ANSWER, 2_000_000)).await;
    }
    assert_eq!([client.receive_id().await, client.receive_id().await, client.receive_id().await], [1, 2, 3]);
    assert_eq!(server.broker().memory.available(), 1 << 20);
}

#[tokio::test]
async fn a_frame_on_the_overdraft_may_not_trickle() {
    let limits = Limits { in_flight_bytes: 1 << 20, read_timeout: SHORT, ..Limits::default() };
    let server = start(limited(limits)).await;
    let mut holder = Client::connect(&server).await;
    holder.send(&obedient(300, GATE, 1_000_000)).await;
    gate(300).arrived().await;
    let mut trickler = Client::connect(&server).await;
    trickler.send(&obedient(301, ANSWER, 500_000)[..100_000]).await;
    let trickle = async {
        use tokio::io::AsyncWriteExt;
        while trickler.stream.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(SHORT / 6).await;
        }
    };
    tokio::time::timeout(SOON, trickle).await.unwrap();
    assert_eq!(server.broker().metrics.connections.closed_read_stalled.get(), 1);
    gate(300).open();
    assert_eq!(holder.receive_id().await, 300);
}

#[tokio::test]
async fn connections_above_the_bound_are_closed_at_accept() {
    let server = start(limited(Limits { max_connections: 2, ..Limits::default() })).await;
    let mut first = Client::connect(&server).await;
    let mut second = Client::connect(&server).await;
    for client in [&mut first, &mut second] {
        client.send(&obedient(1, ANSWER, 1)).await;
        assert_eq!(client.receive_id().await, 1);
    }
    assert!(Client::connect(&server).await.is_closed().await);
    assert_eq!(server.broker().metrics.connections.refused_total.get(), 1);
    drop(first);
    until("the place did not come back", || server.broker().lifecycle.connections() == 1).await;
    let mut third = Client::connect(&server).await;
    third.send(&obedient(2, ANSWER, 1)).await;
    assert_eq!(third.receive_id().await, 2);
}

#[tokio::test]
async fn connections_of_one_address_above_their_bound_are_closed_at_accept() {
    let limits = Limits { max_connections_per_address: Some(1), ..Limits::default() };
    let both = vec![listener("four", "127.0.0.1:0"), listener("six", "[::1]:0")];
    let server = start(ServerConfig { listeners: both, ..limited(limits) }).await;
    let mut first = Client::connect(&server).await;
    first.send(&obedient(1, ANSWER, 1)).await;
    assert_eq!(first.receive_id().await, 1);
    assert!(Client::connect(&server).await.is_closed().await);
    assert_eq!(server.broker().metrics.connections.refused_per_address.get(), 1);
    let mut other = Client::connect_to(server.addresses()[1].address).await;
    other.send(&obedient(2, ANSWER, 1)).await;
    assert_eq!(other.receive_id().await, 2, "another address has places of its own");
    drop(first);
    until("the place did not come back", || server.broker().lifecycle.connections() == 1).await;
    let mut again = Client::connect(&server).await;
    again.send(&obedient(3, ANSWER, 1)).await;
    assert_eq!(again.receive_id().await, 3);
}
