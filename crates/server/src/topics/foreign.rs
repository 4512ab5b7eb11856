//! Changes of topics in the store's own terms, for another protocol in front of the same store.
//!
//! A topic that Kafka clients can see is changed as they would change it: the directory knows of it at once, and what its
//! creator asked of the store becomes configs, so that DescribeConfigs shows it and no later start takes it back. A topic
//! without a Kafka name is the store's alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use milena_store::{Durability, StoreError, TopicInfo, TopicRef, TopicSettings};

use super::configs::ConfigRules;
use super::directory::{TopicDirectory, to_the_end};
use super::error::TopicError;
use super::mapping::Seen;
use super::topic::Topic;

/// Configs that stand for settings which a topic may be given and lose again.
const CHANGING: [&str; 2] = ["retention.ms", "retention.bytes"];

impl TopicDirectory {
    /// Creates a topic at a place of the store.
    ///
    /// # Errors
    /// As [`milena_store::Store::create_topic`]; a place that clients must not use is [`StoreError::Refused`].
    pub async fn create_at(
        &self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<TopicInfo, StoreError> {
        let store = &self.inner.store;
        match self.mapping().seen(stream, topic) {
            Seen::Internal(_) => Err(StoreError::Refused { what: "the topic name", actual: 1, limit: 0 }),
            Seen::Hidden => {
                self.check_partitions(partitions)?;
                store.create_topic(stream, topic, partitions, settings).await
            }
            Seen::As(name) => {
                self.create(&name, partitions, configs_of(settings)).await?;
                let created = store.topic(stream, topic).await?;
                created.ok_or_else(|| StoreError::NotFound { what: format!("topic {stream}/{topic}") })
            }
        }
    }

    /// The bound on the partitions of a topic is the machine's, whoever sees the topic.
    fn check_partitions(&self, partitions: u32) -> Result<(), StoreError> {
        let (actual, limit) = (u64::from(partitions), u64::from(self.partitions_max()));
        if actual > limit { Err(StoreError::Refused { what: "number of partitions", actual, limit }) } else { Ok(()) }
    }

    /// Deletes this incarnation of a topic.
    ///
    /// # Errors
    /// As [`milena_store::Store::delete_topic`].
    pub async fn delete_at(&self, topic: &TopicRef) -> Result<(), StoreError> {
        match self.known(topic) {
            Some(known) => self.delete(&known).await.map_err(|error| into_store(error, topic)),
            None => self.inner.store.delete_topic(topic).await,
        }
    }

    /// Grows a topic to `partitions` in all.
    ///
    /// # Errors
    /// As [`milena_store::Store::grow_topic`].
    pub async fn grow_at(&self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        let store = &self.inner.store;
        let Some(known) = self.known(topic) else {
            self.check_partitions(partitions)?;
            return store.grow_topic(topic, partitions).await;
        };
        self.grow(&known, i64::from(partitions)).await.map_err(|error| into_store(error, topic))?;
        let grown = store.topic(topic.stream(), topic.topic()).await?.filter(|info| info.topic == *topic);
        grown.ok_or_else(|| missing(topic))
    }

    /// Replaces what can change in the settings of a topic: how long and how much of it is kept.
    ///
    /// # Errors
    /// As [`milena_store::Store::update_settings`].
    pub async fn update_at(&self, topic: &TopicRef, settings: &TopicSettings) -> Result<TopicInfo, StoreError> {
        let Some(known) = self.known(topic) else {
            return self.inner.store.update_settings(topic, settings).await;
        };
        let (inner, settings, of) = (Arc::clone(&self.inner), settings.clone(), topic.clone());
        let changed = to_the_end(async move { inner.alter(&known, |now| Ok(replaced(now, &settings))).await });
        changed.await.map(|(_, info)| info).map_err(|error| into_store(error, &of))
    }

    /// The topic as Kafka clients know it, if they do.
    pub(super) fn known(&self, topic: &TopicRef) -> Option<Arc<Topic>> {
        let Seen::As(name) = self.mapping().seen(topic.stream(), topic.topic()) else { return None };
        self.by_name(&name).filter(|known| known.store == *topic)
    }
}

/// What a topic's configs become when the store's settings are replaced: of those that can change, these alone are set.
fn replaced(now: &BTreeMap<String, String>, settings: &TopicSettings) -> BTreeMap<String, String> {
    let mut configs = now.clone();
    let mut wanted = configs_of(settings);
    for name in CHANGING {
        match wanted.remove(name) {
            Some(value) => configs.insert(name.to_owned(), value),
            None => configs.remove(name),
        };
    }
    configs
}

/// What somebody else asked of the store for a topic, as configs: how long and how much of it is kept, where that is not
/// the default.
pub(super) fn asked_of_store(rules: &ConfigRules, settings: &TopicSettings) -> BTreeMap<String, String> {
    let defaults = configs_of(&rules.settings(&BTreeMap::new()));
    let mut asked = configs_of(settings);
    asked.retain(|name, value| CHANGING.contains(&name.as_str()) && defaults.get(name) != Some(value));
    asked
}

/// The configs that lead to these settings. What is not set stays the operator's.
pub(super) fn configs_of(settings: &TopicSettings) -> BTreeMap<String, String> {
    let millis = |time: Duration| time.as_micros().div_ceil(1_000).to_string();
    let unlimited = || "-1".to_owned();
    let persisted = settings.durability == Some(Durability::Always);
    let configs = [
        ("retention.ms", settings.retention.map(|time| time.map_or_else(unlimited, millis))),
        (
            "retention.bytes",
            settings.retention_bytes.map(|bytes| bytes.map_or_else(unlimited, |bytes| bytes.to_string())),
        ),
        ("segment.bytes", settings.segment_bytes.map(|bytes| bytes.to_string())),
        ("segment.ms", settings.segment_age.map(millis)),
        // A flush after each message is what a durability of its own comes to.
        ("flush.messages", settings.flush_messages.or(persisted.then_some(1)).map(|messages| messages.to_string())),
        ("flush.ms", settings.flush_every.map(millis)),
    ];
    configs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(super) fn missing(topic: &TopicRef) -> StoreError {
    StoreError::NotFound { what: format!("topic {topic:?}") }
}

pub(super) fn into_store(error: TopicError, topic: &TopicRef) -> StoreError {
    match error {
        TopicError::Store(error) => error,
        TopicError::NotFound => missing(topic),
        TopicError::Exists => StoreError::Exists { what: format!("topic {topic:?}") },
        TopicError::Partitions { asked, limit } => StoreError::Refused {
            what: "the number of partitions",
            actual: u64::try_from(asked).unwrap_or(0),
            limit: u64::from(limit),
        },
        TopicError::NotMore { now, asked } => StoreError::Refused {
            what: "the number of partitions",
            actual: u64::try_from(asked).unwrap_or(0),
            limit: u64::from(now),
        },
        TopicError::Name(_) | TopicError::Internal => {
            StoreError::Refused { what: "the topic name", actual: 1, limit: 0 }
        }
        TopicError::Config(_) => StoreError::Refused { what: "a topic config", actual: 1, limit: 0 },
    }
}

#[cfg(test)]
mod tests {
    use milena_store::Store;
    use milena_store::testing::MemoryStore;

    use super::*;
    use crate::config::ServerConfig;

    async fn directory(store: &MemoryStore) -> TopicDirectory {
        TopicDirectory::open(Arc::new(store.clone()), &ServerConfig::default()).await.unwrap()
    }

    fn settings() -> TopicSettings {
        TopicSettings {
            retention: Some(Some(Duration::from_micros(1_500))),
            retention_bytes: Some(None),
            segment_bytes: Some(1 << 20),
            durability: Some(Durability::Always),
            ..TopicSettings::default()
        }
    }

    #[tokio::test]
    async fn a_topic_that_was_created_at_its_place_has_a_kafka_name_and_configs_at_once() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "t", 3, &settings()).await.unwrap();
        let topic = topics.by_name("t").unwrap();
        assert_eq!((topic.store.clone(), topic.partitions), (info.topic, 3));
        let set: Vec<_> = topic.config.set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected =
            [("flush.messages", "1"), ("retention.bytes", "-1"), ("retention.ms", "2"), ("segment.bytes", "1048576")];
        assert_eq!(set, expected);
    }

    #[tokio::test]
    async fn settings_survive_a_start_that_repairs_settings() {
        let store = MemoryStore::new();
        directory(&store).await.create_at("kafka", "t", 1, &settings()).await.unwrap();
        let again = store.again();
        directory(&again).await;
        let info = again.topic("kafka", "t").await.unwrap().unwrap();
        assert_eq!(info.settings.retention, Some(Some(Duration::from_millis(2))));
        assert_eq!((info.settings.segment_bytes, info.settings.flush_messages), (Some(1 << 20), Some(1)));
    }

    #[tokio::test]
    async fn a_place_without_a_kafka_name_is_the_stores_alone_and_the_internal_one_is_refused() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let hidden = topics.create_at("elsewhere", "with space", 1, &settings()).await.unwrap();
        assert_eq!(hidden.settings, settings());
        assert!(topics.list().is_empty());
        assert_eq!(topics.grow_at(&hidden.topic, 2).await.unwrap().partitions, 2);
        topics.update_at(&hidden.topic, &TopicSettings::default()).await.unwrap();
        topics.delete_at(&hidden.topic).await.unwrap();
        let refused = topics.create_at("__milena", "x", 1, &settings()).await;
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn a_topic_has_no_more_partitions_than_it_may_whoever_sees_it() {
        let config = ServerConfig { max_partitions_per_topic: 5, ..ServerConfig::default() };
        let topics = TopicDirectory::open(Arc::new(MemoryStore::new()), &config).await.unwrap();
        for stream in ["kafka", "elsewhere"] {
            let made = topics.create_at(stream, "t", 4, &TopicSettings::default()).await.unwrap();
            assert_eq!(topics.grow_at(&made.topic, 5).await.unwrap().partitions, 5);
            for refused in [
                topics.grow_at(&made.topic, 6).await,
                topics.create_at(stream, "six", 6, &TopicSettings::default()).await,
            ] {
                assert!(matches!(refused, Err(StoreError::Refused { limit: 5, .. })), "{stream}: {refused:?}");
            }
        }
    }

    #[tokio::test]
    async fn growth_change_and_deletion_are_seen_by_kafka_clients_at_once() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "t", 1, &TopicSettings::default()).await.unwrap();
        assert_eq!(topics.grow_at(&info.topic, 2).await.unwrap().partitions, 2);
        assert_eq!(topics.by_name("t").unwrap().partitions, 2);
        assert!(matches!(topics.grow_at(&info.topic, 1).await, Err(StoreError::Refused { .. })));
        let wanted = TopicSettings { retention: Some(None), ..TopicSettings::default() };
        let changed = topics.update_at(&info.topic, &wanted).await.unwrap();
        assert_eq!(changed.settings.retention, Some(None));
        assert_eq!(topics.by_name("t").unwrap().config.set.get("retention.ms").map(String::as_str), Some("-1"));
        topics.update_at(&info.topic, &TopicSettings::default()).await.unwrap();
        assert!(topics.by_name("t").unwrap().config.set.is_empty());
        topics.delete_at(&info.topic).await.unwrap();
        assert!(topics.by_name("t").is_none());
        assert!(matches!(topics.delete_at(&info.topic).await, Err(StoreError::NotFound { .. })));
    }
}
