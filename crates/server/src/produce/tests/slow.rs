//! Stores that take their time, or do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use milena_store::testing::{Layer, Layered, MemoryStore};
use milena_store::{Bounds, Entry, PartitionRef, ReadLimit, Store, StoreFuture, TopicSettings};
use tokio::time::{Instant, sleep};

use crate::produce::TAIL_READS_MAX;
use crate::produce::append::AppendError;
use crate::produce::testing::{TestServer, batch, open_over, plain, prepared, settings};

/// Counts how many reads there are at a time.
struct Counting {
    below: MemoryStore,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Layer for Counting {
    fn below(&self) -> &dyn Store {
        &self.below
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            sleep(Duration::from_millis(5)).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            self.below.read(at, from, limit).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_takes_many_partitions_over_reads_a_few_of_them_at_a_time() {
    let servers = TestServer::several(1).await;
    let (one, partitions) = (&servers[0], 64);
    let topic = one.store.create_topic("kafka", "many", partitions, &TopicSettings::default()).await.unwrap().topic;
    let id = one.producer().await;
    let deadline = || Instant::now() + Duration::from_secs(30);
    for partition in 0..partitions {
        one.produce.append(&topic.partition(partition), prepared(batch(id, 0, 2)), deadline()).await.unwrap();
    }
    let counting = Counting { below: one.store.clone(), now: AtomicUsize::default(), most: AtomicUsize::default() };
    let counting = Arc::new(Layered(counting));
    let two = open_over(Arc::clone(&counting) as Arc<dyn Store>, &one.settings, 1).await;
    let retries = (0..partitions).map(|partition| {
        let (two, at) = (&two, topic.partition(partition));
        async move { two.append(&at, prepared(batch(id, 0, 2)), deadline()).await }
    });
    for stored in join_all(retries).await {
        assert_eq!(stored.unwrap().base_offset, Some(0));
    }
    assert_eq!(counting.most.load(Ordering::Relaxed), TAIL_READS_MAX);
}

/// Never says where a partition of a Kafka topic ends.
struct Endless(MemoryStore);

impl Layer for Endless {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        if at.topic.stream() == "kafka" { Box::pin(std::future::pending()) } else { self.0.bounds(at) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_say_where_a_partition_ends_holds_a_request_no_longer_than_its_time() {
    let server = TestServer::start().await;
    let produce = open_over(Arc::new(Layered(Endless(server.store.clone()))), &settings(), 0).await;
    let begun = Instant::now();
    let sent = produce.append(&server.at, plain(1, 1), begun + Duration::from_secs(3)).await;
    assert_eq!(sent.unwrap_err(), AppendError::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(4));
}
