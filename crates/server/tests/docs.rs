//! What the documents say about this crate is what it does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use milena_server::dispatch::APIS;
use milena_server::limits::Limits;
use milena_server::topics::configs::{Class, TOPIC_KEYS};

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The cells of the table rows in `text`, without heads and rules.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &&str| line.starts_with("| ---");
    let mut rows = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_head = lines.get(at + 1).is_some_and(is_rule);
        if line.starts_with('|') && !is_rule(line) && !is_head {
            rows.push(line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect());
        }
    }
    rows
}

/// The text of every source file below `folder`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_document_on_testing_names_is_there() {
    let mut code = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut code);
    let document = document("docs/testing.md");
    let (_, table) = document.split_once("## Behaviours").unwrap();
    let named: Vec<String> = rows(table).into_iter().map(|row| row[2].clone()).collect();
    let names: Vec<&str> = named.iter().flat_map(|cell| cell.split(", ")).filter(|cell| !cell.is_empty()).collect();
    assert!(names.len() > 50, "the table is not read: {names:?}");
    let missing: Vec<_> =
        names.iter().filter(|name| !code.contains(&format!("fn {}(", name.trim_matches('`')))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_rule_of_committed_offsets_has_a_row_with_a_test() {
    let document = document("docs/testing.md");
    let (_, table) = document.split_once("## Committed offsets, rule by rule").unwrap();
    let (mut ruled, mut untested) = (Vec::new(), Vec::new());
    for row in rows(table).into_iter().filter(|row| row[0].starts_with('A')) {
        ruled.extend(row[0].split(", ").map(str::to_owned));
        if !row[2].starts_with('`') {
            untested.push(row[0].clone());
        }
    }
    let all: Vec<String> = (1..=40).map(|number| format!("A{number}")).collect();
    assert_eq!((ruled, untested), (all, Vec::new()));
}

/// What users tripped over (P, U) is numbered with gaps, what clients send and expect (E) is not. Each has a test, or the document says why it has none.
#[test]
fn every_behaviour_has_a_row_with_a_test_or_a_reason_for_having_none() {
    const TRIPPED_OVER: [u8; 56] = [
        1, 2, 3, 5, 6, 7, 9, 10, 13, 15, 16, 17, 18, 19, 20, 22, 24, 26, 27, 28, 30, 32, 34, 38, 39, 40, 41, 42, 43,
        46, 48, 49, 50, 51, 52, 55, 56, 57, 58, 60, 63, 64, 65, 66, 68, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80,
    ];
    const OF_A_GATEWAY: [u8; 54] = [
        1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 21, 22, 23, 25, 26, 27, 28, 30, 31, 32, 33, 34, 36, 38, 39, 40,
        41, 42, 43, 45, 46, 48, 49, 50, 51, 54, 55, 56, 57, 58, 59, 60, 61, 62, 66, 67, 69, 70, 71, 72,
    ];
    let document = document("docs/testing.md");
    let (_, rest) = document.split_once("## Behaviours").unwrap();
    let (table, rest) = rest.split_once("## Committed offsets, rule by rule").unwrap();
    let (_, reasons) = rest.split_once("Does not apply").unwrap();
    let mut told: BTreeSet<String> = BTreeSet::new();
    for row in rows(table).into_iter().filter(|row| !row[0].is_empty()) {
        assert!(row[2].starts_with('`'), "{row:?} has no test");
        told.extend(row[0].split(", ").map(str::to_owned));
    }
    told.extend(reasons.split(|sign: char| !sign.is_alphanumeric()).map(str::to_owned));
    let numbers = TRIPPED_OVER.map(|number| format!("P{number}"));
    let of_clients = (1..=30).map(|number| format!("E{number}"));
    let missing: Vec<String> = numbers
        .into_iter()
        .chain(OF_A_GATEWAY.map(|number| format!("U{number}")))
        .chain(of_clients)
        .filter(|number| !told.contains(number))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_table_of_configs_has_every_one_with_its_class_and_default() {
    let shown: Vec<Vec<String>> =
        rows(&document("docs/topics.md")).into_iter().filter(|row| row[0].starts_with('`')).collect();
    let known = TOPIC_KEYS.iter().map(|key| {
        let class = match key.class {
            Class::Enforced => "enforced",
            Class::Kept => "kept",
        };
        let default = if key.default.is_empty() { "(empty)" } else { key.default };
        vec![format!("`{}`", key.name), class.to_owned(), default.to_owned()]
    });
    assert_eq!(shown, known.collect::<Vec<_>>());
}

#[test]
fn the_table_of_apis_in_the_readme_is_the_dispatch_table() {
    let readme = document("README.md");
    let (_, rest) = readme.split_once("<!-- api-table:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- api-table:end -->").unwrap();
    let served: Vec<Vec<String>> = APIS
        .iter()
        .map(|api| {
            let (lowest, highest) = api.advertised;
            let mut versions = if lowest == highest { lowest.to_string() } else { format!("{lowest}-{highest}") };
            if api.served != api.advertised {
                versions.push_str(&format!(" (served from {})", api.served.0));
            }
            match api.name {
                "SaslHandshake" | "SaslAuthenticate" => versions.push_str(" (with SASL)"),
                "AlterUserScramCredentials" => versions.push_str(" (with SASL and a users file)"),
                _ => {}
            }
            vec![(api.key as i16).to_string(), api.name.to_owned(), versions]
        })
        .collect();
    assert_eq!(rows(table), served);
}

fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

fn size(bytes: usize) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, shift)| format!("{} {name}", bytes >> shift))
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 60 == 0 && seconds > 60 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[test]
fn every_limit_is_in_its_document_with_its_default() {
    // All fields are named here, so that a new one cannot be forgotten.
    let Limits {
        max_frame_bytes,
        max_connections,
        max_connections_per_address,
        authentication_timeout,
        idle_timeout,
        read_timeout,
        write_timeout,
        in_flight_bytes: _,
        fetch_response_bytes,
        fetch_wait_max,
        fetch_sessions,
        auto_create_max,
        create_partitions_max,
        admin_timeout_max,
        error_text_bytes,
        fetch_session_partitions,
        dedup_tail_messages,
        dedup_tail_bytes,
        in_doubt_grace,
        metadata_refresh,
        frame_pool_bytes,
        shutdown_drain,
    } = Limits::default();
    let expected = BTreeMap::from([
        ("max_frame_bytes", size(max_frame_bytes)),
        ("max_connections", count(max_connections as u64)),
        ("max_connections_per_address", max_connections_per_address.map_or("unlimited".to_owned(), |n| n.to_string())),
        ("authentication_timeout", time(authentication_timeout)),
        ("idle_timeout", time(idle_timeout)),
        ("read_timeout", time(read_timeout)),
        ("write_timeout", time(write_timeout)),
        // The one default that depends on the machine.
        ("in_flight_bytes", "a quarter of the memory, at least 256 MiB".to_owned()),
        ("fetch_response_bytes", size(fetch_response_bytes)),
        ("fetch_wait_max", time(fetch_wait_max)),
        ("fetch_sessions", count(fetch_sessions as u64)),
        ("auto_create_max", count(auto_create_max as u64)),
        ("create_partitions_max", count(create_partitions_max)),
        ("admin_timeout_max", time(admin_timeout_max)),
        ("error_text_bytes", size(error_text_bytes)),
        ("fetch_session_partitions", count(fetch_session_partitions as u64)),
        ("dedup_tail_messages", count(dedup_tail_messages)),
        ("dedup_tail_bytes", size(dedup_tail_bytes)),
        ("in_doubt_grace", time(in_doubt_grace)),
        ("metadata_refresh", time(metadata_refresh)),
        ("frame_pool_bytes", size(frame_pool_bytes)),
        ("shutdown_drain", time(shutdown_drain)),
    ]);
    let rows = rows(&document("docs/limits.md"));
    for (key, default) in expected {
        let key = format!("`limits.{key}`");
        let shown: Vec<&str> = rows.iter().filter(|row| row[1] == key).map(|row| row[2].as_str()).collect();
        assert!(!shown.is_empty(), "{key} is in no table");
        assert!(shown.iter().all(|shown| *shown == default), "{key} is {shown:?} and should be {default}");
    }
}
