//! Streams and topics as Iggy clients name them.
//!
//! A stream of the store exists while it holds topics; one of Iggy from its creation to its deletion, and under a number
//! that clients use. So the door keeps a list of streams, and takes each stream into it that it finds in the store. Topics
//! are the store's own, under the store's numbers; nothing about them is remembered that could be wrong.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use iggy_binary_protocol::WireIdentifier;
use milena_store::{INTERNAL_STREAM, PartitionRef, Store, StoreError, TopicInfo};
use parking_lot::Mutex;

use crate::admin::TopicAdmin;
use crate::codes::{Code, Refusal};
use crate::state::{Change, Record, State, Stream};

/// Places of topics by number that are remembered; all of them are forgotten when there are more.
const PLACES_MAX: usize = 16_384;

/// Finds streams and topics.
pub(crate) struct Catalog {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) state: State,
    streams_max: usize,
    /// Names of topics by stream and number: a hint, checked against the store at each use.
    places: Mutex<HashMap<(String, u32), String>>,
}

/// A topic that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Number of its stream.
    pub(crate) stream_id: u32,
    /// The topic.
    pub(crate) info: TopicInfo,
}

impl Found {
    /// The partition of that number, if there is one.
    pub(crate) fn partition(&self, partition: u32) -> Result<PartitionRef, Refusal> {
        let exists = partition < self.info.partitions;
        if exists { Ok(self.info.topic.partition(partition)) } else { Err(Code::PARTITION_NOT_FOUND.into()) }
    }
}

impl Catalog {
    pub(crate) fn new(store: Arc<dyn Store>, state: State, streams_max: usize) -> Self {
        Self { store, state, streams_max, places: Mutex::default() }
    }

    /// All streams with their topics, by number.
    pub(crate) async fn streams(&self) -> Result<Vec<(Stream, Vec<TopicInfo>)>, Refusal> {
        let mut topics = self.take_in().await?;
        let streams: Vec<Stream> = self.state.look(|table| table.streams().cloned().collect());
        Ok(streams
            .into_iter()
            .map(|stream| {
                let of = topics.remove(&stream.name).unwrap_or_default();
                (stream, of)
            })
            .collect())
    }

    /// The stream of that name or number.
    pub(crate) async fn stream(&self, id: &WireIdentifier) -> Result<Option<Stream>, Refusal> {
        if let Some(stream) = self.known(id) {
            if self.state.look(|table| table.is_renaming(stream.id)) {
                return self.renaming(id).await;
            }
            return Ok(Some(stream));
        }
        if id.as_str() == Some(INTERNAL_STREAM) {
            return Ok(None);
        }
        // Under its new name, too, it is found while the list cannot be written.
        let is_new_name = |name: &str| self.state.look(|table| table.is_renaming_to(name));
        if id.as_str().is_some_and(is_new_name)
            && let Some(stream) = self.renaming(id).await?
        {
            return Ok(Some(stream));
        }
        self.take_in().await?;
        Ok(self.known(id))
    }

    /// The topics of a stream, by number.
    pub(crate) async fn topics_of(&self, stream: &Stream) -> Result<Vec<TopicInfo>, Refusal> {
        Ok(self.topics_by_stream().await?.remove(&stream.name).unwrap_or_default())
    }

    /// The topic of those names or numbers.
    ///
    /// # Errors
    /// [`Code::STREAM_NOT_FOUND`] or [`Code::TOPIC_NOT_FOUND`], whichever is missing.
    pub(crate) async fn topic(&self, stream: &WireIdentifier, topic: &WireIdentifier) -> Result<Found, Refusal> {
        let stream = self.stream(stream).await?.ok_or(Code::STREAM_NOT_FOUND)?;
        let info = match topic {
            WireIdentifier::String(name) => self.store.topic(&stream.name, name).await?,
            WireIdentifier::Numeric(id) => self.numbered(&stream, *id).await?,
        };
        let info = info.ok_or(Code::TOPIC_NOT_FOUND)?;
        Ok(Found { stream_id: stream.id, info })
    }

    /// As [`Self::topic`], and `None` when either is missing.
    pub(crate) async fn topic_if_any(
        &self,
        stream: &WireIdentifier,
        topic: &WireIdentifier,
    ) -> Result<Option<Found>, Refusal> {
        match self.topic(stream, topic).await {
            Ok(found) => Ok(Some(found)),
            Err(Refusal::Rejected(Code::STREAM_NOT_FOUND | Code::TOPIC_NOT_FOUND)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Creates a stream under the smallest free number.
    pub(crate) async fn create_stream(&self, name: &str, now_micros: u64) -> Result<Stream, Refusal> {
        let id = WireIdentifier::named(name).map_err(|_| Code::INVALID_STREAM_NAME)?;
        if name == INTERNAL_STREAM {
            return Err(Code::INVALID_STREAM_NAME.into());
        }
        // One that the Kafka side made exists, too.
        if self.stream(&id).await?.is_some() {
            return Err(Code::STREAM_EXISTS.into());
        }
        let change = self.state.change().await;
        if change.look(|table| table.stream_named(name).is_some()) {
            return Err(Code::STREAM_EXISTS.into());
        }
        self.add(&change, name, now_micros).await
    }

    /// Gives a stream another name: in the store by `admin`, and here.
    ///
    /// What is meant is stored first: of a crash in between, the next start finds out whether the store has the new name. Its
    /// number stays, and with it all that belongs to it.
    pub(crate) async fn rename_stream(
        &self,
        admin: &dyn TopicAdmin,
        stream: &Stream,
        name: &str,
    ) -> Result<(), Refusal> {
        let wanted = WireIdentifier::named(name).map_err(|_| Code::INVALID_STREAM_NAME)?;
        if name == INTERNAL_STREAM {
            return Err(Code::INVALID_STREAM_NAME.into());
        }
        if self.stream(&wanted).await?.is_some() {
            return Err(Code::STREAM_EXISTS.into());
        }
        let change = self.state.change().await;
        // Of a rename before that is in doubt, the store may have the name already: it would have no topics under this one.
        self.state.settle_names().await?;
        if change.look(|table| table.stream_named(name).is_some()) {
            return Err(Code::STREAM_EXISTS.into());
        }
        if change.look(|table| table.stream(stream.id) != Some(stream)) {
            return Err(Code::STREAM_NOT_FOUND.into());
        }
        let Stream { id, created_at_micros, .. } = *stream;
        let called = |name: &str| Record::Stream { id, name: name.to_owned(), created_at_micros };
        // One without topics is not in the store.
        if let Some(info) = self.topics_of(stream).await?.first() {
            change.write(Record::Rename { id, name: name.to_owned(), of: info.topic.stream_id() }).await?;
            if let Err(error) = admin.rename_stream(&stream.name, name).await {
                self.state.settle_names().await.map_err(|_| Refusal::InDoubt)?;
                return Err(match error {
                    StoreError::Exists { .. } => Code::STREAM_EXISTS.into(),
                    other => other.into(),
                });
            }
        }
        // The store has the name: a code that says "not done" would be wrong, and the next look at
        // what is in the store, or the next start, puts this right.
        change.write(called(name)).await.map_err(|_| Refusal::InDoubt)
    }

    async fn add(&self, change: &Change<'_>, name: &str, created_at_micros: u64) -> Result<Stream, Refusal> {
        let (id, count) = change.look(|table| (table.vacant_stream(), table.streams().count()));
        if count >= self.streams_max {
            return Err(Code::TOO_MANY_STREAMS.into());
        }
        change.write(Record::Stream { id, name: name.to_owned(), created_at_micros }).await?;
        Ok(Stream { id, name: name.to_owned(), created_at_micros })
    }

    /// As [`Self::stream`], of one whose rename is under way, or in doubt: under the name in the list it may have no topics.
    async fn renaming(&self, id: &WireIdentifier) -> Result<Option<Stream>, Refusal> {
        let _change = self.state.change().await;
        let settled = self.state.names_in_doubt().await?;
        // A store that takes no records can still be read.
        if let Err(error) = self.state.settle(settled.clone()).await {
            tracing::debug!(%error, "the new name of a stream is stored later");
        }
        let named = |stream: &Stream| match id {
            WireIdentifier::Numeric(id) => stream.id == *id,
            WireIdentifier::String(name) => stream.name == name.as_str(),
        };
        let known = self.known(id).filter(|known| settled.iter().all(|stream| stream.id != known.id));
        Ok(settled.into_iter().find(named).or(known))
    }

    fn known(&self, id: &WireIdentifier) -> Option<Stream> {
        self.state.look(|table| match id {
            WireIdentifier::Numeric(id) => table.stream(*id).cloned(),
            WireIdentifier::String(name) => table.stream_named(name).cloned(),
        })
    }

    async fn numbered(&self, stream: &Stream, id: u32) -> Result<Option<TopicInfo>, StoreError> {
        let key = (stream.name.clone(), id);
        let remembered = self.places.lock().get(&key).cloned();
        if let Some(name) = remembered
            && let Some(info) = self.store.topic(&stream.name, &name).await?
            && info.topic.topic_id() == id
        {
            return Ok(Some(info));
        }
        let topics = self.store.topics().await?;
        let found = topics.into_iter().find(|info| info.topic.stream() == stream.name && info.topic.topic_id() == id);
        if let Some(info) = &found {
            let mut places = self.places.lock();
            if places.len() >= PLACES_MAX {
                places.clear();
            }
            places.insert(key, info.topic.topic().to_owned());
        }
        Ok(found)
    }

    /// All topics that clients may see.
    async fn topics_by_stream(&self) -> Result<BTreeMap<String, Vec<TopicInfo>>, StoreError> {
        let mut streams: BTreeMap<String, Vec<TopicInfo>> = BTreeMap::new();
        for info in self.store.topics().await? {
            if info.topic.stream() != INTERNAL_STREAM {
                streams.entry(info.topic.stream().to_owned()).or_default().push(info);
            }
        }
        for topics in streams.values_mut() {
            topics.sort_unstable_by_key(|info| info.topic.topic_id());
        }
        Ok(streams)
    }

    /// Gives a number to each stream of the store that has none. The answer is all topics that clients may see.
    async fn take_in(&self) -> Result<BTreeMap<String, Vec<TopicInfo>>, Refusal> {
        let is_new = |name: &String| self.state.look(|table| table.stream_named(name).is_none());
        let topics = self.topics_by_stream().await?;
        if !topics.keys().any(is_new) {
            return Ok(topics);
        }
        let change = self.state.change().await;
        // The new name of a rename that was stored in part is no new stream.
        self.state.settle_names().await?;
        // A stream may have been renamed or deleted since the list was made: its old name would become an empty stream,
        // and nobody could have the name. Within the turn, list and table tell the same.
        let topics = self.topics_by_stream().await?;
        for (name, infos) in &topics {
            if is_new(name) {
                let created = infos.iter().map(|info| info.topic.created_at_micros()).min().unwrap_or(0);
                self.add(&change, name, created).await?;
            }
        }
        Ok(topics)
    }
}

#[cfg(test)]
mod tests;
