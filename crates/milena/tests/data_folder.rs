//! `milena backup`, `milena check-data` and `milena repair` as people use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use milena_testkit::{ChildServer, SOON};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");
/// What a segment holds before its first entry.
const SEGMENT_HEAD_BYTES: usize = 40;

fn said(output: &Output) -> (bool, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn run(server: &ChildServer, args: &[&str], input: &str) -> String {
    let (ok, text) = said(&server.run(args, input));
    assert!(ok, "{args:?}: {text}");
    text
}

/// A server on the copy, which lies beside the data of `server`.
fn server_on(folder: &Path) -> ChildServer {
    ChildServer::builder(MILENA)
        .no_args()
        .args(["serve", "--listen", "127.0.0.1:{port}", "--data-dir", &folder.display().to_string()])
        .start()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|ending| ending == "log") {
            found.push(path);
        }
    }
    found
}

/// Spoils the file that holds those bytes, within them.
fn damage(data: &Path, payload: &[u8]) -> PathBuf {
    let (segment, at) = place_of(data, payload);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[at] ^= 0xff;
    std::fs::write(&segment, &bytes).unwrap();
    segment
}

/// The file that holds those bytes, and where in it they begin.
fn place_of(data: &Path, payload: &[u8]) -> (PathBuf, usize) {
    let place = segments(data).into_iter().find_map(|segment| {
        let bytes = std::fs::read(&segment).unwrap();
        let at = bytes.windows(payload.len()).position(|window| window == payload)?;
        Some((segment, at))
    });
    place.expect("the payload is in a segment")
}

/// Offsets of the records from `from` on, as librdkafka reads them until it says that it is at the end.
fn read_to_the_end(server: &ChildServer, from: Offset) -> Vec<i64> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.bootstrap()).set("broker.address.family", "v4");
    config.set("group.id", "not-joined").set("enable.auto.commit", "false").set("auto.offset.reset", "error");
    let consumer: BaseConsumer = config.set("enable.partition.eof", "true").create().unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("orders", 0, from).unwrap();
    consumer.assign(&assignment).unwrap();
    let (start, mut offsets) = (Instant::now(), Vec::new());
    loop {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => offsets.push(message.offset()),
            Some(Err(KafkaError::PartitionEOF(_))) => return offsets,
            other => assert!(start.elapsed() < SOON, "no end behind {offsets:?}: {other:?}"),
        }
    }
}

#[test]
fn a_reader_to_the_end_gets_there_across_a_hole_at_the_end_and_after_a_trim() {
    let mut server = ChildServer::start(MILENA);
    let data = server.folder().join("data");
    run(&server, &["topics", "create", "orders", "-p", "1", "-c", "segment.bytes=1048576"], "");
    for payload in ["payload-a".to_owned(), format!("payload-b{}", "b".repeat(1_000_000)), "c".repeat(100_000)] {
        run(&server, &["produce", "orders"], &format!("{payload}\n"));
    }
    server.stop();
    // The last record is alone in its segment, which was begun and not written yet when the machine died, and the disk spoilt
    // the record before it.
    let (newest, _) = place_of(&data, &[b'c'; 100_000]);
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..SEGMENT_HEAD_BYTES]).unwrap();
    std::fs::remove_file(newest.with_extension("index")).ok();
    damage(&data, b"payload-b");
    let text = run(&server, &["repair", "--data-dir", &data.display().to_string(), "--execute"], "");
    assert!(text.contains("kafka/orders/0: the messages from offset 1 up to 2 are"), "{text}");
    server.restart();
    assert_eq!(run(&server, &["consume", "orders", "--from-beginning", "-o"], ""), "0@0\tpayload-a\n");
    assert_eq!(read_to_the_end(&server, Offset::Beginning), [0]);
    assert!(read_to_the_end(&server, Offset::Offset(1)).is_empty());
    run(&server, &["produce", "orders"], "payload-d\n");
    assert_eq!(read_to_the_end(&server, Offset::Offset(1)), [2]);
    // Everything is deleted: the end is where the start is.
    run(&server, &["topics", "delete-records", "orders", "--all"], "");
    assert!(read_to_the_end(&server, Offset::Beginning).is_empty());
}

#[test]
fn a_repaired_folder_serves_everything_but_the_damaged_record() {
    let mut server = ChildServer::start(MILENA);
    let data = server.folder().join("data");
    for payload in ["payload-a\n", "payload-b\n", "payload-c\n"] {
        run(&server, &["produce", "orders"], payload);
    }
    server.stop();
    damage(&data, b"payload-b");
    let repair = ["repair", "--data-dir", &data.display().to_string()];
    let text = run(&server, &repair, "");
    assert!(text.contains("kafka/orders/0: the messages from offset 1 up to 2 are damaged"), "{text}");
    assert!(text.contains("nothing was changed; give --execute"), "{text}");
    let text = run(&server, &[&repair[..], &["--execute"]].concat(), "");
    assert!(text.contains("1 repairs made"), "{text}");
    assert_eq!(run(&server, &repair, ""), "nothing to repair\n");
    let check = run(&server, &["check-data", "--data-dir", &data.display().to_string()], "");
    assert!(check.contains("1 messages were cut out"), "{check}");
    server.restart();
    let lines = run(&server, &["consume", "orders", "--from-beginning", "-o"], "");
    assert_eq!(lines, "0@0\tpayload-a\n0@2\tpayload-c\n");
    assert_eq!(run(&server, &["consume", "orders", "--offset", "1"], ""), "payload-c\n");
    run(&server, &["produce", "orders"], "payload-d\n");
    assert_eq!(run(&server, &["consume", "orders", "--offset", "2"], ""), "payload-c\npayload-d\n");
}

#[test]
fn a_backup_of_a_server_in_use_serves_records_offsets_and_configs() {
    let server = ChildServer::start(MILENA);
    let data = server.folder().join("data").display().to_string();
    let to = server.folder().join("copy");
    run(&server, &["topics", "create", "orders", "-c", "retention.ms=60000000"], "");
    run(&server, &["produce", "orders"], "a\nb\nc\n");
    let reset = ["groups", "reset-offsets", "readers", "-t", "orders", "--to-offset", "2", "--execute"];
    run(&server, &reset, "");
    let text = run(&server, &["backup", "--data-dir", &data, &to.display().to_string()], "");
    assert!(text.ends_with("every checksum of the copy is right\n"), "{text}");
    run(&server, &["produce", "orders"], "d\n");
    let copy = server_on(&to);
    assert_eq!(run(&copy, &["consume", "orders", "--from-beginning"], ""), "a\nb\nc\n");
    assert!(run(&copy, &["topics", "describe", "orders"], "").contains("retention.ms = 60000000"));
    let described = run(&copy, &["groups", "describe", "readers", "--json"], "");
    assert!(described.contains("\"committed\":2"), "{described}");
    // A second copy does not go over the first one.
    let (ok, text) = said(&server.run(&["backup", "--data-dir", &data, &to.display().to_string()], ""));
    assert!(!ok && text.contains("is there already"), "{text}");
}

#[test]
fn a_check_finds_the_damaged_place_and_needs_the_folder_for_itself() {
    let mut server = ChildServer::start(MILENA);
    let data = server.folder().join("data");
    let check = ["check-data", "--data-dir", &data.display().to_string()];
    for payload in ["payload-a\n", "payload-b\n"] {
        run(&server, &["produce", "orders"], payload);
    }
    let (ok, text) = said(&server.run(&check, ""));
    assert!(!ok && text.contains("in use by another process"), "{text}");
    server.stop();
    let text = run(&server, &check, "");
    assert!(text.contains(" topics, ") && text.contains(" messages, "), "{text}");
    let segment = damage(&data, b"payload-a");
    let (ok, text) = said(&server.run(&check, ""));
    assert!(!ok, "{text}");
    assert!(text.contains("are damaged") && text.contains(&segment.display().to_string()), "{text}");
    let (ok, text) = said(&server.run(&["check-data", "--data-dir", "memory://"], ""));
    assert!(!ok && text.contains("has no folder"), "{text}");
}
