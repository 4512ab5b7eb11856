//! A group that exists goes over to the catch-up consumer, and back.
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

use milena_catchup::{Event, Lane, Progress};
use support::milena::{GROUP, TOPIC, create, plain, server};
use support::{Watched, committed, produce};

#[tokio::test(flavor = "multi_thread")]
async fn b65_switched_on_for_an_existing_group_it_starts_from_the_plain_offset() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, TOPIC, 1).await;
    produce(&bootstrap, TOPIC, 0, 0..120);
    assert_eq!(plain(&bootstrap, GROUP, TOPIC, 70), (0..70).collect::<Vec<_>>());
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    produce(&bootstrap, TOPIC, 0, 120..125);
    let (live, backfill) = consumer.take(55, |_, _| true).await;
    assert_eq!(
        (live, backfill),
        ((120..125).collect(), (70..120).collect::<Vec<_>>()),
        "each once, and none before 70"
    );
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((125, String::new())));
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_switched_off_a_plain_consumer_goes_on_at_the_floor_and_loses_nothing() {
    let (_server, bootstrap) = support::milena::behind(1).await;
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(&bootstrap, TOPIC, 0, 120..140);
    // Finished: 70 to 79, and of the live lane 120 to 134.
    let finished = |lane, offset| if lane == Lane::Live { offset < 135 } else { offset < 80 };
    consumer.take(70, finished).await;
    consumer.consumer.close_within(std::time::Duration::ZERO).await.unwrap();
    let (floor, metadata) = committed(&bootstrap, GROUP, TOPIC, 0).unwrap();
    assert_eq!(floor, 80);
    assert_eq!(Progress::decode(&metadata).unwrap().ahead.iter().collect::<Vec<_>>(), [120..135]);
    // It knows nothing of ranges: what was finished ahead comes again, and all that was not comes.
    assert_eq!(plain(&bootstrap, GROUP, TOPIC, 60), (80..140).collect::<Vec<_>>());
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0), Some((140, String::new())));
    // On once more: the ranges of before are no more than what they are worth.
    produce(&bootstrap, TOPIC, 0, 140..160);
    let mut again = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (live, backfill) = again.take(20, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], (140..160).collect::<Vec<_>>()));
}
