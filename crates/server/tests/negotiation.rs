//! Keys, versions and bytes that are no request.

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

use common::*;
use milena_server::Server;
use milena_server::dispatch::APIS;
use milena_store::testing::MemoryStore;
use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;

#[tokio::test]
async fn every_version_of_api_versions_is_answered_in_its_own_layout() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    for version in 0..=4 {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("library"))
            .with_client_software_version(StrBytes::from_static_str("1.2"));
        let request = if version < 3 { ApiVersionsRequest::default() } else { request };
        let response = client.ask(version, &request).await;
        assert_eq!(response.error_code, 0);
        let keys: Vec<_> = response.api_keys.iter().map(|api| api.api_key).collect();
        assert_eq!(keys, [0, 10, 12, 18, 60]);
    }
}

/// librdkafka before 2.2 skips one byte too few of a tagged field, and the header of this answer is always v0.
#[tokio::test]
async fn api_versions_has_no_tagged_field_and_no_tag_byte_in_its_header() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[0, 0, 0, 20, 0, 18, 0, 3, 0, 0, 0, 9, 0, 4, b't', b'e', b's', b't', 0, 2, b'a', 2, b'b']).await;
    assert!(client.is_quiet().await, "the body is one byte short");
    client.send(&[0]).await;
    let answer = client.receive().await.unwrap();
    // Correlation id, error, compact count; keys of seven bytes, each with an empty tag section; throttle time, tags.
    let keys = common::TABLE.len();
    assert_eq!(&answer[..7], [0, 0, 0, 9, 0, 0, u8::try_from(keys + 1).unwrap()]);
    assert_eq!(answer.len(), 7 + keys * 7 + 4 + 1);
    assert_eq!(answer.last(), Some(&0));
}

#[tokio::test]
async fn a_newer_api_versions_is_answered_in_v0_and_the_connection_stays() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    for version in [5, 99, -1] {
        client.send(&raw_request(18, version, 1234, b"from the future")).await;
        let answer = client.receive().await.unwrap();
        assert_eq!(&answer[..], [0, 0, 4, 210, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
    }
    client.ask(0, &ApiVersionsRequest::default()).await;
}

#[tokio::test]
async fn an_unknown_key_closes_the_connection() {
    let server = start(config()).await;
    for key in [4, 999, -1] {
        let mut client = Client::connect(&server).await;
        client.send(&raw_request(key, 0, 1, b"")).await;
        assert!(client.is_closed().await);
    }
    assert_eq!(server.broker().metrics.connections.closed_protocol.get(), 3);
}

#[tokio::test]
async fn a_version_out_of_range_closes_the_connection() {
    let server = start(config()).await;
    for (key, version) in [(60, 3), (10, 7), (10, -1)] {
        let mut client = Client::connect(&server).await;
        client.send(&raw_request(key, version, 1, &[0; 20])).await;
        assert!(client.is_closed().await, "key {key} version {version}");
    }
}

#[tokio::test]
async fn bytes_behind_the_body_close_the_connection() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    client.send(&raw_request(10, 0, 1, &[0, 1, b'g'])).await;
    assert_eq!(client.receive_id().await, 1);
    client.send(&raw_request(10, 0, 2, &[0, 1, b'g', 0])).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_count_that_the_bytes_cannot_hold_closes_the_connection() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    // Tag section of the header, key type, then a compact array of 2^31 - 2 keys.
    client.send(&raw_request(10, 4, 1, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0x07, 1, 1])).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn what_is_no_frame_closes_the_connection() {
    let server = start(config()).await;
    let frames: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0],
        &[0, 0, 0, 7, 0, 18, 0, 0, 0, 0, 0],
        // The client id is longer than the frame.
        &[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0, 4],
    ];
    for bytes in frames {
        let mut client = Client::connect(&server).await;
        client.send(bytes).await;
        assert!(client.is_closed().await, "{bytes:?}");
    }
}

#[tokio::test]
async fn what_came_before_bad_bytes_is_still_answered() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let mut bytes = obedient(1, ANSWER, 1);
    bytes.extend(obedient(2, ANSWER, 1));
    bytes.extend([0xff; 8]);
    client.send(&bytes).await;
    assert_eq!([client.receive_id().await, client.receive_id().await], [1, 2]);
    assert!(client.is_closed().await);
}

/// librdkafka before 2.11.1 sends everything uncompressed when the lowest advertised Produce is above 0.
#[tokio::test]
async fn produce_is_advertised_from_0_and_closes_the_connection_below_3() {
    let server = Server::start(config(), Arc::new(MemoryStore::new())).await.unwrap();
    let mut client = Client::connect(&server).await;
    let versions = client.ask(3, &ApiVersionsRequest::default()).await;
    // All but the three of SASL, which this listener does not ask for.
    assert_eq!(versions.api_keys.len(), APIS.len() - 3);
    let produce = versions.api_keys.iter().find(|api| api.api_key == 0).unwrap();
    assert_eq!((produce.min_version, produce.max_version), (0, 13));
    for version in 0..3 {
        let mut client = Client::connect(&server).await;
        client.send(&raw_request(0, version, 1, &[0, 1, 0, 0, 3, 232, 0, 0, 0, 0])).await;
        assert!(client.is_closed().await, "version {version}");
    }
}
