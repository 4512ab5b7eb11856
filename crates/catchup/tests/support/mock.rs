//! librdkafka's mock cluster, with the KIP's example in it.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::{commit, produce};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "g";

pub(crate) type Mock = MockCluster<'static, DefaultProducerContext>;

/// One broker, one topic.
pub(crate) fn cluster(partitions: i32) -> (Mock, String) {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic(TOPIC, partitions, 1).unwrap();
    let bootstrap = mock.bootstrap_servers();
    (mock, bootstrap)
}

/// In each partition: committed 70, end of the log 120.
pub(crate) fn behind(partitions: i32) -> (Mock, String) {
    let (mock, bootstrap) = cluster(partitions);
    for partition in 0..partitions {
        produce(&bootstrap, TOPIC, partition, 0..120);
        commit(&bootstrap, GROUP, TOPIC, partition, 70, "");
    }
    (mock, bootstrap)
}
