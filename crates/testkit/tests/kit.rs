//! The kit's own parts, against a server over memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::Duration;

use milena_server::ServerConfig;
use milena_testkit::{ChildServer, RawClient, ReservedPort, TestServer};
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::{ApiVersionsRequest, CreateTopicsRequest, MetadataRequest, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

fn topic(name: &'static str) -> CreateTopicsRequest {
    let name = TopicName(StrBytes::from_static_str(name));
    let topic = CreatableTopic::default().with_name(name).with_num_partitions(3).with_replication_factor(1);
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start().await;
    let mut client = server.client().await.with_client_id("pipeline");
    for version in [0, 4, 2, 3] {
        client.send(version, &ApiVersionsRequest::default()).await;
    }
    client.send(1, &MetadataRequest::default()).await;
    for _ in 0..4 {
        assert!(!client.receive::<ApiVersionsRequest>().await.api_keys.is_empty());
    }
    assert_eq!(client.receive::<MetadataRequest>().await.brokers.len(), 1);
    assert!(client.is_quiet_for(Duration::from_millis(20)).await);
    server.shutdown().await;
    client.expect_close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_closes_the_connection() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.send_frame(999, 0, 1, &[]).await;
    client.expect_close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_from_the_future_is_answered_with_a_list_and_the_connection_stays() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.send_frame(18, 99, 1, &[0]).await;
    let frame = client.read_frame().await.unwrap();
    assert_eq!(frame[..6], [0, 0, 0, 1, 0, 35]);
    assert_eq!(client.request(3, &ApiVersionsRequest::default()).await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_survive_a_restart_on_the_same_port() {
    let server = TestServer::builder().config(|config| config.auto_create_topics = false).start().await;
    let address = server.address();
    let created = server.client().await.request(7, &topic("kept")).await;
    assert_eq!(created.topics[0].error_code, 0);
    let server = server.restart().await;
    assert_eq!(server.address(), address);
    let metadata = server.client().await.request(12, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(metadata.topics.len(), 1);
    assert_eq!(metadata.topics[0].partitions.len(), 3);
}

#[tokio::test]
async fn a_reserved_port_has_no_listener_and_a_server_can_listen_there_again_and_again() {
    let port = ReservedPort::take();
    for _ in 0..2 {
        assert!(RawClient::try_connect(("127.0.0.1", port.number())).await.is_err());
        let listen = |config: &mut ServerConfig| config.listeners[0].bind.set_port(port.number());
        let server = TestServer::builder().config(listen).start().await;
        assert_eq!(server.client().await.request(7, &topic("t")).await.topics[0].error_code, 0);
        server.shutdown().await;
    }
}

#[test]
fn a_reserved_port_is_given_to_nobody_else() {
    let ports: Vec<_> = (0..500).map(|_| ReservedPort::take()).collect();
    let mut numbers: Vec<_> = ports.iter().map(ReservedPort::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
    let listeners = (0..500).map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap());
    assert!(!listeners.into_iter().any(|any| numbers.binary_search(&any.local_addr().unwrap().port()).is_ok()));
}

#[test]
fn the_output_of_a_child_that_fails_is_collected() {
    let mut child = ChildServer::builder("/bin/sh")
        .no_args()
        .args(["-c", "echo port {port} $WHO; exit 3"])
        .env("WHO", "me")
        .spawn();
    assert_eq!(child.exited().code(), Some(3));
    let expected = format!("port {} me\n", child.address().port());
    // The reader of the pipe may be a moment behind the end of the process.
    for _ in 0..1000 {
        if child.output() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", child.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_in_a_folder_survive_a_restart() {
    let server = TestServer::builder().in_folder().only("the test looks at the folder").start().await;
    assert_eq!(server.client().await.request(7, &topic("kept")).await.topics[0].error_code, 0);
    let server = server.restart().await;
    assert!(server.folder().is_some_and(std::path::Path::exists));
    let metadata = server.client().await.request(12, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(metadata.topics[0].partitions.len(), 3);
    server.shutdown().await;
}
