//! What tests over a broker have in common: records, committed offsets, and a consumer whose every delivery is checked.
#![allow(dead_code, reason = "no test file needs all of it")]

pub(crate) mod child;
pub(crate) mod churn;
pub(crate) mod forgetful;
pub(crate) mod migration;
pub(crate) mod milena;
pub(crate) mod mock;
pub(crate) mod order;
pub(crate) mod rewriting;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use milena_catchup::{
    AckOutcome, Builder, CatchUpConsumer, Delivery, Epoch, Event, Events, Happened, Lag, Lane, PartitionStatus, State,
    TopicPartition,
};
use order::{Delivered, Order};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::timeout;

/// Time after which something that should happen has not happened. Long, because test machines are busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Time in which nothing happens.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

pub(crate) fn config(bootstrap: &str, group: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("broker.address.family", "v4")
        // The mock cluster ends a rebalance a second before a session is over, whoever has joined by then, and no earlier.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "300")
        .set("auto.offset.reset", "earliest");
    config
}

/// For the only member that a group has in a test: its session does not end when the machine is busy.
pub(crate) fn patient(bootstrap: &str, group: &str) -> ClientConfig {
    let mut config = config(bootstrap, group);
    config.set("session.timeout.ms", "120000");
    config
}

/// Produces that many records; the value of each is its offset when the partition was empty up to `offsets.start`.
pub(crate) fn produce(bootstrap: &str, topic: &str, partition: i32, offsets: Range<i64>) {
    produce_as(bootstrap, topic, partition, offsets, |offset| offset.to_string());
}

/// As [`produce`], with values that are made of the offsets.
pub(crate) fn produce_as(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    offsets: Range<i64>,
    value: impl Fn(i64) -> String,
) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("broker.address.family", "v4")
        .set("linger.ms", "5")
        .create()
        .unwrap();
    for offset in offsets {
        let value = value(offset);
        let record = BaseRecord::<(), str>::to(topic).partition(partition).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.poll(Duration::ZERO);
    }
    producer.flush(SOON).unwrap();
}

fn outsider(bootstrap: &str, group: &str) -> BaseConsumer {
    config(bootstrap, group).set("client.id", "outsider").create().unwrap()
}

/// Commits as a plain consumer does, outside of the group's generations: the group must be empty.
pub(crate) fn commit(bootstrap: &str, group: &str, topic: &str, partition: i32, offset: i64, metadata: &str) {
    let mut list = TopicPartitionList::new();
    {
        let mut element = list.add_partition(topic, partition);
        element.set_offset(Offset::Offset(offset)).unwrap();
        element.set_metadata(metadata);
    }
    outsider(bootstrap, group).commit(&list, CommitMode::Sync).unwrap();
}

/// Committed offset and metadata.
pub(crate) fn committed(bootstrap: &str, group: &str, topic: &str, partition: i32) -> Option<(i64, String)> {
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    let list = outsider(bootstrap, group).committed_offsets(list, SOON).unwrap();
    let element = &list.elements()[0];
    element.error().unwrap();
    match element.offset() {
        Offset::Offset(offset) => Some((offset, element.metadata().to_owned())),
        _ => None,
    }
}

/// A consumer under test. Every delivery is checked against the promises about order (O1 to O4), and for being one that is not
/// acknowledged yet.
pub(crate) struct Watched {
    pub(crate) consumer: CatchUpConsumer,
    pub(crate) events: Events,
    order: Order,
    acked: HashMap<(TopicPartition, Epoch), BTreeSet<i64>>,
}

impl Watched {
    pub(crate) fn start(builder: Builder, topics: &[&str]) -> Self {
        let consumer = builder.build().unwrap();
        let events = consumer.events();
        consumer.subscribe(topics).unwrap();
        Self { consumer, events, order: Order::default(), acked: HashMap::new() }
    }

    /// Forks above ten records, commits only when told to.
    pub(crate) fn builder(bootstrap: &str, group: &str) -> Builder {
        Self::with(config(bootstrap, group))
    }

    pub(crate) fn with(config: ClientConfig) -> Builder {
        CatchUpConsumer::builder(config).fork_when(Lag::records(10)).commit(milena_catchup::Commit::Manual)
    }

    pub(crate) async fn next(&mut self) -> Delivery {
        let got = timeout(SOON, self.consumer.recv()).await.expect("a delivery in time");
        let delivery = got.unwrap().expect("a consumer that goes on");
        self.check(&delivery);
        delivery
    }

    /// Whether nothing is delivered for a while.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        timeout(QUIET, self.consumer.recv()).await.is_err()
    }

    /// Of a delivery that came by another way than [`Watched::next`].
    pub(crate) fn check(&mut self, delivery: &Delivery) {
        let record = delivery.record();
        let (topic, partition, offset, epoch) = (record.topic(), record.partition(), record.offset(), delivery.epoch());
        assert_eq!(record.payload().unwrap(), offset.to_string().as_bytes(), "the record that belongs to its offset");
        // It is not acknowledged yet, so that a gap it lies in is not closed.
        if self.status(topic, partition).is_some_and(|now| now.epoch == epoch && now.state == State::Live) {
            self.order.caught_up(topic, partition, epoch.0);
        }
        let (live, fork) = (delivery.lane() == Lane::Live, delivery.fork());
        self.order.check(&Delivered { topic, partition, epoch: epoch.0, live, offset, fork });
        let acked = self.acked.entry((TopicPartition::new(topic, partition), epoch)).or_default();
        assert!(!acked.contains(&offset), "{offset} was acknowledged before");
    }

    pub(crate) fn ack(&mut self, delivery: Delivery) {
        let record = delivery.record();
        let key = (TopicPartition::new(record.topic(), record.partition()), delivery.epoch());
        self.acked.entry(key).or_default().insert(record.offset());
        assert_eq!(delivery.ack(), AckOutcome::Counted);
    }

    /// Receives that many records and acknowledges those that `finished` says; answers offsets by lane.
    pub(crate) async fn take(&mut self, count: usize, finished: impl Fn(Lane, i64) -> bool) -> (Vec<i64>, Vec<i64>) {
        let (mut live, mut backfill) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let delivery = self.next().await;
            let (lane, offset) = (delivery.lane(), delivery.record().offset());
            match lane {
                Lane::Live => live.push(offset),
                Lane::Backfill => backfill.push(offset),
            }
            if finished(lane, offset) {
                self.ack(delivery);
            }
        }
        (live, backfill)
    }

    /// Waits for an event of that partition.
    pub(crate) async fn event(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        let find = async {
            loop {
                match self.events.next().await.expect("events") {
                    Happened::To { event, .. } if wanted(&event) => return event,
                    Happened::Missed(count) => panic!("{count} events missed"),
                    _ => {}
                }
            }
        };
        timeout(SOON, find).await.expect("an event in time")
    }

    pub(crate) fn status(&self, topic: &str, partition: i32) -> Option<PartitionStatus> {
        let key = TopicPartition::new(topic, partition);
        self.consumer.status().into_iter().find(|(of, _)| *of == key).map(|(_, status)| status)
    }

    /// Waits until the partition is as wanted.
    pub(crate) async fn until(&self, topic: &str, partition: i32, wanted: impl Fn(Option<&PartitionStatus>) -> bool) {
        let look = async {
            while !wanted(self.status(topic, partition).as_ref()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let last = || self.status(topic, partition);
        timeout(SOON, look).await.unwrap_or_else(|_| panic!("the partition is {:?}", last()));
    }

    pub(crate) async fn until_state(&self, topic: &str, partition: i32, state: State) {
        self.until(topic, partition, |status| status.is_some_and(|status| status.state == state)).await;
    }
}
