//! The gateway as a process, and an Iggy server that is late, away, or not for us.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_testkit::child::Builder;
use milena_testkit::{ChildServer, DoorChild, ReservedPort, SOON};
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

/// Codes after which clients try again by themselves.
const RETRIABLE: [i16; 5] = [3, 5, 6, 7, 56];

fn gateway() -> Builder {
    ChildServer::builder(MILENA).alone().env("MILENA_METRICS_LISTEN", "127.0.0.1:0")
}

/// An address of the loopback network where nobody listens.
fn nowhere(port: &ReservedPort) -> String {
    format!("iggy://iggy:secret@127.0.0.1:{}", port.number())
}

/// Waits until the gateway's readiness is that status.
fn wait_for_readiness(server: &ChildServer, status: &str) {
    let start = Instant::now();
    loop {
        let said = readiness(server);
        if said.as_ref().is_some_and(|said| said.starts_with(&format!("HTTP/1.1 {status} "))) {
            return;
        }
        assert!(start.elapsed() < SOON, "readiness is {said:?} and not {status}: {}", server.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn readiness(server: &ChildServer) -> Option<String> {
    let output = server.output();
    let address = output.split_once("metrics are at            http://")?.1.split('/').next()?.to_owned();
    let mut stream = TcpStream::connect(&address).ok()?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

/// Error code and base offset of one record.
async fn produce(server: &ChildServer) -> (i16, i64) {
    let record = Record { timestamp_ms: 1, value: Some(b"v".to_vec()), ..Record::default() };
    let batch = build_batch(&[record], Codec::None, None);
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch.into()));
    let data = TopicProduceData::default().with_name(topic()).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(2_000).with_topic_data(vec![data]);
    let answer = server.client().await.request(9, &request).await.responses[0].partition_responses[0].clone();
    (answer.error_code, answer.base_offset)
}

async fn fetch(server: &ChildServer) -> i16 {
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default().with_topic(topic()).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_max_wait_ms(100).with_topics(vec![wanted]);
    let answer = server.client().await.request(12, &request).await;
    answer.responses[0].partitions[0].error_code
}

/// Error code and offset of the end.
async fn end(server: &ChildServer) -> (i16, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let wanted = ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![partition]);
    let answer = server.client().await.request(8, &ListOffsetsRequest::default().with_topics(vec![wanted])).await;
    let partition = &answer.topics[0].partitions[0];
    (partition.error_code, partition.offset)
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_down_it_is_not_ready_and_codes_are_retriable_and_then_it_goes_on() {
    let mut iggy = DoorChild::start(MILENA);
    let server = gateway().over(&iggy).start();
    let new = CreatableTopic::default().with_name(topic()).with_num_partitions(1).with_replication_factor(1);
    let create = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![new]);
    assert_eq!(server.client().await.request(5, &create).await.topics[0].error_code, 0);
    assert_eq!(produce(&server).await, (0, 0));
    wait_for_readiness(&server, "200");

    iggy.kill();
    for _ in 0..3 {
        let (code, _) = produce(&server).await;
        assert!(RETRIABLE.contains(&code), "Produce answers {code}");
        let (code, _) = end(&server).await;
        assert!(RETRIABLE.contains(&code), "ListOffsets answers {code}");
        // What is known of the end is good enough to wait for more.
        let code = fetch(&server).await;
        assert!(code == 0 || RETRIABLE.contains(&code), "Fetch answers {code}");
    }
    wait_for_readiness(&server, "503");

    iggy.restart();
    wait_for_readiness(&server, "200");
    let start = Instant::now();
    loop {
        let (code, offset) = produce(&server).await;
        if code == 0 {
            assert_eq!(end(&server).await, (0, offset + 1), "nothing that was refused came later");
            break;
        }
        assert!(RETRIABLE.contains(&code) && start.elapsed() < SOON, "Produce answers {code}");
    }
    assert_eq!(fetch(&server).await, 0);
}

#[test]
fn a_server_that_comes_later_is_waited_for() {
    let port = ReservedPort::take();
    let server = gateway().over_server(&nowhere(&port)).env("MILENA_IGGY_STATE_STREAM", "gateway").spawn();
    // Clients that come now are not accepted, and what probes the process hears that it starts.
    std::thread::sleep(Duration::from_millis(500));
    assert!(TcpStream::connect(server.address()).is_err());
    let _iggy = DoorChild::on(MILENA, port);
    let start = Instant::now();
    while TcpStream::connect(server.address()).is_err() {
        assert!(start.elapsed() < SOON, "it does not start: {}", server.output());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_does_not_come_ends_the_start_with_its_address_and_no_secret() {
    let port = ReservedPort::take();
    let start = Instant::now();
    let builder = gateway().over_server(&nowhere(&port)).env("MILENA_IGGY_START_TIMEOUT", "1s");
    let mut server = builder.spawn();
    assert_eq!(server.exited().code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let said = said_at_the_end(&server);
    assert!(said.contains(&format!("127.0.0.1:{}", port.number())), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn a_wrong_password_ends_the_start_at_once_and_is_not_repeated() {
    let iggy = DoorChild::start(MILENA);
    let url = iggy.url().replace(":secret@", ":mistyped@");
    // Far longer than the test waits: what is certain is not tried again.
    let mut server = gateway().over_server(&url).env("MILENA_IGGY_START_TIMEOUT", "10m").spawn();
    assert_eq!(server.exited().code(), Some(1));
    let said = said_at_the_end(&server);
    assert!(said.contains("the Iggy server refuses") && !said.contains("mistyped"), "{said}");
}

#[test]
fn who_tries_to_log_in_is_not_named_in_the_log() {
    let mut iggy = DoorChild::start(MILENA);
    let url = iggy.url().replace("iggy://iggy:", "iggy://eve-of-sales:");
    let mut server = gateway().over_server(&url).env("MILENA_IGGY_START_TIMEOUT", "10m").spawn();
    assert_eq!(server.exited().code(), Some(1));
    assert!(said_at_the_end(&server).contains("the Iggy server refuses"));
    iggy.kill();
    let said = iggy.child().output();
    assert!(said.contains(" INFO ") && said.contains("listening for Iggy clients"), "{said}");
    assert!(!said.contains("eve-of-sales"), "{said}");
}

/// The output of a child that has ended; the reader of the pipe may be a moment behind.
fn said_at_the_end(server: &ChildServer) -> String {
    let start = Instant::now();
    while !server.output().contains("milena: ") && start.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.output()
}
