//! The journal on the server: opening it, writing records, and reading those of other gateways.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use milena_store::frame::{Frames, frame_header};
use milena_store::{
    AppendBatch, Bounds, Durability, INTERNAL_STREAM, PartitionRef, ReadLimit, StoreError, TopicSettings,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::compact::Snapshots;
use crate::inner::Inner;
use crate::journal::{self, Incarnation, Record};
use crate::table::Table;

const STEP: ReadLimit = ReadLimit { bytes: 1 << 20, at_least_one: true };

/// How far the journal was read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) next: u64,
    /// Bytes of records behind the newest snapshot.
    pub(crate) behind_snapshot: usize,
    snapshots: Snapshots,
}

/// A record as it was stored.
struct Stored {
    offset: u64,
    at_micros: u64,
    record: Record,
    bytes: usize,
}

impl Inner {
    /// Opens the journal, which is created when it is missing, and reads all of it.
    pub(crate) async fn open_journal(&self) -> Result<(), StoreError> {
        self.journal().await?;
        self.catch_up().await
    }

    /// Where the journal is. Looked up by name each time: when somebody deletes it, the next write makes another.
    pub(crate) async fn journal(&self) -> Result<PartitionRef, StoreError> {
        if let Some(state) = self.topics.named(INTERNAL_STREAM, journal::TOPIC) {
            return Ok(state.topic.partition(0));
        }
        if let Some(state) = self.describe(INTERNAL_STREAM, journal::TOPIC).await? {
            return Ok(state.topic.partition(0));
        }
        let settings =
            TopicSettings { keep_forever: true, durability: Some(Durability::Always), ..TopicSettings::default() };
        match self.create_in_server(INTERNAL_STREAM, journal::TOPIC, 1, &settings).await {
            Ok(state) => Ok(state.topic.partition(0)),
            Err(error @ StoreError::Exists { .. }) => {
                let state = self.describe(INTERNAL_STREAM, journal::TOPIC).await?.ok_or(error)?;
                Ok(state.topic.partition(0))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a record durable, then takes it in.
    pub(crate) async fn write(&self, record: Record) -> Result<(), StoreError> {
        self.record(std::slice::from_ref(&record)).await?;
        self.table.lock().apply(&record, 0);
        Ok(())
    }

    /// Makes records durable, all of them or none; what they say counts from when they are read.
    pub(crate) async fn record(&self, records: &[Record]) -> Result<(), StoreError> {
        let at = self.journal().await?;
        let mut frames = Vec::new();
        for record in records {
            let payload = record
                .encode()
                .map_err(|error| StoreError::Broken { context: format!("a record cannot be written: {error}") })?;
            let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            frames.extend_from_slice(&frame_header(xxh3_128(&payload), 0, length, 0));
            frames.extend_from_slice(&payload);
        }
        let batch = AppendBatch {
            frames: Bytes::from(frames),
            count: u32::try_from(records.len()).unwrap_or(u32::MAX),
            origin_min_micros: 0,
            origin_max_micros: 0,
            has_untimed: true,
            producer: None,
        };
        self.append(&at, batch).await?;
        Ok(())
    }

    /// Reads what was written to the journal since it was last read, by whomever.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let mut reader = self.reader.lock().await;
        let at = self.journal().await?;
        let (state, partition) = self.partition(&at).await?;
        self.look(&state, Instant::now()).await?;
        let bounds = partition.lock().bounds();
        let mut touched = HashSet::new();
        if reader.next > bounds.end || reader.next < bounds.start || (reader.next == 0 && bounds.end > 0) {
            let (table, covers) = self.newest_snapshot(&at, bounds).await?;
            touched.extend(self.topics.all().iter().map(|state| Incarnation::from(&state.topic)));
            *self.table.lock() = table;
            *reader = Reader { next: covers.unwrap_or(bounds.start).max(bounds.start), ..Reader::default() };
        }
        while reader.next < bounds.end {
            for stored in self.records(&at, reader.next).await? {
                reader.next = stored.offset.saturating_add(1);
                reader.behind_snapshot = reader.behind_snapshot.saturating_add(stored.bytes);
                if reader.snapshots.note(stored.offset, &stored.record).is_some() {
                    reader.behind_snapshot = 0;
                }
                touched.extend(stored.record.marks_of());
                self.table.lock().apply(&stored.record, stored.at_micros);
            }
        }
        let wanted = reader.behind_snapshot > self.config().snapshot_behind_bytes;
        self.compaction_due.store(wanted, Ordering::Relaxed);
        drop(reader);
        self.learn_marks(&touched);
        Ok(())
    }

    /// The table that the newest whole snapshot holds, and the offset below which it says everything.
    async fn newest_snapshot(&self, at: &PartitionRef, bounds: Bounds) -> Result<(Table, Option<u64>), StoreError> {
        let (mut snapshots, mut newest, mut next) = (Snapshots::default(), None, bounds.start);
        while next < bounds.end {
            for stored in self.records(at, next).await? {
                next = stored.offset.saturating_add(1);
                newest = snapshots.note(stored.offset, &stored.record).or(newest);
            }
        }
        let mut table = Table::default();
        let Some(newest) = newest else {
            if bounds.start > 0 {
                tracing::error!(
                    start = bounds.start,
                    "records of the journal are gone, and no snapshot stands for them"
                );
            }
            return Ok((table, None));
        };
        let mut next = newest.first;
        while next <= newest.last {
            for stored in self.records(at, next).await? {
                next = stored.offset.saturating_add(1);
                if let Record::Snapshot { records, .. } = stored.record
                    && stored.offset <= newest.last
                {
                    records.iter().for_each(|record| table.apply(record, 0));
                }
            }
        }
        Ok((table, Some(newest.covers)))
    }

    /// Some records from `from` on, at least one.
    async fn records(&self, at: &PartitionRef, from: u64) -> Result<Vec<Stored>, StoreError> {
        let mut records = Vec::new();
        for entry in self.read(at, from, STEP).await? {
            for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                if offset < from {
                    continue;
                }
                let record = Record::decode(frame.payload).map_err(|error| StoreError::Broken {
                    context: format!("the record at offset {offset} of the journal cannot be read: {error}"),
                })?;
                let (at_micros, bytes) = (entry.append_time_micros, frame.payload.len());
                records.push(Stored { offset, at_micros, record, bytes });
            }
        }
        // What is lost for good was passed over.
        if records.is_empty() {
            return Err(StoreError::Broken { context: format!("the journal cannot be read at offset {from}") });
        }
        Ok(records)
    }
}
