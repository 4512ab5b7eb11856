//! The crash table: kill -9 of a consumer at each of its rows, and what the next one gets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::single_range_in_vec_init,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use milena_catchup::{Event, Happened, Lag, Lane, Progress};
use rdkafka::message::Message;
use rustix::process::{Pid, Signal, kill_process};
use support::child::{Consumer, Options};
use support::milena::{GROUP, TOPIC, behind, first_life, plain, set, wait_until, wait_until_empty};
use support::{SOON, Watched, committed, config, produce};

/// What the broker has: floor, and ranges ahead of it.
fn stored(bootstrap: &str) -> (i64, Vec<std::ops::Range<i64>>) {
    let (floor, metadata) = committed(bootstrap, GROUP, TOPIC, 0).unwrap();
    let ahead = Progress::decode(&metadata).map(|progress| progress.ahead.iter().collect()).unwrap_or_default();
    (floor, ahead)
}

fn wait_until_stored(bootstrap: &str, wanted: &(i64, Vec<std::ops::Range<i64>>)) {
    wait_until(|| stored(bootstrap), wanted);
}

fn start(bootstrap: &str) -> Consumer {
    Consumer::start(bootstrap, GROUP, TOPIC, &[])
}

/// A life that is not killed before another one begins.
fn last(bootstrap: &str) -> Consumer {
    Consumer::patient(bootstrap, GROUP, TOPIC, &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_c2_a_crash_after_the_fork_loses_nothing() {
    let (_server, bootstrap, consumer) = first_life(start).await;
    consumer.kill();
    produce(&bootstrap, TOPIC, 0, 140..150);
    let next = last(&bootstrap);
    next.event("Forked { floor: 70, fork: 150, gap: 80 }");
    assert_eq!(next.take(80), (set(0..0), set(70..150)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b33_c3_acknowledged_and_not_committed_comes_again() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    assert!(consumer.is_quiet());
    consumer.kill();
    assert_eq!(stored(&bootstrap), (70, vec![]));
    produce(&bootstrap, TOPIC, 0, 140..150);
    let next = last(&bootstrap);
    assert_eq!(next.take(80), (set(0..0), set(70..150)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_c4_both_examples_of_the_kip() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    // Crash at 100 with 70 committed and the log at 120; then at 170, with 80 and 120 to 139 finished, and the log at 190.
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until_stored(&bootstrap, &(80, vec![120..140]));
    produce(&bootstrap, TOPIC, 0, 140..170);
    assert_eq!(consumer.take(30).0, set(140..170));
    consumer.kill();
    produce(&bootstrap, TOPIC, 0, 170..190);
    let mut next = last(&bootstrap);
    next.event("Forked { floor: 80, fork: 190, gap: 90 }");
    produce(&bootstrap, TOPIC, 0, 190..195);
    let (live, backfill) = next.take(95);
    assert_eq!(live, set(190..195));
    assert_eq!(backfill, set(80..120).union(&set(140..190)).copied().collect());
    next.ack(live.into_iter().chain(backfill));
    next.event("CaughtUp");
    next.finish();
    assert_eq!(stored(&bootstrap), (195, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn b35_c6_a_backfill_that_is_done_and_not_committed_comes_again() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until_stored(&bootstrap, &(80, vec![120..140]));
    consumer.ack(80..120);
    consumer.event("CaughtUp");
    consumer.kill();
    let next = last(&bootstrap);
    next.event("Forked { floor: 80, fork: 140, gap: 40 }");
    assert_eq!(next.take(40), (set(0..0), set(80..120)));
    assert!(next.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn b36_c13_what_the_retention_took_is_reported() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack(120..140);
    consumer.commit();
    wait_until_stored(&bootstrap, &(70, vec![120..140]));
    consumer.kill();
    support::milena::delete_below(&bootstrap, TOPIC, 90).await;
    let next = last(&bootstrap);
    next.event("GapExpired(70..90)");
    assert_eq!(next.take(30), (set(0..0), set(90..120)));
}

/// Deletes what a lane has not read yet, while it runs.
async fn expires_while(lane: Lane, strategy: &str) {
    let (_server, bootstrap) = behind(2).await;
    // Little is fetched ahead of the ten that may be in flight.
    let mut config = config(&bootstrap, GROUP);
    config
        .set("fetch.message.max.bytes", "1000")
        .set("queued.max.messages.kbytes", "1")
        .set("queued.min.messages", "1");
    config.set("partition.assignment.strategy", strategy);
    for start in (120..1_120).step_by(50) {
        produce(&bootstrap, TOPIC, 0, start..start + 50);
    }
    let fork_when = if lane == Lane::Live { Lag::never() } else { Lag::records(10) };
    let builder = Watched::with(config).in_flight_max(lane, 10).fork_when(fork_when);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    let mut held = Vec::new();
    while consumer.status(TOPIC, 0).is_none_or(|status| status.backfill.unwrap_or(status.live).in_hand != 10) {
        held.push(consumer.next().await);
    }
    support::milena::delete_below(&bootstrap, TOPIC, 1_110).await;
    for delivery in held {
        consumer.ack(delivery);
    }
    let mut reported = 0;
    while consumer.status(TOPIC, 0).unwrap().floor < 1_120 {
        tokio::select! {
            delivery = tokio::time::timeout(SOON, consumer.consumer.recv()) => {
                let delivery = delivery.expect("a delivery in time").unwrap().unwrap();
                consumer.check(&delivery);
                delivery.ack();
            }
            happened = consumer.events.next() => if let Some(Happened::To { event: Event::GapExpired(range), .. }) = happened {
                assert_eq!(range.end, 1_110);
                reported = range.end - range.start;
            },
        }
    }
    assert!(reported > 500, "{lane:?}, {strategy}: {reported} offsets");
    // And the live lanes go on, that of the other partition too.
    produce(&bootstrap, TOPIC, 0, 1_120..1_125);
    produce(&bootstrap, TOPIC, 1, 120..125);
    let mut seen = BTreeSet::new();
    while !(seen.contains(&(0, 1_124)) && seen.contains(&(1, 124))) {
        let delivery = consumer.next().await;
        seen.insert((delivery.record().partition(), delivery.record().offset()));
        delivery.ack();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_retention_takes_before_a_running_lane_is_reported_and_passed_over() {
    tokio::join!(
        expires_while(Lane::Backfill, "range"),
        expires_while(Lane::Live, "range"),
        expires_while(Lane::Live, "cooperative-sticky"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_c14_an_operator_who_resets_the_group_gets_everything() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until_stored(&bootstrap, &(80, vec![120..140]));
    consumer.kill();
    wait_until_empty(&bootstrap, GROUP);
    support::commit(&bootstrap, GROUP, TOPIC, 0, 0, "");
    let next = last(&bootstrap);
    next.event("Forked { floor: 0, fork: 140, gap: 140 }");
    assert_eq!(next.take(140), (set(0..0), set(0..140)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_c15_a_plain_consumer_goes_on_at_the_floor_and_we_go_on_at_its_offset() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until_stored(&bootstrap, &(80, vec![120..140]));
    consumer.kill();
    assert_eq!(plain(&bootstrap, GROUP, TOPIC, 10), (80..90).collect::<Vec<_>>());
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((90, String::new())));
    let next = last(&bootstrap);
    next.event("Forked { floor: 90, fork: 140, gap: 50 }");
    assert_eq!(next.take(50), (set(0..0), set(90..140)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_c9_a_consumer_that_slept_past_its_session_commits_nothing_more() {
    // Long enough that a busy machine does not end it before it is put to sleep.
    let sleeper = Options { session_ms: 12_000, ..Options::default() };
    let (_server, bootstrap, mut consumer) = first_life(|at| Consumer::with(at, GROUP, TOPIC, &sleeper)).await;
    consumer.ack(70..80);
    let id = Pid::from_raw(i32::try_from(consumer.id()).unwrap()).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    // Another one gets the partition when the session is over, and all that was not committed.
    let other = last(&bootstrap);
    let (live, backfill) = other.take(70);
    assert_eq!((live, backfill), (set(0..0), set(70..140)));
    // Its session is over for the group, and it does not know that yet.
    consumer.ack(80..90);
    consumer.commit();
    kill_process(id, Signal::CONT).unwrap();
    consumer.event(": Lost");
    assert_eq!(stored(&bootstrap), (70, vec![]), "the sleeper committed");
    consumer.finish();
    assert_eq!(stored(&bootstrap), (70, vec![]), "the sleeper committed at its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn b60_inspect_prints_floor_pieces_and_size_of_a_live_group() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..125).chain(130..140).chain(70..80));
    consumer.commit();
    wait_until_stored(&bootstrap, &(80, vec![120..125, 130..140]));
    let (_, metadata) = committed(&bootstrap, GROUP, TOPIC, 0).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_catchup"))
        .args(["inspect", "--bootstrap", &bootstrap, GROUP])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let wanted = format!(
        "orders/0: floor 80, log 0..140, 45 left in 2 pieces\n  finished ahead: 120..125, 130..140\n  left: 80..120, 125..130\n  \
         metadata: {} bytes\n",
        metadata.len()
    );
    assert_eq!(text, wanted);
}
