//! Three nodes: leaders that die, followers that are away, and all of them restarted in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iggy_common::TopicClient;
use milena_store::Store;
use milena_store_iggy::{IggyConfig, IggyStore};
use milena_testkit::RawClient;

use crate::case::{Case, Setup, TOPIC, eventually, named};
use crate::held::held;
use crate::kafka::{Stamps, fetch_partition, plain, produce_request, read_partition, record, records_of};

pub(crate) const PARTITIONS: i32 = 4;

pub(crate) fn spread() -> Setup {
    Setup { partitions: PARTITIONS, ..Setup::default() }
}

/// What a producer saw.
struct Produced {
    /// Records that were acknowledged, with their offsets, in the order in which they were sent.
    acknowledged: Vec<i64>,
    /// When that was.
    when: Vec<Instant>,
    /// Longest time from the first attempt of a record to its acknowledgement.
    outage: Duration,
}

/// An idempotent producer of one partition: one record after another, each sent again until it is acknowledged.
fn producer(case: &Case, partition: i32, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Produced> {
    let (address, stop) = (case.kafka.address(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut client = RawClient::connect(address).await;
        let stamps = Stamps::new(&mut client).await;
        let mut produced = Produced { acknowledged: Vec::new(), when: Vec::new(), outage: Duration::ZERO };
        while !stop.load(Ordering::Relaxed) {
            let sequence = i32::try_from(produced.acknowledged.len()).unwrap();
            let started = Instant::now();
            loop {
                let batch = stamps.batch(sequence, &value_of(partition, i64::from(sequence)));
                let answer = client.request(9, &produce_request(TOPIC, partition, batch, 10_000)).await;
                let answer = &answer.responses[0].partition_responses[0];
                match answer.error_code {
                    0 => break produced.acknowledged.push(answer.base_offset),
                    3 | 5 | 6 | 7 | 56 => {
                        assert!(started.elapsed() < Duration::from_secs(60), "code {} for ever", answer.error_code);
                    }
                    code => panic!("partition {partition}, sequence {sequence}: code {code}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            produced.when.push(Instant::now());
            produced.outage = produced.outage.max(started.elapsed());
        }
        produced
    })
}

/// Says of what partition a record is, so that one of another partition is noticed.
pub(crate) fn value_of(partition: i32, number: i64) -> String {
    format!("{partition}/{number}")
}

/// The numbers of the records that a gateway shows.
async fn numbers(case: &Case, partition: i32) -> Vec<usize> {
    let mut client = case.raw().await;
    let records = read_partition(&mut client, partition).await;
    let number =
        |value: String| value.strip_prefix(&format!("{partition}/")).unwrap_or_else(|| panic!("{value}")).parse();
    records.into_iter().map(|record| number(String::from_utf8(record.value.unwrap()).unwrap()).unwrap()).collect()
}

/// Checks that all that was acknowledged is there once and in order.
async fn check(case: &Case, partition: i32, produced: &Produced) {
    let found = numbers(case, partition).await;
    let count = produced.acknowledged.len();
    let differs = found.iter().zip(0..count).position(|(found, wanted)| *found != wanted);
    let around = differs.map(|at| &found[at.saturating_sub(3)..(at + 3).min(found.len())]);
    let whole = differs.is_none() && found.len() >= count;
    let offsets = differs.map(|at| &produced.acknowledged[at.saturating_sub(3)..(at + 3).min(count)]);
    let epoch = epoch(case, partition).await;
    let near = differs.map(|at| u64::try_from(at).unwrap()).map(|at| at.saturating_sub(3)..at + 4);
    let nodes = match near.filter(|_| !whole) {
        Some(near) => held(case, partition.cast_unsigned(), near).await,
        None => Vec::new(),
    };
    assert!(
        whole,
        "partition {partition}: {} of {count}, wrong at {around:?}, acknowledged with {offsets:?}, epoch {epoch}, {nodes:?}",
        found.len()
    );
    // At most the one that was on its way when the producer stopped is behind what was acknowledged.
    assert!(found.len() <= count + 1, "partition {partition}: {} records of {count}", found.len());
    let offsets: Vec<i64> = (0..i64::try_from(count).unwrap()).collect();
    assert_eq!(produced.acknowledged, offsets, "partition {partition}");
}

/// Checks that of what was acknowledged all is there, once and in order, but for the record that was the newest when the
/// nodes died, between those two moments.
async fn check_all_but_the_newest(case: &Case, partition: i32, produced: &Produced, died: (Instant, Instant)) {
    let found = numbers(case, partition).await;
    let count = produced.acknowledged.len();
    assert!(
        found.is_sorted_by(|left, right| left < right),
        "partition {partition}: doubled or out of order: {found:?}"
    );
    let missing: Vec<usize> = (0..count).filter(|number| found.binary_search(number).is_err()).collect();
    eprintln!("partition {partition}: {count} acknowledged, missing {missing:?}");
    assert!(missing.len() <= 1, "partition {partition}: {missing:?} of {count} are missing");
    // An answer that was on its way when they died comes a moment later.
    let newest = |moment: Instant| produced.when.partition_point(|when| *when <= moment);
    let lost = newest(died.0).saturating_sub(1)..=newest(died.1);
    assert!(missing.iter().all(|number| lost.contains(number)), "partition {partition}: {missing:?} and not {lost:?}");
}

async fn epoch(case: &Case, partition: i32) -> u32 {
    let topic = case.at().await.topic;
    case.store.epochs(&topic.partition(partition.cast_unsigned())).current()
}

/// Runs `faults` under the load of a producer for each partition, and checks what is there afterwards. Answers the
/// longest outage.
pub(crate) async fn under_load(case: &Case, faults: impl AsyncFnOnce(&Case)) -> Duration {
    let (mut outage, mut records) = (Duration::ZERO, 0);
    for (partition, produced) in (0..).zip(load(case, faults).await) {
        check(case, partition, &produced).await;
        // A consumer would go back to where the end is said to have fallen to.
        assert_eq!(epoch(case, partition).await, 0, "partition {partition}: nothing was lost");
        outage = outage.max(produced.outage);
        records += produced.acknowledged.len();
    }
    eprintln!("{records} records acknowledged, longest outage {outage:?}");
    outage
}

/// Runs `faults` under the load of a producer for each partition. Answers what each saw.
async fn load(case: &Case, faults: impl AsyncFnOnce(&Case)) -> Vec<Produced> {
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..PARTITIONS).map(|partition| producer(case, partition, &stop)).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults(case).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for producer in producers {
        all.push(producer.await.unwrap());
    }
    all
}

fn kill(case: &Case, node: usize) {
    tokio::task::block_in_place(|| case.real().unwrap().lock().kill(node));
}

pub(crate) fn restart(case: &Case, node: usize) {
    tokio::task::block_in_place(|| case.real().unwrap().lock().restart(node));
}

/// Stops all nodes, as for maintenance, and starts them again.
fn restart_all(case: &Case) {
    tokio::task::block_in_place(|| {
        let mut servers = case.real().unwrap().lock();
        let nodes = servers.addresses().len();
        (0..nodes).for_each(|node| servers.stop(node));
        (0..nodes).for_each(|node| servers.launch(node));
        (0..nodes).for_each(|node| servers.wait_ready(node));
    });
}

/// Kills all nodes at once and starts them again. Answers between which moments they died.
fn kill_all(case: &Case) -> (Instant, Instant) {
    tokio::task::block_in_place(|| {
        let mut servers = case.real().unwrap().lock();
        let first = Instant::now();
        (0..3).for_each(|node| servers.kill(node));
        let last = Instant::now();
        (0..3).for_each(|node| servers.launch(node));
        (0..3).for_each(|node| servers.wait_ready(node));
        (first, last)
    })
}

/// Produces that many records to a partition, each until it is acknowledged.
async fn fill(case: &Case, partition: i32, count: usize) {
    let mut client = case.raw().await;
    for number in 0..count {
        let sent = async || {
            let request = produce_request(TOPIC, partition, plain(&[record(&number.to_string())]), 10_000);
            client.request(9, &request).await.responses[0].partition_responses[0].error_code == 0
        };
        eventually("a record is acknowledged", sent).await;
    }
}

async fn b31_servers_that_were_all_stopped_and_started_again_have_all_that_was_acknowledged(case: Case) {
    for partition in 0..PARTITIONS {
        fill(&case, partition, 20).await;
    }
    // Followers write what they hear to be committed, which the leader tells them every now and then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    restart_all(&case);
    for partition in 0..PARTITIONS {
        fill(&case, partition, 1).await;
        let records = read_partition(&mut case.raw().await, partition).await;
        let values: Vec<_> =
            records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect();
        let wanted: Vec<_> = (0..20).chain([0]).map(|number: u32| number.to_string()).collect();
        assert_eq!(values, wanted, "partition {partition}");
        assert_eq!(epoch(&case, partition).await, 0, "partition {partition}: nothing was lost");
    }
}
shown!(b31_servers_that_were_all_stopped_and_started_again_have_all_that_was_acknowledged in one_node, three_nodes
    with spread());

async fn b26_ends_do_not_fall_while_a_node_that_lags_is_the_only_one_to_answer(case: Case) {
    let at = case.at().await;
    let config = IggyConfig { instance: 9, ..case.config.clone() };
    let other = Box::pin(IggyStore::open(config)).await.unwrap();
    fill(&case, 0, 10).await;
    case.real().unwrap().lock().freeze(1);
    fill(&case, 0, 10).await;
    // A gateway that has never written, so that nothing tells it who leads.
    let reaches = async |end: u64| {
        let is_there = async || other.bounds(&at).await.is_ok_and(|bounds| bounds.end >= end);
        eventually("the other gateway shows what was acknowledged", is_there).await;
    };
    reaches(20).await;
    kill(&case, 0);
    case.real().unwrap().lock().thaw(1);
    let (started, mut answers) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(8) {
        // What passes by itself is no answer.
        if let Ok(bounds) = other.bounds(&at).await {
            assert!(bounds.end >= 20, "the end fell to {} after {:?}", bounds.end, started.elapsed());
            answers += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(other.epochs(&at).current(), 0, "{answers} answers");
    fill(&case, 0, 1).await;
    reaches(21).await;
}
shown!(b26_ends_do_not_fall_while_a_node_that_lags_is_the_only_one_to_answer in three_nodes);

/// The node takes connections and answers nothing, as a host that is cut off: each attempt to reach it takes its time.
async fn b32_partitions_without_a_producer_are_read_while_their_leader_is_cut_off(case: Case) {
    for partition in 0..PARTITIONS {
        fill(&case, partition, 5).await;
    }
    case.real().unwrap().lock().freeze(0);
    let read_all = async || {
        let mut client = case.raw().await;
        for partition in 0..PARTITIONS {
            let data = fetch_partition(&mut client, partition, 0, 0).await;
            if data.error_code != 0 || records_of(&data).len() != 5 {
                return false;
            }
        }
        true
    };
    eventually("everything can be read", read_all).await;
    let started = Instant::now();
    for _ in 0..20 {
        eventually("everything can be read again", read_all).await;
        // Longer than an answer about an end is used again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = started.elapsed();
    eprintln!("{} reads took {took:?}", 20 * PARTITIONS);
    // One attempt for each of them would take 80 times a second, or more.
    assert!(took < Duration::from_secs(30), "{took:?}");
}
shown!(b32_partitions_without_a_producer_are_read_while_their_leader_is_cut_off in three_nodes with Setup {
    iggy: |config| config.connect_timeout = Duration::from_secs(1),
    ..spread()
});

async fn b32_the_death_of_a_leader_loses_and_doubles_nothing(case: Case) {
    let outage = under_load(&case, async |case| {
        kill(case, 0);
        tokio::time::sleep(Duration::from_secs(12)).await;
        restart(case, 0);
    })
    .await;
    assert!(outage < Duration::from_secs(30), "{outage:?}");
}
shown!(b32_the_death_of_a_leader_loses_and_doubles_nothing in three_nodes with spread());

async fn b32_a_leader_that_dies_and_is_back_at_once_loses_and_doubles_nothing(case: Case) {
    under_load(&case, async |case| {
        kill(case, 0);
        restart(case, 0);
        tokio::time::sleep(Duration::from_secs(12)).await;
    })
    .await;
}
shown!(b32_a_leader_that_dies_and_is_back_at_once_loses_and_doubles_nothing in three_nodes with spread());

async fn b33_a_dead_follower_slows_the_others_and_stops_nothing(case: Case) {
    for node in [1, 2] {
        let outage = under_load(&case, async |case| {
            kill(case, node);
            tokio::time::sleep(Duration::from_secs(4)).await;
            restart(case, node);
        })
        .await;
        assert!(outage < Duration::from_secs(15), "{outage:?}");
        // The same topic again would not begin at 0.
        case.native_delete().await;
        case.create(TOPIC, PARTITIONS, &[]).await;
    }
}
shown!(b33_a_dead_follower_slows_the_others_and_stops_nothing in three_nodes with Setup {
    gateway: |config| config.limits.metadata_refresh = Duration::from_millis(200),
    ..spread()
});

/// A follower writes a message to its disk when it hears that it is committed, which is after the leader answered; what
/// it has before that is in memory. So when all nodes die at once, only the leader's disk has the newest message, and
/// the next leader may be another node. With one record under way for each partition that is one record.
async fn b14_of_nodes_that_are_all_killed_at_once_at_most_the_newest_record_of_a_partition_is_lost(case: Case) {
    let mut died = None;
    let produced = load(&case, async |case| {
        died = Some(kill_all(case));
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
    for (partition, produced) in (0..).zip(&produced) {
        check_all_but_the_newest(&case, partition, produced, died.unwrap()).await;
        let given_twice = !produced.acknowledged.is_sorted_by(|left, right| left < right);
        assert_eq!(epoch(&case, partition).await > 0, given_twice, "partition {partition}");
    }
}
shown!(b14_of_nodes_that_are_all_killed_at_once_at_most_the_newest_record_of_a_partition_is_lost in three_nodes with spread());

/// Twenty acknowledged records, then `fault`; without any further append the end is at 0 in a new epoch.
async fn falls_to_nothing(case: &Case, fault: impl AsyncFnOnce(&Case)) {
    fill(case, 0, 20).await;
    fault(case).await;
    let at = case.at().await;
    let fell = async || case.store.bounds(&at).await.is_ok_and(|bounds| bounds.end == 0);
    eventually("the end is where the server says", fell).await;
    assert_eq!(epoch(case, 0).await, 1);
}

async fn b15_what_all_nodes_lost_is_noticed_by_asking_them(case: Case) {
    falls_to_nothing(&case, async |case| {
        kill_all(case);
    })
    .await;
}
shown!(b15_what_all_nodes_lost_is_noticed_by_asking_them in three_nodes with Setup {
    iggy: |config| config.durability = milena_store_iggy::AckDurability::Fast,
    ..Setup::default()
});

async fn b15_a_purge_is_noticed_by_asking_all_nodes(case: Case) {
    falls_to_nothing(&case, async |case| {
        case.native().await.purge_topic(&named(&case.stream), &named(TOPIC)).await.unwrap();
    })
    .await;
}
shown!(b15_a_purge_is_noticed_by_asking_all_nodes in three_nodes);
