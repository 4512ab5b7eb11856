//! What the two lanes are for, over Milena: new records do not wait for old ones, and neither costs more than was asked for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::time::Duration;

use milena_catchup::{Event, Lane, Order, State};
use rdkafka::message::Message;
use support::child::Consumer;
use support::milena::{GROUP, TOPIC, behind, create, server, set};
use support::{Watched, commit, committed, produce};

#[tokio::test(flavor = "multi_thread")]
async fn b04_the_fork_is_the_first_offset_of_the_live_lane() {
    let (_server, bootstrap) = behind(1).await;
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    produce(&bootstrap, TOPIC, 0, 120..123);
    let (live, backfill) = consumer.take(53, |_, _| true).await;
    assert_eq!((live, backfill), ((120..123).collect(), (70..120).collect::<Vec<_>>()));
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 123);
}

/// The application holds on to what it gets of a gap of 20,000 records, so that the backfill stands after its bound of 100, and a
/// plain consumer would never get further. How long it takes is measured by the example `head_start`.
#[tokio::test(flavor = "multi_thread")]
async fn b54_a_new_record_comes_while_the_backfill_stands() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, TOPIC, 1).await;
    produce(&bootstrap, TOPIC, 0, 0..20_000);
    commit(&bootstrap, GROUP, TOPIC, 0, 0, "");
    let builder = Watched::builder(&bootstrap, GROUP).in_flight_max(Lane::Backfill, 100);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { gap: 20_000, .. })).await;
    let mut held = Vec::new();
    while held.len() < 100 {
        held.push(consumer.next().await);
    }
    produce(&bootstrap, TOPIC, 0, 20_000..20_010);
    let mut live = Vec::new();
    while live.len() < 10 {
        let delivery = consumer.next().await;
        match delivery.lane() {
            Lane::Live => live.push(delivery.record().offset()),
            // What one poll returned is taken beyond the bound.
            Lane::Backfill => held.push(delivery),
        }
    }
    assert_eq!(live, (20_000..20_010).collect::<Vec<_>>());
    assert!(held.len() < 1_000, "{} old records came", held.len());
    assert_eq!(consumer.status(TOPIC, 0).unwrap().state, State::CatchingUp);
}

/// Processor time of a process so far, in hundredths of a second.
fn processor_time(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // Behind the name, which may have anything in it: user and system time are fields 14 and 15 of all.
    let behind = stat.rsplit_once(')').unwrap().1;
    behind.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_an_idle_consumer_takes_less_than_a_hundredth_of_a_core() {
    let (_server, bootstrap) = behind(1).await;
    let mut consumer = Consumer::patient(&bootstrap, GROUP, TOPIC, &[]);
    assert_eq!(consumer.take(50), (set(0..0), set(70..120)));
    consumer.ack(70..120);
    consumer.event("CaughtUp");
    // Its reader goes away in this time.
    tokio::time::sleep(support::QUIET).await;
    let before = processor_time(consumer.id());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let took = processor_time(consumer.id()) - before;
    assert!(took < 10, "{took} hundredths of a second in ten seconds");
}

/// Records of 10 kB, an application that finishes nothing, and bounds of 100 kB: both lanes stop there, whatever else could be read.
#[tokio::test(flavor = "multi_thread")]
async fn b55_b68_a_slow_application_has_no_more_bytes_in_flight_than_the_bounds_say() {
    const RECORD: usize = 10_000;
    const BOUND: u64 = 100_000;
    let (_server, bootstrap) = server().await;
    for (topic, order) in [("two-lanes", Order::LiveFirst), ("by-offset", Order::Offset)] {
        create(&bootstrap, topic, 1).await;
        padded(&bootstrap, topic, 0..200, RECORD);
        commit(&bootstrap, topic, topic, 0, 0, "");
        let builder = Watched::builder(&bootstrap, topic).order(order);
        let builder = builder.in_flight_bytes_max(Lane::Live, BOUND).in_flight_bytes_max(Lane::Backfill, BOUND);
        let mut consumer = Watched::start(builder, &[topic]);
        consumer.event(|event| matches!(event, Event::Forked { .. })).await;
        padded(&bootstrap, topic, 200..400, RECORD);
        let both_wait = |status: &milena_catchup::PartitionStatus| {
            status.live.paused && status.backfill.is_some_and(|lane| lane.paused)
        };
        consumer.until(topic, 0, |status| status.is_some_and(both_wait)).await;
        tokio::time::sleep(support::QUIET).await;
        let status = consumer.status(topic, 0).unwrap();
        for lane in [status.live, status.backfill.unwrap()] {
            // One poll is one record.
            let most = BOUND + RECORD as u64;
            assert!((BOUND..=most).contains(&lane.bytes), "{order:?}: {lane:?}");
        }
    }
}

/// Records whose values are their offsets, with blanks up to that length before them.
fn padded(bootstrap: &str, topic: &str, offsets: std::ops::Range<i64>, length: usize) {
    support::produce_as(bootstrap, topic, 0, offsets, |offset| format!("{offset:>length$}"));
}
