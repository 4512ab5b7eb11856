//! The log `gateways` in the store: one topic with one partition, which all gateways append to.

use std::sync::Arc;

use bytes::Bytes;
use milena_store::frame::{FRAME_HEADER_BYTES, Frames, frame_header};
use milena_store::{
    AppendBatch, Bounds, Durability, INTERNAL_STREAM, PartitionRef, ReadLimit, Store, StoreError, TopicSettings,
};

use super::record::{Beat, Incarnation, LeaseWord, decode, encode};

/// Topic of the internal stream.
const TOPIC: &str = "gateways";

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// Segments are small, so that little is left where only whole ones can be trimmed.
const SEGMENT_BYTES: u64 = 4 << 20;

/// A message of the log.
pub(super) struct Message {
    pub(super) offset: u64,
    /// When it was appended, by the clock of the store.
    pub(super) log_micros: u64,
    /// `None` for what is no record.
    pub(super) beat: Option<Beat>,
}

/// A reader of the log, who also appends.
pub(super) struct GatewayLog {
    store: Arc<dyn Store>,
    at: PartitionRef,
    next: u64,
}

impl GatewayLog {
    /// Opens the log, creating it when it is missing, at the base that everything is to be read from.
    ///
    /// # Errors
    /// Whatever the store answers; [`StoreError::Broken`] when what was trimmed is not made up for.
    pub(super) async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let at = open_topic(store.as_ref()).await?;
        let mut log = Self { store, at, next: 0 };
        let bounds = log.store.bounds(&log.at).await?;
        if bounds.start == 0 {
            return Ok(log);
        }
        log.next = bounds.start;
        let mut base = None;
        while log.next < bounds.end {
            let read = log.read().await?;
            let bases = read.iter().filter_map(|message| message.beat.as_ref()).filter_map(base_of);
            base = bases.chain(base).max();
        }
        let Some(base) = base.filter(|base| *base >= bounds.start) else {
            let context = "the log of gateways does not say where it begins; delete its topic to start it anew";
            return Err(StoreError::Broken { context: context.to_owned() });
        };
        log.next = base;
        Ok(log)
    }

    /// Offset that is read next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The next messages; none when all was read.
    ///
    /// # Errors
    /// Whatever the store answers. Nothing was read then. [`StoreError::OutOfRange`] also when the log ends before what was
    /// read already.
    pub(super) async fn read(&mut self) -> Result<Vec<Message>, StoreError> {
        let bounds = self.store.bounds(&self.at).await?;
        let Bounds { start, end } = bounds;
        if !(start..=end).contains(&self.next) {
            return Err(StoreError::OutOfRange { bounds });
        }
        if end == self.next {
            return Ok(Vec::new());
        }
        let entries = self.store.read(&self.at, self.next, ReadLimit { bytes: READ_BYTES, at_least_one: true }).await?;
        let mut messages = Vec::new();
        let mut next = self.next;
        for entry in entries {
            for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                if offset >= next {
                    let beat = decode(frame.payload);
                    messages.push(Message { offset, log_micros: entry.append_time_micros, beat });
                }
            }
            next = next.max(entry.base_offset + u64::from(entry.count));
        }
        self.next = next;
        Ok(messages)
    }

    /// Appends a beat. When this ends early or with an error the beat may still land.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub(super) async fn append(&self, beat: &Beat) -> Result<(), StoreError> {
        let unsent = || StoreError::Refused { what: "a beat", actual: 1, limit: 0 };
        let payload = encode(beat).ok_or_else(unsent)?;
        let length = u32::try_from(payload.len()).map_err(|_| unsent())?;
        let Incarnation(incarnation) = beat.incarnation;
        let mut frames = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
        frames.extend_from_slice(&frame_header(incarnation.wrapping_add(u128::from(beat.seq)), 0, length, 0));
        frames.extend_from_slice(&payload);
        let batch = AppendBatch {
            frames: Bytes::from(frames),
            count: 1,
            origin_min_micros: 0,
            origin_max_micros: 0,
            has_untimed: true,
            producer: None,
        };
        self.store.append(&self.at, batch).await.map(|_| ())
    }

    /// Lets go of what is before `base`. What cannot be trimmed now is trimmed with a later base.
    pub(super) async fn trim(&self, base: u64) {
        if let Err(error) = self.store.trim(&self.at, base).await {
            tracing::debug!(%error, "the log of gateways was not trimmed");
        }
    }
}

/// True when the log no longer has what this reader has to read next, and never will have it again: it was trimmed further
/// than that, lost its end, or is another one.
pub(super) fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::OutOfRange { .. } | StoreError::NotFound { .. })
}

fn base_of(beat: &Beat) -> Option<u64> {
    match beat.lease {
        LeaseWord::Renew { base, .. } => Some(base),
        _ => None,
    }
}

async fn open_topic(store: &dyn Store) -> Result<PartitionRef, StoreError> {
    let settings = TopicSettings {
        keep_forever: true,
        // What was read by some must not be taken back by a crash: the others would come to another view.
        durability: Some(Durability::Always),
        segment_bytes: Some(SEGMENT_BYTES),
        ..TopicSettings::default()
    };
    let found = match store.topic(INTERNAL_STREAM, TOPIC).await? {
        Some(info) => info,
        None => match store.create_topic(INTERNAL_STREAM, TOPIC, 1, &settings).await {
            Ok(info) => info,
            Err(error @ StoreError::Exists { .. }) => store.topic(INTERNAL_STREAM, TOPIC).await?.ok_or(error)?,
            Err(error) => return Err(error),
        },
    };
    Ok(found.topic.partition(0))
}
