//! Over librdkafka's mock cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use milena_catchup::Event;
use rdkafka::mocking::MockCluster;
use support::{Watched, commit, committed, produce};

const TOPIC: &str = "orders";
const GROUP: &str = "g";

fn cluster() -> (MockCluster<'static, rdkafka::producer::DefaultProducerContext>, String) {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic(TOPIC, 1, 1).unwrap();
    let bootstrap = mock.bootstrap_servers();
    (mock, bootstrap)
}

/// Committed 70, end of the log 120, as in the KIP.
fn behind() -> (MockCluster<'static, rdkafka::producer::DefaultProducerContext>, String) {
    let (mock, bootstrap) = cluster();
    produce(&bootstrap, TOPIC, 0, 0..120);
    commit(&bootstrap, GROUP, TOPIC, 0, 70, "");
    (mock, bootstrap)
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_a_lag_above_the_threshold_forks_at_the_end_of_the_log() {
    let (_mock, bootstrap) = behind();
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    produce(&bootstrap, TOPIC, 0, 120..125);
    let (live, backfill) = consumer.take(55, |_, _| true).await;
    assert_eq!(live, (120..125).collect::<Vec<_>>());
    assert_eq!(backfill, (70..120).collect::<Vec<_>>());
    consumer.event(|event| *event == Event::CaughtUp).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).map(|(offset, _)| offset), Some(125));
}
