//! One commit at a time, with the newest view of every partition that has one to give.
//!
//! A call `commit` is a *flush*: it is answered when all that was finished at the call is, however many commits and checkpoints become due
//! meanwhile.

use std::collections::HashMap;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Driver, back_off};
use crate::broker::{Job, View};
use crate::delivery::TopicPartition;
use crate::partition::Covering;
use crate::{CommitFailure, Epoch, Error, Input};

/// Somebody waits for it.
#[derive(Debug)]
struct Flush {
    /// Assignments whose commit or checkpoint is not answered yet.
    open: HashMap<Epoch, Covering>,
    /// What the last answers said that were no success.
    failed: HashMap<Epoch, CommitFailure>,
    unsaved: HashMap<Epoch, TopicPartition>,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Flush {
    fn answer(mut self) {
        let failure = self.failed.drain().next().map(|(_, failure)| Error::Commit(failure));
        let unsaved = self.unsaved.drain().next();
        let unsaved = unsaved.map(|(_, partition)| Error::Checkpoint(format!("that of {partition} is not stored")));
        // Whoever asked may have stopped waiting.
        let _ = self.reply.send(failure.or(unsaved).map_or(Ok(()), Err));
    }
}

#[derive(Debug, Default)]
pub(super) struct Commits {
    /// At most one for each partition: the newest.
    waiting: HashMap<TopicPartition, (Instant, View)>,
    /// What is in the commit that is not answered yet; one is never empty.
    in_flight: Vec<Epoch>,
    flushes: Vec<Flush>,
}

impl Commits {
    pub(super) fn push(&mut self, view: View, attempt: u32) {
        let at = if attempt == 0 { Instant::now() } else { Instant::now() + back_off(attempt) };
        self.waiting.insert(view.partition.clone(), (at, view));
    }

    pub(super) fn forget(&mut self, partition: &TopicPartition, epoch: Epoch) {
        if self.waiting.get(partition).is_some_and(|(_, view)| view.epoch == epoch) {
            self.waiting.remove(partition);
        }
    }

    pub(super) fn wait(&mut self, open: Vec<(Epoch, Covering)>, reply: oneshot::Sender<Result<(), Error>>) {
        let (open, failed, unsaved) = (open.into_iter().collect(), HashMap::new(), HashMap::new());
        self.flushes.push(Flush { open, failed, unsaved, reply });
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        if !self.in_flight.is_empty() { None } else { self.waiting.values().map(|(at, _)| *at).min() }
    }

    /// The views whose time has come, when nothing is in flight.
    fn due(&mut self, now: Instant) -> Vec<View> {
        if !self.in_flight.is_empty() {
            return Vec::new();
        }
        self.waiting.extract_if(|_, (at, _)| *at <= now).map(|(_, (_, view))| view).collect()
    }

    /// Those that wait for that assignment.
    fn flushes_of(&mut self, epoch: Epoch) -> impl Iterator<Item = &mut Flush> {
        self.flushes.iter_mut().filter(move |flush| flush.open.contains_key(&epoch))
    }

    fn committed(&mut self, epoch: Epoch, result: Result<(), CommitFailure>) {
        for flush in self.flushes_of(epoch) {
            match result {
                Ok(()) => flush.failed.remove(&epoch),
                Err(failure) => flush.failed.insert(epoch, failure),
            };
        }
    }

    /// A checkpoint was answered.
    pub(super) fn saved(&mut self, epoch: Epoch, partition: &TopicPartition, ok: bool) {
        for flush in self.flushes_of(epoch) {
            if ok {
                flush.unsaved.remove(&epoch);
            } else {
                flush.unsaved.insert(epoch, partition.clone());
            }
        }
    }

    /// Answers the flushes that have nothing more to wait for.
    fn answer_flushes(&mut self, covered: impl Fn(Epoch, &mut Covering) -> Option<bool>) {
        let in_flight = &self.in_flight;
        let answered = self.flushes.extract_if(.., |flush| {
            // Of an assignment that is over the commit under way may still be answered, and may have been the reason.
            flush.open.retain(|epoch, by| covered(*epoch, by).map_or(in_flight.contains(epoch), |covered| !covered));
            flush.open.is_empty()
        });
        answered.for_each(Flush::answer);
    }
}

impl Driver {
    pub(super) fn send_commits(&mut self) {
        let views = self.commits.due(Instant::now());
        if !views.is_empty() {
            self.commits.in_flight = views.iter().map(|view| view.epoch).collect();
            self.committing.ask(Job::Commit(views));
        }
        self.commits.answer_flushes(|epoch, by| self.shared.covered(epoch, by));
    }

    pub(super) fn committed(&mut self, views: Vec<(View, Result<(), CommitFailure>)>) {
        self.commits.in_flight.clear();
        for (view, result) in views {
            self.commits.committed(view.epoch, result);
            self.shared.step_in(view.epoch, Input::Committed { id: view.id, result });
        }
    }
}
