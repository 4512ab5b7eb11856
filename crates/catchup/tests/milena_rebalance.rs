//! Rebalances over Milena, which takes commits while a group gets ready for its next generation, as Kafka does. librdkafka's mock
//! cluster refuses them from the moment on in which another member joins.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::collections::BTreeSet;

use milena_catchup::{Builder, Delivery, Event, Happened, Lane, State, TopicPartition};
use rdkafka::message::Message;
use support::milena::{GROUP, TOPIC, behind};
use support::{Watched, committed, config, produce};
use tokio::time::timeout;

fn cooperative(bootstrap: &str) -> Builder {
    let mut config = config(bootstrap, GROUP);
    config.set("partition.assignment.strategy", "cooperative-sticky");
    Watched::with(config)
}

fn place(delivery: &Delivery) -> (i32, i64) {
    (delivery.record().partition(), delivery.record().offset())
}

/// Waits for such an event, and says of which partition it is.
async fn event_of(consumer: &mut Watched, wanted: impl Fn(&Event) -> bool) -> TopicPartition {
    let find = async {
        loop {
            if let Some(Happened::To { partition, event, .. }) = consumer.events.next().await
                && wanted(&event)
            {
                return partition;
            }
        }
    };
    timeout(support::SOON, find).await.expect("an event in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn b46_an_eager_revocation_drains_commits_once_and_the_next_member_goes_on_with_the_pieces() {
    let (_server, bootstrap) = behind(2).await;
    let mut first = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    for _ in 0..2 {
        first.event(|event| matches!(event, Event::Forked { .. })).await;
    }
    for partition in 0..2 {
        produce(&bootstrap, TOPIC, partition, 120..130);
    }
    let mut acked = BTreeSet::new();
    let mut in_hand = Vec::new();
    for _ in 0..60 {
        let delivery = first.next().await;
        if in_hand.len() < 5 {
            in_hand.push(delivery);
        } else {
            acked.insert(place(&delivery));
            first.ack(delivery);
        }
    }
    let mut second = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    first.event(|event| *event == Event::Draining).await;
    assert!(first.is_quiet().await, "a delivery in a drain");
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 70, "the drain waits for what is in hand");
    for delivery in in_hand {
        acked.insert(place(&delivery));
        first.ack(delivery);
    }
    first.event(|event| *event == Event::Revoked).await;
    // All that was acknowledged is in the last commit: nothing of it comes again, to whom it may be.
    let left = 2 * 60 - acked.len();
    let others = async {
        let mut others = BTreeSet::new();
        while others.len() < left {
            let (who, delivery) = tokio::select! {
                delivery = first.next() => (&mut first, delivery),
                delivery = second.next() => (&mut second, delivery),
            };
            assert!(others.insert(place(&delivery)), "{:?} came twice", place(&delivery));
            who.ack(delivery);
        }
        others
    };
    let others = timeout(support::SOON, others).await.expect("the rest in time");
    assert_eq!(others.intersection(&acked).count(), 0);
    assert_eq!(others.len() + acked.len(), 120);
}

/// What a cooperative revocation leaves alone goes on in its assignment; librdkafka fetches nothing for the group member until the
/// revocation is answered, so it is the backfill lane that goes on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn b47_a_cooperative_revocation_drains_only_what_it_takes() {
    let (_server, bootstrap) = behind(2).await;
    let builder = || cooperative(&bootstrap).in_flight_max(Lane::Backfill, 5).drain_deadline(support::SOON);
    let mut first = Watched::start(builder(), &[TOPIC]);
    let mut in_hand = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        let delivery = first.next().await;
        in_hand[usize::try_from(delivery.record().partition()).unwrap()].push(delivery);
    }
    let _second = Watched::start(builder(), &[TOPIC]);
    let taken = event_of(&mut first, |event| *event == Event::Draining).await.partition;
    let kept = 1 - taken;
    let epoch = first.status(TOPIC, kept).unwrap().epoch;
    for delivery in std::mem::take(&mut in_hand[usize::try_from(kept).unwrap()]) {
        first.ack(delivery);
    }
    let (_, backfill) = first.take(45, |_, _| true).await;
    assert_eq!(backfill, (75..120).collect::<Vec<_>>());
    assert_eq!(first.status(TOPIC, taken).unwrap().state, State::Draining);
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, taken).unwrap().0, 70, "the drain waits for what is in hand");
    for delivery in std::mem::take(&mut in_hand[usize::try_from(taken).unwrap()]) {
        first.ack(delivery);
    }
    assert_eq!(event_of(&mut first, |event| *event == Event::Revoked).await.partition, taken);
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, taken).unwrap().0, 75);
    assert_eq!(first.status(TOPIC, kept).unwrap().epoch, epoch);
    produce(&bootstrap, TOPIC, kept, 120..130);
    let (live, _) = first.take(10, |_, _| true).await;
    assert_eq!(live, (120..130).collect::<Vec<_>>());
}
