//! A broker, and what each test has of its own on it.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use milena_testkit::kafka::KafkaChild;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::{SOON, Watched, commit, committed, config, produce};

/// One broker for all tests that run at a time; the last one ends it.
fn broker() -> Arc<KafkaChild> {
    static RUNNING: Mutex<Weak<KafkaChild>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap();
    if let Some(broker) = running.upgrade() {
        return broker;
    }
    let mut broker = KafkaChild::builder()
        .property("log.cleaner.backoff.ms", "100")
        .property("log.initial.task.delay.ms", "100")
        .property("group.min.session.timeout.ms", "1000")
        .spawn()
        .unwrap();
    broker.ready().unwrap();
    // The first question for a coordinator makes the topic of offsets, and until that is loaded there is none.
    let asks: BaseConsumer = config(&broker.address().to_string(), "first").create().unwrap();
    let mut any = TopicPartitionList::new();
    any.add_partition("any", 0);
    let start = Instant::now();
    while let Err(error) = asks.committed_offsets(any.clone(), SOON) {
        assert!(start.elapsed() < SOON, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let broker = Arc::new(broker);
    *running = Arc::downgrade(&broker);
    broker
}

/// A test's own topic, of one partition most of the time, which also names its group.
pub(crate) struct Bench {
    broker: Arc<KafkaChild>,
    pub(crate) name: &'static str,
}

impl Bench {
    pub(crate) async fn new(name: &'static str, configs: &[(&str, &str)]) -> Self {
        Self::with_partitions(name, 1, configs).await
    }

    pub(crate) async fn with_partitions(name: &'static str, partitions: i32, configs: &[(&str, &str)]) -> Self {
        let broker = tokio::task::spawn_blocking(broker).await.unwrap();
        let bench = Self { broker, name };
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = configs.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let admin: AdminClient<DefaultClientContext> = bench.client().create().unwrap();
        let created = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
        created[0].as_ref().unwrap();
        bench
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.broker.address().to_string()
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.bootstrap()).set("broker.address.family", "v4");
        client
    }

    pub(crate) fn produce(&self, offsets: std::ops::Range<i64>) {
        produce(&self.bootstrap(), self.name, 0, offsets);
    }

    pub(crate) fn commit(&self, offset: i64) {
        commit(&self.bootstrap(), self.name, self.name, 0, offset, "");
    }

    pub(crate) fn committed(&self) -> Option<i64> {
        committed(&self.bootstrap(), self.name, self.name, 0).map(|(offset, _)| offset)
    }

    pub(crate) fn start(&self) -> Watched {
        Watched::start(Watched::builder(&self.bootstrap(), self.name), &[self.name])
    }

    /// Values are the offsets that the records get: a transaction takes one more offset at its end.
    pub(crate) fn transactions(&self) -> Transactions<'_> {
        let producer: BaseProducer = self.client().set("transactional.id", self.name).create().unwrap();
        producer.init_transactions(SOON).unwrap();
        Transactions { producer, topic: self.name }
    }

    /// Offsets that a reader finds in the log.
    pub(crate) fn stored(&self) -> Vec<i64> {
        let reader: BaseConsumer =
            config(&self.bootstrap(), "reads-all").set("enable.partition.eof", "true").create().unwrap();
        let mut all = TopicPartitionList::new();
        all.add_partition_offset(self.name, 0, Offset::Beginning).unwrap();
        reader.assign(&all).unwrap();
        let mut offsets = Vec::new();
        loop {
            match reader.poll(SOON).expect("an answer in time") {
                Ok(record) => offsets.push(record.offset()),
                Err(rdkafka::error::KafkaError::PartitionEOF(_)) => return offsets,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub(crate) struct Transactions<'a> {
    producer: BaseProducer,
    topic: &'a str,
}

impl Transactions<'_> {
    pub(crate) fn begin(&self, offsets: std::ops::Range<i64>) {
        self.producer.begin_transaction().unwrap();
        for offset in offsets {
            let value = offset.to_string();
            let record = BaseRecord::<(), str>::to(self.topic).partition(0).payload(&value);
            self.producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        self.producer.flush(SOON).unwrap();
    }

    pub(crate) fn commit(&self) {
        self.producer.commit_transaction(SOON).unwrap();
    }

    pub(crate) fn abort(&self) {
        self.producer.abort_transaction(SOON).unwrap();
    }
}
