//! The process has no file descriptor left. Alone in its binary, because the limit is that of the whole process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::fs::File;
use std::time::Duration;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test]
async fn a_full_descriptor_table_neither_spins_nor_stops_the_listener() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).unwrap();
    let server = start(config()).await;
    let mut before = Client::connect(&server).await;
    before.send(&obedient(1, ANSWER, 1)).await;
    assert_eq!(before.receive_id().await, 1);

    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(1000).collect();
    assert!(hoard.len() < 256, "the limit is in force");
    // One descriptor for the client's own socket, and none for the server's.
    hoard.pop();
    let mut waiting = Client::connect(&server).await;
    waiting.send(&obedient(2, ANSWER, 1)).await;
    let errors = || server.broker().metrics.connections.accept_errors.get();
    until("accept did not fail", || errors() > 0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(errors() <= 10, "{} failures: accept spins", errors());
    before.send(&obedient(3, ANSWER, 1)).await;
    assert_eq!(before.receive_id().await, 3, "connections that are open are served");

    drop(hoard);
    assert_eq!(waiting.receive_id().await, 2, "the connection that waited is served");
}
