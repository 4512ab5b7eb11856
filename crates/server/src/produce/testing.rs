//! Help for the tests of the produce path: a store that fails on command, batches, a server that restarts.

use std::sync::Arc;
use std::time::Duration;

use milena_records::ProducerSequence;
use milena_store::frame::Frames;
use milena_store::testing::{Layer, Layered, MemoryStore, TestMessage, batch_of};
use milena_store::{AppendBatch, Appended, PartitionRef, ProducerSpan, ReadLimit, Store, StoreFuture, TopicSettings};
use tokio::time::Instant;

use super::append::{AppendError, Prepared, Stored};
use super::dedup::Batch;
use super::marks::LogMarks;
use super::sequence::{Span, advance};
use super::{Produce, ProduceSettings};
use crate::config::{Idempotence, ServerConfig};

/// A produce path over an empty store.
pub(crate) async fn produce() -> Produce {
    TestServer::start().await.produce
}

/// The settings of a server, with producers that do not expire: the test store's clock stands still in the past.
pub(crate) fn settings() -> ProduceSettings {
    ProduceSettings {
        expiration: Duration::from_secs(100 * 365 * 86_400),
        ..ProduceSettings::new(&ServerConfig::default())
    }
}

/// A produce path over a store in memory, and one topic.
pub(crate) struct TestServer {
    pub(crate) store: MemoryStore,
    pub(crate) produce: Produce,
    pub(crate) at: PartitionRef,
    pub(crate) settings: ProduceSettings,
    instance: u16,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: ProduceSettings) -> Self {
        let store = MemoryStore::new();
        let topic = store.create_topic("kafka", "orders", 3, &TopicSettings::default()).await.unwrap().topic;
        let produce = open(&store, &settings, 0).await;
        Self { store, produce, at: topic.partition(0), settings, instance: 0 }
    }

    /// Gateways with numbers from 0 on over one store.
    pub(crate) async fn several(count: u16) -> Vec<Self> {
        Self::several_with(count, settings()).await
    }

    pub(crate) async fn several_with(count: u16, settings: ProduceSettings) -> Vec<Self> {
        let settings = ProduceSettings { shared: true, ..settings };
        let mut servers = vec![Self::with(settings.clone()).await];
        for instance in 1..count {
            let server = servers[0].beside(instance).await;
            servers.push(server);
        }
        servers
    }

    /// Another gateway over the same store.
    pub(crate) async fn beside(&self, instance: u16) -> Self {
        let (store, at, settings) = (self.store.clone(), self.at.clone(), self.settings.clone());
        let produce = open(&store, &settings, instance).await;
        Self { store, produce, at, settings, instance }
    }

    /// Another process over the same data.
    pub(crate) async fn restart(&mut self) {
        self.store.forget_faults();
        self.store = self.store.again();
        self.produce = open(&self.store, &self.settings, self.instance).await;
    }

    /// Forgets all about its partitions, as when nobody used them for long.
    pub(crate) fn forget_partitions(&self) {
        self.produce.forget_topic(&self.at.topic);
    }

    pub(crate) async fn producer(&self) -> u64 {
        self.produce.allocate_id().await.unwrap()
    }

    /// Produces as a client with a time-out of 30 s does; answers the offset.
    pub(crate) async fn send(&self, batch: Batch) -> Result<u64, AppendError> {
        self.send_within(batch, Duration::from_secs(30)).await
    }

    pub(crate) async fn send_within(&self, batch: Batch, timeout: Duration) -> Result<u64, AppendError> {
        // As the handler does before it maps a batch.
        self.produce.learn_ids(&[batch.producer_id]).await?;
        let stored = self.produce.append(&self.at, prepared(batch), Instant::now() + timeout).await;
        stored.map(|stored: Stored| stored.base_offset.unwrap())
    }

    /// What the partition holds: producer id, epoch and sequence of each message.
    pub(crate) async fn log(&self) -> Vec<ProducerSequence> {
        self.ids().await.into_iter().filter_map(ProducerSequence::from_message_id).collect()
    }

    /// Message ids of the partition.
    pub(crate) async fn ids(&self) -> Vec<u128> {
        let start = self.store.bounds(&self.at).await.unwrap().start;
        let limit = ReadLimit { bytes: usize::MAX, at_least_one: true };
        let entries = self.store.read(&self.at, start, limit).await.unwrap();
        entries.iter().flat_map(|entry| Frames::new(&entry.frames).map(|frame| frame.id).collect::<Vec<_>>()).collect()
    }

    /// Sequences of one producer as the partition holds them.
    pub(crate) async fn sequences(&self, producer_id: u64) -> Vec<u32> {
        let log = self.log().await.into_iter();
        log.filter(|place| place.producer_id == producer_id).map(|place| place.sequence).collect()
    }
}

async fn open(store: &MemoryStore, settings: &ProduceSettings, instance: u16) -> Produce {
    open_over(Arc::new(Layered(SlowStore(store.clone()))), settings, instance).await
}

pub(crate) async fn open_over(store: Arc<dyn Store>, settings: &ProduceSettings, instance: u16) -> Produce {
    let marks = LogMarks::open(Arc::clone(&store), instance).await.unwrap();
    Produce::open(settings.clone(), instance, store, Box::new(marks), Arc::default()).await.unwrap()
}

/// A store whose appends take a millisecond before they begin and one before they return, so that others come between.
struct SlowStore(MemoryStore);

impl Layer for SlowStore {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let appended = self.0.append(at, batch).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            appended
        })
    }
}

/// After it, an append that was begun before has reached the store, with the fault that was planned for it.
pub(crate) const FIRST_IS_UNDER_WAY: Duration = Duration::from_millis(2);

/// A batch of epoch 0.
pub(crate) fn batch(producer_id: u64, first: u32, count: u32) -> Batch {
    Batch { producer_id, epoch: 0, span: Span { first, count } }
}

/// The batch as the mapping hands it on.
pub(crate) fn prepared(batch: Batch) -> Prepared {
    let Batch { producer_id, epoch, span } = batch;
    let id = |index| ProducerSequence { producer_id, epoch, sequence: advance(span.first, index) }.to_message_id();
    let messages: Vec<_> = (0..span.count).map(|index| TestMessage::new(id(index), b"value")).collect();
    let producer = Some(ProducerSpan { producer_id, epoch, base_sequence: span.first });
    Prepared {
        batch: AppendBatch { producer, ..batch_of(&messages) },
        first_id: id(0),
        sequence: Some(batch),
        tells_append_time: false,
        sent_bytes: 100,
        enveloped: 0,
    }
}

/// A batch without a producer, with ids that begin at `first_id`.
pub(crate) fn plain(first_id: u128, count: u32) -> Prepared {
    let messages: Vec<_> = (0..count).map(|index| TestMessage::new(first_id + u128::from(index), b"value")).collect();
    let batch = batch_of(&messages);
    Prepared { batch, first_id, sequence: None, tells_append_time: false, sent_bytes: 100, enveloped: 0 }
}

/// Settings of a mode.
pub(crate) fn in_mode(idempotence: Idempotence) -> ProduceSettings {
    ProduceSettings { idempotence, ..settings() }
}
