//! Faults that tests of clients plan, seen through the SDK: what is appended, and what the client hears.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{TestDoor, id, poll, seen, send, topic};
use iggy::prelude::*;
use iggy_binary_protocol::consensus::Operation;
use milena_iggy_door::faults::{Fault, On};
use milena_iggy_door::{Door, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::testing::{self, Layer, Layered, MemoryStore, TestMessage, batch_of};
use milena_store::{Store, StoreFuture, TopicInfo, TopicSettings};

const SEND: On = On::Operation(Operation::SendMessages);

async fn with_topic() -> (TestDoor, TcpClient) {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    (door, client)
}

async fn appended(door: &TestDoor) -> usize {
    let client = door.client().await;
    seen(&poll(&client, PollingStrategy::first(), 100).await.unwrap()).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_before_the_append_appends_nothing_and_one_after_it_appends_once() {
    for (fault, expected) in [(Fault::CutBeforeApply, 0), (Fault::CutAfterApply, 1)] {
        let (door, client) = with_topic().await;
        door.door.faults().plan(SEND, fault);
        let error = send(&client, 0, &["x"]).await.unwrap_err();
        assert!(matches!(error, IggyError::Disconnected), "{error}");
        assert_eq!(appended(&door).await, expected);
        assert_eq!(door.door.faults().left(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_answer_comes_late_and_a_swallowed_one_never() {
    let (door, client) = with_topic().await;
    door.door.faults().plan(SEND, Fault::DelayAfter(Duration::from_millis(200)));
    let before = Instant::now();
    send(&client, 0, &["x"]).await.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(200));
    door.door.faults().plan(SEND, Fault::SwallowReply);
    let sending = tokio::time::timeout(Duration::from_millis(300), send(&client, 0, &["y"])).await;
    assert!(sending.is_err(), "{sending:?}");
    assert_eq!(appended(&door).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_codes_are_tried_again_by_the_sdk_and_others_are_not() {
    let (door, client) = with_topic().await;
    for code in [58, 57, 58] {
        door.door.faults().plan(SEND, Fault::Answer(code));
    }
    send(&client, 0, &["x"]).await.unwrap();
    assert_eq!(door.door.faults().left(), 0);
    door.door.faults().plan(On::Operation(Operation::CreateStream), Fault::Answer(1020));
    assert_eq!(client.create_stream("other").await.unwrap_err().as_code(), 1020);
    door.door.faults().plan(On::Code(200), Fault::Answer(41));
    assert_eq!(client.get_stream(&id("s")).await.unwrap_err().as_code(), 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_can_come_without_an_offset() {
    let (door, client) = with_topic().await;
    door.door.faults().plan(SEND, Fault::NoOffset);
    assert!(send(&client, 0, &["x"]).await.unwrap().confirmations.is_empty());
    assert_eq!(appended(&door).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_of_unknown_outcome_closes_the_connection() {
    let (door, client) = with_topic().await;
    door.memory.plan(testing::Fault::InDoubtApplied);
    let error = send(&client, 0, &["x"]).await.unwrap_err();
    assert!(matches!(error, IggyError::Disconnected), "{error}");
    assert_eq!(appended(&door).await, 1, "and it is not sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_can_lose_the_tail_that_a_real_server_had_not_written_and_offsets_are_given_again() {
    let (door, client) = with_topic().await;
    send(&client, 0, &["a", "b", "c"]).await.unwrap();
    send(&client, 0, &["d"]).await.unwrap();
    client.disconnect().await.unwrap();
    let topic = Store::topic(&door.memory, "s", "t").await.unwrap().unwrap().topic;
    door.memory.lose_tail(&topic.partition(0), 3);
    let door = door.reopen().await;
    let client = door.client().await;
    assert_eq!(client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap().messages_count, 3);
    assert_eq!(send(&client, 0, &["e"]).await.unwrap().confirmations[0].base_offset, 3);
}

/// Once others have appended, an offset behind the messages that are gone looks like one that was read up to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_behind_what_a_restart_lost_move_back_before_anybody_can_append() {
    let (door, client) = with_topic().await;
    for payload in ["a", "b", "c"] {
        send(&client, 0, &[payload]).await.unwrap();
    }
    let who = Consumer::new(id("c"));
    client.store_consumer_offset(&who, &id("s"), &id("t"), Some(0), 2).await.unwrap();
    client.disconnect().await.unwrap();
    door.door.shutdown().await;
    let at = Store::topic(&door.memory, "s", "t").await.unwrap().unwrap().topic.partition(0);
    door.memory.lose_tail(&at, 1);
    let store: Arc<dyn Store> = Arc::new(door.memory.again());
    let closed = Box::pin(Door::prepare(door.config, Arc::clone(&store))).await.unwrap();
    for _ in 0..5 {
        store.append(&at, batch_of(&[TestMessage::new(1, b"new")])).await.unwrap();
    }
    let admin: Arc<dyn TopicAdmin> = Arc::new(store);
    let door = Box::pin(closed.open(admin, Arc::new(Memory::new(1 << 20)))).await.unwrap();
    let client = common::client_of(door.address()).await;
    let stored = client.get_consumer_offset(&who, &id("s"), &id("t"), Some(0)).await.unwrap().unwrap();
    assert_eq!((stored.stored_offset, stored.current_offset), (0, 5), "what came in their place is to be read");
}

/// Creates topics that are gone before they can be described.
struct Fleeting(Arc<dyn Store>);

impl Layer for Fleeting {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        Box::pin(async move {
            let info = self.0.create_topic(stream, topic, partitions, settings).await?;
            self.0.delete_topic(&info.topic).await?;
            Ok(info)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_created_and_cannot_be_described_is_not_answered_as_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let fleeting: Arc<dyn Store> = Arc::new(Layered(Fleeting(Arc::clone(&store))));
    let admin = Arc::new(fleeting);
    let budget = Arc::new(milena_server::memory::Memory::new(1 << 20));
    let door = Box::pin(milena_iggy_door::Door::open(common::config(), store, admin, budget)).await.unwrap();
    let client = common::client_of(door.address()).await;
    client.create_stream("s").await.unwrap();
    let error = client.create_topic(&id("s"), "t", &TopicCreateOptions::default()).await.unwrap_err();
    assert!(matches!(error, IggyError::Disconnected), "{error}");
}
