//! Assignments, revocations, the end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Driver, Place};
use crate::broker::Job;
use crate::delivery::TopicPartition;
use crate::member::Notice;
use crate::{Error, Input};

/// How long the last commit of a partition may take after the application's time is over.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// How often a drain is looked at: the group may give the partitions away in the middle of it.
const LOOK: Duration = Duration::from_millis(100);

/// Partitions on their way out.
#[derive(Debug)]
pub(super) struct Leaving {
    /// Each once, whoever wants it back: what comes of time that is over is not the same the second time.
    partitions: BTreeSet<TopicPartition>,
    /// Until then the application may acknowledge; then once more until the last commit is answered.
    deadline: Instant,
    /// The application's time is over.
    over: bool,
    /// What the group took back: it waits for an answer.
    taken_back: Option<Vec<TopicPartition>>,
    /// The consumer ends with it.
    closing: bool,
}

impl Leaving {
    pub(super) fn has(&self, partition: &TopicPartition) -> bool {
        self.partitions.contains(partition)
    }

    pub(super) fn nap(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(LOOK)
    }
}

impl Driver {
    /// Answers what the group has decided.
    pub(super) fn answer_group(&mut self) {
        while let Some(notice) = self.member.notice() {
            match notice {
                Notice::Assigned(partitions) => self.assigned(&partitions),
                Notice::Revoked(partitions) => self.revoked(partitions),
            }
        }
    }

    fn assigned(&mut self, partitions: &[TopicPartition]) {
        tracing::debug!("assigned: {partitions:?}");
        if let Err(error) = self.member.take(partitions) {
            // Without an answer the group would wait for this member for ever.
            tracing::error!("an assignment that the client does not take: {error}");
            self.end = Some(Err(Error::Client(error)));
            return;
        }
        let mut starting = Vec::with_capacity(partitions.len());
        for partition in partitions {
            // One that is still here was lost without a word.
            self.shared.step(partition, Input::Lost);
            self.do_tasks();
            starting.push((partition.clone(), self.shared.assigned(partition)));
            self.places.insert(partition.clone(), Place::default());
        }
        if !starting.is_empty() && self.leaving.as_ref().is_none_or(|leaving| !leaving.closing) {
            self.asking.ask(Job::Resolve(starting));
        }
    }

    fn revoked(&mut self, partitions: Vec<TopicPartition>) {
        let lost = self.member.lost();
        tracing::debug!("revoked, lost: {lost}: {partitions:?}");
        for partition in &partitions {
            self.shared.step(partition, if lost { Input::Lost } else { Input::Revoke });
        }
        let deadline = Instant::now() + self.shared.settings().drain_deadline;
        let leaving = self.leaving.get_or_insert_with(|| Leaving {
            partitions: BTreeSet::new(),
            deadline,
            over: false,
            taken_back: None,
            closing: false,
        });
        leaving.partitions.extend(partitions.iter().cloned());
        leaving.taken_back.get_or_insert_default().extend(partitions);
    }

    /// Drains all partitions, and ends.
    pub(super) fn leave_all(&mut self, within: Duration) {
        let partitions = self.shared.partitions();
        for partition in &partitions {
            self.shared.step(partition, Input::Revoke);
        }
        let deadline = Instant::now() + within;
        match &mut self.leaving {
            Some(leaving) => {
                leaving.partitions.extend(partitions);
                leaving.deadline = leaving.deadline.min(deadline);
                leaving.closing = true;
            }
            None => {
                self.leaving = Some(Leaving {
                    partitions: partitions.into_iter().collect(),
                    deadline,
                    over: false,
                    taken_back: None,
                    closing: true,
                });
            }
        }
    }

    pub(super) fn check_leaving(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        if leaving.taken_back.is_some() && self.member.lost() {
            for partition in &leaving.partitions {
                self.shared.step(partition, Input::Lost);
            }
        } else if leaving.deadline <= Instant::now() {
            for partition in &leaving.partitions {
                // Whose last commit is on its way already has the time that such a commit has.
                if leaving.over || self.shared.in_hand(partition) {
                    self.shared.step(partition, Input::DrainDeadline);
                }
            }
            leaving.over = true;
            leaving.deadline = Instant::now() + COMMIT_PATIENCE;
        }
        self.do_tasks();
        self.send_commits();
        if let Some(leaving) = self.leaving.take_if(|leaving| !self.shared.any(&leaving.partitions)) {
            self.give_back(leaving.taken_back.as_deref());
            if leaving.closing {
                self.end = Some(Ok(()));
            }
        }
    }

    fn give_back(&mut self, partitions: Option<&[TopicPartition]>) {
        if let Some(partitions) = partitions
            && let Err(error) = self.member.give_back(partitions)
        {
            tracing::warn!("a revocation that the client does not take: {error}");
        }
    }

    /// Leaves the group and tells whoever waits.
    pub(super) fn leave(mut self) {
        let end = self.end.take().unwrap_or(Ok(()));
        self.shared.finish(end.clone());
        if let Some(leaving) = self.leaving.take() {
            self.give_back(leaving.taken_back.as_deref());
        }
        self.member.close();
        let closing = std::mem::take(&mut self.closing);
        // Dropping the clients says goodbye to the broker.
        drop(self);
        for reply in closing {
            let _ = reply.send(end.clone());
        }
    }
}
