//! Appends a mapped batch exactly as often as its producer's state asks for, and finds out what became of appends
//! whose outcome was lost.

use std::sync::Arc;
use std::time::Duration;

use milena_records::ProducerSequence;
use milena_store::{AppendBatch, Appended, PartitionRef, ReadLimit, StoreError};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Shared;
use super::dedup::{Batch, Decision, Doubt, Table};
use super::partition::Partition;
use super::scan::{Scan, find_before};
use super::whole::Whole;

/// First pause between two looks for a lost append, and the longest one.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(250);

/// A batch ready for the store.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What the store gets.
    pub batch: AppendBatch,
    /// Message id of its first record, by which the log is searched for it.
    pub first_id: u128,
    /// Producer and sequences, when duplicates of it are to be found.
    pub sequence: Option<Batch>,
    /// True when the answer tells the append time, so that it must be looked up for a duplicate.
    pub tells_append_time: bool,
    /// Bytes of the batch as the client sent it.
    pub sent_bytes: usize,
    /// How many of its records no plain message can hold.
    pub enveloped: u32,
}

/// A batch that is stored, by this request or by an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Offset of its first record; `None` when the store does not tell and it could not be found.
    pub base_offset: Option<u64>,
    /// Append time in microseconds; `None` when it is not known.
    pub append_time_micros: Option<u64>,
    /// First retained offset of the partition, when known.
    pub log_start: Option<u64>,
}

/// Why a batch was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its first sequence is not the one that is expected.
    #[error("the batch is out of sequence")]
    OutOfSequence,
    /// A later epoch of the producer has written.
    #[error("the producer epoch is out of date")]
    OldEpoch,
    /// The outcome was not known before the request's time was over.
    #[error("the outcome was not known in time")]
    TimedOut,
}

/// An append that was handed to the store.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// How often the end had fallen.
    falls: u64,
    at: Instant,
    /// Where the same batch was looked for before it was sent once more.
    before: Option<u64>,
}

impl Shared {
    /// Appends `prepared`; `deadline` bounds the wait for the store, for other batches of the producer and for lost
    /// outcomes.
    pub(super) async fn append(
        self: &Arc<Self>,
        at: &PartitionRef,
        prepared: Prepared,
        deadline: Instant,
    ) -> Result<Stored, AppendError> {
        let partition = self.partition(at);
        timeout_at(deadline, partition.open(&*self.store)).await.map_err(|_| AppendError::TimedOut)??;
        match prepared.sequence {
            Some(sequence) => self.append_once(partition, prepared, sequence, deadline).await,
            None => self.append_plain(&partition, &prepared, deadline).await,
        }
    }

    async fn append_once(
        self: &Arc<Self>,
        partition: Arc<Partition>,
        prepared: Prepared,
        sequence: Batch,
        deadline: Instant,
    ) -> Result<Stored, AppendError> {
        let producer_id = sequence.producer_id;
        let turn = partition.queue(producer_id).turn();
        let turn = timeout_at(deadline, turn).await.map_err(|_| AppendError::TimedOut)?;
        let shared = Arc::clone(self);
        let work = Whole::new(async move {
            let result = shared.run_turn(&partition, &prepared, &sequence, deadline).await;
            drop(turn);
            result
        });
        timeout_at(deadline, work).await.unwrap_or(Err(AppendError::TimedOut))
    }

    async fn run_turn(
        &self,
        partition: &Partition,
        prepared: &Prepared,
        sequence: &Batch,
        deadline: Instant,
    ) -> Result<Stored, AppendError> {
        let mut sent_from = None;
        // A client that was told of a batch by another gateway goes on behind it here, perhaps sooner than the store says that
        // it is there.
        let mut arrived = self.settings.shared.then(Instant::now);
        loop {
            let falls = partition.falls();
            self.know(partition, sequence).await?;
            let now = Instant::now().into_std();
            // Where the end fell meanwhile, what is known now is not what was just made sure of.
            let Some(decision) = partition.unless_fell(falls).map(|mut table| table.decide(sequence, now)) else {
                continue;
            };
            match decision {
                Decision::Resolve(doubt) => self.resolve(partition, falls, doubt, deadline).await?,
                Decision::Duplicate(offset) => {
                    self.metrics.duplicates.add(1);
                    return Ok(self.stored_before(partition, prepared, offset).await);
                }
                Decision::OutOfSequence if let Some(arrived) = arrived.take() => {
                    self.know_before(partition, arrived).await?;
                }
                Decision::OutOfSequence => {
                    self.metrics.out_of_sequence.add(1);
                    return Err(AppendError::OutOfSequence);
                }
                Decision::OldEpoch => return Err(AppendError::OldEpoch),
                Decision::Fresh | Decision::Unknown if sent_from.is_some() && Instant::now() >= deadline => {
                    return Err(AppendError::TimedOut);
                }
                Decision::Fresh | Decision::Unknown => {
                    if decision == Decision::Unknown {
                        self.metrics.unknown_producers.add(1);
                    }
                    let Some(from) = partition.begin(falls, sequence, sent_from, now) else { continue };
                    let sent = Sent { falls, at: Instant::from_std(now), before: sent_from };
                    let result = self.store.append(&partition.at, prepared.batch.clone()).await;
                    if let Some(answer) = self.settle(partition, prepared, sequence, result, sent).await {
                        return answer;
                    }
                    sent_from = Some(from);
                }
            }
        }
    }

    /// Notes what the store said of an append; `None` when it said that it does not know, or lost records meanwhile, of which this
    /// may be one.
    async fn settle(
        &self,
        partition: &Partition,
        prepared: &Prepared,
        sequence: &Batch,
        result: Result<Appended, StoreError>,
        sent: Sent,
    ) -> Option<Result<Stored, AppendError>> {
        let producer_id = sequence.producer_id;
        match result {
            Ok(appended) => {
                let offset = self.offset_of(partition, prepared, &appended).await;
                let now = Instant::now().into_std();
                if let Some(mut table) = partition.unless_fell(sent.falls) {
                    if let Some(offset) = offset {
                        let copies = table.landed(sequence, offset, now);
                        self.metrics.doubled.add(u64::from(copies));
                        self.saw(partition, &table, offset, prepared.batch.count, sent.at);
                    } else {
                        table.forget(producer_id);
                    }
                } else {
                    partition.table.lock().gave_up(producer_id, now);
                    return None;
                }
                self.count(prepared);
                // Shared partitions are read whole, and copies are counted there.
                if let Some(from) = sent.before.filter(|_| !self.settings.shared) {
                    self.count_copies(partition, prepared.first_id, from).await;
                }
                Some(Ok(stored(&appended, offset)))
            }
            Err(StoreError::InDoubt { reason }) => {
                self.metrics.in_doubt.add(1);
                tracing::warn!(partition = ?partition.at, reason, "an append is in doubt");
                partition.table.lock().gave_up(producer_id, Instant::now().into_std());
                None
            }
            Err(error) => {
                partition.table.lock().not_applied(producer_id);
                Some(Err(error.into()))
            }
        }
    }

    /// Notes where an append that was sent at `sent` landed.
    fn saw(&self, partition: &Partition, table: &Table, offset: u64, count: u32, sent: Instant) {
        let end = offset.saturating_add(u64::from(count));
        partition.saw_own(table, offset, end, Some(sent).filter(|_| self.settings.shared));
    }

    /// Finds out whether the batch in doubt landed, and notes it, unless the end fell since it had done so `falls` times; the
    /// producer is closed until then.
    ///
    /// A request that was cut off can still sit in the engine's queue, so "it is not there" counts only after the
    /// grace period.
    async fn resolve(
        &self,
        partition: &Partition,
        falls: u64,
        doubt: Doubt,
        deadline: Instant,
    ) -> Result<(), AppendError> {
        let now = Instant::now();
        let producer_id = doubt.batch.producer_id;
        partition.table.lock().gave_up(producer_id, now.into_std());
        let grace_end = doubt.since.map_or(now, Instant::from_std) + self.settings.in_doubt_grace;
        let id = message_id(&doubt.batch);
        let found = self.look(partition, id, doubt.from, grace_end, deadline).await?;
        let before = match found {
            Some(_) => None,
            None => {
                // It is never closed.
                let _place = self.tails.acquire().await.ok();
                find_before(&*self.store, &partition.at, &doubt, self.settings.tail_bytes).await?
            }
        };
        let Some(mut table) = partition.unless_fell(falls) else { return Ok(()) };
        let Some(offset) = found.or(before) else {
            table.never_landed(producer_id);
            return Ok(());
        };
        let copies = table.landed(&doubt.batch, offset, Instant::now().into_std());
        self.metrics.doubled.add(u64::from(copies));
        partition.saw_own(&table, offset, offset.saturating_add(u64::from(doubt.batch.span.count)), None);
        if before.is_some() {
            tracing::warn!(partition = ?partition.at, offset, from = doubt.from, "an append landed below the known end");
            partition.distrust(&mut table, offset);
        }
        Ok(())
    }

    /// Looks for a message until it is there, or `grace_end` is over without it.
    async fn look(
        &self,
        partition: &Partition,
        id: u128,
        from: u64,
        grace_end: Instant,
        deadline: Instant,
    ) -> Result<Option<u64>, AppendError> {
        let mut scan = Scan::new(id, from);
        let mut pause = LOOK_PAUSE;
        loop {
            let started = Instant::now();
            match scan.advance(&*self.store, &partition.at).await {
                Ok(()) => {
                    self.metrics.doubled.add(u64::from(scan.copies().saturating_sub(1)));
                    if let Some(offset) = scan.found() {
                        return Ok(Some(offset));
                    }
                    if started >= grace_end {
                        return Ok(None);
                    }
                }
                Err(error @ (StoreError::NotFound { .. } | StoreError::Closed)) => return Err(error.into()),
                Err(error) => tracing::debug!(%error, "the tail could not be read, looking again"),
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(AppendError::TimedOut);
            }
            let until_grace = if now < grace_end { grace_end } else { deadline };
            sleep_until((now + pause).min(until_grace).min(deadline)).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    async fn append_plain(
        &self,
        partition: &Partition,
        prepared: &Prepared,
        deadline: Instant,
    ) -> Result<Stored, AppendError> {
        let mut sent_from = None;
        loop {
            let falls = partition.falls();
            let from = sent_from.unwrap_or_else(|| partition.known_end());
            // A store that never answers would hold the connection, and with it all that the client sends behind this. The
            // append may still land, as after any time-out.
            let sent = Instant::now();
            let append = self.store.append(&partition.at, prepared.batch.clone());
            match timeout_at(deadline, append).await.map_err(|_| AppendError::TimedOut)? {
                Ok(appended) => {
                    self.count(prepared);
                    let offset = self.offset_of(partition, prepared, &appended).await;
                    if let (Some(offset), Some(table)) = (offset, partition.unless_fell(falls)) {
                        self.saw(partition, &table, offset, prepared.batch.count, sent);
                    }
                    if let Some(from) = sent_from {
                        self.count_copies(partition, prepared.first_id, from).await;
                    }
                    return Ok(stored(&appended, offset));
                }
                Err(StoreError::InDoubt { reason }) => {
                    self.metrics.in_doubt.add(1);
                    tracing::warn!(partition = ?partition.at, reason, "an append is in doubt");
                    sent_from = Some(from);
                    let grace_end = Instant::now() + self.settings.in_doubt_grace;
                    let found = self.look(partition, prepared.first_id, from, grace_end, deadline).await?;
                    if let Some(offset) = found {
                        return Ok(self.stored_before(partition, prepared, offset).await);
                    }
                    if Instant::now() >= deadline {
                        return Err(AppendError::TimedOut);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The offset that the store confirmed; when it confirmed none, the one at which the batch is found.
    async fn offset_of(&self, partition: &Partition, prepared: &Prepared, appended: &Appended) -> Option<u64> {
        if appended.base_offset.is_some() {
            return appended.base_offset;
        }
        let mut scan = Scan::new(prepared.first_id, partition.known_end());
        if let Err(error) = scan.advance(&*self.store, &partition.at).await {
            tracing::warn!(partition = ?partition.at, %error, "the offset of an append is not known");
        }
        scan.found()
    }

    fn count(&self, prepared: &Prepared) {
        self.metrics.batches.add(1);
        self.metrics.records.add(u64::from(prepared.batch.count));
        self.metrics.bytes.add(prepared.sent_bytes as u64);
        self.metrics.enveloped.add(u64::from(prepared.enveloped));
    }

    /// Counts copies of a batch that was sent again and then landed twice.
    async fn count_copies(&self, partition: &Partition, id: u128, from: u64) {
        let mut scan = Scan::new(id, from);
        if scan.advance(&*self.store, &partition.at).await.is_ok() {
            self.metrics.doubled.add(u64::from(scan.copies().saturating_sub(1)));
        }
    }

    async fn stored_before(&self, partition: &Partition, prepared: &Prepared, offset: u64) -> Stored {
        let log_start = self.store.bounds(&partition.at).await.ok().map(|bounds| bounds.start);
        let mut append_time_micros = None;
        if prepared.tells_append_time {
            let limit = ReadLimit { bytes: 0, at_least_one: true };
            let entries = self.store.read(&partition.at, offset, limit).await.unwrap_or_default();
            append_time_micros = entries.first().map(|entry| entry.append_time_micros);
        }
        Stored { base_offset: Some(offset), append_time_micros, log_start }
    }
}

fn stored(appended: &Appended, base_offset: Option<u64>) -> Stored {
    Stored {
        base_offset,
        append_time_micros: (appended.append_time_micros > 0).then_some(appended.append_time_micros),
        log_start: Some(appended.log_start),
    }
}

fn message_id(batch: &Batch) -> u128 {
    let Batch { producer_id, epoch, span } = *batch;
    ProducerSequence { producer_id, epoch, sequence: span.first }.to_message_id()
}
