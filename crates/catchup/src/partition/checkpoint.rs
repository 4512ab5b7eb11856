//! The topic store: what is written there, and when what was found there counts.
//!
//! A checkpoint says "all of these ranges are finished, if the committed offset is at or above this base". The base is
//! the last floor that the broker took, so an operator who moves the group back behind it is not defeated by old
//! facts. A checkpoint that does not count is overwritten, and until it is, no floor at or above its base is
//! committed: it would count again there.

use super::{CommitId, Output, Partition, TRIES_MAX};
use crate::event::{Event, ResetReason};
use crate::progress::Progress;
use crate::settings::CHECKPOINT_BYTES_MAX;
use crate::status::State;

#[derive(Debug)]
struct Flying {
    id: CommitId,
    what: Option<Progress>,
    attempt: u32,
}

#[derive(Debug, Default)]
pub(super) struct TopicStore {
    /// What is stored, as far as it is known.
    stored: Option<Progress>,
    flying: Option<Flying>,
    /// Something was to be written while another checkpoint was under way.
    again: bool,
    /// The last one that was answered and is not tried again.
    answered: Option<CommitId>,
    /// All tries of the last one failed.
    failed: bool,
    /// The assignment ended while one was under way.
    cut: bool,
    /// The base of a checkpoint that was not used and is not overwritten yet.
    ignored: Option<i64>,
}

impl TopicStore {
    /// The assignment is over: what is under way is never answered.
    pub(super) fn end(&mut self) {
        self.cut |= self.flying.take().is_some();
    }

    /// Whether an answer is missing.
    pub(super) fn open(&self) -> bool {
        self.cut || self.in_flight()
    }

    pub(super) fn in_flight(&self) -> bool {
        self.flying.is_some()
    }

    /// The checkpoint that covers what is finished now; `coming` is the id that the next one gets.
    pub(super) fn covering(&self, coming: CommitId) -> CommitId {
        self.flying.as_ref().filter(|_| !self.again).map_or(coming, |flying| flying.id)
    }

    pub(super) fn answered(&self) -> CommitId {
        self.answered.unwrap_or(CommitId(0))
    }

    pub(super) fn stored(&self) -> Option<&Progress> {
        self.stored.as_ref()
    }
}

impl Partition {
    /// Uses a checkpoint if it counts beside the committed offset.
    pub(super) fn take_checkpoint(
        &mut self,
        found: Option<&Progress>,
        committed: Option<i64>,
        progress: &mut Progress,
        out: &mut Vec<Output>,
    ) {
        let Some(found) = found else { return };
        if found.log == progress.log && committed.is_some_and(|committed| committed >= found.floor) {
            progress.ahead.extend(found.ahead.iter());
            self.topic.stored = Some(found.clone());
        } else {
            self.topic.ignored = Some(found.floor);
            Self::tell(Event::ProgressReset(ResetReason::Checkpoint), out);
        }
    }

    pub(super) fn overwrite_checkpoint(&mut self, out: &mut Vec<Output>) {
        if self.topic.ignored.is_some() {
            self.save(0, out);
        }
    }

    /// Whether what should be in the topic is not, after all tries.
    pub(crate) fn unsaved(&self) -> bool {
        self.topic.failed
    }

    /// Whether a commit has to wait for the overwriting of a checkpoint.
    pub(super) fn holds_commits(&self) -> bool {
        self.topic.ignored.is_some_and(|base| self.ledger.floor >= base)
    }

    /// What should be stored now; `None` for nothing at all.
    fn wanted(&self) -> Option<Progress> {
        let Some(last) = &self.commits.last else {
            // Nothing is committed, so no range may count; only an old checkpoint has to go.
            return self.topic.ignored.map(|_| Progress::new(self.log, self.ledger.floor));
        };
        let mut wanted = Progress { log: self.log, floor: last.floor, ahead: self.ledger.done.clone() };
        if self.topic.ignored.is_some() {
            wanted.ahead.clip(0..0);
            return Some(wanted);
        }
        // Finished, but not below the committed floor yet.
        wanted.ahead.insert(last.floor..self.ledger.floor);
        (!wanted.ahead.is_empty()).then_some(wanted)
    }

    /// Writes what should be stored, unless it is; behind what is under way.
    pub(super) fn save(&mut self, attempt: u32, out: &mut Vec<Output>) {
        if !self.in_topic() {
            return;
        }
        if self.topic.in_flight() {
            self.topic.again = true;
            return;
        }
        self.topic.again = false;
        let (what, dropped) = self.wanted().map_or((None, 0), fitting);
        if what == self.topic.stored && self.topic.ignored.is_none() {
            self.topic.failed = false;
            return;
        }
        if dropped > 0 && attempt == 0 {
            self.commits.dropped = self.commits.dropped.saturating_add(dropped as u64);
            Self::tell(Event::RangesDropped { ranges: dropped }, out);
        }
        let id = self.commits.next_id();
        out.push(match what.clone() {
            Some(checkpoint) => Output::Save { id, checkpoint, attempt },
            None => Output::Clear { id, attempt },
        });
        self.topic.flying = Some(Flying { id, what, attempt });
    }

    pub(super) fn saved(&mut self, id: CommitId, ok: bool, out: &mut Vec<Output>) {
        let Some(flying) = self.topic.flying.take_if(|flying| flying.id == id) else { return };
        if ok || flying.attempt + 1 >= TRIES_MAX {
            self.topic.answered = Some(id);
        }
        if ok {
            self.topic.stored = flying.what;
            self.topic.ignored = None;
            self.topic.failed = false;
            self.send(0, out);
            // It may have been under way since before the last acknowledgements.
            let last = self.state == State::Draining && self.last_made && !self.commits.in_flight();
            if (last || self.topic.again) && !self.topic.in_flight() {
                self.save(0, out);
            }
        } else if flying.attempt + 1 < TRIES_MAX {
            self.save(flying.attempt + 1, out);
        } else {
            self.topic.failed = true;
            Self::tell(Event::CheckpointFailed, out);
        }
        self.leave_if_quiet(out);
    }
}

/// What a broker takes of a checkpoint, and how many ranges had to go for that: the shortest.
fn fitting(wanted: Progress) -> (Option<Progress>, usize) {
    if wanted.encoded_len("") <= CHECKPOINT_BYTES_MAX {
        return (Some(wanted), 0);
    }
    let encoded = wanted.encode("", CHECKPOINT_BYTES_MAX);
    (Some(Progress { ahead: encoded.ahead, ..wanted }), encoded.dropped)
}
