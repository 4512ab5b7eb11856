//! What the server has no field for: settings as they were asked for, and where partitions were trimmed.
//!
//! Kept as messages in a topic of the internal stream, one JSON object each, and in memory. Every gateway on a server
//! writes and reads the same topic. A record says all there is to say about its subject and the last one counts, so
//! records of several gateways need no agreement: the server's order decides, for all of them alike. A record that is
//! stored twice, or late, says the same thing again.

use std::collections::HashMap;
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
    created_at_micros: u64,
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
    Trim { of: Incarnation, partition: u32, before: u64 },
    /// Nothing of that topic matters any more.
    Gone { of: Incarnation },
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

fn micros(time: Duration) -> u64 {
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
const VERSION: u8 = 1;

impl Record {
    pub(crate) fn settings(topic: &TopicRef, settings: &TopicSettings) -> Self {
        Self::Settings { of: topic.into(), settings: settings.into() }
    }

    pub(crate) fn trim(at: &PartitionRef, before: u64) -> Self {
        Self::Trim { of: (&at.topic).into(), partition: at.partition, before }
    }

    pub(crate) fn gone(topic: &TopicRef) -> Self {
        Self::Gone { of: topic.into() }
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![VERSION];
        serde_json::to_writer(&mut bytes, self).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// From the stored form.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.split_first() {
            Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Some((version, _)) => Err(format!("its version is {version}, this Milena knows version {VERSION}")),
            None => Err("it is empty".to_owned()),
        }
    }
}

/// The records in memory.
#[derive(Debug, Default)]
pub(crate) struct Table {
    settings: HashMap<Incarnation, TopicSettings>,
    trims: HashMap<(Incarnation, u32), u64>,
}

impl Table {
    /// Takes a record in.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record {
            Record::Settings { of, settings } => {
                self.settings.insert(*of, settings.into());
            }
            Record::Trim { of, partition, before: 0 } => {
                self.trims.remove(&(*of, *partition));
            }
            Record::Trim { of, partition, before } => {
                let trim = self.trims.entry((*of, *partition)).or_default();
                *trim = (*trim).max(*before);
            }
            Record::Gone { of } => {
                self.settings.remove(of);
                self.trims.retain(|(topic, _), _| topic != of);
            }
        }
    }

    pub(crate) fn settings(&self, topic: &TopicRef) -> Option<&TopicSettings> {
        self.settings.get(&topic.into())
    }

    pub(crate) fn trim(&self, at: &PartitionRef) -> u64 {
        self.trims.get(&((&at.topic).into(), at.partition)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicRef {
        TopicRef::new("kafka", "orders", 1, 2, 3)
    }

    /// What version 1 wrote; it must be readable for ever.
    #[test]
    fn the_stored_form_of_version_1_does_not_change() {
        let settings = TopicSettings {
            retention: Some(Some(Duration::from_secs(1))),
            retention_bytes: Some(None),
            durability: Some(Durability::Always),
            ..TopicSettings::default()
        };
        let of = r#""of":{"stream_id":1,"topic_id":2,"created_at_micros":3}"#;
        let fixtures = [
            (
                Record::settings(&topic(), &settings),
                format!(
                    r#"{{"op":"settings",{of},"settings":{{"retention":{{"limit":1000000}},"retention_bytes":{{"limit":null}},"durability":"always"}}}}"#
                ),
            ),
            (Record::trim(&topic().partition(7), 9), format!(r#"{{"op":"trim",{of},"partition":7,"before":9}}"#)),
            (Record::gone(&topic()), format!(r#"{{"op":"gone",{of}}}"#)),
        ];
        for (record, json) in fixtures {
            let bytes = [&[1], json.as_bytes()].concat();
            assert_eq!(record.encode().unwrap(), bytes, "{json}");
            assert_eq!(Record::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn settings_come_back_as_they_were() {
        let all = [
            TopicSettings::default(),
            TopicSettings {
                retention: Some(None),
                retention_bytes: Some(Some(7)),
                segment_bytes: Some(1),
                segment_age: Some(Duration::from_millis(5)),
                keep_forever: true,
                durability: Some(Durability::Interval { every: Duration::from_secs(1), bytes: 9 }),
                flush_messages: Some(3),
                flush_every: Some(Duration::from_secs(2)),
            },
        ];
        for settings in all {
            let Ok(Record::Settings { settings: kept, .. }) =
                Record::decode(&Record::settings(&topic(), &settings).encode().unwrap())
            else {
                panic!("another record");
            };
            assert_eq!(TopicSettings::from(&kept), settings);
        }
    }

    #[test]
    fn records_of_a_newer_version_are_an_error_and_not_skipped() {
        assert!(Record::decode(&[2, b'{', b'}']).unwrap_err().contains("version is 2"));
        assert!(Record::decode(&[]).is_err());
        assert!(Record::decode(b"\x01{").is_err());
    }

    #[test]
    fn a_trim_never_moves_back_until_it_is_forgotten() {
        let (mut table, at) = (Table::default(), topic().partition(1));
        for (before, expected) in [(5, 5), (3, 5), (9, 9), (0, 0), (2, 2)] {
            table.apply(&Record::trim(&at, before));
            assert_eq!(table.trim(&at), expected);
        }
        table.apply(&Record::gone(&at.topic));
        assert_eq!(table.trim(&at), 0);
    }
}
