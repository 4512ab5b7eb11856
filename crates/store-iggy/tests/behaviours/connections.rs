//! The pool, and servers that come, go, or are no servers of ours.

use std::time::{Duration, Instant};

use iggy::prelude::PersonalAccessTokenClient;
use iggy_binary_protocol::EvictionReason;
use milena_iggy_door::frame::eviction;
use milena_store_iggy::{IggyConfig, IggyStore, OpenError, SecretString};
use milena_testkit::SOON;
use milena_wire::kafka_protocol::messages::CreateTopicsRequest;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::case::{Case, Place, Setup, TOPIC};
use crate::groups::commit_code;
use crate::kafka::{fetch, fetch_request, plain, produce, produce_until_stored, read_all, record, topic_name};

/// How long an append in doubt is looked for.
const GRACE: Duration = Duration::from_secs(10);

fn proxied() -> Setup {
    Setup { proxied: true, ..Setup::default() }
}

async fn b29_a_connection_that_was_idle_longer_than_a_heartbeat_is_still_good(case: Case) {
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("before")])).await.error_code, 0);
    // The server closes members of its groups that are silent for 36 seconds, the door of this test after one. Were this
    // one closed, the append would be in doubt, and the answer would wait for the end of that.
    let silence = if case.place == Place::Door { 2 } else { 40 };
    tokio::time::sleep(Duration::from_secs(silence)).await;
    let started = Instant::now();
    assert_eq!(produce(&mut client, plain(&[record("after")])).await.base_offset, 1);
    assert!(started.elapsed() < GRACE, "it took {:?}", started.elapsed());
}
shown!(b29_a_connection_that_was_idle_longer_than_a_heartbeat_is_still_good in door, one_node with Setup {
    gateway: |config| config.limits.in_doubt_grace = GRACE,
    door: |limits| limits.heartbeat_timeout = Duration::from_secs(1),
    ..Setup::default()
});

async fn b30_a_hundred_new_clients_cost_the_server_no_login(case: Case) {
    let mut client = case.raw().await;
    for _ in 0..20 {
        assert_eq!(produce(&mut client, plain(&[record("warm")])).await.error_code, 0);
    }
    let logged_in = || case.proxy().connections();
    let before = logged_in();
    let mut newcomers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let address = case.kafka.address();
        newcomers.spawn(async move {
            let mut client = milena_testkit::RawClient::connect(address).await;
            fetch(&mut client, 0, 0).await.error_code
        });
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        let started = Instant::now();
        assert_eq!(produce(&mut client, plain(&[record("meanwhile")])).await.error_code, 0);
        slowest = slowest.max(started.elapsed());
    }
    assert!(newcomers.join_all().await.into_iter().all(|code| code == 0));
    assert!(slowest < Duration::from_secs(2), "a produce took {slowest:?}");
    let pool = case.config.append_connections + case.config.read_connections + 3;
    let new = usize::try_from(logged_in() - before).unwrap();
    assert!(new <= pool, "{new} connections for a hundred clients");
}
shown!(b30_a_hundred_new_clients_cost_the_server_no_login in door, one_node with proxied());

async fn b31_a_server_that_restarts_is_found_again_without_a_storm(case: Case) {
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("before")])).await.base_offset, 0);
    let before = case.proxy().connections();
    case.take_away().await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let answer = produce(&mut client, plain(&[record("refused")])).await;
        assert!([5, 6, 7].contains(&answer.error_code), "code {}", answer.error_code);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let attempts = case.proxy().connections() - before;
    assert!(attempts < 100, "{attempts} attempts to connect in two seconds");
    case.bring_back().await;
    let batch = plain(&[record("after")]);
    let base = produce_until_stored(&mut client, &batch).await;
    assert!(started.elapsed() < SOON, "it took {:?}", started.elapsed());
    let all = read_all(&mut client).await;
    assert_eq!(all.last().map(|last| last.offset), Some(base));
    assert_eq!(all[0].value.as_deref(), Some(&b"before"[..]));
}
shown!(b31_a_server_that_restarts_is_found_again_without_a_storm in door, one_node with Setup {
    gateway: |config| config.limits.in_doubt_grace = Duration::from_millis(200),
    ..proxied()
});

/// Answers every connection's first request with a refusal of its protocol version.
async fn newer_server() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut header = vec![0; iggy_binary_protocol::HEADER_SIZE];
            if stream.read_exact(&mut header).await.is_ok() {
                let _ = stream.write_all(&eviction(0, EvictionReason::IncompatibleProtocol)).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_a_server_that_speaks_another_version_ends_the_start_at_once_with_its_reason() {
    let address = newer_server().await;
    let password = SecretString::from("any".to_owned());
    let started = Instant::now();
    let opened = Box::pin(IggyStore::open(IggyConfig::new(&address.to_string(), "any", password))).await;
    let error = opened.err().unwrap();
    assert!(matches!(error, OpenError::Refused(_)), "{error}");
    assert!(error.to_string().contains("14003"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "it was tried again and again");
}

/// Codes of Kafka's table upon which a client waits and asks again: 5, 6, 7, 14, 15, 16, 41 and 56. 3 is one too, but says
/// that there is no topic.
const RETRIABLE: [i16; 8] = [5, 6, 7, 14, 15, 16, 41, 56];

/// What clients hear of a gateway whose server takes neither its token nor its password any more.
async fn codes_of(case: &Case) -> Vec<(&'static str, i16)> {
    let mut client = case.raw().await;
    let produced = produce(&mut client, plain(&[record("refused")])).await.error_code;
    let fetched = client.request(11, &fetch_request(TOPIC, 0, 0, 0, 1 << 20)).await;
    let topic =
        CreatableTopic::default().with_name(topic_name("new")).with_num_partitions(1).with_replication_factor(1);
    let create = CreateTopicsRequest::default().with_timeout_ms(2_000).with_topics(vec![topic]);
    let created = client.request(5, &create).await;
    vec![
        ("produce", produced),
        ("fetch", fetched.responses[0].partitions[0].error_code),
        ("create a topic", created.topics[0].error_code),
        ("commit", commit_code(&mut client, "group", 0, 0, "").await),
    ]
}

async fn a_login_that_the_server_refuses_is_not_blamed_on_clients(case: Case) {
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("before")])).await.error_code, 0);
    // The token is revoked, and the password changed.
    let native = case.native().await;
    for token in native.get_personal_access_tokens().await.unwrap() {
        native.delete_personal_access_token(&token.name).await.unwrap();
    }
    case.take_away().await;
    case.bring_back_with("another one").await;
    for round in 0..3 {
        for (asked, code) in codes_of(&case).await {
            assert!(RETRIABLE.contains(&code), "round {round}: {asked} is answered with {code}");
        }
    }
    case.take_away().await;
    case.bring_back().await;
    let stored = produce_until_stored(&mut client, &plain(&[record("after")])).await;
    assert_eq!(read_all(&mut client).await.last().map(|last| last.offset), Some(stored));
}
shown!(a_login_that_the_server_refuses_is_not_blamed_on_clients in door with Setup {
    gateway: |config| config.limits.in_doubt_grace = Duration::from_millis(200),
    ..Setup::default()
});

async fn a_wrong_password_ends_the_start_at_once_with_its_reason(case: Case) {
    let password = SecretString::from("a guess".to_owned());
    let started = Instant::now();
    let opened = Box::pin(IggyStore::open(IggyConfig { password, instance: 9, ..case.config.clone() })).await;
    let error = opened.err().unwrap();
    assert!(matches!(error, OpenError::Refused(_)), "{error}");
    assert!(error.to_string().contains("nvalid credentials") && !error.to_string().contains("guess"), "{error}");
    assert!(started.elapsed() < case.config.start_timeout, "it was tried again and again");
}
shown!(a_wrong_password_ends_the_start_at_once_with_its_reason in door, one_node, three_nodes);
