//! Milena in this process, with the KIP's example in it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use milena_testkit::TestServer;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::child::Consumer;
use super::{SOON, commit, config, produce};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "g";

/// A server whose groups start at once.
pub(crate) async fn server() -> (TestServer, String) {
    let server =
        TestServer::builder().config(|config| config.groups.initial_rebalance_delay = Duration::ZERO).start().await;
    let bootstrap = server.bootstrap();
    (server, bootstrap)
}

pub(crate) async fn create(bootstrap: &str, topic: &str, partitions: i32) {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap, "none").create().unwrap();
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let answers = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// In each partition: committed 70, end of the log 120.
pub(crate) async fn behind(partitions: i32) -> (TestServer, String) {
    let (server, bootstrap) = server().await;
    fill(&bootstrap, partitions).await;
    (server, bootstrap)
}

/// Makes the topic and the group of [`behind`].
pub(crate) async fn fill(bootstrap: &str, partitions: i32) {
    create(bootstrap, TOPIC, partitions).await;
    for partition in 0..partitions {
        produce(bootstrap, TOPIC, partition, 0..120);
        commit(bootstrap, GROUP, TOPIC, partition, 70, "");
    }
}

/// Removes the records of partition 0 below that offset, as retention does.
pub(crate) async fn delete_below(bootstrap: &str, topic: &str, offset: i64) {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap, "none").create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(offset)).unwrap();
    let deleted = admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
    assert!(deleted.elements().iter().all(|element| element.error().is_ok()), "{deleted:?}");
}

/// Sets the longest batch that a topic takes, in bytes.
pub(crate) async fn limit_records(bootstrap: &str, topic: &str, bytes: usize) {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap, "none").create().unwrap();
    let bytes = bytes.to_string();
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic))
        .set("cleanup.policy", "compact")
        .set("max.message.bytes", &bytes);
    let answers = admin.alter_configs([&change], &AdminOptions::new()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

pub(crate) fn set(range: Range<i64>) -> BTreeSet<i64> {
    range.collect()
}

/// A consumer of the application's past, over any broker: it commits its own position and knows nothing of ranges.
pub(crate) fn plain(bootstrap: &str, group: &str, topic: &str, count: usize) -> Vec<i64> {
    let plain: BaseConsumer = config(bootstrap, group).set("enable.auto.commit", "false").create().unwrap();
    plain.subscribe(&[topic]).unwrap();
    let mut got = Vec::new();
    let deadline = Instant::now() + SOON;
    while got.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records", got.len());
        if let Some(record) = plain.poll(Duration::from_millis(100)) {
            got.push(record.unwrap().offset());
        }
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(got.last().unwrap() + 1)).unwrap();
    plain.commit(&list, CommitMode::Sync).unwrap();
    got
}

pub(crate) fn wait_until<T: PartialEq + Debug>(look: impl Fn() -> T, wanted: &T) {
    let deadline = Instant::now() + SOON;
    let mut last = look();
    while last != *wanted {
        assert!(Instant::now() < deadline, "{last:?} in place of {wanted:?}");
        thread::sleep(Duration::from_millis(20));
        last = look();
    }
}

/// Waits until the group has no members, also none that was killed.
pub(crate) fn wait_until_empty(bootstrap: &str, group: &str) {
    let asking: BaseConsumer = config(bootstrap, "asking").create().unwrap();
    let members = || {
        let list = asking.fetch_group_list(Some(group), SOON).unwrap();
        list.groups().iter().map(|group| group.members().len()).sum::<usize>()
    };
    wait_until(members, &0);
}

/// The first life of a consumer, up to 139 in the live lane and 119 in the backfill, with nothing acknowledged.
pub(crate) async fn first_life(start: impl Fn(&str) -> Consumer) -> (TestServer, String, Consumer) {
    let (server, bootstrap) = behind(1).await;
    let consumer = start(&bootstrap);
    two_lanes(&bootstrap, &consumer);
    (server, bootstrap, consumer)
}

/// What a consumer of [`behind`] gets, with twenty new records.
pub(crate) fn two_lanes(bootstrap: &str, consumer: &Consumer) {
    consumer.event("Forked { floor: 70, fork: 120, gap: 50 }");
    produce(bootstrap, TOPIC, 0, 120..140);
    assert_eq!(consumer.take(70), (set(120..140), set(70..120)));
}
