//! A small world for tests of Fetch and ListOffsets: an engine in memory that counts what it is asked, and topics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milena_records::{Compression, TimestampType};
use milena_store::testing::{Layer, Layered, MemoryStore, TestMessage, batch_of};
use milena_store::{
    AppendBatch, Bounds, Entry, Found, PartitionRef, ReadLimit, Store, StoreError, StoreFuture, TimeKind, TopicSettings,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::Fetches;
use super::reader::Topics;
use super::want::TopicKey;
use crate::limits::Limits;
use crate::metrics::FetchMetrics;
use crate::topics::{Topic, TopicConfig};

pub(crate) struct World {
    pub(crate) store: Layered<Probe>,
    pub(crate) topics: Table,
    pub(crate) fetches: Fetches,
    pub(crate) limits: Limits,
    pub(crate) metrics: FetchMetrics,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let (store, fetches) = (Layered::<Probe>::default(), Fetches::new(&limits));
        store.watch(fetches.watcher());
        Self { store, topics: Table::default(), fetches, limits, metrics: FetchMetrics::default() }
    }

    pub(crate) async fn topic(&self, name: &str, partitions: u32) -> Arc<Topic> {
        self.topic_with(name, partitions, TimestampType::CreateTime).await
    }

    pub(crate) async fn topic_with(&self, name: &str, partitions: u32, timestamp_type: TimestampType) -> Arc<Topic> {
        let info = self.store.create_topic("kafka", name, partitions, &TopicSettings::default()).await.unwrap();
        let config = TopicConfig {
            max_message_bytes: 1 << 20,
            timestamp_type,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: i64::MAX,
            fetch_compression: Compression::NONE,
            compacted: false,
            set: BTreeMap::new(),
        };
        let topic = Arc::new(Topic {
            name: name.into(),
            id: Uuid::from_u128(u128::from(info.topic.topic_id()) << 64 | u128::from(info.topic.created_at_micros())),
            store: info.topic,
            partitions,
            internal: false,
            config,
        });
        self.topics.add(&topic);
        topic
    }

    /// Appends the messages as one batch; answers the first offset.
    pub(crate) async fn append(&self, topic: &Topic, partition: u32, messages: &[TestMessage]) -> u64 {
        let appended = self.store.append(&topic.store.partition(partition), batch_of(messages)).await.unwrap();
        appended.base_offset.unwrap()
    }

    /// Loses the messages of a partition from offset `from` on.
    pub(crate) fn lose_tail(&self, topic: &Topic, partition: u32, from: u64) {
        self.store.inner.lose_tail(&topic.store.partition(partition), from);
    }

    /// Appends one message with that many bytes of value.
    pub(crate) async fn append_bytes(&self, topic: &Topic, partition: u32, bytes: usize) -> u64 {
        self.append(topic, partition, &[TestMessage::new(1, &vec![b'x'; bytes])]).await
    }
}

/// Topics by name and id.
#[derive(Default)]
pub(crate) struct Table {
    topics: Mutex<HashMap<TopicKey, Arc<Topic>>>,
    /// How often somebody missed a topic or a partition.
    pub(crate) missed: AtomicUsize,
}

impl Table {
    pub(crate) fn add(&self, topic: &Arc<Topic>) {
        let mut topics = self.topics.lock();
        topics.insert(TopicKey::Name(Arc::clone(&topic.name)), Arc::clone(topic));
        topics.insert(TopicKey::Id(topic.id), Arc::clone(topic));
    }
}

impl Topics for Table {
    fn topic(&self, key: &TopicKey) -> Option<Arc<Topic>> {
        self.topics.lock().get(key).cloned()
    }

    fn look_soon(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// The engine in memory, with counters and faults of reading.
#[derive(Default)]
pub(crate) struct Probe {
    inner: MemoryStore,
    pub(crate) reads: AtomicUsize,
    pub(crate) bounds: AtomicUsize,
    pub(crate) finds: AtomicUsize,
    /// Answers reads of that partition with this error.
    pub(crate) read_fault: Mutex<Option<(PartitionRef, StoreError)>>,
    /// Replaces the frames of entries that begin below an offset.
    pub(crate) spoilt: Mutex<Option<(u64, Vec<u8>)>>,
    /// Appended to that partition right behind the next look at its bounds.
    pub(crate) append_behind_bounds: Mutex<Option<(PartitionRef, AppendBatch)>>,
}

impl Probe {
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn looks(&self) -> usize {
        self.bounds.load(Ordering::Relaxed)
    }

    pub(crate) fn finds(&self) -> usize {
        self.finds.load(Ordering::Relaxed)
    }
}

impl Layer for Probe {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if let Some((_, error)) = self.read_fault.lock().as_ref().filter(|(faulty, _)| faulty == at) {
                return Err(error.clone());
            }
            let mut entries = self.inner.read(at, from, limit).await?;
            if let Some((below, frames)) = self.spoilt.lock().as_ref() {
                for entry in entries.iter_mut().filter(|entry| entry.base_offset < *below) {
                    entry.frames = frames.clone().into();
                }
            }
            Ok(entries)
        })
    }

    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        self.finds.fetch_add(1, Ordering::Relaxed);
        self.inner.find(at, from, time_micros, kind)
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        self.bounds.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let bounds = self.inner.bounds(at).await;
            let append = self.append_behind_bounds.lock().take();
            if let Some((partition, batch)) = append {
                self.inner.append(&partition, batch).await?;
            }
            bounds
        })
    }
}
