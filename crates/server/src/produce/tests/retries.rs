//! Retries, gaps and epochs within one process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::testing::{FIRST_IS_UNDER_WAY, TestServer, batch, plain, prepared, settings};
use milena_store::testing::Fault;
use milena_store::{Store, StoreError};

const LAST: u32 = (1 << 31) - 1;

#[tokio::test(start_paused = true)]
async fn a_retried_batch_is_answered_with_its_first_offset_and_stored_once() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    assert_eq!(server.send(batch(id, 0, 3)).await, Ok(0));
    assert_eq!(server.send(batch(id, 3, 2)).await, Ok(3));
    assert_eq!(server.send(batch(id, 3, 2)).await, Ok(3));
    assert_eq!(server.sequences(id).await, [0, 1, 2, 3, 4]);
    assert_eq!(server.produce.metrics().duplicates.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_a_batch_that_is_not_the_last_is_found() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    for first in [0, 10, 20, 30, 40] {
        server.send(batch(id, first, 10)).await.unwrap();
    }
    for first in [0, 10, 20, 30, 40] {
        assert_eq!(server.send(batch(id, first, 10)).await, Ok(u64::from(first)));
    }
    assert_eq!(server.log().await.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_last_five_batches_are_found_when_another_producer_writes_between_them() {
    let server = TestServer::start().await;
    let (one, other) = (server.producer().await, server.producer().await);
    for turn in 0..6 {
        server.send(batch(one, turn * 2, 2)).await.unwrap();
        server.send(batch(other, turn, 1)).await.unwrap();
    }
    for turn in 1..6 {
        assert_eq!(server.send(batch(one, turn * 2, 2)).await, Ok(u64::from(turn) * 3));
    }
    assert_eq!(server.log().await.len(), 18);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_several_batches_joined_or_of_a_part_is_found() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 3)).await.unwrap();
    server.send(batch(id, 3, 3)).await.unwrap();
    assert_eq!(server.send(batch(id, 1, 4)).await, Ok(1));
    assert_eq!(server.send(batch(id, 4, 1)).await, Ok(4));
    assert_eq!(server.send(batch(id, 4, 3)).await, Err(AppendError::OutOfSequence), "one record of it is new");
}

#[tokio::test(start_paused = true)]
async fn sequences_wrap_behind_the_largest() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, LAST - 1, 1)).await.unwrap();
    assert_eq!(server.send(batch(id, LAST, 3)).await, Ok(1));
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(4));
    assert_eq!(server.send(batch(id, LAST, 3)).await, Ok(1));
    assert_eq!(server.send(batch(id, 1, 1)).await, Ok(3));
    assert_eq!(server.sequences(id).await, [LAST - 1, LAST, 0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_refused_while_the_producer_is_known() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 2)).await.unwrap();
    assert_eq!(server.send(batch(id, 3, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_batch_cannot_overtake_the_one_before_it_that_failed() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.store.plan(Fault::Busy);
    let failed = server.send(batch(id, 0, 2)).await;
    assert!(matches!(failed, Err(AppendError::Store(StoreError::Busy { .. }))));
    assert_eq!(server.send(batch(id, 2, 2)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(batch(id, 0, 2)).await, Ok(0));
    assert_eq!(server.send(batch(id, 2, 2)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_newer_epoch_begins_at_sequence_0_and_shuts_the_older_one_out() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let in_epoch = |epoch, first| Batch { epoch, ..batch(id, first, 1) };
    server.send(in_epoch(0, 0)).await.unwrap();
    assert_eq!(server.send(in_epoch(1, 1)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(in_epoch(1, 0)).await, Ok(1));
    assert_eq!(server.send(in_epoch(0, 1)).await, Err(AppendError::OldEpoch));
    assert_eq!(server.send(in_epoch(0, 0)).await, Err(AppendError::OldEpoch));
    assert_eq!(server.send(in_epoch(1, 0)).await, Ok(1));
    assert_eq!(server.send(in_epoch(1, 1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_is_not_known_is_accepted_and_counted() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    assert_eq!(server.send(batch(id, 7, 2)).await, Ok(0));
    assert_eq!(server.produce.metrics().unknown_producers.get(), 1);
    assert_eq!(server.send(batch(id, 7, 2)).await, Ok(0), "from then on it is known");
    assert_eq!(server.send(batch(id, 12, 1)).await, Err(AppendError::OutOfSequence));
}

#[tokio::test(start_paused = true)]
async fn identical_batches_in_flight_share_one_answer() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let sends: Vec<_> = (0..8).map(|_| server.send(batch(id, 0, 2))).collect();
    assert_eq!(futures_util::future::join_all(sends).await, vec![Ok(0); 8]);
    assert_eq!(server.sequences(id).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn batches_of_one_producer_keep_their_order_over_two_connections() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let sends: Vec<_> = (0..20).map(|turn| server.send(batch(id, turn * 5, 5))).collect();
    let offsets = futures_util::future::join_all(sends).await;
    assert_eq!(offsets, (0..20).map(|turn| Ok(turn * 5)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn producers_do_not_wait_for_one_another() {
    let server = TestServer::start().await;
    let (stuck, free) = (server.producer().await, server.producer().await);
    server.store.plan(Fault::Hangs { applied: false });
    let (first, second) = tokio::join!(server.send_within(batch(stuck, 0, 1), Duration::from_secs(5)), async {
        sleep(FIRST_IS_UNDER_WAY).await;
        let begun = Instant::now();
        let answer = server.send(batch(free, 0, 1)).await;
        (answer, begun.elapsed())
    });
    assert_eq!(first, Err(AppendError::TimedOut));
    assert_eq!(second.0, Ok(0));
    assert!(second.1 < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn no_lane_is_left_behind() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let sends: Vec<_> = (0..5).map(|turn| server.send(batch(id, turn, 1))).collect();
    futures_util::future::join_all(sends).await;
    server.store.plan(Fault::Busy);
    server.send(batch(id, 5, 1)).await.unwrap_err();
    assert_eq!(server.produce.shared.partition(&server.at).lanes(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_producer_is_forgotten_first() {
    let settings = crate::produce::ProduceSettings { producers_max: 2, ..settings() };
    let server = TestServer::with(settings).await;
    let ids = [server.producer().await, server.producer().await, server.producer().await];
    server.send(batch(ids[0], 0, 1)).await.unwrap();
    server.send(batch(ids[1], 0, 1)).await.unwrap();
    server.send(batch(ids[0], 1, 1)).await.unwrap();
    server.send(batch(ids[2], 0, 1)).await.unwrap();
    assert_eq!(server.send(batch(ids[0], 5, 1)).await, Err(AppendError::OutOfSequence), "known");
    assert!(server.send(batch(ids[1], 5, 1)).await.is_ok(), "forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_producer_is_forgotten_after_the_expiration_time() {
    let settings = crate::produce::ProduceSettings { expiration: Duration::from_secs(60), ..settings() };
    let server = TestServer::with(settings).await;
    let id = server.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(server.send(batch(id, 5, 1)).await, Err(AppendError::OutOfSequence));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(server.send(batch(id, 5, 1)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn partitions_without_producers_are_swept_and_those_of_a_deleted_topic_go_at_once() {
    let settings = crate::produce::ProduceSettings { expiration: Duration::from_secs(60), ..settings() };
    let server = TestServer::with(settings).await;
    let id = server.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    let partitions = &server.produce.shared.partitions;
    partitions.write().sweep(Instant::now());
    assert_eq!(partitions.read().by_ref.len(), 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    partitions.write().sweep(Instant::now());
    assert_eq!(partitions.read().by_ref.len(), 0);
    server.send(batch(id, 1, 1)).await.unwrap();
    server.store.watch(Arc::new(server.produce.clone()));
    server.store.delete_topic(&server.at.topic).await.unwrap();
    assert_eq!(partitions.read().by_ref.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_producer_goes_on_anywhere_within_what_the_store_lost_and_nowhere_else() {
    // Whether the client heard of what is gone decides where it goes on.
    for (kept, first, wanted) in [
        (4, 6, Ok(4)),
        (4, 4, Ok(4)),
        (4, 5, Ok(4)),
        (4, 3, Ok(3)),
        (4, 7, Err(AppendError::OutOfSequence)),
        (0, 6, Ok(0)),
        (0, 0, Ok(0)),
        (0, 7, Err(AppendError::OutOfSequence)),
    ] {
        let server = TestServer::start().await;
        server.store.watch(Arc::new(server.produce.clone()));
        let id = server.producer().await;
        for sequence in 0..6 {
            assert_eq!(server.send(batch(id, sequence, 1)).await, Ok(u64::from(sequence)));
        }
        server.store.lose_tail(&server.at, kept);
        assert_eq!(server.send(batch(id, first, 1)).await, wanted, "{kept} kept, {first} sent");
        if wanted.is_ok() && first >= 4 {
            let next = server.send(batch(id, first + 2, 1)).await;
            assert_eq!(next, Err(AppendError::OutOfSequence), "{kept} kept, {first} sent: then it goes on in order");
            assert_eq!(server.send(batch(id, first + 1, 1)).await, wanted.map(|offset| offset + 1));
        }
    }
}

/// A batch that was begun before the store lost what lay before it is neither overtaken nor stored twice.
#[tokio::test(start_paused = true)]
async fn a_batch_under_way_keeps_its_lane_when_the_store_loses_records() {
    let server = TestServer::start().await;
    server.store.watch(Arc::new(server.produce.clone()));
    let id = server.producer().await;
    for sequence in 0..3 {
        server.send(batch(id, sequence, 1)).await.unwrap();
    }
    server.store.plan(Fault::InDoubtLate { appends: 9 });
    let tenth = Duration::from_millis(100);
    let (first, again, ()) = tokio::join!(
        server.send(batch(id, 3, 1)),
        async {
            sleep(tenth).await;
            server.store.lose_tail(&server.at, 2);
            server.send(batch(id, 3, 1)).await
        },
        async {
            sleep(3 * tenth).await;
            // Where the one before was, which is gone.
            server.store.land_late();
        }
    );
    assert_eq!((first, again), (Ok(2), Ok(2)));
    assert_eq!(server.send(batch(id, 4, 1)).await, Ok(3));
    assert_eq!(server.sequences(id).await, [0, 1, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_producer_is_known_per_partition() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 2)).await.unwrap();
    let other = server.at.topic.partition(1);
    let stored =
        server.produce.append(&other, prepared(batch(id, 0, 2)), Instant::now() + Duration::from_secs(1)).await;
    assert_eq!(stored.unwrap().base_offset, Some(0));
    assert_eq!(server.store.bounds(&other).await.unwrap().end, 2);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_tells_the_append_time_where_the_topic_does() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    let deadline = Instant::now() + Duration::from_secs(1);
    let send = || {
        let prepared = crate::produce::Prepared { tells_append_time: true, ..prepared(batch(id, 0, 2)) };
        server.produce.append(&server.at, prepared, deadline)
    };
    let first = send().await.unwrap();
    assert!(first.append_time_micros.is_some());
    assert_eq!(send().await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn batches_without_a_producer_are_written_as_often_as_they_are_sent() {
    let server = TestServer::start().await;
    let deadline = Instant::now() + Duration::from_secs(1);
    for offset in 0..3 {
        let stored = server.produce.append(&server.at, plain(77, 1), deadline).await.unwrap();
        assert_eq!(stored.base_offset, Some(offset));
    }
}
