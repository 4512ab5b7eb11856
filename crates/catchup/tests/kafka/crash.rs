//! kill -9 of a consumer that works in the order of offsets, at the moment in which the backfill hands over to the live lane.

use std::ops::Range;

use crate::all;
use crate::bench::Bench;
use crate::support::child::{Consumer, Options};
use crate::support::committed;
use crate::support::milena::wait_until;

const IN_ORDER: &[&str] = &["--order", "offset"];

/// With 70 committed, the fork at 120 and the log up to 140.
struct Crash {
    name: &'static str,
    /// So many records the application has got.
    taken: usize,
    /// Of those it has finished these.
    finished: &'static [Range<i64>],
    /// What is committed then; `None`: it is not told to commit.
    floor: Option<i64>,
    /// What the next one gets, of a log up to 150.
    next: &'static [Range<i64>],
}

/// Before, at and behind the last record of the gap.
const CRASHES: [Crash; 5] = [
    Crash { name: "b70-last-of-the-gap", taken: 50, finished: &[70..119], floor: Some(119), next: &[119..150] },
    Crash { name: "b70-first-live", taken: 51, finished: &[70..120], floor: Some(120), next: &[120..150] },
    Crash {
        name: "b70-live-before-the-gap-is-done",
        taken: 60,
        finished: &[120..125, 70..115],
        floor: Some(115),
        next: &[115..120, 125..150],
    },
    Crash { name: "b70-not-committed", taken: 55, finished: &[70..125], floor: None, next: &[70..150] },
    Crash { name: "b70-nothing-finished", taken: 70, finished: &[], floor: None, next: &[70..150] },
];

impl Crash {
    fn happen(&self, bench: &Bench) {
        let (bootstrap, name) = (bench.bootstrap(), self.name);
        let options = Options { more: IN_ORDER, ..Options::default() };
        let mut consumer = Consumer::with(&bootstrap, name, name, &options);
        consumer.event("Forked { floor: 70, fork: 120, gap: 50 }");
        bench.produce(120..140);
        let taken: Vec<i64> = consumer.take_lines(self.taken).into_iter().map(|line| line.offset).collect();
        assert_eq!(taken, all(70..140)[..self.taken], "{name}");
        consumer.ack(self.finished.iter().cloned().flatten());
        if let Some(floor) = self.floor {
            consumer.commit();
            wait_until(|| bench.committed(), &Some(floor));
        }
        consumer.kill();
        bench.produce(140..150);
        let mut next = Consumer::patient(&bootstrap, name, name, IN_ORDER);
        let expected: Vec<i64> = self.next.iter().cloned().flatten().collect();
        let got: Vec<i64> = next.take_lines(expected.len()).into_iter().map(|line| line.offset).collect();
        assert_eq!(got, expected, "{name}: strictly by offset, nothing lost, nothing that counts again");
        assert!(next.is_quiet(), "{name}");
        next.ack(expected);
        next.event("CaughtUp");
        next.finish();
        assert_eq!(committed(&bootstrap, name, name, 0), Some((150, String::new())), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn b70_in_order_a_crash_at_the_hand_over_loses_nothing_and_skips_nothing() {
    let mut crashes = Vec::new();
    for crash in CRASHES {
        let bench = Bench::new(crash.name, &[]).await;
        bench.produce(0..120);
        bench.commit(70);
        crashes.push(tokio::task::spawn_blocking(move || crash.happen(&bench)));
    }
    for crash in crashes {
        crash.await.unwrap();
    }
}
