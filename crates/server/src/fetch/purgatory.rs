//! Fetches that wait for data.
//!
//! A fetch whose `min_bytes` is not met registers its partitions here and sleeps. An append counts its bytes into every
//! fetch that waits for that partition and wakes those that may be satisfied now: a fetch that wants a mebibyte is not
//! woken by each of a thousand small appends.
//!
//! No wake-up is lost, because a fetch looks at its partitions once more *after* it registered. Growth becomes visible
//! before the engine announces it, and announcement and registration lock the same shard; so an append either finds the
//! fetch registered, or its bytes are seen by that last look.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use milena_store::{GrowthWatcher, PartitionRef, TopicRef};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Appends to partitions of different shards do not meet.
const SHARDS: usize = 64;

/// Header of a record batch: an append may add one to the response. Without it a fetch could sleep on although the
/// encoded records, which are a little smaller than the stored ones but for this header, fill `min_bytes` already.
const BATCH_HEADER_BYTES: u64 = 61;

/// What a deletion, or an end or a start that moved otherwise than by growth, counts as: more than any `min_bytes`, so
/// that it wakes whoever waits.
const DELETION_BYTES: u64 = 1 << 36;

/// No growth reaches it: the fetch is not asleep.
const NEVER: u64 = u64::MAX;

/// All parked fetches, by partition.
pub struct Purgatory {
    shards: Box<[Mutex<Shard>]>,
    next_id: AtomicU64,
    parked: AtomicU64,
    wakes: AtomicU64,
}

type Shard = HashMap<PartitionRef, Slot>;

/// The fetches that wait for one partition. Most partitions have one consumer: that costs no further allocation.
enum Slot {
    One(Arc<Waiter>),
    Many(HashMap<u64, Arc<Waiter>>),
}

struct Waiter {
    id: u64,
    /// Bytes that its partitions grew by since it registered.
    grown: AtomicU64,
    /// Value of `grown` that wakes it; `NEVER` while it is awake.
    wake_at: AtomicU64,
    /// True once a topic of it was deleted, or has another name.
    nameless: AtomicBool,
    notify: Notify,
}

impl Waiter {
    /// Counts growth; true when this call is the one that wakes the fetch.
    fn grow(&self, bytes: u64) -> bool {
        let grown = self.grown.fetch_add(bytes, Ordering::SeqCst).wrapping_add(bytes);
        let wake_at = self.wake_at.load(Ordering::SeqCst);
        let reached = grown >= wake_at
            && self.wake_at.compare_exchange(wake_at, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if reached {
            self.notify.notify_one();
        }
        reached
    }
}

impl Default for Purgatory {
    fn default() -> Self {
        Self::new()
    }
}

impl Purgatory {
    /// Nothing parked.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next_id: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// Registers a fetch for `partitions`. From now on growth is counted; look at the partitions once more before you
    /// sleep. Dropping the answer takes it out again.
    #[must_use]
    pub fn register(&self, partitions: Vec<PartitionRef>) -> Parked<'_> {
        let waiter = Arc::new(Waiter {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            grown: AtomicU64::new(0),
            wake_at: AtomicU64::new(NEVER),
            nameless: AtomicBool::new(false),
            notify: Notify::new(),
        });
        for partition in &partitions {
            self.insert(partition, &waiter);
        }
        self.parked.fetch_add(1, Ordering::Relaxed);
        Parked { purgatory: self, waiter, partitions }
    }

    /// Fetches that are registered now.
    #[must_use]
    pub fn parked(&self) -> u64 {
        self.parked.load(Ordering::Relaxed)
    }

    /// How often a fetch was woken before its deadline, ever.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// The start of a partition moved up: whoever waits for it looks again, and hears when it waits below the new start.
    pub fn start_moved(&self, partition: &PartitionRef) {
        self.startle(partition);
    }

    /// Wakes whoever waits for a partition, whatever it misses.
    fn startle(&self, partition: &PartitionRef) {
        let Some(shard) = self.shard(partition) else { return };
        if let Some(slot) = shard.lock().get(partition) {
            self.grow(slot, DELETION_BYTES);
        }
    }

    fn shard(&self, partition: &PartitionRef) -> Option<&Mutex<Shard>> {
        let mixed =
            partition.topic.topic_id().wrapping_mul(0x9E37_79B1) ^ partition.partition.wrapping_mul(0x85EB_CA77);
        self.shards.get((mixed >> 16) as usize % SHARDS)
    }

    fn insert(&self, partition: &PartitionRef, waiter: &Arc<Waiter>) {
        let Some(shard) = self.shard(partition) else { return };
        match shard.lock().entry(partition.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::One(Arc::clone(waiter)));
            }
            Entry::Occupied(mut occupied) => occupied.get_mut().add(waiter),
        }
    }

    fn remove(&self, partition: &PartitionRef, id: u64) {
        let Some(shard) = self.shard(partition) else { return };
        let mut shard = shard.lock();
        let Some(slot) = shard.get_mut(partition) else { return };
        let empty = match slot {
            Slot::One(waiter) => waiter.id == id,
            Slot::Many(waiters) => {
                waiters.remove(&id);
                waiters.is_empty()
            }
        };
        if empty {
            shard.remove(partition);
        }
    }

    fn grow(&self, slot: &Slot, bytes: u64) {
        let woken = slot.waiters().map(|waiter| u64::from(waiter.grow(bytes))).sum();
        self.wakes.fetch_add(woken, Ordering::Relaxed);
    }
}

impl Slot {
    fn waiters(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        let (one, many) = match self {
            Self::One(waiter) => (Some(waiter), None),
            Self::Many(waiters) => (None, Some(waiters.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn add(&mut self, waiter: &Arc<Waiter>) {
        match self {
            Self::One(first) => {
                let first = Arc::clone(first);
                *self = Self::Many(HashMap::from([(first.id, first), (waiter.id, Arc::clone(waiter))]));
            }
            Self::Many(waiters) => {
                waiters.insert(waiter.id, Arc::clone(waiter));
            }
        }
    }
}

impl GrowthWatcher for Purgatory {
    fn grown(&self, partition: &PartitionRef, _end: u64, bytes: usize) {
        let Some(shard) = self.shard(partition) else { return };
        let shard = shard.lock();
        if shard.is_empty() {
            return;
        }
        if let Some(slot) = shard.get(partition) {
            self.grow(slot, u64::try_from(bytes).unwrap_or(DELETION_BYTES).saturating_add(BATCH_HEADER_BYTES));
        }
    }

    fn fell(&self, partition: &PartitionRef, _end: u64) {
        self.startle(partition);
    }

    fn deleted(&self, topic: &TopicRef) {
        for shard in &self.shards {
            for (_, slot) in shard.lock().iter().filter(|(partition, _)| partition.topic == *topic) {
                slot.waiters().for_each(|waiter| waiter.nameless.store(true, Ordering::SeqCst));
                self.grow(slot, DELETION_BYTES);
            }
        }
    }
}

/// A registered fetch.
pub struct Parked<'a> {
    purgatory: &'a Purgatory,
    waiter: Arc<Waiter>,
    partitions: Vec<PartitionRef>,
}

impl Parked<'_> {
    /// Mark of the growth counted so far. Take it before you read: what comes while you read counts behind it.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.waiter.grown.load(Ordering::SeqCst)
    }

    /// True once a topic of the fetch was deleted or has another name: whoever asked for it has to ask again.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.waiter.nameless.load(Ordering::SeqCst)
    }

    /// Sleeps until the partitions grew by `missing` bytes since `mark`, or one of them was deleted. It may wake a little
    /// early, never late. Dropping it at any moment loses nothing.
    pub async fn wait(&self, mark: u64, missing: usize) {
        let wake_at = mark.saturating_add(u64::try_from(missing).unwrap_or(DELETION_BYTES)).min(NEVER - 1);
        self.waiter.wake_at.store(wake_at, Ordering::SeqCst);
        // An append that counted before the line above did not see the new value; then this load sees its bytes. A
        // notification left over from an earlier sleep only costs one more turn.
        while self.waiter.grown.load(Ordering::SeqCst) < wake_at {
            self.waiter.notify.notified().await;
        }
        self.waiter.wake_at.store(NEVER, Ordering::SeqCst);
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        for partition in &self.partitions {
            self.purgatory.remove(partition, self.waiter.id);
        }
        self.purgatory.parked.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "purgatory_tests.rs"]
mod tests;
