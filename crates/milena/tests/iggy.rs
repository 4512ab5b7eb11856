//! Kafka clients and clients of Iggy's own SDK on the same topics of an Iggy server.
//!
//! The server is Iggy's protocol served in this process; where `TEST_IGGY=iggy://user:password@host:port` names a real
//! server, the tests that need no planned faults use that one instead.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::{
    Client as _, Consumer, HeaderKey, HeaderValue, Identifier, IggyMessage, MessageClient, Partitioning,
    PollingStrategy, TcpClient,
};
use iggy_common::{AutoLogin, Credentials, TcpClientConfig};
use milena::client::{Address, Client, FetchSettings, NewTopic, ProducerSettings, Settings};
use milena_iggy_door::faults::{Fault, On};
use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_records::ProducerSequence;
use milena_records::client::Record;
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_store_iggy::url::IggyUrl;
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use milena_testkit::TestServer;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};

const TOPIC: &str = "orders";
/// Code of the server for a request that it did not take in, and that may be sent again.
const TRANSIENT_NOT_ACCEPTED: u32 = 58;

/// A gateway in front of an Iggy server, in streams of its own.
struct Gateway {
    config: IggyConfig,
    stream: String,
    kafka: TestServer,
    door: Option<Door>,
}

impl Gateway {
    /// Over the real server if there is one.
    async fn start() -> Self {
        let Ok(text) = std::env::var("TEST_IGGY") else { return Self::in_process().await };
        let url = IggyUrl::parse(&text).unwrap();
        let config =
            IggyConfig { servers: url.servers, ..IggyConfig::new("", &url.user.unwrap(), url.password.unwrap()) };
        Self::over(config, None).await
    }

    async fn in_process() -> Self {
        let config = DoorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            username: "iggy".to_owned(),
            password: Some(Secret::new("secret")),
            offset_rules: OffsetRules::Server,
            instance_id: 0,
            tls: None,
            limits: DoorLimits::default(),
        };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
        let door = Box::pin(Door::open(config, store, admin, Arc::new(Memory::new(64 << 20)))).await.unwrap();
        let password = SecretString::from("secret".to_owned());
        Self::over(IggyConfig::new(&door.address().to_string(), "iggy", password), Some(door)).await
    }

    async fn over(mut config: IggyConfig, door: Option<Door>) -> Self {
        let name = uuid::Uuid::now_v7().simple().to_string();
        (config.state_stream, config.instance) =
            (format!("test-{name}"), u16::from_str_radix(&name[28..], 16).unwrap());
        let store = Box::pin(IggyStore::open(config.clone())).await.unwrap();
        let stream = format!("topics-{name}");
        let kafka = TestServer::builder()
            .over(store)
            .config(|config| config.topic_mapping.default_stream = stream.clone())
            .start()
            .await;
        let gateway = Self { config, stream, kafka, door };
        let new = NewTopic { name: TOPIC.to_owned(), partitions: Some(1), ..NewTopic::default() };
        gateway.client().await.create_topic(&new).await.unwrap();
        gateway
    }

    async fn client(&self) -> Client {
        let bootstrap = Address::parse_list(&self.kafka.bootstrap()).unwrap();
        Client::connect(&bootstrap, Settings::default()).await.unwrap()
    }

    /// Somebody who uses Iggy's SDK and knows nothing of Kafka.
    async fn native(&self) -> TcpClient {
        let credentials = Credentials::UsernamePassword(self.config.user.clone(), self.config.password.clone());
        let client = TcpClient::create(Arc::new(TcpClientConfig {
            server_address: self.config.servers[0].clone(),
            auto_login: AutoLogin::Enabled(credentials),
            ..TcpClientConfig::default()
        }));
        let client = client.unwrap();
        client.connect().await.unwrap();
        client
    }

    async fn native_send(&self, mut messages: Vec<IggyMessage>) {
        let (stream, topic) = (named(&self.stream), named(TOPIC));
        let sent =
            self.native().await.send_messages(&stream, &topic, &Partitioning::partition_id(0), &mut messages).await;
        sent.unwrap();
    }

    async fn native_poll(&self) -> Vec<IggyMessage> {
        let (stream, topic, consumer) = (named(&self.stream), named(TOPIC), Consumer::default());
        let strategy = PollingStrategy::offset(0);
        let native = self.native().await;
        native.poll_messages(&stream, &topic, Some(0), &consumer, &strategy, 100, false).await.unwrap().messages
    }

    /// Records from offset 0 on, as a Kafka consumer sees them.
    async fn consume(&self, at_least: usize) -> Vec<Record> {
        let mut client = self.client().await;
        let mut fetcher = client.fetcher(TOPIC, BTreeMap::from([(0, 0)]), FetchSettings::default()).await.unwrap();
        let (mut records, started) = (Vec::new(), Instant::now());
        while records.len() < at_least {
            assert!(started.elapsed() < milena_testkit::SOON, "{} of {at_least} records came", records.len());
            records.extend(fetcher.poll().await.unwrap().into_iter().flat_map(|fetched| fetched.records));
        }
        records
    }
}

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

fn record(key: Option<&str>, value: Option<&str>) -> Record {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Record {
        offset: 0,
        timestamp_ms: 1_700_000_000_000,
        key: key.map(bytes),
        value: value.map(bytes),
        headers: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_iggy_consumer_reads_what_a_kafka_producer_wrote_at_the_same_offsets() {
    let gateway = Gateway::start().await;
    let mut client = gateway.client().await;
    let mut producer = client.producer(TOPIC, ProducerSettings::default()).await.unwrap();
    let mut second = record(Some("k"), Some("two"));
    second.headers = vec![("trace".to_owned(), Some(b"7".to_vec()))];
    for record in [record(None, Some("one")), second, record(Some("k"), None)] {
        producer.send(record, Some(0)).await.unwrap();
    }
    let acknowledged = producer.flush().await.unwrap();
    assert_eq!(acknowledged[0].base_offset, Some(0));

    let messages = gateway.native_poll().await;
    let offsets: Vec<u64> = messages.iter().map(|message| message.header.offset).collect();
    assert_eq!(offsets, [0, 1, 2]);
    assert_eq!(messages[0].payload, "one");
    assert!(messages[0].user_headers.is_none(), "a value alone is stored as an Iggy producer would");
    assert_eq!(messages[0].header.origin_timestamp, 1_700_000_000_000_000);
    let headers = messages[1].user_headers_map().unwrap().unwrap();
    let header = |name: &str| headers.get(&HeaderKey::from_str(name).unwrap()).map(|value| value.value().to_vec());
    assert_eq!(messages[1].payload, "two");
    assert_eq!(header("kafka.key"), Some(b"k".to_vec()));
    assert_eq!(header("kafka.h.trace"), Some(b"7".to_vec()));
    assert_eq!(&messages[2].payload[..], [0], "a tombstone is one byte and a marker");
    // Which producer wrote it, and as which of its records, is in the id, for whoever takes over.
    let places: Vec<_> =
        messages.iter().map(|message| ProducerSequence::from_message_id(message.header.id).unwrap()).collect();
    assert_eq!(places.iter().map(|place| place.sequence).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(places.iter().all(|place| (place.producer_id, place.epoch) == (places[0].producer_id, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_consumer_reads_what_an_iggy_producer_wrote_and_both_ways_mix() {
    let gateway = Gateway::start().await;
    let key = HeaderKey::from_str("kafka.key").unwrap();
    let headers = BTreeMap::from([(key, HeaderValue::try_from(&b"customer-7"[..]).unwrap())]);
    let keyed = IggyMessage::builder().payload("keyed".into()).user_headers(headers).build().unwrap();
    gateway.native_send(vec![IggyMessage::from("plain"), keyed]).await;
    let mut client = gateway.client().await;
    let mut producer = client.producer(TOPIC, ProducerSettings::default()).await.unwrap();
    producer.send(record(None, Some("kafka")), Some(0)).await.unwrap();
    assert_eq!(producer.flush().await.unwrap()[0].base_offset, Some(2));
    gateway.native_send(vec![IggyMessage::from("last")]).await;

    let records = gateway.consume(4).await;
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.offset, String::from_utf8(record.value.clone().unwrap()).unwrap()))
        .collect();
    let text = |text: &str| text.to_owned();
    assert_eq!(seen, [(0, text("plain")), (1, text("keyed")), (2, text("kafka")), (3, text("last"))]);
    assert_eq!(records[1].key.as_deref(), Some(&b"customer-7"[..]));
    assert!(records[0].timestamp_ms > 1_700_000_000_000, "the server's time stands in for none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_waits_is_woken_by_an_iggy_producer() {
    let gateway = Gateway::start().await;
    let mut client = gateway.client().await;
    let wait = FetchSettings { max_wait: Duration::from_secs(20), ..FetchSettings::default() };
    let mut fetcher = client.fetcher(TOPIC, BTreeMap::from([(0, 0)]), wait).await.unwrap();
    let started = Instant::now();
    let (fetched, ()) = tokio::join!(fetcher.poll(), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        gateway.native_send(vec![IggyMessage::from("awaited")]).await;
    });
    let records: Vec<Record> = fetched.unwrap().into_iter().flat_map(|fetched| fetched.records).collect();
    assert_eq!(records.len(), 1);
    assert!(started.elapsed() < Duration::from_secs(10), "it waited to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_whose_confirmation_was_lost_is_stored_once_and_acknowledged_with_its_offset() {
    let gateway = Gateway::in_process().await;
    let send = On::Operation(iggy_binary_protocol::consensus::Operation::SendMessages);
    for (number, fault) in [Fault::CutAfterApply, Fault::CutBeforeApply, Fault::NoOffset].into_iter().enumerate() {
        for idempotent in [true, false] {
            let before = gateway.native_poll().await.len();
            let mut client = gateway.client().await;
            let settings = ProducerSettings { idempotent, ..ProducerSettings::default() };
            let mut producer = client.producer(TOPIC, settings).await.unwrap();
            // A producer id may be an append too, and must not meet the fault in its place.
            gateway.door.as_ref().unwrap().faults().plan(send, fault);
            producer.send(record(None, Some(&number.to_string())), Some(0)).await.unwrap();
            let acknowledged = producer.flush().await.unwrap();
            assert_eq!(acknowledged[0].base_offset, i64::try_from(before).ok(), "{fault:?} {idempotent}");
            assert_eq!(gateway.native_poll().await.len(), before + 1, "{fault:?} {idempotent}");
            assert_eq!(gateway.door.as_ref().unwrap().faults().left(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_librdkafka_producer_stores_each_record_once_while_connections_are_cut_again_and_again() {
    const RECORDS: usize = 400;
    let gateway = Gateway::in_process().await;
    let faults = gateway.door.as_ref().unwrap().faults();
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", gateway.kafka.bootstrap())
        .set("broker.address.family", "v4")
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .set("batch.num.messages", "5")
        .create()
        .unwrap();
    let send = On::Operation(iggy_binary_protocol::consensus::Operation::SendMessages);
    let kinds = [Fault::CutAfterApply, Fault::NoOffset, Fault::CutBeforeApply, Fault::Answer(TRANSIENT_NOT_ACCEPTED)];
    let mut kinds = kinds.into_iter().cycle();
    let mut deliveries = Vec::new();
    for number in 0..RECORDS {
        if number % 25 == 0 {
            faults.plan(send, kinds.next().unwrap());
        }
        let payload = number.to_string();
        let record = FutureRecord::<(), str>::to(TOPIC).partition(0).payload(&payload);
        deliveries.push(producer.send_result(record).unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for (number, delivery) in (0..).zip(deliveries) {
        assert_eq!(delivery.await.unwrap().unwrap().offset, number);
    }
    assert!(faults.left() < 4, "{} faults were not met", faults.left());
    faults.forget();
    let values = gateway.consume(RECORDS).await.into_iter().map(|record| record.value.unwrap());
    assert!(values.eq((0..RECORDS).map(|number| number.to_string().into_bytes())));
}
