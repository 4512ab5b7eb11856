//! [`Store`] over the blocking calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_store::metrics::EngineMetrics;
use milena_store::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, Found, GrowthWatcher, PartitionRef, PartitionSize, ReadLimit,
    Store, StoreError, StoreFuture, TimeKind, TopicInfo, TopicRef, TopicSettings, Volume,
};

use crate::config::{Clock, EmbeddedConfig, system_clock};
use crate::facade;
use crate::fault::{Fault, Wait};
use crate::folder::OpenError;
use crate::limits::{HEADER_BYTES_MAX, PARTITIONS_MAX, PAYLOAD_BYTES_MAX};
use crate::partition::Partition;
use crate::store::Inner;
use crate::threads::Threads;

/// Reads up to this size are made by the async thread itself when the bytes are in memory.
const INLINE_READ_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The embedded store.
///
/// It has two threads of its own, which sleep while there is nothing to do: one flushes what is due, one runs
/// [`EmbeddedStore::maintain`] now and then. They end when the store is closed or dropped.
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    threads: Threads,
}

impl EmbeddedStore {
    /// Opens (or creates) the store. Blocking; call it off the async threads.
    ///
    /// # Errors
    /// [`OpenError`], with a sentence that says what to do.
    pub fn open(config: &EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        Self::open_with_clock(config, system_clock())
    }

    /// As [`EmbeddedStore::open`], with another clock.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn open_with_clock(config: &EmbeddedConfig, clock: Clock) -> Result<Arc<Self>, OpenError> {
        let inner = Inner::open(config, clock)?;
        let threads = Threads::start(&inner);
        Ok(Arc::new(Self { inner, threads }))
    }

    /// Without threads of its own.
    #[cfg(test)]
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        let threads = Threads::none(&inner);
        Self { inner, threads }
    }

    /// One round of housekeeping as of `now_micros` (microseconds since the Unix epoch): seals old segments, removes
    /// what is past retention, flushes sealed segments, and opens the partitions that were not used yet. Blocking.
    pub fn maintain(&self, now_micros: u64) {
        self.inner.maintain(now_micros);
    }

    /// How many damaged entries reads and recovery came across since the store was opened.
    #[must_use]
    pub fn damaged_entries(&self) -> u64 {
        self.inner.env.metrics.damaged_entries.get()
    }

    async fn partition(&self, at: &PartitionRef) -> Result<Arc<Partition>, StoreError> {
        let (topic, slot) = self.inner.slot(at)?;
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        let (inner, at) = (self.inner.clone(), at.clone());
        facade::run(&*self.inner.env.fs, move || inner.open_slot(&at, &topic, &slot)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        facade::run(&*self.inner.env.fs, move || work(&inner)).await
    }

    async fn read_from(&self, at: &PartitionRef, from: u64, limit: ReadLimit) -> Result<Vec<Entry>, StoreError> {
        let partition = self.partition(at).await?;
        let fs = &*self.inner.env.fs;
        if facade::must_not_block(fs) {
            if limit.bytes <= INLINE_READ_BYTES_MAX {
                match partition.read(from, limit, Wait::No) {
                    Err(Fault::WouldWait) => {}
                    other => return other.map_err(Fault::into_store),
                }
            }
            return facade::run(fs, move || partition.read(from, limit, Wait::Yes).map_err(Fault::into_store)).await;
        }
        partition.read(from, limit, Wait::Yes).map_err(Fault::into_store)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Ends a round of housekeeping early. Nobody is left to see an answer.
        self.inner.env.closed.store(true, Ordering::Release);
    }
}

impl Store for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            timestamp_span_micros: None,
            payload_bytes_min: 0,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
            partitions_max: PARTITIONS_MAX,
            trims: true,
            foreign_writers: false,
            bounds_age: std::time::Duration::ZERO,
        }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        Box::pin(async move {
            self.inner.env.refuse_when_closed()?;
            Ok(self.inner.topics())
        })
    }

    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
        Box::pin(async move {
            self.inner.env.refuse_when_closed()?;
            Ok(self.inner.named(stream, topic))
        })
    }

    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        let (stream, topic, settings) = (stream.to_owned(), topic.to_owned(), settings.clone());
        Box::pin(self.blocking(move |inner| inner.create(&stream, &topic, partitions, &settings)))
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        let topic = topic.clone();
        Box::pin(self.blocking(move |inner| inner.delete(&topic)))
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        let topic = topic.clone();
        Box::pin(self.blocking(move |inner| inner.grow(&topic, partitions)))
    }

    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        let topic = topic.clone();
        Box::pin(self.blocking(move |inner| inner.shrink(&topic, partitions)))
    }

    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        let (topic, name) = (topic.clone(), name.to_owned());
        Box::pin(self.blocking(move |inner| inner.rename_topic(&topic, &name)))
    }

    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        let (stream, name) = (stream.to_owned(), name.to_owned());
        Box::pin(self.blocking(move |inner| inner.rename_stream(&stream, &name)))
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        let (topic, settings) = (topic.clone(), settings.clone());
        Box::pin(self.blocking(move |inner| inner.update(&topic, &settings)))
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        Box::pin(async move { self.partition(at).await?.append(batch).await })
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        Box::pin(self.read_from(at, from, limit))
    }

    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        let at = at.clone();
        Box::pin(self.blocking(move |inner| inner.partition(&at)?.find(from, time_micros, kind)))
    }

    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>> {
        let at = at.clone();
        Box::pin(self.blocking(move |inner| inner.partition(&at)?.newest(kind)))
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        Box::pin(async move { Ok(self.partition(at).await?.bounds()) })
    }

    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds> {
        let at = at.clone();
        Box::pin(self.blocking(move |inner| inner.partition(&at)?.trim(before)))
    }

    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
        let topic = topic.clone();
        Box::pin(self.blocking(move |inner| inner.sizes(&topic)))
    }

    fn volume(&self) -> StoreFuture<'_, Option<Volume>> {
        Box::pin(self.blocking(Inner::volume))
    }

    fn metrics(&self) -> Option<&EngineMetrics> {
        Some(&self.inner.env.metrics)
    }

    fn sealed_segments<'a>(&'a self, at: &'a PartitionRef, most: usize) -> StoreFuture<'a, Vec<u64>> {
        let at = at.clone();
        Box::pin(self.blocking(move |inner| Ok(inner.partition(&at)?.sealed_ends(most))))
    }

    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        *self.inner.env.watcher.write() = Some(watcher);
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.threads.stop();
        Box::pin(self.blocking(Inner::close))
    }
}
