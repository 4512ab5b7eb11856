//! Brings the table of a partition to what its log says: once after a start, and again whenever another gateway may have
//! appended since.
//!
//! Of several gateways each answers for every partition, so a producer may have written through another one since it was last
//! here. What is remembered of it is then out of date, and judged by it a retry would be stored twice, or a batch that follows
//! would be refused. So before a batch is judged, the end of the partition is compared with how far it is known, and what lies
//! between is read.

use milena_store::{Bounds, StoreError};
use tokio::time::{Instant, sleep_until};

use super::dedup::{Batch, Table};
use super::partition::Partition;
use super::tail::{Tail, TailLimit, instant_of, read_tail};
use super::{Shared, wall_clock_micros};

impl Shared {
    /// Makes sure that the table holds what must be known before a batch of that producer is judged.
    ///
    /// # Errors
    /// As [`milena_store::Store::bounds`] and [`milena_store::Store::read`].
    pub(super) async fn know(&self, partition: &Partition, batch: &Batch) -> Result<(), StoreError> {
        if self.settings.shared {
            let age = self.bounds_age;
            let now = Instant::now();
            return self.know_as_of(partition, now.checked_sub(age).filter(|_| !age.is_zero())).await;
        }
        // The log may know more of a producer than this process: it was given out before a restart. A producer that began here
        // has written nothing that was not seen here.
        let must_know = self.limits.foreign_writers || !self.ids.began_here(batch.producer_id);
        if !must_know || partition.known.lock().below().is_some() {
            return Ok(());
        }
        let _one_reader = partition.reading.lock().await;
        if partition.known.lock().below().is_some() { Ok(()) } else { self.catch_up(partition).await }
    }

    /// Makes sure that the table holds all that was stored before `arrived`, which is when somebody learned of what it now
    /// builds upon. Waits for as long as an answer of the store about an end may be old.
    ///
    /// # Errors
    /// As [`Shared::know`].
    pub(super) async fn know_before(&self, partition: &Partition, arrived: Instant) -> Result<(), StoreError> {
        sleep_until(arrived + self.bounds_age).await;
        self.know_as_of(partition, Some(arrived)).await
    }

    /// `None` is now.
    async fn know_as_of(&self, partition: &Partition, then: Option<Instant>) -> Result<(), StoreError> {
        let is_known = || then.is_some_and(|then| partition.known.lock().is_as_of(then));
        if is_known() {
            return Ok(());
        }
        let _one_reader = partition.reading.lock().await;
        if is_known() { Ok(()) } else { self.catch_up(partition).await }
    }

    /// Reads what is not known, once more when the end fell meanwhile: what was read may be gone.
    async fn catch_up(&self, partition: &Partition) -> Result<(), StoreError> {
        while !self.caught_up(partition).await? {}
        Ok(())
    }

    /// As [`Shared::catch_up`]; `false` when the end fell.
    async fn caught_up(&self, partition: &Partition) -> Result<bool, StoreError> {
        let asked = Instant::now();
        let as_of = asked.checked_sub(self.bounds_age).unwrap_or(asked);
        // Before the question: an append of ours that is confirmed meanwhile may lie behind the end that is answered.
        let falls = partition.falls();
        let below = partition.known.lock().below();
        let bounds = self.store.bounds(&partition.at).await?;
        if !partition.saw_end(falls, bounds.end) {
            return Ok(false);
        }
        if below.is_some_and(|known| bounds.end < known) {
            tracing::warn!(partition = ?partition.at, end = bounds.end, ?below, "what producers stored is gone");
            partition.fell_unless(falls, bounds.end);
            return Ok(false);
        }
        let start = below.map_or(bounds.start, |below| below.clamp(bounds.start, bounds.end));
        let now_micros = wall_clock_micros();
        let mut tail = Tail { first: start, whole: true, ..Tail::default() };
        if start < bounds.end {
            let limit = TailLimit {
                messages: self.settings.tail_messages,
                bytes: self.settings.tail_bytes,
                age: self.settings.expiration,
            };
            // It is never closed.
            let _place = self.tails.acquire().await.ok();
            let unread = Bounds { start, ..bounds };
            tail = read_tail(&*self.store, &partition.at, unread, limit, now_micros).await?;
            self.learn_ids_of(&tail).await?;
            self.metrics.tail_reads.add(1);
        }
        let Some(mut table) = partition.unless_fell(falls) else { return Ok(false) };
        self.take_in(&mut table, partition, &tail, bounds, now_micros);
        partition.known.lock().read_to(bounds.end, as_of);
        Ok(true)
    }

    /// A block of ids is stored before its first id is used, so the blocks of all that was read are there now.
    async fn learn_ids_of(&self, tail: &Tail) -> Result<(), StoreError> {
        let unknown = |producer_id: &u64| !self.ids.was_given_out(*producer_id);
        let mut ids: Vec<u64> = tail.pieces.iter().map(|piece| piece.batch.producer_id).filter(unknown).collect();
        ids.sort_unstable();
        ids.dedup();
        if self.settings.shared && !ids.is_empty() { self.ids.learn(&ids).await } else { Ok(()) }
    }

    /// Takes in a tail that ends where `bounds` do. When all before it was known, it is what was appended since; else, as behind a
    /// fall, the log is right wherever it says something else than the table.
    fn take_in(&self, table: &mut Table, partition: &Partition, tail: &Tail, bounds: Bounds, now_micros: u64) {
        let now = Instant::now().into_std();
        let (below, sure) = {
            let known = partition.known.lock();
            (known.below(), known.sure())
        };
        let mut behind = Vec::new();
        if below.is_none() {
            behind = table.reread(tail.first..bounds.end);
        } else if !tail.whole || below.is_some_and(|known| bounds.start > known) {
            // What producers wrote in between was not read, or was trimmed before it was. Judged by what they wrote before that,
            // their next batches would leave a gap.
            table.forget_before(bounds.end);
        }
        let (mut producers, mut copies) = (0, 0);
        for piece in tail.pieces.iter().filter(|piece| self.ids.was_given_out(piece.batch.producer_id)) {
            let used_at = instant_of(piece.append_time_micros, now_micros, now);
            let read = table.read(&piece.batch, piece.offset, used_at, now);
            producers += u64::from(read.is_new);
            copies += u64::from(read.copies);
        }
        for (batch, offset) in behind {
            table.read(&batch, offset, now, now);
        }
        if sure.is_some_and(|sure| tail.first > sure) {
            // The same, behind a fall.
            table.forget_before(tail.first);
        }
        self.metrics.rebuilt_producers.add(producers);
        self.metrics.doubled.add(copies);
    }
}
