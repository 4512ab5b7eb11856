//! Commits: one at a time, only when the view has changed, never larger than the broker takes.

use super::{CommitId, Output, Partition, TRIES_MAX};
use crate::event::Event;
use crate::progress::Progress;
use crate::range_set::RangeSet;
use crate::settings::USER_METADATA_BYTES_MAX;
use crate::status::State;

/// Why a commit was not taken. Codes are Kafka's, or librdkafka's own below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitFailure {
    /// 12, `OFFSET_METADATA_TOO_LARGE`.
    MetadataTooLarge,
    /// The coordinator is loading, moving or not to be reached.
    Retriable(i16),
    /// The group has gone on without this member, or it may not commit.
    Refused(i16),
}

impl CommitFailure {
    /// Sorts an error code. 22, 25, 27 and 82 (fenced by a generation, a rebalance or another instance) are refusals:
    /// the rebalance that is coming decides, and a repetition would be refused as well.
    #[must_use]
    pub fn from_code(code: i16) -> Self {
        /// `REQUEST_TIMED_OUT`, `NETWORK_EXCEPTION`, the coordinator's three, and librdkafka's `_ALL_BROKERS_DOWN`,
        /// `_TIMED_OUT_QUEUE`, `_TIMED_OUT`, `_WAIT_COORD`, `_WAIT_CACHE`, `_IN_PROGRESS`, `_TRANSPORT`.
        const RETRIABLE: [i16; 12] = [7, 13, 14, 15, 16, -187, -166, -185, -180, -164, -178, -195];
        match code {
            12 => Self::MetadataTooLarge,
            code if RETRIABLE.contains(&code) => Self::Retriable(code),
            code => Self::Refused(code),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) floor: i64,
    pub(super) metadata: String,
    pub(super) ahead: RangeSet,
}

#[derive(Debug)]
struct Flying {
    id: CommitId,
    what: Written,
    attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadBack {
    NotAsked,
    Asked,
    Known,
}

/// What has to be answered before everything is stored that was finished at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covering {
    /// The commit with this id, or a later one; then the checkpoint that follows it.
    Commit(CommitId),
    /// The checkpoint with this id, or a later one.
    Save(CommitId),
}

#[derive(Debug)]
pub(super) struct Commits {
    last_id: u64,
    /// The last one that was answered and is not tried again.
    answered: CommitId,
    /// What the broker has, as far as it said so.
    pub(super) last: Option<Written>,
    flying: Option<Flying>,
    /// A commit is wanted.
    due: bool,
    /// Since the last commit was sent.
    pub(super) acks: u64,
    budget: usize,
    /// The broker refused a metadata string for its length.
    shrunk: bool,
    read_back: ReadBack,
    /// Ranges that were left out, all together.
    pub(super) dropped: u64,
}

impl Commits {
    pub(super) fn new(budget: usize) -> Self {
        let read_back = ReadBack::NotAsked;
        Self {
            last_id: 0,
            answered: CommitId(0),
            last: None,
            flying: None,
            due: false,
            acks: 0,
            budget,
            shrunk: false,
            read_back,
            dropped: 0,
        }
    }

    pub(super) fn found(&mut self, floor: i64, metadata: String, ahead: RangeSet) {
        self.last = Some(Written { floor, metadata, ahead });
    }

    /// Whether anything is committed.
    pub(super) fn any(&self) -> bool {
        self.last.is_some()
    }

    /// What is under way is not waited for.
    pub(super) fn forget(&mut self) {
        self.flying = None;
    }

    /// The assignment is over: nothing more is sent, and nothing that comes is an answer.
    pub(super) fn end(&mut self) {
        // What is under way is not answered, and so it is wanted for ever.
        self.due |= self.flying.take().is_some();
    }

    pub(super) fn in_flight(&self) -> bool {
        self.flying.is_some()
    }

    /// The id that comes next, whatever for.
    pub(super) fn coming(&self) -> CommitId {
        CommitId(self.last_id + 1)
    }

    /// Bytes that metadata may have.
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    pub(super) fn next_id(&mut self) -> CommitId {
        self.last_id += 1;
        CommitId(self.last_id)
    }

    /// A refused string of this length: half of it the first time, nothing the second.
    fn shrink(&mut self, refused: usize) {
        self.budget = if self.shrunk { 0 } else { refused.min(self.budget) / 2 };
        self.shrunk = true;
    }
}

impl Partition {
    pub(super) fn set_user(&mut self, user: String, out: &mut Vec<Output>) {
        if user.len() > USER_METADATA_BYTES_MAX {
            return Self::tell(Event::UserMetadataTooLong { bytes: user.len() }, out);
        }
        self.user = user;
    }

    pub(super) fn commit_due(&mut self, out: &mut Vec<Output>) {
        // In a drain what is acknowledged late is in no commit without this: before the last one it would wait for whatever the
        // application still has in hand, and the last one does not come again.
        let draining = self.state == State::Draining && (!self.last_made || self.commits.acks > 0);
        if self.active() || draining {
            self.commits.due = true;
            self.send(0, out);
        }
    }

    /// What covers all that is finished now, right after a [`Partition::commit_due`].
    pub(crate) fn covering(&self) -> Covering {
        let flying = self.commits.flying.as_ref().filter(|_| !self.commits.due);
        let mut by = Covering::Commit(flying.map_or(self.commits.coming(), |flying| flying.id));
        // With nothing to commit it is the checkpoint of now, and none that becomes due later.
        self.covered(&mut by);
        by
    }

    /// Whether that is answered, with success or without, or nothing is left to be answered. Goes on from a commit to its checkpoint.
    /// What was not answered when the assignment ended never is.
    pub(crate) fn covered(&self, by: &mut Covering) -> bool {
        if let Covering::Commit(id) = *by {
            // A checkpoint that does not count and could not be overwritten holds commits: there is no answer to wait for.
            let held = self.holds_commits() && !self.topic.in_flight();
            if self.commits.answered < id && (self.commits.in_flight() || self.commits.due) && !held {
                return false;
            }
            *by = Covering::Save(self.topic.covering(self.commits.coming()));
        }
        let Covering::Save(id) = *by else { return true };
        !self.topic.open() || self.topic.answered() >= id
    }

    /// The last commit: what is under way may be answered too late to be waited for, and this one says all of it.
    pub(super) fn commit_last(&mut self, out: &mut Vec<Output>) {
        self.commits.forget();
        self.commits.due = true;
        self.send(0, out);
    }

    /// Sends the view of now, if a commit is wanted, nothing is under way, and it is not what the broker has.
    pub(super) fn send(&mut self, attempt: u32, out: &mut Vec<Output>) {
        if !self.commits.due || self.commits.in_flight() {
            return;
        }
        if self.holds_commits() {
            // The checkpoint that was ignored would count again beside this floor.
            return self.save(0, out);
        }
        self.commits.due = false;
        self.commits.acks = 0;
        let (what, dropped) = self.written();
        if self.commits.last.as_ref().is_some_and(|last| self.says_the_same(last, &what)) {
            return self.save(0, out);
        }
        if dropped > 0 && self.commits.budget > 0 {
            self.commits.dropped = self.commits.dropped.saturating_add(dropped as u64);
            Self::tell(Event::RangesDropped { ranges: dropped }, out);
        }
        let id = self.commits.next_id();
        let last = self.last_made;
        out.push(Output::Commit { id, floor: what.floor, metadata: what.metadata.clone(), attempt, last });
        self.commits.flying = Some(Flying { id, what, attempt });
    }

    /// Another program's metadata with nothing of ours to add is as good as ours around it.
    fn says_the_same(&self, last: &Written, new: &Written) -> bool {
        let only_user = new.ahead.is_empty() && last.metadata == self.user;
        last.floor == new.floor && (last.metadata == new.metadata || only_user)
    }

    fn written(&self) -> (Written, usize) {
        let ahead = if self.in_topic() { RangeSet::new() } else { self.ledger.done.clone() };
        let floor = self.ledger.floor;
        let encoded = Progress { log: self.log, floor, ahead }.encode(&self.user, self.commits.budget);
        (Written { floor, metadata: encoded.metadata, ahead: encoded.ahead }, encoded.dropped)
    }

    pub(super) fn committed(&mut self, id: CommitId, result: Result<(), CommitFailure>, out: &mut Vec<Output>) {
        let Some(flying) = self.commits.flying.take_if(|flying| flying.id == id) else { return };
        let again = match result {
            Err(CommitFailure::MetadataTooLarge) => !flying.what.metadata.is_empty(),
            Err(CommitFailure::Retriable(_)) => flying.attempt + 1 < TRIES_MAX,
            Ok(()) | Err(CommitFailure::Refused(_)) => false,
        };
        if !again {
            self.commits.answered = id;
        }
        match result {
            Ok(()) => {
                if self.commits.read_back == ReadBack::NotAsked && !flying.what.ahead.is_empty() && self.active() {
                    self.commits.read_back = ReadBack::Asked;
                    out.push(Output::ReadBack);
                }
                self.commits.last = Some(flying.what);
                self.save(0, out);
            }
            Err(CommitFailure::MetadataTooLarge) if again => {
                self.commits.shrink(flying.what.metadata.len());
                if self.commits.budget == 0 {
                    Self::tell(Event::MetadataNotKept, out);
                }
                self.commits.due = true;
            }
            Err(_) if again => {
                self.commits.due = true;
                self.send(flying.attempt + 1, out);
            }
            Err(failure) => Self::tell(Event::CommitFailed(failure), out),
        }
        self.send(0, out);
        self.settle(out);
        self.leave_if_quiet(out);
    }

    /// One look is enough to know whether a broker keeps metadata. A commit may have come in between: any progress that
    /// belongs to the committed offset will do, and none is expected when nothing was to be kept.
    pub(super) fn read_back(&mut self, floor: i64, metadata: &str, out: &mut Vec<Output>) {
        if self.commits.read_back != ReadBack::Asked || !self.active() {
            return;
        }
        self.commits.read_back = ReadBack::Known;
        let expected = self.commits.last.as_ref().is_some_and(|last| last.floor == floor && !last.ahead.is_empty());
        if expected && Progress::ahead_of(metadata, self.log, floor).is_err() {
            Self::tell(Event::MetadataNotKept, out);
        } else if !expected {
            // It says nothing about the metadata; ask again after the next commit.
            self.commits.read_back = ReadBack::NotAsked;
        }
    }
}
