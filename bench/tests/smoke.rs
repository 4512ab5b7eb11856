//! The harness itself, at a small scale: that it measures what it says, not how fast anything is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::Duration;

use milena_bench::report::{Measures, Rounds, alternate};
use milena_bench::scenarios::load::{self, Acks};
use milena_bench::scenarios::{cold_start, idle_groups, joins, offsets};
use milena_bench::servers::Target;
use milena_testkit::TestServer;

async fn server() -> (TestServer, Target) {
    let builder = TestServer::builder().config(|config| config.groups.initial_rebalance_delay = Duration::ZERO);
    let server = builder.start().await;
    let target = Target::running(&server.address().to_string(), Some(std::process::id()));
    (server, target)
}

fn value(measures: &Measures, name: &str) -> f64 {
    measures.get(name).unwrap_or_else(|| panic!("no {name} in {measures:?}"))
}

#[tokio::test]
async fn commits_come_at_the_rate_that_was_asked_for() {
    let (_server, target) = server().await;
    let options = offsets::Options {
        consumers: 6,
        groups: 2,
        partitions: 30,
        interval: 100,
        slower: 150,
        flood: true,
        observers: 3,
        seconds: 1,
    };
    let measures = options.round(&target, 0).await.unwrap();
    // Six consumers, ten times in a second, ten partitions each. A loaded machine may be late, and never early by more
    // than the requests on the edges.
    let rate = value(&measures, "every 100 ms: partition-commits/s");
    assert!((300.0..=660.0).contains(&rate), "{measures:?}");
    let slower = value(&measures, "150/s: partition-commits/s");
    assert!((75.0..=180.0).contains(&slower), "{measures:?}");
    assert!(value(&measures, "flood: partition-commits/s") > rate, "{measures:?}");
    let (p50, p999) = (value(&measures, "150/s: heartbeat p50, ms"), value(&measures, "150/s: heartbeat p99.9, ms"));
    assert!(0.0 < p50 && p50 <= p999, "{measures:?}");
    assert!(value(&measures, "flood: server CPU, cores") > 0.0, "{measures:?}");
}

#[tokio::test]
async fn a_group_becomes_stable_and_rounds_alternate() {
    let (_server, target) = server().await;
    let (_other_server, other) = server().await;
    let options = joins::Options { members: 8, partitions: 16 };
    let rounds = Rounds { warm_ups: 1, counted: 2 };
    let mut targets = [("one".to_owned(), target), ("other".to_owned(), other)];
    let report = alternate("joins", &mut targets, rounds, async |target, round| options.round(target, round).await)
        .await
        .unwrap();
    assert!(value(&report.medians(None), "time until stable, ms") > 0.0);
    assert!(value(&report.medians(None), "generations") >= 1.0);
    assert_eq!(report.json()["servers"][1]["rounds"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn idle_groups_stay_members() {
    let (_server, target) = server().await;
    let measures = idle_groups::Options { groups: 200 }.round(&target, 0).await.unwrap();
    assert!(measures.get("memory per group, bytes").is_some());
}

#[tokio::test]
async fn what_is_produced_is_fetched() {
    let (_server, target) = server().await;
    let options = load::Options {
        record_bytes: 100,
        batch_bytes: 4_000,
        partitions: 3,
        acks: Acks::All,
        producers: 2,
        consumers: 2,
        depth: 3,
        megabytes: 2,
        fetches: 2,
        rate: 1,
        singles: 50,
        seconds: 1,
    };
    let measures = options.round(&target, 0).await.unwrap();
    for name in ["produce: MB/s", "fetch: MB/s", "1 MB/s: request p50, ms", "end to end p50, ms"] {
        assert!(value(&measures, name) > 0.0, "{name} in {measures:?}");
    }
    for name in ["end to end p99, ms", "end to end p99.9, ms", "produce: MB per server CPU-s", "server memory, MB"] {
        assert!(value(&measures, name) > 0.0, "{name} in {measures:?}");
    }
    // A record that is there is not held back until the wait of a fetch is over.
    assert!(value(&measures, "end to end p50, ms") < 400.0, "{measures:?}");
}

#[tokio::test]
async fn a_cold_start_ends_with_a_topic_and_a_stored_record() {
    let (server, target) = server().await;
    let options = cold_start::Options { acks: Acks::All };
    let mut targets = [("one".to_owned(), target)];
    let rounds = Rounds { warm_ups: 0, counted: 1 };
    let start = tokio::time::Instant::now();
    let report = alternate("cold start", &mut targets, rounds, async |target, _| options.answers(target, start).await);
    let report = report.await.unwrap();
    let [metadata, stored] = ["start to the first metadata, ms", "start to the first stored record, ms"]
        .map(|name| value(&report.medians(None), name));
    assert!(0.0 < metadata && metadata <= stored);
    assert_eq!(report.json()["servers"][0]["rounds"][0]["start to the first metadata, ms"], metadata);
    assert!(server.server().broker().topics.by_name("first").is_some());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let target = Target::running("127.0.0.1:1", None);
    let error = joins::Options { members: 1, partitions: 1 }.round(&target, 0).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}
