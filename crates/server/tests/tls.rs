//! TLS on listeners, over TCP: both versions, certificates of both sides, renewal, and what is no TLS.

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
use milena_server::Server;
use milena_server::config::{ListenerConfig, ServerConfig};
use milena_server::limits::Limits;
use milena_store::testing::MemoryStore;
use milena_testkit::Logged;
use milena_testkit::tls::{self, Authority, BOTH};
use milena_tls::{ClientAuth, Reason, TlsFiles, TlsPort};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};
use tracing::Level;

fn with_tls(files: TlsFiles) -> ServerConfig {
    let listener = ListenerConfig { tls: Some(files), ..listener("secure", "127.0.0.1:0") };
    ServerConfig { listeners: vec![listener], ..ServerConfig::default() }
}

/// The port of the one listener.
fn port(server: &Server) -> Arc<TlsPort> {
    Arc::clone(&server.broker().tls.get().unwrap()[0].1)
}

/// A client after its handshake.
struct Secure(TlsStream<TcpStream>);

impl Secure {
    async fn connect(config: &Arc<ClientConfig>, server: &Server) -> Self {
        Self(tls::connect(config, address(server)).await.unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        timeout(SOON, async {
            self.0.write_all(bytes).await.unwrap();
            self.0.flush().await.unwrap();
        })
        .await
        .unwrap();
    }

    /// The next frame; `None` is an end with `close_notify`.
    async fn receive(&mut self) -> Option<Vec<u8>> {
        let reading = async {
            let mut prefix = [0; 4];
            if self.0.read(&mut prefix[..1]).await.expect("an end with close_notify") == 0 {
                return None;
            }
            self.0.read_exact(&mut prefix[1..]).await.unwrap();
            let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
            self.0.read_exact(&mut frame).await.unwrap();
            Some(frame)
        };
        timeout(SOON, reading).await.expect("neither an answer nor an end")
    }

    async fn receive_id(&mut self) -> i32 {
        i32::from_be_bytes(*self.receive().await.expect("an answer").first_chunk().unwrap())
    }
}

#[tokio::test]
async fn requests_are_answered_in_order_over_both_versions() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    for version in BOTH {
        let mut client = Secure::connect(&authority.client(&[version], None), &server).await;
        let requests: Vec<u8> =
            (1..=40).flat_map(|id| obedient(id, ANSWER, 300 * usize::try_from(id).unwrap())).collect();
        client.send(&requests).await;
        for id in 1..=40 {
            assert_eq!(client.receive_id().await, id);
        }
    }
    assert_eq!(port(&server).counts().completed(), 2);
}

#[tokio::test]
async fn an_answer_of_many_megabytes_reaches_a_client_that_takes_its_time() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
    let mut request = obedient(1, LARGE, 2);
    *request.last_mut().unwrap() = 9;
    client.send(&request).await;
    let sent = || server.broker().metrics.connections.bytes_out.get();
    // The rest waits until the client reads.
    until("nothing was sent", || sent() > 0).await;
    let answer = client.receive().await.unwrap();
    assert_eq!(answer.len(), 4 + (9 << 20));
    assert!(answer[8..].iter().all(|byte| *byte == 0));
    until("not all was counted", || sent() == 8 + (9 << 20)).await;
}

#[tokio::test]
async fn what_was_asked_whole_is_answered_although_the_client_stopped_sending() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    for says_so in [true, false] {
        let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
        client.send(&[obedient(1, ANSWER, 10), obedient(2, ANSWER, 10), vec![0, 0]].concat()).await;
        if says_so {
            client.0.shutdown().await.unwrap();
        } else {
            // Just closed, without a `close_notify`.
            client.0.get_mut().0.shutdown().await.unwrap();
        }
        assert_eq!(client.receive_id().await, 1);
        assert_eq!(client.receive_id().await, 2);
        assert_eq!(client.receive().await, None);
    }
    assert_eq!(server.broker().metrics.connections.closed_within_frame.get(), 2);
}

#[tokio::test]
async fn answers_before_a_mistake_are_not_lost_with_what_is_unread() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
    let unread = vec![7; 300_000];
    client.send(&[obedient(1, ANSWER, 10), raw_request(9_999, 0, 2, &[]), unread].concat()).await;
    assert_eq!(client.receive_id().await, 1);
    assert_eq!(client.receive().await, None, "the end is told");
    assert_eq!(server.broker().metrics.connections.closed_protocol.get(), 1);
}

#[tokio::test]
async fn a_client_must_show_a_good_certificate_where_one_is_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let own = authority.sign("client");
    let foreign = stranger.sign("client");
    let files =
        |client_auth| TlsFiles { client_auth, client_ca: Some(authority.file()), ..authority.sign("server").files() };
    for (asked, nothing_is_good) in [(ClientAuth::Required, false), (ClientAuth::Requested, true)] {
        let server = start(with_tls(files(asked))).await;
        let log = Logged::at(Level::WARN);
        for version in BOTH {
            let expected = [(None, nothing_is_good), (Some(&own), true), (Some(&foreign), false)];
            for (shown, is_good) in expected {
                let config = authority.client(&[version], shown);
                // In TLS 1.3 a client learns of the refusal when it reads.
                let answered = async {
                    let mut client = Secure(tls::connect(&config, address(&server)).await.ok()?);
                    client.0.write_all(&obedient(1, ANSWER, 10)).await.ok()?;
                    let mut answer = [0; 12];
                    timeout(SOON, client.0.read_exact(&mut answer)).await.expect("no end").ok()
                };
                assert_eq!(answered.await.is_some(), is_good, "{asked:?} {version:?} {:?}", shown.map(|s| &s.key));
            }
        }
        let refused = port(&server).counts().failed(Reason::ClientCertificate);
        assert_eq!(refused, if nothing_is_good { 2 } else { 4 });
        assert_eq!(server.broker().metrics.connections.closed_handshake.get(), refused);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "one line for an address and a minute: {lines:?}");
        assert!(lines[0].contains("the client showed no certificate, or one that is not good here"), "{lines:?}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_certificate_is_counted_as_such() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = start(with_tls(authority.sign("server").files())).await;
    for version in BOTH {
        let refused = tls::connect(&stranger.client(&[version], None), address(&server)).await.unwrap_err();
        assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
    }
    until("not counted", || port(&server).counts().failed(Reason::RefusedByClient) == 2).await;
}

#[tokio::test]
async fn plain_text_on_a_port_with_tls_is_told_as_what_it_is() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    let log = Logged::at(Level::WARN);
    let mut client = Client::connect(&server).await;
    client.send(&obedient(1, ANSWER, 100_000)).await;
    assert!(client.is_closed().await);
    assert_eq!(port(&server).counts().failed(Reason::PlainText), 1);
    assert!(
        log.lines()[0].contains("the client does not begin with TLS, which this port asks for"),
        "{:?}",
        log.lines()
    );
}

#[tokio::test]
async fn tls_on_a_port_with_plain_text_is_told_as_what_it_is() {
    let authority = Authority::new();
    let server = start(config()).await;
    let log = Logged::at(Level::WARN);
    for version in BOTH {
        assert!(tls::connect(&authority.client(&[version], None), address(&server)).await.is_err());
    }
    assert_eq!(server.broker().metrics.connections.closed_protocol.get(), 2);
    let lines = log.lines();
    assert!(lines[0].contains("the client begins with TLS, and this listener speaks plain text"), "{lines:?}");
}

#[tokio::test]
async fn who_does_not_finish_the_handshake_in_time_is_closed_and_keeps_nobody_waiting() {
    let authority = Authority::new();
    let limits = Limits { authentication_timeout: Duration::from_secs(2), ..Limits::default() };
    let server = start(ServerConfig { limits, ..with_tls(authority.sign("server").files()) }).await;
    let mut silent = Client::connect(&server).await;
    let mut trickling = Client::connect(&server).await;
    let hello = hello(&authority);
    let trickle = async {
        for byte in hello.iter().cycle() {
            if trickling.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let others = async {
        let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
        client.send(&obedient(1, ANSWER, 10)).await;
        assert_eq!(client.receive_id().await, 1);
        assert!(silent.is_closed().await);
    };
    timeout(SOON * 3, async { tokio::join!(trickle, others) }).await.expect("not closed");
    assert_eq!(port(&server).counts().failed(Reason::TimedOut), 2);
    assert_eq!(server.broker().metrics.connections.closed_handshake.get(), 2);
}

/// What a client begins with.
fn hello(authority: &Authority) -> Vec<u8> {
    let name = tls::NAME.try_into().unwrap();
    let mut client = ClientConnection::new(authority.client(BOTH, None), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn hostile_handshakes_end_their_own_connection_and_nothing_else() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    let hello = hello(&authority);
    // Deterministic noise: each case has a byte changed, an end cut off, or something behind it.
    let mut noise = 1_u32;
    let mut next = |below: usize| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 8) as usize % below
    };
    let mut cases = vec![
        vec![0x16],
        vec![0x16, 3, 1, 0xff, 0xff],
        [&[0x16, 3, 1, 0x40, 0][..], &vec![1; 0x4000]].concat(),
        [&[0x16, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff][..], &vec![0; 100_000]].concat(),
        // Records of no bytes, for ever.
        [0x16, 3, 3, 0, 0].repeat(20_000),
        // A warning in front of everything, again and again.
        [0x15, 3, 3, 0, 2, 1, 0].repeat(5_000),
        [hello.clone(), hello.clone(), hello.clone()].concat(),
        [hello.clone(), obedient(1, ANSWER, 100)].concat(),
    ];
    for _ in 0..150 {
        let mut case = hello.clone();
        let at = next(case.len());
        match next(3) {
            0 => case[at] ^= u8::try_from(1 + next(255)).unwrap(),
            1 => case.truncate(at),
            _ => case.extend((0..at).map(|_| u8::try_from(next(256)).unwrap())),
        }
        cases.push(case);
    }
    let count = cases.len();
    for case in cases {
        let mut client = Client::connect(&server).await;
        // The server may have closed it before all was sent.
        let _ = timeout(SOON, client.stream.write_all(&case)).await.unwrap();
        let _ = client.stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = timeout(SOON, client.stream.read_to_end(&mut rest)).await.expect("it is closed");
    }
    let counts = Arc::clone(&port(&server));
    let failed = || Reason::ALL.map(|reason| counts.counts().failed(reason)).iter().sum::<u64>();
    until("not all were counted", || failed() == count as u64).await;
    until("some are still there", || server.broker().lifecycle.connections() == 0).await;
    let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
    client.send(&obedient(1, ANSWER, 10)).await;
    assert_eq!(client.receive_id().await, 1);
}

#[tokio::test]
async fn bytes_that_are_not_encrypted_for_this_connection_end_it() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    for version in BOTH {
        for garbage in [&[0x17, 3, 3, 0, 64][..], &[0x16, 3, 3, 0, 64], &[0x14, 3, 3, 0, 64], b"GET / HTTP/1.1\r\n"] {
            let mut client = Secure::connect(&authority.client(&[version], None), &server).await;
            client.send(&obedient(1, ANSWER, 10)).await;
            assert_eq!(client.receive_id().await, 1);
            client.0.get_mut().0.write_all(&[garbage, &[9; 64]].concat()).await.unwrap();
            let mut byte = [0];
            let end = timeout(SOON, client.0.read(&mut byte)).await.expect("it goes on");
            assert!(!matches!(end, Ok(1)), "an answer to garbage");
        }
    }
    until("some are still there", || server.broker().lifecycle.connections() == 0).await;
}

/// The certificate that the server showed.
fn shown(client: &Secure) -> Vec<u8> {
    client.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on() {
    let authority = Authority::new();
    let signed = authority.sign("server");
    let config = ServerConfig { certificate_check: Duration::from_millis(20), ..with_tls(signed.files()) };
    let server = start(config).await;
    let client = authority.client(BOTH, None);
    let mut old = Secure::connect(&client, &server).await;
    let first = shown(&old);

    // Half of a pair: the key of another certificate.
    std::fs::copy(authority.sign("other").key, &signed.key).unwrap();
    until("the bad files were not looked at", || port(&server).counts().not_renewed() == 1).await;
    assert_eq!(shown(&Secure::connect(&client, &server).await), first);

    authority.sign("server");
    // Between its two files a look may meet one that is new and one that is old, which is refused like the above.
    until("the good files were not taken", || port(&server).counts().renewed() == 1).await;
    let second = shown(&Secure::connect(&client, &server).await);
    assert_ne!(first, second);
    old.send(&obedient(1, ANSWER, 10)).await;
    assert_eq!(old.receive_id().await, 1);
}

#[tokio::test]
async fn a_connection_without_requests_ends_with_a_word() {
    let authority = Authority::new();
    let limits = Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = start(ServerConfig { limits, ..with_tls(authority.sign("server").files()) }).await;
    let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
    assert_eq!(client.receive().await, None);
    assert_eq!(server.broker().metrics.connections.closed_idle.get(), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed() {
    let authority = Authority::new();
    let limits = Limits { write_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = start(ServerConfig { limits, ..with_tls(authority.sign("server").files()) }).await;
    let mut client = Secure::connect(&authority.client(BOTH, None), &server).await;
    let mut request = obedient(1, LARGE, 2);
    *request.last_mut().unwrap() = 64;
    client.send(&request).await;
    let closed = || server.broker().metrics.connections.closed_write_stalled.get() == 1;
    until("it was not closed", closed).await;
}

#[tokio::test]
async fn a_shutdown_answers_what_was_asked_and_waits_for_no_handshake() {
    let authority = Authority::new();
    let server = start(with_tls(authority.sign("server").files())).await;
    let mut idle = Secure::connect(&authority.client(BOTH, None), &server).await;
    idle.send(&obedient(1, ANSWER, 10)).await;
    assert_eq!(idle.receive_id().await, 1);
    let mut parked = Secure::connect(&authority.client(BOTH, None), &server).await;
    parked.send(&obedient(71_000, PARK, 10)).await;
    gate(71_000).arrived().await;
    let mut halfway = Client::connect(&server).await;
    halfway.send(&[0x16, 3]).await;
    until("not accepted", || server.broker().lifecycle.connections() == 3).await;
    let port = port(&server);
    let clients = async {
        assert_eq!(idle.receive().await, None);
        assert_eq!(parked.receive_id().await, 71_000);
        assert_eq!(parked.receive().await, None);
        assert!(halfway.is_closed().await);
    };
    let (ended, ()) = tokio::join!(server.shutdown(), clients);
    ended.unwrap();
    assert_eq!(port.counts().failed(Reason::Stopped), 1);
}

#[tokio::test]
async fn a_listener_whose_files_cannot_be_used_is_named_at_the_start() {
    let authority = Authority::new();
    let mut files = authority.sign("server").files();
    files.key = authority.folder().join("nobody.pem");
    let started = Server::start_with(with_tls(files), Arc::new(MemoryStore::new()), TABLE).await;
    let sentence = started.err().expect("it starts").to_string();
    assert!(sentence.starts_with("listener `secure`: tls.key_file "), "{sentence}");
    assert!(sentence.contains("nobody.pem cannot be read: No such file"), "{sentence}");
}
