use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::*;

fn topic(id: u32) -> TopicRef {
    TopicRef::new("kafka", "orders", 1, id, 7)
}

fn partitions(count: u32) -> Vec<PartitionRef> {
    (0..count).map(|partition| topic(1).partition(partition)).collect()
}

#[test]
fn an_append_wakes_the_fetch_that_waits_for_its_partition() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(3));
    let mut wait = Box::pin(parked.wait(parked.mark(), 1));
    assert_eq!((&mut wait).now_or_never(), None);
    purgatory.grown(&topic(1).partition(7), 1, 100);
    purgatory.grown(&topic(2).partition(1), 1, 100);
    assert_eq!((&mut wait).now_or_never(), None, "other partitions are none of its business");
    purgatory.grown(&topic(1).partition(1), 1, 100);
    assert_eq!((&mut wait).now_or_never(), Some(()));
}

#[test]
fn a_fetch_of_many_partitions_wakes_once_when_its_bytes_are_there() {
    let purgatory = Purgatory::new();
    let count = 1_000;
    let parked = purgatory.register(partitions(count));
    let each = 100 + 61;
    let mut mark = parked.mark();
    for round in 1..=2 {
        let mut wait = Box::pin(parked.wait(mark, each * count as usize));
        for partition in partitions(count).iter().skip(1) {
            purgatory.grown(partition, 1, 100);
            assert_eq!((&mut wait).now_or_never(), None, "woken before the bytes can be there");
        }
        assert_eq!(purgatory.wakes(), round - 1);
        purgatory.grown(&topic(1).partition(0), 1, 100);
        purgatory.grown(&topic(1).partition(0), 2, 100);
        assert_eq!((&mut wait).now_or_never(), Some(()));
        assert_eq!(purgatory.wakes(), round);
        drop(wait);
        mark = parked.mark();
    }
}

#[test]
fn growth_between_the_mark_and_the_sleep_counts() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(1));
    let mark = parked.mark();
    purgatory.grown(&topic(1).partition(0), 1, 10);
    assert_eq!(parked.wait(mark, 71).now_or_never(), Some(()));
    assert_eq!(parked.wait(mark, 72).now_or_never(), None);
}

#[test]
fn a_record_that_fills_min_bytes_only_with_its_batch_header_wakes() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(1));
    let mut wait = Box::pin(parked.wait(parked.mark(), 33 + 61));
    assert_eq!((&mut wait).now_or_never(), None);
    purgatory.grown(&topic(1).partition(0), 1, 33);
    assert_eq!((&mut wait).now_or_never(), Some(()));
}

#[test]
fn a_wake_from_an_earlier_sleep_does_not_end_the_next_one() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(1));
    let mut wait = Box::pin(parked.wait(parked.mark(), 1));
    assert_eq!((&mut wait).now_or_never(), None);
    purgatory.grown(&topic(1).partition(0), 1, 33);
    // Its deadline came at the same moment: the notification stays behind.
    drop(wait);
    assert_eq!(parked.wait(parked.mark(), 1).now_or_never(), None);
}

#[test]
fn the_deletion_of_a_topic_wakes_all_that_wait_for_it_whatever_they_miss() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(5));
    let other = purgatory.register(vec![topic(2).partition(0)]);
    let mut wait = Box::pin(parked.wait(parked.mark(), i32::MAX as usize));
    let mut others_wait = Box::pin(other.wait(other.mark(), 1));
    assert_eq!((&mut wait).now_or_never(), None);
    assert_eq!((&mut others_wait).now_or_never(), None);
    purgatory.deleted(&topic(1));
    assert_eq!((&mut wait).now_or_never(), Some(()));
    assert_eq!((&mut others_wait).now_or_never(), None);
}

#[test]
fn a_topic_made_again_under_the_same_numbers_is_another_topic() {
    let purgatory = Purgatory::new();
    let parked = purgatory.register(partitions(1));
    let again = TopicRef::new("kafka", "orders", 1, 1, 8);
    purgatory.grown(&again.partition(0), 1, 100);
    assert_eq!(parked.wait(0, 1).now_or_never(), None);
}

#[test]
fn consumers_of_one_partition_are_woken_together_and_leave_nothing_behind() {
    let purgatory = Purgatory::new();
    let parked: Vec<_> = (0..50).map(|_| purgatory.register(partitions(2))).collect();
    assert_eq!(purgatory.parked(), 50);
    let mut waits: Vec<_> = parked.iter().map(|one| Box::pin(one.wait(one.mark(), 1))).collect();
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
    purgatory.grown(&topic(1).partition(1), 1, 1);
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_some()));
    drop(waits);
    drop(parked);
    assert_eq!(purgatory.parked(), 0);
    assert!(purgatory.shards.iter().all(|shard| shard.lock().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_is_forgotten() {
    let purgatory = Purgatory::new();
    let fetch = async {
        let parked = purgatory.register(partitions(1));
        parked.wait(parked.mark(), 1).await;
    };
    assert!(timeout(Duration::from_secs(5), fetch).await.is_err());
    assert!(purgatory.shards.iter().all(|shard| shard.lock().is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_threads() {
    let purgatory = Arc::new(Purgatory::new());
    let end = Arc::new(AtomicU64::new(0));
    let rounds = 20_000;
    let appender = {
        let (purgatory, end) = (Arc::clone(&purgatory), Arc::clone(&end));
        std::thread::spawn(move || {
            for next in 1..=rounds {
                end.store(next, Ordering::Release);
                purgatory.grown(&topic(1).partition(0), next, 1);
                // The reader now and then catches up and has to sleep.
                if next % 16 == 0 {
                    std::thread::yield_now();
                }
            }
        })
    };
    let reader = async {
        let mut offset = 0;
        while offset < rounds {
            offset = end.load(Ordering::Acquire);
            if offset == rounds {
                break;
            }
            let parked = purgatory.register(partitions(1));
            let mark = parked.mark();
            if end.load(Ordering::Acquire) == offset {
                parked.wait(mark, 1).await;
            }
        }
    };
    timeout(Duration::from_secs(20), reader).await.expect("a fetch slept although its partition grew");
    appender.join().unwrap();
}
