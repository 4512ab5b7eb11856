//! The produce path behind the handlers: checks and mapping, deduplication, appends whose outcome was lost.
//!
//! - [`sequence`], [`dedup`]: which batch of which producer is stored where; pure
//! - [`prepare`]: one partition entry checked and mapped; no waiting
//! - [`request`]: a whole request: what is refused, what is written where, and its answer
//! - [`append`]: a mapped batch to the store, once
//! - [`ids`], [`marks`]: producer ids, and the log of what was given out
//! - `partition`: table and lanes of one partition
//! - `tail`, `catch_up`, `known`: the table from the log, and when it is read again
//! - `scan`: the search for a lost append
//! - `whole`: work that runs to its end when nobody waits for it any more
//! - [`pool`]: reused buffers

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milena_records::{Budget, Refusal, peek_producer_id};
use milena_store::{GrowthWatcher, PartitionRef, Store, StoreError, TopicRef};
use milena_wire::WireError;
use milena_wire::kafka_protocol::messages::ProduceRequest;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub mod append;
mod catch_up;
pub mod dedup;
pub mod ids;
mod known;
pub mod marks;
mod partition;
pub mod pool;
pub mod prepare;
pub mod request;
mod scan;
pub mod sequence;
mod tail;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod whole;

pub use append::{AppendError, Prepared, Stored};
pub use ids::{IdError, Marks, ProducerIds};
pub use marks::LogMarks;
pub(crate) use marks::TOPIC as PRODUCERS_TOPIC;
pub use prepare::Entry;
pub use request::{Mapped, Plan};

use crate::config::{Idempotence, ServerConfig};
use crate::metrics::ProduceMetrics;
use crate::quiet::QuietLog;
use partition::Partition;
use pool::FramePool;
use prepare::{MapLimits, Mapper};

/// How long a request waits for a store that does not say which producer ids were given out. Passed: 6, and clients try
/// again.
const LEARN_TIME_MAX: Duration = Duration::from_secs(5);

/// Partitions whose tails are read at a time. When a gateway takes over those of another one, many are asked for at once, and
/// each may hold some 15 MiB of what it read. Passed: they are read one after the other.
const TAIL_READS_MAX: usize = 8;

/// Partitions from which on those without producers are looked for.
const SWEEP_FROM: usize = 1_024;

/// What the produce path can be set to.
#[derive(Debug, Clone)]
pub struct ProduceSettings {
    /// What sequence numbers are used for.
    pub idempotence: Idempotence,
    /// Whether other gateways may serve the same producers.
    pub shared: bool,
    /// Producers remembered per partition.
    pub producers_max: usize,
    /// Idle time after which a producer is forgotten.
    pub expiration: Duration,
    /// Bytes that all batches of one request may decompress to.
    pub budget_bytes: usize,
    /// How long an append whose outcome was lost may still sit in the engine's queue.
    pub in_doubt_grace: Duration,
    /// Messages read from the end of a partition to find its producers.
    pub tail_messages: u64,
    /// Bytes read from the end of a partition to find its producers.
    pub tail_bytes: usize,
    /// Bytes of unused frame buffers that are kept.
    pub pool_bytes: usize,
    /// Bytes of words in one answer, so that a small request cannot ask for a large one; what is left over has its code
    /// alone.
    pub error_text_bytes: usize,
    /// Bytes of frames, of large or compressed requests, that wait for the store.
    pub frames_bytes: usize,
}

impl ProduceSettings {
    /// As configured.
    #[must_use]
    pub fn new(config: &ServerConfig) -> Self {
        Self {
            idempotence: config.idempotence,
            shared: config.cluster.is_some(),
            producers_max: config.max_producers_per_partition,
            expiration: config.producer_id_expiration,
            budget_bytes: config.limits.max_frame_bytes,
            in_doubt_grace: config.limits.in_doubt_grace,
            tail_messages: config.limits.dedup_tail_messages,
            tail_bytes: config.limits.dedup_tail_bytes,
            pool_bytes: config.limits.frame_pool_bytes,
            error_text_bytes: config.limits.error_text_bytes,
            frames_bytes: config.limits.in_flight_bytes,
        }
    }
}

/// The produce path of a server. Cloning shares it.
#[derive(Clone)]
pub struct Produce {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    store: Arc<dyn Store>,
    settings: ProduceSettings,
    limits: MapLimits,
    /// How old an answer of the store about an end may be.
    bounds_age: Duration,
    ids: ProducerIds,
    partitions: RwLock<Partitions>,
    metrics: Arc<ProduceMetrics>,
    /// Log lines about a store that does not take records.
    troubles: QuietLog<&'static str>,
    pool: FramePool,
    /// Places for mapping at a time.
    mappers: Arc<Semaphore>,
    /// Places for reading tails.
    tails: Semaphore,
    /// Bytes of frames that may wait for the store after having been mapped elsewhere.
    frames: Arc<Semaphore>,
    frames_max: usize,
}

impl Produce {
    /// As a server of that configuration needs it.
    ///
    /// # Errors
    /// As [`Produce::open`].
    pub async fn start(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        metrics: Arc<ProduceMetrics>,
    ) -> Result<Self, StoreError> {
        let marks = LogMarks::open(Arc::clone(&store), config.instance_id).await?;
        Self::open(ProduceSettings::new(config), config.instance_id, store, Box::new(marks), metrics).await
    }

    /// Over a store, with ids that go on where `marks` left off.
    ///
    /// # Errors
    /// When the marks cannot be read.
    pub async fn open(
        settings: ProduceSettings,
        instance: u16,
        store: Arc<dyn Store>,
        marks: Box<dyn Marks>,
        metrics: Arc<ProduceMetrics>,
    ) -> Result<Self, StoreError> {
        let ids = ProducerIds::open(instance, marks).await?;
        let capabilities = store.capabilities();
        let limits = MapLimits::new(settings.idempotence, &capabilities);
        let pool = FramePool::new(settings.pool_bytes);
        let frames_max = settings.frames_bytes.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        let processors = std::thread::available_parallelism().map_or(2, NonZero::get);
        let shared = Shared {
            mappers: Arc::new(Semaphore::new(processors)),
            tails: Semaphore::new(TAIL_READS_MAX),
            frames: Arc::new(Semaphore::new(frames_max)),
            frames_max,
            store,
            settings,
            limits,
            bounds_age: capabilities.bounds_age,
            ids,
            partitions: RwLock::new(Partitions { by_ref: HashMap::new(), sweep_at: SWEEP_FROM }),
            metrics,
            troubles: QuietLog::default(),
            pool,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What it was set to.
    #[must_use]
    pub fn settings(&self) -> &ProduceSettings {
        &self.shared.settings
    }

    /// Producer ids of a request that are not known here, to be handed to [`Produce::learn_ids`] before it is mapped: they may
    /// have been given out by another gateway in the meantime, and without their ids no copy of their records is ever noticed.
    #[must_use]
    pub fn unknown_ids(&self, request: &ProduceRequest) -> Vec<u64> {
        let Shared { settings, ids, .. } = &*self.shared;
        if !settings.shared || settings.idempotence == Idempotence::Allocate {
            return Vec::new();
        }
        let batches = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
        let claimed = batches.filter_map(|partition| peek_producer_id(partition.records.as_deref()?));
        let mut unknown: Vec<_> = claimed.filter(|id| !ids.was_given_out(*id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Learns which of these ids other gateways gave out.
    ///
    /// # Errors
    /// When the store does not say, which it has 5 s for. To store their batches all the same would be to store them twice when
    /// they are sent again.
    pub async fn learn_ids(&self, unknown: &[u64]) -> Result<(), StoreError> {
        let silent = || StoreError::Busy { reason: "the log of producer ids cannot be looked at".to_owned() };
        timeout(LEARN_TIME_MAX, self.shared.ids.learn(unknown)).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Checks and maps the entries of one request, which share one decompression budget. An answer for each, in order.
    #[must_use]
    pub fn prepare(&self, entries: &[Entry], zstd_allowed: bool) -> Vec<Result<Prepared, Refusal>> {
        let shared = &*self.shared;
        let given_out = |producer_id| shared.ids.was_given_out(producer_id);
        let mut mapper = Mapper {
            limits: &shared.limits,
            pool: &shared.pool,
            budget: Budget::new(shared.settings.budget_bytes),
            scratch: shared.pool.take_scratch(),
            zstd_allowed,
            now_ms: i64::try_from(wall_clock_micros() / 1_000).unwrap_or(i64::MAX),
            given_out: &given_out,
        };
        let prepared = entries.iter().map(|entry| mapper.prepare(entry)).collect();
        shared.pool.give_back_scratch(mapper.scratch);
        prepared
    }

    /// Runs `work`, which takes long or cannot be bounded, on a blocking thread. As many run at a time as there are
    /// processors: more would not be faster, and each may hold the request's whole decompression budget.
    ///
    /// # Errors
    /// As `work`.
    pub async fn map_elsewhere<W>(&self, work: W) -> Result<Mapped, WireError>
    where
        W: FnOnce() -> Result<Mapped, WireError> + Send + 'static,
    {
        let permit = Arc::clone(&self.shared.mappers).acquire_owned().await;
        let mapped = tokio::task::spawn_blocking(work).await;
        let mut mapped = mapped.unwrap_or_else(|error| Err(WireError::Malformed(error.to_string())))?;
        // Mapped frames wait for the store outside of the budget of requests in flight. Holding the place of a mapper
        // until there is room for them bounds their sum.
        if let Mapped::Whole(plan) = &mut mapped {
            let bytes = u32::try_from(plan.frame_bytes().min(self.shared.frames_max)).unwrap_or(u32::MAX);
            plan.room = Arc::clone(&self.shared.frames).acquire_many_owned(bytes).await.ok();
        }
        drop(permit);
        Ok(mapped)
    }

    /// Appends a batch, or finds that it is stored already. `deadline` bounds the wait for other batches of its
    /// producer and for lost outcomes.
    ///
    /// # Errors
    /// When the batch is not stored, or that is not known.
    pub async fn append(
        &self,
        at: &PartitionRef,
        prepared: Prepared,
        deadline: Instant,
    ) -> Result<Stored, AppendError> {
        self.shared.append(at, prepared, deadline).await
    }

    /// A new producer id.
    ///
    /// # Errors
    /// As [`ProducerIds::allocate`].
    pub async fn allocate_id(&self) -> Result<u64, IdError> {
        self.shared.ids.allocate().await
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> &ProduceMetrics {
        &self.shared.metrics
    }

    /// Says in the log why a batch was not stored. Clients retry what a full or failed device refuses, in silence and for
    /// minutes, so the operator is told, though not for each batch.
    fn note_trouble(&self, at: &PartitionRef, error: &AppendError) {
        let Some(trouble) = trouble(error) else {
            tracing::debug!(partition = ?at, %error, "a batch was not stored");
            return;
        };
        if let Some(suppressed) = self.shared.troubles.admit(trouble, Instant::now().into_std()) {
            tracing::error!(partition = ?at, %error, suppressed, "records are not stored");
        }
    }

    /// The producers of a partition that are remembered now.
    #[must_use]
    pub fn remembered(&self, at: &PartitionRef) -> Vec<dedup::Remembered> {
        let partition = self.shared.partitions.read().by_ref.get(at).map(Arc::clone);
        partition.map_or_else(Vec::new, |partition| partition.table.lock().remembered(Instant::now().into_std()))
    }

    /// How many producers are remembered now, each counted in every partition that it wrote to.
    #[must_use]
    pub fn remembered_in_all(&self) -> usize {
        let now = Instant::now().into_std();
        let count = |partition: &Arc<Partition>| {
            let mut table = partition.table.lock();
            table.expire(now);
            table.len()
        };
        self.shared.partitions.read().by_ref.values().map(count).sum()
    }

    /// Forgets what is known of a deleted topic's producers.
    pub fn forget_topic(&self, topic: &TopicRef) {
        self.shared.partitions.write().by_ref.retain(|at, _| at.topic != *topic);
    }
}

/// What is wrong with the device, if that is why a batch was not stored.
fn trouble(error: &AppendError) -> Option<&'static str> {
    match error {
        AppendError::Store(StoreError::Full { .. }) => Some("full"),
        AppendError::Store(StoreError::Broken { .. }) => Some("broken"),
        _ => None,
    }
}

impl GrowthWatcher for Produce {
    fn grown(&self, _partition: &PartitionRef, _end: u64, _bytes: usize) {}

    /// What is known of its producers counts batches that are gone: a repeat of one of them must be stored, not answered
    /// with the offset that it had.
    fn fell(&self, partition: &PartitionRef, end: u64) {
        let known = self.shared.partitions.read().by_ref.get(partition).map(Arc::clone);
        if let Some(partition) = known {
            partition.fell(end);
        }
    }

    fn deleted(&self, topic: &TopicRef) {
        self.forget_topic(topic);
    }
}

/// The partitions that were produced to.
struct Partitions {
    by_ref: HashMap<PartitionRef, Arc<Partition>>,
    /// Number of partitions at which those that nobody produces to are looked for again.
    sweep_at: usize,
}

impl Partitions {
    /// Forgets producers that have expired, and the partitions that are left without any.
    fn sweep(&mut self, now: Instant) {
        self.by_ref.retain(|_, partition| {
            partition.table.lock().expire(now.into_std());
            Arc::strong_count(partition) > 1 || !partition.is_idle()
        });
        self.sweep_at = self.by_ref.len().saturating_mul(2).max(SWEEP_FROM);
    }
}

impl Shared {
    fn partition(&self, at: &PartitionRef) -> Arc<Partition> {
        if let Some(partition) = self.partitions.read().by_ref.get(at) {
            return Arc::clone(partition);
        }
        let mut partitions = self.partitions.write();
        if partitions.by_ref.len() >= partitions.sweep_at {
            partitions.sweep(Instant::now());
        }
        let partition = partitions.by_ref.entry(at.clone()).or_insert_with(|| {
            Arc::new(Partition::new(at.clone(), self.settings.producers_max, self.settings.expiration))
        });
        Arc::clone(partition)
    }
}

/// Microseconds since the Unix epoch; 0 before it.
pub(crate) fn wall_clock_micros() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
