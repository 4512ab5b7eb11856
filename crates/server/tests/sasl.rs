//! Authentication over the wire: every state, every order, and bytes that are no token.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod sasl_kit;

use std::time::{Duration, Instant};

use milena_auth::{Mechanism, plain};
use milena_server::authentication::TOKEN_BYTES_MAX;
use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::*;
use sasl_kit::*;

#[tokio::test]
async fn sasl_is_offered_on_listeners_that_ask_for_it_and_on_no_others() {
    let (with, without) = (server(&[Mechanism::Plain]).await, TestServer::start().await);
    let offered = |response: ApiVersionsResponse| {
        let of =
            |key| response.api_keys.iter().find(|api| api.api_key == key).map(|api| (api.min_version, api.max_version));
        (of(17), of(36))
    };
    let ask = ApiVersionsRequest::default();
    // librdkafka uses SASL only where version 0 of the handshake is offered.
    assert_eq!(offered(with.client().await.request(0, &ask).await), (Some((0, 1)), Some((0, 2))));
    assert_eq!(offered(without.client().await.request(0, &ask).await), (None, None));
    let mut client = without.client().await;
    assert_eq!(client.request(1, &handshake("PLAIN")).await.error_code, 34);
    assert_eq!(client.request(0, &token(b"\0alice\0secret")).await.error_code, 34);
    client.request(1, &MetadataRequest::default()).await;
}

#[tokio::test]
async fn a_client_with_the_right_password_is_let_in_in_every_version() {
    let server = server(&[Mechanism::Plain]).await;
    for version in 0..=2 {
        let mut client = server.client().await;
        client.request(3, &ApiVersionsRequest::default()).await;
        let shaken = client.request(1, &handshake("PLAIN")).await;
        assert_eq!((shaken.error_code, names(&shaken)), (0, vec!["PLAIN".to_owned()]));
        let let_in = client.request(version, &token(&plain::token(USER, PASSWORD))).await;
        assert_eq!((let_in.error_code, let_in.auth_bytes.len(), let_in.session_lifetime_ms), (0, 0, 0));
        client.request(3, &ApiVersionsRequest::default()).await;
        assert_eq!(client.request(1, &MetadataRequest::default()).await.brokers.len(), 1);
    }
    assert_eq!(counted(&server, Mechanism::Plain), (3, 0));
}

#[tokio::test]
async fn tokens_follow_version_0_of_the_handshake_behind_a_length_alone() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = server.client().await;
    assert_eq!(client.request(0, &handshake("PLAIN")).await.error_code, 0);
    client.send_bytes(&bare(&plain::token(USER, PASSWORD))).await;
    assert_eq!(client.read_frame().await.as_deref(), Some(&[][..]));
    client.request(1, &MetadataRequest::default()).await;
    // A refusal has no place for a code, and shorter tokens than any request header have one for themselves.
    for wrong in [&b"\0a\0b"[..], b"", b"\0alice\0wrong"] {
        let mut client = server.client().await;
        client.request(0, &handshake("PLAIN")).await;
        client.send_bytes(&bare(wrong)).await;
        client.expect_close().await;
    }
    assert_eq!(counted(&server, Mechanism::Plain), (1, 3));
}

#[tokio::test]
async fn a_client_that_is_not_let_in_hears_kafkas_words_and_is_gone() {
    let server = server(&[Mechanism::Plain]).await;
    let wrong = "Authentication failed: Invalid username or password";
    let other = "Authentication failed: Client requested an authorization id that is different from username";
    let malformed = "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN";
    let cases: [(&[u8], &str); 6] = [
        (b"\0alice\0wrong", wrong),
        (b"\0nobody\0secret", wrong),
        (b"bob\0alice\0secret", other),
        (b"", malformed),
        (b"alice\0secret", malformed),
        (b"\0alice\0\xff", malformed),
    ];
    for (bytes, words) in cases {
        let mut client = server.client().await;
        client.request(1, &handshake("PLAIN")).await;
        let refused = client.request(1, &token(bytes)).await;
        assert_eq!((refused.error_code, refused.error_message.as_deref()), (58, Some(words)), "{bytes:?}");
        client.expect_close().await;
    }
    assert_eq!(counted(&server, Mechanism::Plain), (0, 6));
}

#[tokio::test]
async fn a_mechanism_that_the_listener_does_not_have_is_33_with_those_that_it_has() {
    let server = server(&[Mechanism::ScramSha256, Mechanism::Plain]).await;
    for (version, name) in [(0, "GSSAPI"), (1, "SCRAM-SHA-512"), (1, ""), (1, "plain")] {
        let mut client = server.client().await;
        let shaken = client.request(version, &handshake(name)).await;
        assert_eq!(shaken.error_code, 33, "{name}");
        assert_eq!(names(&shaken), ["SCRAM-SHA-256", "PLAIN"]);
        client.expect_close().await;
    }
    assert_eq!(server.server().broker().metrics.authentication.unsupported.get(), 4);
}

#[tokio::test]
async fn nothing_is_served_to_whoever_has_not_said_who_it_is() {
    let server = server(&[Mechanism::Plain]).await;
    // A key with a version and a body that would be served otherwise, one that is not known, and a token out of turn.
    for (key, version, body) in [(3, 1, &[0xff; 4][..]), (999, 0, &[]), (36, 0, &[0, 0, 0, 0]), (0, 0, &[])] {
        let mut client = server.client().await;
        client.send_frame(key, version, 1, body).await;
        client.expect_close().await;
    }
    let mut client = server.client().await;
    client.request(1, &handshake("PLAIN")).await;
    client.send_frame(3, 1, 1, &[0xff; 4]).await;
    client.expect_close().await;
    assert_eq!(server.server().broker().metrics.connections.closed_unauthenticated.get(), 5);
}

#[tokio::test]
async fn versions_and_handshakes_within_an_exchange_are_34_and_the_end() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = server.client().await;
    client.request(1, &handshake("PLAIN")).await;
    assert_eq!(client.request(1, &handshake("PLAIN")).await.error_code, 34);
    client.expect_close().await;
    let mut client = server.client().await;
    client.request(1, &handshake("PLAIN")).await;
    assert_eq!(client.request(3, &ApiVersionsRequest::default()).await.error_code, 34);
    client.expect_close().await;
}

#[tokio::test]
async fn what_is_sent_at_once_is_answered_in_order() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = server.client().await;
    client.send(3, &ApiVersionsRequest::default()).await;
    client.send(1, &handshake("PLAIN")).await;
    client.send(2, &token(&plain::token(USER, PASSWORD))).await;
    client.send(1, &MetadataRequest::default()).await;
    assert_eq!(client.receive::<ApiVersionsRequest>().await.error_code, 0);
    assert_eq!(client.receive::<SaslHandshakeRequest>().await.error_code, 0);
    assert_eq!(client.receive::<SaslAuthenticateRequest>().await.error_code, 0);
    assert_eq!(client.receive::<MetadataRequest>().await.brokers.len(), 1);
}

#[tokio::test]
async fn what_is_sent_behind_a_wrong_password_is_not_served() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = server.client().await;
    client.send(1, &handshake("PLAIN")).await;
    client.send(2, &token(b"\0alice\0wrong")).await;
    client.send(1, &MetadataRequest::default()).await;
    client.receive::<SaslHandshakeRequest>().await;
    assert_eq!(client.receive::<SaslAuthenticateRequest>().await.error_code, 58);
    client.expect_close().await;
}

#[tokio::test]
async fn a_stranger_cannot_send_more_than_a_token_takes() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = server.client().await;
    client.send_bytes(&u32::try_from(TOKEN_BYTES_MAX + 1).unwrap().to_be_bytes()).await;
    client.expect_close().await;
    assert_eq!(server.server().broker().metrics.connections.closed_frame_too_large.get(), 1);
    // Once it is let in, what the configuration says is the bound.
    let mut client = let_in(&server, Mechanism::Plain).await;
    let names = (0..60_000).map(|n| format!("topic-number-{n}"));
    let named = names.map(|name| metadata_request::MetadataRequestTopic::default().with_name(Some(topic(&name))));
    let asked = MetadataRequest::default().with_topics(Some(named.collect())).with_allow_auto_topic_creation(false);
    assert_eq!(client.request(4, &asked).await.topics.len(), 60_000);
}

#[tokio::test]
async fn what_strangers_send_takes_nothing_from_those_who_are_let_in() {
    const STRANGERS: usize = 40;
    // What each sends of a frame that it never ends: above the 16 KiB that are free.
    const SENT: usize = 60 << 10;
    let server = server_with(&[Mechanism::Plain], |config| {
        config.limits.in_flight_bytes = 1 << 20;
        config.limits.authentication_timeout = Duration::from_secs(600);
    })
    .await;
    let broker = server.server().broker();
    let (free, free_of_strangers) = (broker.memory.available(), broker.strangers.available());
    let mut known = let_in(&server, Mechanism::Plain).await;
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        let mut stranger = server.client().await;
        stranger.send_bytes(&u32::try_from(TOKEN_BYTES_MAX).unwrap().to_be_bytes()).await;
        stranger.send_bytes(&vec![0; SENT]).await;
        strangers.push(stranger);
    }
    // More than the budget of all others has.
    let begun = Instant::now();
    while free_of_strangers - broker.strangers.available() <= free {
        assert!(begun.elapsed() < Duration::from_secs(60), "what strangers sent is charged to somebody else");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let names = (0..2_000).map(|n| format!("topic-number-{n}"));
    let named = names.map(|name| metadata_request::MetadataRequestTopic::default().with_name(Some(topic(&name))));
    let asked = MetadataRequest::default().with_topics(Some(named.collect())).with_allow_auto_topic_creation(false);
    assert_eq!(known.request(4, &asked).await.topics.len(), 2_000);
    assert_eq!(broker.memory.waits(), 0);
    let mut late = let_in(&server, Mechanism::Plain).await;
    late.request(1, &MetadataRequest::default()).await;
}

#[tokio::test]
async fn a_token_behind_an_old_handshake_has_its_bound_also_when_it_was_read_ahead() {
    let session = Duration::from_secs(3_600);
    let server = server_with(&[Mechanism::Plain], |config| config.sasl.max_reauth = session).await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    let handshake = milena_wire::encode_request(ApiKey::SaslHandshake, 0, 1, "test", &handshake("PLAIN")).unwrap();
    let sent = [&handshake[..], &bare(&vec![b'x'; TOKEN_BYTES_MAX + 1])].concat();
    client.send_bytes(&sent).await;
    assert!(client.read_frame().await.is_some());
    client.expect_close().await;
    assert_eq!(counted(&server, Mechanism::Plain), (1, 0), "it was not looked at");
}

#[tokio::test]
async fn whoever_does_not_say_who_it_is_in_time_is_gone_and_whoever_did_stays() {
    let short = Duration::from_secs(5);
    let server = server_with(&[Mechanism::Plain], |config| config.limits.authentication_timeout = short).await;
    let mut known = let_in(&server, Mechanism::Plain).await;
    let mut silent = server.client().await;
    let mut shaken = server.client().await;
    shaken.request(1, &handshake("PLAIN")).await;
    silent.expect_close().await;
    shaken.expect_close().await;
    tokio::time::sleep(short).await;
    known.request(1, &MetadataRequest::default()).await;
    assert_eq!(server.server().broker().metrics.connections.closed_unauthenticated.get(), 2);
}

#[tokio::test]
async fn a_fleet_that_logs_in_at_once_is_let_in() {
    let server = server(&[Mechanism::Plain]).await;
    let mut fleet = Vec::new();
    for _ in 0..64 {
        let mut client = server.client().await;
        client.send(1, &handshake("PLAIN")).await;
        client.send(1, &token(&plain::token(USER, PASSWORD))).await;
        fleet.push(client);
    }
    for client in &mut fleet {
        assert_eq!(client.receive::<SaslHandshakeRequest>().await.error_code, 0);
        assert_eq!(client.receive::<SaslAuthenticateRequest>().await.error_code, 0);
    }
}
