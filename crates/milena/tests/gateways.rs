//! Two gateways as processes in front of one Iggy server, and an unmodified producer that is served by whichever is alive.
//!
//! The server is Iggy's protocol served by a third process; where `TEST_IGGY=iggy://user:password@host:port` names a real
//! server, that one is used instead, in streams of the test's own.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use milena_testkit::{ChildServer, SOON, SharedIggy};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::metadata::MetadataPartition;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

const TOPIC: &str = "orders";
/// Enough of them that both gateways lead some, whatever the numbers that decide are.
const PARTITIONS: i32 = 12;
/// A gateway that died is given up after this long; the time of the beats follows from it.
const LEASE: &str = "2s";
const BEAT: &str = "200ms";
/// Records between two kills.
const ROUND: usize = 300;

/// Two gateways, and the server of this test behind them.
struct Gateways {
    servers: Vec<ChildServer>,
    _iggy: SharedIggy,
}

impl Gateways {
    fn start() -> Self {
        let binary = env!("CARGO_BIN_EXE_milena");
        let iggy = SharedIggy::start(binary);
        let gateway = |index| {
            iggy.hold(index, ChildServer::builder(binary))
                .env("MILENA_CLUSTER_BEAT_INTERVAL", BEAT)
                .env("MILENA_CLUSTER_LEASE_TIME", LEASE)
                .start()
        };
        Self { servers: vec![gateway(0), gateway(1)], _iggy: iggy }
    }

    fn config(&self) -> ClientConfig {
        let bootstrap: Vec<_> = self.servers.iter().map(ChildServer::bootstrap).collect();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap.join(",")).set("broker.address.family", "v4");
        config.set("topic.metadata.refresh.interval.ms", "500").set("reconnect.backoff.max.ms", "500");
        config
    }

    async fn create(&self) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        let topic = NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(1));
        let answers = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }

    /// Nodes that lead a partition, as the gateways say.
    fn leaders(&self) -> Vec<i32> {
        let consumer: BaseConsumer = self.config().create().unwrap();
        let metadata = consumer.fetch_metadata(Some(TOPIC), SOON).unwrap();
        let mut leaders: Vec<_> = metadata.topics()[0].partitions().iter().map(MetadataPartition::leader).collect();
        leaders.sort_unstable();
        leaders.dedup();
        leaders
    }

    /// The numbers in the records of a partition, from the first on.
    fn read(&self, partition: i32, at_least: usize) -> Vec<usize> {
        let consumer: BaseConsumer =
            self.config().set("group.id", "none").set("enable.auto.commit", "false").create().unwrap();
        let mut assignment = TopicPartitionList::new();
        assignment.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
        consumer.assign(&assignment).unwrap();
        let (_, end) = consumer.fetch_watermarks(TOPIC, partition, SOON).unwrap();
        let end = usize::try_from(end).unwrap();
        assert!(end >= at_least, "{end} of {at_least} records are there");
        let (mut numbers, started) = (Vec::new(), Instant::now());
        while numbers.len() < end {
            assert!(started.elapsed() < SOON, "{} of {end} records came", numbers.len());
            if let Some(message) = consumer.poll(Duration::from_millis(200)) {
                let text = String::from_utf8(message.unwrap().payload().unwrap().to_vec()).unwrap();
                numbers.push(text.parse().unwrap());
            }
        }
        numbers
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotent_producer_outlives_its_gateways_and_each_record_is_stored_once_and_in_order() {
    let mut gateways = Gateways::start();
    gateways.create().await;
    let mut config = gateways.config();
    config.set("enable.idempotence", "true").set("message.timeout.ms", "120000").set("linger.ms", "5");
    config.set("batch.num.messages", "20");
    let producer: FutureProducer = config.create().unwrap();
    let kills: usize = std::env::var("TEST_KILL_CYCLES").map_or(4, |cycles| cycles.parse().unwrap());
    let mut sent = 0;
    let mut led = Vec::new();
    for kill in 0..=kills {
        let round = (sent..sent + ROUND).map(|number| {
            let producer = producer.clone();
            async move {
                let partition = i32::try_from(number).unwrap() % PARTITIONS;
                let payload = number.to_string();
                let record = FutureRecord::<(), str>::to(TOPIC).partition(partition).payload(&payload);
                producer.send(record, SOON).await.expect("acknowledged in the end");
            }
        });
        let round = join_all(round);
        let victim = kill % 2;
        let killing = async {
            // In the middle of the round: some are acknowledged, some on their way.
            tokio::time::sleep(Duration::from_millis(10 + 7 * kill as u64)).await;
            if kill < kills {
                tokio::task::block_in_place(|| {
                    gateways.servers[victim].kill();
                    gateways.servers[victim].restart();
                });
            }
        };
        tokio::join!(round, killing);
        sent += ROUND;
        led.extend(tokio::task::block_in_place(|| gateways.leaders()));
    }
    led.sort_unstable();
    led.dedup();
    assert_eq!(led.len(), 2, "both gateways were leaders");
    for partition in 0..PARTITIONS {
        let expected: Vec<usize> =
            (usize::try_from(partition).unwrap()..sent).step_by(usize::try_from(PARTITIONS).unwrap()).collect();
        let numbers = tokio::task::block_in_place(|| gateways.read(partition, expected.len()));
        assert_eq!(numbers, expected, "partition {partition}: once and in order");
    }
}
