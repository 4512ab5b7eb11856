//! Appends whose outcome the store lost.

use std::time::Duration;

use milena_store::Store;
use milena_store::testing::Fault;
use tokio::time::{Instant, sleep};

use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::testing::{FIRST_IS_UNDER_WAY, TestServer, batch, plain, prepared};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_batch_that_landed_is_found_at_once_and_answered() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let begun = Instant::now();
    server.store.plan(Fault::InDoubtApplied);
    assert_eq!(server.send(batch(id, 0, 3)).await, Ok(0));
    assert!(begun.elapsed() < SECOND);
    assert_eq!(server.send(batch(id, 3, 1)).await, Ok(3));
    assert_eq!(server.sequences(id).await, [0, 1, 2, 3]);
    assert_eq!(server.produce.metrics().in_doubt.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_did_not_land_is_sent_again_after_the_grace_period() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let begun = Instant::now();
    server.store.plan(Fault::InDoubtLost);
    assert_eq!(server.send(batch(id, 0, 3)).await, Ok(0));
    assert!(begun.elapsed() >= 2 * SECOND, "a request that was cut off can sit in a queue");
    assert!(begun.elapsed() < 3 * SECOND);
    assert_eq!(server.sequences(id).await, [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_lands_within_the_grace_period_is_stored_once() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.store.plan(Fault::InDoubtLate { appends: 9 });
    let (answer, ()) = tokio::join!(server.send(batch(id, 0, 2)), async {
        tokio::time::sleep(SECOND).await;
        server.store.land_late();
    });
    assert_eq!(answer, Ok(0));
    assert_eq!(server.sequences(id).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_outlives_the_request_is_resolved_by_the_next_batch() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    server.store.plan(Fault::InDoubtLate { appends: 9 });
    assert_eq!(server.send_within(batch(id, 1, 1), SECOND).await, Err(AppendError::TimedOut));
    server.store.land_late();
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(2), "the batch in doubt has landed, so this one follows it");
    assert_eq!(server.send(batch(id, 1, 1)).await, Ok(1));
    assert_eq!(server.sequences(id).await, [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_batch_behind_one_that_did_not_land_is_out_of_sequence() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    server.store.plan(Fault::InDoubtLost);
    assert_eq!(server.send_within(batch(id, 1, 1), SECOND).await, Err(AppendError::TimedOut));
    assert_eq!(server.send(batch(id, 2, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(batch(id, 1, 1)).await, Ok(1));
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_doubt_closes_the_partition_to_its_producer_only() {
    let server = TestServer::start().await;
    let (lost, other) = (server.producer().await, server.producer().await);
    server.store.plan(Fault::InDoubtLost);
    let (first, (second, waited)) = tokio::join!(server.send(batch(lost, 0, 1)), async {
        sleep(FIRST_IS_UNDER_WAY).await;
        let begun = Instant::now();
        (server.send(batch(other, 0, 1)).await, begun.elapsed())
    });
    assert_eq!(second, Ok(0));
    assert!(waited < SECOND);
    assert_eq!(first, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_lands_after_the_grace_period_is_counted() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    // The first attempt lands right before the second one, long after it was given up.
    server.store.plan(Fault::InDoubtLate { appends: 0 });
    assert_eq!(server.send(batch(id, 0, 2)).await, Ok(2));
    assert_eq!(server.produce.metrics().doubled.get(), 1);
    assert_eq!(server.send(batch(id, 0, 2)).await, Ok(2));
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn a_new_epoch_in_doubt_counts_only_when_it_landed() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let in_epoch = |epoch, first| Batch { epoch, ..batch(id, first, 1) };
    server.send(in_epoch(0, 0)).await.unwrap();
    server.store.plan(Fault::InDoubtLost);
    assert_eq!(server.send_within(in_epoch(1, 0), SECOND).await, Err(AppendError::TimedOut));
    assert_eq!(server.send(in_epoch(0, 1)).await, Ok(1), "the epoch has not begun");
    server.store.plan(Fault::InDoubtApplied);
    assert_eq!(server.send(in_epoch(1, 0)).await, Ok(2));
    assert_eq!(server.send(in_epoch(0, 2)).await, Err(AppendError::OldEpoch));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_never_returns_holds_its_producer_and_nobody_else() {
    let server = TestServer::start().await;
    let (stuck, other) = (server.producer().await, server.producer().await);
    server.store.plan(Fault::Hangs { applied: true });
    assert_eq!(server.send_within(batch(stuck, 0, 1), SECOND).await, Err(AppendError::TimedOut));
    assert_eq!(server.send_within(batch(stuck, 0, 1), SECOND).await, Err(AppendError::TimedOut));
    assert_eq!(server.send(batch(other, 0, 1)).await, Ok(1));
    assert_eq!(server.sequences(stuck).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn an_append_without_a_producer_that_never_returns_is_given_up_in_time() {
    let server = TestServer::start().await;
    server.store.plan(Fault::Hangs { applied: false });
    let stuck = server.produce.append(&server.at, plain(1, 1), Instant::now() + SECOND).await;
    assert_eq!(stuck.err(), Some(AppendError::TimedOut));
    let next = server.produce.append(&server.at, plain(2, 1), Instant::now() + SECOND).await;
    assert_eq!(next.unwrap().base_offset, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_does_not_take_its_append_back() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.store.plan(Fault::InDoubtApplied);
    let gone = tokio::time::timeout(Duration::ZERO, server.send(batch(id, 0, 2))).await;
    assert!(gone.is_err());
    assert_eq!(server.send(batch(id, 0, 2)).await, Ok(0));
    assert_eq!(server.sequences(id).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_the_store_does_not_tell_is_found_in_the_log() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 2)).await.unwrap();
    server.store.plan(Fault::NoOffset);
    assert_eq!(server.send(batch(id, 2, 2)).await, Ok(2));
    assert_eq!(server.send(batch(id, 2, 2)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_producer_is_recognised_by_its_message_ids() {
    let server = TestServer::start().await;
    for (fault, id) in [(Fault::InDoubtApplied, 10), (Fault::InDoubtLost, 20), (Fault::NoOffset, 30)] {
        server.store.plan(fault);
        let deadline = Instant::now() + 5 * SECOND;
        let end = server.store.bounds(&server.at).await.unwrap().end;
        let stored = server.produce.append(&server.at, plain(id, 2), deadline).await.unwrap();
        assert_eq!(stored.base_offset, Some(end), "{fault:?}");
    }
    assert_eq!(server.ids().await, [10, 11, 20, 21, 30, 31]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_producer_that_stays_in_doubt_times_out() {
    let server = TestServer::start().await;
    server.store.plan(Fault::InDoubtLost);
    let answer = server.produce.append(&server.at, plain(1, 1), Instant::now() + SECOND).await;
    assert_eq!(answer, Err(AppendError::TimedOut));
    assert!(server.ids().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_trim_past_a_batch_in_doubt_leaves_it_unfound() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.store.plan(Fault::InDoubtLate { appends: 9 });
    assert_eq!(server.send_within(batch(id, 0, 1), SECOND).await, Err(AppendError::TimedOut));
    server.store.land_late();
    server.store.trim(&server.at, 1).await.unwrap();
    // Nothing can tell that it landed: it is written once more, as any unknown batch is.
    assert_eq!(server.send(batch(id, 0, 1)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_ends_the_search() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.store.plan(Fault::InDoubtLost);
    let (answer, ()) = tokio::join!(server.send(batch(id, 0, 1)), async {
        tokio::time::sleep(SECOND).await;
        server.store.delete_topic(&server.at.topic).await.unwrap();
    });
    assert!(matches!(answer, Err(AppendError::Store(milena_store::StoreError::NotFound { .. }))));
    let _ = prepared(batch(id, 0, 1));
}
