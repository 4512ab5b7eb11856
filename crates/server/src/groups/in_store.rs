//! What the service does where the store keeps the offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_groups::{GroupError, GroupState};
use milena_store::{PartitionRef, Store, StoreError};
use parking_lot::Mutex;

use super::external::{External, GROUP_PREFIX};
use super::shared::Shared;
use super::topics::Existing;
use super::{GroupService, Held, Stored, appender, timers};
use crate::config::ServerConfig;
use crate::metrics::GroupMetrics;
use crate::topics::{Topic, TopicDirectory};

impl GroupService {
    /// As [`GroupService::open`], with offsets that the store keeps by itself. There is nothing to load.
    ///
    /// # Errors
    /// When the store does not keep any.
    pub fn open_external(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        topics: TopicDirectory,
        metrics: Arc<GroupMetrics>,
    ) -> Result<Self, StoreError> {
        let coordinators = Arc::clone(&config.coordinators);
        let offsets = store.offset_store().ok_or(StoreError::Unsupported { what: "consumer offsets" })?;
        let id_bytes_max = offsets.group_bytes_max().saturating_sub(GROUP_PREFIX.len());
        let shared = Shared::new(config.groups.clone(), appender::record_bytes_max(store.as_ref()), metrics);
        let shared = Arc::new(shared.with_group_ids_of(id_bytes_max));
        let existing = Existing { store: Arc::clone(&store), mapping: topics.mapping().clone() };
        let external = External::new(Arc::clone(&shared), store, topics, Arc::clone(&coordinators));
        let external = Arc::new(external);
        let mut mandate = coordinators.mandate();
        shared.resign(shared.elsewhere());
        if *mandate.borrow_and_update() {
            external.begin();
        }
        let expiry = timers::expire(Arc::clone(&shared), existing);
        let timers = [tokio::spawn(timers::tick(Arc::clone(&shared))), tokio::spawn(expiry)];
        let keeper = Mutex::new(Some(tokio::spawn(Arc::clone(&external).follow(mandate))));
        Ok(Self { shared, external: Some(external), coordinators, timers, keeper })
    }

    /// Whether the store keeps the offsets, so that [`GroupService::offsets`] finds none.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.external.is_some()
    }

    /// Offsets of partitions that the store keeps, in order; `None` where nothing is stored.
    ///
    /// # Errors
    /// As [`GroupService::offsets`], and when the store does not say. Never answer "no offset" instead.
    pub async fn stored(&self, group: &str, partitions: Vec<PartitionRef>) -> Result<Vec<Option<i64>>, GroupError> {
        self.check_here(group)?;
        self.check_length(group)?;
        self.external()?.load(group, partitions, self.offset_wait()).await
    }

    /// All offsets of a group that the store keeps, at the cost of a question for each topic and for each partition of those
    /// that the group has offsets of.
    ///
    /// # Errors
    /// As [`GroupService::stored`].
    pub async fn all_stored(&self, group: &str) -> Result<Vec<Stored>, GroupError> {
        self.check_here(group)?;
        self.check_length(group)?;
        self.external()?.load_group(group).await
    }

    /// The groups whose offsets the store keeps, each with the topics that it has some of, at the cost of a question for each
    /// topic.
    ///
    /// # Errors
    /// When the store does not say, and when groups are coordinated elsewhere.
    pub async fn stored_groups(&self) -> Result<BTreeMap<String, Vec<Arc<Topic>>>, GroupError> {
        self.external()?.held_topics().await
    }

    /// Offsets that the store keeps of a group, of those topics, at the cost of a question for each partition.
    ///
    /// # Errors
    /// As [`GroupService::stored`].
    pub async fn stored_of(&self, group: &str, topics: Vec<Arc<Topic>>) -> Result<Vec<Stored>, GroupError> {
        self.check_here(group)?;
        self.external()?.load_topics(group, topics).await
    }

    fn external(&self) -> Result<&External, GroupError> {
        self.external.as_deref().ok_or(GroupError::StoreFailed)
    }

    fn check_length(&self, group: &str) -> Result<(), GroupError> {
        if self.is_group_id(group) { Ok(()) } else { Err(GroupError::InvalidGroupId) }
    }

    /// Which groups have offsets, where the coordinator alone cannot say it of each of `groups`.
    pub async fn held(&self, groups: impl Iterator<Item = &str>) -> Held {
        let Some(external) = &self.external else { return Held(None) };
        let unknown: Vec<&str> = groups.collect();
        let unknown =
            self.shared.read(|known| unknown.iter().any(|group| known.coordinator().state(group) == GroupState::Dead));
        Held(if unknown { Some(external.names().await) } else { None })
    }
}
