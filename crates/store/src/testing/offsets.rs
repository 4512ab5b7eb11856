//! Consumer offsets of the reference engine.

use std::collections::BTreeMap;

use super::memory::{MemoryStore, Shared};
use crate::engine::StoreFuture;
use crate::error::StoreError;
use crate::offsets::OffsetStore;
use crate::types::{PartitionId, PartitionRef, TopicRef};

/// What the engine lets who is no member of a group store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetRules {
    /// Any offset.
    Free,
    /// Nothing.
    MembersOnly,
    /// Offsets up to the end, and none where there never was a message.
    WithinLog,
    /// Offsets of messages only, but 0 of an empty partition too.
    BelowEnd,
}

/// What becomes of a call about consumer offsets, instead of what should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetFault {
    /// Refused with [`StoreError::Busy`]; not done.
    Busy,
    /// Answered with [`StoreError::InDoubt`], and done.
    InDoubtApplied,
    /// Refused with [`StoreError::Refused`]; not done.
    Limit,
    /// Never answered; not done.
    Hangs,
}

/// Offsets by group.
pub(super) type Groups = BTreeMap<String, BTreeMap<PartitionId, u64>>;

const GROUP_BYTES_MAX: usize = 255;

impl MemoryStore {
    /// As [`MemoryStore::new`], with consumer offsets. An engine made by `new` has none.
    #[must_use]
    pub fn with_offsets(rules: OffsetRules) -> Self {
        let store = Self::new();
        store.lock().offset_rules = Some(rules);
        store
    }

    /// Changes the rules for the calls that come.
    pub fn set_offset_rules(&self, rules: OffsetRules) {
        self.lock().offset_rules = Some(rules);
    }

    /// Lets the next call about consumer offsets meet `fault`; several are met one after the other. `None` is a call that
    /// succeeds.
    pub fn plan_offsets(&self, fault: impl Into<Option<OffsetFault>>) {
        self.lock().offset_faults.push_back(fault.into());
    }

    /// Forgets planned faults.
    pub fn forget_offset_faults(&self) {
        self.lock().offset_faults.clear();
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        run: impl FnOnce(&mut Shared) -> Result<T, StoreError> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let fault = self.with(|shared| Ok(shared.offset_faults.pop_front().flatten()))?;
            match fault {
                None => self.with(run),
                Some(OffsetFault::Busy) => Err(StoreError::Busy { reason: "planned".to_owned() }),
                Some(OffsetFault::InDoubtApplied) => {
                    self.with(run)?;
                    Err(StoreError::InDoubt { reason: "planned".to_owned() })
                }
                Some(OffsetFault::Limit) => Err(StoreError::Refused { what: "planned", actual: 1, limit: 0 }),
                Some(OffsetFault::Hangs) => std::future::pending().await,
            }
        })
    }
}

impl Shared {
    fn groups(&mut self, topic: &TopicRef) -> Result<&mut Groups, StoreError> {
        Ok(&mut self.topic(topic)?.groups)
    }

    fn offsets(&mut self, at: &PartitionRef, group: &str) -> Result<&mut BTreeMap<PartitionId, u64>, StoreError> {
        self.partition(at)?;
        let found = self.groups(&at.topic)?.get_mut(group);
        found.ok_or_else(|| StoreError::NotFound { what: format!("group {group}") })
    }

    fn check_offset(&mut self, at: &PartitionRef, offset: u64) -> Result<(), StoreError> {
        let end = self.partition(at)?.end;
        match self.offset_rules {
            Some(OffsetRules::Free) => Ok(()),
            Some(OffsetRules::WithinLog) if end > 0 && offset <= end => Ok(()),
            Some(OffsetRules::BelowEnd) if offset < end.max(1) => Ok(()),
            Some(OffsetRules::WithinLog | OffsetRules::BelowEnd) => {
                Err(StoreError::Unsupported { what: "this offset" })
            }
            Some(OffsetRules::MembersOnly) | None => {
                Err(StoreError::NotFound { what: "the membership of who stores an offset".to_owned() })
            }
        }
    }
}

impl OffsetStore for MemoryStore {
    fn group_bytes_max(&self) -> usize {
        GROUP_BYTES_MAX
    }

    fn create_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        self.call(move |shared| {
            if group.is_empty() || group.len() > GROUP_BYTES_MAX {
                let (actual, limit) = (group.len() as u64, GROUP_BYTES_MAX as u64);
                return Err(StoreError::Refused { what: "the name of a group in bytes", actual, limit });
            }
            shared.groups(topic)?.entry(group.to_owned()).or_default();
            Ok(())
        })
    }

    fn has_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, bool> {
        self.call(move |shared| Ok(shared.groups(topic)?.contains_key(group)))
    }

    fn groups<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<String>> {
        self.call(move |shared| Ok(shared.groups(topic)?.keys().cloned().collect()))
    }

    fn delete_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        self.call(move |shared| {
            if let Ok(groups) = shared.groups(topic) {
                groups.remove(group);
            }
            Ok(())
        })
    }

    fn load<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, Option<u64>> {
        self.call(move |shared| {
            shared.partition(at)?;
            Ok(shared.groups(&at.topic)?.get(group).and_then(|offsets| offsets.get(&at.partition)).copied())
        })
    }

    fn store<'a>(&'a self, at: &'a PartitionRef, group: &'a str, offset: u64) -> StoreFuture<'a, ()> {
        self.call(move |shared| {
            shared.offsets(at, group)?;
            shared.check_offset(at, offset)?;
            shared.offsets(at, group)?.insert(at.partition, offset);
            Ok(())
        })
    }

    fn forget<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, ()> {
        self.call(move |shared| {
            if let Ok(offsets) = shared.offsets(at, group) {
                offsets.remove(&at.partition);
            }
            Ok(())
        })
    }
}
