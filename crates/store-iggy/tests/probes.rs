//! Messages of other writers are looked for, and announced to whoever waits.
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

use common::{RUNTIME, open};
use door::TestServer;
use iggy::prelude::{Identifier, MessageClient, Partitioning, TcpClient};
use iggy_binary_protocol::codes::GET_TOPIC_CODE;
use iggy_common::IggyMessage;
use milena_iggy_door::faults::{Fault, On};
use milena_store::frame::Frames;
use milena_store::{GrowthWatcher, PartitionRef, ReadLimit, Store, TopicRef, TopicSettings};
use milena_store_iggy::{IggyConfig, IggyStore};
use parking_lot::Mutex;
use pollster::block_on;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Far longer than anything here may take, so that a test tells the end of a call from that of a look.
const CALL_TIMEOUT: Duration = Duration::from_secs(28);

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Recorder(Mutex<Vec<(PartitionRef, u64)>>);

impl GrowthWatcher for Recorder {
    fn grown(&self, partition: &PartitionRef, end: u64, _bytes: usize) {
        self.0.lock().push((partition.clone(), end));
    }

    fn deleted(&self, _topic: &TopicRef) {}
}

/// A gateway whose fetches wait for messages in five topics, and somebody else who writes them.
struct Case {
    server: TestServer,
    store: Arc<IggyStore>,
    recorder: Arc<Recorder>,
    topics: Vec<PartitionRef>,
    native: TcpClient,
}

impl Case {
    fn new() -> Self {
        let server = TestServer::new();
        let store = open(IggyConfig { call_timeout: CALL_TIMEOUT, ..server.config() });
        let recorder = Arc::new(Recorder::default());
        store.watch(Arc::clone(&recorder) as Arc<dyn GrowthWatcher>);
        let create = |name: &&str| block_on(store.create_topic("kafka", name, 1, &TopicSettings::default())).unwrap();
        let topics: Vec<_> = NAMES.iter().map(|name| create(name).topic.partition(0)).collect();
        let native = server.native();
        for at in &topics {
            assert_eq!(block_on(store.bounds(at)).unwrap().end, 0);
        }
        Self { server, store, recorder, topics, native }
    }

    /// That many of the next questions about a topic are not answered.
    fn swallow(&self, questions: usize) {
        let left = || self.server.door.lock().as_ref().unwrap().faults().left();
        for _ in 0..questions {
            self.server.door.lock().as_ref().unwrap().faults().plan(On::Code(GET_TOPIC_CODE), Fault::SwallowReply);
        }
        eventually("they are asked", || left() == 0);
    }

    /// Somebody else writes a message to each topic.
    fn write(&self) {
        for name in NAMES {
            let mut messages = vec![IggyMessage::from("foreign")];
            let named = |name| Identifier::named(name).unwrap();
            let (stream, topic, partition) = (named("kafka"), named(name), Partitioning::partition_id(0));
            RUNTIME.block_on(self.native.send_messages(&stream, &topic, &partition, &mut messages)).unwrap();
        }
    }

    /// In how many topics the message is announced.
    fn told(&self) -> usize {
        let heard = self.recorder.0.lock();
        self.topics.iter().filter(|at| heard.contains(&((*at).clone(), 1))).count()
    }
}

/// Until it is so, or the test fails.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_somebody_else_writes_is_announced_while_an_end_is_of_interest() {
    let case = Case::new();
    case.write();
    eventually("the watcher hears of it", || case.told() == NAMES.len());
    let limit = ReadLimit { bytes: usize::MAX, at_least_one: true };
    let entries = block_on(case.store.read(&case.topics[0], 0, limit)).unwrap();
    assert_eq!(Frames::new(&entries[0].frames).next().unwrap().payload, b"foreign");
}

#[test]
fn a_topic_that_the_server_does_not_answer_about_holds_up_no_other() {
    let case = Case::new();
    // Whichever is asked about next.
    case.swallow(1);
    let asked = Instant::now();
    case.write();
    eventually("the others are looked at", || case.told() >= NAMES.len() - 1);
    assert!(asked.elapsed() < CALL_TIMEOUT / 2, "an answer is waited for {CALL_TIMEOUT:?}: {:?}", asked.elapsed());
    eventually("and that one, later", || case.told() == NAMES.len());
}

#[test]
fn topics_without_an_answer_that_take_every_place_give_it_up_long_before_a_call_ends() {
    let case = Case::new();
    // As many as are looked at side by side, and as there are connections for it.
    case.swallow(2);
    let asked = Instant::now();
    case.write();
    eventually("all are looked at", || case.told() == NAMES.len());
    assert!(asked.elapsed() < CALL_TIMEOUT / 2, "an answer is waited for {CALL_TIMEOUT:?}: {:?}", asked.elapsed());
}
