//! Offsets that nobody needs any more (KIP-211).
//!
//! | Group | Which offsets may expire | Counted from |
//! | --- | --- | --- |
//! | never had members | all | the commit of the partition |
//! | had members, has none | all | when the last one went |
//! | stable, of type `consumer` | topics that nobody subscribes to | the commit of the partition |
//! | between generations, or of another type | none | |
//!
//! An offset with a retention of its own (OffsetCommit 2 to 4) is judged by that instead. After a start nothing
//! expires until every member had the time to come back.

use std::collections::HashSet;
use std::sync::Arc;

use super::Offsets;
use super::in_flight::Reply;
use super::record::{Change, Mark};
use super::table::{GroupOffsets, Slot, TopicKey};
use crate::event::GroupEvent;
use crate::output::Outputs;
use crate::subscription::Readers;
use crate::types::Timestamp;

/// Partitions in one record, about.
const PARTITIONS_PER_RECORD: usize = 50_000;

/// Which offsets of a group may go.
enum Candidates {
    /// All, counted from that time, else from the commit.
    All(Option<Timestamp>),
    /// Those of topics that are not among these, counted from the commit.
    Except(HashSet<String>),
}

impl Offsets {
    /// False while nothing may expire: offsets are not loaded, or members had no time yet to come back.
    pub(crate) fn may_expire(&self, now: Timestamp) -> bool {
        self.loaded_at.is_some_and(|loaded_at| now >= loaded_at.plus(self.config.restart_grace_ms))
    }

    /// True when a group that has members needs a closer look: something of it may be too old, or the record of its
    /// members' coming was lost. It spares the look at what they all subscribe to.
    pub(crate) fn needs_look(&self, group: &str, now: Timestamp) -> bool {
        let retention_ms = self.config.retention_ms;
        self.table.groups.get(group).is_some_and(|offsets| {
            let mut slots = offsets.topics.iter().flat_map(|(_, slots)| slots.iter());
            matches!(offsets.mark, Mark::EmptySince(_)) || slots.any(|slot| too_old(slot, None, now, retention_ms))
        })
    }

    /// Lets go of what is too old of a group. To be called every few minutes for each; `readers` is what
    /// [`Coordinator::readers`](crate::Coordinator::readers) says of it.
    ///
    /// An expired offset is gone at once: a member that joins in this moment must not see it vanish a moment later.
    /// The record only keeps it from coming back with a restart, after which it would expire again. A group that
    /// commits in this moment is left for the next time.
    pub fn expire(&mut self, group: &Arc<str>, readers: &Readers, now: Timestamp, out: &mut Outputs) {
        if self.may_expire(now) && !self.is_half_full() && !self.in_flight.is_busy(group) {
            self.expire_group(group, readers, now, out);
        }
    }

    fn expire_group(&mut self, group: &Arc<str>, readers: &Readers, now: Timestamp, out: &mut Outputs) {
        let mark = self.table.mark(group);
        let candidates = match (readers, mark) {
            // Its members did not come back after a restart, or the record of their leaving was lost.
            (Readers::Nobody, Mark::Occupied) => {
                let mark = Mark::EmptySince(now);
                self.stage(Change::Mark { group: group.clone(), mark }, Reply::None, out);
                return;
            }
            (Readers::Nobody, Mark::EmptySince(since)) => Candidates::All(Some(since)),
            (Readers::Nobody, Mark::Never) => Candidates::All(None),
            (_, Mark::EmptySince(_)) => {
                // The record of their coming was lost.
                self.stage(Change::Mark { group: group.clone(), mark: Mark::Occupied }, Reply::None, out);
                return;
            }
            (Readers::Settled(Some(topics)), _) => Candidates::Except(topics.clone()),
            _ => return,
        };
        let Some(offsets) = self.table.groups.get(group) else { return };
        let (doomed, all) = expired(offsets, &candidates, now, self.config.retention_ms);
        if doomed.is_empty() {
            return;
        }
        let expired: usize = doomed.iter().map(|(_, partitions)| partitions.len()).sum();
        out.events.push(GroupEvent::OffsetsExpired { count: expired as u64 });
        if all {
            self.carry_out(Change::RemoveGroup { group: group.clone() }, out);
            return;
        }
        let mut topics = Vec::new();
        let mut count = 0;
        for (key, partitions) in doomed {
            count += partitions.len();
            topics.push((key, partitions));
            if count >= PARTITIONS_PER_RECORD {
                count = 0;
                self.carry_out(Change::Remove { group: group.clone(), topics: std::mem::take(&mut topics) }, out);
            }
        }
        if !topics.is_empty() {
            self.carry_out(Change::Remove { group: group.clone(), topics }, out);
        }
    }

    fn carry_out(&mut self, change: Change, out: &mut Outputs) {
        self.table.apply(change.clone());
        self.stage(change, Reply::None, out);
    }
}

/// Whether an offset is too old, counted from `base`, else from its commit.
fn too_old(slot: &Slot, base: Option<Timestamp>, now: Timestamp, retention_ms: i64) -> bool {
    match slot.value.expires {
        Some(at) => now >= at,
        None => now >= base.unwrap_or(slot.value.commit_time).plus(retention_ms),
    }
}

/// What is too old, and whether that is all there is.
fn expired(
    offsets: &GroupOffsets,
    candidates: &Candidates,
    now: Timestamp,
    retention_ms: i64,
) -> (Vec<(TopicKey, Vec<i32>)>, bool) {
    let mut doomed = Vec::new();
    let mut all = true;
    for (key, slots) in &offsets.topics {
        let base = match candidates {
            Candidates::All(base) => *base,
            Candidates::Except(topics) if topics.contains(&*key.name) => {
                all = false;
                continue;
            }
            Candidates::Except(_) => None,
        };
        let partitions: Vec<i32> =
            slots.iter().filter(|slot| too_old(slot, base, now, retention_ms)).map(|slot| slot.partition).collect();
        all &= partitions.len() == slots.len();
        if !partitions.is_empty() {
            doomed.push((key.clone(), partitions));
        }
    }
    (doomed, all)
}

#[cfg(test)]
mod tests;
