//! Rebalances, over librdkafka's mock cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use milena_catchup::{AckOutcome, Delivery, Error, Event};
use rdkafka::message::Message;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::mock::{GROUP, TOPIC, behind, cluster};
use support::{Watched, committed, config, produce};
use tokio::time::timeout;

/// Receives until there is nothing for a while; answers what was acknowledged.
async fn take_all(consumer: &mut Watched, partitions: usize, wanted: usize) -> BTreeSet<(i32, i64)> {
    let mut acked = BTreeSet::new();
    let deadline = Instant::now() + support::SOON;
    while acked.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} from {partitions} partitions", acked.len());
        let Ok(delivery) = timeout(Duration::from_secs(5), consumer.next()).await else { continue };
        let at = (delivery.record().partition(), delivery.record().offset());
        consumer.ack(delivery);
        assert!(acked.insert(at), "{at:?} came twice");
    }
    acked
}

fn place(delivery: &Delivery) -> (i32, i64) {
    (delivery.record().partition(), delivery.record().offset())
}

#[tokio::test(flavor = "multi_thread")]
async fn b48_a_drain_ends_at_its_deadline_and_what_is_in_hand_comes_again() {
    let (_mock, bootstrap) = behind(1);
    let drain = Duration::from_secs(1);
    let mut first = Watched::start(Watched::builder(&bootstrap, GROUP).drain_deadline(drain), &[TOPIC]);
    let never = first.next().await;
    assert_eq!(place(&never), (0, 70));
    first.take(49, |_, _| true).await;
    let start = Instant::now();
    first.consumer.close().await.unwrap();
    assert!(start.elapsed() >= drain, "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let mut second = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (live, backfill) = second.take(1, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], vec![70]));
    assert!(second.is_quiet().await);
    assert_eq!(never.ack(), AckOutcome::Stale);
}

#[tokio::test(flavor = "multi_thread")]
async fn b49_a_revocation_before_the_start_commits_nothing() {
    let (mock, bootstrap) = behind(1);
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    mock.request_errors(RDKafkaApiKey::ListOffsets, &[denied; 1_000]);
    let mut first = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    first.event(|event| matches!(event, Event::ResolveFailed(_))).await;
    let _second = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    first.event(|event| *event == Event::Revoked).await;
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((70, String::new())));
    mock.clear_request_errors(RDKafkaApiKey::ListOffsets);
}

#[tokio::test(flavor = "multi_thread")]
async fn b50_a_partition_that_comes_back_is_a_new_assignment() {
    let (_mock, bootstrap) = behind(2);
    let builder = Watched::builder(&bootstrap, GROUP).drain_deadline(Duration::from_millis(200));
    let mut first = Watched::start(builder, &[TOPIC]);
    let mut in_hand = Vec::new();
    for _ in 0..100 {
        in_hand.push(first.next().await);
    }
    let old = in_hand[0].epoch();
    let _second = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    first.event(|event| *event == Event::Revoked).await;
    // One of the two comes back to the first member.
    let again = timeout(support::SOON, first.next()).await.expect("a partition that comes back");
    assert!(again.epoch() > old);
    let (partition, offset) = place(&again);
    assert_eq!(offset, 70, "nothing was acknowledged");
    let late = in_hand.into_iter().find(|delivery| place(delivery) == (partition, offset)).unwrap();
    assert_eq!(late.ack(), AckOutcome::Stale);
    assert_eq!(again.ack(), AckOutcome::Counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_a_slow_application_stays_a_member() {
    let (_mock, bootstrap) = cluster(1);
    produce(&bootstrap, TOPIC, 0, 0..50);
    let mut config = config(&bootstrap, GROUP);
    config.set("max.poll.interval.ms", "6200");
    let builder =
        Watched::with(config).drain_deadline(Duration::from_secs(1)).in_flight_max(milena_catchup::Lane::Backfill, 5);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    let first = consumer.next().await;
    let epoch = first.epoch();
    // Longer than the client lets a thread be that does not poll.
    tokio::time::sleep(Duration::from_secs(8)).await;
    consumer.ack(first);
    let acked = take_all(&mut consumer, 1, 49).await;
    assert_eq!(acked.first(), Some(&(0, 1)));
    assert_eq!(consumer.status(TOPIC, 0).unwrap().epoch, epoch);
}

/// While it drains, the thread that polls goes on; but the group waits for the answer to a revocation no longer than this interval.
#[test]
fn b56_a_drain_that_could_outlast_the_interval_of_polls_is_refused() {
    let mut config = config("127.0.0.1:1", GROUP);
    config.set("max.poll.interval.ms", "15000");
    for (drain, fits) in [(9_999, true), (10_000, false)] {
        let built = Watched::with(config.clone()).drain_deadline(Duration::from_millis(drain)).build();
        match built {
            Ok(_) => assert!(fits, "{drain} ms"),
            Err(Error::Setting { setting, .. }) => {
                assert!(!fits && setting == "drain_deadline", "{drain} ms: {setting}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
