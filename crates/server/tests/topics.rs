//! Topics over TCP: the bytes of requests and answers, and requests that are meant to do harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use bytes::BufMut;
use common::*;
use milena_server::config::{ListenerConfig, ServerConfig};
use milena_testkit::TestServer;
use milena_wire::decode_response;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;

async fn serve(change: impl FnOnce(&mut ServerConfig)) -> TestServer {
    TestServer::builder().config(change).start().await
}

fn creation(name: &'static str, partitions: i32) -> CreateTopicsRequest {
    let topic = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000)
}

/// Sends a body that no decoder can read, and checks that the connection is closed and the server lives on.
async fn refused(api_key: i16, version: i16, body: &[u8]) {
    let server = TestServer::start().await;
    let mut client = Client::connect(server.server()).await;
    let flexible = matches!((api_key, version), (3, 9..) | (19, 5..));
    // A flexible request header has tagged fields before the body.
    let body = if flexible { [&[0], body].concat() } else { body.to_vec() };
    client.send(&raw_request(api_key, version, 1, &body)).await;
    assert!(client.is_closed().await, "{api_key} v{version}");
    let mut next = Client::connect(server.server()).await;
    assert_eq!(next.ask(9, &MetadataRequest::default().with_topics(None)).await.brokers.len(), 1);
}

#[tokio::test]
async fn metadata_names_the_address_of_the_listener_the_client_came_in_on() {
    let outside = ListenerConfig {
        advertised_host: Some("kafka.example.org".to_owned()),
        advertised_port: Some(19_092),
        ..listener("outside", "127.0.0.1:0")
    };
    let listeners = vec![listener("inside", "127.0.0.1:0"), outside];
    let server = serve(|config| config.listeners = listeners).await;
    let mut told = Vec::new();
    for bound in server.server().addresses() {
        let mut client = Client::connect_to(bound.address).await;
        let response = client.ask(12, &MetadataRequest::default().with_topics(None)).await;
        told.push((response.brokers[0].host.to_string(), response.brokers[0].port));
    }
    let inside = i32::from(server.address().port());
    assert_eq!(told, [("127.0.0.1".to_owned(), inside), ("kafka.example.org".to_owned(), 19_092)]);
}

#[tokio::test]
async fn a_metadata_answer_of_version_1_has_exactly_these_bytes() {
    let advertised = ListenerConfig {
        advertised_host: Some("h".to_owned()),
        advertised_port: Some(9_092),
        ..listener("one", "127.0.0.1:0")
    };
    let change = |config: &mut ServerConfig| (config.listeners, config.instance_id) = (vec![advertised], 3);
    let server = serve(change).await;
    let mut client = Client::connect(server.server()).await;
    client.ask(7, &creation("t", 1)).await;
    // All topics: a null array.
    client.send(&raw_request(3, 1, 99, &[0xff, 0xff, 0xff, 0xff])).await;
    let mut expected = Vec::new();
    expected.put_i32(99);
    // Brokers: id, host, port, no rack.
    expected.put_slice(&[0, 0, 0, 1, 0, 0, 0, 3, 0, 1, b'h', 0, 0, 0x23, 0x84, 0xff, 0xff]);
    // Controller.
    expected.put_i32(3);
    // Topics: error, name, not internal, one partition.
    expected.put_slice(&[0, 0, 0, 1, 0, 0, 0, 1, b't', 0, 0, 0, 0, 1]);
    // The partition: error, index, leader, replicas, in-sync replicas.
    expected.put_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3]);
    assert_eq!(client.receive().await.unwrap(), expected);
}

#[tokio::test]
async fn a_topic_lives_from_creation_over_a_restart_to_deletion() {
    let server = TestServer::start().await;
    let everything = MetadataRequest::default().with_topics(None);
    let mut client = Client::connect(server.server()).await;
    let id = client.ask(7, &creation("t", 2)).await.topics[0].topic_id;
    drop(client);
    let server = server.kill_and_start().await;
    let mut client = Client::connect(server.server()).await;
    let topics = client.ask(12, &everything).await.topics;
    assert_eq!((topics.len(), topics[0].topic_id, topics[0].partitions.len()), (1, id, 2));
    let item = delete_topics_request::DeleteTopicState::default().with_name(None).with_topic_id(id);
    let deleted = client.ask(6, &DeleteTopicsRequest::default().with_topics(vec![item])).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    assert!(client.ask(12, &everything).await.topics.is_empty());
}

#[tokio::test]
async fn four_bytes_that_declare_two_billion_topics_cost_the_connection_and_nothing_else() {
    refused(3, 0, &[0x7f, 0xff, 0xff, 0xff]).await;
    refused(3, 9, &[0xff, 0xff, 0xff, 0xff, 0x0f]).await;
}

#[tokio::test]
async fn a_creation_that_declares_more_topics_than_its_bytes_hold_costs_the_connection() {
    refused(19, 2, &[0x7f, 0xff, 0xff, 0xff]).await;
    refused(19, 5, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0]).await;
}

#[tokio::test]
async fn a_null_where_an_array_must_be_costs_the_connection() {
    // Topics are null, then a timeout and validate_only.
    refused(19, 4, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0]).await;
}

#[tokio::test]
async fn bytes_behind_a_whole_request_cost_the_connection() {
    refused(3, 1, &[0xff, 0xff, 0xff, 0xff, 0]).await;
}

#[tokio::test]
async fn librdkafka_lists_all_topics_with_three_bytes_too_many() {
    let server = TestServer::start().await;
    let mut client = Client::connect(server.server()).await;
    client.ask(7, &creation("t", 1)).await;
    for version in 9..=13 {
        // Behind the tagged fields of the header: four bytes kept for the count, the flags, no tagged fields.
        let flags: &[u8] = if version < 11 { &[1, 0, 0] } else { &[1, 0] };
        let body = [&[0][..], &[0; 4], flags, &[0]].concat();
        client.send(&raw_request(3, version, 7, &body)).await;
        let frame = client.receive().await.unwrap();
        let (_, answer): (_, MetadataResponse) = decode_response(ApiKey::Metadata, version, frame).unwrap();
        assert_eq!(answer.topics.len(), 1, "version {version}");
    }
    // What looks like it and is not costs the connection, as before.
    refused(3, 12, &[0, 0, 0, 0, 1, 0, 0, 0]).await;
    refused(3, 12, &[0, 0, 0, 1, 1, 0, 0]).await;
    refused(3, 8, &[0, 0, 0, 0, 1, 0, 0, 0]).await;
}

#[tokio::test]
async fn kafka_go_asks_for_acls_with_one_byte_too_many() {
    let server = TestServer::start().await;
    let mut client = Client::connect(server.server()).await;
    for version in 2..=3 {
        for permission in [0, 3] {
            // A topic by its name, no principal, any host, any operation; no tagged fields, once or twice.
            let filter = [2, 2, b't', 3, 0, 2, b'*', 1, permission];
            for tags in [&[0][..], &[0, 0]] {
                // Behind the tagged fields of the header.
                let body = [&[0][..], &filter, tags].concat();
                client.send(&raw_request(29, version, 7, &body)).await;
                let frame = client.receive().await.unwrap();
                let (_, answer): (_, DescribeAclsResponse) =
                    decode_response(ApiKey::DescribeAcls, version, frame).unwrap();
                assert_eq!(answer.error_code, 54, "version {version}, permission {permission}, {tags:?}");
            }
        }
    }
    // What looks like it and is not costs the connection.
    refused(29, 2, &[0, 2, 2, b't', 3, 0, 2, b'*', 1, 3, 0, 0, 0]).await;
    refused(29, 2, &[0, 2, 2, b't', 3, 0, 2, b'*', 1, 3, 0, 1]).await;
    refused(29, 1, &[2, 0, 1, b't', 3, 255, 255, 0, 1, b'*', 1, 3, 0]).await;
    refused(29, 1, &[2, 0, 1, b't', 3, 255, 255, 0, 1, b'*', 1, 0, 0]).await;
}
