//! Milena in this process, with the KIP's example in it.

use milena_testkit::TestServer;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{Offset, TopicPartitionList};

use super::{commit, config, produce};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "g";

/// A server whose groups start at once.
pub(crate) async fn server() -> (TestServer, String) {
    let server = TestServer::builder()
        .config(|config| config.groups.initial_rebalance_delay = std::time::Duration::ZERO)
        .start()
        .await;
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
    create(&bootstrap, TOPIC, partitions).await;
    for partition in 0..partitions {
        produce(&bootstrap, TOPIC, partition, 0..120);
        commit(&bootstrap, GROUP, TOPIC, partition, 70, "");
    }
    (server, bootstrap)
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
