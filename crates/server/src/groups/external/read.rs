//! Reading: offsets of a group, and which groups have some.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use milena_groups::GroupError;
use milena_store::{PartitionRef, StoreError};
use tokio::time::{Duration, Instant};

use super::port::{GROUP_PREFIX, Port, stored_name};
use super::{ADMIN_WAIT, External, within};
use crate::topics::Topic;

/// Calls of one request under way at a time.
const READS_AT_ONCE: usize = 16;

/// Offsets that a group has of one topic, by partition.
#[derive(Debug)]
pub struct Stored {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Partitions and offsets, in order.
    pub offsets: Vec<(i32, i64)>,
}

impl External {
    /// The offsets of partitions, in order; `None` where nothing is stored.
    pub(in crate::groups) async fn load(
        &self,
        group: &str,
        partitions: Vec<PartitionRef>,
        wait: Duration,
    ) -> Result<Vec<Option<i64>>, GroupError> {
        self.check_serving()?;
        within(Instant::now() + wait, self.load_all(group, partitions)).await
    }

    /// All that a group has, of every topic that has a Kafka name.
    pub(in crate::groups) async fn load_group(&self, group: &str) -> Result<Vec<Stored>, GroupError> {
        self.check_serving()?;
        within(Instant::now() + ADMIN_WAIT, async {
            let topics = self.topics_of(&stored_name(group)).await?;
            self.load_topics(group, topics).await
        })
        .await
    }

    /// What a group has of those topics, without those that it has nothing of.
    pub(in crate::groups) async fn load_topics(
        &self,
        group: &str,
        topics: Vec<Arc<Topic>>,
    ) -> Result<Vec<Stored>, GroupError> {
        let mut found = Vec::new();
        for topic in topics {
            let partitions = (0..topic.partitions).map(|partition| topic.store.partition(partition)).collect();
            let loaded = self.load_all(group, partitions).await?;
            let offsets = (0..).zip(loaded).filter_map(|(partition, offset)| Some((partition, offset?))).collect();
            found.push(Stored { topic, offsets });
        }
        found.retain(|stored| !stored.offsets.is_empty());
        Ok(found)
    }

    fn check_serving(&self) -> Result<(), GroupError> {
        self.shared.read(milena_groups::Groups::check_serving)
    }

    async fn load_all(&self, group: &str, partitions: Vec<PartitionRef>) -> Result<Vec<Option<i64>>, GroupError> {
        let name: Arc<str> = Arc::from(stored_name(group));
        let loads = partitions.into_iter().map(|at| {
            let (port, name) = (Arc::clone(&self.port), Arc::clone(&name));
            async move {
                match port.offsets().map_err(failed)?.load(&at, &name).await {
                    // Kafka's offsets are of 63 bits; whoever stored more means behind the end.
                    Ok(found) => Ok(found.map(|offset| i64::try_from(offset).unwrap_or(i64::MAX))),
                    // Offsets go with their topic.
                    Err(StoreError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(failed(error)),
                }
            }
        });
        stream::iter(loads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// The topics that have a group of that name.
    pub(super) async fn topics_of(&self, name: &str) -> Result<Vec<Arc<Topic>>, GroupError> {
        let name: Arc<str> = Arc::from(name);
        let found = self.each_topic(move |port, topic| {
            let name = Arc::clone(&name);
            async move { port.offsets()?.has_group(&topic.store, &name).await }
        });
        let found = found.await?;
        Ok(found.into_iter().filter_map(|(topic, has)| has.unwrap_or(false).then_some(topic)).collect())
    }

    /// Kafka groups that have offsets of some topic.
    pub(super) async fn held(&self) -> Result<BTreeSet<String>, GroupError> {
        Ok(self.held_topics().await?.into_keys().collect())
    }

    /// Kafka groups that have offsets, each with the topics that it has some of.
    pub(in crate::groups) async fn held_topics(&self) -> Result<BTreeMap<String, Vec<Arc<Topic>>>, GroupError> {
        self.check_serving()?;
        let found = self.each_topic(|port, topic| async move { port.offsets()?.groups(&topic.store).await }).await?;
        let mut held = BTreeMap::<String, Vec<Arc<Topic>>>::new();
        for (topic, names) in found {
            for name in names.unwrap_or_default() {
                if let Some(group) = name.strip_prefix(GROUP_PREFIX) {
                    held.entry(group.to_owned()).or_default().push(Arc::clone(&topic));
                }
            }
        }
        Ok(held)
    }

    /// Asks something about each topic that has a Kafka name; `None` for one that is gone.
    async fn each_topic<T, F>(
        &self,
        ask: impl Fn(Arc<Port>, Arc<Topic>) -> F,
    ) -> Result<Vec<(Arc<Topic>, Option<T>)>, GroupError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let topics = self.topics.list().into_iter().filter(|topic| !topic.internal);
        let asked = topics.map(|topic| {
            let answer = ask(Arc::clone(&self.port), Arc::clone(&topic));
            async move {
                match answer.await {
                    Ok(answer) => Ok((topic, Some(answer))),
                    Err(StoreError::NotFound { .. }) => Ok((topic, None)),
                    Err(error) => Err(failed(error)),
                }
            }
        });
        stream::iter(asked).buffered(READS_AT_ONCE).try_collect().await
    }
}

/// A read that failed is tried again by every client.
#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn failed(error: StoreError) -> GroupError {
    tracing::debug!(%error, "committed offsets cannot be read");
    GroupError::StoreFailed
}
