//! A group member in a process of its own, so that it can be killed and stopped as real ones are. The process is this
//! test binary once more; it tells what it does on its standard output, and leaves when its standard input ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use super::journal::{Entry, Event, Journal, now};

/// Variable that makes the binary a member.
pub const VARIABLE: &str = "TEST_GROUP_MEMBER";
/// Lines with this begin are for the journal; the rest is the test harness's.
const MARK: &str = "@ ";
const COMMIT_EVERY: usize = 10;
/// The shortest that the server allows, for runs where a session ends.
pub const SESSION: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// After some records, waiting for the answer.
    Sync,
    /// After some records, not waiting; before a revocation, waiting.
    Async,
    /// Before a revocation only.
    OnRevoke,
    /// The client's own timer.
    Auto,
}

impl Commit {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::OnRevoke => "on-revoke",
            Self::Auto => "auto",
        }
    }

    fn of(name: &str) -> Self {
        [Self::Sync, Self::Async, Self::OnRevoke, Self::Auto].into_iter().find(|mode| mode.name() == name).unwrap()
    }
}

/// What all members of a group have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    pub bootstrap: String,
    pub group: String,
    pub topic: String,
    pub strategy: &'static str,
    pub commit: Commit,
    pub session: Duration,
}

/// The handle of a member's process. Dropping it kills the process.
pub struct Member {
    pub name: String,
    identity: String,
    process: Child,
    journal: Journal,
}

impl Member {
    pub fn start(plan: &Plan, name: &str, instance: Option<&str>, journal: &Journal) -> Self {
        let spec = json!({"bootstrap": plan.bootstrap, "group": plan.group, "topic": plan.topic, "name": name,
                          "strategy": plan.strategy, "commit": plan.commit.name(), "instance": instance,
                          "session": plan.session.as_millis().to_string()});
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_member_in_its_own_process", "--nocapture"])
            .env(VARIABLE, spec.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let identity = instance.unwrap_or(name).to_owned();
        let member = Self { name: name.to_owned(), identity, process, journal: journal.clone() };
        let (journal, name, identity) = (journal.clone(), member.name.clone(), member.identity.clone());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness may have begun the line.
                if let Some((_, line)) = line.split_once(MARK) {
                    let (at, event) = parse(line);
                    journal.add(Entry { at, member: name.clone(), identity: identity.clone(), event });
                }
            }
        });
        member
    }

    /// Lets it leave the group and end.
    pub fn leave(mut self) {
        drop(self.process.stdin.take());
        let start = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{} does not end\n{}",
                self.name,
                self.journal.summary()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it without a word to the group.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.journal.note(&self.name, &self.identity, Event::Silenced);
    }

    /// Stops it where it is, heartbeats and all.
    pub fn pause(&self) {
        self.signal("-STOP");
        self.journal.note(&self.name, &self.identity, Event::Silenced);
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The member's process, if this is one.
pub fn run_if_asked() {
    let Ok(spec) = std::env::var(VARIABLE) else { return };
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let text = |name: &str| spec[name].as_str().unwrap();
    let commit = Commit::of(text("commit"));
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", text("bootstrap"))
        .set("broker.address.family", "v4")
        .set("client.id", text("name"))
        .set("group.id", text("group"))
        .set("partition.assignment.strategy", text("strategy"))
        .set("session.timeout.ms", text("session"))
        .set("heartbeat.interval.ms", "300")
        .set("max.poll.interval.ms", "60000")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", if commit == Commit::Auto { "true" } else { "false" })
        .set("auto.commit.interval.ms", "200")
        // What is still queued when the consumer is closed counts as read otherwise, and nobody would ever read it.
        .set("enable.auto.offset.store", "false")
        .set("fetch.wait.max.ms", "100")
        .set("reconnect.backoff.max.ms", "300")
        // The generation is only told in its log.
        .set("debug", "cgrp")
        .set_log_level(RDKafkaLogLevel::Debug);
    if let Some(instance) = spec["instance"].as_str() {
        config.set("group.instance.id", instance);
    }
    let context = Context {
        generation: AtomicI32::new(0),
        commit,
        topic: text("topic").to_owned(),
        read: Mutex::default(),
        under_way: Mutex::new(UnderWay::Nothing),
    };
    let consumer: BaseConsumer<Context> = config.create_with_context(context).unwrap();
    consumer.subscribe(&[text("topic")]).unwrap();
    let leaving = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&leaving);
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        told.store(true, Ordering::SeqCst);
    });
    consume(&consumer, &leaving);
    drop(consumer);
}

fn consume(consumer: &BaseConsumer<Context>, leaving: &AtomicBool) {
    let context = Arc::clone(consumer.context());
    let mut uncommitted = 0;
    while !leaving.load(Ordering::SeqCst) {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let (partition, offset) = (message.partition(), message.offset());
                say(&format!("got {} {partition} {offset}", context.generation()));
                context.read.lock().unwrap().insert(partition, offset + 1);
                if context.commit == Commit::Auto
                    && let Err(error) = consumer.store_offset_from_message(&message)
                {
                    // Its partition was taken away in this moment.
                    say(&format!("refused {error:?}"));
                }
                uncommitted += 1;
            }
            Some(Err(error)) => say(&format!("failed {error:?}")),
            None if uncommitted > 0 => uncommitted = COMMIT_EVERY,
            None => {}
        }
        if uncommitted >= COMMIT_EVERY {
            uncommitted = 0;
            match context.commit {
                Commit::Sync => context.commit_now(consumer),
                Commit::Async => context.commit_soon(consumer),
                Commit::OnRevoke | Commit::Auto => {}
            }
        }
    }
}

struct Context {
    generation: AtomicI32,
    commit: Commit,
    topic: String,
    /// The next offset to read of each partition that it has.
    read: Mutex<BTreeMap<i32, i64>>,
    under_way: Mutex<UnderWay>,
}

/// An asynchronous commit. The binding reports those of the client's timer only, so that the client's log has to tell
/// what became of the others; it does not say which it means, so there is one at a time.
enum UnderWay {
    Nothing,
    Commit(TopicPartitionList),
    /// One failed and may be tried again by the client: until the next assignment nobody knows what a success means.
    Doubt,
}

impl Context {
    fn generation(&self) -> i32 {
        self.generation.load(Ordering::SeqCst)
    }

    fn positions(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in &*self.read.lock().unwrap() {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(*offset)).unwrap();
        }
        list
    }

    fn commit_now(&self, consumer: &BaseConsumer<Self>) {
        let list = self.positions();
        if list.count() == 0 {
            return;
        }
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => acknowledged(&list),
            Err(error) => say(&format!("refused {error:?}")),
        }
    }

    fn commit_soon(&self, consumer: &BaseConsumer<Self>) {
        let list = self.positions();
        let mut under_way = self.under_way.lock().unwrap();
        if list.count() > 0 && matches!(*under_way, UnderWay::Nothing) {
            consumer.commit(&list, CommitMode::Async).unwrap();
            *under_way = UnderWay::Commit(list);
        }
    }

    /// What the client's log says of a commit.
    fn commit_ended(&self, outcome: &str) {
        if outcome.contains("in progress") && outcome.contains("Local") {
            return;
        }
        let mut under_way = self.under_way.lock().unwrap();
        if let UnderWay::Commit(list) = &*under_way {
            let success = outcome.starts_with("Success");
            if success {
                acknowledged(list);
            } else {
                say(&format!("refused {outcome}"));
            }
            *under_way = if success { UnderWay::Nothing } else { UnderWay::Doubt };
        }
    }
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, message: &str) {
        if message.contains("OffsetCommit for ")
            && let Some((_, outcome)) = message.split_once(": returned: ")
        {
            self.commit_ended(outcome);
        }
        if let Some((_, rest)) = message.split_once("JoinGroup response: GenerationId ") {
            let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
            // An answer that is an error has none.
            if let Some(generation) = number.parse().ok().filter(|number| *number > 0) {
                self.generation.store(generation, Ordering::SeqCst);
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        say(&format!("failed {error:?}: {reason}"));
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                *self.under_way.lock().unwrap() = UnderWay::Nothing;
                say(&format!("assigned {} {}", self.generation(), partitions(list)));
            }
            Rebalance::Revoke(list) => {
                if self.commit != Commit::Auto {
                    self.commit_now(consumer);
                }
                let mut read = self.read.lock().unwrap();
                for element in list.elements() {
                    read.remove(&element.partition());
                }
                // From here on nobody may read for it, so it is said last.
                say(&format!("revoked {} {}", self.generation(), partitions(list)));
            }
            Rebalance::Error(error) => say(&format!("failed {error:?}")),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) => acknowledged(offsets),
            Err(error) => say(&format!("refused {error:?}")),
        }
    }
}

fn acknowledged(list: &TopicPartitionList) {
    let pairs = list.elements().into_iter().filter(|element| element.error().is_ok()).filter_map(|element| {
        let Offset::Offset(offset) = element.offset() else { return None };
        Some(format!("{}:{offset}", element.partition()))
    });
    let pairs: Vec<String> = pairs.collect();
    if !pairs.is_empty() {
        say(&format!("acked {}", pairs.join(",")));
    }
}

fn partitions(list: &TopicPartitionList) -> String {
    let numbers = list.elements().iter().map(|element| element.partition().to_string()).collect::<Vec<_>>();
    numbers.join(",")
}

fn say(text: &str) {
    let line = format!("{MARK}{} {}\n", now(), text.replace('\n', " "));
    // The journal's end of the pipe is gone when the test has ended.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn parse(line: &str) -> (u64, Event) {
    let mut words = line.splitn(3, ' ');
    let at = words.next().unwrap().parse().unwrap();
    let kind = words.next().unwrap();
    let rest = words.next().unwrap_or_default();
    let list = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect();
    let event = match kind {
        "assigned" | "revoked" => {
            let (generation, partitions) = rest.split_once(' ').unwrap();
            let (generation, partitions) = (generation.parse().unwrap(), list(partitions));
            if kind == "assigned" {
                Event::Assigned { generation, partitions }
            } else {
                Event::Revoked { generation, partitions }
            }
        }
        "got" => {
            let numbers: Vec<i64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
            let small = |index: usize| i32::try_from(numbers[index]).unwrap();
            Event::Got { generation: small(0), partition: small(1), offset: numbers[2] }
        }
        "acked" => {
            let pair = |text: &str| {
                let (partition, offset) = text.split_once(':').unwrap();
                (partition.parse().unwrap(), offset.parse().unwrap())
            };
            Event::Acked { offsets: rest.split(',').map(pair).collect() }
        }
        "refused" => Event::Refused { reason: rest.to_owned() },
        "failed" => Event::Failed { reason: rest.to_owned() },
        other => panic!("a member says {other}"),
    };
    (at, event)
}
