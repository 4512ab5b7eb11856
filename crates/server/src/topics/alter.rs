//! Changes of the configs of a topic that exists.
//!
//! A change is worked out from the configs as they are when its turn comes, so that of two changes at once neither takes
//! back what the other one set. The configs are made durable before the store hears of them: what a crash leaves behind
//! is brought to the store by the next start. When the store refuses, they are taken back.

use std::sync::Arc;

use milena_store::{StoreError, TopicInfo};

use super::changes::set;
use super::config_log::{ConfigLog, Configs, Record};
use super::configs::ConfigChange;
use super::directory::{Inner, TopicDirectory, to_the_end};
use super::error::TopicError;
use super::foreign::asked_of_store;
use super::topic::Topic;

impl TopicDirectory {
    /// Whether [`Self::alter`] would succeed now.
    ///
    /// # Errors
    /// What it would answer.
    pub fn check_alteration(&self, topic: &Topic, change: &ConfigChange) -> Result<(), TopicError> {
        if topic.internal {
            return Err(TopicError::Internal);
        }
        self.rules().changed(&topic.config.set, change)?;
        Ok(())
    }

    /// Changes the configs of this incarnation of a topic, all of it or nothing. They are in force for whatever is asked
    /// after it returned.
    ///
    /// # Errors
    /// When it is internal or gone, a config is refused, or the store fails.
    pub async fn alter(&self, topic: &Arc<Topic>, change: ConfigChange) -> Result<Arc<Topic>, TopicError> {
        let (inner, topic) = (Arc::clone(&self.inner), Arc::clone(topic));
        to_the_end(async move {
            if topic.internal {
                return Err(TopicError::Internal);
            }
            let (altered, _) = inner.alter(&topic, |now| Ok(inner.rules.changed(now, &change)?)).await?;
            Ok(altered)
        })
        .await
    }
}

impl Inner {
    /// Puts what `change` makes of a topic's configs in their place.
    pub(super) async fn alter(
        &self,
        topic: &Topic,
        change: impl Fn(&Configs) -> Result<Configs, TopicError> + Send,
    ) -> Result<(Arc<Topic>, TopicInfo), TopicError> {
        let mut log = self.changes.lock().await;
        let current = self.cache.read().by_id.get(&topic.id).map(Arc::clone).ok_or(TopicError::NotFound)?;
        let (mut before, mut configs) = (None, Configs::new());
        let written = log.write_with(|table| {
            before = table.get(&current.store).cloned();
            configs = change(before.as_ref().unwrap_or(&current.config.set))?;
            Ok::<_, TopicError>(set(&current.store, configs.clone()))
        });
        written.await?;
        match self.store.update_settings(&current.store, &self.rules.settings(&configs)).await {
            Ok(info) => {
                let altered = self.topic(&current.name, &info, configs, false);
                self.cache.write().insert(&altered);
                Ok((altered, info))
            }
            Err(error) => {
                take_back(&mut log, &current, before).await;
                Err(error.into())
            }
        }
    }

    /// The configs of a topic. One that somebody else made on the store, and that was never given configs here, has those
    /// that its creator asked of the store: they must be shown, and not be lost when one of the others is set.
    pub(super) fn configs(&self, info: &TopicInfo, log: &ConfigLog) -> Configs {
        match log.table().get(&info.topic) {
            Some(configs) => configs.clone(),
            None if self.store.capabilities().foreign_writers => asked_of_store(&self.rules, &info.settings),
            None => Configs::new(),
        }
    }
}

/// What was answered with an error should not be in force after the next start.
async fn take_back(log: &mut ConfigLog, topic: &Topic, before: Option<Configs>) {
    let record = match before {
        Some(configs) => set(&topic.store, configs),
        None => Record::Drop { of: (&topic.store).into() },
    };
    if let Err(error) = log.write(record).await {
        let error: StoreError = error;
        tracing::warn!(topic = %topic.name, %error, "a refused change of topic configs stays for the next start");
    }
}

#[cfg(test)]
mod tests;
