//! A group that exists goes over to the catch-up consumer, and back, on any broker.

use milena_catchup::{Event, Lane, Progress};

use super::milena::plain;
use super::{Watched, commit, committed, produce};

/// Switched on for a group that exists it starts from the plain offset. The topic is empty, and the group's name is the topic's.
pub(crate) async fn on(bootstrap: &str, name: &str) {
    produce(bootstrap, name, 0, 0..120);
    assert_eq!(plain(bootstrap, name, name, 70), (0..70).collect::<Vec<_>>());
    let mut consumer = Watched::start(Watched::builder(bootstrap, name), &[name]);
    let forked = consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 70, fork: 120, gap: 50 });
    produce(bootstrap, name, 0, 120..125);
    let (live, backfill) = consumer.take(55, |_, _| true).await;
    assert_eq!(
        (live, backfill),
        ((120..125).collect(), (70..120).collect::<Vec<_>>()),
        "each once, and none before 70"
    );
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(bootstrap, name, name, 0), Some((125, String::new())));
}

/// Switched off, a plain consumer goes on at the floor and loses nothing. As for [`on`].
pub(crate) async fn off(bootstrap: &str, name: &str) {
    produce(bootstrap, name, 0, 0..120);
    commit(bootstrap, name, name, 0, 70, "");
    let mut consumer = Watched::start(Watched::builder(bootstrap, name), &[name]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(bootstrap, name, 0, 120..140);
    // Finished: 70 to 79, and of the live lane 120 to 134.
    let finished = |lane, offset| if lane == Lane::Live { offset < 135 } else { offset < 80 };
    consumer.take(70, finished).await;
    consumer.consumer.close_within(std::time::Duration::ZERO).await.unwrap();
    let (floor, metadata) = committed(bootstrap, name, name, 0).unwrap();
    assert_eq!(floor, 80);
    assert_eq!(Progress::decode(&metadata).unwrap().ahead.iter().collect::<Vec<_>>(), vec![120..135]);
    // It knows nothing of ranges: what was finished ahead comes again, and all that was not comes.
    assert_eq!(plain(bootstrap, name, name, 60), (80..140).collect::<Vec<_>>());
    assert_eq!(committed(bootstrap, name, name, 0), Some((140, String::new())));
    // On once more: the ranges of before are no more than what they are worth.
    produce(bootstrap, name, 0, 140..160);
    let mut again = Watched::start(Watched::builder(bootstrap, name), &[name]);
    let (live, backfill) = again.take(20, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], (140..160).collect::<Vec<_>>()));
}
