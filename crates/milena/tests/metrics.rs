//! Metrics and health of the server as a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use milena_testkit::ChildServer;

const MILENA: &str = env!("CARGO_BIN_EXE_milena");
const LISTEN: &str = "MILENA_METRICS_LISTEN";

/// The address that the banner names.
fn address(server: &ChildServer) -> String {
    let output = wait_for(server, "metrics are at");
    let (_, rest) = output.split_once("http://").unwrap();
    rest.split('/').next().unwrap().to_owned()
}

/// What the child has written, once that is in it.
fn wait_for(server: &ChildServer, text: &str) -> String {
    let begun = Instant::now();
    loop {
        let output = server.output();
        if output.contains(text) {
            return output;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text:?} is not in {output}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_banner_says_where_metrics_are_and_there_they_are() {
    let builder = ChildServer::builder(MILENA).only_embedded("the engine is named");
    let server = builder.env(LISTEN, "127.0.0.1:0").start();
    let address = address(&server);
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200 "));
    let page = get(&address, "/metrics");
    for line in ["\nmilena_store_info{engine=\"embedded\"} 1\n", "\nmilena_groups{state=\"Stable\"} 0\n"] {
        assert!(page.contains(line), "{page}");
    }
}

#[test]
fn metrics_can_be_switched_off() {
    let server = ChildServer::builder(MILENA).env(LISTEN, "off").start();
    let output = wait_for(&server, "Kafka clients connect to");
    assert!(!output.contains("metrics are at") && !output.contains("over HTTP"), "{output}");
}

#[test]
fn an_address_that_was_set_and_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut server = ChildServer::builder(MILENA).env(LISTEN, &address).spawn();
    assert_eq!(server.exited().code(), Some(1));
    let expected = format!("metrics cannot be served on {address}: another program listens there");
    wait_for(&server, &expected);
}

#[test]
fn a_default_port_that_is_taken_is_a_warning_and_kafka_clients_are_served() {
    // Whether this takes it or somebody else has it already: it is taken.
    let _taken = TcpListener::bind("127.0.0.1:9644");
    let server = ChildServer::builder(MILENA).without_env(LISTEN).start();
    wait_for(&server, "neither metrics nor health are served");
}

#[test]
fn a_slow_request_is_logged_and_can_be_left_out() {
    let slow = "MILENA_LOGGING_SLOW_REQUEST";
    let server = ChildServer::builder(MILENA).env(slow, "1ns").start();
    let output = wait_for(&server, "slow request");
    assert!(
        output.lines().any(|line| line.contains("slow request") && line.contains("api=\"ApiVersions\"")),
        "{output}"
    );
    let mut server = ChildServer::builder(MILENA).env(slow, "0s").start();
    server.stop();
    assert!(!server.output().contains("slow request"));
}
