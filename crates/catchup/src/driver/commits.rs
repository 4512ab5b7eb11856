//! One commit at a time, with the newest view of every partition that has one to give.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Driver, back_off};
use crate::broker::{Job, View};
use crate::delivery::TopicPartition;
use crate::{CommitFailure, Epoch, Error, Input};

#[derive(Debug, Default)]
pub(super) struct Commits {
    /// At most one for each partition: the newest.
    waiting: HashMap<TopicPartition, (Instant, View)>,
    /// A commit is not answered yet.
    in_flight: bool,
    /// Checkpoints that are not answered yet.
    saving: usize,
    /// Partitions whose last checkpoint failed since somebody waits.
    unsaved: HashSet<TopicPartition>,
    /// Wait until all that is waiting or in flight is answered.
    flushes: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Commits that failed since somebody waits.
    failed: HashMap<TopicPartition, CommitFailure>,
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

    pub(super) fn wait(&mut self, reply: oneshot::Sender<Result<(), Error>>) {
        self.flushes.push(reply);
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        if self.in_flight { None } else { self.waiting.values().map(|(at, _)| *at).min() }
    }

    /// The views whose time has come, when nothing is in flight.
    fn due(&mut self, now: Instant) -> Vec<View> {
        if self.in_flight {
            return Vec::new();
        }
        self.waiting.extract_if(|_, (at, _)| *at <= now).map(|(_, (_, view))| view).collect()
    }

    /// A checkpoint is on its way.
    pub(super) fn saving(&mut self) {
        self.saving += 1;
    }

    /// A checkpoint was answered.
    pub(super) fn saved(&mut self, partition: &TopicPartition, ok: bool) {
        self.saving = self.saving.saturating_sub(1);
        if ok {
            self.unsaved.remove(partition);
        } else {
            self.unsaved.insert(partition.clone());
        }
    }

    fn answer_flushes(&mut self) {
        if self.in_flight || self.saving > 0 || !self.waiting.is_empty() {
            return;
        }
        let failure = self.failed.drain().next().map(|(_, failure)| Error::Commit(failure));
        let unsaved = self
            .unsaved
            .drain()
            .next()
            .map(|partition| Error::Checkpoint(format!("that of {partition} is not stored")));
        let failure = failure.or(unsaved);
        for reply in self.flushes.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(failure.clone().map_or(Ok(()), Err));
        }
    }
}

impl Driver {
    pub(super) fn send_commits(&mut self) {
        let views = self.commits.due(Instant::now());
        if views.is_empty() {
            return self.commits.answer_flushes();
        }
        self.commits.in_flight = true;
        self.committing.ask(Job::Commit(views));
    }

    pub(super) fn committed(&mut self, views: Vec<(View, Result<(), CommitFailure>)>) {
        self.commits.in_flight = false;
        for (view, result) in views {
            match result {
                Ok(()) => self.commits.failed.remove(&view.partition),
                Err(failure) => self.commits.failed.insert(view.partition.clone(), failure),
            };
            self.shared.step_in(view.epoch, Input::Committed { id: view.id, result });
        }
    }
}
