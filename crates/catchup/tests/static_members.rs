//! Members with a `group.instance.id` (KIP-345), over Milena.
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
use std::time::Duration;

use milena_catchup::{AckOutcome, Builder, Error, Event};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::Message;
use support::milena::{GROUP, TOPIC, behind};
use support::{SOON, Watched, committed, config, produce};
use tokio::time::timeout;

/// A member with that name, whose session lasts longer than a restart.
fn named(bootstrap: &str, name: &str) -> Builder {
    let mut config = config(bootstrap, GROUP);
    config.set("group.instance.id", name).set("session.timeout.ms", "30000");
    Watched::with(config)
}

/// The one partition that a consumer has of the two there are.
async fn own(consumer: &Watched) -> i32 {
    let look = async {
        loop {
            if let [(partition, _)] = consumer.consumer.status().as_slice() {
                return partition.partition;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, look).await.expect("one partition in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_within_the_session_goes_on_and_disturbs_nobody() {
    let (_server, bootstrap) = behind(2).await;
    let first = Watched::start(named(&bootstrap, "a"), &[TOPIC]);
    let mut other = Watched::start(named(&bootstrap, "b"), &[TOPIC]);
    let (mine, its) = (own(&first).await, own(&other).await);
    assert_eq!(mine + its, 1);
    // Both are in the generation that they stay in.
    let (mut first, epoch) = (first, other.status(TOPIC, its).unwrap().epoch);
    first.until(TOPIC, mine, |status| status.is_some_and(|status| status.fork == Some(120))).await;
    other.until(TOPIC, its, |status| status.is_some_and(|status| status.fork == Some(120))).await;
    let mut finished = BTreeSet::new();
    while finished.len() < 20 {
        let delivery = first.next().await;
        if delivery.record().partition() == mine {
            finished.insert(delivery.record().offset());
            first.ack(delivery);
        }
    }
    first.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, mine).unwrap().0, 90);

    let mut again = Watched::start(named(&bootstrap, "a"), &[TOPIC]);
    let forked = again.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 90, fork: 120, gap: 30 });
    assert_eq!(own(&again).await, mine);
    let (live, backfill) = again.take(30, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], (90..120).collect::<Vec<_>>()));

    let (_, backfill) = other.take(50, |_, _| true).await;
    assert_eq!(backfill, (70..120).collect::<Vec<_>>());
    produce(&bootstrap, TOPIC, its, 120..125);
    let (live, _) = other.take(5, |_, _| true).await;
    assert_eq!(live, (120..125).collect::<Vec<_>>());
    assert_eq!(other.status(TOPIC, its).unwrap().epoch, epoch, "no rebalance");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_consumer_of_that_name_ends_the_first_which_says_so() {
    let (_server, bootstrap) = behind(1).await;
    let mut first = Watched::start(named(&bootstrap, "a"), &[TOPIC]);
    let kept = first.next().await;
    first.take(9, |_, _| true).await;
    let mut second = Watched::start(named(&bootstrap, "a"), &[TOPIC]);
    let end = async {
        loop {
            match first.consumer.recv().await {
                Ok(Some(delivery)) => first.check(&delivery),
                other => return other.map(|_| ()),
            }
        }
    };
    let end = timeout(SOON, end).await.expect("an end in time");
    let Err(Error::Fatal(error)) = end else { panic!("{end:?}") };
    assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::FencedInstanceId));
    assert_eq!(kept.ack(), AckOutcome::Stale);
    assert!(matches!(first.consumer.close().await, Err(Error::Fatal(_))));
    let (_, backfill) = second.take(50, |_, _| true).await;
    assert_eq!(backfill, (70..120).collect::<Vec<_>>(), "nothing was committed");
    second.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 120);
}
