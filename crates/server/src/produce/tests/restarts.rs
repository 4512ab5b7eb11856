//! What a new process finds in the log of the one before it.

use std::sync::Arc;
use std::time::Duration;

use milena_store::testing::Fault;
use milena_store::{Store, TopicSettings};
use milena_store_embedded::EmbeddedConfig;
use tokio::time::Instant;

use crate::ServerConfig;
use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::testing::{TestServer, batch, plain, prepared, settings};
use crate::produce::{Produce, ProduceSettings};

const LAST: u32 = (1 << 31) - 1;
const SOON: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answer_was_lost_by_a_kill_is_found_after_the_restart() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 5)).await.unwrap();
    server.store.plan(Fault::Hangs { applied: true });
    assert_eq!(server.send_within(batch(id, 5, 5), SOON).await, Err(AppendError::TimedOut));
    server.restart().await;
    assert_eq!(server.send(batch(id, 5, 5)).await, Ok(5));
    assert_eq!(server.send(batch(id, 10, 1)).await, Ok(10));
    assert_eq!(server.sequences(id).await, (0..11).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_a_kill_kept_from_the_log_is_written_after_the_restart() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 5)).await.unwrap();
    server.store.plan(Fault::Hangs { applied: false });
    assert_eq!(server.send_within(batch(id, 5, 5), SOON).await, Err(AppendError::TimedOut));
    server.restart().await;
    assert_eq!(
        server.send(batch(id, 10, 1)).await,
        Err(AppendError::OutOfSequence),
        "it would overtake the lost batch"
    );
    assert_eq!(server.send(batch(id, 5, 5)).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn interleaved_producers_find_their_last_five_batches_after_a_kill() {
    let mut server = TestServer::start().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(server.producer().await);
    }
    let mut offsets = Vec::new();
    for turn in 0..6 {
        for id in &ids {
            offsets.push((batch(*id, turn * 3, 3), server.send(batch(*id, turn * 3, 3)).await.unwrap()));
        }
    }
    // The last append of every producer is stored, and its answer is lost.
    for id in &ids {
        server.store.plan(Fault::Hangs { applied: true });
        assert_eq!(server.send_within(batch(*id, 18, 3), SOON).await, Err(AppendError::TimedOut));
    }
    server.restart().await;
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(server.send(batch(*id, 18, 3)).await, Ok(126 + 3 * index as u64));
    }
    for (sent, offset) in offsets.into_iter().filter(|(sent, _)| sent.span.first >= 6) {
        assert_eq!(server.send(sent).await, Ok(offset));
    }
    for id in &ids {
        assert_eq!(server.sequences(*id).await, (0..21).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_across_the_wrap_is_rebuilt() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, LAST - 2, 2)).await.unwrap();
    server.send(batch(id, LAST, 3)).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(batch(id, LAST, 3)).await, Ok(2));
    assert_eq!(server.send(batch(id, LAST - 1, 4)).await, Ok(1));
    assert_eq!(server.send(batch(id, 2, 1)).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn the_newest_epoch_is_rebuilt() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    let in_epoch = |epoch, first| Batch { epoch, ..batch(id, first, 2) };
    server.send(in_epoch(0, 0)).await.unwrap();
    server.send(in_epoch(3, 0)).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(in_epoch(0, 2)).await, Err(AppendError::OldEpoch));
    assert_eq!(server.send(in_epoch(3, 0)).await, Ok(2));
    assert_eq!(server.send(in_epoch(4, 2)).await, Err(AppendError::OutOfSequence));
    assert_eq!(server.send(in_epoch(4, 0)).await, Ok(4));
}

#[tokio::test(start_paused = true)]
async fn a_producer_whose_records_were_all_trimmed_is_accepted_as_unknown() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 5)).await.unwrap();
    server.store.trim(&server.at, 5).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(batch(id, 5, 1)).await, Ok(5));
    assert_eq!(server.produce.metrics().unknown_producers.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_trim_left_of_a_batch_is_known_and_no_more() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 5)).await.unwrap();
    server.send(batch(id, 5, 5)).await.unwrap();
    server.store.trim(&server.at, 5).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(batch(id, 5, 5)).await, Ok(5));
    assert_eq!(server.send(batch(id, 10, 1)).await, Ok(10));
}

#[tokio::test(start_paused = true)]
async fn a_trim_while_the_process_lives_takes_no_knowledge() {
    let server = TestServer::start().await;
    let id = server.producer().await;
    server.send(batch(id, 0, 5)).await.unwrap();
    server.store.trim(&server.at, 5).await.unwrap();
    assert_eq!(server.send(batch(id, 0, 5)).await, Ok(0));
    assert_eq!(server.send(batch(id, 6, 1)).await, Err(AppendError::OutOfSequence));
}

#[tokio::test(start_paused = true)]
async fn the_tail_is_read_no_further_than_its_bound() {
    let bounded = ProduceSettings { tail_messages: 64, ..settings() };
    let mut server = TestServer::with(bounded).await;
    let (old, new) = (server.producer().await, server.producer().await);
    server.send(batch(old, 0, 1)).await.unwrap();
    for turn in 0..200 {
        server.send(batch(new, turn, 1)).await.unwrap();
    }
    server.restart().await;
    assert_eq!(server.send(batch(new, 199, 1)).await, Ok(200));
    assert_eq!(server.produce.metrics().rebuilt_producers.get(), 1);
    assert_eq!(server.send(batch(old, 9, 1)).await, Ok(201), "accepted, because it is not known");
}

#[tokio::test(start_paused = true)]
async fn the_tail_is_read_no_further_than_its_bytes() {
    let bounded = ProduceSettings { tail_bytes: 10_000, ..settings() };
    let mut server = TestServer::with(bounded).await;
    let (old, new) = (server.producer().await, server.producer().await);
    server.send(batch(old, 0, 1)).await.unwrap();
    for turn in 0..20 {
        server.send(batch(new, turn * 100, 100)).await.unwrap();
    }
    server.restart().await;
    assert_eq!(server.send(batch(new, 1_900, 100)).await, Ok(1_901));
    assert_eq!(server.produce.metrics().rebuilt_producers.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_partition_of_native_messages_makes_no_producers_and_is_read_once() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    for seed in 0..10 {
        let deadline = Instant::now() + SOON;
        server.produce.append(&server.at, plain(seed << 64, 50), deadline).await.unwrap();
    }
    server.send(batch(id, 0, 1)).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(batch(id, 0, 1)).await, Ok(500));
    assert_eq!(server.produce.metrics().rebuilt_producers.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_begins_here_does_not_wait_for_the_tail() {
    let mut server = TestServer::start().await;
    let old = server.producer().await;
    server.send(batch(old, 0, 1)).await.unwrap();
    server.restart().await;
    let new = server.producer().await;
    server.send(batch(new, 0, 1)).await.unwrap();
    assert_eq!(server.produce.metrics().rebuilt_producers.get(), 0);
    assert_eq!(server.send(batch(old, 0, 1)).await, Ok(0), "the tail is read when it is needed");
    assert_eq!(server.send(batch(new, 0, 1)).await, Ok(1), "and does not replace what was seen happen");
}

#[tokio::test(start_paused = true)]
async fn producers_that_expired_are_not_rebuilt() {
    let bounded = ProduceSettings { expiration: Duration::from_secs(86_400), ..settings() };
    let mut server = TestServer::with(bounded).await;
    let id = server.producer().await;
    server.send(batch(id, 0, 1)).await.unwrap();
    // The clock of the test store stands in the past, so every message is older than a day.
    server.restart().await;
    assert_eq!(server.send(batch(id, 9, 1)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_in_the_log_hides_nothing_that_follows_it() {
    let mut server = TestServer::start().await;
    let id = server.producer().await;
    let deadline = Instant::now() + SOON;
    server.send(batch(id, 0, 2)).await.unwrap();
    server.produce.append(&server.at, plain(5, 1), deadline).await.unwrap();
    // Another gateway's copy of the first batch, and right behind it the batch that followed.
    for copy in [batch(id, 0, 2), batch(id, 2, 2)] {
        server.store.append(&server.at, prepared(copy).batch).await.unwrap();
    }
    // What follows makes the tail be read in a window that holds both.
    server.produce.append(&server.at, plain(50, 20), deadline).await.unwrap();
    server.restart().await;
    assert_eq!(server.send(batch(id, 2, 2)).await, Ok(5));
    assert_eq!(server.send(batch(id, 0, 2)).await, Ok(0));
    assert_eq!(server.produce.metrics().doubled.get(), 2);
    assert_eq!(server.send(batch(id, 4, 1)).await, Ok(27));
}

#[tokio::test]
async fn a_restart_over_files_finds_the_last_batches() {
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { dir: Some(folder.path().to_owned()), ..EmbeddedConfig::default() };
    let open = || async {
        let store = milena_store_embedded::open(&config).unwrap();
        let produce = Produce::start(&ServerConfig::default(), Arc::clone(&store), Arc::default()).await.unwrap();
        (store, produce)
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    let (store, produce) = open().await;
    let topic = store.create_topic("kafka", "orders", 1, &TopicSettings::default()).await.unwrap().topic;
    let id = produce.allocate_id().await.unwrap();
    for turn in 0..6 {
        produce.append(&topic.partition(0), prepared(batch(id, turn * 4, 4)), deadline).await.unwrap();
    }
    store.close().await.unwrap();
    drop((store, produce));
    let (store, produce) = open().await;
    let at = store.topic("kafka", "orders").await.unwrap().unwrap().topic.partition(0);
    for turn in 1..6 {
        let stored = produce.append(&at, prepared(batch(id, turn * 4, 4)), deadline).await.unwrap();
        assert_eq!(stored.base_offset, Some(u64::from(turn) * 4));
    }
    assert_eq!(store.bounds(&at).await.unwrap().end, 24);
    assert_ne!(produce.allocate_id().await.unwrap(), id);
}
