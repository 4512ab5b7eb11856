//! What every call shares, and looking at topics.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_common::{IggyError, StreamClient, Topic, TopicDetails};
use milena_store::metrics::EngineMetrics;
use milena_store::{Bounds, Epochs, GrowthWatcher, PartitionRef, StoreError, TopicInfo, TopicRef};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::config::{AckDurability, IggyConfig};
use crate::dialer::Dialer;
use crate::epochs::is_journal;
use crate::error::Op;
use crate::line::{CallError, For};
use crate::look::floors;
use crate::names::Names;
use crate::offsets::Doubts;
use crate::options::{Facts, Keys};
use crate::partition::{Partition, Seen};
use crate::pool::Pool;
use crate::search::Searches;
use crate::state::Reader;
use crate::table::Table;
use crate::topics::{TopicState, Topics};
use crate::visits::Visits;

pub(crate) struct Inner {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) pool: Pool,
    pub(crate) visits: Arc<Visits>,
    pub(crate) names: Names,
    pub(crate) keys: Keys,
    pub(crate) topics: Topics,
    pub(crate) table: Mutex<Table>,
    /// Tells this gateway's claims from those of others, and of its earlier runs.
    pub(crate) gateway: u64,
    /// Partitions whose end fell and whose epoch did not rise in the journal yet; see `epochs.rs`.
    pub(crate) falls: Mutex<HashSet<PartitionRef>>,
    /// Held while an epoch is written.
    pub(crate) raising: tokio::sync::Mutex<()>,
    /// Held by whoever goes through `falls`.
    pub(crate) raising_all: tokio::sync::Mutex<()>,
    /// How far the journal was read.
    pub(crate) reader: tokio::sync::Mutex<Reader>,
    /// True when much lies behind the newest snapshot of the journal, and while another is written.
    pub(crate) compaction_due: AtomicBool,
    pub(crate) compacting: AtomicBool,
    pub(crate) watcher: RwLock<Option<Arc<dyn GrowthWatcher>>>,
    pub(crate) searches: Mutex<Searches>,
    /// Topics that somebody waits for; see `probe.rs`.
    pub(crate) probed: Mutex<Vec<Arc<TopicState>>>,
    pub(crate) probe_wake: Notify,
    pub(crate) offset_doubts: Doubts,
    pub(crate) closed: AtomicBool,
    pub(crate) metrics: Arc<EngineMetrics>,
}

impl Inner {
    pub(crate) fn new(dialer: Arc<Dialer>, keys: Keys) -> Self {
        Self {
            pool: Pool::new(&dialer),
            visits: Arc::new(Visits::new(&dialer)),
            names: Names::new(&dialer.config().state_stream),
            metrics: Arc::clone(&dialer.metrics),
            dialer,
            keys,
            topics: Topics::default(),
            table: Mutex::default(),
            gateway: RandomState::new().build_hasher().finish(),
            falls: Mutex::default(),
            raising: tokio::sync::Mutex::default(),
            raising_all: tokio::sync::Mutex::default(),
            reader: tokio::sync::Mutex::default(),
            compaction_due: AtomicBool::new(false),
            compacting: AtomicBool::new(false),
            watcher: RwLock::default(),
            searches: Mutex::default(),
            probed: Mutex::default(),
            probe_wake: Notify::new(),
            offset_doubts: Doubts::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn config(&self) -> &IggyConfig {
        self.dialer.config()
    }

    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Asks something small that changes nothing; once more when the connection turns out to be dead.
    pub(crate) async fn ask<T, F>(&self, what: &str, request: impl Fn(Arc<TcpClient>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        self.ask_at(For::Any, what, request).await
    }

    /// As [`Self::ask`], of a node of a cluster.
    pub(crate) async fn ask_at<T, F>(
        &self,
        target: For<'_>,
        what: &str,
        request: impl Fn(Arc<TcpClient>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        let asked = match self.pool.control().call(target, &request, |outcome| outcome).await {
            Err(error) if error.is_loss() => self.pool.control().call(target, &request, |outcome| outcome).await,
            asked => asked,
        };
        asked.map_err(|error| error.of(Op::Read, what))
    }

    /// Asks for a change of topics or partitions.
    pub(crate) async fn change<T, F>(&self, request: impl FnOnce(Arc<TcpClient>) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        self.pool.control().call(For::Any, request, |outcome| outcome).await
    }

    /// The state of this incarnation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it is gone, or its name belongs to another one now.
    pub(crate) async fn state(&self, topic: &TopicRef) -> Result<Arc<TopicState>, StoreError> {
        if let Some(state) = self.topics.get(topic) {
            return Ok(state);
        }
        let found = self.describe(topic.stream(), topic.topic()).await?;
        found.filter(|state| state.topic == *topic).ok_or_else(|| missing_topic(topic))
    }

    /// The state of a partition.
    pub(crate) async fn partition(
        &self,
        at: &PartitionRef,
    ) -> Result<(Arc<TopicState>, Arc<Mutex<Partition>>), StoreError> {
        let state = self.state(&at.topic).await?;
        if state.partition(at.partition).is_none() {
            // Somebody else may have added it.
            self.look(&state, Instant::now()).await?;
        }
        match state.partition(at.partition) {
            Some(partition) => Ok((state, partition)),
            None => Err(StoreError::NotFound { what: format!("partition {at:?}") }),
        }
    }

    /// Asks the server for the topic of that name, and takes in what it says.
    pub(crate) async fn describe(&self, stream: &str, topic: &str) -> Result<Option<Arc<TopicState>>, StoreError> {
        let known = self.topics.named(stream, topic);
        let known_floors = known.as_ref().map(|state| floors(state)).unwrap_or_default();
        let asked = Instant::now();
        let Some(told) = self.get_topic(stream, topic).await? else {
            if let Some(known) = known {
                self.retire(&known.topic);
            }
            return Ok(None);
        };
        let details = &told.details;
        if let Some(known) = known.filter(|known| is_same(&known.topic, details)) {
            self.take_in(&known, told, &known_floors, asked).await;
            return Ok(Some(known));
        }
        let Some(stream_id) = self.stream_id(stream).await? else { return Ok(None) };
        let identity = TopicRef::new(stream, topic, stream_id, details.id, details.created_at.as_micros());
        let state = self.put(&identity, facts_of_details(details));
        // What is known of it so far is from the journal, and was known before the question.
        let known_floors = floors(&state);
        self.take_in(&state, told, &known_floors, asked).await;
        Ok(Some(state))
    }

    pub(crate) async fn stream_id(&self, stream: &str) -> Result<Option<u32>, StoreError> {
        let name = self.names.stream(stream)?;
        let name = &name;
        let found = self.ask("a stream", |client| async move { client.get_stream(name).await }).await;
        match found {
            Ok(details) => Ok(details.map(|details| details.id)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a topic in, and tells the watcher of the incarnation that it replaces.
    pub(crate) fn put(&self, topic: &TopicRef, facts: Facts) -> Arc<TopicState> {
        let (state, replaced) = self.topics.put(topic, facts);
        if let Some(old) = replaced {
            self.forget(&old);
        }
        if facts.persists == Some(false) && !state.undurable.swap(true, Ordering::Relaxed) {
            self.note_undurable(topic);
        }
        if !is_journal(topic) {
            for (number, partition) in (0..).zip(state.partitions()) {
                let at = topic.partition(number);
                // Locked before the table is asked, so that what is older does not come after what is newer.
                let mut partition = partition.lock();
                let seen = partition.learn(&self.table.lock().marks(&at));
                self.tell(&at, seen);
            }
        }
        state
    }

    /// Says once of each topic that what is acknowledged in it can be lost.
    fn note_undurable(&self, topic: &TopicRef) {
        self.metrics.undurable_topics.add(1);
        if self.config().durability == AckDurability::Fast {
            return;
        }
        tracing::warn!(
            ?topic,
            "the server acknowledges messages of this topic that it holds in memory only: when it is killed they are lost, and \
             their offsets given to others. The topic was created with such options, which cannot be changed"
        );
    }

    /// A topic is gone.
    pub(crate) fn retire(&self, topic: &TopicRef) {
        if self.topics.remove(topic) {
            self.forget(topic);
        }
    }

    fn forget(&self, topic: &TopicRef) {
        self.searches.lock().forget(topic);
        self.dialer.roster.forget(topic);
        if let Some(watcher) = &*self.watcher.read() {
            watcher.deleted(topic);
        }
    }

    /// Tells the watcher. Called while the partition is locked, so that it hears of ends in their order.
    pub(crate) fn tell(&self, at: &PartitionRef, seen: Seen) {
        if let Some((from, to)) = seen.fell {
            tracing::error!(
                partition = ?at, from, to,
                "the end of a partition fell: the server lost acknowledged messages, or the topic was purged"
            );
            // The same offsets will hold other messages, with other times.
            self.searches.lock().forget(&at.topic);
        }
        if is_journal(&at.topic) {
            // Nobody but this store reads it.
            return;
        }
        if let Some((_, to)) = seen.fell {
            self.falls.lock().insert(at.clone());
            self.probe_wake.notify_one();
            if let Some(watcher) = &*self.watcher.read() {
                watcher.fell(at, to);
            }
        }
        if let (Some(growth), Some(watcher)) = (seen.growth, &*self.watcher.read()) {
            watcher.grown(at, growth.end, growth.bytes);
        }
    }

    /// Bounds that are recent enough, without asking.
    pub(crate) fn recent_bounds(&self, at: &PartitionRef) -> Option<Bounds> {
        if self.dialer.roster.doubted(at, Instant::now()).is_some() {
            return None;
        }
        let state = self.topics.get(&at.topic)?;
        let bounds = state.recent_bounds(at.partition, Instant::now(), self.config().bounds_max_age)?;
        self.want(&state);
        Some(bounds)
    }

    pub(crate) async fn bounds(&self, at: &PartitionRef) -> Result<Bounds, StoreError> {
        let state = self.state(&at.topic).await?;
        self.want(&state);
        let now = Instant::now();
        self.bounds_as_of(at, now.checked_sub(self.config().bounds_max_age).unwrap_or(now)).await
    }

    /// The bounds as of `since` or later.
    pub(crate) async fn bounds_as_of(&self, at: &PartitionRef, since: Instant) -> Result<Bounds, StoreError> {
        self.settle_doubt(at).await?;
        let (state, partition) = self.partition(at).await?;
        self.look(&state, since).await?;
        if partition.lock().is_passed_over() {
            // It came into doubt, or was until the look had begun: once the leader has answered, another look counts.
            self.settle_doubt(at).await?;
            self.look(&state, Instant::now()).await?;
        }
        self.settle(at, &partition).await?;
        let known = partition.lock();
        if known.is_passed_over() {
            return Err(StoreError::Busy { reason: format!("it is not known where {at:?} ends") });
        }
        Ok(known.bounds())
    }

    /// The epochs of a partition, from memory.
    pub(crate) fn epochs(&self, at: &PartitionRef) -> Epochs {
        match self.topics.get(&at.topic).and_then(|state| state.partition(at.partition)) {
            Some(partition) => partition.lock().epochs().clone(),
            None => self.table.lock().marks(at).epochs,
        }
    }

    pub(crate) fn compaction_due(&self) -> bool {
        self.compaction_due.load(Ordering::Relaxed)
    }

    /// What the store's callers see of a topic.
    pub(crate) fn info(&self, state: &TopicState) -> TopicInfo {
        let facts = state.facts();
        let settings = facts.settings(self.table.lock().settings(&state.topic));
        TopicInfo { topic: state.topic.clone(), partitions: facts.partitions, settings }
    }
}

pub(crate) fn is_same(topic: &TopicRef, details: &TopicDetails) -> bool {
    topic.topic_id() == details.id && topic.created_at_micros() == details.created_at.as_micros()
}

pub(crate) fn facts_of_details(details: &TopicDetails) -> Facts {
    Facts::new(details.message_expiry, details.max_topic_size, details.partitions_count, &details.options)
}

pub(crate) fn facts_of_topic(topic: &Topic) -> Facts {
    Facts::new(topic.message_expiry, topic.max_topic_size, topic.partitions_count, &topic.options)
}

pub(crate) fn missing_topic(topic: &TopicRef) -> StoreError {
    StoreError::NotFound { what: format!("topic {topic:?}") }
}

#[cfg(test)]
mod tests;
