//! Measures what the library is for: how long after its start a consumer that is far behind sees a new record, and how fast it works
//! through the old ones, against a plain consumer on the same broker.
//!
//! `head_start BOOTSTRAP [RECORDS]` makes a topic of its own with one partition and records of 100 bytes. Each consumer starts in a
//! group of its own with offset 0 committed. A record is produced as soon as it has its partition; the time until that record comes
//! is the first number, the rate at which the old records come the second. Then the catch-up consumer idles for ten seconds, and the
//! processor time of that is the third. The plain consumer comes twice: with librdkafka's defaults, and with what the catch-up
//! consumer sets for its backfill.
//!
//! At last a catch-up consumer whose application takes a record every hundredth of a second and finishes none, for ten seconds: how
//! much memory the process takes more than before.
#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::time::{Duration, Instant};

use milena_catchup::{CatchUpConsumer, Commit, Lane, State};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

type Failure = Box<dyn std::error::Error>;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let bootstrap = args.next().ok_or("usage: head_start BOOTSTRAP [RECORDS]")?;
    let records = args.next().map_or(Ok(1_000_000), |text| text.parse::<i64>())?;
    let mut base = ClientConfig::new();
    base.set("bootstrap.servers", bootstrap);
    let topic = format!("head-start-{}", std::process::id());
    let admin: AdminClient<DefaultClientContext> = base.create()?;
    let made =
        admin.create_topics([&NewTopic::new(&topic, 1, TopicReplication::Fixed(1))], &AdminOptions::new()).await?;
    if let Some(Err((topic, code))) = made.into_iter().next() {
        return Err(format!("{topic}: {code}").into());
    }
    produce(&base, &topic, records)?;
    println!("{records} records of lag");

    let (first, rate) = tokio::task::block_in_place(|| plain(&base, &topic, "plain", records))?;
    println!("plain:    a new record after {first:.3} s, {rate:.0} old records/s");
    let mut alike = base.clone();
    alike.set("fetch.queue.backoff.ms", "10").set("queued.max.messages.kbytes", (16 << 10).to_string());
    let (first, rate) = tokio::task::block_in_place(|| plain(&alike, &topic, "alike", records + 1))?;
    println!("alike:    a new record after {first:.3} s, {rate:.0} old records/s");
    let (first, rate, idle) = catch_up(&base, &topic, records + 2).await?;
    println!(
        "catch-up: a new record after {first:.3} s, {rate:.0} old records/s, idle {:.2} % of a core",
        idle * 100.0
    );
    println!("resident at the most: {} KiB", status_kib("VmHWM:").unwrap_or(0));
    println!("slow application: {} KiB more than before, at the most", slow(&base, &topic).await?);
    Ok(())
}

fn produce(base: &ClientConfig, topic: &str, count: i64) -> Result<(), Failure> {
    let producer: BaseProducer = base.clone().set("linger.ms", "20").create()?;
    let value = "x".repeat(100);
    for _ in 0..count {
        let mut record = BaseRecord::<(), str>::to(topic).partition(0).payload(&value);
        while let Err((error, again)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(10));
            record = again;
        }
    }
    Ok(producer.flush(PATIENCE * 4)?)
}

/// A group's configuration, with offset 0 committed for it.
fn group(base: &ClientConfig, topic: &str, name: &str) -> Result<ClientConfig, Failure> {
    let mut config = base.clone();
    config.set("group.id", format!("{topic}-{name}")).set("enable.auto.commit", "false");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(0))?;
    config.create::<BaseConsumer>()?.commit(&list, CommitMode::Sync)?;
    Ok(config)
}

/// Seconds from the assignment to a record produced then, and old records per second.
fn plain(base: &ClientConfig, topic: &str, name: &str, records: i64) -> Result<(f64, f64), Failure> {
    let consumer: BaseConsumer = group(base, topic, name)?.create()?;
    consumer.subscribe(&[topic])?;
    while consumer.assignment()?.count() == 0 {
        if let Some(Err(error)) = consumer.poll(Duration::from_millis(1)) {
            return Err(error.into());
        }
    }
    let start = Instant::now();
    produce(base, topic, 1)?;
    let mut old = None;
    loop {
        match consumer.poll(PATIENCE).ok_or("no record")? {
            Ok(record) if record.offset() >= records => break,
            Ok(record) if record.offset() == records - 1 => old = Some(start.elapsed()),
            Ok(_) | Err(KafkaError::PartitionEOF(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((start.elapsed().as_secs_f64(), rate(records, old.ok_or("no old record")?)))
}

async fn catch_up(base: &ClientConfig, topic: &str, records: i64) -> Result<(f64, f64, f64), Failure> {
    let config = group(base, topic, "catch-up")?;
    let consumer = CatchUpConsumer::builder(config).commit(Commit::Every(Duration::from_secs(1))).build()?;
    consumer.subscribe(&[topic])?;
    while consumer.status().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    // A record that is there before the fork would be an old one.
    while consumer.status().iter().any(|(_, status)| status.state == State::Resolving) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let producing = (base.clone(), topic.to_owned());
    tokio::task::spawn_blocking(move || produce(&producing.0, &producing.1, 1).map_err(|error| error.to_string()))
        .await??;
    let (mut first, mut old, mut done) = (None, None, 0);
    while first.is_none() || old.is_none() {
        let delivery = consumer.recv().await?.ok_or("the consumer ended")?;
        match delivery.lane() {
            Lane::Live => first = first.or_else(|| Some(start.elapsed())),
            Lane::Backfill => {
                done += 1;
                if done == records {
                    old = Some(start.elapsed());
                }
            }
        }
        delivery.ack();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cpu_ticks()?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A tick of Linux is a hundredth of a second.
    let idle = f64::from(cpu_ticks()? - before) / 1_000.0;
    consumer.close().await?;
    let (first, old) = (first.ok_or("no new record")?, old.ok_or("no old record")?);
    Ok((first.as_secs_f64(), rate(records, old), idle))
}

/// KiB of resident memory that a consumer takes whose application finishes nothing, while new records come too.
async fn slow(base: &ClientConfig, topic: &str) -> Result<u64, Failure> {
    // What the process had at the most is counted anew from here on.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status_kib("VmRSS:").ok_or("no memory")?;
    let consumer = CatchUpConsumer::builder(group(base, topic, "slow")?).drain_deadline(Duration::ZERO).build()?;
    consumer.subscribe(&[topic])?;
    let start = Instant::now();
    let mut in_hand = Vec::new();
    while start.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Ok(delivery) = tokio::time::timeout(Duration::ZERO, consumer.recv()).await {
            in_hand.push(delivery?.ok_or("the consumer ended")?);
        }
    }
    let most = status_kib("VmHWM:").ok_or("no memory")?;
    println!("slow application: {} records in hand", in_hand.len());
    drop(in_hand);
    consumer.close().await?;
    Ok(most.saturating_sub(before))
}

fn rate(records: i64, took: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let records = records as f64;
    records / took.as_secs_f64()
}

/// Processor time of this process, in ticks.
fn cpu_ticks() -> Result<u32, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("no stat")?;
    let fields: Vec<_> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u32>().ok()).ok_or("no ticks");
    Ok(ticks(11)? + ticks(12)?)
}

fn status_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
