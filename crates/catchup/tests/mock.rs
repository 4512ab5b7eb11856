//! Start and fork, over librdkafka's mock cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::ops::Range;
use std::time::Duration;

use milena_catchup::{Buffer, Event, Lane, Order, RangeSet, State};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::mock::{GROUP, TOPIC, behind, cluster};
use support::{Watched, commit, committed, config, patient, produce};

fn offsets(range: Range<i64>) -> Vec<i64> {
    range.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_a_lag_above_the_threshold_forks_at_the_end_of_the_log() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    produce(&bootstrap, TOPIC, 0, 120..125);
    let (live, backfill) = consumer.take(55, |_, _| true).await;
    assert_eq!(live, offsets(120..125));
    assert_eq!(backfill, offsets(70..120));
    consumer.event(|event| *event == Event::CaughtUp).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).map(|(offset, _)| offset), Some(125));
}

#[tokio::test(flavor = "multi_thread")]
async fn b02_a_lag_at_the_threshold_is_one_lane_from_the_floor() {
    let (_mock, bootstrap) = cluster(1);
    produce(&bootstrap, TOPIC, 0, 0..80);
    commit(&bootstrap, GROUP, TOPIC, 0, 70, "");
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (live, backfill) = consumer.take(10, |_, _| true).await;
    assert_eq!((live, backfill), (offsets(70..80), vec![]));
    let status = consumer.status(TOPIC, 0).unwrap();
    assert_eq!((status.state, status.fork, status.floor), (State::Live, None, 80));
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_what_is_produced_while_forking_comes_exactly_once() {
    let (_mock, bootstrap) = behind(1);
    let address = bootstrap.clone();
    let producer = std::thread::spawn(move || {
        for start in (120..2_120).step_by(200) {
            produce(&address, TOPIC, 0, start..start + 200);
        }
    });
    // Small bounds, so that both lanes are paused and resumed all the time.
    let builder = Watched::builder(&bootstrap, GROUP).in_flight_max(Lane::Live, 20).in_flight_max(Lane::Backfill, 20);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    let (mut live, mut backfill) = consumer.take(2_050, |_, _| true).await;
    producer.join().unwrap();
    assert!(consumer.is_quiet().await);
    backfill.append(&mut live);
    assert_eq!(backfill, offsets(70..2_120));
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_without_a_committed_offset_latest_starts_live_at_the_end() {
    let (_mock, bootstrap) = cluster(1);
    produce(&bootstrap, TOPIC, 0, 0..50);
    let mut config = config(&bootstrap, GROUP);
    config.set("auto.offset.reset", "latest");
    let mut consumer = Watched::start(Watched::with(config), &[TOPIC]);
    consumer.until_state(TOPIC, 0, State::Live).await;
    assert_eq!(consumer.status(TOPIC, 0).unwrap().fork, None);
    produce(&bootstrap, TOPIC, 0, 50..53);
    let (live, backfill) = consumer.take(3, |_, _| true).await;
    assert_eq!((live, backfill), (offsets(50..53), vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_without_a_committed_offset_earliest_catches_up_with_the_whole_log() {
    let (_mock, bootstrap) = cluster(1);
    produce(&bootstrap, TOPIC, 0, 0..50);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 0, fork: 50, gap: 50 });
    let (live, backfill) = consumer.take(50, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], offsets(0..50)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_failed_look_at_the_committed_offset_is_repeated_and_skips_nothing() {
    let (mock, bootstrap) = behind(1);
    let loading = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS;
    mock.request_errors(RDKafkaApiKey::OffsetFetch, &[loading; 3]);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (live, backfill) = consumer.take(50, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], offsets(70..120)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_a_log_that_are_not_told_are_asked_for_again() {
    let (mock, bootstrap) = behind(1);
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    mock.request_errors(RDKafkaApiKey::ListOffsets, &[denied; 2]);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::ResolveFailed(_))).await;
    let (live, backfill) = consumer.take(50, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], offsets(70..120)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_the_end_of_one_topic_does_not_end_the_other() {
    let (mock, bootstrap) = cluster(1);
    mock.create_topic("short", 1, 1).unwrap();
    produce(&bootstrap, TOPIC, 0, 0..3_000);
    produce(&bootstrap, "short", 0, 0..20);
    // The long one is held back by its bound while the short one ends.
    let builder = Watched::builder(&bootstrap, GROUP).in_flight_max(Lane::Backfill, 50);
    let mut consumer = Watched::start(builder, &[TOPIC, "short"]);
    let mut held = Vec::new();
    let mut seen = std::collections::HashMap::<String, i64>::new();
    while !consumer.status("short", 0).is_some_and(|status| status.state == State::Live) {
        let Ok(delivery) = tokio::time::timeout(Duration::from_millis(50), consumer.next()).await else { continue };
        let topic = rdkafka::Message::topic(delivery.record()).to_owned();
        *seen.entry(topic.clone()).or_default() += 1;
        if topic == TOPIC { held.push(delivery) } else { consumer.ack(delivery) }
    }
    assert_eq!(seen["short"], 20);
    assert_eq!(consumer.status(TOPIC, 0).unwrap().state, State::CatchingUp);
    let left = 3_000 - held.len();
    for delivery in held {
        consumer.ack(delivery);
    }
    let (live, backfill) = consumer.take(left, |_, _| true).await;
    assert_eq!((live.len(), backfill.last()), (0, Some(&2_999)));
    consumer.until_state(TOPIC, 0, State::Live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b67_in_the_order_of_offsets_live_records_follow_the_last_of_the_backfill() {
    let (_mock, bootstrap) = behind(1);
    let builder = Watched::builder(&bootstrap, GROUP).order(Order::Offset).in_flight_max(Lane::Backfill, 10);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    consumer.until_state(TOPIC, 0, State::CatchingUp).await;
    produce(&bootstrap, TOPIC, 0, 120..140);
    let mut order = Vec::new();
    for _ in 70..140 {
        let delivery = consumer.next().await;
        order.push(rdkafka::Message::offset(delivery.record()));
        consumer.ack(delivery);
    }
    assert_eq!(order, offsets(70..140));
}

#[tokio::test(flavor = "multi_thread")]
async fn b68_the_live_buffer_is_bounded_and_goes_on_when_there_is_room() {
    let (_mock, bootstrap) = behind(1);
    let builder = Watched::builder(&bootstrap, GROUP).order(Order::Offset);
    let builder = builder.in_flight_max(Lane::Live, 40).in_flight_max(Lane::Backfill, 10);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    consumer.until_state(TOPIC, 0, State::CatchingUp).await;
    let first = consumer.next().await;
    produce(&bootstrap, TOPIC, 0, 120..1_120);
    consumer.until(TOPIC, 0, |status| status.is_some_and(|status| status.live.paused)).await;
    tokio::time::sleep(support::QUIET).await;
    let held = consumer.status(TOPIC, 0).unwrap().live.in_flight;
    // What one poll returned is still taken: here, a record.
    assert!((40..=41).contains(&held), "{held} records are held");
    assert_eq!(consumer.consumer.buffers(TOPIC, 0).unwrap().live.held.offsets(), held as u64);
    consumer.ack(first);
    let (live, backfill) = consumer.take(1_049, |_, _| true).await;
    assert_eq!((live, backfill), (offsets(120..1_120), offsets(71..120)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b69_buffers_show_what_is_held_delivered_and_acknowledged_and_no_offset_twice() {
    let (_mock, bootstrap) = behind(1);
    let builder = Watched::with(patient(&bootstrap, GROUP)).order(Order::Offset);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    // The first thirty are handed out, and the last ten of those finished; the rest of the gap is held, and so is all that is live.
    let (_, backfill) = consumer.take(30, |_, offset| offset >= 90).await;
    assert_eq!(backfill, offsets(70..100));
    produce(&bootstrap, TOPIC, 0, 120..125);
    let fetched = |status: &milena_catchup::PartitionStatus| {
        status.live.position == 125 && (status.state == State::Merging || status.backfill.unwrap().position == 120)
    };
    consumer.until(TOPIC, 0, |status| status.is_some_and(fetched)).await;
    let buffers = consumer.consumer.buffers(TOPIC, 0).unwrap();
    let buffer = |held: Range<i64>, delivered: Range<i64>, acknowledged: Range<i64>| Buffer {
        held: RangeSet::from_iter([held]),
        delivered: RangeSet::from_iter([delivered]),
        acknowledged: RangeSet::from_iter([acknowledged]),
    };
    assert_eq!(buffers.backfill, buffer(100..120, 70..90, 90..100));
    assert_eq!(buffers.live, buffer(120..125, 0..0, 0..0));
    let (_, backfill) = consumer.take(20, |_, _| true).await;
    assert_eq!(backfill, offsets(100..120));
    let buffers = consumer.consumer.buffers(TOPIC, 0).unwrap();
    assert_eq!(buffers.backfill, buffer(0..0, 70..90, 90..120));
    // What a commit covers has left; the twenty in hand are in the way of the rest.
    consumer.consumer.commit().await.unwrap();
    assert_eq!(consumer.consumer.buffers(TOPIC, 0).unwrap().backfill, buffer(0..0, 70..90, 0..0));
    assert!(consumer.consumer.buffers(TOPIC, 1).is_none(), "not a partition of this consumer");
}
