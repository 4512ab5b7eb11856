//! One commit at a time, with the newest view of every partition that has one to give.
//!
//! A call `commit` is a *flush*: it is answered when all that was finished at the call is, however many commits and checkpoints become due
//! meanwhile. Of an assignment that ends before, the call fails, unless the commit that covers it was sent and is answered after the end.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Driver, back_off};
use crate::broker::{Job, View};
use crate::delivery::TopicPartition;
use crate::partition::Covering;
use crate::shared::{Over, Shared, Standing};
use crate::{Checkpoint, CommitFailure, CommitId, Epoch, Error, Input};

/// Somebody waits for it.
#[derive(Debug)]
struct Flush {
    /// Assignments whose commit or checkpoint is not answered yet.
    open: HashMap<Epoch, (TopicPartition, Covering)>,
    /// Those of them that are over, while the commit that covers what was finished is under way.
    over: HashSet<Epoch>,
    /// What the last answers said that were no success.
    failed: HashMap<Epoch, CommitFailure>,
    /// The first that went wrong in another way.
    trouble: Option<Error>,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Flush {
    fn answer(mut self) {
        let failure = self.failed.drain().next().map(|(_, failure)| Error::Commit(failure));
        // Whoever asked may have stopped waiting.
        let _ = self.reply.send(failure.or(self.trouble).map_or(Ok(()), Err));
    }

    /// Nothing more is waited for of that assignment.
    fn close(&mut self, epoch: Epoch, trouble: impl FnOnce(TopicPartition) -> Option<Error>) {
        let trouble = self.open.remove(&epoch).and_then(|(partition, _)| trouble(partition));
        self.trouble = self.trouble.take().or(trouble);
    }
}

fn unsaved(partition: &TopicPartition) -> Error {
    Error::Checkpoint(format!("that of {partition} is not stored"))
}

#[derive(Debug, Default)]
pub(super) struct Commits {
    /// At most one for each partition: the newest.
    waiting: HashMap<TopicPartition, (Instant, View)>,
    /// What is in the commit that is not answered yet; one is never empty.
    in_flight: HashMap<Epoch, CommitId>,
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

    /// All that is finished now is committed, and then `reply` is answered.
    pub(super) fn flush(&mut self, shared: &Shared, reply: oneshot::Sender<Result<(), Error>>) {
        let open = shared.flush().into_iter().map(|(epoch, partition, by)| (epoch, (partition, by))).collect();
        let (over, failed) = (HashSet::new(), HashMap::new());
        self.flushes.push(Flush { open, over, failed, trouble: None, reply });
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        if !self.in_flight.is_empty() { None } else { self.waiting.values().map(|(at, _)| *at).min() }
    }

    /// The views whose time has come, when nothing is in flight. They are in flight then.
    fn due(&mut self, now: Instant) -> Vec<View> {
        if !self.in_flight.is_empty() {
            return Vec::new();
        }
        let views: Vec<_> = self.waiting.extract_if(|_, (at, _)| *at <= now).map(|(_, (_, view))| view).collect();
        self.in_flight = views.iter().map(|view| (view.epoch, view.id)).collect();
        views
    }

    /// The commit under way is answered.
    fn committed(&mut self, shared: &Shared, views: Vec<(View, Result<(), CommitFailure>)>) {
        self.in_flight.clear();
        for (View { epoch, id, .. }, result) in views {
            for flush in self.flushes.iter_mut().filter(|flush| flush.open.contains_key(&epoch)) {
                match result {
                    Ok(()) => flush.failed.remove(&epoch),
                    Err(failure) => flush.failed.insert(epoch, failure),
                };
                if flush.over.remove(&epoch) {
                    flush.close(epoch, |_| None);
                }
            }
            shared.step_in(epoch, Input::Committed { id, result });
        }
    }

    /// Answers the flushes that have nothing more to wait for.
    fn answer_flushes(&mut self, shared: &Shared) {
        for over in shared.over() {
            self.over(&over, matches!(shared.settings().checkpoint, Checkpoint::Topic(_)));
        }
        let answered = self.flushes.extract_if(.., |flush| {
            let Flush { open, trouble, .. } = flush;
            open.retain(|epoch, (partition, by)| match shared.standing(*epoch, by) {
                // It is over, and is heard of above in a moment.
                None | Some(Standing::Open) => true,
                Some(Standing::Answered { saved: true }) => false,
                Some(Standing::Answered { saved: false }) => {
                    trouble.get_or_insert_with(|| unsaved(partition));
                    false
                }
            });
            open.is_empty()
        });
        answered.for_each(Flush::answer);
    }

    /// An assignment ended. With a checkpoint topic the commit that is under way is not all.
    fn over(&mut self, over: &Over, in_topic: bool) {
        let sent = self.in_flight.get(&over.epoch).filter(|_| !in_topic);
        for flush in &mut self.flushes {
            let Some((_, by)) = flush.open.get_mut(&over.epoch) else { continue };
            match (over.standing(by), *by) {
                (Standing::Answered { saved }, _) => flush.close(over.epoch, |of| (!saved).then(|| unsaved(&of))),
                (Standing::Open, Covering::Commit(id)) if sent.is_some_and(|sent| *sent >= id) => {
                    flush.over.insert(over.epoch);
                }
                (Standing::Open, _) => flush.close(over.epoch, |of| Some(Error::AssignmentOver(of))),
            }
        }
    }
}

impl Driver {
    pub(super) fn send_commits(&mut self) {
        let views = self.commits.due(Instant::now());
        if !views.is_empty() {
            self.committing.ask(Job::Commit(views));
        }
        self.commits.answer_flushes(&self.shared);
    }

    pub(super) fn committed(&mut self, views: Vec<(View, Result<(), CommitFailure>)>) {
        self.commits.committed(&self.shared, views);
    }
}

#[cfg(test)]
mod tests;
