//! One partition as the produce path sees it: its producers' table, and one lane per producer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milena_store::{PartitionRef, Store, StoreError};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OnceCell, OwnedMutexGuard};
use tokio::time::Instant;

use super::dedup::{Batch, Table};
use super::known::Known;

type LaneLock = Arc<tokio::sync::Mutex<()>>;

/// State of one partition, made when the first batch for it comes.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) at: PartitionRef,
    pub(super) table: Mutex<Table>,
    pub(super) known: Mutex<Known>,
    /// Held while the log is read: whoever waited for it uses what was found.
    pub(super) reading: tokio::sync::Mutex<()>,
    lanes: Mutex<HashMap<u64, LaneLock>>,
    opened: OnceCell<()>,
    known_end: AtomicU64,
}

impl Partition {
    pub(super) fn new(at: PartitionRef, producers_max: usize, expiration: Duration) -> Self {
        Self {
            at,
            table: Mutex::new(Table::new(producers_max, expiration)),
            known: Mutex::default(),
            reading: tokio::sync::Mutex::new(()),
            lanes: Mutex::new(HashMap::new()),
            opened: OnceCell::new(),
            known_end: AtomicU64::new(0),
        }
    }

    /// Learns the end of the partition, once: an append whose outcome is lost is searched from there on.
    ///
    /// # Errors
    /// As [`Store::bounds`].
    pub(super) async fn open(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.opened
            .get_or_try_init(|| async {
                loop {
                    let falls = self.falls();
                    let bounds = store.bounds(&self.at).await?;
                    if self.saw_end(falls, bounds.end) {
                        return Ok(());
                    }
                }
            })
            .await
            .copied()
    }

    /// An end that the partition has had; whatever is appended from now on lands at or behind it.
    pub(super) fn known_end(&self) -> u64 {
        self.known_end.load(Ordering::Acquire)
    }

    /// How often the end fell: what is learned of the store is void when it fell since it was asked.
    pub(super) fn falls(&self) -> u64 {
        self.table.lock().falls()
    }

    /// The table, unless the end fell since it had done so `falls` times. It does not while this is held.
    pub(super) fn unless_fell(&self, falls: u64) -> Option<MutexGuard<'_, Table>> {
        Some(self.table.lock()).filter(|table| table.falls() == falls)
    }

    /// Takes in an end that was asked for when the end had fallen `falls` times; `false` when it fell since.
    pub(super) fn saw_end(&self, falls: u64, end: u64) -> bool {
        let table = self.unless_fell(falls);
        if table.is_some() {
            self.known_end.fetch_max(end, Ordering::AcqRel);
        }
        table.is_some()
    }

    /// Notes that a batch is handed to the store now, as [`Table::begin`], unless the end fell since it had done so `falls` times.
    /// Answers from where on it is to be looked for: where it was when it was sent `before`, or else the end.
    pub(super) fn begin(&self, falls: u64, batch: &Batch, before: Option<u64>, now: std::time::Instant) -> Option<u64> {
        let mut table = self.unless_fell(falls)?;
        let from = before.unwrap_or_else(|| self.known_end());
        table.begin(batch, from, now);
        Some(from)
    }

    /// An append of ours that was sent at `sent` lies from `offset` up to `end`. Whoever calls this holds the table that
    /// [`Self::unless_fell`] gave out.
    pub(super) fn saw_own(&self, _table: &Table, offset: u64, end: u64, sent: Option<Instant>) {
        self.known_end.fetch_max(end, Ordering::AcqRel);
        if let Some(sent) = sent {
            self.known.lock().landed(offset, end, sent);
        }
    }

    /// The store lost what lay at `end` and behind it. The lanes stay: whoever is under way there is not overtaken.
    pub(super) fn fell(&self, end: u64) {
        self.fell_to(&mut self.table.lock(), end);
    }

    /// As [`Self::fell`], when it did not do so since it had fallen `falls` times.
    pub(super) fn fell_unless(&self, falls: u64, end: u64) {
        if let Some(mut table) = self.unless_fell(falls) {
            self.fell_to(&mut table, end);
        }
    }

    /// The log says something else at `offset` than was known: what lies there and behind it is read again. Whoever calls this
    /// holds the table.
    pub(super) fn distrust(&self, table: &mut Table, offset: u64) {
        table.distrust();
        self.known.lock().fell(offset);
    }

    fn fell_to(&self, table: &mut Table, end: u64) {
        table.fell(end);
        self.known.lock().fell(end);
        self.known_end.store(end, Ordering::Release);
    }

    /// A place in the queue of a producer. Batches of one producer go one after the other, in the order in which they
    /// asked for a place; those of different producers do not wait for each other.
    pub(super) fn queue(self: &Arc<Self>, producer_id: u64) -> Ticket {
        let lock = Arc::clone(self.lanes.lock().entry(producer_id).or_default());
        Ticket { partition: Arc::clone(self), producer_id, lock: Some(lock) }
    }

    /// True when no batch is under way and no producer is remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.lock().is_empty() && self.table.lock().is_empty()
    }

    #[cfg(test)]
    pub(super) fn lanes(&self) -> usize {
        self.lanes.lock().len()
    }
}

/// A place in the queue of a producer; the queue goes away with its last place.
#[derive(Debug)]
pub(super) struct Ticket {
    partition: Arc<Partition>,
    producer_id: u64,
    lock: Option<LaneLock>,
}

/// The producer's turn: nobody else appends for it while this is held.
#[derive(Debug)]
pub(super) struct Turn {
    // Order of fields is order of release: the lane opens before its place in the map is given up.
    _guard: OwnedMutexGuard<()>,
    _ticket: Ticket,
}

impl Ticket {
    /// Waits for the producer's turn.
    pub(super) async fn turn(self) -> Turn {
        let lock = self.lock.clone().unwrap_or_default();
        Turn { _guard: lock.lock_owned().await, _ticket: self }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut lanes = self.partition.lanes.lock();
        self.lock = None;
        // The map's own reference is the last one: nobody holds or waits for this lane.
        if lanes.get(&self.producer_id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            lanes.remove(&self.producer_id);
        }
    }
}
