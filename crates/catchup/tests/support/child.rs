//! `catchup consume --ack stdin` as a child process: the test is its application, and can kill it at any point. What it delivers is
//! checked against the promises about order (O1 to O4).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::SOON;
use super::order::{Delivered, Order};

/// One line of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) live: bool,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// What it is told at its start.
pub(crate) struct Options<'a> {
    pub(crate) commit_every: &'a str,
    pub(crate) drain_deadline: &'a str,
    pub(crate) session_ms: u32,
    /// Arguments before the topic.
    pub(crate) more: &'a [&'a str],
}

impl Default for Options<'_> {
    /// It commits only when told to.
    fn default() -> Self {
        Self { commit_every: "1h", drain_deadline: "1s", session_ms: 6_000, more: &[] }
    }
}

pub(crate) struct Consumer {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Line>,
    events: Receiver<String>,
    topic: String,
    order: Arc<Mutex<Order>>,
    /// While that is set its lines are not read.
    pub(crate) closed: Arc<AtomicBool>,
}

impl Consumer {
    /// Forks above ten records and commits only when told to.
    pub(crate) fn start(bootstrap: &str, group: &str, topic: &str, more: &[&str]) -> Self {
        Self::with(bootstrap, group, topic, &Options { more, ..Options::default() })
    }

    /// One whose session does not end when the machine is busy: for a life that is not killed before another one begins.
    pub(crate) fn patient(bootstrap: &str, group: &str, topic: &str, more: &[&str]) -> Self {
        Self::with(bootstrap, group, topic, &Options { more, session_ms: 120_000, ..Options::default() })
    }

    /// Forks above ten records.
    pub(crate) fn with(bootstrap: &str, group: &str, topic: &str, options: &Options<'_>) -> Self {
        let session = format!("session.timeout.ms={}", options.session_ms);
        let mut process = Command::new(env!("CARGO_BIN_EXE_catchup"))
            .args(["consume", "--bootstrap", bootstrap, "--group", group, "--ack", "stdin", "--fork-when", "10"])
            .args(["--commit-every", options.commit_every, "--drain-deadline", options.drain_deadline])
            .args(["-X", "auto.offset.reset=earliest", "-X", &session])
            .args(["-X", "heartbeat.interval.ms=300", "-X", "broker.address.family=v4"])
            .args(options.more)
            .arg(topic)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let order = Arc::<Mutex<Order>>::default();
        let (line, lines) = channel();
        let output = process.stdout.take().unwrap();
        let closed = Arc::<AtomicBool>::default();
        let (its_order, is_closed) = (Arc::clone(&order), Arc::clone(&closed));
        thread::spawn(move || read_lines(output, &its_order, &is_closed, &line));
        let (event, events) = channel();
        let errors = process.stderr.take().unwrap();
        let (its_order, its_topic) = (Arc::clone(&order), topic.to_owned());
        thread::spawn(move || read_events(errors, &its_topic, &its_order, &event));
        let input = process.stdin.take();
        Self { process, input, lines, events, topic: topic.to_owned(), order, closed }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line, if there is one in that time; an error when there will be none any more.
    pub(crate) fn line_within(&self, time: Duration) -> Result<Option<Line>, ()> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// The next lines, in the order they came in.
    pub(crate) fn take_lines(&self, count: usize) -> Vec<Line> {
        let mut taken: Vec<Line> = Vec::with_capacity(count);
        for _ in 0..count {
            let line = self.lines.recv_timeout(SOON).unwrap_or_else(|why| panic!("{why} after {:?}", taken.last()));
            taken.push(line);
        }
        taken
    }

    /// The next lines, as offsets of the live lane and of the backfill.
    pub(crate) fn take(&self, count: usize) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let (mut live, mut backfill) = (BTreeSet::new(), BTreeSet::new());
        for line in self.take_lines(count) {
            let fresh = if line.live { live.insert(line.offset) } else { backfill.insert(line.offset) };
            assert!(fresh, "{line:?} came twice in one life");
        }
        (live, backfill)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout)
    }

    /// Waits for an event whose text contains that.
    pub(crate) fn event(&self, wanted: &str) -> String {
        let deadline = Instant::now() + SOON;
        let mut before = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let text = self.events.recv_timeout(left).unwrap_or_else(|_| panic!("no {wanted}, but {before:?}"));
            if text.contains(wanted) {
                return text;
            }
            before.push(text);
        }
    }

    /// The events so far that nobody has asked for.
    pub(crate) fn new_events(&self) -> Vec<String> {
        self.events.try_iter().collect()
    }

    fn say(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Acknowledges records of partition 0.
    pub(crate) fn ack(&mut self, offsets: impl IntoIterator<Item = i64>) {
        let topic = self.topic.clone();
        for offset in offsets {
            self.say(&format!("{topic} 0 {offset}\n"));
        }
    }

    /// Acknowledges that record.
    pub(crate) fn ack_line(&mut self, line: &Line) {
        let text = format!("{} {} {}\n", self.topic, line.partition, line.offset);
        self.say(&text);
    }

    pub(crate) fn commit(&mut self) {
        self.say("commit\n");
    }

    /// kill -9. Answers the events that nobody has asked for.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.last_events()
    }

    /// The end of its input: it commits, leaves and ends. Answers as [`Consumer::kill`] does.
    pub(crate) fn finish(mut self) -> Vec<String> {
        drop(self.input.take());
        let deadline = Instant::now() + SOON;
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
        self.last_events()
    }

    fn last_events(&self) -> Vec<String> {
        // Up to the end of its pipes, so that what they said is checked too.
        while self.lines.recv_timeout(SOON).is_ok() {}
        let events = self.events.iter().collect();
        self.assert_order();
        events
    }

    fn assert_order(&self) {
        assert!(!self.order.is_poisoned(), "a line was not what is promised");
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !thread::panicking() {
            self.assert_order();
        }
    }
}

fn read_lines(output: ChildStdout, order: &Mutex<Order>, closed: &AtomicBool, lines: &Sender<Line>) {
    for text in BufReader::new(output).lines().map_while(Result::ok) {
        while closed.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        // A kill may have cut the last one.
        let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) else { return };
        let mut order = order.lock().unwrap();
        let number = |field: &str| json[field].as_i64().unwrap();
        let parsed = Line {
            live: json["lane"] == "live",
            partition: i32::try_from(number("partition")).unwrap(),
            offset: number("offset"),
        };
        assert_eq!(json["value"].as_str().unwrap(), parsed.offset.to_string());
        order.check(&Delivered {
            topic: json["topic"].as_str().unwrap(),
            partition: parsed.partition,
            epoch: json["epoch"].as_u64().unwrap(),
            live: parsed.live,
            offset: parsed.offset,
            fork: json["fork"].as_i64(),
        });
        drop(order);
        if lines.send(parsed).is_err() {
            return;
        }
    }
}

fn read_events(errors: ChildStderr, topic: &str, order: &Mutex<Order>, events: &Sender<String>) {
    for text in BufReader::new(errors).lines().map_while(Result::ok) {
        if let Some((partition, epoch, "CaughtUp")) = happened(&text, topic) {
            // Of another pipe than the lines, which may be read late or early: but whoever acknowledged all of that assignment's gap has
            // read all of its lines.
            order.lock().unwrap().caught_up(topic, partition, epoch);
        }
        if events.send(text).is_err() {
            return;
        }
    }
}

/// Partition, epoch and event of a line like `orders/0, epoch 3: CaughtUp`.
fn happened<'a>(text: &'a str, topic: &str) -> Option<(i32, u64, &'a str)> {
    let (place, event) = text.split_once(": ")?;
    let (partition, epoch) = place.strip_prefix(topic)?.strip_prefix('/')?.split_once(", epoch ")?;
    Some((partition.parse().ok()?, epoch.parse().ok()?, event))
}

/// Partition and event of such a line.
pub(crate) fn partition_of<'a>(text: &'a str, topic: &str) -> Option<(i32, &'a str)> {
    happened(text, topic).map(|(partition, _, event)| (partition, event))
}
