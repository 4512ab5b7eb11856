//! Over an Apache Kafka broker: what only it has (transactions, compaction), and what must be so with any.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::single_range_in_vec_init,
    missing_docs,
    reason = "test code"
)]

mod bench;
mod checkpoint;
mod crash;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use bench::Bench;
use milena_catchup::{Event, Lane, Order, State};
use rdkafka::config::ClientConfig;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::churn::{Churn, PARTITIONS};
use support::migration;
use support::milena::delete_below;
use support::{SOON, Watched, config};

fn all(offsets: std::ops::Range<i64>) -> Vec<i64> {
    offsets.collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b04_the_fork_is_the_first_offset_of_the_live_lane() {
    let bench = Bench::new("b04", &[]).await;
    bench.produce(0..120);
    bench.commit(70);
    let mut consumer = bench.start();
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    bench.produce(120..123);
    let (live, backfill) = consumer.take(53, |_, _| true).await;
    assert_eq!((live, backfill), (all(120..123), all(70..120)));
    consumer.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(123));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b07_what_was_deleted_below_the_start_of_the_log_is_told_and_passed() {
    let bench = Bench::new("b07", &[]).await;
    bench.produce(0..120);
    bench.commit(70);
    delete_below(&bench.bootstrap(), bench.name, 90).await;
    let mut consumer = bench.start();
    let expired = consumer.event(|event| matches!(event, Event::GapExpired(_))).await;
    assert_eq!(expired, Event::GapExpired(70..90));
    assert_eq!(consumer.take(30, |_, _| true).await.1, all(90..120));
    consumer.event(|event| *event == Event::CaughtUp).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(120));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b15_a_gap_that_ends_with_markers_of_transactions_is_caught_up() {
    let bench = Bench::new("b15", &[]).await;
    bench.produce(0..50);
    bench.commit(0);
    let transactions = bench.transactions();
    transactions.begin(50..60);
    transactions.commit();
    transactions.begin(61..70);
    transactions.abort();
    // 60 and 70 are markers, 61 to 69 are records that count for nobody.
    let mut consumer = bench.start();
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 0, fork: 71, gap: 71 });
    assert_eq!(consumer.take(60, |_, _| true).await.1, all(0..60));
    consumer.event(|event| *event == Event::CaughtUp).await;
    bench.produce(71..73);
    assert_eq!(consumer.take(2, |_, _| true).await.0, all(71..73));
    consumer.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(73));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b16_a_gap_whose_last_records_were_compacted_away_is_caught_up() {
    let compacted = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.compaction.lag.ms", "0"),
    ];
    let bench = Bench::new("b16", &compacted).await;
    let producer: BaseProducer = bench.client().set("linger.ms", "0").create().unwrap();
    // A batch for each record, large ones, so that a reader that may hold few has not read to the end of the gap.
    let write = |key: i64, offset: i64, padding: usize| {
        let (key, value) = (key.to_string(), offset.to_string());
        let padding = rdkafka::message::OwnedHeaders::new()
            .insert(rdkafka::message::Header { key: "padding", value: Some(&vec![0; padding]) });
        let record = BaseRecord::to(bench.name).partition(0).key(&key).payload(&value).headers(padding);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(SOON).unwrap();
    };
    (0..40).for_each(|offset| write(offset, offset, 100_000));
    bench.commit(0);
    let small = |config: &mut ClientConfig| {
        config.set("fetch.message.max.bytes", "100000").set("queued.min.messages", "1");
        config.set("queued.max.messages.kbytes", "1").set("fetch.queue.backoff.ms", "10").clone()
    };
    let builder = milena_catchup::CatchUpConsumer::builder(small(&mut config(&bench.bootstrap(), bench.name)))
        .fork_when(milena_catchup::Lag::records(10))
        .commit(milena_catchup::Commit::Manual)
        .in_flight_max(Lane::Backfill, 1);
    let mut consumer = Watched::start(builder, &[bench.name]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 0, fork: 40, gap: 40 });
    let first = consumer.next().await;
    assert_eq!(first.record().offset(), 0);
    // The newest of each key stays: those from 30 on are superseded behind the fork.
    (40..50).for_each(|offset| write(offset - 10, offset, 1));
    // The segment that is written to is not compacted.
    tokio::time::sleep(Duration::from_millis(200)).await;
    write(50, 50, 1);
    let end = 51;
    let gone = async {
        while bench.stored().iter().any(|offset| (30..40).contains(offset)) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the cleaner comes by");
    consumer.ack(first);
    let mut backfill = Vec::new();
    let mut live = Vec::new();
    let caught_up = |consumer: &Watched| consumer.status(bench.name, 0).unwrap().state == State::Live;
    while !caught_up(&consumer) || live.last() != Some(&(end - 1)) {
        let Ok(got) = tokio::time::timeout(Duration::from_secs(5), consumer.next()).await else {
            assert!(caught_up(&consumer), "{backfill:?} {live:?} {:?}", consumer.status(bench.name, 0));
            continue;
        };
        match got.lane() {
            Lane::Backfill => backfill.push(got.record().offset()),
            Lane::Live => live.push(got.record().offset()),
        }
        consumer.ack(got);
    }
    // What the reader had fetched when the cleaner came may be among them; the last ones cannot.
    assert_eq!(backfill[..29], all(1..30));
    assert!(backfill.len() < 39, "the end of the gap was read before it was gone: {backfill:?}");
    consumer.event(|event| *event == Event::CaughtUp).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(end));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b17_the_fork_is_before_an_open_transaction_and_the_live_lane_goes_on_behind_it() {
    let bench = Bench::new("b17", &[]).await;
    bench.produce(0..100);
    bench.commit(0);
    let transactions = bench.transactions();
    transactions.begin(100..105);
    let mut consumer = bench.start();
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 0, fork: 100, gap: 100 });
    assert_eq!(consumer.take(100, |_, _| true).await.1, all(0..100));
    consumer.event(|event| *event == Event::CaughtUp).await;
    assert!(consumer.is_quiet().await, "of an open transaction nothing is delivered");
    transactions.commit();
    assert_eq!(consumer.take(5, |_, _| true).await.0, all(100..105));
    transactions.begin(106..110);
    transactions.abort();
    bench.produce(111..113);
    assert_eq!(consumer.take(2, |_, _| true).await.0, all(111..113));
    consumer.consumer.commit().await.unwrap();
    assert_eq!(bench.committed(), Some(113), "records of an aborted transaction need no acknowledgement");
    consumer.consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b71_in_order_a_partition_that_moves_is_committed_once_and_goes_on_at_its_floor() {
    let bench = Bench::new("b71", &[]).await;
    bench.produce(0..120);
    bench.commit(70);
    let ordered = || Watched::builder(&bench.bootstrap(), bench.name).order(Order::Offset);
    let mut first = Watched::start(ordered(), &[bench.name]);
    first.event(|event| matches!(event, Event::Forked { .. })).await;
    bench.produce(120..140);
    let (live, backfill) = first.take(30, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], all(70..100)));
    // What is in hand and not acknowledged when the partition leaves is for the next owner.
    let in_hand = first.next().await;
    assert_eq!(in_hand.record().offset(), 100);
    drop(in_hand);
    // The group takes the partition back in the middle of the close.
    let mut second = Watched::start(ordered(), &[bench.name]);
    first.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(100));
    // A record that is acknowledged above the floor is not delivered again; here there is none.
    let mut got = Vec::new();
    while got.len() < 40 {
        let delivery = second.next().await;
        got.push(delivery.record().offset());
        second.ack(delivery);
    }
    assert_eq!(got, all(100..140), "strictly by offset, from the floor");
    second.consumer.close().await.unwrap();
    assert_eq!(bench.committed(), Some(140));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b65_switched_on_for_an_existing_group_it_starts_from_the_plain_offset() {
    let bench = Bench::new("b65", &[]).await;
    migration::on(&bench.bootstrap(), bench.name).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b66_switched_off_a_plain_consumer_goes_on_at_the_floor_and_loses_nothing() {
    let bench = Bench::new("b66", &[]).await;
    migration::off(&bench.bootstrap(), bench.name).await;
}

/// For 30 s, or `TEST_CHURN_SECONDS`.
#[test]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
fn b51_members_come_and_go_and_nothing_is_lost() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bench = runtime.block_on(Bench::with_partitions("b51", PARTITIONS, &[]));
    let bootstrap = bench.bootstrap();
    let churn = Churn { bootstrap: &bootstrap, topic: bench.name, group: bench.name, session_ms: 3_000, seconds: 30 };
    churn.run(&runtime, || {});
}
