//! Many members, random kills, a restart of the server in the middle: every record is acknowledged at least once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milena_catchup::{AckOutcome, CatchUpConsumer, Commit, Lag, State};
use milena_testkit::TestServer;
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use support::milena::{GROUP, TOPIC, create};
use support::{SOON, config};

const PARTITIONS: i32 = 12;

/// How long records are produced and members come and go.
const CHURN: Duration = Duration::from_secs(12);

type Acked = Arc<Mutex<HashMap<i32, BTreeSet<i64>>>>;

fn consumer(bootstrap: &str) -> CatchUpConsumer {
    let consumer = CatchUpConsumer::builder(config(bootstrap, GROUP))
        .fork_when(Lag::records(20))
        .commit(Commit::Every(Duration::from_millis(200)))
        .drain_deadline(Duration::from_secs(1))
        .build()
        .unwrap();
    consumer.subscribe(&[TOPIC]).unwrap();
    consumer
}

/// A member that works until it is told to stop; it goes with a word or, as a panic of the application would have it, without one.
async fn member(bootstrap: String, acked: Acked, stop: Arc<AtomicBool>, politely: bool) {
    let consumer = consumer(&bootstrap);
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let Ok(delivery) = tokio::time::timeout(Duration::from_millis(100), consumer.recv()).await else { continue };
        let delivery = delivery.unwrap().expect("a consumer that goes on");
        let (partition, offset) = (delivery.record().partition(), delivery.record().offset());
        number += 1;
        // Some come again later, and some records of one that goes without a word stay open.
        if number.is_multiple_of(50) {
            delivery.defer();
        } else if number.is_multiple_of(17) && !politely {
            drop(delivery);
        } else if delivery.ack() == AckOutcome::Counted {
            acked.lock().unwrap().entry(partition).or_default().insert(offset);
        }
    }
    if politely {
        consumer.close().await.unwrap();
    }
}

async fn produce_all(bootstrap: String, stop: Arc<AtomicBool>, produced: Arc<AtomicUsize>) -> HashMap<i32, i64> {
    let mut settings = config(&bootstrap, "none");
    settings.set("enable.idempotence", "true").set("message.timeout.ms", "60000").remove("group.id");
    let producer: FutureProducer = settings.create().unwrap();
    let mut ends = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        let sends = (0..PARTITIONS)
            .map(|partition| producer.send(FutureRecord::<(), str>::to(TOPIC).partition(partition).payload("x"), SOON));
        for (partition, sent) in (0..).zip(futures_util::future::join_all(sends).await) {
            ends.insert(partition, sent.unwrap().offset + 1);
            produced.fetch_add(1, Ordering::Relaxed);
        }
    }
    ends
}

#[tokio::test(flavor = "multi_thread")]
async fn b52_members_come_and_go_and_the_server_restarts_and_nothing_is_lost() {
    let server = TestServer::builder().config(|config| config.groups.initial_rebalance_delay = Duration::ZERO);
    let server = server.start().await;
    let bootstrap = server.bootstrap();
    create(&bootstrap, TOPIC, PARTITIONS).await;
    let acked = Acked::default();
    let (over, produced) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let producing = tokio::spawn(produce_all(bootstrap.clone(), Arc::clone(&over), Arc::clone(&produced)));
    let start = |politely| {
        let stop = Arc::new(AtomicBool::new(false));
        (tokio::spawn(member(bootstrap.clone(), Arc::clone(&acked), Arc::clone(&stop), politely)), stop)
    };
    let mut members = vec![start(true), start(false), start(true)];
    let began = Instant::now();
    let mut server = Some(server);
    for round in 0.. {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        if began.elapsed() > CHURN {
            break;
        }
        let (task, stop) = members.remove(0);
        stop.store(true, Ordering::Relaxed);
        task.await.unwrap();
        members.push(start(round % 2 == 0));
        if round == 2 {
            server = Some(Box::pin(server.take().unwrap().kill_and_start()).await);
        }
    }
    over.store(true, Ordering::Relaxed);
    let ends = producing.await.unwrap();
    for (task, stop) in members {
        stop.store(true, Ordering::Relaxed);
        task.await.unwrap();
    }
    // The last one works through what is left, and ends in one lane everywhere.
    let last = consumer(&bootstrap);
    let deadline = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < deadline, "{:?}", last.status());
        if let Ok(delivery) = tokio::time::timeout(Duration::from_millis(500), last.recv()).await {
            let delivery = delivery.unwrap().unwrap();
            let (partition, offset) = (delivery.record().partition(), delivery.record().offset());
            assert_eq!(delivery.ack(), AckOutcome::Counted);
            acked.lock().unwrap().entry(partition).or_default().insert(offset);
            continue;
        }
        let status = last.status();
        let through = |(of, status): &(milena_catchup::TopicPartition, milena_catchup::PartitionStatus)| {
            status.state == State::Live && Some(&status.floor) == ends.get(&of.partition)
        };
        if status.len() == 12 && status.iter().all(through) {
            break;
        }
    }
    last.close().await.unwrap();
    assert!(produced.load(Ordering::Relaxed) > 100);
    let acked = acked.lock().unwrap();
    for (partition, end) in ends {
        let missing: Vec<_> = (0..end).filter(|offset| !acked[&partition].contains(offset)).collect();
        assert!(missing.is_empty(), "partition {partition} of {end}: {missing:?}");
    }
    drop(server);
}
