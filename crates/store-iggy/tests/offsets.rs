//! Consumer offsets over Iggy's protocol: the probe, and what becomes of calls whose answer is lost.
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

use std::time::{Duration, Instant};

use common::open;
use door::TestServer;
use iggy_binary_protocol::consensus::Operation;
use milena_iggy_door::OffsetRules;
use milena_iggy_door::faults::{Fault, On};
use milena_store::offsets::probe;
use milena_store::{OffsetStore, Store, StoreError, TopicSettings};
use pollster::block_on;

const STORE: On = On::Operation(Operation::StoreConsumerOffset);

#[test]
fn the_rules_of_iggys_server_fail_the_probe_and_say_why_and_without_them_it_passes() {
    for rules in [OffsetRules::Server, OffsetRules::Free] {
        let server = TestServer::with(rules);
        let store = server.open();
        for _ in 0..5 {
            let probed = block_on(probe(store.as_ref(), "offset-probe")).unwrap();
            match rules {
                OffsetRules::Free => assert_eq!(probed, Ok(())),
                OffsetRules::Server => {
                    let refusal = probed.unwrap_err().to_string();
                    assert!(refusal.contains("no member of the group"), "{refusal}");
                }
            }
        }
        assert_eq!(block_on(store.topic("__milena", "offset-probe")), Ok(None), "nothing is left");
    }
}

#[test]
fn a_store_whose_reply_was_lost_holds_up_the_next_until_it_can_no_longer_take_effect() {
    let server = TestServer::with(OffsetRules::Free);
    let store = server.open();
    let topic = block_on(store.create_topic("kafka", "orders", 2, &TopicSettings::default())).unwrap().topic;
    block_on(store.create_group(&topic, "readers")).unwrap();
    let at = topic.partition(0);
    server.door.lock().as_ref().unwrap().faults().plan(STORE, Fault::CutAfterApply);
    let cut = block_on(OffsetStore::store(store.as_ref(), &at, "readers", 1));
    assert!(matches!(cut, Err(StoreError::InDoubt { .. })), "{cut:?}");
    let next = || block_on(OffsetStore::store(store.as_ref(), &at, "readers", 2));
    let early = next();
    assert!(matches!(early, Err(StoreError::Busy { .. })), "{early:?}");
    assert_eq!(block_on(OffsetStore::store(store.as_ref(), &topic.partition(1), "readers", 7)), Ok(()));
    let started = Instant::now();
    while next().is_err() {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(block_on(store.load(&at, "readers")), Ok(Some(2)));
}

#[test]
fn a_deletion_of_a_group_whose_reply_was_lost_cannot_take_a_later_commit_with_it() {
    let server = TestServer::with(OffsetRules::Free);
    let store = server.open();
    let topic = block_on(store.create_topic("kafka", "orders", 1, &TopicSettings::default())).unwrap().topic;
    let at = topic.partition(0);
    block_on(store.create_group(&topic, "readers")).unwrap();
    let deletion = On::Operation(Operation::DeleteConsumerGroup);
    server.door.lock().as_ref().unwrap().faults().plan(deletion, Fault::CutBeforeApply);
    let cut = block_on(store.delete_group(&topic, "readers"));
    assert!(matches!(cut, Err(StoreError::InDoubt { .. })), "{cut:?}");
    let commit = || {
        block_on(store.create_group(&topic, "readers"))?;
        block_on(OffsetStore::store(store.as_ref(), &at, "readers", 2))
    };
    let (created, stored) = (
        block_on(store.create_group(&topic, "readers")),
        block_on(OffsetStore::store(store.as_ref(), &at, "readers", 1)),
    );
    assert!(matches!(created, Err(StoreError::Busy { .. })), "{created:?}");
    assert!(matches!(stored, Err(StoreError::Busy { .. })), "{stored:?}");
    let started = Instant::now();
    while commit().is_err() {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(block_on(store.load(&at, "readers")), Ok(Some(2)));
}

#[test]
fn a_server_that_is_away_is_an_error_and_never_no_offset() {
    let server = TestServer::with(OffsetRules::Free);
    let store = open(milena_store_iggy::IggyConfig { call_timeout: Duration::from_secs(2), ..server.config() });
    let topic = block_on(store.create_topic("kafka", "orders", 1, &TopicSettings::default())).unwrap().topic;
    let at = topic.partition(0);
    block_on(store.create_group(&topic, "readers")).unwrap();
    block_on(OffsetStore::store(store.as_ref(), &at, "readers", 5)).unwrap();
    server.stop();
    let gone = block_on(store.load(&at, "readers"));
    assert!(matches!(gone, Err(StoreError::Busy { .. })), "{gone:?}");
    server.start();
    let started = Instant::now();
    while block_on(store.load(&at, "readers")) != Ok(Some(5)) {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(100));
    }
}
