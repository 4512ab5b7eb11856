//! One change of the table, and its stored form: a version byte, then JSON.

use milena_store::TopicRef;
use serde::{Deserialize, Serialize};

/// A version that is not known is an error at start: skipping what a newer Milena wrote would lose it.
const VERSION: u8 = 1;

/// One incarnation of a topic, as the store numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Incarnation {
    #[serde(rename = "s")]
    stream_id: u32,
    #[serde(rename = "t")]
    topic_id: u32,
    #[serde(rename = "c")]
    created_at_micros: u64,
}

impl Incarnation {
    pub(crate) fn of(topic: &TopicRef) -> Self {
        Self { stream_id: topic.stream_id(), topic_id: topic.topic_id(), created_at_micros: topic.created_at_micros() }
    }
}

/// Who an offset is stored for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConsumerKey {
    /// A plain consumer by number, or by the hash of its name.
    Number(u32),
    /// A plain consumer by name.
    Name(String),
    /// A consumer group by number.
    Group(u32),
    /// A consumer group by name, which need not exist.
    GroupName(String),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Record {
    /// There is a stream of this number and name.
    Stream { id: u32, name: String, created_at_micros: u64 },
    /// There is no stream of this number.
    DropStream { id: u32 },
    /// The stream of this number is about to get this name. It has it once a topic under the store's number `of` is found in
    /// a stream of that name; a [`Record::Stream`] ends the matter either way.
    Rename { id: u32, name: String, of: u32 },
    /// There is a consumer group of this number and name.
    Group { of: Incarnation, id: u32, name: String },
    /// There is no group of this number; its offsets go with it.
    DropGroup { of: Incarnation, id: u32 },
    /// The next group of that topic has this number or a higher one.
    NextGroup { of: Incarnation, id: u32 },
    /// That consumer has read up to this offset; `None` forgets it.
    Offset { of: Incarnation, partition: u32, who: ConsumerKey, offset: Option<u64> },
    /// All consumer offsets of that topic are gone.
    DropOffsets { of: Incarnation },
    /// Those partitions ended there, by number, when the door opened: offsets of messages from there on are those of the last
    /// one, and where there was none they are gone.
    Ends { of: Incarnation, ends: Vec<(u32, u64)> },
    /// That topic has no partitions from this one on.
    DropPartitions { of: Incarnation, from: u32 },
    /// The topic is gone.
    Forget { of: Incarnation },
    /// There is a token of this name; `hash` is the SHA-256 of the token in hexadecimal.
    Token { name: String, hash: String, expires_at_micros: Option<u64> },
    /// The password that was made up has this SHA-256.
    Password { hash: String },
    /// There is no token of this name.
    DropToken { name: String },
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        // Maps with text keys and numbers: there is nothing that could fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Some((version, _)) => Err(format!("version {version} is of a newer Milena")),
            None => Err("it is empty".to_owned()),
        }
    }
}
