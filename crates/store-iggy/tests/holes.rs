//! State of our own in topics of which the server leaves messages out without a word: it is loaded whole or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;
#[path = "common/door.rs"]
mod door;

use std::sync::Arc;

use common::RUNTIME;
use door::TestServer;
use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{Store, StoreError, TopicSettings};
use milena_store_iggy::IggyStore;
use pollster::block_on;

/// Where the gateway of these tests keeps its state on the server.
const STATE: &str = "gateway";

/// Opens the log and tells what it holds.
fn load(store: &Arc<IggyStore>) -> Result<(StateLog, Vec<Vec<u8>>), StoreError> {
    let mut table: Vec<Vec<u8>> = Vec::new();
    let store: Arc<dyn Store> = Arc::<IggyStore>::clone(store);
    let opened = StateLog::open(store, "table", StateLogOptions::default(), |event| match event {
        StateEvent::Reset => table.clear(),
        StateEvent::Record(record) => table.push(record.to_vec()),
    });
    let log = RUNTIME.block_on(opened)?;
    Ok((log, table))
}

#[test]
fn a_state_log_with_a_hole_is_not_loaded_until_the_hole_is_gone() {
    let server = TestServer::new();
    let (log, _) = load(&server.open()).unwrap();
    for record in [b"a", b"b", b"c", b"d"] {
        RUNTIME.block_on(log.append(record.to_vec())).unwrap();
    }
    drop(log);
    // A claim, and the records: each of them, several, the last ones, all.
    for hole in [0..1, 1..2, 2..4, 4..5, 3..5, 0..5] {
        *server.hole.lock() = Some((STATE.to_owned(), "table".to_owned(), hole.clone()));
        let store = server.open();
        for _ in 0..2 {
            let loaded = load(&store).map(|(_, table)| table);
            assert!(loaded.is_err(), "{hole:?}: {loaded:?}");
        }
        *server.hole.lock() = None;
    }
    assert_eq!(load(&server.open()).unwrap().1, [b"a", b"b", b"c", b"d"]);
}

#[test]
fn a_store_whose_journal_has_a_hole_does_not_open_as_if_nothing_were_in_it() {
    let server = TestServer::new();
    let store = server.open();
    let settings = TopicSettings { keep_forever: true, ..TopicSettings::default() };
    for topic in ["a", "b", "c"] {
        block_on(store.create_topic("kafka", topic, 1, &settings)).unwrap();
    }
    drop(store);
    let kept = |store: &Arc<IggyStore>| {
        ["a", "b", "c"].map(|topic| block_on(store.topic("kafka", topic)).unwrap().unwrap().settings.keep_forever)
    };
    assert_eq!(kept(&server.open()), [true; 3]);
    for hole in [0..1, 0..3, 1..2, 2..3, 1..3] {
        *server.hole.lock() = Some((STATE.to_owned(), "engine".to_owned(), hole.clone()));
        let opened = RUNTIME.block_on(Box::pin(IggyStore::open(server.config()))).map(|_| "opened");
        assert!(opened.is_err(), "{hole:?}: {opened:?}");
        *server.hole.lock() = None;
    }
    assert_eq!(kept(&server.open()), [true; 3]);
}
