//! A broker that drops the metadata of committed offsets (row C11 of the crash table): Milena behind a proxy that takes it out of
//! every answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::single_range_in_vec_init,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::time::Duration;

use milena_catchup::{CheckpointStore, Commit, Event, TopicPartition, TopicStore};
use support::child::Consumer;
use support::milena::{GROUP, TOPIC, fill, set, two_lanes, wait_until};
use support::{Watched, committed, config, forgetful};

#[tokio::test(flavor = "multi_thread")]
async fn b39_c11_a_broker_that_drops_metadata_is_told_and_the_whole_live_part_comes_again() {
    let (_server, bootstrap) = forgetful::server().await;
    fill(&bootstrap, 1).await;
    let mut consumer = Consumer::start(&bootstrap, GROUP, TOPIC, &[]);
    two_lanes(&bootstrap, &consumer);
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    consumer.event(": MetadataNotKept");
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((80, String::new())), "the floor is kept");
    consumer.kill();
    let mut next = Consumer::patient(&bootstrap, GROUP, TOPIC, &[]);
    next.event("Forked { floor: 80, fork: 140, gap: 60 }");
    assert_eq!(next.take(60), (set(0..0), set(80..140)), "nothing is skipped, and what was finished ahead comes again");
    next.ack(80..140);
    next.event("CaughtUp");
    next.finish();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 140);
}

#[tokio::test(flavor = "multi_thread")]
async fn b39_with_a_checkpoint_topic_nothing_that_was_finished_comes_again() {
    let (_server, bootstrap) = forgetful::server().await;
    fill(&bootstrap, 1).await;
    let topic = ["--checkpoint-topic", "progress"];
    let mut consumer = Consumer::start(&bootstrap, GROUP, TOPIC, &topic);
    two_lanes(&bootstrap, &consumer);
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    let orders = [TopicPartition::new(TOPIC, 0)];
    let stored = || {
        let found = TopicStore::new(&config(&bootstrap, GROUP), "progress").unwrap().load(&orders).remove(0).unwrap();
        found.map(|found| (found.floor, found.ahead.iter().collect::<Vec<_>>()))
    };
    wait_until(stored, &Some((80, vec![120..140])));
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((80, String::new())));
    consumer.kill();
    let next = Consumer::patient(&bootstrap, GROUP, TOPIC, &topic);
    next.event("Forked { floor: 80, fork: 140, gap: 40 }");
    assert_eq!(next.take(40), (set(0..0), set(80..120)));
    assert!(next.is_quiet());
}

/// Several partitions are committed in one request and read back, and here what is read is never what was sent.
#[tokio::test(flavor = "multi_thread")]
async fn b39_commits_of_many_partitions_are_answered_and_each_tells_it_once() {
    let (_server, bootstrap) = forgetful::server().await;
    fill(&bootstrap, 3).await;
    let every = Commit::Every(Duration::from_millis(50));
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP).commit(every), &[TOPIC]);
    let mut held = Vec::new();
    for _ in 0..150 {
        let delivery = consumer.next().await;
        match rdkafka::Message::offset(delivery.record()) {
            90..100 => held.push(delivery),
            _ => consumer.ack(delivery),
        }
    }
    for _ in 0..3 {
        consumer.event(|event| *event == Event::MetadataNotKept).await;
    }
    consumer.consumer.commit().await.unwrap();
    for delivery in held {
        consumer.ack(delivery);
        consumer.consumer.commit().await.unwrap();
    }
    for partition in 0..3 {
        assert_eq!(committed(&bootstrap, GROUP, TOPIC, partition).unwrap().0, 120);
    }
    consumer.consumer.close().await.unwrap();
    let again = std::iter::from_fn(|| futures_util::FutureExt::now_or_never(consumer.events.next()).flatten());
    let again: Vec<_> = again.filter(|happened| format!("{happened:?}").contains("MetadataNotKept")).collect();
    assert!(again.is_empty(), "once for each assignment is enough: {again:?}");
}
