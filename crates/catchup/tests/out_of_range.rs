//! A broker that says that a position is not in its log, over librdkafka's mock cluster. librdkafka reads no further then.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::time::{Duration, Instant};

use milena_catchup::{Event, Happened, Lag, Lane};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::mock::{GROUP, Mock, TOPIC, behind};
use support::{Watched, config, produce};
use tokio::time::timeout;

fn deny(mock: &Mock, fetches: usize) {
    let denied = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE; fetches];
    mock.request_errors(RDKafkaApiKey::Fetch, &denied);
}

async fn goes_on(strategy: &str) {
    let (mock, bootstrap) = behind(2);
    let mut config = config(&bootstrap, GROUP);
    config.set("partition.assignment.strategy", strategy);
    let mut consumer = Watched::start(Watched::with(config).fork_when(Lag::never()), &[TOPIC]);
    let (live, _) = consumer.take(100, |_, _| true).await;
    assert_eq!(live.len(), 100);
    deny(&mock, 2);
    // The next fetch of either partition is denied; both are where the log ends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    produce(&bootstrap, TOPIC, 0, 120..130);
    produce(&bootstrap, TOPIC, 1, 120..130);
    let (live, _) = consumer.take(20, |_, _| true).await;
    assert_eq!(live.len(), 20, "{strategy}");
    for partition in 0..2 {
        consumer.until(TOPIC, partition, |status| status.is_some_and(|status| status.floor == 130)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_lane_that_is_denied_an_offset_of_the_log_goes_on() {
    tokio::join!(goes_on("range"), goes_on("cooperative-sticky"));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_lanes_that_are_denied_an_offset_of_the_log_go_on() {
    let (mock, bootstrap) = behind(1);
    deny(&mock, 4);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP).in_flight_max(Lane::Backfill, 5), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(&bootstrap, TOPIC, 0, 120..130);
    let (live, backfill) = consumer.take(60, |_, _| true).await;
    assert_eq!((live, backfill), ((120..130).collect(), (70..120).collect::<Vec<_>>()));
    consumer.event(|event| *event == Event::CaughtUp).await;
}

/// A drain in which the broker denies the position, and then says nothing about the log: the partition leaves all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_whatever_the_broker_says_of_the_log() {
    let (mock, bootstrap) = behind(1);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP).fork_when(Lag::never()), &[TOPIC]);
    let held = consumer.next().await;
    let drain = Duration::from_secs(5);
    let start = Instant::now();
    let mut events = consumer.events;
    let close = consumer.consumer.close_within(drain);
    let deny = async {
        while !matches!(events.next().await, Some(Happened::To { event: Event::Draining, .. })) {}
        mock.request_errors(
            RDKafkaApiKey::ListOffsets,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 4],
        );
        deny(&mock, 2);
    };
    let (closed, ()) = timeout(Duration::from_secs(30), async { tokio::join!(close, deny) }).await.expect("an end");
    closed.unwrap();
    assert!(start.elapsed() >= drain, "{:?}", start.elapsed());
    drop(held);
}
