//! `catchup consume`.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use milena_catchup::{
    Ack, AckOutcome, CatchUpConsumer, Checkpoint, Commit, Delivery, Epoch, Error, Event, Events, Happened, Lag, Lane,
    Order, TopicPartition,
};
use rdkafka::message::Message;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::{Client, Failure};

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    client: Client,
    /// The group
    #[arg(long, short)]
    group: String,
    /// Topics
    #[arg(required = true)]
    topics: Vec<String>,
    /// In which order records of a partition come
    #[arg(long, value_enum, default_value_t = Ordering::LiveFirst)]
    order: Ordering,
    /// Lag in records above which new records are read beside the old ones
    #[arg(long, value_name = "RECORDS", default_value_t = 10_000)]
    fork_when: u64,
    /// How often to commit
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    commit_every: Duration,
    /// How long a partition that another member gets waits for acknowledgements
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    drain_deadline: Duration,
    /// Keep finished ranges in this compacted topic, for brokers that drop the metadata of offsets
    #[arg(long, value_name = "TOPIC")]
    checkpoint_topic: Option<String>,
    /// When a record is finished
    #[arg(long, value_enum, default_value_t = When::Written)]
    ack: When,
    /// Stop after so many records
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ordering {
    /// New records at once, old ones beside them
    LiveFirst,
    /// Strictly by offset
    Offset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// When its line is written
    Written,
    /// When a line TOPIC PARTITION OFFSET comes on standard input; a line `commit` commits, the end of the input stops
    Stdin,
}

pub(crate) async fn run(args: ConsumeArgs) -> Result<(), Failure> {
    let order = match args.order {
        Ordering::LiveFirst => Order::LiveFirst,
        Ordering::Offset => Order::Offset,
    };
    let consumer = CatchUpConsumer::builder(args.client.config(&args.group))
        .order(order)
        .fork_when(Lag::records(args.fork_when))
        .commit(Commit::Every(args.commit_every))
        .drain_deadline(args.drain_deadline)
        .checkpoint(args.checkpoint_topic.map_or(Checkpoint::Metadata, Checkpoint::Topic))
        .build()?;
    let mut events = consumer.events();
    let topics: Vec<_> = args.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut input = if args.ack == When::Stdin { lines() } else { mpsc::channel(1).1 };
    let mut open = Open::default();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        tokio::select! {
            delivery = consumer.recv() => {
                let Some(delivery) = delivery? else { break };
                write_line(&delivery)?;
                left -= 1;
                match args.ack {
                    When::Written => { delivery.ack(); }
                    When::Stdin => open.insert(delivery),
                }
            }
            Some(happened) = events.next() => {
                tell(&happened);
                open.forget_after(&happened);
            }
            line = input.recv(), if args.ack == When::Stdin => match line {
                Some(line) if line.trim() == "commit" => match consumer.commit().await {
                    // The next commit writes it again. A refusal is for when the group has gone on without this member: an event tells it.
                    Err(error @ (Error::Checkpoint(_) | Error::Commit(_))) => complain(&error.to_string()),
                    committed => committed?,
                },
                Some(line) => open.finish(&line),
                None => break,
            },
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    // What is open will not be finished any more.
    drop(open);
    leave(consumer, events).await
}

/// How long the last events may take once the consumer has ended.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// Commits and leaves the group. What becomes of that is still told.
async fn leave(consumer: CatchUpConsumer, mut events: Events) -> Result<(), Failure> {
    let closed = {
        let close = consumer.close_within(Duration::ZERO);
        tokio::pin!(close);
        loop {
            tokio::select! {
                closed = &mut close => break closed,
                Some(happened) = events.next() => tell(&happened),
            }
        }
    };
    let rest = async {
        while let Some(happened) = events.next().await {
            tell(&happened);
        }
    };
    // They end with the consumer, whose threads may take a moment longer.
    let _ = tokio::time::timeout(LAST_EVENTS, rest).await;
    Ok(closed?)
}

/// The lines of standard input, read by a thread of its own: reading waits, and nothing can end that.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1_024);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Records whose lines were written and that are not acknowledged, each with its assignment.
#[derive(Default)]
struct Open {
    tokens: HashMap<(TopicPartition, i64), (Epoch, Ack)>,
}

impl Open {
    fn insert(&mut self, delivery: Delivery) {
        let epoch = delivery.epoch();
        let (_, ack) = delivery.into_parts();
        self.tokens.insert((ack.partition().clone(), ack.offset()), (epoch, ack));
    }

    fn finish(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let mut place = || {
            let (topic, partition, offset) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            words.next().is_none().then(|| (TopicPartition::new(topic, partition), offset))
        };
        match place().map(|place| self.tokens.remove(&place)) {
            Some(Some((_, ack))) => {
                if ack.ack() == AckOutcome::Stale {
                    complain(&format!("{line}: too late, it will come again"));
                }
            }
            Some(None) => complain(&format!("{line}: not open")),
            None => complain(&format!("{line}: expected TOPIC PARTITION OFFSET")),
        }
    }

    /// What belongs to an assignment that is over cannot be finished. The partition may have come back by now, and records of that
    /// assignment may be open already.
    fn forget_after(&mut self, happened: &Happened) {
        if let Happened::To { epoch: over, event: Event::Revoked | Event::Lost, .. } = happened {
            self.tokens.retain(|_, (epoch, _)| epoch != over);
        }
    }
}

fn tell(happened: &Happened) {
    match happened {
        Happened::To { partition, epoch, event } => complain(&format!("{partition}, epoch {}: {event:?}", epoch.0)),
        Happened::Trouble { code, reason } => complain(&format!("error {code}: {reason}")),
        Happened::Missed(count) => complain(&format!("{count} events were missed")),
        _ => {}
    }
}

fn complain(text: &str) {
    // The records are what matters; nobody may be reading this.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn write_line(delivery: &Delivery) -> std::io::Result<()> {
    let record = delivery.record();
    let lane = match delivery.lane() {
        Lane::Live => "live",
        Lane::Backfill => "backfill",
    };
    let line = json!({
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "lane": lane,
        "fork": delivery.fork(),
        "epoch": delivery.epoch().0,
        "timestamp": record.timestamp().to_millis(),
        "key": text(record.key()),
        "value": text(record.payload()),
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A string where it is one, else an object with the bytes.
fn text(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => Value::Null,
        Some((Ok(text), _)) => Value::from(text),
        Some((Err(_), bytes)) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}
