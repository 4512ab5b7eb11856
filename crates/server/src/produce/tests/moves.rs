//! Producers that move between gateways of one store.

use std::sync::Arc;
use std::time::Duration;

use milena_store::testing::{Fault, Layer, Layered, MemoryStore, TestMessage, batch_of};
use milena_store::{Bounds, Capabilities, PartitionRef, Store, StoreFuture};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::produce::ProduceSettings;
use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::testing::{TestServer, batch, open_over, plain, prepared, settings};

const SOON: Duration = Duration::from_secs(1);

async fn two() -> (TestServer, TestServer) {
    let mut servers = TestServer::several(2).await.into_iter();
    (servers.next().unwrap(), servers.next().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_comes_back_goes_on_where_it_was_elsewhere() {
    let (one, two) = two().await;
    let id = one.producer().await;
    for turn in 0..6 {
        assert_eq!(one.send(batch(id, turn * 6, 3)).await, Ok(u64::from(turn) * 6));
        assert_eq!(two.send(batch(id, turn * 6 + 3, 3)).await, Ok(u64::from(turn) * 6 + 3));
    }
    assert_eq!(one.sequences(id).await, (0..36).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_retry_through_a_gateway_that_knew_its_producer_before_is_stored_once() {
    let (one, two) = two().await;
    let id = one.producer().await;
    one.send(batch(id, 0, 3)).await.unwrap();
    assert_eq!(two.send(batch(id, 3, 3)).await, Ok(3));
    assert_eq!(one.send(batch(id, 3, 3)).await, Ok(3), "it was the next one here");
    assert_eq!(one.send(batch(id, 6, 1)).await, Ok(6));
    assert_eq!(two.send(batch(id, 6, 1)).await, Ok(6));
    assert_eq!(two.send(batch(id, 0, 3)).await, Ok(0));
    assert_eq!(one.sequences(id).await, (0..7).collect::<Vec<_>>());
    assert_eq!((one.produce.metrics().duplicates.get(), two.produce.metrics().duplicates.get()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_overtakes_a_failed_one_is_refused_wherever_it_goes() {
    let (one, two) = two().await;
    let id = one.producer().await;
    one.send(batch(id, 0, 1)).await.unwrap();
    one.store.plan(Fault::Busy);
    assert!(one.send(batch(id, 1, 1)).await.is_err());
    assert_eq!(two.send(batch(id, 2, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(one.send(batch(id, 2, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(two.send(batch(id, 1, 1)).await, Ok(1));
    assert_eq!(one.send(batch(id, 2, 1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_newer_epoch_that_wrote_elsewhere_counts_here() {
    let (one, two) = two().await;
    let id = one.producer().await;
    let in_epoch = |epoch, first| Batch { epoch, ..batch(id, first, 2) };
    one.send(in_epoch(0, 0)).await.unwrap();
    two.send(in_epoch(1, 0)).await.unwrap();
    assert_eq!(one.send(in_epoch(0, 2)).await, Err(AppendError::OldEpoch));
    assert_eq!(one.send(in_epoch(1, 2)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_hangs_at_one_gateway_and_landed_is_found_by_the_other() {
    let (one, two) = two().await;
    let id = one.producer().await;
    one.send(batch(id, 0, 3)).await.unwrap();
    one.store.plan(Fault::Hangs { applied: true });
    assert_eq!(one.send_within(batch(id, 3, 3), SOON).await, Err(AppendError::TimedOut));
    assert_eq!(two.send(batch(id, 3, 3)).await, Ok(3));
    assert_eq!(two.send(batch(id, 6, 3)).await, Ok(6));
    assert_eq!(two.sequences(id).await, (0..9).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_a_tail_held_before_its_id_was_known_is_known_when_it_comes() {
    let (one, two) = two().await;
    let (ours, theirs) = (one.producer().await, two.producer().await);
    one.send(batch(ours, 0, 1)).await.unwrap();
    two.send(batch(theirs, 0, 3)).await.unwrap();
    // Reads what the other one stored, whose block of ids was taken after this gateway had started.
    one.send(batch(ours, 1, 1)).await.unwrap();
    assert_eq!(one.send(batch(theirs, 0, 3)).await, Ok(1));
    assert_eq!(one.send(batch(theirs, 9, 1)).await, Err(AppendError::OutOfSequence));
}

#[tokio::test(start_paused = true)]
async fn batches_of_both_gateways_at_once_leave_each_producer_in_order() {
    let (one, two) = two().await;
    let ids = [one.producer().await, two.producer().await, one.producer().await];
    for turn in 0..10 {
        let sends = ids.iter().enumerate().map(|(index, id)| {
            let there = if (index + turn as usize).is_multiple_of(2) { &one } else { &two };
            there.send(batch(*id, turn * 2, 2))
        });
        for sent in futures_util::future::join_all(sends).await {
            sent.unwrap();
        }
    }
    for id in ids {
        assert_eq!(one.sequences(id).await, (0..20).collect::<Vec<_>>());
    }
    assert_eq!((one.produce.metrics().doubled.get(), two.produce.metrics().doubled.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_two_gateways_store_at_the_same_time_is_counted_as_doubled() {
    let (one, two) = two().await;
    let id = one.producer().await;
    one.send(batch(id, 0, 1)).await.unwrap();
    two.send(batch(id, 1, 1)).await.unwrap();
    one.send(batch(id, 2, 1)).await.unwrap();
    // The race that remains: neither of the two can see the other's append before it sent its own.
    let (first, second) = tokio::join!(one.send(batch(id, 3, 2)), two.send(batch(id, 3, 2)));
    assert_ne!(first.unwrap(), second.unwrap());
    assert_eq!(one.send(batch(id, 5, 1)).await, Ok(7));
    assert_eq!(two.send(batch(id, 6, 1)).await, Ok(8), "and both go on behind it");
    assert_eq!(one.produce.metrics().doubled.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn more_than_the_bound_of_others_messages_makes_producers_unknown_and_not_refused() {
    let bounded = ProduceSettings { tail_messages: 64, ..settings() };
    let mut servers = TestServer::several_with(2, bounded).await.into_iter();
    let (one, two) = (servers.next().unwrap(), servers.next().unwrap());
    let (id, other) = (one.producer().await, one.producer().await);
    one.send(batch(id, 0, 1)).await.unwrap();
    two.send(batch(id, 1, 1)).await.unwrap();
    for turn in 0..200 {
        two.send(batch(other, turn, 1)).await.unwrap();
    }
    assert_eq!(one.send(batch(id, 2, 1)).await, Ok(202), "what it did elsewhere lies too far back");
    assert_eq!(one.produce.metrics().unknown_producers.get(), 1);
    assert_eq!(one.send(batch(other, 199, 1)).await, Ok(201), "who wrote last is known");
}

#[tokio::test(start_paused = true)]
async fn what_native_writers_append_between_is_no_reason_to_refuse() {
    let (one, _) = two().await;
    let id = one.producer().await;
    for turn in 0..5 {
        one.send(batch(id, turn, 1)).await.unwrap();
        let native: Vec<_> = (0..100).map(|seed| TestMessage::new(seed << 64, b"native")).collect();
        one.store.append(&one.at, batch_of(&native)).await.unwrap();
    }
    assert_eq!(one.send(batch(id, 4, 1)).await, Ok(404));
    assert_eq!(one.sequences(id).await, [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn records_that_an_engine_lost_may_be_sent_again() {
    let (one, two) = two().await;
    let (id, other) = (one.producer().await, one.producer().await);
    one.send(batch(other, 0, 1)).await.unwrap();
    one.send(batch(id, 0, 1)).await.unwrap();
    two.send(batch(id, 1, 1)).await.unwrap();
    one.send(batch(id, 2, 1)).await.unwrap();
    one.store.lose_tail(&one.at, 2);
    assert_eq!(one.send(batch(id, 1, 1)).await, Ok(2), "and are not answered with an offset that they no longer have");
    assert_eq!(two.send(batch(id, 2, 1)).await, Ok(3));
    assert_eq!(one.send(batch(other, 0, 1)).await, Ok(0), "who lost nothing is known");
}

#[tokio::test(start_paused = true)]
async fn a_producer_whose_records_were_trimmed_before_they_were_read_here_is_accepted_where_it_goes_on() {
    for left in [0, 5] {
        let (one, two) = two().await;
        let (id, other) = (one.producer().await, one.producer().await);
        one.send(batch(id, 0, 10)).await.unwrap();
        two.send(batch(id, 10, 490)).await.unwrap();
        if left > 0 {
            two.send(batch(other, 0, left)).await.unwrap();
        }
        one.store.trim(&one.at, 500).await.unwrap();
        assert_eq!(one.send(batch(id, 500, 1)).await, Ok(500 + u64::from(left)), "{left} records are left");
        assert_eq!(one.send(batch(id, 500, 1)).await, Ok(500 + u64::from(left)));
        assert_eq!(one.send(batch(id, 502, 1)).await, Err(AppendError::OutOfSequence));
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_alone_reads_a_log_once_and_one_of_several_only_what_others_append() {
    let (one, two) = two().await;
    let id = one.producer().await;
    for turn in 0..50 {
        one.send(batch(id, turn, 1)).await.unwrap();
    }
    assert_eq!(one.produce.metrics().tail_reads.get(), 0, "nothing was there when it began");
    two.send(batch(id, 50, 1)).await.unwrap();
    two.send(batch(id, 51, 1)).await.unwrap();
    one.send(batch(id, 52, 1)).await.unwrap();
    let reads = |server: &TestServer| server.produce.metrics().tail_reads.get();
    assert_eq!((reads(&one), reads(&two)), (1, 1));

    let mut alone = TestServer::start().await;
    let id = alone.producer().await;
    alone.send(batch(id, 0, 1)).await.unwrap();
    alone.restart().await;
    for turn in 0..50 {
        alone.send(batch(id, turn, 1)).await.unwrap();
        alone.produce.append(&alone.at, plain(1, 1), Instant::now() + SOON).await.unwrap();
    }
    assert_eq!(reads(&alone), 1);
}

const AGE: Duration = Duration::from_millis(5);

/// Answers about ends are up to 5 ms old, and asking for a new one is counted.
struct Remembers {
    below: MemoryStore,
    last: Mutex<Option<(Instant, Bounds)>>,
    asked: Mutex<u64>,
}

impl Layer for Remembers {
    fn below(&self) -> &dyn Store {
        &self.below
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { bounds_age: AGE, foreign_writers: true, ..self.below.capabilities() }
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        Box::pin(async move {
            if at.topic.stream() != "kafka" {
                return self.below.bounds(at).await;
            }
            if let Some((_, bounds)) = self.last.lock().filter(|(then, _)| then.elapsed() <= AGE) {
                return Ok(bounds);
            }
            let bounds = self.below.bounds(at).await?;
            *self.last.lock() = Some((Instant::now(), bounds));
            *self.asked.lock() += 1;
            Ok(bounds)
        })
    }
}

async fn remembering(one: &TestServer) -> (Arc<Layered<Remembers>>, TestServer) {
    let remembers = Remembers { below: one.store.clone(), last: Mutex::default(), asked: Mutex::default() };
    let store = Arc::new(Layered(remembers));
    let mut server = TestServer::beside(one, 1).await;
    server.produce = open_over(Arc::clone(&store) as Arc<dyn Store>, &server.settings, 1).await;
    (store, server)
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_follows_one_of_another_gateway_is_not_refused_because_an_answer_is_old() {
    let (one, _) = two().await;
    let (_, two) = remembering(&one).await;
    let id = one.producer().await;
    two.send(batch(id, 0, 1)).await.unwrap();
    sleep(AGE * 2).await;
    two.send(batch(id, 1, 1)).await.unwrap();
    sleep(AGE / 5).await;
    // Stored by the other one, and the client knows, before this one asks for the end again.
    one.store.append(&one.at, prepared(batch(id, 2, 1)).batch).await.unwrap();
    assert_eq!(two.send(batch(id, 3, 1)).await, Ok(3));
    assert_eq!(two.send(batch(id, 9, 1)).await, Err(AppendError::OutOfSequence));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_is_served_without_a_pause_costs_no_questions() {
    let (one, _) = two().await;
    let (store, two) = remembering(&one).await;
    let id = one.producer().await;
    two.send(batch(id, 0, 1)).await.unwrap();
    let before = *store.asked.lock();
    for turn in 1..100 {
        sleep(AGE / 2).await;
        two.send(batch(id, turn, 1)).await.unwrap();
    }
    assert_eq!(*store.asked.lock(), before);
    sleep(AGE * 2).await;
    two.send(batch(id, 100, 1)).await.unwrap();
    assert_eq!(*store.asked.lock(), before + 1, "after a pause somebody else may have appended");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_alone_asks_no_more_however_long_it_pauses() {
    let alone = TestServer::start().await;
    let (store, server) = remembering(&alone).await;
    let id = alone.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    let before = *store.asked.lock();
    for turn in 1..50 {
        sleep(AGE * 2).await;
        server.send(batch(id, turn, 1)).await.unwrap();
    }
    assert_eq!(*store.asked.lock(), before);
}
