//! The one task that writes the log of offsets, in the order in which the coordinator gave its records out.
//!
//! Records that have come together while an append was under way share the next one. A failed append fails what it
//! carried: those commits are answered with a code that clients retry, and the table stays as it was. A store that hangs
//! holds up this task alone; what waits for it is bounded, and gives up by itself.

use milena_groups::{Append, Ticket, Walk};
use milena_store::state_log::StateLog;
use milena_store::{Store, StoreError};
use tokio::time::{Duration, Instant};

use super::bundle::{HEADER_BYTES, LENGTH_BYTES, bundle};
use super::keeper::End;
use super::shared::Shared;

/// Bytes of records that share an append, unless one alone is larger.
const BUNDLE_BYTES: usize = 1 << 20;

/// What the log and the store put around a record, generously.
const OVERHEAD_BYTES: usize = 4 << 10;

/// Wait after a snapshot that failed: each attempt writes the whole table.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(30);

/// Largest record of offsets that the log of `store` takes.
pub(super) fn record_bytes_max(store: &dyn Store) -> usize {
    store.capabilities().payload_bytes_max.saturating_sub(OVERHEAD_BYTES).max(1)
}

/// Writes the log.
pub(super) struct Appender<'a> {
    pub(super) shared: &'a Shared,
    pub(super) log: StateLog,
    /// True on a runtime where a thread may say that it is busy.
    pub(super) can_block: bool,
}

impl Appender<'_> {
    /// Appends until the service is closed and the queue is empty, or another writer took the log over.
    pub(super) async fn run(self) -> End {
        let mut failing = false;
        let mut snapshot_at = Instant::now();
        loop {
            let Some(batch) = self.next_batch() else {
                if self.shared.is_closing() {
                    return End::Closed;
                }
                self.shared.queued.notified().await;
                continue;
            };
            let result = self.append(&batch).await;
            if result.is_err() && self.log.is_overtaken().await {
                return End::Overtaken;
            }
            if failing != result.is_err() {
                failing = result.is_err();
                match &result {
                    Ok(()) => tracing::info!("committed offsets are stored again"),
                    Err(error) => tracing::error!(%error, "committed offsets cannot be stored"),
                }
            }
            if self.log.snapshot_due() && Instant::now() >= snapshot_at && !self.snapshot().await {
                if self.log.is_overtaken().await {
                    return End::Overtaken;
                }
                snapshot_at = Instant::now() + SNAPSHOT_RETRY;
            }
        }
    }

    /// The records of the next append; there is at least one.
    fn next_batch(&self) -> Option<Vec<Append>> {
        self.shared.run_on_state(|state, _| {
            let mut bytes = HEADER_BYTES;
            let mut count = 0;
            for append in &state.queue {
                bytes += LENGTH_BYTES + append.record.len();
                if count > 0 && bytes > BUNDLE_BYTES {
                    break;
                }
                count += 1;
            }
            (count > 0).then(|| state.queue.drain(..count).collect())
        })
    }

    async fn append(&self, batch: &[Append]) -> Result<(), StoreError> {
        let payload = bundle(batch.iter().map(|append| append.record.as_slice()));
        let bytes = batch.iter().map(|append| append.record.len()).sum();
        let begun = Instant::now();
        let tickets: Vec<Ticket> = batch.iter().map(|append| append.ticket).collect();
        // Settled before the log takes another append, so that no snapshot misses what it stands for.
        let stored = self.log.update(payload, |_| self.settle(&tickets, bytes, true)).await;
        let metrics = &self.shared.metrics;
        if stored.is_err() {
            metrics.append_failures.add(1);
            self.settle(&tickets, bytes, false);
        } else {
            metrics.append_time.observe_time(begun.elapsed());
            metrics.append_records.observe(tickets.len() as u64);
            metrics.append_bytes.add(bytes as u64);
        }
        stored
    }

    fn settle(&self, tickets: &[Ticket], bytes: usize, durable: bool) {
        self.shared.run_on_state(|state, _| {
            state.unsettled_bytes = state.unsettled_bytes.saturating_sub(bytes);
        });
        self.shared.run(|groups, _, out| {
            for ticket in tickets {
                groups.settled(*ticket, durable, out);
            }
        });
    }

    /// Writes the whole table in place of the log before it. False when that failed: the log goes on as it is.
    async fn snapshot(&self) -> bool {
        let written = self.log.snapshot_with(|| self.busy(|| self.table())).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "no snapshot of the committed offsets");
            self.shared.metrics.snapshot_failures.add(1);
        } else {
            self.shared.metrics.snapshots.add(1);
        }
        written.is_ok()
    }

    /// The table, frozen slice by slice: between two of them requests are answered. Nothing is settled in the meantime,
    /// since that is for this task to do.
    fn table(&self) -> Vec<Vec<u8>> {
        let (mut walk, mut records) = (Walk::default(), Vec::new());
        while !walk.is_over() {
            let frozen = self.shared.read(|groups| groups.freeze(&mut walk));
            records.extend(frozen.records().map(|record| bundle(std::iter::once(record.as_slice()))));
        }
        records
    }

    fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.can_block { tokio::task::block_in_place(work) } else { work() }
    }
}
