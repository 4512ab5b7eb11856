//! Where committed offsets are kept, and the record of it.
//!
//! The choice is made once, at the first start, and written down: a server that looked in the other place would find no
//! offsets, and consumers would reset their positions. Another choice later is an error at start; to move takes
//! `milena offsets migrate`, which also writes down that it is under way, so that no server starts in between.
//!
//! A store without consumer offsets leaves no choice, and no record.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_store::offsets::{ProbeRefusal, probe};
use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{INTERNAL_STREAM, Store, StoreError};
use serde::{Deserialize, Serialize};

use super::keeper::OFFSETS_TOPIC;
use crate::config::ServerConfig;
use crate::opening::{answered, open_log};

/// What an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffsetStorage {
    /// A log in the internal stream.
    #[default]
    Topic,
    /// Consumer offsets of the engine.
    ConsumerOffsets,
    /// Consumer offsets where the engine lets Kafka groups have them, else the log.
    Auto,
}

/// Where committed offsets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// In a log in the internal stream.
    Topic,
    /// As consumer offsets of the engine.
    ConsumerOffsets,
}

impl Kept {
    /// The name that operators use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::ConsumerOffsets => "consumer-offsets",
        }
    }
}

/// Why a server cannot keep committed offsets as it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The store has no consumer offsets.
    #[error(
        "offset_storage is \"consumer-offsets\", which needs an Iggy server as the store; with the embedded store it is \
         \"topic\""
    )]
    NotOffered,
    /// The store has consumer offsets, but not for Kafka groups.
    #[error(
        "committed offsets cannot be kept as consumer offsets of this server ({0}); set offset_storage to \"topic\", or \
         where they are kept that way already, use `milena offsets migrate --to topic`"
    )]
    Refused(ProbeRefusal),
    /// They are kept in another way.
    #[error(
        "offset_storage is \"{}\", but committed offsets are kept as \"{}\"; set it to that, or to \"auto\", or move them \
         with `milena offsets migrate --to {}`",
        asked.name(), kept.name(), asked.name()
    )]
    Elsewhere {
        /// Where they are.
        kept: Kept,
        /// What was asked for.
        asked: Kept,
    },
    /// A move was begun, and is under way or was interrupted.
    #[error(
        "committed offsets are being moved from \"{}\" to \"{}\"; wait for `milena offsets migrate`, or if it was \
         interrupted, run `milena offsets migrate --to {}` again, or with `--to {}` to stay",
        from.name(), to.name(), to.name(), from.name()
    )]
    Moving {
        /// Where they are.
        from: Kept,
        /// Where they go.
        to: Kept,
    },
    /// The store could not be asked.
    #[error("where committed offsets are kept cannot be found out: {0}")]
    Store(#[from] StoreError),
}

/// Topic of the internal stream that holds the record.
const TOPIC: &str = "offset-storage";

/// Topic of the internal stream that a probe works on; each server has its own.
const PROBE_TOPIC: &str = "offset-probe";

/// First byte of a record. A version that is not known is an error at start.
const VERSION: u8 = 1;

/// First byte of names of groups.
const GROUPS_VERSION: u8 = 2;

/// Names of groups in one record, of at most 255 bytes each.
const GROUPS_PER_RECORD: usize = 500;

/// Attempts to write the record while other gateways start.
const ROUNDS_MAX: usize = 8;

/// What is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) storage: Kept,
    /// Where they are on their way to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moving_to: Option<Kept>,
    /// Where a move left offsets that are still to be cleared away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left_in: Option<Kept>,
}

impl Record {
    /// They are in one place, and nothing else is to be said.
    pub(super) fn at(storage: Kept) -> Self {
        Self { storage, moving_to: None, left_in: None }
    }

    fn is_settled(self) -> bool {
        self.moving_to.is_none() && self.left_in.is_none()
    }
}

/// What a record of the log says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Place(Record),
    /// Groups that a move has to do with, beside those that were named since the last place without a move.
    Groups(Vec<String>),
}

/// The record and its log.
pub(super) struct RecordLog {
    log: StateLog,
    pub(super) record: Option<Record>,
    /// Groups whose consumer offsets a move that is not over found or wrote: those that are ours to clear away.
    pub(super) moved: BTreeSet<String>,
}

impl RecordLog {
    pub(super) async fn open(store: &Arc<dyn Store>, writer: u16) -> Result<Self, StoreError> {
        let (mut record, mut moved, mut broken) = (None, BTreeSet::new(), None);
        let options = StateLogOptions { writer: u64::from(writer), ..StateLogOptions::default() };
        let log = open_log(Arc::clone(store), TOPIC, options, |event| match event {
            StateEvent::Reset => (record, moved) = (None, BTreeSet::new()),
            StateEvent::Record(bytes) => match decode(bytes) {
                Ok(Said::Place(read)) => {
                    if read.is_settled() {
                        moved.clear();
                    }
                    record = Some(read);
                }
                Ok(Said::Groups(groups)) => moved.extend(groups),
                Err(error) => broken = broken.take().or(Some(error)),
            },
        })
        .await?;
        match broken {
            Some(error) => Err(error),
            None => Ok(Self { log, record, moved }),
        }
    }

    /// Writes the record down. False when another gateway wrote in between, and the log has to be opened again.
    pub(super) async fn write(&mut self, record: Record) -> Result<bool, StoreError> {
        let written = self.append(encode(record)?).await?;
        if written {
            self.record = Some(record);
            if record.is_settled() {
                self.moved.clear();
            }
        }
        Ok(written)
    }

    /// Writes down which groups a move has to do with, before it touches them. False as for [`Self::write`].
    pub(super) async fn name(&mut self, groups: BTreeSet<String>) -> Result<bool, StoreError> {
        let new: Vec<String> = groups.into_iter().filter(|group| !self.moved.contains(group)).collect();
        for groups in new.chunks(GROUPS_PER_RECORD) {
            if !self.append(encode_groups(groups)?).await? {
                return Ok(false);
            }
        }
        self.moved.extend(new);
        Ok(true)
    }

    async fn append(&self, bytes: Vec<u8>) -> Result<bool, StoreError> {
        match answered("the record of where offsets are kept", self.log.append(bytes)).await {
            Ok(()) => Ok(true),
            Err(_) if self.log.is_overtaken().await => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn encode(record: Record) -> Result<Vec<u8>, StoreError> {
    json(VERSION, &record)
}

fn encode_groups(groups: &[String]) -> Result<Vec<u8>, StoreError> {
    json(GROUPS_VERSION, groups)
}

fn json(version: u8, value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![version];
    serde_json::to_writer(&mut bytes, value).map_err(|error| broken(&error.to_string()))?;
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<Said, StoreError> {
    let said = match bytes.split_first() {
        Some((&VERSION, json)) => serde_json::from_slice(json).map(Said::Place),
        Some((&GROUPS_VERSION, json)) => serde_json::from_slice(json).map(Said::Groups),
        _ => return Err(broken("it is of another version")),
    };
    said.map_err(|error| broken(&error.to_string()))
}

fn broken(why: &str) -> StoreError {
    StoreError::Broken { context: format!("the record of where offsets are kept cannot be read: {why}") }
}

/// Whether committed offsets were kept in a log before there was a record of it.
pub(super) async fn has_log(store: &Arc<dyn Store>) -> Result<bool, StoreError> {
    let log = answered("the log of offsets", store.topic(INTERNAL_STREAM, OFFSETS_TOPIC)).await?;
    Ok(log.is_some())
}

/// Whether Kafka groups can have consumer offsets in that store.
pub(super) async fn allows(store: &Arc<dyn Store>, instance: u16) -> Result<Result<(), ProbeRefusal>, StoreError> {
    let topic = format!("{PROBE_TOPIC}-{instance}");
    answered("consumer offsets", Box::pin(probe(store.as_ref(), &topic))).await
}

/// Finds out where committed offsets are kept, and writes it down when nobody has yet.
pub(crate) async fn choose(config: &ServerConfig, store: &Arc<dyn Store>) -> Result<Kept, StorageError> {
    let asked = config.offset_storage;
    if store.offset_store().is_none() {
        return match asked {
            OffsetStorage::ConsumerOffsets => Err(StorageError::NotOffered),
            OffsetStorage::Topic | OffsetStorage::Auto => Ok(Kept::Topic),
        };
    }
    for _ in 0..ROUNDS_MAX {
        let mut log = RecordLog::open(store, config.instance_id).await?;
        if let Some(record) = log.record {
            return follow(record, asked, config, store).await;
        }
        let kept = first(asked, config, store).await?;
        if log.write(Record::at(kept)).await? {
            tracing::info!(kept = kept.name(), "it is written down where committed offsets are kept");
            return Ok(kept);
        }
    }
    let reason = "other gateways write down where offsets are kept all the time".to_owned();
    Err(StorageError::Store(StoreError::Busy { reason }))
}

/// What was chosen before, if it is what is asked for.
async fn follow(
    record: Record,
    asked: OffsetStorage,
    config: &ServerConfig,
    store: &Arc<dyn Store>,
) -> Result<Kept, StorageError> {
    let kept = record.storage;
    if let Some(to) = record.moving_to {
        return Err(StorageError::Moving { from: kept, to });
    }
    let asked = match asked {
        OffsetStorage::Auto => kept,
        OffsetStorage::Topic => Kept::Topic,
        OffsetStorage::ConsumerOffsets => Kept::ConsumerOffsets,
    };
    if asked != kept {
        return Err(StorageError::Elsewhere { kept, asked });
    }
    if kept == Kept::ConsumerOffsets {
        // It may be another server by now, or one with other rules: better heard of here than by every consumer.
        allows(store, config.instance_id).await?.map_err(StorageError::Refused)?;
    }
    Ok(kept)
}

/// The choice where there is none yet.
async fn first(asked: OffsetStorage, config: &ServerConfig, store: &Arc<dyn Store>) -> Result<Kept, StorageError> {
    let has_log = has_log(store).await?;
    match asked {
        OffsetStorage::Topic => Ok(Kept::Topic),
        OffsetStorage::Auto if has_log => Ok(Kept::Topic),
        OffsetStorage::ConsumerOffsets if has_log => {
            Err(StorageError::Elsewhere { kept: Kept::Topic, asked: Kept::ConsumerOffsets })
        }
        OffsetStorage::Auto | OffsetStorage::ConsumerOffsets => match allows(store, config.instance_id).await? {
            Ok(()) => Ok(Kept::ConsumerOffsets),
            Err(refusal) if asked == OffsetStorage::Auto => {
                tracing::info!(%refusal, "the server keeps no consumer offsets for Kafka groups; they go into a topic");
                Ok(Kept::Topic)
            }
            Err(refusal) => Err(StorageError::Refused(refusal)),
        },
    }
}

#[cfg(test)]
mod tests {
    use milena_store::TopicSettings;
    use milena_store::testing::{MemoryStore, OffsetFault, OffsetRules};

    use super::*;

    async fn chosen(store: &MemoryStore, asked: OffsetStorage) -> Result<Kept, StorageError> {
        let config = ServerConfig { offset_storage: asked, ..ServerConfig::default() };
        let store: Arc<dyn Store> = Arc::new(store.clone());
        choose(&config, &store).await
    }

    const ALL: [OffsetStorage; 3] = [OffsetStorage::Topic, OffsetStorage::ConsumerOffsets, OffsetStorage::Auto];

    /// What version 1 wrote; it must be readable for ever.
    #[test]
    fn the_stored_form_of_version_1_does_not_change() {
        let kept = Record::at(Kept::Topic);
        let moving = Record { moving_to: Some(Kept::Topic), ..Record::at(Kept::ConsumerOffsets) };
        let moved = Record { left_in: Some(Kept::ConsumerOffsets), ..kept };
        assert_eq!(encode(kept).unwrap(), b"\x01{\"storage\":\"topic\"}");
        assert_eq!(encode(moving).unwrap(), b"\x01{\"storage\":\"consumer-offsets\",\"moving_to\":\"topic\"}");
        assert_eq!(encode(moved).unwrap(), b"\x01{\"storage\":\"topic\",\"left_in\":\"consumer-offsets\"}");
        for record in [kept, moving, moved] {
            assert_eq!(decode(&encode(record).unwrap()), Ok(Said::Place(record)));
        }
        let groups = vec!["a".to_owned(), "b\"".to_owned()];
        assert_eq!(encode_groups(&groups).unwrap(), b"\x02[\"a\",\"b\\\"\"]");
        assert_eq!(decode(&encode_groups(&groups).unwrap()), Ok(Said::Groups(groups)));
        for bytes in
            [&b""[..], b"\x02{\"storage\":\"topic\"}", b"\x03[]", b"\x01{\"storage\":\"elsewhere\"}", b"\x01{}"]
        {
            assert!(matches!(decode(bytes), Err(StoreError::Broken { .. })), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_store_without_consumer_offsets_leaves_no_choice_and_no_record() {
        let store = MemoryStore::new();
        assert_eq!(chosen(&store, OffsetStorage::Topic).await.unwrap(), Kept::Topic);
        assert_eq!(chosen(&store, OffsetStorage::Auto).await.unwrap(), Kept::Topic);
        let error = chosen(&store, OffsetStorage::ConsumerOffsets).await.unwrap_err();
        assert!(matches!(error, StorageError::NotOffered));
        assert!(store.topics().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_first_choice_follows_what_is_asked_for_and_the_probe() {
        let free = || MemoryStore::with_offsets(OffsetRules::Free);
        let strict = || MemoryStore::with_offsets(OffsetRules::MembersOnly);
        assert_eq!(chosen(&free(), OffsetStorage::Topic).await.unwrap(), Kept::Topic);
        assert_eq!(chosen(&free(), OffsetStorage::ConsumerOffsets).await.unwrap(), Kept::ConsumerOffsets);
        assert_eq!(chosen(&free(), OffsetStorage::Auto).await.unwrap(), Kept::ConsumerOffsets);
        assert_eq!(chosen(&strict(), OffsetStorage::Auto).await.unwrap(), Kept::Topic);
        let store = strict();
        let error = chosen(&store, OffsetStorage::ConsumerOffsets).await.unwrap_err().to_string();
        assert!(error.contains("no member of the group") && error.contains("\"topic\""), "{error}");
        assert_eq!(chosen(&store, OffsetStorage::Topic).await.unwrap(), Kept::Topic, "a refusal is no choice");
    }

    #[tokio::test]
    async fn a_choice_that_was_made_is_kept_by_auto_and_another_one_is_an_error_that_says_how_to_move() {
        for (rules, kept) in [(OffsetRules::Free, Kept::ConsumerOffsets), (OffsetRules::MembersOnly, Kept::Topic)] {
            let store = MemoryStore::with_offsets(rules);
            assert_eq!(chosen(&store, OffsetStorage::Auto).await.unwrap(), kept);
            if kept == Kept::Topic {
                store.set_offset_rules(OffsetRules::Free);
            }
            for asked in ALL {
                match (asked, chosen(&store, asked).await) {
                    (_, Ok(found)) => assert_eq!(found, kept),
                    (OffsetStorage::Auto, Err(error)) => panic!("{error}"),
                    (_, Err(error)) => {
                        let other = if kept == Kept::Topic { Kept::ConsumerOffsets } else { Kept::Topic };
                        assert!(
                            error.to_string().contains(&format!("offsets migrate --to {}", other.name())),
                            "{error}"
                        );
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn offsets_from_before_there_was_a_record_are_in_the_topic() {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        store.create_topic(INTERNAL_STREAM, OFFSETS_TOPIC, 1, &TopicSettings::default()).await.unwrap();
        let error = chosen(&store, OffsetStorage::ConsumerOffsets).await.unwrap_err();
        assert!(matches!(error, StorageError::Elsewhere { kept: Kept::Topic, .. }), "{error}");
        assert_eq!(chosen(&store, OffsetStorage::Auto).await.unwrap(), Kept::Topic);
    }

    #[tokio::test]
    async fn a_server_that_no_longer_allows_what_was_chosen_or_does_not_answer_does_not_start() {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        assert!(chosen(&store, OffsetStorage::Auto).await.is_ok());
        store.plan_offsets(OffsetFault::Busy);
        assert!(matches!(chosen(&store, OffsetStorage::Auto).await, Err(StorageError::Store(_))));
        store.set_offset_rules(OffsetRules::BelowEnd);
        for asked in [OffsetStorage::Auto, OffsetStorage::ConsumerOffsets] {
            assert!(matches!(chosen(&store, asked).await, Err(StorageError::Refused(_))));
        }
    }

    #[tokio::test]
    async fn of_two_first_starts_at_once_both_take_one_choice_or_one_fails() {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        let (one, other) = tokio::join!(chosen(&store, OffsetStorage::Auto), chosen(&store, OffsetStorage::Topic));
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!((one, other), (Kept::Topic, Kept::Topic)),
            (one, other) => assert!(one.is_ok() != other.is_ok()),
        }
    }
}
