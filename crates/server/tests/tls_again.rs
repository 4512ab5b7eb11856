//! Sessions of TLS that clients begin again: only where nobody shows a certificate.

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
use milena_server::config::{ListenerConfig, ServerConfig};
use milena_testkit::tls::{self, Authority, BOTH};
use milena_tls::{ClientAuth, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls::{ClientConfig, HandshakeKind};

/// Connects, has a request answered, and tells what the handshake was.
async fn handshake(config: &Arc<ClientConfig>, server: &Server) -> HandshakeKind {
    let mut client = tls::connect(config, address(server)).await.unwrap();
    client.write_all(&obedient(1, ANSWER, 10)).await.unwrap();
    let mut answer = [0; 12];
    timeout(SOON, client.read_exact(&mut answer)).await.expect("no end").unwrap();
    client.get_ref().1.handshake_kind().unwrap()
}

#[tokio::test]
async fn a_certificate_of_a_client_is_looked_at_each_time() {
    let authority = Authority::new();
    let own = authority.sign("client");
    let cases = [
        (ClientAuth::None, HandshakeKind::Resumed),
        (ClientAuth::Requested, HandshakeKind::Full),
        (ClientAuth::Required, HandshakeKind::Full),
    ];
    for (client_auth, expected) in cases {
        let client_ca = (client_auth != ClientAuth::None).then(|| authority.file());
        let files = TlsFiles { client_auth, client_ca, ..authority.sign("server").files() };
        let listener = ListenerConfig { tls: Some(files), ..listener("secure", "127.0.0.1:0") };
        let server = start(ServerConfig { listeners: vec![listener], ..ServerConfig::default() }).await;
        for version in BOTH {
            let config = authority.client(&[version], Some(&own));
            let first = handshake(&config, &server).await;
            assert_eq!(first, HandshakeKind::Full, "{client_auth:?} {version:?}");
            assert_eq!(handshake(&config, &server).await, expected, "{client_auth:?} {version:?}");
        }
    }
}
