//! What librdkafka does when an Iggy server lost messages that a consumer has read, and gave their offsets to others.
//!
//! The server is Iggy's protocol served in this process, over a store that can lose its tail.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use milena_testkit::{SOON, TestServer};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

const TOPIC: &str = "orders";

struct World {
    memory: MemoryStore,
    kafka: TestServer,
    producer: FutureProducer,
    _door: Door,
}

impl World {
    /// Offsets 0 to 4 hold `old`.
    async fn new() -> Self {
        let memory = MemoryStore::new();
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
        let store: Arc<dyn Store> = Arc::new(memory.again());
        let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
        let door = Box::pin(Door::open(config, store, admin, Arc::new(Memory::new(64 << 20)))).await.unwrap();
        let password = SecretString::from("secret".to_owned());
        let config = IggyConfig {
            // The door keeps state of its own under the usual name.
            state_stream: "gateway".to_owned(),
            ..IggyConfig::new(&door.address().to_string(), "iggy", password)
        };
        let store = Arc::new(Box::pin(IggyStore::open(config)).await.unwrap());
        let kafka = TestServer::builder().store(store).start().await;
        let producer = client(&kafka).set("message.timeout.ms", "30000").create().unwrap();
        let world = Self { memory, kafka, producer, _door: door };
        world.send("old", 5).await;
        world
    }

    /// Sends records one by one; the answer is the offset of the first.
    async fn send(&self, value: &str, count: usize) -> i64 {
        let mut first = None;
        for _ in 0..count {
            let record = FutureRecord::<(), str>::to(TOPIC).partition(0).payload(value);
            let sent = self.producer.send(record, SOON).await.map_err(|(error, _)| error).unwrap();
            first.get_or_insert(sent.offset);
        }
        first.unwrap()
    }

    /// The server keeps two of the five messages, and five others take the offsets from there on.
    async fn lose_and_write(&self) {
        let topic = self.memory.topic("kafka", TOPIC).await.unwrap().unwrap().topic;
        self.memory.lose_tail(&topic.partition(0), 2);
        assert_eq!(self.send("new", 5).await, 2);
    }

    fn consumer(&self, reset: &str) -> BaseConsumer {
        client(&self.kafka)
            .set("group.id", "readers")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", reset)
            .set("fetch.wait.max.ms", "100")
            .set("metadata.max.age.ms", "1000")
            .create()
            .unwrap()
    }
}

fn client(kafka: &TestServer) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("broker.address.family", "v4");
    config
}

fn assign(consumer: &BaseConsumer, from: Offset) {
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(TOPIC, 0, from).unwrap();
    consumer.assign(&assignment).unwrap();
}

/// Offset and value of the next record, or why there is none.
fn next(consumer: &BaseConsumer) -> Result<(i64, String), Code> {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < SOON, "nothing comes");
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) => {
                let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                return Ok((message.offset(), value));
            }
            Some(Err(KafkaError::MessageConsumption(code))) => return Err(code),
            Some(Err(other)) => panic!("{other}"),
        }
    }
}

fn read(consumer: &BaseConsumer, from: i64, until: i64, value: &str) {
    for offset in from..until {
        assert_eq!(next(consumer), Ok((offset, value.to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_without_a_reset_policy_is_told_of_the_truncation() {
    let world = World::new().await;
    let consumer = world.consumer("error");
    assign(&consumer, Offset::Beginning);
    read(&consumer, 0, 5, "old");
    world.lose_and_write().await;
    let told = tokio::task::spawn_blocking(move || next(&consumer)).await.unwrap();
    // Offset 5 is there, so nothing but the truncation can be the reason to reset.
    assert_eq!(told, Err(Code::AutoOffsetReset));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_with_a_reset_policy_goes_back_to_where_the_end_fell_to() {
    let world = World::new().await;
    let consumer = world.consumer("earliest");
    assign(&consumer, Offset::Beginning);
    read(&consumer, 0, 5, "old");
    world.lose_and_write().await;
    tokio::task::spawn_blocking(move || read(&consumer, 2, 7, "new")).await.unwrap();
}
