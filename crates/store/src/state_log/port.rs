//! The topic below a state log: creating it, one message out, a range of messages in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::codec::{self, Body, Message, Stamp};
use crate::engine::Store;
use crate::error::StoreError;
use crate::frame::{FRAME_HEADER_BYTES, Frames, frame_header};
use crate::types::{AppendBatch, Bounds, Durability, PartitionRef, ReadLimit, TopicInfo, TopicSettings};

const READ_BYTES: usize = 1 << 20;

/// How a state log behaves.
#[derive(Debug, Clone)]
pub struct StateLogOptions {
    /// What an acknowledged append survives; `None` takes the store's default. Under anything weaker than
    /// [`Durability::Always`] the log keeps one snapshot more than it needs, since the newest may not be flushed when
    /// what it covers is trimmed.
    pub durability: Option<Durability>,
    /// Bytes of records behind the last snapshot from which on [`StateLog::snapshot_due`](super::StateLog::snapshot_due) is true. A snapshot that is
    /// itself larger than this raises the mark to its own size, so that snapshots cost no more than the records do.
    pub snapshot_bytes: u64,
    /// Bytes of records in one message of a snapshot; a record that is larger travels alone.
    pub chunk_bytes: usize,
    /// Number of this writer, to tell two of them apart: the instance number.
    pub writer: u64,
    /// Rises with every answer of the store. Whoever waits for [`StateLog::open`](super::StateLog::open) can tell a store
    /// that is slow from one that hangs.
    pub progress: Arc<AtomicU64>,
}

impl Default for StateLogOptions {
    fn default() -> Self {
        Self {
            durability: Some(Durability::Always),
            snapshot_bytes: 1 << 20,
            chunk_bytes: 256 << 10,
            writer: 0,
            progress: Arc::default(),
        }
    }
}

impl StateLogOptions {
    fn answered(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}

/// The partition of a state log, with what it takes to reach it.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) store: Arc<dyn Store>,
    pub(super) at: PartitionRef,
    pub(super) options: StateLogOptions,
}

impl Port {
    pub(super) async fn open(store: Arc<dyn Store>, topic: &str, options: StateLogOptions) -> Result<Self, StoreError> {
        let at = open_topic(store.as_ref(), topic, &options).await?.topic.partition(0);
        options.answered();
        Ok(Self { store, at, options })
    }

    pub(super) async fn bounds(&self) -> Result<Bounds, StoreError> {
        let bounds = self.store.bounds(&self.at).await;
        self.options.answered();
        bounds
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        let overhead = codec::OVERHEAD_BYTES + codec::CHUNK_HEADER_BYTES;
        let largest = self.store.capabilities().payload_bytes_max.saturating_sub(overhead);
        self.options.chunk_bytes.clamp(1, largest.max(1))
    }

    pub(super) async fn send(&self, stamp: Stamp, body: &Body) -> Result<Option<u64>, StoreError> {
        let payload = codec::encode(stamp, body);
        let limit = self.store.capabilities().payload_bytes_max;
        let too_large = StoreError::Refused {
            what: "a state record",
            actual: payload.len() as u64,
            limit: limit.min(u32::MAX as usize) as u64,
        };
        let Some(length) = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= limit) else {
            return Err(too_large);
        };
        let mut frames = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
        frames.extend_from_slice(&frame_header(stamp.message_id(), 0, length, 0));
        frames.extend_from_slice(&payload);
        let batch = AppendBatch {
            frames: Bytes::from(frames),
            count: 1,
            origin_min_micros: 0,
            origin_max_micros: 0,
            has_untimed: true,
            producer: None,
        };
        let appended = self.store.append(&self.at, batch).await;
        self.options.answered();
        Ok(appended?.base_offset)
    }

    /// Calls `each` with every message in `range`, in offset order.
    pub(super) async fn scan(&self, range: Bounds, mut each: impl FnMut(u64, Message)) -> Result<(), StoreError> {
        let mut next = range.start;
        while next < range.end {
            let entries = self.store.read(&self.at, next, ReadLimit { bytes: READ_BYTES, at_least_one: true }).await?;
            self.options.answered();
            let before = next;
            for entry in entries {
                if entry.base_offset > next {
                    return Err(codec::damaged(next, "is missing"));
                }
                let mut frames = Frames::new(&entry.frames);
                for (offset, frame) in (entry.base_offset..).zip(frames.by_ref()) {
                    if offset == next && offset < range.end {
                        each(offset, codec::decode(offset, &entry.frames.slice_ref(frame.payload))?);
                        next += 1;
                    }
                }
                if frames.is_damaged() {
                    return Err(codec::damaged(next, "is no whole frame"));
                }
            }
            if next == before {
                return Err(codec::damaged(next, "cannot be read"));
            }
        }
        Ok(())
    }
}

async fn open_topic(store: &dyn Store, topic: &str, options: &StateLogOptions) -> Result<TopicInfo, StoreError> {
    let stream = crate::INTERNAL_STREAM;
    let settings = TopicSettings { keep_forever: true, durability: options.durability, ..TopicSettings::default() };
    let found = match store.topic(stream, topic).await? {
        Some(info) => info,
        None => match store.create_topic(stream, topic, 1, &settings).await {
            Ok(info) => return Ok(info),
            Err(error @ StoreError::Exists { .. }) => store.topic(stream, topic).await?.ok_or(error)?,
            Err(error) => return Err(error),
        },
    };
    if found.settings.keep_forever && found.settings.durability == options.durability {
        return Ok(found);
    }
    store.update_settings(&found.topic, &settings).await
}
