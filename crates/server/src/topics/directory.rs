//! The topics in memory, complete at any time.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use milena_store::{Store, StoreError, TopicInfo};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::config_log::{ConfigLog, Configs};
use super::configs::{ConfigError, ConfigRules};
use super::error::TopicError;
use super::ids;
use super::mapping::{Mapping, MappingError, Seen};
use super::topic::Topic;
use crate::config::ServerConfig;
use crate::opening::answered;
use crate::quiet::QuietLog;

/// Why the directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The topic mapping is refused.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The operator's defaults for topics are refused.
    #[error("topic defaults: {0}")]
    Defaults(#[from] ConfigError),
    /// The store did not answer. Starting without its topics would tell clients that there are none.
    #[error("cannot read the topics of the store: {0}")]
    Store(#[from] StoreError),
}

/// All topics, by name and by id. Reads are answered from memory; cloning shares the same directory.
#[derive(Clone)]
pub struct TopicDirectory {
    pub(super) inner: Arc<Inner>,
}

/// What all clones of a directory share.
pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) mapping: Mapping,
    pub(super) rules: ConfigRules,
    partitions_max: u32,
    show_internal: bool,
    pub(super) cache: RwLock<Cache>,
    /// One change at a time: between the look at the cache and the last step nothing else may happen, or of two
    /// creations of one name the slower could take the other's plan for its own.
    pub(super) changes: Mutex<ConfigLog>,
    /// Whether others change topics too: through the store, or as one of several gateways.
    pub(super) shared: bool,
    /// How many looks for unknown topics have begun.
    pub(super) looks: AtomicU64,
    /// Whether a look will begin for somebody who does not wait for it.
    pub(super) look_is_due: AtomicBool,
    /// When the last of them began. Held while one is under way.
    pub(super) sought: Arc<Mutex<Option<tokio::time::Instant>>>,
    /// The log of configs is looked at every few seconds, and a record that cannot be read stays so.
    unreadable: QuietLog<()>,
}

#[derive(Default)]
pub(super) struct Cache {
    pub(super) by_name: HashMap<Arc<str>, Arc<Topic>>,
    pub(super) by_id: HashMap<Uuid, Arc<Topic>>,
    hidden: usize,
}

impl Cache {
    pub(super) fn insert(&mut self, topic: &Arc<Topic>) {
        self.by_id.insert(topic.id, Arc::clone(topic));
        self.by_name.insert(Arc::clone(&topic.name), Arc::clone(topic));
    }

    pub(super) fn remove(&mut self, topic: &Topic) {
        self.by_id.remove(&topic.id);
        if self.by_name.get(&topic.name).is_some_and(|there| there.id == topic.id) {
            self.by_name.remove(&topic.name);
        }
    }
}

impl TopicDirectory {
    /// Loads all topics and what users set on them.
    ///
    /// # Errors
    /// When the mapping or the operator's defaults are refused, or the store does not answer. It never opens empty
    /// because of a failure.
    pub async fn open(store: Arc<dyn Store>, config: &ServerConfig) -> Result<Self, OpenError> {
        let inner = Inner {
            mapping: Mapping::new(&config.topic_mapping)?,
            rules: ConfigRules::new(config)?,
            partitions_max: config.max_partitions_per_topic.min(store.capabilities().partitions_max).max(1),
            show_internal: config.show_internal_topics,
            cache: RwLock::default(),
            changes: Mutex::new(ConfigLog::open(Arc::clone(&store), config.instance_id).await?),
            shared: config.cluster.is_some() || store.capabilities().foreign_writers,
            looks: AtomicU64::new(0),
            look_is_due: AtomicBool::new(false),
            sought: Arc::default(),
            unreadable: QuietLog::default(),
            store,
        };
        // A gateway that is alone has no plans but those that a crash left behind. Asked after the log was read, so that whoever
        // planned something by then is among the others.
        let keeps_plans = config.cluster.is_some() && !config.coordinators.others().is_empty();
        inner.load(keeps_plans).await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The topic of that Kafka name, from memory.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Arc<Topic>> {
        self.inner.cache.read().by_name.get(name).map(Arc::clone)
    }

    /// The topic of that Kafka id, from memory.
    #[must_use]
    pub fn by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.inner.cache.read().by_id.get(&id).map(Arc::clone)
    }

    /// All topics that clients may see, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Topic>> {
        let mut topics: Vec<_> = self.inner.cache.read().by_name.values().map(Arc::clone).collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// How many topics of the store have no Kafka name.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.inner.cache.read().hidden
    }

    /// How Kafka topics map to places in the store.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.inner.mapping
    }

    /// Defaults and checks of topic configs.
    #[must_use]
    pub fn rules(&self) -> &ConfigRules {
        &self.inner.rules
    }

    /// Most partitions of one topic.
    #[must_use]
    pub fn partitions_max(&self) -> u32 {
        self.inner.partitions_max
    }

    /// Whether a topic of that name could exist: its rules, and that its place is nobody else's.
    ///
    /// # Errors
    /// [`TopicError::Name`].
    pub fn check_name(&self, name: &str) -> Result<(), TopicError> {
        self.inner.mapping.place(name)?;
        Ok(())
    }

    /// Whether [`Self::create_topic`] would succeed now.
    ///
    /// # Errors
    /// What it would answer.
    pub fn check_new(&self, name: &str, partitions: i64) -> Result<u32, TopicError> {
        self.check_name(name)?;
        if self.by_name(name).is_some() {
            return Err(TopicError::Exists);
        }
        self.inner.check_partitions(partitions)
    }

    /// Creates a topic with configs that [`ConfigRules::check`] passed.
    ///
    /// Of concurrent calls for one name exactly one succeeds. The steps are carried to their end even when the
    /// caller goes away.
    ///
    /// # Errors
    /// When the name, the count or the store refuses.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i64,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, TopicError> {
        let partitions = self.check_new(name, partitions)?;
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        to_the_end(async move { inner.create(&name, partitions, configs).await }).await
    }

    /// Creates a topic, checking the configs given.
    ///
    /// # Errors
    /// As [`milena_store::Store::create_topic`]; a refused name or config is [`StoreError::Refused`].
    pub async fn create(
        &self,
        name: &str,
        partitions: u32,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, StoreError> {
        let given = configs.iter().map(|(name, value)| (name.as_str(), Some(value.as_str())));
        let created = match self.rules().check(given) {
            Ok(configs) => self.create_topic(name, i64::from(partitions), configs).await,
            Err(error) => Err(error.into()),
        };
        created.map_err(|error| match error {
            TopicError::Store(error) => error,
            TopicError::Exists => StoreError::Exists { what: "the topic".to_owned() },
            TopicError::NotFound => StoreError::NotFound { what: "the topic".to_owned() },
            TopicError::Config(_) => StoreError::Refused { what: "a topic config", actual: 1, limit: 0 },
            TopicError::Partitions { .. } | TopicError::NotMore { .. } => StoreError::Refused {
                what: "the number of partitions",
                actual: u64::from(partitions),
                limit: u64::from(self.partitions_max()),
            },
            TopicError::Name(_) | TopicError::Internal => {
                StoreError::Refused { what: "the topic name", actual: 1, limit: 0 }
            }
        })
    }

    /// Deletes this incarnation of a topic, with its messages and configs.
    ///
    /// # Errors
    /// When it is internal, is gone already, or the store fails.
    pub async fn delete(&self, topic: &Arc<Topic>) -> Result<(), TopicError> {
        let (inner, topic) = (Arc::clone(&self.inner), Arc::clone(topic));
        to_the_end(async move { inner.delete(&topic).await }).await
    }

    /// Whether [`Self::grow`] would succeed now.
    ///
    /// # Errors
    /// What it would answer.
    pub fn check_growth(&self, topic: &Topic, partitions: i64) -> Result<u32, TopicError> {
        self.inner.check_growth(topic, partitions)
    }

    /// Grows this incarnation of a topic to `partitions` in all.
    ///
    /// # Errors
    /// When that is not more than it has, or more than the server takes; or the store fails.
    pub async fn grow(&self, topic: &Arc<Topic>, partitions: i64) -> Result<Arc<Topic>, TopicError> {
        let (inner, topic) = (Arc::clone(&self.inner), Arc::clone(topic));
        to_the_end(async move { inner.grow(&topic, partitions).await }).await
    }

    /// Looks at the store again, and at the configs that other gateways set, for engines on which others change topics too. On
    /// a failure what was known stays.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.inner.refresh().await
    }
}

/// Runs a change as a task of its own: a client that disconnects must not leave the store and the cache apart.
pub(super) async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, TopicError>> + Send + 'static,
) -> Result<T, TopicError> {
    match tokio::spawn(change).await {
        Ok(outcome) => outcome,
        Err(_) => Err(TopicError::Store(StoreError::InDoubt { reason: "the change was interrupted".to_owned() })),
    }
}

impl Inner {
    async fn load(&self, keeps_plans: bool) -> Result<(), StoreError> {
        let mut log = self.changes.lock().await;
        let infos = answered("the topics", self.store.topics()).await?;
        let reconciled = async {
            log.reconcile(infos.iter().map(|info| &info.topic), keeps_plans).await;
            Ok(())
        };
        answered("a snapshot of the topic configs", reconciled).await?;
        let mut current = Vec::with_capacity(infos.len());
        for info in infos {
            current.push(answered("the settings of a topic", self.repair_settings(info, &log)).await?);
        }
        self.replace(&current, &log);
        let hidden = self.cache.read().hidden;
        if hidden > 0 {
            tracing::info!(hidden, "topics of the store have no Kafka name; a topic mapping can give them one");
        }
        Ok(())
    }

    /// Brings the store's settings to what the configs say: a crash may have come between the two, and the
    /// operator may have changed the defaults.
    async fn repair_settings(&self, info: TopicInfo, log: &ConfigLog) -> Result<TopicInfo, StoreError> {
        let Seen::As(_) = self.mapping.seen(info.topic.stream(), info.topic.topic()) else {
            return Ok(info);
        };
        let configs = log.table().get(&info.topic);
        // Where others create topics too, one without configs here has the settings that its creator chose.
        if configs.is_none() && self.store.capabilities().foreign_writers {
            return Ok(info);
        }
        let wanted = self.rules.settings(configs.unwrap_or(&Configs::new()));
        if wanted == info.settings {
            return Ok(info);
        }
        self.store.update_settings(&info.topic, &wanted).await
    }

    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let mut log = self.changes.lock().await;
        // Before the configs: those of a topic are planned before it is created, so that whatever is listed here is shown with
        // what its creator gave it.
        let infos = self.store.topics().await?;
        if let Err(error) = log.follow().await {
            match error {
                StoreError::Broken { .. } => {
                    if self.unreadable.admit((), Instant::now()).is_some() {
                        tracing::error!(%error, "configs of another gateway are not seen");
                    }
                }
                _ => tracing::debug!(%error, "the log of topic configs could not be looked at"),
            }
        }
        log.bind(infos.iter().map(|info| &info.topic));
        self.replace(&infos, &log);
        Ok(())
    }

    pub(super) fn replace(&self, infos: &[TopicInfo], log: &ConfigLog) {
        let mut cache = Cache::default();
        for info in infos {
            let configs = self.configs(info, log);
            match self.mapping.seen(info.topic.stream(), info.topic.topic()) {
                Seen::As(name) => cache.insert(&self.topic(&name, info, configs, false)),
                Seen::Internal(name) if self.show_internal => cache.insert(&self.topic(&name, info, configs, true)),
                Seen::Internal(_) => {}
                Seen::Hidden => cache.hidden += 1,
            }
        }
        *self.cache.write() = cache;
    }

    pub(super) fn topic(&self, name: &str, info: &TopicInfo, configs: Configs, internal: bool) -> Arc<Topic> {
        Arc::new(Topic {
            name: Arc::from(name),
            id: ids::topic_id(&info.topic),
            store: info.topic.clone(),
            partitions: info.partitions,
            internal,
            config: self.rules.typed(configs),
        })
    }

    fn check_partitions(&self, asked: i64) -> Result<u32, TopicError> {
        let limit = self.partitions_max;
        let taken = u32::try_from(asked).ok().filter(|count| (1..=limit).contains(count));
        taken.ok_or(TopicError::Partitions { asked, limit })
    }

    pub(super) fn check_growth(&self, topic: &Topic, asked: i64) -> Result<u32, TopicError> {
        if topic.internal {
            return Err(TopicError::Internal);
        }
        if asked <= i64::from(topic.partitions) {
            return Err(TopicError::NotMore { now: topic.partitions, asked });
        }
        self.check_partitions(asked)
    }
}

#[cfg(test)]
mod tests;
