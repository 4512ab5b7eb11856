//! The suite of promises against a real Iggy server, where `TEST_IGGY=iggy://user:password@host:port` names one.
//!
//! The server must be there for tests only: every test deletes the streams that it uses, Milena's own among them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{RUNTIME, open};
use iggy::prelude::{Client, Identifier, StreamClient, TcpClient, TopicClient};
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::CREATE_TOPIC_CODE;
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::{WireIdentifier, WireName, WireOptions};
use iggy_common::{AutoLogin, BinaryTransport, Credentials, TcpClientConfig};
use milena_store::conformance::StoreFactory;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Bounds, Store, TopicSettings};
use milena_store_iggy::IggyConfig;
use milena_store_iggy::url::IggyUrl;
use parking_lot::{Mutex, MutexGuard};
use pollster::block_on;

/// One server, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Streams of the suite and of the store.
const STREAMS: [&str; 3] = ["conformance", "other", "__milena"];

struct RealServer {
    config: IggyConfig,
    _turn: MutexGuard<'static, ()>,
}

impl RealServer {
    /// The server that the variable names, emptied; `None` when there is none.
    fn new() -> Option<Self> {
        let Ok(text) = std::env::var("TEST_IGGY") else {
            eprintln!("skipped: TEST_IGGY names no Iggy server");
            return None;
        };
        let turn = TURN.lock();
        let url = IggyUrl::parse(&text).unwrap();
        let server = url.servers.first().unwrap();
        let config = IggyConfig::new(server, &url.user.unwrap(), url.password.unwrap());
        RUNTIME.block_on(empty(&config));
        Some(Self { config, _turn: turn })
    }
}

async fn native(config: &IggyConfig) -> TcpClient {
    let credentials = Credentials::UsernamePassword(config.user.clone(), config.password.clone());
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: config.servers[0].clone(),
        auto_login: AutoLogin::Enabled(credentials),
        ..TcpClientConfig::default()
    }));
    let client = client.unwrap();
    Client::connect(&client).await.unwrap();
    client
}

async fn empty(config: &IggyConfig) {
    let client = native(config).await;
    for stream in STREAMS {
        let name = Identifier::named(stream).unwrap();
        if client.get_stream(&name).await.unwrap().is_some() {
            client.delete_stream(&name).await.unwrap();
        }
    }
    client.disconnect().await.unwrap();
}

impl StoreFactory for RealServer {
    fn open(&self) -> Arc<dyn Store> {
        open(self.config.clone())
    }

    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        Some(StoreFactory::open(self))
    }
}

#[test]
fn a_trim_point_that_a_purge_made_void_does_not_come_back() {
    let Some(server) = RealServer::new() else { return };
    let store = server.open();
    let topic = block_on(store.create_topic("conformance", "purged", 1, &TopicSettings::default())).unwrap().topic;
    let at = topic.partition(0);
    let append = |count: u128| {
        for id in 1..=count {
            block_on(store.append(&at, batch_of(&[TestMessage::new(id, b"value")]))).unwrap();
        }
    };
    append(5);
    block_on(store.trim(&at, 4)).unwrap();
    RUNTIME.block_on(async {
        let (stream, topic) = (Identifier::named("conformance").unwrap(), Identifier::named("purged").unwrap());
        native(&server.config).await.purge_topic(&stream, &topic).await.unwrap();
    });
    // The first of them shows that the end fell, and the others pass the trim point.
    append(7);
    let all = Bounds { start: 0, end: 7 };
    let started = Instant::now();
    let reopened = || {
        let other = server.open();
        block_on(other.topics()).unwrap();
        block_on(other.bounds(&at)).unwrap()
    };
    while reopened() != all {
        assert!(started.elapsed() < Duration::from_secs(30), "the journal still has the trim point");
        std::thread::sleep(Duration::from_millis(100));
    }
    block_on(store.topics()).unwrap();
    assert_eq!(block_on(store.bounds(&at)).unwrap(), all);
    let begins: Vec<_> = store.epochs(&at).starts().iter().map(|begin| (begin.epoch, begin.start)).collect();
    assert_eq!(begins, [(1, 0)], "and readers of what was there before are told");
}

#[test]
fn a_topic_that_was_created_with_the_defaults_of_the_server_is_counted_as_one_that_can_lose_messages() {
    let Some(server) = RealServer::new() else { return };
    RUNTIME.block_on(async {
        let client = native(&server.config).await;
        client.create_stream("conformance").await.unwrap();
        let stream = Identifier::named("conformance").unwrap();
        // The SDK's typed call sends options that servers of this generation may not know.
        let request = CreateTopicRequest {
            stream_id: WireIdentifier::named("conformance").unwrap(),
            partitions_count: 1,
            name: WireName::new("elsewhere").unwrap(),
            options: WireOptions::empty(),
        };
        client.send_raw_with_response(CREATE_TOPIC_CODE, request.to_bytes()).await.unwrap();
        let topic = Identifier::named("elsewhere").unwrap();
        assert!(client.get_topic(&stream, &topic).await.unwrap().is_some());
    });
    let store = server.open();
    block_on(store.create_topic("conformance", "here", 1, &TopicSettings::default())).unwrap();
    for _ in 0..2 {
        block_on(store.topics()).unwrap();
        assert_eq!(store.metrics().unwrap().undurable_topics.get(), 1, "each once");
    }
}

milena_store::conformance_tests!(where_there_is RealServer::new());
