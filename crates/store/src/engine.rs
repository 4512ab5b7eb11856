//! The [`Store`] trait: about a dozen methods, each with its promise.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::epochs::Epochs;
use crate::error::StoreError;
use crate::metrics::EngineMetrics;
use crate::offsets::OffsetStore;
use crate::types::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, Found, PartitionId, PartitionRef, PartitionSize, ReadLimit,
    TimeKind, TopicInfo, TopicRef, TopicSettings, Volume,
};

/// Future of a store call.
///
/// Dropping it does not take the operation back: an append that was started may still land.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Is told when a partition changes. Called from the engine's threads, after the change is visible to reads; must
/// return at once and must not call back into the engine.
pub trait GrowthWatcher: Send + Sync {
    /// Messages of `bytes` frame bytes became readable; `end` is the new end offset.
    fn grown(&self, partition: &PartitionRef, end: u64, bytes: usize);
    /// The topic was deleted.
    fn deleted(&self, topic: &TopicRef);
    /// The end of the partition moved back to `end`: messages that were readable are gone. A partition that was taken away
    /// has fallen to 0.
    fn fell(&self, partition: &PartitionRef, end: u64) {
        let _ = (partition, end);
    }
}

/// A message engine.
///
/// Offsets of a partition are dense, start at 0 and are never given twice within one of its epochs ([`Epochs`]). Calls on different partitions do not wait
/// for each other. No method panics on any input.
pub trait Store: Send + Sync + 'static {
    /// Limits and abilities; constant over the life of the store.
    fn capabilities(&self) -> Capabilities;

    /// Every topic of every stream, internal ones too, in no particular order.
    ///
    /// A failure is an error, never an empty list.
    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>>;

    /// The topic of that name as it is now, or `None`.
    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>>;

    /// Creates a topic, and its stream when that is missing. Durable when it returns.
    ///
    /// Of two concurrent calls for one name exactly one succeeds; the other gets [`StoreError::Exists`].
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo>;

    /// Deletes this incarnation of a topic with all its messages; durable when it returns. Watchers are told.
    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()>;

    /// Grows a topic to `partitions` in all. Fewer than it has is [`StoreError::Refused`]; as many is success.
    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo>;

    /// Shrinks a topic to `partitions` in all: the last ones go with all their messages; durable when it returns. Watchers
    /// hear that each of them fell to 0.
    ///
    /// None at all, or more than it has, is [`StoreError::Refused`]; as many is success. A partition that is added again later
    /// begins at the offset at which the one of its number ended, so that no offset is given twice. An engine that cannot is
    /// [`StoreError::Unsupported`].
    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        let _ = (topic, partitions);
        Box::pin(async { Err(StoreError::Unsupported { what: "fewer partitions" }) })
    }

    /// Gives a topic another name within its stream; durable when it returns. Everything else stays as it is, its numbers and
    /// with them its identity too. Watchers are told of a deletion under the old name, since whoever asks by that finds
    /// nothing any more.
    ///
    /// A name that is taken is [`StoreError::Exists`], an engine that cannot is [`StoreError::Unsupported`].
    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        let _ = (topic, name);
        Box::pin(async { Err(StoreError::Unsupported { what: "another name of a topic" }) })
    }

    /// Gives a stream another name: all its topics at once, each as [`Store::rename_topic`] says. A stream that has no topics
    /// is success, since it does not exist here.
    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        let _ = (stream, name);
        Box::pin(async { Err(StoreError::Unsupported { what: "another name of a stream" }) })
    }

    /// Replaces the settings of a topic; durable when it returns, in force for the next append.
    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo>;

    /// Appends a batch: all its messages get consecutive offsets, or none is stored.
    ///
    /// At return the batch is as durable as the topic's [`crate::Durability`] says, and readable. Appends to one
    /// partition are ordered as their offsets say; a call that starts after another one returned lands behind it.
    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended>;

    /// Reads whole entries from the one that holds offset `from` on, in offset order, up to `limit`.
    ///
    /// The first entry may begin before `from`. `from` equal to the end is an empty answer; outside of
    /// `start..=end` it is [`StoreError::OutOfRange`]. Every entry's checksum was verified; a damaged one is
    /// [`StoreError::Broken`] when it comes first, and ends the answer otherwise. Where an engine knows for certain that it
    /// lost messages, the first entry begins behind them.
    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>>;

    /// First message at or behind offset `from` whose time is at or after `time_micros`; `None` when there is none.
    /// Exact per message, also when times are out of order.
    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>>;

    /// The retained message with the largest time (the first of them); `None` when the partition holds none.
    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>>;

    /// Offsets of the partition. Cheap: it does no I/O on the embedded store.
    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds>;

    /// The epochs of the partition as far as they are known; from memory. An engine whose ends never move back has one.
    ///
    /// The epoch rises before an end that moved back is shown: asked for after [`Store::bounds`] it is that of these bounds,
    /// or a later one. It never falls for one incarnation of a topic.
    fn epochs(&self, at: &PartitionRef) -> Epochs {
        let _ = at;
        Epochs::default()
    }

    /// Moves the start of the partition up to `before` (clamped to its end) at once and durably; space is freed as
    /// whole segments become free. Never moves it back. Answers the bounds after it.
    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds>;

    /// Bytes on disk of each partition of a topic.
    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>>;

    /// The volume that the engine writes to; `None` when it does not know it.
    fn volume(&self) -> StoreFuture<'_, Option<Volume>> {
        Box::pin(async { Ok(None) })
    }

    /// Where the oldest segments that are no longer written to end: the offset behind each, oldest first, at most `most`
    /// of them. An engine that does not tell is [`StoreError::Unsupported`].
    fn sealed_segments<'a>(&'a self, at: &'a PartitionRef, most: usize) -> StoreFuture<'a, Vec<u64>> {
        let _ = (at, most);
        Box::pin(async { Err(StoreError::Unsupported { what: "the segments of a partition" }) })
    }

    /// Registers the watcher; there is one, a later call replaces it.
    fn watch(&self, watcher: Arc<dyn GrowthWatcher>);

    /// Consumer offsets of the engine's own; `None` when it has none.
    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        None
    }

    /// What the engine counts about itself; `None` when it does not.
    fn metrics(&self) -> Option<&EngineMetrics> {
        None
    }

    /// Flushes what is unflushed and refuses further calls with [`StoreError::Closed`].
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// True when `partition` exists in `info`.
#[must_use]
pub fn has_partition(info: &TopicInfo, partition: PartitionId) -> bool {
    partition < info.partitions
}
