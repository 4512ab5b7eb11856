//! The checkpoint topic, over Milena.
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

use std::ops::Range;
use std::time::{Duration, Instant};

use milena_catchup::{
    Checkpoint, CheckpointStore, Error, Event, LogId, MetadataStore, Progress, RangeSet, ResetReason, ResolveFault,
    TopicPartition, TopicStore,
};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::child::Consumer;
use support::milena::{
    GROUP, TOPIC, behind, create, first_life, limit_records, server, set, wait_until, wait_until_empty,
};
use support::{SOON, Watched, commit, committed, config, produce};

const PROGRESS: &str = "progress";

fn orders() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

fn store(bootstrap: &str, group: &str) -> TopicStore {
    TopicStore::new(&config(bootstrap, group), PROGRESS).unwrap()
}

fn loaded(store: &impl CheckpointStore, of: &TopicPartition) -> Option<Progress> {
    let mut loaded = store.load(std::slice::from_ref(of));
    assert_eq!(loaded.len(), 1);
    loaded.remove(0).unwrap()
}

fn saved(store: &impl CheckpointStore, of: &TopicPartition, progress: Progress) {
    let answers = store.save(&[(of.clone(), progress)]);
    assert!(matches!(answers[..], [Ok(())]), "{answers:?}");
}

fn checkpoint(bootstrap: &str, base: i64, ahead: &[Range<i64>]) -> Progress {
    let client: BaseConsumer = config(bootstrap, "asking").create().unwrap();
    let cluster = client.client().fetch_cluster_id(SOON).unwrap();
    Progress { log: LogId::of(&cluster, TOPIC, 0), floor: base, ahead: ahead.iter().cloned().collect::<RangeSet>() }
}

/// Base and ranges in the topic.
fn stored(bootstrap: &str) -> Option<(i64, Vec<Range<i64>>)> {
    let found = loaded(&store(bootstrap, GROUP), &orders())?;
    Some((found.floor, found.ahead.iter().collect()))
}

fn floor(bootstrap: &str) -> (i64, String) {
    committed(bootstrap, GROUP, TOPIC, 0).unwrap()
}

/// Moves the group, as an operator does: it must have no members.
fn reset(bootstrap: &str, offset: i64) {
    wait_until_empty(bootstrap, GROUP);
    commit(bootstrap, GROUP, TOPIC, 0, offset, "");
}

fn start(bootstrap: &str) -> Consumer {
    Consumer::start(bootstrap, GROUP, TOPIC, &["--checkpoint-topic", PROGRESS])
}

/// A life that is not killed before another one begins.
fn last(bootstrap: &str) -> Consumer {
    Consumer::patient(bootstrap, GROUP, TOPIC, &["--checkpoint-topic", PROGRESS])
}

fn watched(bootstrap: &str) -> Watched {
    Watched::start(Watched::builder(bootstrap, GROUP).checkpoint(Checkpoint::Topic(PROGRESS.to_owned())), &[TOPIC])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_from_the_ranges_in_the_topic() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((80, vec![120..140])));
    assert_eq!(floor(&bootstrap), (80, String::new()), "the offset is plain");
    consumer.kill();
    produce(&bootstrap, TOPIC, 0, 140..150);
    let next = last(&bootstrap);
    next.event("Forked { floor: 80, fork: 150, gap: 50 }");
    assert_eq!(next.take(50), (set(0..0), set(80..120).union(&set(140..150)).copied().collect()));
    let store = store(&bootstrap, GROUP);
    assert_eq!((store.compacted(), loaded(&store, &orders()).is_some()), (None, true));
    assert_eq!(store.compacted(), Some(true), "it was made so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_compacted_works() {
    let (_server, bootstrap) = behind(1).await;
    create(&bootstrap, PROGRESS, 1).await;
    let mut consumer = watched(&bootstrap);
    consumer.take(50, |_, offset| offset >= 100).await;
    consumer.consumer.commit().await.unwrap();
    assert_eq!(stored(&bootstrap), Some((70, vec![100..120])), "written when the commit is answered");
    consumer.consumer.close_within(Duration::ZERO).await.unwrap();
    let mut next = watched(&bootstrap);
    assert_eq!(next.take(30, |_, _| false).await.1, (70..100).collect::<Vec<_>>());
    let store = store(&bootstrap, GROUP);
    loaded(&store, &orders());
    assert_eq!(store.compacted(), Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn b61_a_checkpoint_above_the_committed_offset_is_ignored_and_overwritten() {
    let (_server, bootstrap) = behind(1).await;
    let writer = store(&bootstrap, GROUP);
    assert_eq!(loaded(&writer, &orders()), None);
    saved(&writer, &orders(), checkpoint(&bootstrap, 90, &[100..110]));
    assert_eq!(stored(&bootstrap), Some((90, vec![100..110])));
    let mut consumer = watched(&bootstrap);
    consumer.event(|event| *event == Event::ProgressReset(ResetReason::Checkpoint)).await;
    assert_eq!(consumer.take(50, |_, _| false).await.1, (70..120).collect::<Vec<_>>());
    wait_until(|| stored(&bootstrap), &Some((70, vec![])));
}

#[tokio::test(flavor = "multi_thread")]
async fn b62_after_a_rewind_all_is_replayed_also_past_the_old_base() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((80, vec![120..140])));
    consumer.kill();
    reset(&bootstrap, 0);
    let mut next = start(&bootstrap);
    next.event("ProgressReset(Checkpoint)");
    next.event("Forked { floor: 0, fork: 140, gap: 140 }");
    assert_eq!(next.take(140), (set(0..0), set(0..140)));
    next.ack(0..100);
    next.commit();
    wait_until(|| floor(&bootstrap).0, &100);
    next.kill();
    let last = last(&bootstrap);
    last.event("Forked { floor: 100, fork: 140, gap: 40 }");
    assert_eq!(last.take(40), (set(0..0), set(100..140)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b63_c12_a_crash_with_the_checkpoint_stored_and_the_commit_not() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack(120..140);
    // The floor has not moved: only a checkpoint is written.
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((70, vec![120..140])));
    consumer.ack(70..80);
    assert!(consumer.is_quiet());
    consumer.kill();
    assert_eq!(floor(&bootstrap).0, 70);
    let next = last(&bootstrap);
    next.event("Forked { floor: 70, fork: 140, gap: 50 }");
    assert_eq!(next.take(50), (set(0..0), set(70..120)));
    assert!(next.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn b63_c12_a_crash_with_the_commit_stored_and_the_checkpoint_not() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack(120..130);
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((70, vec![120..130])));
    // From here on the topic takes no checkpoint.
    limit_records(&bootstrap, PROGRESS, 10).await;
    consumer.ack((70..80).chain(130..140));
    consumer.commit();
    wait_until(|| floor(&bootstrap).0, &80);
    consumer.event("CheckpointFailed");
    consumer.kill();
    assert_eq!(stored(&bootstrap), Some((70, vec![120..130])), "the old one counts beside the new floor");
    let next = last(&bootstrap);
    next.event("Forked { floor: 80, fork: 140, gap: 50 }");
    assert_eq!(next.take(50), (set(0..0), set(80..120).union(&set(130..140)).copied().collect()));
    assert!(next.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn b64_the_checkpoint_is_removed_after_the_commit_that_covers_it() {
    let (_server, bootstrap) = behind(1).await;
    let mut consumer = watched(&bootstrap);
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(consumer.next().await);
    }
    for delivery in held.drain(30..) {
        consumer.ack(delivery);
    }
    consumer.consumer.commit().await.unwrap();
    assert_eq!(stored(&bootstrap), Some((70, vec![100..120])));
    for delivery in held {
        consumer.ack(delivery);
    }
    consumer.event(|event| *event == Event::CaughtUp).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((floor(&bootstrap).0, stored(&bootstrap)), (70, Some((70, vec![100..120]))), "not committed yet");
    consumer.consumer.commit().await.unwrap();
    assert_eq!((floor(&bootstrap).0, stored(&bootstrap)), (120, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_refused_is_an_error_of_the_commit_and_the_next_one_is_stored() {
    let (_server, bootstrap) = behind(1).await;
    let mut consumer = watched(&bootstrap);
    consumer.take(50, |_, offset| offset >= 100).await;
    limit_records(&bootstrap, PROGRESS, 10).await;
    let refused = consumer.consumer.commit().await;
    assert!(matches!(refused, Err(Error::Checkpoint(_))), "{refused:?}");
    consumer.event(|event| *event == Event::CheckpointFailed).await;
    assert_eq!(stored(&bootstrap), None);
    limit_records(&bootstrap, PROGRESS, 1 << 20).await;
    consumer.consumer.commit().await.unwrap();
    assert_eq!(stored(&bootstrap), Some((70, vec![100..120])));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_delivered_while_checkpoints_cannot_be_read() {
    let (_server, bootstrap) = behind(1).await;
    let builder = Watched::builder(&bootstrap, GROUP).checkpoint(Checkpoint::Topic("no topic's name".to_owned()));
    let mut consumer = Watched::start(builder, &[TOPIC]);
    for _ in 0..2 {
        consumer.event(|event| *event == Event::ResolveFailed(ResolveFault::Backend)).await;
    }
    assert!(consumer.is_quiet().await);
    assert_eq!(floor(&bootstrap).0, 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_partitions_have_checkpoints_of_their_own() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, PROGRESS, 1).await;
    // Were names only joined, the second would have the first one's key.
    let (one, other) = (store(&bootstrap, "g"), store(&bootstrap, "g/orders"));
    let (of_one, of_other) = (TopicPartition::new("orders/orders", 0), TopicPartition::new("orders", 0));
    assert_eq!((loaded(&one, &of_one), loaded(&other, &of_other)), (None, None));
    saved(&one, &of_one, checkpoint(&bootstrap, 1, &[2..3]));
    assert_eq!(loaded(&other, &of_other), None);
    let many: Vec<_> = (0..300).map(|partition| TopicPartition::new("many", partition)).collect();
    let with_base = |add: i64| {
        let progress = |of: &TopicPartition| checkpoint_of(i64::from(of.partition) + add);
        many.iter().map(|of| (of.clone(), progress(of))).collect::<Vec<_>>()
    };
    for add in [1_000, 2_000] {
        assert!(other.save(&with_base(add)).iter().all(Result::is_ok));
    }
    assert!(other.clear(&many[100..200]).iter().all(Result::is_ok));
    // One that goes on where its last look ended, and one that sees the topic for the first time.
    for store in [other, self::store(&bootstrap, "g/orders")] {
        for (of, found) in many.iter().zip(store.load(&many)) {
            let wanted = (!(100..200).contains(&of.partition)).then(|| checkpoint_of(i64::from(of.partition) + 2_000));
            assert_eq!(found.unwrap(), wanted, "{of}");
        }
    }
    assert_eq!(loaded(&one, &of_one).unwrap().floor, 1);
}

fn checkpoint_of(base: i64) -> Progress {
    Progress { log: LogId(7), floor: base, ahead: [base..base + 1, base + 5..base + 9].into_iter().collect() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_checkpoint_counts_as_none() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, PROGRESS, 1).await;
    let store = store(&bootstrap, GROUP);
    assert_eq!(loaded(&store, &orders()), None);
    let producer: BaseProducer = config(&bootstrap, "none").create().unwrap();
    for value in [&b"cu1"[..], b"cu9AAAA", b"\xff\xfe", &[b'A'; 600 << 10]] {
        saved(&store, &orders(), checkpoint_of(5));
        assert_eq!(loaded(&store, &orders()), Some(checkpoint_of(5)));
        let record = BaseRecord::to(PROGRESS).key("cu1/1/g/orders/0").payload(value).partition(0);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(SOON).unwrap();
        assert_eq!(loaded(&store, &orders()), None);
    }
}

#[test]
fn a_load_ends_in_time_and_nothing_is_written_before_one() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // It listens and never answers.
    let store = store(&nobody.local_addr().unwrap().to_string(), GROUP);
    let written = store.save(&[(orders(), checkpoint_of(1))]);
    assert!(matches!(written[..], [Err(Error::Checkpoint(_))]), "{written:?}");
    let begin = Instant::now();
    let loaded = store.load(&[orders()]);
    assert!(matches!(loaded[..], [Err(Error::Client(_))]), "{loaded:?}");
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(25), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_moves_from_the_topic_to_its_metadata() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((80, vec![120..140])));
    consumer.kill();
    reset(&bootstrap, 80);
    let (from, to) = (store(&bootstrap, GROUP), MetadataStore::new(&config(&bootstrap, GROUP)).unwrap());
    let progress = loaded(&from, &orders()).unwrap();
    saved(&to, &orders(), progress.clone());
    assert!(from.clear(&[orders()])[0].is_ok());
    assert_eq!((loaded(&from, &orders()), loaded(&to, &orders())), (None, Some(progress)));
    let next = Consumer::start(&bootstrap, GROUP, TOPIC, &[]);
    next.event("Forked { floor: 80, fork: 140, gap: 40 }");
    assert_eq!(next.take(40), (set(0..0), set(80..120)));
    next.kill();
    reset(&bootstrap, 80);
    commit(&bootstrap, GROUP, TOPIC, 0, 80, "mine");
    saved(&to, &orders(), checkpoint(&bootstrap, 81, &[90..95]));
    assert_eq!(loaded(&to, &orders()), Some(checkpoint(&bootstrap, 81, &[90..95])));
    assert!(to.clear(&[orders()])[0].is_ok());
    assert_eq!(loaded(&to, &orders()), Some(checkpoint(&bootstrap, 81, &[])));
    assert!(floor(&bootstrap).1.ends_with(" mine"), "the user's part stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn b60_inspect_prints_what_the_topic_has_beside_the_metadata() {
    let (_server, bootstrap, mut consumer) = first_life(start).await;
    let inspect = |topic: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_catchup"))
            .args(["inspect", "--bootstrap", &bootstrap, "--checkpoint-topic", topic, GROUP, TOPIC])
            .output()
            .unwrap();
        let text = String::from_utf8(if output.status.success() { output.stdout } else { output.stderr }).unwrap();
        (output.status.success(), text)
    };
    let line = |of_topic: &str, left: &str| {
        format!("orders/0: floor 80, log 0..140, {left}\n  metadata: 0 bytes\n  checkpoint topic: {of_topic}\n")
    };
    consumer.ack((120..125).chain(130..140).chain(70..80));
    consumer.commit();
    wait_until(|| stored(&bootstrap), &Some((80, vec![120..125, 130..140])));
    let left = "45 left in 2 pieces\n  left: 80..120, 125..130";
    assert_eq!(inspect(PROGRESS), (true, line("base 80, finished 120..125, 130..140", left)));
    // One that is above the committed offset counts for nothing, and one of another partition is none of this.
    consumer.kill();
    let writer = store(&bootstrap, GROUP);
    assert!(loaded(&writer, &orders()).is_some());
    saved(&writer, &orders(), checkpoint(&bootstrap, 90, &[100..110]));
    let left = "60 left in 1 piece\n  left: 80..140";
    let above = "nothing that counts, it belongs to the committed offset 90";
    assert_eq!(inspect(PROGRESS), (true, line(above, left)));
    assert!(writer.clear(&[orders()])[0].is_ok());
    assert_eq!(inspect(PROGRESS), (true, line("nothing", left)));
    let (ok, text) = inspect("nowhere");
    assert!(!ok && text.contains("topic nowhere: there is none of this name"), "{text}");
    assert!(!inspect("nowhere").0, "the first look did not make it");
}
