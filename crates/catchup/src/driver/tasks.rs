//! What partitions ask for.

use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, KafkaResult};

use super::end::Checked;
use super::{Driver, Later, back_off};
use crate::broker::{Job, View};
use crate::checkpoint::Write;
use crate::delivery::TopicPartition;
use crate::reader::Reader;
use crate::shared::Task;
use crate::{Epoch, Input, Lane, Output};

/// Time until a begin that was refused is tried again: the client is not yet through with an earlier assignment.
const AGAIN: Duration = Duration::from_millis(50);

/// Tries after which a partition is assigned again.
const TRIES_MAX: u32 = 5;

impl Driver {
    pub(super) fn do_tasks(&mut self) {
        while let Some(Task { partition, epoch, what }) = self.shared.task() {
            self.do_task(partition, epoch, what);
        }
    }

    fn do_task(&mut self, partition: TopicPartition, epoch: Epoch, what: Output) {
        match what {
            Output::Seek { offset } => {
                self.places.entry(partition.clone()).or_default().begin = Some(offset);
                self.begin(&partition, epoch);
            }
            Output::StartReader { from, fork } => {
                let place = self.places.entry(partition.clone()).or_default();
                (place.fork, place.end) = (fork, Checked::Not);
                let started = self.start_reader(&partition, from);
                self.or_restart("start of the reader", &partition, started);
            }
            Output::SeekReader { offset } => {
                let sought = self.reader.as_mut().map_or(Ok(()), |reader| reader.seek(&partition, offset));
                self.or_restart("seek of the reader", &partition, sought);
            }
            Output::StopReader => self.stop_reader(&partition),
            Output::Pause(lane) => self.open(lane, &partition, false),
            Output::Resume(lane) => self.open(lane, &partition, true),
            Output::Commit { id, floor, metadata, attempt, .. } => {
                let view = View { partition, epoch, id, floor, metadata };
                self.commits.push(view, attempt);
            }
            Output::ReadBack => self.committing.ask(Job::ReadBack(partition, epoch)),
            Output::RetryResolve { attempt } => {
                self.later.push((Instant::now() + back_off(attempt), Later::Resolve(partition, epoch)));
            }
            Output::Released => self.released(&partition, epoch),
            Output::Save { id, checkpoint, attempt } => {
                self.store(Write { partition, epoch, id, what: Some(checkpoint) }, attempt);
            }
            Output::Clear { id, attempt } => self.store(Write { partition, epoch, id, what: None }, attempt),
            Output::Deliver { .. }
            | Output::Hold
            | Output::Drop
            | Output::DropQueued
            | Output::Ack(_)
            | Output::Event(_) => {}
        }
    }

    /// Moves the member to where the partition begins. Tried again until the client takes it.
    pub(super) fn begin(&mut self, partition: &TopicPartition, epoch: Epoch) {
        if self.shared.epoch(partition) != Some(epoch) {
            return;
        }
        let Some(place) = self.places.get_mut(partition) else { return };
        let Some(offset) = place.begin else { return };
        place.tries += 1;
        // Not while the group waits for an answer, which an assignment would be.
        let begun = if place.tries > TRIES_MAX && self.leaving.is_none() {
            self.member.begin_again(partition, offset, &self.beside(partition))
        } else {
            self.member.begin(partition, offset)
        };
        let Some(place) = self.places.get_mut(partition) else { return };
        match begun {
            Ok(()) => {
                (place.begin, place.tries) = (None, 0);
                self.asking.ask(Job::Nudge(partition.clone()));
            }
            Err(error) => {
                tracing::debug!("{partition} does not begin at {offset} yet: {error}");
                self.later.push((Instant::now() + AGAIN, Later::Begin(partition.clone(), epoch)));
            }
        }
    }

    /// All other partitions, with the offsets at which their live lanes go on.
    fn beside(&self, partition: &TopicPartition) -> Vec<(TopicPartition, Option<i64>)> {
        let others = self.places.iter().filter(|(other, _)| *other != partition);
        let at = |(other, place): (&TopicPartition, &super::Place)| {
            let at = if place.begin.is_none() { self.shared.live_position(other) } else { None };
            (other.clone(), at)
        };
        others.map(at).collect()
    }

    fn open(&mut self, lane: Lane, partition: &TopicPartition, open: bool) {
        match (lane, &mut self.reader) {
            (Lane::Live, _) => self.member.queues.open(partition, open),
            (Lane::Backfill, Some(reader)) => reader.queues.open(partition, open),
            (Lane::Backfill, None) => {}
        }
    }

    fn start_reader(&mut self, partition: &TopicPartition, from: i64) -> KafkaResult<()> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::create(&self.config, self.shared.settings().backfill.bytes, &self.wake)?,
        };
        let started = reader.start(partition, from);
        self.reader = Some(reader);
        started
    }

    pub(super) fn stop_reader(&mut self, partition: &TopicPartition) {
        let Some(mut reader) = self.reader.take() else { return };
        said("stop of the reader", partition, reader.stop(partition));
        if reader.queues.is_empty() {
            self.asking.ask(Job::Discard(reader));
        } else {
            self.reader = Some(reader);
        }
    }

    fn released(&mut self, partition: &TopicPartition, epoch: Epoch) {
        self.commits.forget(partition, epoch);
        self.stop_reader(partition);
        self.places.remove(partition);
    }

    /// Begins again with a partition whose reader did not start: without one its gap would never end.
    pub(super) fn or_restart(&mut self, what: &str, partition: &TopicPartition, result: KafkaResult<()>) {
        if result.is_err() {
            said(what, partition, result);
            self.restart(partition, back_off(1));
        }
    }

    /// Where a log begins and ends, asked for since a position is not in it any more.
    pub(super) fn ends_are(
        &mut self,
        partition: &TopicPartition,
        epoch: Epoch,
        lane: Lane,
        ends: KafkaResult<(i64, i64)>,
    ) {
        if self.shared.epoch(partition) != Some(epoch) {
            return;
        }
        match ends {
            Ok((low, high)) => {
                let position = self.shared.position(partition).unwrap_or(0);
                if position > high {
                    tracing::warn!(
                        "{partition} ends at {high}, below {position}: it is another log, or a part of it is gone"
                    );
                    return self.restart(partition, Duration::ZERO);
                }
                let within = self.lane_position(partition, lane).is_some_and(|position| position >= low);
                self.shared.step_in(epoch, Input::LogStart { low });
                if within {
                    // It is in the log after all: a broker that just became the leader may deny what it has not heard of yet.
                    // librdkafka reads no further by itself.
                    self.later.push((Instant::now() + back_off(3), Later::ReadOn(partition.clone(), epoch, lane)));
                }
            }
            // It would stand still for ever where it is.
            Err(error) => {
                said("ends of the log", partition, Err(error));
                self.restart(partition, back_off(1));
            }
        }
    }

    fn lane_position(&self, partition: &TopicPartition, lane: Lane) -> Option<i64> {
        match lane {
            Lane::Live => self.shared.live_position(partition),
            Lane::Backfill => self.shared.backfill_position(partition),
        }
    }

    /// Begins again with a lane where it stands.
    pub(super) fn read_on(&mut self, partition: &TopicPartition, epoch: Epoch, lane: Lane) {
        if self.shared.epoch(partition) != Some(epoch) {
            return;
        }
        let Some(position) = self.lane_position(partition, lane) else { return };
        match lane {
            Lane::Live => {
                // Where it is to begin already, that goes first.
                let place = self.places.entry(partition.clone()).or_default();
                if place.begin.is_none() {
                    place.begin = Some(position);
                    self.begin(partition, epoch);
                }
            }
            Lane::Backfill => {
                let sought = self.reader.as_mut().map_or(Ok(()), |reader| reader.seek(partition, position));
                self.or_restart("seek of the reader", partition, sought);
            }
        }
    }

    /// Ends the assignment of a partition without a commit, and begins it again after that time.
    pub(super) fn restart(&mut self, partition: &TopicPartition, after: Duration) {
        // One that is on its way out ends with that, and whoever waits for it would wait for ever for another one.
        if self.leaving.as_ref().is_some_and(|leaving| leaving.has(partition)) {
            return;
        }
        for input in [Input::Revoke, Input::DrainDeadline, Input::DrainDeadline] {
            self.shared.step(partition, input);
        }
        self.do_tasks();
        said("pause", partition, self.member.park(partition));
        let epoch = self.shared.assigned(partition);
        self.places.insert(partition.clone(), super::Place::default());
        self.later.push((Instant::now() + after, Later::Resolve(partition.clone(), epoch)));
    }
}

/// A local call that fails: the partition is not assigned any more, most of the time, and a rebalance is on its way.
fn said(what: &str, partition: &TopicPartition, result: Result<(), KafkaError>) {
    if let Err(error) = result {
        tracing::warn!("{what} of {partition}: {error}");
    }
}
