//! Commits, over librdkafka's mock cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::time::{Duration, Instant};

use milena_catchup::{
    AckOutcome, Builder, Commit, CommitFailure, Delivery, Error, Event, Lane, Progress, user_metadata,
};
use rdkafka::message::Message;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::mock::{GROUP, Mock, TOPIC, behind};
use support::{Watched, committed, patient, produce};

fn refuse(mock: &Mock, with: &[RDKafkaRespErr]) {
    mock.request_errors(RDKafkaApiKey::OffsetCommit, with);
}

/// Everything below 90 and two ranges of the live lane.
fn with_gaps(lane: Lane, offset: i64) -> bool {
    match lane {
        Lane::Backfill => offset < 90,
        Lane::Live => offset != 125 && offset != 139,
    }
}

/// A consumer that has 70 to 139 in hand and has acknowledged what [`with_gaps`] says.
async fn in_the_middle(bootstrap: &str) -> Watched {
    in_the_middle_of(Watched::builder(bootstrap, GROUP), bootstrap).await
}

async fn in_the_middle_of(builder: Builder, bootstrap: &str) -> Watched {
    let mut consumer = Watched::start(builder, &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(bootstrap, TOPIC, 0, 120..140);
    consumer.take(70, with_gaps).await;
    consumer
}

fn stored(bootstrap: &str) -> (i64, String) {
    committed(bootstrap, GROUP, TOPIC, 0).expect("a committed offset")
}

#[tokio::test(flavor = "multi_thread")]
async fn floor_and_ranges_are_committed_and_a_restart_goes_on_from_them() {
    let (_mock, bootstrap) = behind(1);
    let consumer = in_the_middle(&bootstrap).await;
    consumer.consumer.commit().await.unwrap();
    let (floor, metadata) = stored(&bootstrap);
    let progress = Progress::decode(&metadata).unwrap();
    assert_eq!((floor, progress.floor), (90, 90));
    assert_eq!(progress.ahead.iter().collect::<Vec<_>>(), [120..125, 126..139]);
    consumer.consumer.close().await.unwrap();

    produce(&bootstrap, TOPIC, 0, 140..160);
    let mut next = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let forked = next.event(|event| matches!(event, Event::Forked { .. })).await;
    assert_eq!(forked, Event::Forked { floor: 90, fork: 160, gap: 52 });
    let (live, backfill) = next.take(52, |_, _| true).await;
    assert!(live.is_empty());
    assert_eq!(backfill, (90..120).chain([125]).chain(139..160).collect::<Vec<_>>());
}

async fn refused_with(refusal: RDKafkaRespErr) {
    let (mock, bootstrap) = behind(1);
    let consumer = in_the_middle(&bootstrap).await;
    // The commit that was asked for, and all that the client makes of it while it leaves.
    refuse(&mock, &[refusal; 50]);
    let refused = consumer.consumer.commit().await;
    assert!(matches!(refused, Err(Error::Commit(CommitFailure::Refused(_)))), "{refusal:?}: {refused:?}");
    consumer.consumer.close().await.unwrap();
    mock.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    assert_eq!(stored(&bootstrap), (70, String::new()), "{refusal:?}");
    let mut next = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (live, backfill) = next.take(70, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], (70..140).collect::<Vec<_>>()), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b27_a_refused_commit_changes_nothing_and_the_next_owner_has_the_old_view() {
    tokio::join!(
        refused_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION),
        refused_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID),
        refused_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS),
    );
}

async fn late_with(moving: RDKafkaRespErr) {
    let (mock, bootstrap) = behind(1);
    let mut config = patient(&bootstrap, GROUP);
    // No heartbeat while the coordinator is looked for.
    config.set("session.timeout.ms", "1800000").set("max.poll.interval.ms", "1800000");
    // librdkafka puts the commit, after its back-off, into the queue for the coordinator that is not found yet. When it is found, the change
    // of the address fails what is queued there, and a commit that fails so makes the coordinator a lost one again: round after round of half
    // a second, as the search waits behind a long fetch, until the commit happens to miss the moment. So the search is short here, and the
    // back-off longer than a search.
    config.set("fetch.wait.max.ms", "50").set("retry.backoff.ms", "3000").set("retry.backoff.max.ms", "3000");
    let consumer = in_the_middle_of(Watched::with(config), &bootstrap).await;
    refuse(&mock, &[moving; 2]);
    // On a busy machine the coordinator may be looked for so long that the tries of one commit are over: the next one says all of it.
    let committed = async {
        while let Err(error) = consumer.consumer.commit().await {
            assert!(matches!(error, Error::Commit(CommitFailure::Retriable(_))), "{moving:?}: {error:?}");
        }
    };
    tokio::time::timeout(3 * support::SOON, committed).await.unwrap_or_else(|_| panic!("{moving:?}: not committed"));
    let (floor, metadata) = stored(&bootstrap);
    assert_eq!(floor, 90, "{moving:?}");
    assert_eq!(Progress::decode(&metadata).unwrap().ahead.offsets(), 18, "{moving:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b28_a_coordinator_that_moves_or_loads_is_asked_again() {
    tokio::join!(
        late_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS),
        late_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE),
        late_with(RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR),
    );
}

/// A consumer whose live lane has fifty ranges of one record, and the record that holds its floor at 90.
async fn in_pieces(bootstrap: &str) -> (Watched, Delivery) {
    let mut consumer = Watched::start(Watched::with(patient(bootstrap, GROUP)), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(bootstrap, TOPIC, 0, 120..220);
    let mut held = None;
    for _ in 70..220 {
        let delivery = consumer.next().await;
        match delivery.record().offset() {
            90 => held = Some(delivery),
            offset if offset < 90 || offset > 120 && offset % 2 == 1 => consumer.ack(delivery),
            _ => drop(delivery),
        }
    }
    (consumer, held.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn b29_metadata_that_is_too_long_is_sent_shorter_and_then_not_at_all() {
    let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE;
    let (mock, bootstrap) = behind(1);
    let (mut consumer, held) = in_pieces(&bootstrap).await;
    let whole = consumer.status(TOPIC, 0).unwrap().metadata_bytes;
    refuse(&mock, &[too_large]);
    consumer.consumer.commit().await.unwrap();
    let (floor, metadata) = stored(&bootstrap);
    let kept = Progress::decode(&metadata).unwrap().ahead;
    assert_eq!(floor, 90);
    assert!(metadata.len() <= whole / 2 && (1..50).contains(&kept.len()), "{} of {whole} bytes", metadata.len());
    assert!(
        matches!(consumer.event(|event| matches!(event, Event::RangesDropped { .. })).await, Event::RangesDropped { ranges } if ranges == 50 - kept.len())
    );

    // The ranges fill their half: the live lane waits, and the backfill goes on.
    consumer.ack(held);
    refuse(&mock, &[too_large]);
    consumer.consumer.commit().await.unwrap();
    assert_eq!(stored(&bootstrap), (91, String::new()));
    consumer.event(|event| *event == Event::MetadataNotKept).await;
    assert_eq!(consumer.status(TOPIC, 0).unwrap().committed, Some(91));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_partition_that_is_refused_does_not_take_the_others_with_it() {
    let (mock, bootstrap) = behind(3);
    let mut consumer = Watched::start(Watched::with(patient(&bootstrap, GROUP)), &[TOPIC]);
    consumer.take(150, |_, offset| offset < 100).await;
    // The request of all fails: each is asked for alone.
    refuse(&mock, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE]);
    consumer.consumer.commit().await.unwrap();
    for partition in 0..3 {
        assert_eq!(committed(&bootstrap, GROUP, TOPIC, partition).unwrap().0, 100, "partition {partition}");
        assert_eq!(consumer.status(TOPIC, partition).unwrap().committed, Some(100), "partition {partition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b44_the_live_lane_waits_while_the_ranges_take_too_much_of_the_metadata() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP).metadata_bytes_max(100), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(&bootstrap, TOPIC, 0, 120..220);
    let mut held = Vec::new();
    for _ in 70..220 {
        held.push(consumer.next().await);
    }
    let (odd, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|delivery| delivery.record().offset() % 2 == 1);
    for delivery in odd {
        consumer.ack(delivery);
    }
    let status = consumer.status(TOPIC, 0).unwrap();
    assert!(status.live.paused && status.metadata_bytes > 75, "{status:?}");
    let epoch = status.epoch;
    produce(&bootstrap, TOPIC, 0, 220..230);
    // Longer than a session: a lane that waits is no reason to be silent.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(consumer.is_quiet().await);
    for delivery in held {
        consumer.ack(delivery);
    }
    let (live, _) = consumer.take(10, |_, _| true).await;
    assert_eq!(live, (220..230).collect::<Vec<_>>());
    assert_eq!(consumer.status(TOPIC, 0).unwrap().epoch, epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn b45_the_users_own_metadata_stays_beside_the_ranges() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = in_the_middle(&bootstrap).await;
    consumer.consumer.set_user_metadata(TOPIC, 0, "shard 7");
    consumer.consumer.commit().await.unwrap();
    let (_, metadata) = stored(&bootstrap);
    assert_eq!(user_metadata(&metadata), "shard 7");
    assert_eq!(Progress::decode(&metadata).unwrap().ahead.len(), 2);
    consumer.consumer.set_user_metadata(TOPIC, 0, "x".repeat(milena_catchup::USER_METADATA_BYTES_MAX + 1));
    consumer.event(|event| matches!(event, Event::UserMetadataTooLong { .. })).await;
    consumer.consumer.close().await.unwrap();
    // The next owner keeps what it finds.
    let mut next = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    next.take(32, |_, _| true).await;
    next.consumer.commit().await.unwrap();
    let (floor, metadata) = stored(&bootstrap);
    assert_eq!((floor, user_metadata(&metadata)), (140, "shard 7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_close_commits_and_leaves_and_a_drop_does_not_hang() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = in_the_middle(&bootstrap).await;
    let delivery = {
        produce(&bootstrap, TOPIC, 0, 140..141);
        consumer.next().await
    };
    let start = Instant::now();
    let Watched { consumer, events, .. } = consumer;
    drop((consumer, events));
    // One that waited would wait for the delivery above until the drain's deadline, ten seconds.
    assert!(start.elapsed() < Duration::from_secs(8), "a drop took {:?}", start.elapsed());
    // It commits behind the application's back what was finished, and gives the partition up.
    let deadline = Instant::now() + support::SOON;
    while stored(&bootstrap).0 != 90 {
        assert!(Instant::now() < deadline, "nothing was committed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (_, ack) = delivery.into_parts();
    tokio::time::sleep(support::QUIET).await;
    assert_eq!(ack.ack(), AckOutcome::Stale);

    let mut next = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let delivery = next.next().await;
    next.ack(delivery);
    let start = Instant::now();
    next.consumer.close().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "a close took {:?}", start.elapsed());
    assert_eq!(stored(&bootstrap).0, 91);
}

#[tokio::test(flavor = "multi_thread")]
async fn b58_a_task_that_panics_acknowledges_nothing() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = Watched::start(Watched::with(patient(&bootstrap, GROUP)), &[TOPIC]);
    let delivery = consumer.next().await;
    let task = tokio::spawn(async move {
        let _in_hand = delivery;
        panic!("as an application may");
    });
    assert!(task.await.unwrap_err().is_panic());
    consumer.take(49, |_, _| true).await;
    consumer.consumer.commit().await.unwrap();
    let (floor, metadata) = stored(&bootstrap);
    assert_eq!(floor, 70);
    let ahead = Progress::decode(&metadata).unwrap().ahead;
    assert_eq!((ahead.len(), ahead.first()), (1, Some(71..120)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b59_the_status_says_what_the_broker_says() {
    let (_mock, bootstrap) = behind(2);
    let mut consumer =
        Watched::start(Watched::builder(&bootstrap, GROUP).commit(Commit::Every(Duration::from_millis(100))), &[TOPIC]);
    consumer.take(100, |_, offset| offset != 90).await;
    for partition in 0..2 {
        consumer.until(TOPIC, partition, |status| status.is_some_and(|status| status.committed == Some(90))).await;
        let status = consumer.status(TOPIC, partition).unwrap();
        let (floor, metadata) = committed(&bootstrap, GROUP, TOPIC, partition).unwrap();
        assert_eq!((Some(floor), floor), (status.committed, status.floor));
        assert_eq!(Progress::decode(&metadata).unwrap().ahead.len(), status.ranges);
        assert_eq!(metadata.len(), status.metadata_bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b72_with_manual_commits_nothing_is_committed_before_it_is_asked_for() {
    let (_mock, bootstrap) = behind(1);
    let mut consumer = Watched::start(Watched::with(patient(&bootstrap, GROUP)).commit_acks(1), &[TOPIC]);
    consumer.take(20, |_, _| true).await;
    tokio::time::sleep(support::QUIET).await;
    assert_eq!(stored(&bootstrap), (70, String::new()));
    consumer.consumer.commit().await.unwrap();
    assert_eq!(stored(&bootstrap).0, 90);
}
