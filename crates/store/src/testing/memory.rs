//! The reference engine: vectors behind one mutex.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::offsets::{Groups, OffsetFault, OffsetRules};
use super::partition::PartitionState;
use super::watchers::{Opening, Watchers};
use crate::engine::{GrowthWatcher, Store, StoreFuture};
use crate::epochs::Epochs;
use crate::error::StoreError;
use crate::frame::Frames;
use crate::offsets::OffsetStore;
use crate::types::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, Found, PartitionId, PartitionRef, PartitionSize, ReadLimit,
    TimeKind, TopicInfo, TopicRef, TopicSettings,
};

const PAYLOAD_BYTES_MAX: usize = 64 << 20;
const PARTITIONS_MAX: u32 = 10_000;

/// What becomes of an append, instead of what should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with [`StoreError::Full`]; not stored.
    Full,
    /// Refused with [`StoreError::Busy`]; not stored.
    Busy,
    /// Answered with [`StoreError::InDoubt`], and stored.
    InDoubtApplied,
    /// Answered with [`StoreError::InDoubt`], and never stored.
    InDoubtLost,
    /// Answered with [`StoreError::InDoubt`], and stored behind the next `appends` appends to any partition.
    InDoubtLate {
        /// Appends that overtake it.
        appends: u32,
    },
    /// Never answered; stored or not.
    Hangs {
        /// Whether it is stored.
        applied: bool,
    },
    /// Stored, but answered without an offset.
    NoOffset,
}

/// An engine in memory. Clones share their data.
///
/// [`MemoryStore::again`] opens the same data again, as a restarted process would.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
    open: Opening,
}

#[derive(Default)]
pub(super) struct Shared {
    topics: Vec<TopicState>,
    streams: Vec<String>,
    next_topic_id: u32,
    clock_micros: u64,
    watchers: Watchers,
    faults: VecDeque<Option<Fault>>,
    late: Vec<(u32, PartitionRef, AppendBatch)>,
    /// `None` for an engine without consumer offsets.
    pub(super) offset_rules: Option<OffsetRules>,
    pub(super) offset_faults: VecDeque<Option<OffsetFault>>,
}

#[derive(Clone)]
pub(super) struct TopicState {
    info: TopicInfo,
    partitions: Vec<PartitionState>,
    /// Where partitions that were taken away ended.
    ended: HashMap<PartitionId, u64>,
    pub(super) groups: Groups,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared { clock_micros: 1_700_000_000_000_000, ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)), open: Arc::new(Mutex::new(true)) }
    }

    /// The same data, open again, with a watcher of its own.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), open: Arc::new(Mutex::new(true)) }
    }

    /// A store of its own with what this one holds now, as a replica that gets nothing more.
    #[must_use]
    pub fn copy(&self) -> Self {
        let here = self.lock();
        let shared = Shared {
            topics: here.topics.clone(),
            streams: here.streams.clone(),
            next_topic_id: here.next_topic_id,
            clock_micros: here.clock_micros,
            offset_rules: here.offset_rules,
            ..Shared::default()
        };
        Self { shared: Arc::new(Mutex::new(shared)), open: Arc::new(Mutex::new(true)) }
    }

    /// Lets the next append meet `fault`; several are met one after the other. `None` is an append that succeeds.
    pub fn plan(&self, fault: impl Into<Option<Fault>>) {
        self.lock().faults.push_back(fault.into());
    }

    /// Forgets planned faults; late appends still land.
    pub fn forget_faults(&self) {
        self.lock().faults.clear();
    }

    /// Planned faults that no append has met yet.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.lock().faults.len()
    }

    /// Lets late appends land now.
    pub fn land_late(&self) {
        let mut shared = self.lock();
        for (_, at, batch) in std::mem::take(&mut shared.late) {
            // Its topic may be gone, as for any append that lands late.
            let _ = shared.store(&at, batch);
        }
    }

    /// Loses what was acknowledged from offset `from` on, and lets those offsets be given again: what becomes of the tail of
    /// an engine that acknowledges before it writes, when it is killed. Only whole appends are lost. The epoch rises.
    pub fn lose_tail(&self, at: &PartitionRef, from: u64) {
        let mut shared = self.lock();
        let fallen = shared.partition(at).ok().and_then(|partition| partition.lose_tail(from));
        if let Some(end) = fallen {
            shared.watchers.tell(|watcher| watcher.fell(at, end));
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(&self, run: impl FnOnce(&mut Shared) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if *self.open.lock().unwrap_or_else(PoisonError::into_inner) {
            run(&mut self.lock())
        } else {
            Err(StoreError::Closed)
        }
    }

    fn now<'a, T: Send + 'a>(
        &'a self,
        run: impl FnOnce(&mut Shared) -> Result<T, StoreError> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { self.with(run) })
    }
}

impl Shared {
    pub(super) fn topic(&mut self, topic: &TopicRef) -> Result<&mut TopicState, StoreError> {
        let found = self.topics.iter_mut().find(|state| state.info.topic == *topic);
        found.ok_or_else(|| StoreError::NotFound { what: format!("topic {topic:?}") })
    }

    pub(super) fn partition(&mut self, at: &PartitionRef) -> Result<&mut PartitionState, StoreError> {
        let found = self.topic(&at.topic)?.partitions.get_mut(at.partition as usize);
        found.ok_or_else(|| StoreError::NotFound { what: format!("partition {at:?}") })
    }

    fn create(
        &mut self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<TopicInfo, StoreError> {
        if self.topics.iter().any(|state| state.info.topic.stream() == stream && state.info.topic.topic() == topic) {
            return Err(StoreError::Exists { what: format!("topic {stream}/{topic}") });
        }
        refuse_above("partitions of a topic", u64::from(partitions), u64::from(PARTITIONS_MAX))?;
        let stream_id = self.streams.iter().position(|name| name == stream).unwrap_or_else(|| {
            self.streams.push(stream.to_owned());
            self.streams.len() - 1
        });
        self.next_topic_id += 1;
        self.clock_micros += 1_000;
        let stream_id = u32::try_from(stream_id).unwrap_or(u32::MAX);
        let topic = TopicRef::new(stream, topic, stream_id, self.next_topic_id, self.clock_micros);
        let info = TopicInfo { topic, partitions, settings: settings.clone() };
        let partitions = (0..partitions).map(|_| PartitionState::default()).collect();
        let (ended, groups) = (HashMap::new(), Groups::new());
        self.topics.push(TopicState { info: info.clone(), partitions, ended, groups });
        Ok(info)
    }

    fn shrink(&mut self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        let state = self.topic(topic)?;
        let had = state.info.partitions;
        if partitions == 0 || partitions > had {
            let (actual, limit) = (u64::from(partitions), u64::from(had));
            return Err(StoreError::Refused { what: "partitions that stay", actual, limit });
        }
        for (gone, ended) in (partitions..).zip(state.partitions.split_off(partitions as usize)) {
            state.ended.insert(gone, ended.end);
        }
        state.info.partitions = partitions;
        let info = state.info.clone();
        self.watchers.tell(|watcher| (partitions..had).for_each(|gone| watcher.fell(&topic.partition(gone), 0)));
        Ok(info)
    }

    /// Renames each topic to the stream and name that `names` has for it.
    fn rename(&mut self, names: impl Fn(&TopicRef) -> Option<(String, String)>) -> Result<(), StoreError> {
        let taken = |stream: &str, topic: &str| {
            self.topics.iter().any(|state| state.info.topic.stream() == stream && state.info.topic.topic() == topic)
        };
        let meant: Vec<_> = self.topics.iter().map(|state| names(&state.info.topic)).collect();
        if let Some((stream, topic)) = meant.iter().flatten().find(|(stream, topic)| taken(stream, topic)) {
            return Err(StoreError::Exists { what: format!("topic {stream}/{topic}") });
        }
        for (state, renamed) in self.topics.iter_mut().zip(meant) {
            let Some((stream, name)) = renamed else { continue };
            let old = state.info.topic.clone();
            let (stream_id, topic_id, created) = (old.stream_id(), old.topic_id(), old.created_at_micros());
            state.info.topic = TopicRef::new(&stream, &name, stream_id, topic_id, created);
            self.watchers.tell(|watcher| watcher.deleted(&old));
        }
        Ok(())
    }

    fn append(&mut self, at: &PartitionRef, batch: AppendBatch) -> Result<Result<Appended, StoreError>, Hung> {
        self.late_due();
        let fault = self.faults.pop_front().flatten();
        let in_doubt = Ok(Err(StoreError::InDoubt { reason: "planned".to_owned() }));
        match fault {
            None => Ok(self.store(at, batch)),
            Some(Fault::Full) => Ok(Err(StoreError::Full { context: "planned".to_owned() })),
            Some(Fault::Busy) => Ok(Err(StoreError::Busy { reason: "planned".to_owned() })),
            Some(Fault::InDoubtLost) => in_doubt,
            Some(Fault::InDoubtApplied) => self.store(at, batch).map_or_else(|error| Ok(Err(error)), |_| in_doubt),
            Some(Fault::InDoubtLate { appends }) => {
                self.late.push((appends, at.clone(), batch));
                in_doubt
            }
            Some(Fault::Hangs { applied }) => {
                if applied {
                    let _ = self.store(at, batch);
                }
                Err(Hung)
            }
            Some(Fault::NoOffset) => {
                Ok(self.store(at, batch).map(|appended| Appended { base_offset: None, ..appended }))
            }
        }
    }

    fn late_due(&mut self) {
        for (appends, at, batch) in std::mem::take(&mut self.late) {
            if appends == 0 {
                let _ = self.store(&at, batch);
            } else {
                self.late.push((appends - 1, at, batch));
            }
        }
    }

    fn store(&mut self, at: &PartitionRef, batch: AppendBatch) -> Result<Appended, StoreError> {
        let mut frames = Frames::new(&batch.frames);
        let mut count = 0u64;
        for frame in frames.by_ref() {
            refuse_above("a payload", frame.payload.len() as u64, PAYLOAD_BYTES_MAX as u64)?;
            count += 1;
        }
        if frames.is_damaged() || count != u64::from(batch.count) || count == 0 {
            let limit = u64::from(batch.count);
            return Err(StoreError::Refused { what: "whole frames in the block", actual: count, limit });
        }
        self.partition(at)?;
        self.clock_micros += 1_000;
        let append_time_micros = self.clock_micros;
        let partition = self.partition(at)?;
        let (base_offset, bytes) = (partition.end, batch.frames.len());
        partition.end += count;
        let (end, log_start) = (partition.end, partition.start);
        partition.entries.push(Entry { base_offset, count: batch.count, append_time_micros, frames: batch.frames });
        self.watchers.tell(|watcher| watcher.grown(at, end, bytes));
        Ok(Appended { base_offset: Some(base_offset), append_time_micros, log_start })
    }
}

struct Hung;

fn refuse_above(what: &'static str, actual: u64, limit: u64) -> Result<(), StoreError> {
    if actual > limit { Err(StoreError::Refused { what, actual, limit }) } else { Ok(()) }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            timestamp_span_micros: None,
            payload_bytes_min: 0,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            header_bytes_max: PAYLOAD_BYTES_MAX,
            partitions_max: PARTITIONS_MAX,
            trims: true,
            foreign_writers: false,
            bounds_age: std::time::Duration::ZERO,
        }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        self.now(|shared| Ok(shared.topics.iter().map(|state| state.info.clone()).collect()))
    }

    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
        self.now(move |shared| {
            let mut infos = shared.topics.iter().map(|state| &state.info);
            Ok(infos.find(|info| info.topic.stream() == stream && info.topic.topic() == topic).cloned())
        })
    }

    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        self.now(move |shared| shared.create(stream, topic, partitions, settings))
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        self.now(move |shared| {
            let deleted = shared.topic(topic)?.info.topic.clone();
            shared.topics.retain(|state| state.info.topic != *topic);
            shared.watchers.tell(|watcher| watcher.deleted(&deleted));
            Ok(())
        })
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.now(move |shared| {
            let state = shared.topic(topic)?;
            let (actual, limit) = (u64::from(partitions), u64::from(state.info.partitions));
            if actual < limit {
                return Err(StoreError::Refused { what: "partitions, which cannot shrink,", actual, limit });
            }
            refuse_above("partitions of a topic", actual, u64::from(PARTITIONS_MAX))?;
            for added in state.info.partitions..partitions {
                let start = state.ended.remove(&added).unwrap_or(0);
                state.partitions.push(PartitionState::beginning_at(start));
            }
            state.info.partitions = partitions;
            Ok(state.info.clone())
        })
    }

    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.now(move |shared| shared.shrink(topic, partitions))
    }

    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        self.now(move |shared| {
            let stream = shared.topic(topic)?.info.topic.stream().to_owned();
            shared.rename(|known| (known == topic).then(|| (stream.clone(), name.to_owned())))?;
            Ok(shared.topic(topic)?.info.clone())
        })
    }

    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        self.now(move |shared| {
            let is_there = |name: &str| shared.topics.iter().any(|state| state.info.topic.stream() == name);
            if !is_there(stream) {
                return Ok(());
            }
            if is_there(name) {
                return Err(StoreError::Exists { what: format!("stream {name}") });
            }
            shared.rename(|known| (known.stream() == stream).then(|| (name.to_owned(), known.topic().to_owned())))?;
            // One that lost its topics leaves its name to this one, and its number to nobody.
            shared.streams.iter_mut().filter(|known| *known == name).for_each(String::clear);
            shared.streams.iter_mut().filter(|known| *known == stream).for_each(|known| name.clone_into(known));
            Ok(())
        })
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        self.now(move |shared| {
            let state = shared.topic(topic)?;
            state.info.settings = settings.clone();
            Ok(state.info.clone())
        })
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
            let outcome = self.with(|shared| Ok(shared.append(at, batch)))?;
            match outcome {
                Ok(answer) => answer,
                Err(Hung) => std::future::pending().await,
            }
        })
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        self.now(move |shared| shared.partition(at)?.read(from, limit))
    }

    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        self.now(move |shared| {
            Ok(shared.partition(at)?.times(from, kind).find(|found| found.time_micros >= time_micros))
        })
    }

    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>> {
        self.now(move |shared| {
            let times = shared.partition(at)?.times(0, kind);
            Ok(times.reduce(|best, found| if found.time_micros > best.time_micros { found } else { best }))
        })
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        self.now(move |shared| Ok(shared.partition(at)?.bounds()))
    }

    fn epochs(&self, at: &PartitionRef) -> Epochs {
        self.with(|shared| Ok(shared.partition(at)?.epochs.clone())).unwrap_or_default()
    }

    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds> {
        self.now(move |shared| {
            let partition = shared.partition(at)?;
            let start = before.min(partition.end).max(partition.start);
            partition.start = start;
            partition.entries.retain(|entry| entry.base_offset + u64::from(entry.count) > start);
            Ok(partition.bounds())
        })
    }

    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
        self.now(move |shared| {
            let bytes = |state: &PartitionState| state.entries.iter().map(|entry| entry.frames.len() as u64).sum();
            let ids = 0 as PartitionId..;
            let partitions = &shared.topic(topic)?.partitions;
            Ok(ids.zip(partitions).map(|(partition, state)| PartitionSize { partition, bytes: bytes(state) }).collect())
        })
    }

    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        self.lock().watchers.set(&self.open, watcher);
    }

    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        self.lock().offset_rules.is_some().then_some(self as &dyn OffsetStore)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = false;
            self.lock().watchers.remove(&self.open);
            Ok(())
        })
    }
}
