//! Measures what the library is for: how long after its start a consumer that is far behind sees a new record, and how fast it works
//! through the old ones, against a plain consumer on the same broker.
//!
//! `head_start BOOTSTRAP [RECORDS [ROUNDS [IN_FLIGHT]]]` makes a topic of its own with one partition and records of 100 bytes. Each consumer
//! starts in a group of its own with offset 0 committed. A record is produced as soon as it has its partition. What is measured: the
//! time until that record comes; the old records a second, once since the assignment and once from the first of them to the last; and
//! the processor time of this process. Plain consumers, each in turn with the catch-up consumer, so many rounds long:
//!
//! - `plain`: a thread that polls and does nothing with a record, with librdkafka's defaults
//! - `alike`: the same with what the catch-up consumer sets for its backfill, as those below
//! - `stream`: a task that awaits records (`StreamConsumer::recv`) and does nothing with them
//! - `handed`: a thread that polls, and hands records of their own (`OwnedMessage`) to a task through a channel of a thousand places, as
//!   many as the catch-up consumer's backfill has by default. This is what the catch-up consumer does with a record, too.
//!
//! IN_FLIGHT is the bound of the backfill lane in records. Then the catch-up consumer idles for ten seconds, and the processor time of
//! that is the last of these numbers.
//!
//! At last a catch-up consumer whose application takes a record every hundredth of a second and finishes none, for ten seconds: how
//! much memory the process takes more than before.
#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::time::{Duration, Instant};

use milena_catchup::{Builder, CatchUpConsumer, Commit, Lag, Lane, Settings, State};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

type Failure = Box<dyn std::error::Error>;

const PATIENCE: Duration = Duration::from_secs(30);

/// For so long the consumer that is at the end of the log is watched.
const IDLE: Duration = Duration::from_secs(10);

/// What one consumer did.
struct Measured {
    /// Seconds from the assignment to the record that was produced then.
    new: f64,
    /// Old records a second, since the assignment.
    since_assignment: f64,
    /// Old records a second, from the first of them on.
    first_to_last: f64,
    /// Seconds of processor time, from the assignment to the last record.
    processor: f64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { new, since_assignment, first_to_last, processor } = self;
        write!(f, "a new record after {new:.3} s, {since_assignment:.0} old records/s since the assignment, ")?;
        write!(f, "{first_to_last:.0} from the first to the last, {processor:.2} s of processor time")
    }
}

/// Takes the times while one consumer runs, from the assignment on.
struct Watch {
    records: i64,
    start: Instant,
    ticks: u32,
    new: Option<Duration>,
    first_old: Option<Duration>,
    last_old: Option<Duration>,
    old: i64,
}

impl Watch {
    /// Of so many old records.
    fn start(records: i64) -> Result<Self, Failure> {
        let (start, ticks) = (Instant::now(), cpu_ticks()?);
        Ok(Self { records, start, ticks, new: None, first_old: None, last_old: None, old: 0 })
    }

    fn saw_old(&mut self) {
        self.old += 1;
        if self.old == 1 {
            self.first_old = Some(self.start.elapsed());
        }
        if self.old == self.records {
            self.last_old = Some(self.start.elapsed());
        }
    }

    fn saw_new(&mut self) {
        self.new = self.new.or_else(|| Some(self.start.elapsed()));
    }

    fn goes_on(&self) -> bool {
        self.new.is_none() || self.last_old.is_none()
    }

    fn end(self) -> Result<Measured, Failure> {
        let (first, last) = (self.first_old.ok_or("no old record")?, self.last_old.ok_or("not all old records")?);
        Ok(Measured {
            new: self.new.ok_or("no new record")?.as_secs_f64(),
            since_assignment: rate(self.records, last),
            first_to_last: rate(self.records - 1, last - first),
            // A tick of Linux is a hundredth of a second.
            processor: f64::from(cpu_ticks()? - self.ticks) / 100.0,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let bootstrap = args.next().ok_or("usage: head_start BOOTSTRAP [RECORDS [ROUNDS [IN_FLIGHT]]]")?;
    let mut records = args.next().map_or(Ok(1_000_000), |text| text.parse::<i64>())?;
    let rounds = args.next().map_or(Ok(1), |text| text.parse::<u32>())?;
    let in_flight = args.next().map_or(Ok(Settings::default().backfill.records), |text| text.parse::<usize>())?;
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

    let mut alike = base.clone();
    alike.set("fetch.queue.backoff.ms", "10").set("queued.max.messages.kbytes", (16 << 10).to_string());
    for round in 1..=rounds {
        let mut peers = Vec::new();
        for (name, config) in [("plain", &base), ("alike", &alike), ("stream", &alike), ("handed", &alike)] {
            let config = group(config, &topic, &format!("{name}-{round}"))?;
            let measured = match name {
                "stream" => stream(&base, &config, &topic, records).await?,
                "handed" => handed(&base, &config, &topic, records).await?,
                _ => plain(&base, &config, &topic, records).await?,
            };
            println!("{name:9} {measured}");
            peers.push((name, measured));
            // Each of them leaves a record more.
            records += 1;
        }
        let idle = if round == rounds { IDLE } else { Duration::ZERO };
        let builder = CatchUpConsumer::builder(group(&base, &topic, &format!("catch-up-{round}"))?);
        let builder = builder.in_flight_max(Lane::Backfill, in_flight).fork_when(Lag::records(0));
        let catch_up = catch_up(&base, &topic, builder, records, idle).await?;
        println!("catch-up  {catch_up}");
        for (name, peer) in peers {
            println!(
                "catch-up to {name}: {:.2} since the assignment, {:.2} from the first old record to the last",
                catch_up.since_assignment / peer.since_assignment,
                catch_up.first_to_last / peer.first_to_last
            );
        }
        records += 1;
    }
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

/// Whether the group has given that consumer its partition.
fn assigned<C: ConsumerContext>(consumer: &impl Consumer<C>) -> Result<bool, Failure> {
    Ok(consumer.assignment()?.count() > 0)
}

/// Takes offsets from a consumer that was just assigned, until it has seen all old records and the new one.
async fn watch(
    base: &ClientConfig,
    topic: &str,
    records: i64,
    mut next: impl AsyncFnMut() -> Result<i64, Failure>,
) -> Result<Measured, Failure> {
    let mut watch = Watch::start(records)?;
    tokio::task::block_in_place(|| produce(base, topic, 1))?;
    while watch.goes_on() {
        if next().await? >= records { watch.saw_new() } else { watch.saw_old() }
    }
    watch.end()
}

async fn plain(base: &ClientConfig, config: &ClientConfig, topic: &str, records: i64) -> Result<Measured, Failure> {
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    while !assigned(&consumer)? {
        consumer.poll(Duration::from_millis(1)).transpose()?;
    }
    let next = async || Ok(consumer.poll(PATIENCE).ok_or("no record")??.offset());
    watch(base, topic, records, next).await
}

async fn stream(base: &ClientConfig, config: &ClientConfig, topic: &str, records: i64) -> Result<Measured, Failure> {
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    while !assigned(&consumer)? {
        // Rebalances are served by it.
        let _ = tokio::time::timeout(Duration::from_millis(1), consumer.recv()).await;
    }
    let next = async || Ok(consumer.recv().await?.offset());
    watch(base, topic, records, next).await
}

async fn handed(base: &ClientConfig, config: &ClientConfig, topic: &str, records: i64) -> Result<Measured, Failure> {
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    while !assigned(&consumer)? {
        consumer.poll(Duration::from_millis(1)).transpose()?;
    }
    let (to_task, mut from_thread) = tokio::sync::mpsc::channel(1_000);
    let polls = std::thread::spawn(move || {
        while !to_task.is_closed() {
            if let Some(record) = consumer.poll(Duration::from_millis(100)) {
                // An error means that nobody wants it any more.
                let _ = to_task.blocking_send(record.map(|record| record.detach()));
            }
        }
    });
    let next = async || Ok(from_thread.recv().await.ok_or("no record")??.offset());
    let measured = watch(base, topic, records, next).await;
    drop(from_thread);
    polls.join().map_err(|_| "a panic")?;
    measured
}

async fn catch_up(
    base: &ClientConfig,
    topic: &str,
    builder: Builder,
    records: i64,
    idle: Duration,
) -> Result<Measured, Failure> {
    let consumer = builder.commit(Commit::Every(Duration::from_secs(1))).build()?;
    consumer.subscribe(&[topic])?;
    while consumer.status().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut watch = Watch::start(records)?;
    // A record that is there before the fork would be an old one.
    while consumer.status().iter().any(|(_, status)| status.state == State::Resolving) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let producing = (base.clone(), topic.to_owned());
    tokio::task::spawn_blocking(move || produce(&producing.0, &producing.1, 1).map_err(|error| error.to_string()))
        .await??;
    while watch.goes_on() {
        let delivery = consumer.recv().await?.ok_or("the consumer ended")?;
        match delivery.lane() {
            Lane::Live => watch.saw_new(),
            Lane::Backfill => watch.saw_old(),
        }
        delivery.ack();
    }
    let measured = watch.end()?;
    if !idle.is_zero() {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = cpu_ticks()?;
        tokio::time::sleep(idle).await;
        println!("idle:     {:.2} % of a core", f64::from(cpu_ticks()? - before) / idle.as_secs_f64());
    }
    consumer.close().await?;
    Ok(measured)
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
