//! The store: topics by name and number, partitions opened when first used.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use milena_store::{PartitionId, PartitionRef, PartitionSize, StoreError, TopicInfo, TopicRef, TopicSettings, Volume};
use parking_lot::{Mutex, RwLock};

use crate::catalog::{Catalog, Ended};
use crate::config::{Clock, Effective, EmbeddedConfig};
use crate::env::Env;
use crate::fault::failed;
use crate::folder::{Folder, OpenError, mark};
use crate::fs::memory::MemoryFs;
use crate::fs::real::RealFs;
use crate::fs::{Fs, ReplaceError};
use crate::limits::{NAME_BYTES_MAX, PARTITIONS_MAX};
use crate::partition::{Origin, Partition, TopicState, flush_together};

/// From so many partitions on, one flush of the whole file system is quicker than one for each.
const FLUSH_TOGETHER_MIN: usize = 16;

/// The data behind the [`milena_store::Store`]; all calls here are blocking.
pub(crate) struct Inner {
    pub(crate) env: Arc<Env>,
    origin: Origin,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) topics: RwLock<Topics>,
    /// Held while many partitions are flushed at once.
    flushing: Mutex<()>,
    /// Held during a round of housekeeping.
    keeping: Mutex<()>,
    /// True once the note was made that this run of the machine has the store open.
    marked: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Topics {
    pub(crate) by_number: HashMap<u32, Arc<Topic>>,
    by_name: HashMap<String, HashMap<String, u32>>,
}

/// A topic and its partitions.
pub(crate) struct Topic {
    pub(crate) state: Arc<TopicState>,
    pub(crate) info: RwLock<TopicInfo>,
    pub(crate) slots: RwLock<Vec<Arc<Slot>>>,
}

/// Where a partition is put once it is open.
pub(crate) struct Slot {
    open: std::sync::OnceLock<Arc<Partition>>,
    opening: Mutex<()>,
    begins_at: u64,
}

impl Topic {
    fn new(env: &Env, info: TopicInfo, ended: &Ended) -> Self {
        let state = TopicState {
            topic: info.topic.clone(),
            effective: RwLock::new(Arc::new(Effective::of(&env.config, &info.settings))),
            deleted: AtomicBool::new(false),
        };
        let slots = (0..info.partitions).map(|partition| Slot::of(ended, partition)).collect();
        Self { state: Arc::new(state), info: RwLock::new(info), slots: RwLock::new(slots) }
    }
}

impl Topics {
    fn insert(&mut self, topic: Topic) {
        self.give_name(&topic.state.topic);
        self.by_number.insert(topic.state.topic.topic_id(), Arc::new(topic));
    }

    pub(crate) fn give_name(&mut self, topic: &TopicRef) {
        let names = self.by_name.entry(topic.stream().to_owned()).or_default();
        names.insert(topic.topic().to_owned(), topic.topic_id());
    }

    pub(crate) fn forget_name(&mut self, topic: &TopicRef) {
        if let Some(names) = self.by_name.get_mut(topic.stream()) {
            names.remove(topic.topic());
        }
    }

    fn named(&self, stream: &str, topic: &str) -> Option<&Arc<Topic>> {
        self.by_number.get(self.by_name.get(stream)?.get(topic)?)
    }
}

impl Inner {
    /// Opens the store with the file system that the configuration asks for.
    pub(crate) fn open(config: &EmbeddedConfig, clock: Clock) -> Result<Arc<Self>, OpenError> {
        let fs: Arc<dyn Fs> = if config.dir.is_some() { Arc::new(RealFs) } else { Arc::new(MemoryFs::default()) };
        let root = config.dir.clone().unwrap_or_else(|| PathBuf::from("/memory"));
        Self::open_on(Env::new(fs, root, config.clone(), clock))
    }

    pub(crate) fn open_on(env: Env) -> Result<Arc<Self>, OpenError> {
        let folder = Folder::open(&*env.fs, &env.root)?;
        let mut topics = Topics::default();
        let (ended, none) = (folder.catalog.all_ended(), Ended::default());
        for info in folder.catalog.topics() {
            let ended = ended.get(&info.topic.topic_id()).unwrap_or(&none);
            topics.insert(Topic::new(&env, info, ended));
        }
        *env.lock.lock() = Some(folder.lock);
        let inner = Self {
            env: Arc::new(env),
            origin: folder.origin,
            catalog: Mutex::new(folder.catalog),
            topics: RwLock::new(topics),
            flushing: Mutex::new(()),
            keeping: Mutex::new(()),
            marked: AtomicBool::new(folder.origin != Origin::MaybeCrashed),
        };
        inner.remove_orphans();
        Ok(Arc::new(inner))
    }

    pub(crate) fn topics(&self) -> Vec<TopicInfo> {
        self.topics.read().by_number.values().map(|topic| topic.info.read().clone()).collect()
    }

    pub(crate) fn named(&self, stream: &str, topic: &str) -> Option<TopicInfo> {
        self.topics.read().named(stream, topic).map(|topic| topic.info.read().clone())
    }

    pub(crate) fn find(&self, topic: &TopicRef) -> Result<Arc<Topic>, StoreError> {
        self.env.refuse_when_closed()?;
        let found = self.topics.read().by_number.get(&topic.topic_id()).cloned();
        found
            .filter(|found| found.state.topic == *topic)
            .ok_or_else(|| StoreError::NotFound { what: format!("topic {topic:?}") })
    }

    /// The slot of a partition, and the partition when it is open already.
    pub(crate) fn slot(&self, at: &PartitionRef) -> Result<(Arc<Topic>, Arc<Slot>), StoreError> {
        let topic = self.find(&at.topic)?;
        let slot = topic.slots.read().get(at.partition as usize).cloned();
        let slot = slot.ok_or_else(|| StoreError::NotFound { what: format!("partition {at:?}") })?;
        Ok((topic, slot))
    }

    /// The partition, opened if need be.
    pub(crate) fn open_slot(
        &self,
        at: &PartitionRef,
        topic: &Topic,
        slot: &Slot,
    ) -> Result<Arc<Partition>, StoreError> {
        let turn = slot.opening.lock();
        if let Some(open) = slot.open.get() {
            return Ok(open.clone());
        }
        let partition =
            Partition::open(self.env.clone(), topic.state.clone(), at.clone(), self.origin, slot.begins_at)?;
        let open = slot.open.get_or_init(|| partition).clone();
        drop(turn);
        Ok(open)
    }

    pub(crate) fn partition(&self, at: &PartitionRef) -> Result<Arc<Partition>, StoreError> {
        let (topic, slot) = self.slot(at)?;
        match slot.get() {
            Some(open) => Ok(open),
            None => self.open_slot(at, &topic, &slot),
        }
    }

    pub(crate) fn create(
        &self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<TopicInfo, StoreError> {
        self.env.refuse_when_closed()?;
        check_partitions(partitions)?;
        [stream, topic].into_iter().try_for_each(check_name)?;
        let mut catalog = self.catalog.lock();
        if self.named(stream, topic).is_some() {
            return Err(StoreError::Exists { what: format!("topic {stream}/{topic}") });
        }
        let mut changed = catalog.clone();
        let info = changed.add(stream, topic, partitions, settings, self.env.now());
        let created = Topic::new(&self.env, info.clone(), &Ended::default());
        self.change(&mut catalog, changed, || self.topics.write().insert(created))?;
        Ok(info)
    }

    pub(crate) fn grow(&self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        check_partitions(partitions)?;
        let mut catalog = self.catalog.lock();
        let found = self.find(topic)?;
        let has = found.info.read().partitions;
        if partitions < has {
            let (actual, limit) = (u64::from(partitions), u64::from(has));
            return Err(StoreError::Refused { what: "number of partitions", actual, limit });
        }
        let mut changed = catalog.clone();
        changed.set_partitions(topic, partitions);
        let ended = changed.ended(topic);
        let added: Vec<_> = (has..partitions).map(|partition| Slot::of(&ended, partition)).collect();
        self.change(&mut catalog, changed, || {
            found.slots.write().extend(added);
            found.info.write().partitions = partitions;
        })?;
        Ok(found.info.read().clone())
    }

    pub(crate) fn update(&self, topic: &TopicRef, settings: &TopicSettings) -> Result<TopicInfo, StoreError> {
        let mut catalog = self.catalog.lock();
        let found = self.find(topic)?;
        let mut changed = catalog.clone();
        changed.set_settings(topic, settings);
        self.change(&mut catalog, changed, || {
            *found.state.effective.write() = Arc::new(Effective::of(&self.env.config, settings));
            found.info.write().settings = settings.clone();
        })?;
        Ok(found.info.read().clone())
    }

    /// Stores the changed catalog, then makes the change in memory. When it is not known whether the change survives a
    /// crash, it is in force all the same, since the file says so.
    pub(crate) fn change(
        &self,
        catalog: &mut Catalog,
        changed: Catalog,
        apply: impl FnOnce(),
    ) -> Result<(), StoreError> {
        let saved = changed.save(&*self.env.fs, &self.env.root);
        if let Err(ReplaceError::Before(error)) = saved {
            return Err(failed("writing the catalog", &error));
        }
        *catalog = changed;
        apply();
        match saved {
            Err(ReplaceError::After(error)) => {
                Err(StoreError::InDoubt { reason: format!("flushing the catalog: {error}") })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn sizes(&self, topic: &TopicRef) -> Result<Vec<PartitionSize>, StoreError> {
        let partitions = self.find(topic)?.info.read().partitions;
        (0..partitions)
            .map(|partition| {
                let bytes = self.partition(&topic.partition(partition))?.bytes();
                Ok(PartitionSize { partition, bytes })
            })
            .collect()
    }

    pub(crate) fn volume(&self) -> Result<Option<Volume>, StoreError> {
        self.env.refuse_when_closed()?;
        self.env
            .fs
            .volume(&self.env.root)
            .map_err(|error| StoreError::Broken { context: format!("size of the volume: {error}") })
    }

    /// One round of housekeeping; see [`crate::EmbeddedStore::maintain`].
    pub(crate) fn maintain(&self, now: u64) {
        let turn = self.keeping.lock();
        let mut all_open = true;
        for (topic, slot, at) in self.slots() {
            if self.env.refuse_when_closed().is_err() {
                return;
            }
            let opened = slot.get().map_or_else(|| self.open_slot(&at, &topic, &slot), Ok);
            all_open &= opened.is_ok();
            if let Err(error) = opened.and_then(|partition| partition.maintain(now))
                && !topic.state.deleted.load(Ordering::Acquire)
                && !slot.get().is_some_and(|partition| partition.is_gone())
            {
                tracing::warn!(partition = ?at, %error, "housekeeping failed; it is tried again");
            }
        }
        if all_open && !self.marked.load(Ordering::Acquire) {
            match mark(&*self.env.fs, &self.env.root, false) {
                Ok(()) => self.marked.store(true, Ordering::Release),
                Err(error) => tracing::warn!(%error, "the session could not be noted"),
            }
        }
        drop(turn);
    }

    /// Flushes the partitions whose time has come.
    pub(crate) fn flush_due(&self, partitions: &[Arc<Partition>]) {
        partitions.iter().for_each(|partition| partition.due_flush_begins());
        // A failure is logged where it happens, and every later append is told of it.
        drop(self.flush_all_of(partitions));
        partitions.iter().for_each(|partition| partition.due_flush_ends());
    }

    fn flush_all_of(&self, partitions: &[Arc<Partition>]) -> Result<(), StoreError> {
        if partitions.len() >= FLUSH_TOGETHER_MIN {
            let turn = self.flushing.lock();
            let outcome = flush_together(&self.env, partitions);
            drop(turn);
            return outcome;
        }
        let mut outcome = Ok(());
        for partition in partitions {
            // All of them are tried, whatever becomes of the others.
            outcome = partition.flush_all().and(outcome);
        }
        outcome
    }

    fn slots(&self) -> Vec<(Arc<Topic>, Arc<Slot>, PartitionRef)> {
        let topics: Vec<Arc<Topic>> = self.topics.read().by_number.values().cloned().collect();
        let mut all = Vec::new();
        for topic in topics {
            for (partition, slot) in (0..).zip(topic.slots.read().iter()) {
                all.push((topic.clone(), slot.clone(), topic.state.topic.partition(partition)));
            }
        }
        all
    }

    /// Flushes everything and refuses further calls.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        if self.env.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let turn = self.keeping.lock();
        let slots = self.slots();
        let open: Vec<Arc<Partition>> = slots.iter().filter_map(|(_, slot, _)| slot.get()).collect();
        let mut outcome = self.flush_all_of(&open);
        // Partitions that were not opened are as they were before.
        let all_flushed = outcome.is_ok() && (open.len() == slots.len() || self.origin == Origin::Closed);
        if all_flushed {
            let marked = mark(&*self.env.fs, &self.env.root, true);
            outcome = outcome.and(marked);
        }
        drop(self.env.lock.lock().take());
        drop(turn);
        outcome
    }
}

impl Slot {
    fn of(ended: &Ended, partition: PartitionId) -> Arc<Self> {
        let begins_at = ended.get(&partition).copied().unwrap_or(0);
        Arc::new(Self { open: std::sync::OnceLock::new(), opening: Mutex::new(()), begins_at })
    }

    pub(crate) fn get(&self) -> Option<Arc<Partition>> {
        self.open.get().cloned()
    }
}

fn check(what: &'static str, actual: u64, limit: u64) -> Result<(), StoreError> {
    if actual > limit { Err(StoreError::Refused { what, actual, limit }) } else { Ok(()) }
}

pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    if name.is_empty() {
        return Err(StoreError::Refused { what: "bytes of a name", actual: 0, limit: NAME_BYTES_MAX as u64 });
    }
    check("bytes of a name", name.len() as u64, NAME_BYTES_MAX as u64)
}

fn check_partitions(partitions: u32) -> Result<(), StoreError> {
    if partitions == 0 {
        return Err(StoreError::Refused { what: "number of partitions", actual: 0, limit: u64::from(PARTITIONS_MAX) });
    }
    check("number of partitions", u64::from(partitions), u64::from(PARTITIONS_MAX))
}
