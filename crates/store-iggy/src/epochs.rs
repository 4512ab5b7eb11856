//! Ends that move back: the epoch rises in the journal before anybody sees the lower end.
//!
//! The known ends are written to the journal now and then, so that a gateway that starts, or one that never looked at a
//! partition, notices too that an end is lower than it was. What grew since they were last written is not known then.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

use milena_store::{INTERNAL_STREAM, PartitionRef, StoreError, StoreFuture, TopicRef};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::inner::Inner;
use crate::journal::{self, Incarnation, Record};
use crate::limits;
use crate::partition::Partition;

/// True for the journal, which keeps no marks of itself.
pub(crate) fn is_journal(topic: &TopicRef) -> bool {
    topic.stream() == INTERNAL_STREAM && topic.topic() == journal::TOPIC
}

impl Inner {
    /// Waits until the bounds of a partition may be shown.
    pub(crate) async fn settle(&self, at: &PartitionRef, partition: &Mutex<Partition>) -> Result<(), StoreError> {
        let raising = partition.lock().is_raising();
        if raising { self.raise(at, partition).await } else { Ok(()) }
    }

    /// Has the epoch of a partition whose end fell begin in the journal. In a box, because it reads the journal, and reads
    /// wait for this; the journal itself never does.
    fn raise<'a>(&'a self, at: &'a PartitionRef, partition: &'a Mutex<Partition>) -> StoreFuture<'a, ()> {
        Box::pin(self.raise_now(at, partition))
    }

    async fn raise_now(&self, at: &PartitionRef, partition: &Mutex<Partition>) -> Result<(), StoreError> {
        let _one_at_a_time = self.raising.lock().await;
        // Another gateway that saw the same fall may have been faster.
        self.catch_up().await?;
        let wanted = partition.lock().raise_wanted();
        if let Some((epoch, start)) = wanted {
            self.record(&[Record::epoch(at, epoch, start)]).await?;
            self.catch_up().await?;
        }
        if partition.lock().is_raising() {
            return Err(StoreError::Busy { reason: format!("the end of {at:?} moves back") });
        }
        self.falls.lock().remove(at);
        Ok(())
    }

    /// Has all epochs begin that are still to. What fails is tried again later.
    pub(crate) async fn raise_all(&self) {
        let Ok(_nobody_else) = self.raising_all.try_lock() else { return };
        let falls: Vec<_> = self.falls.lock().iter().cloned().collect();
        for at in falls {
            let Some(partition) = self.topics.get(&at.topic).and_then(|state| state.partition(at.partition)) else {
                self.falls.lock().remove(&at);
                continue;
            };
            let raised = match self.settle(&at, &partition).await {
                Ok(()) => self.falls.lock().remove(&at),
                Err(error) => {
                    tracing::debug!(partition = ?at, %error, "an end that moved back is not in the journal yet");
                    return;
                }
            };
            tracing::debug!(partition = ?at, raised, "the epoch of a partition rose");
        }
    }

    /// Takes what the journal says of topics into the state of their partitions.
    pub(crate) fn learn_marks(&self, touched: &HashSet<Incarnation>) {
        if touched.is_empty() {
            return;
        }
        for state in self.topics.all() {
            if touched.contains(&Incarnation::from(&state.topic)) && !is_journal(&state.topic) {
                let mut fell = false;
                for (number, partition) in (0..).zip(state.partitions()) {
                    let at = state.topic.partition(number);
                    // Locked before the table is asked, so that what is older does not come after what is newer.
                    let mut partition = partition.lock();
                    let epoch = partition.epochs().current();
                    let seen = partition.learn(&self.table.lock().marks(&at));
                    if partition.epochs().current() > epoch {
                        self.metrics.end_falls.add(1);
                        fell = true;
                    }
                    self.tell(&at, seen);
                }
                if fell {
                    state.expire();
                }
            }
        }
    }

    /// Writes the ends that the journal does not know.
    pub(crate) async fn save_ends(&self) -> Result<(), StoreError> {
        if self.unsaved_ends().is_empty() {
            return Ok(());
        }
        // Another gateway may have written them.
        self.catch_up().await?;
        let records = self.unsaved_ends();
        for records in records.chunks(limits::ENDS_RECORDS_MAX) {
            self.record(records).await?;
        }
        if records.is_empty() { Ok(()) } else { self.catch_up().await }
    }

    fn unsaved_ends(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for state in self.topics.all() {
            let mut ends = Vec::new();
            for (number, partition) in (0..).zip(state.partitions()) {
                if let Some((epoch, end)) = partition.lock().unsaved_end() {
                    ends.push((number, epoch, end));
                }
            }
            if !ends.is_empty() {
                records.push(Record::ends(&state.topic, ends));
            }
        }
        records
    }
}

/// Writes ends, and keeps the journal short, until the store is gone.
pub(crate) async fn run(store: Weak<Inner>) {
    let mut compact_next = Instant::now();
    loop {
        sleep(limits::ENDS_INTERVAL).await;
        let Some(inner) = store.upgrade().filter(|inner| inner.check_open().is_ok()) else { return };
        if let Err(error) = inner.save_ends().await {
            tracing::debug!(%error, "the ends of partitions are not saved for now");
        }
        if inner.compaction_due() && Instant::now() >= compact_next {
            compact_next = Instant::now() + limits::CLAIM_LIFE;
            let inner = Arc::clone(&inner);
            // Not here: removing segments may take long.
            tokio::spawn(async move { inner.compact().await });
        }
    }
}
