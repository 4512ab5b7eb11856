//! `catchup consume --ack stdin` behind a reader that is slow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use milena_catchup::Event;
use support::child::Consumer;
use support::milena::{GROUP, TOPIC, create, server, wait_until};
use support::{SOON, Watched, commit, committed, patient, produce};

/// Far more than a pipe has room for, in each of two partitions.
const RECORDS: i64 = 3_000;

/// The command waits for the reader of its lines while the group gives it a partition anew. What it hears of that comes late, and
/// must not make it forget records of the new assignment.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_new_assignment_can_be_acknowledged_when_the_end_of_the_old_one_is_heard_late() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, TOPIC, 2).await;
    for partition in 0..2 {
        produce(&bootstrap, TOPIC, partition, 0..RECORDS);
        commit(&bootstrap, GROUP, TOPIC, partition, 0, "");
    }
    let mut consumer = Consumer::patient(&bootstrap, GROUP, TOPIC, &[]);
    // All that may be in flight; then, with these acknowledged, the command writes on until the pipe is full.
    let lines = consumer.take_lines(2_000);
    consumer.closed.store(true, Ordering::Relaxed);
    lines.iter().for_each(|line| consumer.ack_line(line));
    let mut other = Watched::start(Watched::with(patient(&bootstrap, GROUP)), &[TOPIC]);
    other.event(|event| matches!(event, Event::Forked { .. })).await;
    let status = other.consumer.status();
    let [(taken, _)] = status.as_slice() else { panic!("{status:?}") };
    let kept = 1 - taken.partition;
    // Both have their partition; this one has time to fetch again.
    tokio::time::sleep(support::QUIET).await;
    consumer.closed.store(false, Ordering::Relaxed);
    let (mut seen, deadline) = (0, Instant::now() + SOON);
    while seen < RECORDS {
        assert!(Instant::now() < deadline, "{seen} records of the partition that it kept, {:?}", consumer.new_events());
        let Some(line) = consumer.line_within(Duration::from_millis(100)).unwrap() else { continue };
        consumer.ack_line(&line);
        if line.partition == kept {
            seen = seen.max(line.offset + 1);
        }
    }
    consumer.commit();
    wait_until(|| committed(&bootstrap, GROUP, TOPIC, kept).unwrap().0, &RECORDS);
}
