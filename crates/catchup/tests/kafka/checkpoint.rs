//! The checkpoint topic on a broker that compacts.

use std::ops::Range;
use std::time::Duration;

use milena_catchup::{CheckpointStore, LogId, Progress, RangeSet, TopicPartition, TopicStore};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::bench::Bench;
use crate::support::child::{Consumer, Options};
use crate::support::milena::{set, wait_until, wait_until_empty};
use crate::support::{SOON, commit, committed, config};

/// Base and ranges that a topic has of the bench's partition.
fn stored(bench: &Bench, topic: &str) -> Option<(i64, Vec<Range<i64>>)> {
    let store = TopicStore::new(&config(&bench.bootstrap(), bench.name), topic).unwrap();
    let found = store.load(&[TopicPartition::new(bench.name, 0)]).remove(0).unwrap()?;
    Some((found.floor, found.ahead.iter().collect()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn a_restart_goes_on_from_the_topic_and_b61_b62_a_rewind_is_not_defeated_by_it() {
    let bench = Bench::new("checkpointed", &[]).await;
    let (bootstrap, name) = (bench.bootstrap(), bench.name);
    bench.produce(0..120);
    bench.commit(70);
    let topic = ["--checkpoint-topic", "checkpointed-progress"];
    let short = || Consumer::with(&bootstrap, name, name, &Options { more: &topic, ..Options::default() });
    let mut consumer = short();
    consumer.event("Forked { floor: 70, fork: 120, gap: 50 }");
    bench.produce(120..140);
    assert_eq!(consumer.take(70), (set(120..140), set(70..120)));
    consumer.ack((120..140).chain(70..80));
    consumer.commit();
    wait_until(|| stored(&bench, topic[1]), &Some((80, vec![120..140])));
    assert_eq!(committed(&bootstrap, name, name, 0), Some((80, String::new())), "the offset is plain");
    consumer.kill();
    // It was made by the consumer, and the broker says how.
    let store = TopicStore::new(&config(&bootstrap, name), topic[1]).unwrap();
    assert!(store.load(&[TopicPartition::new(name, 0)])[0].is_ok());
    assert_eq!(store.compacted(), Some(true));

    bench.produce(140..150);
    let mut next = short();
    next.event("Forked { floor: 80, fork: 150, gap: 50 }");
    assert_eq!(next.take(50), (set(0..0), set(80..120).union(&set(140..150)).copied().collect()));
    assert!(next.is_quiet());
    next.ack(140..145);
    next.commit();
    wait_until(|| stored(&bench, topic[1]), &Some((80, vec![120..145])));
    next.kill();

    wait_until_empty(&bootstrap, name);
    commit(&bootstrap, name, name, 0, 0, "");
    let mut rewound = short();
    rewound.event("ProgressReset(Checkpoint)");
    rewound.event("Forked { floor: 0, fork: 150, gap: 150 }");
    assert_eq!(rewound.take(150), (set(0..0), set(0..150)));
    wait_until(|| stored(&bench, topic[1]), &Some((0, vec![])));
    rewound.ack((0..100).chain(130..140));
    rewound.commit();
    wait_until(|| stored(&bench, topic[1]), &Some((100, vec![130..140])));
    rewound.kill();
    let mut last = Consumer::patient(&bootstrap, name, name, &topic);
    last.event("Forked { floor: 100, fork: 150, gap: 40 }");
    assert_eq!(last.take(40), (set(0..0), set(100..130).union(&set(140..150)).copied().collect()));
    // b64: once the committed offset covers all, nothing is left in the topic.
    last.ack((100..130).chain(140..150));
    last.event("CaughtUp");
    last.finish();
    assert_eq!((bench.committed(), stored(&bench, topic[1])), (Some(150), None));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn the_newest_checkpoints_are_found_when_the_cleaner_was_there_and_the_end_has_no_records() {
    let cleaned = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.compaction.lag.ms", "0"),
        ("delete.retention.ms", "0"),
    ];
    let bench = Bench::new("cleaned", &cleaned).await;
    let store = || TopicStore::new(&config(&bench.bootstrap(), "g"), bench.name).unwrap();
    let of: Vec<_> = (0..3).map(|partition| TopicPartition::new("orders", partition)).collect();
    let progress = |base: i64| {
        let ahead: RangeSet = [base + 10..base + 20].into_iter().collect();
        Progress { log: LogId(7), floor: base, ahead }
    };
    let writer = store();
    assert!(writer.load(&of).iter().all(|found| matches!(found, Ok(None))));
    for base in 0..100 {
        let saved = writer.save(&[(of[0].clone(), progress(base)), (of[1].clone(), progress(2 * base))]);
        assert!(saved.iter().all(Result::is_ok), "{saved:?}");
    }
    assert!(writer.save(&[(of[2].clone(), progress(5))])[0].is_ok());
    assert!(writer.clear(&of[2..])[0].is_ok());
    // The segment that is written to is not cleaned: a later record begins another one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(writer.save(&[(of[1].clone(), progress(1_000))])[0].is_ok());
    let gone = async {
        while bench.stored().len() > 10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the cleaner comes by");
    // Somebody's transaction: what stands last in the log is its marker, which no reader is given.
    let other: BaseProducer = bench.client().set("transactional.id", bench.name).create().unwrap();
    other.init_transactions(SOON).unwrap();
    other.begin_transaction().unwrap();
    other.send(BaseRecord::to(bench.name).partition(0).key("other").payload("1")).map_err(|(error, _)| error).unwrap();
    other.commit_transaction(SOON).unwrap();
    for reader in [store(), writer] {
        let found: Vec<_> = reader.load(&of).into_iter().map(|found| found.unwrap()).collect();
        assert_eq!(found, [Some(progress(99)), Some(progress(1_000)), None]);
    }
}
