//! Records that the store lost although it had acknowledged them: noticed late, told wrongly, or while something is asked.

use std::sync::Arc;

use futures_util::FutureExt;
use milena_store::testing::{Fault, Layer, Layered, MemoryStore};
use milena_store::{
    AppendBatch, Appended, Entry, GrowthWatcher, PartitionRef, ReadLimit, Store, StoreError, StoreFuture,
};
use parking_lot::Mutex;

use crate::produce::ProduceSettings;
use crate::produce::append::AppendError;
use crate::produce::testing::{TestServer, batch, open_over, prepared, settings};

/// What happens once, behind the next call and before its answer is taken in.
type Event = Mutex<Option<Box<dyn FnOnce() + Send>>>;

struct Meanwhile {
    below: MemoryStore,
    on_read: Event,
    on_append: Event,
}

impl Layer for Meanwhile {
    fn below(&self) -> &dyn Store {
        &self.below
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let read = self.below.read(at, from, limit).await;
            happen(&self.on_read, at);
            read
        })
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
            let appended = self.below.append(at, batch).await;
            happen(&self.on_append, at);
            appended
        })
    }
}

fn happen(event: &Event, at: &PartitionRef) {
    let event = if at.topic.stream() == "kafka" { event.lock().take() } else { None };
    if let Some(event) = event {
        event();
    }
}

/// A gateway beside that one, which hears of falls.
async fn beside(one: &TestServer) -> (Arc<Layered<Meanwhile>>, TestServer) {
    let below = one.store.clone();
    let store = Arc::new(Layered(Meanwhile { below, on_read: Event::default(), on_append: Event::default() }));
    let mut server = TestServer::beside(one, 1).await;
    server.produce = open_over(Arc::clone(&store) as Arc<dyn Store>, &server.settings, 1).await;
    server.store.watch(Arc::new(server.produce.clone()));
    (store, server)
}

async fn two(settings: ProduceSettings) -> (TestServer, TestServer) {
    let mut servers = TestServer::several_with(2, settings).await.into_iter();
    (servers.next().unwrap(), servers.next().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_record_that_another_one_replaced_is_stored_again_although_the_fall_was_told_from_behind_it() {
    let (one, two) = two(settings()).await;
    let (other, lost) = (one.producer().await, one.producer().await);
    one.send(batch(other, 0, 8)).await.unwrap();
    assert_eq!(one.send(batch(lost, 0, 1)).await, Ok(8));
    one.send(batch(other, 8, 1)).await.unwrap();
    one.store.lose_tail(&one.at, 8);
    let theirs = two.producer().await;
    assert_eq!(two.send(batch(theirs, 0, 1)).await, Ok(8));
    assert_eq!(two.send(batch(theirs, 1, 1)).await, Ok(9));
    one.produce.fell(&one.at, 9);
    assert_eq!(one.send(batch(lost, 0, 1)).await, Ok(10));
    assert_eq!(one.send(batch(other, 9, 1)).await, Ok(11), "its record is gone, and it may go on behind it");
    assert_eq!(one.sequences(lost).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_fall_is_not_taken_for_what_is_there() {
    let (one, _) = two(settings()).await;
    let id = one.producer().await;
    for sequence in 0..6 {
        one.send(batch(id, sequence, 1)).await.unwrap();
    }
    let other = one.producer().await;
    let (store, two) = beside(&one).await;
    let (below, at) = (one.store.clone(), one.at.clone());
    *store.on_read.lock() = Some(Box::new(move || {
        below.lose_tail(&at, 5);
        // The end is where it was.
        below.append(&at, prepared(batch(other, 0, 1)).batch).now_or_never().unwrap().unwrap();
    }));
    assert_eq!(two.send(batch(id, 5, 1)).await, Ok(6));
    assert_eq!(two.sequences(id).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(two.send(batch(id, 6, 1)).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_was_confirmed_and_lost_at_once_is_sent_again() {
    let (one, _) = two(settings()).await;
    let id = one.producer().await;
    let (store, two) = beside(&one).await;
    two.send(batch(id, 0, 3)).await.unwrap();
    let (below, at) = (one.store.clone(), one.at.clone());
    *store.on_append.lock() = Some(Box::new(move || below.lose_tail(&at, 3)));
    assert_eq!(two.send(batch(id, 3, 1)).await, Ok(3));
    assert_eq!(two.sequences(id).await, [0, 1, 2, 3]);
    // One that landed behind the fall is there.
    let (at, watcher) = (one.at.clone(), two.produce.clone());
    *store.on_append.lock() = Some(Box::new(move || watcher.fell(&at, 4)));
    assert_eq!(two.send(batch(id, 4, 1)).await, Ok(4));
    assert_eq!(two.sequences(id).await, [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_wrote_elsewhere_before_a_fall_and_too_far_back_is_accepted() {
    let (one, two) = two(ProduceSettings { tail_messages: 64, ..settings() }).await;
    one.store.watch(Arc::new(one.produce.clone()));
    let (id, other) = (one.producer().await, one.producer().await);
    one.send(batch(id, 0, 10)).await.unwrap();
    two.send(batch(id, 10, 90)).await.unwrap();
    for turn in 0..200 {
        two.send(batch(other, turn, 1)).await.unwrap();
    }
    one.store.lose_tail(&one.at, 299);
    assert_eq!(one.send(batch(id, 100, 1)).await, Ok(299));
    assert_eq!(one.send(batch(id, 100, 1)).await, Ok(299), "from then on it is known");
    assert_eq!(one.send(batch(id, 102, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(one.send(batch(other, 199, 1)).await, Ok(300), "and what was lost is stored again");
}

#[tokio::test(start_paused = true)]
async fn a_producer_of_a_long_log_goes_on_behind_what_it_lost() {
    let (one, _) = two(ProduceSettings { tail_messages: 64, ..settings() }).await;
    one.store.watch(Arc::new(one.produce.clone()));
    let (id, other) = (one.producer().await, one.producer().await);
    one.send(batch(id, 0, 1)).await.unwrap();
    for turn in 0..200 {
        one.send(batch(other, turn, 1)).await.unwrap();
    }
    one.store.lose_tail(&one.at, 199);
    assert_eq!(one.send(batch(other, 200, 1)).await, Ok(199));
    assert_eq!(one.send(batch(other, 202, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(one.send(batch(id, 0, 1)).await, Ok(0), "of what was known before the fall all is known");
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_doubt_is_found_where_a_lost_record_lay_and_nothing_tells_of_the_loss() {
    let server = TestServer::start().await;
    let (id, other) = (server.producer().await, server.producer().await);
    server.send(batch(other, 0, 5)).await.unwrap();
    server.send(batch(id, 0, 1)).await.unwrap();
    server.store.lose_tail(&server.at, 5);
    server.store.plan(Fault::InDoubtApplied);
    assert_eq!(server.send(batch(other, 5, 1)).await, Ok(5));
    assert_eq!(server.sequences(other).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(server.send(batch(other, 5, 1)).await, Ok(5));
    assert_eq!(server.send(batch(other, 6, 1)).await, Ok(6));
}

#[tokio::test(start_paused = true)]
async fn where_all_is_lost_a_producer_goes_on_anywhere_and_is_known_from_there_on() {
    for records in [1, 15] {
        let server = TestServer::start().await;
        server.store.watch(Arc::new(server.produce.clone()));
        let id = server.producer().await;
        server.send(batch(id, 50, 5)).await.unwrap();
        server.store.lose_tail(&server.at, 0);
        assert_eq!(server.send(batch(id, 40, records)).await, Ok(0));
        assert_eq!(server.send(batch(id, 40, records)).await, Ok(0), "a repeat of it");
        let next = 40 + records;
        assert_eq!(server.send(batch(id, next + 1, 1)).await, Err(AppendError::OutOfSequence));
        assert_eq!(server.send(batch(id, next, 1)).await, Ok(u64::from(records)));
        assert_eq!(server.sequences(id).await, (40..=next).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn within_what_was_lost_a_batch_that_was_refused_is_not_overtaken() {
    let server = TestServer::start().await;
    server.store.watch(Arc::new(server.produce.clone()));
    let id = server.producer().await;
    for sequence in 0..6 {
        server.send(batch(id, sequence, 1)).await.unwrap();
    }
    server.store.lose_tail(&server.at, 4);
    server.store.plan(Fault::Busy);
    let refused = server.send(batch(id, 4, 1)).await;
    assert!(matches!(refused, Err(AppendError::Store(StoreError::Busy { .. }))));
    assert_eq!(server.send(batch(id, 5, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(batch(id, 4, 1)).await, Ok(4));
    assert_eq!(server.send(batch(id, 5, 1)).await, Ok(5));
    assert_eq!(server.sequences(id).await, [0, 1, 2, 3, 4, 5]);
}
