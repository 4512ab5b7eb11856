//! Ends that move back: what the store says of them, over restarts, and to other gateways.
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
use std::time::{Duration, Instant};

use common::open;
use door::TestServer;
use milena_store::frame::Frames;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Bounds, GrowthWatcher, PartitionRef, ReadLimit, Store, TopicRef, TopicSettings};
use milena_store_iggy::{IggyConfig, IggyStore};
use parking_lot::Mutex;
use pollster::block_on;

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(60);
const ALL: ReadLimit = ReadLimit { bytes: usize::MAX, at_least_one: true };

struct Case {
    server: TestServer,
    store: Arc<IggyStore>,
    at: PartitionRef,
}

impl Case {
    /// Five messages in the first partition of topic `orders`.
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut IggyConfig)) -> Self {
        let server = TestServer::new();
        let mut config = server.config();
        change(&mut config);
        let store = open(config);
        let topic = block_on(store.create_topic("kafka", "orders", 2, &TopicSettings::default())).unwrap().topic;
        let case = Self { server, store, at: topic.partition(0) };
        for id in 0..5 {
            assert_eq!(case.append(id), u64::try_from(id).unwrap());
        }
        case
    }

    fn append(&self, id: u128) -> u64 {
        append(&self.store, &self.at, id)
    }

    /// The server loses what it acknowledged from offset `from` on.
    fn lose_tail(&self, from: u64) {
        self.server.memory.lose_tail(&self.on_server("kafka", "orders").partition(0), from);
    }

    fn on_server(&self, stream: &str, topic: &str) -> TopicRef {
        block_on(self.server.memory.topic(stream, topic)).unwrap().unwrap().topic
    }

    /// Another gateway in front of the same server.
    fn other(&self) -> Arc<IggyStore> {
        let store = open(IggyConfig { instance: 1, ..self.server.config() });
        block_on(store.topics()).unwrap();
        store
    }

    /// The records of the journal, each with its offset.
    fn journal(&self) -> (PartitionRef, Vec<(u64, serde_json::Value)>) {
        let at = self.on_server("gateway", "engine").partition(0);
        let Bounds { start, .. } = block_on(self.server.memory.bounds(&at)).unwrap();
        let entries = block_on(self.server.memory.read(&at, start, ALL)).unwrap();
        let records = entries.iter().flat_map(|entry| {
            let frames = (entry.base_offset..).zip(Frames::new(&entry.frames));
            let json = frames.map(|(offset, frame)| (offset, serde_json::from_slice(&frame.payload[1..]).unwrap()));
            json.collect::<Vec<_>>()
        });
        (at, records.collect())
    }
}

fn append(store: &IggyStore, at: &PartitionRef, id: u128) -> u64 {
    block_on(store.append(at, batch_of(&[TestMessage::new(id, b"value")]))).unwrap().base_offset.unwrap()
}

fn epochs(store: &IggyStore, at: &PartitionRef) -> Vec<(u32, u64)> {
    store.epochs(at).starts().iter().map(|begin| (begin.epoch, begin.start)).collect()
}

/// Until it is so, or the test fails.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The end of a partition as it is shown, with the newest epoch; `None` while there is no answer.
fn shown(store: &IggyStore, at: &PartitionRef) -> Option<(u64, u32)> {
    let bounds = block_on(store.bounds(at)).ok()?;
    Some((bounds.end, store.epochs(at).current()))
}

#[test]
fn a_lower_end_is_never_shown_before_its_epoch() {
    let case = Case::new();
    case.lose_tail(2);
    eventually("the lower end is shown", || match shown(&case.store, &case.at) {
        Some((5, 0)) | None => false,
        said => said == Some((2, 1)) || panic!("{said:?}"),
    });
    assert_eq!(epochs(&case.store, &case.at), [(1, 2)]);
    assert_eq!(case.append(7), 2);
    assert_eq!(case.store.metrics().unwrap().end_falls.get(), 1);
    assert!(case.store.epochs(&case.at.topic.partition(1)).starts().is_empty(), "its neighbour did not fall");
}

#[derive(Default)]
struct Falls(Mutex<Vec<(PartitionRef, u64)>>);

impl GrowthWatcher for Falls {
    fn grown(&self, _: &PartitionRef, _: u64, _: usize) {}
    fn deleted(&self, _: &TopicRef) {}
    fn fell(&self, partition: &PartitionRef, end: u64) {
        self.0.lock().push((partition.clone(), end));
    }
}

#[test]
fn an_offset_that_is_given_again_raises_the_epoch_before_anybody_reads_it() {
    let case = Case::new();
    let falls = Arc::new(Falls::default());
    case.store.watch(Arc::clone(&falls) as Arc<dyn GrowthWatcher>);
    case.lose_tail(2);
    assert_eq!(case.append(7), 2);
    assert_eq!(*falls.0.lock(), [(case.at.clone(), 2)]);
    assert_eq!(block_on(case.store.read(&case.at, 2, ALL)).unwrap().len(), 1);
    assert_eq!(epochs(&case.store, &case.at), [(1, 2)]);
    let (_, journal) = case.journal();
    assert_eq!(journal.iter().filter(|(_, record)| record["op"] == "epoch").count(), 1, "it is in the journal");
    assert_eq!(shown(&case.store, &case.at), Some((3, 1)));
}

#[test]
fn an_end_that_falls_while_no_gateway_runs_is_noticed_after_a_clean_stop() {
    let case = Case::new();
    block_on(case.store.close()).unwrap();
    case.lose_tail(3);
    let store = case.server.open();
    let info = block_on(store.topic("kafka", "orders")).unwrap().unwrap();
    eventually("the fall is noticed", || shown(&store, &info.topic.partition(0)) == Some((3, 1)));
}

#[test]
fn an_end_that_falls_after_a_gateway_was_killed_is_noticed_once_it_was_written_down() {
    let case = Case::new();
    eventually("the end is written down", || case.journal().1.iter().any(|(_, record)| record["op"] == "ends"));
    let Case { server, store, at } = case;
    drop(store);
    let topic = block_on(server.memory.topic("kafka", "orders")).unwrap().unwrap().topic;
    server.memory.lose_tail(&topic.partition(0), 3);
    let store = server.open();
    block_on(store.topics()).unwrap();
    eventually("the fall is noticed", || shown(&store, &at) == Some((3, 1)));
}

#[test]
fn an_end_that_stands_is_no_fall_after_a_restart() {
    let case = Case::new();
    block_on(case.store.close()).unwrap();
    let store = case.server.open();
    block_on(store.topics()).unwrap();
    assert_eq!(shown(&store, &case.at), Some((5, 0)));
    assert_eq!(append(&store, &case.at, 9), 5);
    assert_eq!(shown(&store, &case.at), Some((6, 0)));
}

#[test]
fn a_purge_begins_an_epoch_at_the_first_offset() {
    let case = Case::new();
    block_on(case.store.trim(&case.at, 4)).unwrap();
    // What a purge leaves of a topic on Iggy's server.
    case.lose_tail(0);
    assert_eq!(case.append(7), 0);
    assert_eq!(shown(&case.store, &case.at), Some((1, 1)));
    assert_eq!(epochs(&case.store, &case.at), [(1, 0)]);
    assert_eq!(block_on(case.store.bounds(&case.at)).unwrap().start, 0, "and the trim point is void");
    let other = case.other();
    assert_eq!(block_on(other.bounds(&case.at)).unwrap(), Bounds { start: 0, end: 1 });
}

#[test]
fn a_topic_that_is_created_again_begins_at_epoch_0() {
    let case = Case::new();
    case.lose_tail(2);
    case.append(7);
    assert_eq!(shown(&case.store, &case.at), Some((3, 1)));
    block_on(case.store.delete_topic(&case.at.topic)).unwrap();
    let again = block_on(case.store.create_topic("kafka", "orders", 2, &TopicSettings::default())).unwrap().topic;
    assert_eq!(shown(&case.store, &again.partition(0)), Some((0, 0)));
}

#[test]
fn all_gateways_show_the_same_epochs() {
    let case = Case::new();
    let other = case.other();
    assert_eq!(shown(&other, &case.at), Some((5, 0)));
    case.lose_tail(2);
    assert_eq!(case.append(7), 2);
    assert_eq!(shown(&case.store, &case.at), Some((3, 1)));
    // The other one hears of it from the journal, before or after it sees the lower end, and raises nothing again.
    assert_eq!(append(&other, &case.at, 8), 3);
    block_on(other.topics()).unwrap();
    assert_eq!(shown(&other, &case.at), Some((4, 1)));
    assert_eq!(epochs(&other, &case.at), [(1, 2)]);
    block_on(case.store.topics()).unwrap();
    // Ends may be some milliseconds old.
    eventually("the other one's message is seen", || shown(&case.store, &case.at) == Some((4, 1)));
    let third = case.other();
    assert_eq!((shown(&third, &case.at), epochs(&third, &case.at)), (Some((4, 1)), vec![(1, 2)]));
}

#[test]
fn a_fall_that_two_gateways_see_at_once_is_one() {
    let case = Case::new();
    let other = case.other();
    assert_eq!(shown(&other, &case.at), Some((5, 0)));
    case.lose_tail(2);
    std::thread::scope(|scope| {
        for store in [&case.store, &other] {
            scope.spawn(|| eventually("the fall is seen", || shown(store, &case.at) == Some((2, 1))));
        }
    });
    for store in [&case.store, &other] {
        block_on(store.topics()).unwrap();
        assert_eq!(epochs(store, &case.at), [(1, 2)]);
    }
}

#[test]
fn a_gateway_that_starts_from_a_snapshot_knows_what_the_whole_journal_says() {
    let case = Case::with(|config| config.snapshot_behind_bytes = 2_000);
    case.lose_tail(2);
    case.append(7);
    assert_eq!(shown(&case.store, &case.at), Some((3, 1)));
    block_on(case.store.trim(&case.at, 1)).unwrap();
    let settings = |messages| TopicSettings { flush_messages: Some(messages), ..TopicSettings::default() };
    for messages in 0..30 {
        block_on(case.store.update_settings(&case.at.topic, &settings(messages))).unwrap();
    }
    let snapshot = || case.journal().1.into_iter().find(|(_, record)| record["op"] == "snapshot");
    eventually("a snapshot is written", || snapshot().is_some());
    block_on(case.store.update_settings(&case.at.topic, &settings(99))).unwrap();
    let covers = snapshot().unwrap().1["covers"].as_u64().unwrap();
    assert!(covers > 30);
    let (journal, _) = case.journal();
    block_on(case.server.memory.trim(&journal, covers)).unwrap();
    let other = case.other();
    let info = block_on(other.topic("kafka", "orders")).unwrap().unwrap();
    assert_eq!(info.settings, settings(99));
    assert_eq!(block_on(other.bounds(&case.at)).unwrap(), Bounds { start: 1, end: 3 });
    assert_eq!(epochs(&other, &case.at), [(1, 2)]);
    block_on(case.store.topics()).unwrap();
    assert_eq!(epochs(&case.store, &case.at), [(1, 2)], "and one that runs goes on");
}
