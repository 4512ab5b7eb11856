//! Search by time.
//!
//! The server searches by append time only. A search by origin time reads the messages, since these times may be in
//! any order; what it saw is remembered as stretches of offsets with their latest time, so that the next search reads
//! only what may hold its answer, and what was appended since.

use std::collections::{BTreeMap, HashMap};

use iggy_binary_protocol::WirePollingStrategy;
use milena_store::frame::Frames;
use milena_store::{Bounds, Entry, Found, PartitionRef, ReadLimit, StoreError, TimeKind, TopicRef};

use crate::inner::Inner;
use crate::limits;
use crate::poll::{self, ONE};

const STEP: ReadLimit = ReadLimit { bytes: limits::SEARCH_STEP_BYTES, at_least_one: true };

/// A run of offsets that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// Behind its last offset.
    next: u64,
    /// The first of its messages with the latest time.
    latest: Found,
}

/// What is remembered of one partition, by first offset; stretches do not overlap.
#[derive(Debug, Default, Clone)]
pub(crate) struct Stretches {
    by_first: BTreeMap<u64, Stretch>,
}

impl Stretches {
    /// The stretch that holds `offset`: its first offset and what is known of it.
    fn at(&self, offset: u64) -> Option<(u64, Stretch)> {
        let (first, stretch) = self.by_first.range(..=offset).next_back()?;
        (offset < stretch.next).then_some((*first, *stretch))
    }

    fn remember(&mut self, first: u64, stretch: Stretch) {
        if first >= stretch.next || self.at(first).is_some() {
            return;
        }
        let clipped = self.by_first.range(first..).next().is_some_and(|(other, _)| *other < stretch.next);
        if clipped {
            // It reaches into one that is known; nothing is lost by not noting it.
            return;
        }
        self.by_first.insert(first, stretch);
        if self.by_first.len() > limits::SEARCHED_STRETCHES_MAX {
            self.join();
        }
    }

    /// Joins neighbours, two by two.
    fn join(&mut self) {
        let mut joined: BTreeMap<u64, Stretch> = BTreeMap::new();
        let mut pair = false;
        for (first, stretch) in std::mem::take(&mut self.by_first) {
            let mut last = joined.last_entry().filter(|last| pair && last.get().next == first);
            if let Some(last) = last.as_mut().map(std::collections::btree_map::OccupiedEntry::get_mut) {
                last.next = stretch.next;
                if stretch.latest.time_micros > last.latest.time_micros {
                    last.latest = stretch.latest;
                }
                pair = false;
            } else {
                joined.insert(first, stretch);
                pair = true;
            }
        }
        self.by_first = joined;
    }
}

/// What is remembered of all partitions.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    partitions: HashMap<PartitionRef, (u64, Stretches)>,
    clock: u64,
    /// How often something was forgotten: what was read before that may be of messages that are gone.
    forgets: u64,
}

impl Searches {
    fn of(&mut self, at: &PartitionRef) -> &mut Stretches {
        self.clock += 1;
        if !self.partitions.contains_key(at) && self.partitions.len() >= limits::SEARCHED_PARTITIONS_MAX {
            let oldest = self.partitions.iter().min_by_key(|(_, (used, _))| *used).map(|(at, _)| at.clone());
            oldest.map(|at| self.partitions.remove(&at));
        }
        let entry = self.partitions.entry(at.clone()).or_default();
        entry.0 = self.clock;
        &mut entry.1
    }

    /// To be asked for before a read, and handed to [`Self::remember`].
    fn forgets(&self) -> u64 {
        self.forgets
    }

    /// Notes a stretch that was read from `first` on, unless something was forgotten since `forgets` was asked for.
    fn remember(&mut self, forgets: u64, at: &PartitionRef, first: u64, stretch: Stretch) {
        if forgets == self.forgets {
            self.of(at).remember(first, stretch);
        }
    }

    pub(crate) fn forget(&mut self, topic: &TopicRef) {
        self.forgets += 1;
        self.partitions.retain(|at, _| at.topic != *topic);
    }
}

/// Times of the messages in `entries` from `from` on.
fn times(entries: &[Entry], from: u64) -> impl Iterator<Item = Found> + '_ {
    let all = entries.iter().flat_map(|entry| {
        (entry.base_offset..).zip(Frames::new(&entry.frames)).map(|(offset, frame)| Found {
            offset,
            time_micros: if frame.origin_micros > 0 { frame.origin_micros } else { entry.append_time_micros },
        })
    });
    all.filter(move |found| found.offset >= from)
}

/// Of two, the later one; of equal ones the first.
fn later(best: Option<Found>, other: Found) -> Found {
    best.filter(|best| best.time_micros >= other.time_micros).unwrap_or(other)
}

impl Inner {
    pub(crate) async fn find(
        &self,
        at: &PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> Result<Option<Found>, StoreError> {
        let bounds = self.bounds(at).await?;
        let from = from.max(bounds.start);
        match kind {
            TimeKind::Origin => self.find_origin(at, from, bounds.end, time_micros).await,
            TimeKind::Append => self.find_append(at, from, bounds, time_micros).await,
        }
    }

    async fn find_origin(
        &self,
        at: &PartitionRef,
        from: u64,
        end: u64,
        time_micros: u64,
    ) -> Result<Option<Found>, StoreError> {
        let mut next = from;
        while next < end {
            let known = self.searches.lock().of(at).at(next);
            if let Some((_, stretch)) = known.filter(|(_, known)| known.latest.time_micros < time_micros) {
                next = stretch.next;
                continue;
            }
            let Some((entries, behind)) = self.step(at, next).await? else { break };
            if let Some(found) = times(&entries, next).find(|found| found.time_micros >= time_micros) {
                return Ok(Some(found));
            }
            next = behind;
        }
        Ok(None)
    }

    /// Reads on from `from` and remembers what was seen; `None` when nothing is there any more.
    async fn step(&self, at: &PartitionRef, from: u64) -> Result<Option<(Vec<Entry>, u64)>, StoreError> {
        let forgets = self.searches.lock().forgets();
        let entries = match self.read(at, from, STEP).await {
            Ok(entries) => entries,
            Err(StoreError::OutOfRange { bounds }) if bounds.start > from && bounds.start < bounds.end => {
                // Retention passed by.
                return Ok(Some((Vec::new(), bounds.start)));
            }
            Err(StoreError::OutOfRange { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(last) = entries.last() else { return Ok(None) };
        let behind = last.base_offset.saturating_add(u64::from(last.count));
        let latest = times(&entries, from).fold(None, |best, found| Some(later(best, found)));
        if let Some(latest) = latest {
            self.searches.lock().remember(forgets, at, from, Stretch { next: behind, latest });
        }
        Ok(Some((entries, behind)))
    }

    async fn find_append(
        &self,
        at: &PartitionRef,
        from: u64,
        bounds: Bounds,
        time_micros: u64,
    ) -> Result<Option<Found>, StoreError> {
        let Some(first) = self.poll_one(at, WirePollingStrategy::timestamp(time_micros)).await? else {
            return Ok(None);
        };
        if first.offset >= from {
            return Ok(Some(first).filter(|first| first.offset < bounds.end));
        }
        // Append times do not fall, so the first message that is wanted is late enough.
        if from >= bounds.end { Ok(None) } else { self.poll_one(at, WirePollingStrategy::offset(from)).await }
    }

    /// The first message of a poll, with its append time.
    async fn poll_one(&self, at: &PartitionRef, strategy: WirePollingStrategy) -> Result<Option<Found>, StoreError> {
        let body = self.poll(at, strategy, 1).await?;
        let polled = poll::decode(&body, 0, ONE);
        let found = |entry: &Entry| Found { offset: entry.base_offset, time_micros: entry.append_time_micros };
        match (polled.entries.first(), polled.damage) {
            (Some(entry), _) => Ok(Some(found(entry))),
            (None, Some(context)) => Err(StoreError::Broken { context }),
            (None, None) => Ok(None),
        }
    }

    pub(crate) async fn newest(&self, at: &PartitionRef, kind: TimeKind) -> Result<Option<Found>, StoreError> {
        let bounds = self.bounds(at).await?;
        if bounds.start >= bounds.end {
            return Ok(None);
        }
        if kind == TimeKind::Append {
            let Some(last) = self.poll_one(at, WirePollingStrategy::offset(bounds.end - 1)).await? else {
                return Ok(None);
            };
            return self.find_append(at, bounds.start, bounds, last.time_micros).await;
        }
        let (mut next, mut best) = (bounds.start, None);
        while next < bounds.end {
            let known = self.searches.lock().of(at).at(next);
            if let Some((_, stretch)) = known.filter(|(_, stretch)| stretch.latest.offset >= next) {
                best = Some(later(best, stretch.latest));
                next = stretch.next;
                continue;
            }
            let Some((entries, behind)) = self.step(at, next).await? else { break };
            best = times(&entries, next).fold(best, |best, found| Some(later(best, found)));
            next = behind;
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests;
