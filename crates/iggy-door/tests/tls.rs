//! TLS on the port for Iggy clients, with the SDK and with what is no TLS.

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
use std::time::Duration;

use common::*;
use iggy::prelude::*;
use milena_iggy_door::DoorLimits;
use milena_testkit::tls::{self, Authority, BOTH, NAME};
use milena_testkit::{Logged, SOON};
use milena_tls::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::Level;

/// A client of the SDK that trusts `authority`, not logged in.
fn client(door: &TestDoor, authority: &Authority) -> TcpClient {
    // The SDK's own choice, of which there are two in one program.
    let _ = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = TcpClientConfig {
        server_address: door.door.address().to_string(),
        tls_enabled: true,
        tls_domain: NAME.to_owned(),
        tls_ca_file: Some(authority.file().display().to_string()),
        tls_validate_certificate: true,
        reconnection: TcpClientReconnectionConfig { enabled: false, ..TcpClientReconnectionConfig::default() },
        ..TcpClientConfig::default()
    };
    TcpClient::create(Arc::new(config)).unwrap()
}

async fn with_tls(authority: &Authority, limits: DoorLimits) -> TestDoor {
    TestDoor::with(|config| {
        config.tls = Some(authority.sign("server").files());
        config.limits = limits;
    })
    .await
}

fn failed(door: &TestDoor, reason: Reason) -> u64 {
    door.door.metrics().tls.get().unwrap().counts().failed(reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sdk_sends_and_polls_over_tls() {
    let authority = Authority::new();
    let door = with_tls(&authority, DoorLimits::default()).await;
    let client = client(&door, &authority);
    Client::connect(&client).await.unwrap();
    client.login_user(USER, PASSWORD).await.unwrap();
    topic(&client, 1).await;
    // More than the records of TLS and the buffers of sockets hold at once.
    let payload = "x".repeat(9 << 20);
    send(&client, 0, &["sealed", &payload]).await.unwrap();
    let polled = poll(&client, PollingStrategy::offset(0), 10).await.unwrap();
    let payloads: Vec<&[u8]> = polled.messages.iter().map(|message| &message.payload[..]).collect();
    assert_eq!(payloads, [b"sealed", payload.as_bytes()]);
    client.shutdown().await.unwrap();
    assert_eq!(door.door.metrics().tls.get().unwrap().counts().completed(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_trust_the_certificate_gets_nowhere() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let door = with_tls(&authority, DoorLimits::default()).await;
    let connected = timeout(SOON, Client::connect(&client(&door, &stranger))).await.expect("an end");
    assert!(connected.is_err(), "it trusts a stranger");
    let counted = async {
        while failed(&door, Reason::RefusedByClient) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, counted).await.expect("not counted");
}

/// Reads until the door closes.
async fn end_of(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is not closed");
}

#[tokio::test]
async fn plain_text_and_silence_on_a_port_with_tls_end() {
    let authority = Authority::new();
    let door =
        with_tls(&authority, DoorLimits { login_timeout: Duration::from_secs(5), ..DoorLimits::default() }).await;
    let log = Logged::at(Level::WARN);
    let mut plain = TcpStream::connect(door.door.address()).await.unwrap();
    plain.write_all(&[0; 300]).await.unwrap();
    end_of(&mut plain).await;
    assert_eq!(failed(&door, Reason::PlainText), 1);
    assert!(log.lines().iter().any(|line| line.contains("the client does not begin with TLS")), "{:?}", log.lines());
    let mut silent = TcpStream::connect(door.door.address()).await.unwrap();
    end_of(&mut silent).await;
    assert_eq!(failed(&door, Reason::TimedOut), 1);
    assert_eq!(door.door.metrics().closed_handshake.get(), 2);
    // The handshake alone is no login.
    let mut idle = tls::connect(&authority.client(BOTH, None), door.door.address()).await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, idle.read_to_end(&mut rest)).await.expect("it is not closed").expect("a close_notify");
    assert_eq!(door.door.metrics().closed_idle.get(), 1);
}

#[tokio::test]
async fn tls_on_a_port_with_plain_text_is_told_as_what_it_is() {
    let authority = Authority::new();
    let door = TestDoor::open().await;
    let log = Logged::at(Level::WARN);
    for version in BOTH {
        assert!(tls::connect(&authority.client(&[version], None), door.door.address()).await.is_err());
    }
    let lines = log.lines();
    assert!(lines[0].contains("the client begins with TLS, and this port speaks plain text"), "{lines:?}");
    assert_eq!(door.door.metrics().closed_protocol.get(), 2);
}
