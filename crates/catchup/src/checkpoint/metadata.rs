//! Checkpoints in the metadata of committed offsets, read and written from outside of the group.

use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::CheckpointStore;
use crate::broker::committed;
use crate::delivery::TopicPartition;
use crate::member::{Context, list_of};
use crate::{Error, LogId, METADATA_BYTES_MAX, Progress, user_metadata};

const PATIENCE: Duration = Duration::from_secs(10);

/// The checkpoints that a consumer with [`Checkpoint::Metadata`](crate::Checkpoint::Metadata) leaves behind: committed offset and ranges
/// are one. For tools, such as one that moves a group from a [`TopicStore`](super::TopicStore) to its metadata.
///
/// Saving is committing: `floor` becomes the committed offset. A broker takes that from outside only while the group has no members.
/// The user's part of the metadata stays.
pub struct MetadataStore {
    client: BaseConsumer<Context>,
    cluster: Mutex<Option<String>>,
}

impl MetadataStore {
    /// A store for the group in `config`, which it does not join.
    ///
    /// # Errors
    /// [`Error::Client`] when librdkafka refuses the configuration.
    pub fn new(config: &ClientConfig) -> Result<Self, Error> {
        let mut config = config.clone();
        config.remove("group.instance.id").set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        Ok(Self { client: config.create_with_context(Context::new())?, cluster: Mutex::default() })
    }

    fn log(&self, of: &TopicPartition) -> LogId {
        let mut cluster = self.cluster.lock();
        if cluster.is_none() {
            *cluster = self.client.client().fetch_cluster_id(PATIENCE);
        }
        LogId::of(cluster.as_deref().unwrap_or(""), &of.topic, of.partition)
    }

    /// Committed offset and metadata; `None` when nothing is committed.
    fn read(&self, of: &TopicPartition) -> Result<Option<(i64, String)>, Error> {
        let found = committed(&self.client, list_of(std::slice::from_ref(of)))?;
        Ok(found.into_iter().next().map(|(_, found)| found).transpose()?.flatten())
    }

    fn commit(&self, of: &TopicPartition, floor: i64, metadata: &str) -> Result<(), Error> {
        let mut list = TopicPartitionList::with_capacity(1);
        {
            let mut element = list.add_partition(&of.topic, of.partition);
            element.set_offset(Offset::Offset(floor))?;
            element.set_metadata(metadata);
        }
        Ok(self.client.commit(&list, CommitMode::Sync)?)
    }
}

impl CheckpointStore for MetadataStore {
    /// Ranges that do not count beside the committed offset are none, and so is a partition without one.
    fn load(&self, partitions: &[TopicPartition]) -> Vec<Result<Option<Progress>, Error>> {
        let load = |of: &TopicPartition| {
            let found = self.read(of)?;
            Ok(found.and_then(|(floor, metadata)| {
                let log = self.log(of);
                let ahead = Progress::ahead_of(&metadata, log, floor).ok()?;
                Some(Progress { log, floor, ahead })
            }))
        };
        partitions.iter().map(load).collect()
    }

    fn save(&self, checkpoints: &[(TopicPartition, Progress)]) -> Vec<Result<(), Error>> {
        let save = |(of, progress): &(TopicPartition, Progress)| {
            let found = self.read(of)?;
            let user = found.as_ref().map_or("", |(_, metadata)| user_metadata(metadata));
            self.commit(of, progress.floor, &progress.encode(user, METADATA_BYTES_MAX).metadata)
        };
        checkpoints.iter().map(save).collect()
    }

    fn clear(&self, partitions: &[TopicPartition]) -> Vec<Result<(), Error>> {
        let clear = |of: &TopicPartition| {
            let Some((floor, metadata)) = self.read(of)? else { return Ok(()) };
            let only_user = Progress::new(self.log(of), floor).encode(user_metadata(&metadata), METADATA_BYTES_MAX);
            self.commit(of, floor, &only_user.metadata)
        };
        partitions.iter().map(clear).collect()
    }
}
