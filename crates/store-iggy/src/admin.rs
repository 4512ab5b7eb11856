//! Topics: list, create, delete, grow, change.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use iggy_binary_protocol::WireName;
use iggy_binary_protocol::codec::{WireDecode, WireEncode};
use iggy_binary_protocol::codes::CREATE_TOPIC_CODE;
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::responses::topics::get_topic::GetTopicResponse;
use iggy_common::{BinaryTransport, IggyError, PartitionClient, StreamClient, TopicClient, TopicDetails};
use milena_store::{INTERNAL_STREAM, PartitionSize, StoreError, TopicInfo, TopicRef, TopicSettings};

use crate::error::Op;
use crate::inner::{Inner, facts_of_details, facts_of_topic, missing_topic};
use crate::journal::Record;
use crate::limits;
use crate::names::{identifier, wire};
use crate::options;
use crate::topics::TopicState;

const NAME_BYTES_MAX: usize = 255;

impl Inner {
    pub(crate) async fn list(&self) -> Result<Vec<TopicInfo>, StoreError> {
        self.catch_up().await?;
        let streams = self.ask("the streams", |client| async move { client.get_streams().await }).await?;
        let mut seen = HashSet::new();
        let mut infos = Vec::new();
        // A topic that appears while this goes on is not one that vanished.
        let known = self.topics.all();
        for stream in streams {
            let Some(stream_name) = self.names.seen(&stream.name) else { continue };
            let name = &identifier(&stream.name)?;
            let topics = match self.ask("topics", |client| async move { client.get_topics(name).await }).await {
                Ok(topics) => topics,
                // The stream went away meanwhile, and its topics with it.
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            for topic in topics {
                let created = topic.created_at.as_micros();
                let identity = TopicRef::new(stream_name, &topic.name, stream.id, topic.id, created);
                let state = self.put(&identity, facts_of_topic(&topic));
                infos.push(self.info(&state));
                seen.insert(identity);
            }
        }
        for state in known.iter().filter(|state| !seen.contains(&state.topic)) {
            self.retire(&state.topic);
        }
        Ok(infos)
    }

    pub(crate) async fn topic_info(&self, stream: &str, topic: &str) -> Result<Option<TopicInfo>, StoreError> {
        if !is_name(stream) || !is_name(topic) {
            return Ok(None);
        }
        Ok(self.describe(stream, topic).await?.map(|state| self.info(&state)))
    }

    pub(crate) async fn create(
        &self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<TopicInfo, StoreError> {
        let state = self.create_in_server(stream, topic, partitions, settings).await?;
        // The topic is there, whatever becomes of this; without the record the server's own figures are shown.
        if let Err(error) = self.write(Record::settings(&state.topic, settings)).await {
            tracing::warn!(topic = ?state.topic, %error, "the settings of a new topic are not recorded");
        }
        Ok(self.info(&state))
    }

    /// Creates a topic, and its stream when that is missing, without a record of its settings.
    pub(crate) async fn create_in_server(
        &self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<Arc<TopicState>, StoreError> {
        check_name(stream)?;
        check_name(topic)?;
        check_partitions(partitions)?;
        if settings.durability.is_some_and(|_| !self.keys.can_persist()) {
            tracing::debug!("the server has no option for durability per acknowledgement");
        }
        let default = self.config().durability;
        let options = options::creation(stream, partitions, settings, default, &self.keys)
            .map_err(|_| StoreError::Unsupported { what: "these topic settings" })?;
        if stream != INTERNAL_STREAM {
            self.check_room(u64::from(partitions)).await?;
        }
        let stream_id = self.ensure_stream(stream).await?;
        let request = CreateTopicRequest {
            stream_id: wire(self.names.on_server(stream)?)?,
            partitions_count: partitions,
            name: WireName::new(topic).map_err(|_| StoreError::Unsupported { what: "this name" })?,
            options,
        };
        let created = self.change(|client| async move {
            let reply = client.send_raw_with_response(CREATE_TOPIC_CODE, request.to_bytes()).await?;
            details_of(&reply)
        });
        let details = created.await.map_err(|error| error.of(Op::Change, &format!("topic {stream}/{topic}")))?;
        let identity = TopicRef::new(stream, topic, stream_id, details.id, details.created_at.as_micros());
        let state = self.put(&identity, facts_of_details(&details));
        for partition in state.partitions() {
            // Nobody has seen it yet, so whatever appears in it is growth.
            let mut partition = partition.lock();
            let floor = partition.floor();
            partition.observe(crate::partition::Described::default(), floor, limits::FALL_GRACE, Instant::now());
        }
        Ok(state)
    }

    /// Refuses partitions that the server should not have in addition. It is asked, since others create topics too.
    async fn check_room(&self, added: u64) -> Result<(), StoreError> {
        let streams = self.ask("the streams", |client| async move { client.get_streams().await }).await?;
        let mut has: u64 = 0;
        for stream in streams.iter().filter(|stream| stream.topics_count > 0) {
            let name = &identifier(&stream.name)?;
            match self.ask("topics", |client| async move { client.get_topics(name).await }).await {
                Ok(topics) => has += topics.iter().map(|topic| u64::from(topic.partitions_count)).sum::<u64>(),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let (actual, limit) = (has.saturating_add(added), self.config().partitions_max);
        if actual > limit {
            return Err(StoreError::Refused { what: "partitions on the Iggy server", actual, limit });
        }
        Ok(())
    }

    /// The number of a stream, which is created when it is missing.
    async fn ensure_stream(&self, stream: &str) -> Result<u32, StoreError> {
        if let Some(id) = self.stream_id(stream).await? {
            return Ok(id);
        }
        let name = self.names.on_server(stream)?.to_owned();
        let created = self.change(|client| async move { client.create_stream(&name).await }).await;
        match created.map_err(|error| error.of(Op::Change, "a stream")) {
            Ok(details) => Ok(details.id),
            // Somebody else was faster, or an attempt whose reply was lost: what counts is that it is there.
            Err(StoreError::Exists { .. } | StoreError::InDoubt { .. }) => {
                let busy = || StoreError::Busy { reason: format!("stream {stream} is not there yet") };
                self.stream_id(stream).await?.ok_or_else(busy)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn delete(&self, topic: &TopicRef) -> Result<(), StoreError> {
        self.verify(topic).await?;
        let (stream_id, topic_id) = self.names.topic(topic.stream(), topic.topic())?;
        let deleted = self.change(|client| async move { client.delete_topic(&stream_id, &topic_id).await }).await;
        deleted.map_err(|error| error.of(Op::Change, &format!("topic {topic:?}")))?;
        self.retire(topic);
        if let Err(error) = self.write(Record::gone(topic)).await {
            tracing::debug!(?topic, %error, "the settings of a deleted topic stay behind");
        }
        Ok(())
    }

    /// The server deletes and changes by name; a name that belongs to another incarnation by now must not be touched.
    async fn verify(&self, topic: &TopicRef) -> Result<Arc<TopicState>, StoreError> {
        let found = self.describe(topic.stream(), topic.topic()).await?;
        found.filter(|state| state.topic == *topic).ok_or_else(|| missing_topic(topic))
    }

    pub(crate) async fn grow(&self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        check_partitions(partitions)?;
        let state = self.verify(topic).await?;
        let has = state.facts().partitions;
        if partitions < has {
            let (actual, limit) = (u64::from(partitions), u64::from(has));
            return Err(StoreError::Refused { what: "partitions, which cannot shrink,", actual, limit });
        }
        if partitions > has {
            let (stream_id, topic_id) = self.names.topic(topic.stream(), topic.topic())?;
            let added = partitions - has;
            self.check_room(u64::from(added)).await?;
            let grown =
                self.change(|client| async move { client.create_partitions(&stream_id, &topic_id, added).await });
            grown.await.map_err(|error| error.of(Op::Change, &format!("topic {topic:?}")))?;
            self.look(&state, Instant::now()).await?;
            let recorded = self.table.lock().settings(topic).cloned();
            if let Some(settings) = recorded.filter(|settings| settings.retention_bytes.is_some()) {
                // The server's limit is for the topic, ours for each partition.
                self.update_in_server(&state, &settings).await?;
            }
        }
        Ok(self.info(&state))
    }

    pub(crate) async fn update(&self, topic: &TopicRef, settings: &TopicSettings) -> Result<TopicInfo, StoreError> {
        let state = self.verify(topic).await?;
        self.update_in_server(&state, settings).await?;
        self.write(Record::settings(topic, settings)).await?;
        Ok(self.info(&state))
    }

    async fn update_in_server(&self, state: &Arc<TopicState>, settings: &TopicSettings) -> Result<(), StoreError> {
        let topic = &state.topic;
        let update = options::update(state.facts().partitions, settings);
        if update.message_expiry.is_none() && update.max_topic_size.is_none() {
            return Ok(());
        }
        let (stream_id, topic_id) = self.names.topic(topic.stream(), topic.topic())?;
        let name = topic.topic().to_owned();
        let updated =
            self.change(|client| async move { client.update_topic(&stream_id, &topic_id, &name, &update).await });
        updated.await.map_err(|error| error.of(Op::Change, &format!("topic {topic:?}")))?;
        self.look(state, Instant::now()).await
    }

    pub(crate) async fn sizes(&self, topic: &TopicRef) -> Result<Vec<PartitionSize>, StoreError> {
        let state = self.state(topic).await?;
        self.look(&state, Instant::now()).await?;
        let partitions = (0..).zip(state.partitions());
        Ok(partitions
            .map(|(partition, known)| PartitionSize { partition, bytes: known.lock().described().bytes })
            .collect())
    }
}

fn details_of(reply: &[u8]) -> Result<TopicDetails, IggyError> {
    // The topic was created; a reply that cannot be read leaves open which one it is.
    let reply = GetTopicResponse::decode_from(reply).map_err(|_| IggyError::InvalidBytesResponse)?;
    TopicDetails::try_from(reply)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}

fn check_name(name: &str) -> Result<(), StoreError> {
    if is_name(name) {
        return Ok(());
    }
    let (actual, limit) = (name.len() as u64, NAME_BYTES_MAX as u64);
    Err(StoreError::Refused { what: "a stream or topic name in bytes", actual, limit })
}

/// The server itself takes 0 partitions, and a topic of none cannot be used.
fn check_partitions(partitions: u32) -> Result<(), StoreError> {
    if (1..=limits::PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    let (actual, limit) = (u64::from(partitions), u64::from(limits::PARTITIONS_MAX));
    Err(StoreError::Refused { what: "partitions of a topic", actual, limit })
}
