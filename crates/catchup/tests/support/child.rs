//! `catchup consume --ack stdin` as a child process: the test is its application, and can kill it at any point.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::SOON;

/// One line of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) live: bool,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

pub(crate) struct Consumer {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Line>,
    events: Receiver<String>,
    topic: String,
}

impl Consumer {
    /// Forks above ten records and commits only when told to.
    pub(crate) fn start(bootstrap: &str, group: &str, topic: &str, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_catchup"))
            .args(["consume", "--bootstrap", bootstrap, "--group", group, "--ack", "stdin", "--fork-when", "10"])
            .args(["--commit-every", "1h", "--drain-deadline", "1s", "-X", "auto.offset.reset=earliest"])
            .args([
                "-X",
                "session.timeout.ms=6000",
                "-X",
                "heartbeat.interval.ms=300",
                "-X",
                "broker.address.family=v4",
            ])
            .args(more)
            .arg(topic)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (line, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        thread::spawn(move || {
            for text in output.lines().map_while(Result::ok) {
                let json: serde_json::Value = serde_json::from_str(&text).unwrap();
                let parsed = Line {
                    live: json["lane"] == "live",
                    partition: i32::try_from(json["partition"].as_i64().unwrap()).unwrap(),
                    offset: json["offset"].as_i64().unwrap(),
                };
                assert_eq!(json["value"].as_str().unwrap(), parsed.offset.to_string());
                if line.send(parsed).is_err() {
                    return;
                }
            }
        });
        let (event, events) = channel();
        let errors = BufReader::new(process.stderr.take().unwrap());
        thread::spawn(move || {
            for text in errors.lines().map_while(Result::ok) {
                if event.send(text).is_err() {
                    return;
                }
            }
        });
        let input = process.stdin.take();
        Self { process, input, lines, events, topic: topic.to_owned() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next lines, as offsets of the live lane and of the backfill.
    pub(crate) fn take(&self, count: usize) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let (mut live, mut backfill) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..count {
            let line = self.lines.recv_timeout(SOON).expect("a record in time");
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
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let text = self.events.recv_timeout(left).unwrap_or_else(|_| panic!("no {wanted}"));
            if text.contains(wanted) {
                return text;
            }
        }
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

    pub(crate) fn commit(&mut self) {
        self.say("commit\n");
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The end of its input: it commits, leaves and ends.
    pub(crate) fn finish(mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + SOON;
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
