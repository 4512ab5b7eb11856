//! The steps in which topics change, and why in that order.

use std::sync::Arc;

use milena_store::{StoreError, TopicInfo, TopicRef};

use super::config_log::{ConfigLog, Configs, Record};
use super::directory::Inner;
use super::error::TopicError;
use super::mapping::Place;
use super::topic::Topic;

impl Inner {
    pub(super) async fn create(&self, name: &str, partitions: u32, configs: Configs) -> Result<Arc<Topic>, TopicError> {
        let place = self.mapping.place(name)?;
        let mut log = self.changes.lock().await;
        if self.cache.read().by_name.contains_key(name) {
            return Err(TopicError::Exists);
        }
        // A plan that an earlier attempt left behind must not become the configs of this one.
        if !configs.is_empty() || log.table().planned(&place).is_some() {
            log.write(plan(&place, configs.clone())).await?;
        }
        let created = self.create_in_store(&place, partitions, &configs).await;
        let info = match created {
            Ok(info) => info,
            Err(error) => {
                // In doubt it may still come into being, and then has the configs of its plan.
                let may_exist = matches!(error, StoreError::InDoubt { .. });
                if !may_exist && !configs.is_empty() {
                    take_back(&mut log, &place).await;
                }
                if matches!(error, StoreError::Exists { .. }) {
                    self.adopt(name, &place, &mut log).await;
                }
                return Err(error.into());
            }
        };
        if !configs.is_empty()
            && let Err(error) = log.write(bind(&place, &info.topic, configs.clone())).await
        {
            // The plan is durable and will be bound at the next start, so nothing is lost.
            tracing::warn!(topic = %name, %error, "the configs of a new topic stay planned");
        }
        let topic = self.topic(name, &info, configs, false);
        self.cache.write().insert(&topic);
        Ok(topic)
    }

    /// Creates it, and looks again when the outcome is unknown: it did not exist before and nobody else was
    /// creating it here, so if it is there, it is ours.
    async fn create_in_store(&self, at: &Place, partitions: u32, configs: &Configs) -> Result<TopicInfo, StoreError> {
        let settings = self.rules.settings(configs);
        let created = self.store.create_topic(&at.stream, &at.topic, partitions, &settings).await;
        let Err(StoreError::InDoubt { reason }) = created else {
            return created;
        };
        match self.store.topic(&at.stream, &at.topic).await {
            Ok(Some(info)) => Ok(info),
            _ => Err(StoreError::InDoubt { reason }),
        }
    }

    /// Takes a topic into the cache that somebody else created, with the configs that another gateway gave it.
    async fn adopt(&self, name: &str, place: &Place, log: &mut ConfigLog) {
        if let Ok(Some(info)) = self.store.topic(&place.stream, &place.topic).await {
            // After the look at the store: its configs were planned before it was there.
            if let Err(error) = log.follow().await {
                // Without them its records could be refused as too large; the next refresh shows it.
                tracing::debug!(topic = %name, %error, "a topic of another gateway is not shown yet");
                return;
            }
            log.bind(std::iter::once(&info.topic));
            let configs = self.configs(&info, log);
            let topic = self.topic(name, &info, configs, false);
            self.cache.write().insert(&topic);
        }
    }

    pub(super) async fn delete(&self, topic: &Topic) -> Result<(), TopicError> {
        if topic.internal {
            return Err(TopicError::Internal);
        }
        let mut log = self.changes.lock().await;
        let deleted = match self.store.delete_topic(&topic.store).await {
            Err(StoreError::InDoubt { reason }) if !self.is_gone(&topic.store).await => {
                Err(StoreError::InDoubt { reason })
            }
            Ok(()) | Err(StoreError::InDoubt { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        let gone = deleted.is_ok() || matches!(deleted, Err(StoreError::NotFound { .. }));
        if gone {
            self.cache.write().remove(topic);
            if log.table().get(&topic.store).is_some() {
                let dropped = log.write(Record::Drop { of: (&topic.store).into() }).await;
                if let Err(error) = dropped {
                    // They belong to an incarnation that nobody can name any more; the next start forgets them.
                    tracing::warn!(topic = %topic.name, %error, "the configs of a deleted topic stay behind");
                }
            }
        }
        deleted.map_err(TopicError::from)
    }

    async fn is_gone(&self, topic: &TopicRef) -> bool {
        match self.store.topic(topic.stream(), topic.topic()).await {
            Ok(found) => found.is_none_or(|info| info.topic != *topic),
            Err(_) => false,
        }
    }

    pub(super) async fn grow(&self, topic: &Topic, asked: i64) -> Result<Arc<Topic>, TopicError> {
        let log = self.changes.lock().await;
        let current = self.cache.read().by_id.get(&topic.id).map(Arc::clone).ok_or(TopicError::NotFound)?;
        let partitions = self.check_growth(&current, asked)?;
        let info = self.store.grow_topic(&current.store, partitions).await?;
        let configs = self.configs(&info, &log);
        let grown = self.topic(&current.name, &info, configs, false);
        self.cache.write().insert(&grown);
        Ok(grown)
    }
}

fn plan(place: &Place, configs: Configs) -> Record {
    Record::Plan { stream: place.stream.clone(), topic: place.topic.clone(), configs }
}

/// The record that gives a topic these configs in place of all it has.
pub(super) fn set(topic: &TopicRef, configs: Configs) -> Record {
    let place = Place { stream: topic.stream().to_owned(), topic: topic.topic().to_owned() };
    bind(&place, topic, configs)
}

pub(super) fn bind(place: &Place, topic: &TopicRef, configs: Configs) -> Record {
    Record::Set { stream: place.stream.clone(), topic: place.topic.clone(), of: topic.into(), configs }
}

async fn take_back(log: &mut ConfigLog, place: &Place) {
    if let Err(error) = log.write(plan(place, Configs::new())).await {
        tracing::warn!(%error, "the plan of a topic that was not created stays behind");
    }
}
