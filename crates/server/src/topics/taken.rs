//! Partitions and names that are taken from topics, in the store's own terms, for another protocol in front of the same store.
//!
//! Kafka has neither. To its clients partitions that go answer 3 from then on, and a topic with another name is one that was
//! deleted and one that is new, though under the same id.

use std::sync::Arc;

use milena_store::{INTERNAL_STREAM, StoreError, TopicInfo, TopicRef};

use super::changes::bind;
use super::config_log::{ConfigLog, Configs};
use super::directory::{Inner, TopicDirectory, to_the_end};
use super::error::TopicError;
use super::foreign::{configs_of, into_store, missing};
use super::mapping::{Place, Seen};
use super::topic::Topic;

impl TopicDirectory {
    /// Shrinks a topic to `partitions` in all.
    ///
    /// # Errors
    /// As [`milena_store::Store::shrink_topic`].
    pub async fn shrink_at(&self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        let Some(known) = self.known(topic) else {
            return self.inner.store.shrink_topic(topic, partitions).await;
        };
        let inner = Arc::clone(&self.inner);
        let shrunk = to_the_end(async move { inner.shrink(&known, partitions).await });
        shrunk.await.map_err(|error| into_store(error, topic))
    }

    /// Gives a topic another name within its stream.
    ///
    /// # Errors
    /// As [`milena_store::Store::rename_topic`]; a place that clients must not use is [`StoreError::Refused`].
    pub async fn rename_at(&self, topic: &TopicRef, name: &str) -> Result<TopicInfo, StoreError> {
        let (inner, of, name) = (Arc::clone(&self.inner), topic.clone(), name.to_owned());
        let renamed = to_the_end(async move { inner.rename(&of, &name).await });
        renamed.await.map_err(|error| into_store(error, topic))
    }

    /// Gives a stream another name, with all its topics.
    ///
    /// # Errors
    /// As [`milena_store::Store::rename_stream`]; a place that clients must not use is [`StoreError::Refused`].
    pub async fn rename_stream_at(&self, stream: &str, name: &str) -> Result<(), StoreError> {
        let (inner, of, to) = (Arc::clone(&self.inner), stream.to_owned(), name.to_owned());
        let renamed = to_the_end(async move { inner.rename_stream(&of, &to).await });
        renamed.await.map_err(|error| match error {
            TopicError::Store(error) => error,
            _ => StoreError::Refused { what: "the stream name", actual: 1, limit: 0 },
        })
    }
}

impl Inner {
    async fn shrink(&self, topic: &Topic, partitions: u32) -> Result<TopicInfo, TopicError> {
        let log = self.changes.lock().await;
        let current = self.cache.read().by_id.get(&topic.id).map(Arc::clone).ok_or(TopicError::NotFound)?;
        let shrunk = self.store.shrink_topic(&current.store, partitions).await;
        // Also when it failed: in doubt it may have been done.
        if let Ok(Some(info)) = self.store.topic(current.store.stream(), current.store.topic()).await
            && info.topic == current.store
        {
            let configs = self.configs(&info, &log);
            self.cache.write().insert(&self.topic(&current.name, &info, configs, false));
        }
        Ok(shrunk?)
    }

    async fn rename(&self, topic: &TopicRef, name: &str) -> Result<TopicInfo, TopicError> {
        if topic.stream() == INTERNAL_STREAM {
            return Err(TopicError::Internal);
        }
        let mut log = self.changes.lock().await;
        let all = self.store.topics().await?;
        let old = all.into_iter().find(|info| info.topic == *topic).ok_or_else(|| missing(topic))?;
        let place = Place { stream: old.topic.stream().to_owned(), topic: name.to_owned() };
        self.move_configs(&mut log, &old, &place).await?;
        let renamed = self.store.rename_topic(topic, name).await;
        self.look_again(&log).await;
        Ok(renamed?)
    }

    async fn rename_stream(&self, stream: &str, name: &str) -> Result<(), TopicError> {
        if [stream, name].contains(&INTERNAL_STREAM) {
            return Err(TopicError::Internal);
        }
        let mut log = self.changes.lock().await;
        for old in self.store.topics().await?.iter().filter(|info| info.topic.stream() == stream) {
            let place = Place { stream: name.to_owned(), topic: old.topic.topic().to_owned() };
            self.move_configs(&mut log, old, &place).await?;
        }
        let renamed = self.store.rename_stream(stream, name).await;
        self.look_again(&log).await;
        Ok(renamed?)
    }

    /// Sees to it that the topic has at its new place the configs that it is to have there: its own, or what its creator asked
    /// of the store if Kafka clients could not see it, and not those of somebody who once wanted to create a topic there.
    ///
    /// Before the topic moves: a start between the two would take the settings of one without configs for a mistake. Where it
    /// does not move after all they change nothing.
    async fn move_configs(&self, log: &mut ConfigLog, old: &TopicInfo, to: &Place) -> Result<(), TopicError> {
        let is_seen = |stream: &str, topic: &str| matches!(self.mapping.seen(stream, topic), Seen::As(_));
        if !is_seen(&to.stream, &to.topic) {
            return Ok(());
        }
        let was_seen = is_seen(old.topic.stream(), old.topic.topic());
        let known = log.table().get(&old.topic).cloned();
        let configs = if was_seen { known.clone().unwrap_or_default() } else { configs_of(&old.settings) };
        if configs != known.unwrap_or_else(Configs::new) || log.table().planned(to).is_some() {
            log.write(bind(to, &old.topic, configs)).await?;
        }
        Ok(())
    }

    /// Shows the topics under the names that they have now.
    async fn look_again(&self, log: &ConfigLog) {
        match self.store.topics().await {
            Ok(infos) => self.replace(&infos, log),
            Err(error) => tracing::warn!(%error, "names that changed are not shown yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use milena_store::testing::MemoryStore;
    use milena_store::{Store, TopicSettings};

    use super::*;
    use crate::config::ServerConfig;

    async fn directory(store: &MemoryStore) -> TopicDirectory {
        TopicDirectory::open(Arc::new(store.clone()), &ServerConfig::default()).await.unwrap()
    }

    fn short() -> TopicSettings {
        TopicSettings { retention: Some(Some(Duration::from_secs(5))), ..TopicSettings::default() }
    }

    fn retention(topics: &TopicDirectory, name: &str) -> Option<String> {
        topics.by_name(name).unwrap().config.set.get("retention.ms").cloned()
    }

    #[tokio::test]
    async fn fewer_partitions_are_seen_by_kafka_clients_at_once() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "t", 3, &short()).await.unwrap();
        assert_eq!(topics.shrink_at(&info.topic, 1).await.unwrap().partitions, 1);
        assert_eq!((topics.by_name("t").unwrap().partitions, retention(&topics, "t")), (1, Some("5000".to_owned())));
        assert!(matches!(topics.shrink_at(&info.topic, 0).await, Err(StoreError::Refused { .. })));
        let hidden = topics.create_at("elsewhere", "t", 2, &short()).await.unwrap();
        assert_eq!(topics.shrink_at(&hidden.topic, 1).await.unwrap().partitions, 1);
    }

    #[tokio::test]
    async fn a_renamed_topic_has_its_id_and_its_configs_under_the_new_name_alone() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "old", 1, &short()).await.unwrap();
        let id = topics.by_name("old").unwrap().id;
        topics.rename_at(&info.topic, "new").await.unwrap();
        for again in [false, true] {
            let topics = if again { directory(&store.again()).await } else { topics.clone() };
            assert!(topics.by_name("old").is_none());
            assert_eq!((topics.by_name("new").unwrap().id, topics.by_id(id).unwrap().name.as_ref()), (id, "new"));
            assert_eq!(retention(&topics, "new"), Some("5000".to_owned()));
            assert_eq!(topics.list().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_topic_that_comes_into_sight_keeps_what_its_creator_asked_of_the_store() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("elsewhere", "t", 1, &short()).await.unwrap();
        topics.rename_stream_at("elsewhere", "kafka").await.unwrap();
        for again in [false, true] {
            let topics = if again { directory(&store.again()).await } else { topics.clone() };
            assert_eq!(retention(&topics, "t"), Some("5000".to_owned()));
            let found = store.topic("kafka", "t").await.unwrap().unwrap();
            assert_eq!(
                (found.topic, found.settings.retention),
                (info.topic.clone(), Some(Some(Duration::from_secs(5))))
            );
        }
        topics.rename_stream_at("kafka", "elsewhere").await.unwrap();
        assert!(topics.list().is_empty());
        assert_eq!(topics.hidden(), 1);
    }

    #[tokio::test]
    async fn a_plan_for_the_new_name_does_not_become_the_configs_of_a_renamed_topic() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "old", 1, &TopicSettings::default()).await.unwrap();
        let planned = Configs::from([("retention.ms".to_owned(), "1".to_owned())]);
        let plan =
            crate::topics::config_log::Record::Plan { stream: "kafka".into(), topic: "new".into(), configs: planned };
        topics.inner.changes.lock().await.write(plan).await.unwrap();
        topics.rename_at(&info.topic, "new").await.unwrap();
        assert_eq!(retention(&directory(&store.again()).await, "new"), None);
    }

    #[tokio::test]
    async fn names_that_are_taken_or_milenas_own_are_refused() {
        let store = MemoryStore::new();
        let topics = directory(&store).await;
        let info = topics.create_at("kafka", "one", 1, &TopicSettings::default()).await.unwrap();
        topics.create_at("kafka", "two", 1, &TopicSettings::default()).await.unwrap();
        assert!(matches!(topics.rename_at(&info.topic, "two").await, Err(StoreError::Exists { .. })));
        assert!(matches!(topics.rename_stream_at("kafka", "__milena").await, Err(StoreError::Refused { .. })));
        assert_eq!(topics.list().len(), 2);
    }
}
