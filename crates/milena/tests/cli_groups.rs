//! `milena groups` as people use it: a server as a child process, a librdkafka consumer, and the command beside them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::{Duration, Instant};

use milena_testkit::ChildServer;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use serde_json::Value;

const MILENA: &str = env!("CARGO_BIN_EXE_milena");
const NOTE: &str = "milena: nothing was changed; give --execute to do it\n";

fn server() -> ChildServer {
    ChildServer::builder(MILENA).args(["--set", "groups.initial_rebalance_delay=0s"]).start()
}

/// Runs a client command that succeeds; its standard output.
fn output(server: &ChildServer, args: &[&str]) -> String {
    let output = server.run(args, "");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a client command that fails with code 1; its standard error.
fn failure(server: &ChildServer, args: &[&str]) -> String {
    let output = server.run(args, "");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A topic `orders` of two partitions with ten records each.
fn orders(server: &ChildServer) {
    output(server, &["topics", "create", "orders", "-p", "2"]);
    for partition in ["0", "1"] {
        assert!(server.run(&["produce", "orders", "-p", partition], &"x\n".repeat(10)).status.success());
    }
}

/// A member of group `app` that has read everything and committed it.
fn member(server: &ChildServer) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("broker.address.family", "v4")
        .set("client.id", "reader")
        .set("group.id", "app")
        .set("group.instance.id", "reader-1")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .create()
        .unwrap();
    consumer.subscribe(&["orders"]).unwrap();
    let start = Instant::now();
    let mut read = 0;
    while read < 20 {
        assert!(start.elapsed() < Duration::from_secs(20), "only {read} records arrived");
        read += usize::from(consumer.poll(Duration::from_millis(200)).is_some_and(|message| message.is_ok()));
    }
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    consumer
}

fn committed(server: &ChildServer) -> Vec<Option<i64>> {
    let described: Value = serde_json::from_str(&output(server, &["groups", "describe", "app", "--json"])).unwrap();
    let partitions = described["partitions"].as_array().unwrap();
    partitions.iter().map(|partition| partition["committed"].as_i64()).collect()
}

#[test]
fn an_active_group_is_listed_and_described_and_neither_reset_nor_deleted() {
    let server = server();
    orders(&server);
    let _member = member(&server);
    assert!(server.run(&["produce", "orders", "-p", "1"], "late\n").status.success());
    assert_eq!(output(&server, &["groups", "list"]), "GROUP  STATE   TYPE\napp    Stable  consumer\n");
    assert_eq!(output(&server, &["groups", "list", "--state", "empty"]), "GROUP  STATE  TYPE\n");

    let described = output(&server, &["groups", "describe", "app"]);
    assert!(described.starts_with("app  (Stable, range, 1 member)\n\nTOPIC "), "{described}");
    let row = |partition: &str, end: &str, lag: &str| {
        let cells = ["orders", partition, "10", end, lag];
        described.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.starts_with(&cells) && words.last().is_some_and(|member| member.starts_with("reader-1-"))
        })
    };
    assert!(row("0", "10", "0") && row("1", "11", "1"), "{described}");
    let last: Vec<&str> = described.lines().last().unwrap().split_whitespace().collect();
    assert!(last[0].starts_with("reader-1-") && last[1..3] == ["reader-1", "reader"] && last[4] == "2", "{described}");

    let error = failure(&server, &["groups", "reset-offsets", "app", "--all-topics", "--to-earliest"]);
    let expected = "milena: group `app` is active (Stable, members: 1); stop its consumers, then reset its offsets\n";
    assert_eq!(error, expected);
    let error = failure(&server, &["groups", "delete", "app"]);
    assert_eq!(error, "milena: group `app` was not deleted: the group has members; stop its consumers first\n");
    assert_eq!(committed(&server), [Some(10), Some(10)]);
}

#[test]
fn offsets_are_reset_to_every_kind_of_target_and_only_with_execute() {
    let server = server();
    orders(&server);
    let reset = |args: &[&str]| {
        let args = [&["groups", "reset-offsets", "app"], args].concat();
        let done = server.run(&args, "");
        assert!(done.status.success(), "{done:?}");
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (shown, note) = reset(&["-t", "orders", "--to-latest"]);
    let expected =
        "TOPIC   PARTITION  COMMITTED  NEW\norders  0          -          10\norders  1          -          10\n";
    assert_eq!((shown.as_str(), note.as_str()), (expected, NOTE));
    assert!(failure(&server, &["groups", "describe", "app"]).starts_with("milena: there is no group `app`"));

    let (shown, note) = reset(&["-t", "orders", "--to-latest", "--execute"]);
    assert_eq!((shown.as_str(), note.as_str()), (expected, ""));
    assert_eq!(committed(&server), [Some(10), Some(10)]);
    assert_eq!(output(&server, &["groups", "list"]), "GROUP  STATE  TYPE\napp    Empty  -\n");

    let targets: [(&[&str], [i64; 2]); 6] = [
        (&["-t", "orders:1", "--to-offset", "4"], [10, 4]),
        (&["--all-topics", "--shift-by", "-3"], [7, 1]),
        (&["--all-topics", "--shift-by", "-3"], [4, 0]),
        (&["-t", "orders:0", "--to-earliest"], [0, 0]),
        (&["--all-topics", "--to-offset", "99"], [10, 10]),
        (&["--all-topics", "--to-time", "1h"], [0, 0]),
    ];
    for (args, expected) in targets {
        reset(&[args, &["--execute"]].concat());
        assert_eq!(committed(&server), expected.map(Some), "{args:?}");
    }
    reset(&["--all-topics", "--to-time", "2999-01-01T00:00:00Z", "--execute"]);
    assert_eq!(committed(&server), [Some(10), Some(10)], "no record is that late, so the group goes on at the end");
}

#[test]
fn what_cannot_be_reset_is_a_sentence_and_changes_nothing() {
    let server = server();
    orders(&server);
    let error = failure(&server, &["groups", "reset-offsets", "app", "--all-topics", "--to-earliest"]);
    assert_eq!(error, "milena: group `app` has committed nothing; name topics with --topic\n");
    let error = failure(&server, &["groups", "reset-offsets", "app", "-t", "orders", "--shift-by", "1", "--execute"]);
    assert!(
        error.starts_with("milena: group `app` has committed nothing in `orders`-0 that could be shifted"),
        "{error}"
    );
    let error = failure(&server, &["groups", "reset-offsets", "app", "-t", "no", "--to-latest"]);
    assert!(error.starts_with("milena: there is no topic `no`"), "{error}");
    let error = failure(&server, &["groups", "reset-offsets", "app", "-t", "orders:7", "--to-latest"]);
    assert_eq!(error, "milena: topic `orders` has the partitions 0 to 1, and no partition 7\n");
    assert_eq!(output(&server, &["groups", "list"]), "GROUP  STATE  TYPE\n");
}

#[test]
fn a_group_without_members_is_deleted_with_its_offsets() {
    let server = server();
    orders(&server);
    output(&server, &["groups", "reset-offsets", "app", "-t", "orders", "--to-latest", "--execute"]);
    output(&server, &["groups", "delete", "app"]);
    assert_eq!(output(&server, &["groups", "list"]), "GROUP  STATE  TYPE\n");
    assert!(failure(&server, &["groups", "delete", "app"]).starts_with("milena: there is no group `app`"));
    output(&server, &["groups", "delete", "app", "--if-exists"]);
}

#[test]
fn offsets_and_their_reset_survive_a_kill_of_the_server() {
    let mut server = server();
    orders(&server);
    output(&server, &["groups", "reset-offsets", "app", "-t", "orders", "--to-offset", "3", "--execute"]);
    server.kill();
    server.restart();
    assert_eq!(committed(&server), [Some(3), Some(3)]);
}
