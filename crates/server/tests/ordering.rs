//! The order of requests and answers on one connection.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::*;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let mut bytes = obedient(100, GATE, 1);
    for id in 101..200 {
        bytes.extend(obedient(id, ANSWER, usize::try_from(id).unwrap() * 10));
    }
    client.send(&bytes).await;
    gate(100).arrived().await;
    assert!(client.is_quiet().await);
    gate(100).open();
    for id in 100..200 {
        assert_eq!(client.receive_id().await, id);
    }
}

#[tokio::test]
async fn a_silent_request_has_no_answer_and_the_next_one_has() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let mut bytes = obedient(1, SILENT, 1);
    bytes.extend(obedient(2, ANSWER, 1));
    client.send(&bytes).await;
    assert_eq!(client.receive_id().await, 2);
}

#[tokio::test]
async fn one_request_is_read_ahead_and_no_more() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let first = obedient(200, GATE, 1);
    let next = obedient(201, ANSWER, 50_000);
    client.send(&first).await;
    gate(200).arrived().await;
    for _ in 0..3 {
        client.send(&next).await;
    }
    let read = || server.broker().metrics.connections.bytes_in.get();
    let ahead = (first.len() + next.len()) as u64;
    until("the second request was not read ahead", || read() == ahead).await;
    assert!(client.is_quiet().await);
    assert_eq!(read(), ahead);
    gate(200).open();
    for id in [200, 201, 201, 201] {
        assert_eq!(client.receive_id().await, id);
    }
}

#[tokio::test]
async fn a_client_that_closed_its_sending_side_gets_its_answers() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(300, GATE, 1)).await;
    client.send(&obedient(301, ANSWER, 100_000)).await;
    client.stream.shutdown().await.unwrap();
    gate(300).arrived().await;
    gate(300).open();
    assert_eq!([client.receive_id().await, client.receive_id().await], [300, 301]);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_handler_runs_to_its_end_when_the_client_goes_away() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(400, GATE, 1)).await;
    gate(400).arrived().await;
    drop(client);
    // Long enough for the server to notice.
    tokio::time::sleep(NEVER).await;
    gate(400).open();
    gate(400).passed().await;
    until("the connection did not end", || server.broker().lifecycle.connections() == 0).await;
}

#[tokio::test]
async fn a_parked_request_of_a_client_that_went_away_ends_early() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&obedient(500, PARK, 1)).await;
    gate(500).arrived().await;
    assert!(gate(500).nobody_passed());
    drop(client);
    gate(500).passed().await;
}

#[tokio::test]
async fn a_frame_may_arrive_byte_by_byte() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.stream.set_nodelay(true).unwrap();
    for byte in obedient(1, ANSWER, 20) {
        client.send(&[byte]).await;
    }
    assert_eq!(client.receive_id().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_every_size_arrive_whole() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    for (id, size) in (0..).zip([1, 2029, 2030, 2031, 16_370, 16_384, 80_000, 1 << 20, (1 << 20) + 17, 9_999_999]) {
        client.send(&obedient(id, ANSWER, size)).await;
        let answer = client.receive().await.unwrap();
        assert_eq!(answer[..4], id.to_be_bytes());
        assert_eq!(answer[4..8], u32::try_from(size).unwrap().to_be_bytes());
    }
    assert_eq!(server.broker().memory.available(), server.broker().config.limits.in_flight_bytes);
}

/// Each of these requests holds a thread of the runtime; there are more of them than threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_that_compute_do_not_delay_other_connections() {
    let server = start(config()).await;
    let mut busy = Vec::new();
    for id in 600..604 {
        let mut client = Client::connect(&server).await;
        client.send(&growing(id, OCCUPY, 40_000)).await;
        gate(id).arrived().await;
        busy.push(client);
    }
    let mut other = Client::connect(&server).await;
    other.send(&obedient(1, ANSWER, 1)).await;
    let answered = other.receive().await;
    for id in 600..604 {
        gate(id).open();
    }
    assert!(answered.is_some());
    for (id, client) in (600..).zip(&mut busy) {
        assert_eq!(client.receive_id().await, id);
    }
}

#[tokio::test]
async fn a_handler_that_panics_ends_its_connection_and_nothing_else() {
    let server = start(config()).await;
    let mut other = Client::connect(&server).await;
    other.send(&obedient(1, ANSWER, 1)).await;
    assert_eq!(other.receive_id().await, 1);
    let mut client = Client::connect(&server).await;
    client.send(&obedient(2, PANIC, 100_000)).await;
    assert!(client.is_closed().await);
    until("its place did not come back", || server.broker().lifecycle.connections() == 1).await;
    assert_eq!(server.broker().memory.available(), server.broker().config.limits.in_flight_bytes);
    other.send(&obedient(3, ANSWER, 1)).await;
    assert_eq!(other.receive_id().await, 3);
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_next_request_to_be_handled() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let mut bytes = obedient(700, ANSWER, 1);
    bytes.extend(obedient(701, GATE, 1));
    client.send(&bytes).await;
    assert_eq!(client.receive_id().await, 700);
    gate(701).arrived().await;
    assert!(gate(701).nobody_passed());
    gate(701).open();
    assert_eq!(client.receive_id().await, 701);
}
