//! The journal on the server: opening it, writing records, and reading those of other gateways.

use std::time::Instant;

use bytes::Bytes;
use milena_store::frame::{Frames, frame_header};
use milena_store::{AppendBatch, Durability, INTERNAL_STREAM, PartitionRef, ReadLimit, StoreError, TopicSettings};
use xxhash_rust::xxh3::xxh3_128;

use crate::inner::Inner;
use crate::journal::{self, Record};

const STEP: ReadLimit = ReadLimit { bytes: 1 << 20, at_least_one: true };

impl Inner {
    /// Opens the journal, which is created when it is missing, and reads all of it.
    pub(crate) async fn open_journal(&self) -> Result<(), StoreError> {
        self.journal().await?;
        self.catch_up().await
    }

    /// Where the journal is. Looked up by name each time: when somebody deletes it, the next write makes another.
    async fn journal(&self) -> Result<PartitionRef, StoreError> {
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
        let at = self.journal().await?;
        let payload = record
            .encode()
            .map_err(|error| StoreError::Broken { context: format!("a record cannot be written: {error}") })?;
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut frames = frame_header(xxh3_128(&payload), 0, length, 0).to_vec();
        frames.extend_from_slice(&payload);
        let batch = AppendBatch {
            frames: Bytes::from(frames),
            count: 1,
            origin_min_micros: 0,
            origin_max_micros: 0,
            has_untimed: true,
            producer: None,
        };
        self.append(&at, batch).await?;
        self.table.lock().apply(&record);
        Ok(())
    }

    /// Reads what was written to the journal since it was last read, by whomever.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let mut next = self.journal_next.lock().await;
        let at = self.journal().await?;
        let (state, partition) = self.partition(&at).await?;
        self.look(&state, Instant::now()).await?;
        let bounds = partition.lock().bounds();
        *next = if *next > bounds.end { bounds.start } else { (*next).max(bounds.start) };
        while *next < bounds.end {
            let entries = self.read(&at, *next, STEP).await?;
            let before = *next;
            for entry in &entries {
                for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                    if offset == *next {
                        self.take_record(offset, frame.payload)?;
                        *next = offset.saturating_add(1);
                    }
                }
            }
            if *next == before {
                return Err(StoreError::Broken { context: format!("the journal cannot be read at offset {before}") });
            }
        }
        Ok(())
    }

    fn take_record(&self, offset: u64, payload: &[u8]) -> Result<(), StoreError> {
        let record = Record::decode(payload).map_err(|error| StoreError::Broken {
            context: format!("the record at offset {offset} of the journal cannot be read: {error}"),
        })?;
        self.table.lock().apply(&record);
        Ok(())
    }
}
