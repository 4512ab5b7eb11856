//! Records of what the server has no field for: settings as they were asked for, where partitions were trimmed, where
//! their ends were, and where these moved back.
//!
//! Kept as messages in a topic of the internal stream, one JSON object each, and in memory. Every gateway on a server
//! writes and reads the same topic. The same records in the same order make the same table, so records of several
//! gateways need no agreement: the server's order decides, for all of them alike. A record that is stored twice says the
//! same thing again, and one of an epoch that is over says nothing.

use std::time::Duration;

use milena_store::{Durability, PartitionRef, TopicRef, TopicSettings};
use serde::{Deserialize, Serialize};

/// Topic of the internal stream that holds the records.
pub(crate) const TOPIC: &str = "engine";

/// One incarnation of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Incarnation {
    stream_id: u32,
    topic_id: u32,
    pub(crate) created_at_micros: u64,
}

impl From<&TopicRef> for Incarnation {
    fn from(topic: &TopicRef) -> Self {
        Self { stream_id: topic.stream_id(), topic_id: topic.topic_id(), created_at_micros: topic.created_at_micros() }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The settings that were asked for, in place of all that were before.
    Settings { of: Incarnation, settings: Kept },
    /// Where a partition begins; 0 forgets it.
    Trim {
        of: Incarnation,
        partition: u32,
        before: u64,
        /// The epoch of the messages that it is about.
        #[serde(default, skip_serializing_if = "is_zero")]
        epoch: u32,
    },
    /// Nothing of that topic matters any more.
    Gone { of: Incarnation },
    /// The end of a partition moved back to `start`, and what comes behind is of this epoch.
    Epoch { of: Incarnation, partition: u32, epoch: u32, start: u64 },
    /// Ends that partitions had: partition, epoch, end.
    Ends { of: Incarnation, ends: Vec<(u32, u32, u64)> },
    /// Whoever may remove old segments of a partition for a while.
    Claim {
        of: Incarnation,
        partition: u32,
        by: u64,
        /// When it was appended, in the server's time; only in a snapshot, elsewhere the message says it.
        #[serde(default, skip_serializing_if = "is_zero_long")]
        at_micros: u64,
    },
    /// One of `parts` neighbours that say together what all records below offset `covers` say.
    Snapshot { id: u64, covers: u64, part: u32, parts: u32, records: Vec<Self> },
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_long(number: &u64) -> bool {
    *number == 0
}

/// Settings in their stored form. Times are microseconds; a limit that is absent is the server's, one that is `null`
/// within its object is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_age: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keep_forever: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<KeptDurability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_every: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Limit {
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptDurability {
    Os,
    Interval { every: u64, bytes: u64 },
    Always,
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl From<&TopicSettings> for Kept {
    fn from(settings: &TopicSettings) -> Self {
        Self {
            retention: settings.retention.map(|limit| Limit { limit: limit.map(micros) }),
            retention_bytes: settings.retention_bytes.map(|limit| Limit { limit }),
            segment_bytes: settings.segment_bytes,
            segment_age: settings.segment_age.map(micros),
            keep_forever: settings.keep_forever,
            durability: settings.durability.map(|durability| match durability {
                Durability::Os => KeptDurability::Os,
                Durability::Interval { every, bytes } => KeptDurability::Interval { every: micros(every), bytes },
                Durability::Always => KeptDurability::Always,
            }),
            flush_messages: settings.flush_messages,
            flush_every: settings.flush_every.map(micros),
        }
    }
}

impl From<&Kept> for TopicSettings {
    fn from(kept: &Kept) -> Self {
        let time = Duration::from_micros;
        Self {
            retention: kept.retention.map(|limit| limit.limit.map(time)),
            retention_bytes: kept.retention_bytes.map(|limit| limit.limit),
            segment_bytes: kept.segment_bytes,
            segment_age: kept.segment_age.map(time),
            keep_forever: kept.keep_forever,
            durability: kept.durability.map(|durability| match durability {
                KeptDurability::Os => Durability::Os,
                KeptDurability::Interval { every, bytes } => Durability::Interval { every: time(every), bytes },
                KeptDurability::Always => Durability::Always,
            }),
            flush_messages: kept.flush_messages,
            flush_every: kept.flush_every.map(time),
        }
    }
}

/// First byte of every record; one that is not known is an error, since skipping it could show what was trimmed.
const VERSION: u8 = 2;
/// That of records which a Milena that knows no epochs reads too.
const FIRST_VERSION: u8 = 1;

impl Record {
    pub(crate) fn settings(topic: &TopicRef, settings: &TopicSettings) -> Self {
        Self::Settings { of: topic.into(), settings: settings.into() }
    }

    pub(crate) fn trim(at: &PartitionRef, before: u64, epoch: u32) -> Self {
        Self::Trim { of: (&at.topic).into(), partition: at.partition, before, epoch }
    }

    pub(crate) fn epoch(at: &PartitionRef, epoch: u32, start: u64) -> Self {
        Self::Epoch { of: (&at.topic).into(), partition: at.partition, epoch, start }
    }

    pub(crate) fn ends(topic: &TopicRef, ends: Vec<(u32, u32, u64)>) -> Self {
        Self::Ends { of: topic.into(), ends }
    }

    pub(crate) fn claim(at: &PartitionRef, by: u64) -> Self {
        Self::Claim { of: (&at.topic).into(), partition: at.partition, by, at_micros: 0 }
    }

    /// The topic of whose partitions it says something.
    pub(crate) fn marks_of(&self) -> Option<Incarnation> {
        match self {
            Self::Trim { of, .. } | Self::Epoch { of, .. } | Self::Ends { of, .. } => Some(*of),
            Self::Settings { .. } | Self::Gone { .. } | Self::Claim { .. } | Self::Snapshot { .. } => None,
        }
    }

    pub(crate) fn gone(topic: &TopicRef) -> Self {
        Self::Gone { of: topic.into() }
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let version = match self {
            Self::Settings { .. } | Self::Gone { .. } | Self::Trim { epoch: 0, .. } => FIRST_VERSION,
            _ => VERSION,
        };
        let mut bytes = vec![version];
        serde_json::to_writer(&mut bytes, self).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// From the stored form.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&(FIRST_VERSION | VERSION), json)) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Some((version, _)) => Err(format!("its version is {version}, this Milena knows version {VERSION}")),
            None => Err("it is empty".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
