//! The thread that drives both clients: it polls them, hands what comes to the partitions, and does what these ask for.
//!
//! Nothing in it waits for a broker or for the application. It sleeps until a client has something, the application acknowledged
//! something that matters, an answer came, or a time is reached.
//!
//! - `group`: assignments, revocations, the end
//! - `tasks`: what partitions ask for
//! - `commits`: one commit at a time for all partitions
//! - `end`: whether the end of the log is the end of a gap
//! - `checkpoints`: what goes to the checkpoint topic

mod checkpoints;
mod commits;
mod end;
mod group;
mod tasks;

pub(crate) use group::COMMIT_PATIENCE;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::oneshot;

use crate::broker::{Answer, Broker, Doubt, Job};
use crate::checkpoint::{Write, Writer};
use crate::delivery::TopicPartition;
use crate::error::number;
use crate::member::Member;
use crate::queues::{Failure, Polled, Queues};
use crate::reader::Reader;
use crate::records::Batch;
use crate::shared::Shared;
use crate::wake::Wake;
use crate::{Bound, Commit, Epoch, Error, Event, Input, Lane};

/// Records taken from one lane of one partition before the others are looked at.
const BATCH: usize = 512;

/// The longest sleep: what a missed wake-up could cost.
const NAP: Duration = Duration::from_millis(500);

/// What the application asks for.
pub(crate) enum Command {
    /// Commit what is finished now.
    Commit(oneshot::Sender<Result<(), Error>>),
    /// Drain for so long at most, commit, leave the group.
    Close(oneshot::Sender<Result<(), Error>>, Duration),
    /// As `Close`, but the application waits for nothing and acknowledges nothing more.
    Abandon,
}

/// Something to do later.
#[derive(Debug, Clone)]
enum Later {
    Resolve(TopicPartition, Epoch),
    Begin(TopicPartition, Epoch),
    LogEnd(TopicPartition, Epoch),
    Write(Write),
    ReadOn(TopicPartition, Epoch, Lane),
}

/// What the member does with a partition.
#[derive(Debug, Default)]
struct Place {
    /// It is to begin here, and did not yet.
    begin: Option<i64>,
    /// How often that was tried.
    tries: u32,
    /// Where the reader ends.
    fork: i64,
    /// Whether a report of the log's end is the end of the gap.
    end: end::Checked,
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    wake: Arc<Wake>,
    config: ClientConfig,
    member: Member,
    reader: Option<Reader>,
    commands: Receiver<Command>,
    answers: Receiver<Answer>,
    /// Asks where partitions start.
    asking: Broker,
    /// Commits.
    committing: Broker,
    /// Writes checkpoints, where they have a topic.
    writer: Option<Writer>,
    places: HashMap<TopicPartition, Place>,
    later: Vec<(Instant, Later)>,
    commits: commits::Commits,
    next_commit: Option<Instant>,
    leaving: Option<group::Leaving>,
    closing: Vec<oneshot::Sender<Result<(), Error>>>,
    end: Option<Result<(), Error>>,
    /// Empty; kept for its memory.
    batch: Batch,
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: ClientConfig,
    pub(crate) member: Member,
    pub(crate) commands: Receiver<Command>,
    pub(crate) answers: Receiver<Answer>,
    pub(crate) asking: Broker,
    pub(crate) committing: Broker,
    pub(crate) writer: Option<Writer>,
}

impl Drop for Driver {
    /// Also when a round panicked: whoever waits must hear of it, and a client whose rebalances nobody answers never closes.
    fn drop(&mut self) {
        self.member.close();
        self.shared.finish(Err(Error::Closed));
    }
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { shared, config, member, commands, answers, asking, committing, writer } = parts;
        let mut driver = Self {
            wake: Arc::clone(&shared.wake),
            shared,
            config,
            member,
            reader: None,
            commands,
            answers,
            asking,
            committing,
            writer,
            places: HashMap::new(),
            later: Vec::new(),
            commits: commits::Commits::default(),
            next_commit: None,
            leaving: None,
            closing: Vec::new(),
            end: None,
            batch: Batch::default(),
        };
        driver.next_commit = driver.interval().map(|interval| Instant::now() + interval);
        driver
    }

    /// Goes on until the consumer is closed or the client cannot go on.
    pub(crate) fn run(mut self) {
        while self.end.is_none() {
            // First, so that a lane that acknowledgements let go on is read in this round.
            self.do_tasks();
            let more = self.poll_member() | self.poll_reader();
            self.obey();
            self.hear();
            self.check_times();
            self.do_tasks();
            self.send_commits();
            self.check_leaving();
            if !more && self.end.is_none() {
                self.wake.wait_until(self.next_time());
            }
        }
        self.leave();
    }

    fn interval(&self) -> Option<Duration> {
        match self.shared.settings().commit {
            Commit::Every(interval) => Some(interval.max(Duration::from_millis(1))),
            Commit::Manual => None,
        }
    }

    /// `true` when there may be more.
    fn poll_member(&mut self) -> bool {
        loop {
            match self.member.queues.poll_common() {
                Polled::Record((partition, mut batch)) => {
                    self.shared.fetched(&partition, Lane::Live, &mut batch);
                }
                Polled::Failed(failure) => self.member_failed(failure),
                Polled::End => {}
                Polled::Empty => break,
            }
        }
        self.answer_group();
        let opened = self.member.queues.opened();
        opened.iter().fold(false, |more, partition| self.poll_lane(Lane::Live, partition) | more)
    }

    fn poll_reader(&mut self) -> bool {
        while let Some(reader) = &self.reader {
            match reader.queues.poll_common() {
                Polled::Record((partition, mut batch)) => {
                    self.shared.fetched(&partition, Lane::Backfill, &mut batch);
                }
                Polled::Failed(Failure { error, .. }) => tracing::debug!("reader: {error}"),
                Polled::End => {}
                Polled::Empty => break,
            }
        }
        let opened = self.reader.as_ref().map(|reader| reader.queues.opened()).unwrap_or_default();
        opened.iter().fold(false, |more, partition| self.poll_lane(Lane::Backfill, partition) | more)
    }

    /// One batch of a partition's lane: as much as the lane takes until it is full, so that what is over stays with the client. `true`
    /// when there may be more.
    fn poll_lane(&mut self, lane: Lane, partition: &TopicPartition) -> bool {
        let Bound { records, bytes } = self.shared.room(partition, lane);
        let room = Bound { records: records.min(BATCH), bytes };
        let mut batch = std::mem::take(&mut self.batch);
        let other = self.queues(lane).map_or(Some(Polled::Empty), |queues| queues.fill(partition, room, &mut batch));
        // One lock and at most one wake-up for all of them.
        let tasks = !batch.is_empty() && self.shared.fetched(partition, lane, &mut batch);
        self.batch = batch;
        if tasks {
            self.do_tasks();
        }
        match other {
            None | Some(Polled::Record(..)) => return true,
            Some(Polled::Empty) => return false,
            // A lane that ended with one of these records does not care for what came behind it.
            Some(_) if !self.queues(lane).is_some_and(|queues| queues.has(partition)) => return false,
            Some(Polled::End) => {
                if lane == Lane::Backfill {
                    self.reader_ended(partition);
                }
            }
            Some(Polled::Failed(Failure { error, reason })) => {
                tracing::warn!("{lane:?} lane of {partition}: {error}: {reason}");
                match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::AutoOffsetReset) => self.ask_for_ends(partition, lane),
                    code => {
                        let code = number(code.unwrap_or(RDKafkaErrorCode::Fail));
                        self.shared.tell(partition, Event::ReadFailed { lane, code, reason });
                    }
                }
            }
        }
        self.do_tasks();
        true
    }

    fn queues(&self, lane: Lane) -> Option<&Queues> {
        match lane {
            Lane::Live => Some(&self.member.queues),
            Lane::Backfill => self.reader.as_ref().map(|reader| &reader.queues),
        }
    }

    fn member_failed(&mut self, failure: Failure) {
        let Failure { error, reason } = failure;
        if let KafkaError::MessageConsumptionFatal(_) = error {
            tracing::error!("the client cannot go on: {error}: {reason}");
            self.end = Some(Err(Error::Fatal(error)));
        } else {
            self.shared.trouble(number(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)), reason);
        }
    }

    fn ask_for_ends(&self, partition: &TopicPartition, lane: Lane) {
        if let Some(epoch) = self.shared.epoch(partition) {
            self.asking.ask(Job::LogEnds(partition.clone(), epoch, Doubt::Position(lane)));
        }
    }

    /// Does what the application asks for.
    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Commit(reply) => self.commits.flush(&self.shared, reply),
                Command::Close(reply, drain) => {
                    self.closing.push(reply);
                    self.leave_all(drain);
                }
                Command::Abandon => self.leave_all(Duration::ZERO),
            }
        }
    }

    fn commit_all(&self) {
        for partition in self.shared.partitions() {
            self.shared.step(&partition, Input::CommitDue);
        }
    }

    /// Takes what the broker said.
    fn hear(&mut self) {
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Resolved(epoch, Some(resolved)) => {
                    self.shared.step_in(epoch, Input::Resolved(resolved));
                }
                Answer::Resolved(epoch, None) => {
                    self.shared.step_in(epoch, Input::ResolveFailed);
                }
                Answer::LogEnds(partition, epoch, Doubt::Position(lane), ends) => {
                    self.ends_are(&partition, epoch, lane, ends);
                }
                Answer::LogEnds(partition, epoch, Doubt::End, ends) => {
                    self.log_end_is(&partition, epoch, ends.map(|(_, end)| end));
                }
                Answer::Committed(views) => self.committed(views),
                Answer::Saved(epoch, id, ok) => self.shared.step_in(epoch, Input::Saved { id, ok }),
                Answer::ReadBack(epoch, found) => {
                    // Not answered is not "not kept": it is asked again after a later commit.
                    let (floor, metadata) = found.unwrap_or((-1, String::new()));
                    self.shared.step_in(epoch, Input::ReadBack { floor, metadata });
                }
            }
        }
    }

    fn check_times(&mut self) {
        let now = Instant::now();
        if self.next_commit.is_some_and(|at| at <= now) {
            self.commit_all();
            self.next_commit = self.interval().map(|interval| now + interval);
        }
        let mut due = Vec::new();
        self.later.retain(|(at, what)| {
            let waits = *at > now;
            if !waits {
                due.push(what.clone());
            }
            waits
        });
        for what in due {
            match what {
                Later::Resolve(partition, epoch) => self.asking.ask(Job::Resolve(vec![(partition, epoch)])),
                Later::Begin(partition, epoch) => self.begin(&partition, epoch),
                Later::ReadOn(partition, epoch, lane) => self.read_on(&partition, epoch, lane),
                Later::LogEnd(partition, epoch) => self.asking.ask(Job::LogEnds(partition, epoch, Doubt::End)),
                Later::Write(write) => self.send_write(write),
            }
        }
    }

    fn next_time(&self) -> Instant {
        let times = self.later.iter().map(|(at, _)| *at).chain(self.next_commit).chain(self.commits.next_time());
        let nap = Instant::now() + self.leaving.as_ref().map_or(NAP, group::Leaving::nap);
        times.fold(nap, Instant::min)
    }
}

/// How long to wait before the try after that many failures: a tenth of a second, twice as long each time, 6.4 s at most.
fn back_off(failures: u32) -> Duration {
    Duration::from_millis(100) * 2_u32.pow(failures.saturating_sub(1).min(6))
}
