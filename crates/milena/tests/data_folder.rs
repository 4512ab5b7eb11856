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

use milena_testkit::ChildServer;

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

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
    for segment in segments(data) {
        let mut bytes = std::fs::read(&segment).unwrap();
        if let Some(at) = bytes.windows(payload.len()).position(|window| window == payload) {
            bytes[at] ^= 0xff;
            std::fs::write(&segment, &bytes).unwrap();
            return segment;
        }
    }
    panic!("the payload is in no segment");
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
