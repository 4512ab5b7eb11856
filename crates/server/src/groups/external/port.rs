//! One call to the store: the name of a group there, the group that has to be there first, and what errors mean.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use milena_groups::GroupError;
use milena_store::{OffsetStore, PartitionRef, Store, StoreError, TopicRef};
use parking_lot::Mutex;

use super::lanes::Write;
use crate::groups::coordinators::{Coordinator, Coordinators};
use crate::metrics::GroupMetrics;
use crate::quiet::QuietLog;

/// Keeps a Kafka group apart from a group of the engine's own clients under the same name.
pub(crate) const GROUP_PREFIX: &str = "kafka.cg.";

/// How long a group that was there is taken to be there. Somebody may delete it with the engine's own tools, and some
/// engines then still store its offsets, where no list of groups shows them.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// Groups of topics that are remembered. Passed: all are forgotten, and asked for again.
const KNOWN_MAX: usize = 100_000;

/// The name of a Kafka group in the store.
pub(crate) fn stored_name(group: &str) -> String {
    format!("{GROUP_PREFIX}{group}")
}

/// The store, for everybody who writes.
pub(super) struct Port {
    store: Arc<dyn Store>,
    coordinators: Arc<dyn Coordinators>,
    metrics: Arc<GroupMetrics>,
    /// Counts mandates: what was let in under another one is not written.
    pub(super) term: AtomicU64,
    known: Mutex<HashMap<(TopicRef, String), Instant>>,
    /// The last write failed, and that was said.
    failing: AtomicBool,
    refused: QuietLog<String>,
}

impl Port {
    pub(super) fn new(store: Arc<dyn Store>, coordinators: Arc<dyn Coordinators>, metrics: Arc<GroupMetrics>) -> Self {
        Self {
            store,
            coordinators,
            metrics,
            term: AtomicU64::new(0),
            known: Mutex::default(),
            failing: AtomicBool::new(false),
            refused: QuietLog::default(),
        }
    }

    /// What keeps the offsets. It was there when the server started, or this would not have been taken.
    pub(super) fn offsets(&self) -> Result<&dyn OffsetStore, StoreError> {
        self.store.offset_store().ok_or(StoreError::Unsupported { what: "consumer offsets" })
    }

    /// Carries out one write, if it is still for this gateway to do.
    pub(super) async fn write(&self, write: &Write) -> Result<(), GroupError> {
        self.check_mandate(&write.group, write.term)?;
        let begun = Instant::now();
        let result = self.apply(write).await;
        if result.is_ok() {
            self.metrics.append_time.observe_time(begun.elapsed());
            self.metrics.append_records.observe(1);
        }
        result.map_err(|error| self.failed(&write.group, &write.at, &error)).inspect(|()| self.works())
    }

    /// Whether what was let in under a mandate is still for this gateway to do.
    fn check_mandate(&self, group: &str, term: u64) -> Result<(), GroupError> {
        let here = self.coordinators.coordinator_of(group) == Coordinator::Here;
        if here && term == self.term.load(Ordering::Acquire) { Ok(()) } else { Err(GroupError::NotCoordinator) }
    }

    async fn apply(&self, write: &Write) -> Result<(), StoreError> {
        let offsets = self.offsets()?;
        let name = stored_name(&write.group);
        let Some(offset) = write.offset else { return offsets.forget(&write.at, &name).await };
        self.ensure_group(offsets, &write.at.topic, &name).await?;
        match offsets.store(&write.at, &name, offset).await {
            // Somebody deleted the group, or the topic, and then this does not found it anew.
            Err(StoreError::NotFound { .. }) => {
                self.forget_group(&write.at.topic, &name);
                self.ensure_group(offsets, &write.at.topic, &name).await?;
                offsets.store(&write.at, &name, offset).await
            }
            stored => stored,
        }
    }

    async fn ensure_group(&self, offsets: &dyn OffsetStore, topic: &TopicRef, name: &str) -> Result<(), StoreError> {
        let key = (topic.clone(), name.to_owned());
        if self.known.lock().get(&key).is_some_and(|at| at.elapsed() < KNOWN_FOR) {
            return Ok(());
        }
        if !offsets.has_group(topic, name).await? {
            offsets.create_group(topic, name).await?;
        }
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, Instant::now());
        Ok(())
    }

    fn forget_group(&self, topic: &TopicRef, name: &str) {
        self.known.lock().remove(&(topic.clone(), name.to_owned()));
    }

    /// Deletes a group of one topic with its offsets, if it is still for this gateway to do.
    pub(super) async fn delete_group(
        &self,
        topic: &TopicRef,
        group: &str,
        name: &str,
        term: u64,
    ) -> Result<(), GroupError> {
        self.check_mandate(group, term)?;
        self.forget_group(topic, name);
        let deleted = match self.offsets() {
            Ok(offsets) => offsets.delete_group(topic, name).await,
            Err(error) => Err(error),
        };
        deleted.map_err(|error| self.failed(group, &topic.partition(0), &error))
    }

    fn works(&self) {
        if self.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("committed offsets are stored again");
        }
    }

    /// What a group is told of an error. What a retry can mend is 14, and said once until it works again.
    fn failed(&self, group: &str, at: &PartitionRef, error: &StoreError) -> GroupError {
        match error {
            StoreError::NotFound { .. } => GroupError::UnknownTopicOrPartition,
            StoreError::Refused { .. } | StoreError::Unsupported { .. } => {
                self.metrics.append_failures.add(1);
                if let Some(left_out) = self.refused.admit(error.to_string(), Instant::now()) {
                    tracing::error!(
                        group, partition = ?at, %error, left_out,
                        "the store refuses a committed offset; the limits of its partitions are to be looked at"
                    );
                }
                GroupError::OffsetRefused
            }
            _ => {
                self.metrics.append_failures.add(1);
                if !self.failing.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, "committed offsets cannot be stored");
                }
                GroupError::StoreFailed
            }
        }
    }
}
