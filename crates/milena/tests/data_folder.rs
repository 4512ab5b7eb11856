//! `milena backup` and `milena check-data` as people use them.
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
    run(&server, &["produce", "orders"], "a\n");
    run(&server, &["produce", "orders"], "b\n");
    let (ok, text) = said(&server.run(&check, ""));
    assert!(!ok && text.contains("in use by another process"), "{text}");
    server.stop();
    let text = run(&server, &check, "");
    assert!(text.contains(" topics, ") && text.contains(" messages, "), "{text}");
    // The records are in the largest file.
    let segment = segments(&data).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[40 + 64 + 3] ^= 0xff;
    std::fs::write(&segment, &bytes).unwrap();
    let (ok, text) = said(&server.run(&check, ""));
    assert!(!ok, "{text}");
    assert!(text.contains("are damaged") && text.contains(&segment.display().to_string()), "{text}");
    let (ok, text) = said(&server.run(&["check-data", "--data-dir", "memory://"], ""));
    assert!(!ok && text.contains("has no folder"), "{text}");
}
