//! The catalog: streams, topics, their settings and numbers, in one small file that is replaced as a whole.
//!
//! The file is a line `milena-catalog 1 <CRC-32C of the rest, hex>`, then JSON. Numbers of streams and topics are
//! never given twice, so that nothing of a deleted topic is ever taken for another one's.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use milena_store::{Durability, PartitionId, StoreError, TopicInfo, TopicRef, TopicSettings};
use serde::{Deserialize, Serialize};

use crate::fault::failed;
use crate::format::crc32c;
use crate::fs::{Fs, ReplaceError, read_small, replace_small};

pub(crate) const NAME: &str = "catalog";
const HEAD: &str = "milena-catalog 1 ";
/// Far more than a catalog of a million topics.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What the store consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Catalog {
    next_stream: u32,
    next_topic: u32,
    streams: Vec<Stream>,
    topics: Vec<Topic>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stream {
    id: u32,
    name: String,
}

/// The offset behind the last message that a partition ever had.
pub(crate) type Ended = BTreeMap<PartitionId, u64>;

/// A topic as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Topic {
    id: u32,
    stream: u32,
    name: String,
    created_at_micros: u64,
    partitions: u32,
    /// Where partitions ended that were taken away: one that is added again under the number begins there, for ever.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ended: Ended,
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    settings: Settings,
}

/// [`TopicSettings`] as stored; times in microseconds. A missing field is the store's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Settings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    retention_unlimited: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    retention_bytes_unlimited: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segment_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segment_age_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    keep_forever: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durability: Option<StoredDurability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flush_messages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flush_every_micros: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredDurability {
    Os,
    Interval { every_micros: u64, bytes: u64 },
    Always,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Settings {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(settings: &TopicSettings) -> Self {
        let micros = |duration: Duration| crate::config::micros(duration);
        Self {
            retention_micros: settings.retention.flatten().map(micros),
            retention_unlimited: settings.retention == Some(None),
            retention_bytes: settings.retention_bytes.flatten(),
            retention_bytes_unlimited: settings.retention_bytes == Some(None),
            segment_bytes: settings.segment_bytes,
            segment_age_micros: settings.segment_age.map(micros),
            keep_forever: settings.keep_forever,
            durability: settings.durability.map(|durability| match durability {
                Durability::Os => StoredDurability::Os,
                Durability::Interval { every, bytes } => {
                    StoredDurability::Interval { every_micros: micros(every), bytes }
                }
                Durability::Always => StoredDurability::Always,
            }),
            flush_messages: settings.flush_messages,
            flush_every_micros: settings.flush_every.map(micros),
        }
    }

    fn read(&self) -> TopicSettings {
        let limit = |value: Option<u64>, unlimited: bool| if unlimited { Some(None) } else { value.map(Some) };
        TopicSettings {
            retention: limit(self.retention_micros, self.retention_unlimited)
                .map(|retention| retention.map(Duration::from_micros)),
            retention_bytes: limit(self.retention_bytes, self.retention_bytes_unlimited),
            segment_bytes: self.segment_bytes,
            segment_age: self.segment_age_micros.map(Duration::from_micros),
            keep_forever: self.keep_forever,
            durability: self.durability.map(|durability| match durability {
                StoredDurability::Os => Durability::Os,
                StoredDurability::Interval { every_micros, bytes } => {
                    Durability::Interval { every: Duration::from_micros(every_micros), bytes }
                }
                StoredDurability::Always => Durability::Always,
            }),
            flush_messages: self.flush_messages,
            flush_every: self.flush_every_micros.map(Duration::from_micros),
        }
    }
}

impl Catalog {
    /// The stored catalog; `None` when the folder has none.
    pub(crate) fn load(fs: &dyn Fs, root: &Path) -> Result<Option<Self>, StoreError> {
        let path = root.join(NAME);
        let content = read_small(fs, &path, BYTES_MAX);
        let content = content.map_err(|error| failed(format_args!("reading {}", path.display()), &error))?;
        let Some(content) = content else { return Ok(None) };
        let broken = |what: String| StoreError::Broken { context: format!("{}: {what}", path.display()) };
        let body = checked_body(&content).ok_or_else(|| broken("the checksum of the catalog is wrong".to_owned()))?;
        serde_json::from_slice(body).map(Some).map_err(|error| broken(error.to_string()))
    }

    /// Stores the catalog durably.
    pub(crate) fn save(&self, fs: &dyn Fs, root: &Path) -> Result<(), ReplaceError> {
        let body = serde_json::to_vec(self).map_err(|error| ReplaceError::Before(error.into()))?;
        let mut content = format!("{HEAD}{:08x}\n", crc32c(&[&body])).into_bytes();
        content.extend_from_slice(&body);
        replace_small(fs, root, NAME, &content)
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = TopicInfo> + '_ {
        self.topics.iter().map(|topic| {
            let stream = self.streams.iter().find(|stream| stream.id == topic.stream);
            let stream_name = stream.map_or("", |stream| stream.name.as_str());
            TopicInfo {
                topic: TopicRef::new(stream_name, &topic.name, topic.stream, topic.id, topic.created_at_micros),
                partitions: topic.partitions,
                settings: topic.settings.read(),
            }
        })
    }

    /// Adds a topic, and its stream when that is missing. The caller made sure that the name is free.
    pub(crate) fn add(
        &mut self,
        stream: &str,
        topic: &str,
        partitions: u32,
        settings: &TopicSettings,
        created_at_micros: u64,
    ) -> TopicInfo {
        let stream_id = match self.streams.iter().find(|known| known.name == stream) {
            Some(known) => known.id,
            None => {
                self.next_stream += 1;
                self.streams.push(Stream { id: self.next_stream, name: stream.to_owned() });
                self.next_stream
            }
        };
        self.next_topic += 1;
        self.topics.push(Topic {
            id: self.next_topic,
            stream: stream_id,
            name: topic.to_owned(),
            created_at_micros,
            partitions,
            ended: Ended::default(),
            settings: Settings::of(settings),
        });
        TopicInfo {
            topic: TopicRef::new(stream, topic, stream_id, self.next_topic, created_at_micros),
            partitions,
            settings: Settings::of(settings).read(),
        }
    }

    pub(crate) fn remove(&mut self, topic: &TopicRef) {
        self.topics.retain(|known| known.id != topic.topic_id());
    }

    pub(crate) fn set_partitions(&mut self, topic: &TopicRef, partitions: u32) {
        if let Some(known) = self.find(topic) {
            known.partitions = partitions;
        }
    }

    /// Takes away the partitions from `partitions` on; `ends` are their last words.
    pub(crate) fn shrink(&mut self, topic: &TopicRef, partitions: u32, ends: &[(PartitionId, u64)]) {
        if let Some(known) = self.find(topic) {
            known.partitions = partitions;
            known.ended.extend(ends.iter().copied());
        }
    }

    /// Where partitions of a topic ended that were taken away.
    pub(crate) fn ended(&self, topic: &TopicRef) -> Ended {
        let known = self.topics.iter().find(|known| known.id == topic.topic_id());
        known.map_or_else(Ended::default, |known| known.ended.clone())
    }

    /// [`Self::ended`] of every topic that lost partitions, by its number.
    pub(crate) fn all_ended(&self) -> BTreeMap<u32, Ended> {
        let shrunk = self.topics.iter().filter(|known| !known.ended.is_empty());
        shrunk.map(|known| (known.id, known.ended.clone())).collect()
    }

    /// Renames a topic; the caller made sure that the name is free.
    pub(crate) fn rename_topic(&mut self, topic: &TopicRef, name: &str) {
        if let Some(known) = self.find(topic) {
            name.clone_into(&mut known.name);
        }
    }

    /// Renames the stream of that number; the caller made sure that no stream of the name has topics.
    pub(crate) fn rename_stream(&mut self, id: u32, name: &str) {
        self.streams.retain(|known| known.name != name);
        if let Some(known) = self.streams.iter_mut().find(|known| known.id == id) {
            name.clone_into(&mut known.name);
        }
    }

    pub(crate) fn set_settings(&mut self, topic: &TopicRef, settings: &TopicSettings) {
        if let Some(known) = self.find(topic) {
            known.settings = Settings::of(settings);
        }
    }

    fn find(&mut self, topic: &TopicRef) -> Option<&mut Topic> {
        self.topics.iter_mut().find(|known| known.id == topic.topic_id())
    }
}

fn checked_body(content: &[u8]) -> Option<&[u8]> {
    let rest = content.strip_prefix(HEAD.as_bytes())?;
    let (crc, body) = rest.split_at_checked(8)?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    let body = body.strip_prefix(b"\n")?;
    (crc32c(&[body]) == crc).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::MemoryFs;

    fn settings() -> TopicSettings {
        TopicSettings {
            retention: Some(None),
            retention_bytes: Some(Some(7)),
            segment_bytes: Some(1000),
            segment_age: Some(Duration::from_secs(3)),
            keep_forever: true,
            durability: Some(Durability::Interval { every: Duration::from_millis(5), bytes: 9 }),
            flush_messages: Some(1),
            flush_every: Some(Duration::from_secs(1)),
        }
    }

    #[test]
    fn a_stored_catalog_reads_back_with_all_settings() {
        let fs = MemoryFs::default();
        let root = Path::new("/data");
        fs.create_root(root).unwrap();
        assert_eq!(Catalog::load(&fs, root).unwrap(), None);
        let mut catalog = Catalog::default();
        catalog.add("kafka", "one", 3, &settings(), 11);
        let two = catalog.add("kafka", "two", 4, &TopicSettings::default(), 12);
        catalog.shrink(&two.topic, 2, &[(2, 7), (3, 0)]);
        catalog.save(&fs, root).unwrap();
        let loaded = Catalog::load(&fs, root).unwrap().unwrap();
        assert_eq!(loaded, catalog);
        let topics: Vec<TopicInfo> = loaded.topics().collect();
        assert_eq!(topics[0].settings, settings());
        assert_eq!(topics[1].settings, TopicSettings::default());
        assert_eq!(loaded.ended(&two.topic), Ended::from([(2, 7), (3, 0)]));
        assert_eq!(loaded.all_ended(), BTreeMap::from([(two.topic.topic_id(), loaded.ended(&two.topic))]));
    }

    #[test]
    fn the_number_of_a_deleted_topic_is_not_given_again() {
        let mut catalog = Catalog::default();
        let first = catalog.add("kafka", "one", 1, &TopicSettings::default(), 1);
        catalog.remove(&first.topic);
        let second = catalog.add("kafka", "one", 1, &TopicSettings::default(), 1);
        assert_ne!(first.topic.topic_id(), second.topic.topic_id());
    }

    #[test]
    fn a_damaged_catalog_is_refused() {
        let fs = MemoryFs::default();
        let root = Path::new("/data");
        fs.create_root(root).unwrap();
        let mut catalog = Catalog::default();
        catalog.add("kafka", "one", 3, &settings(), 11);
        catalog.save(&fs, root).unwrap();
        let file = fs.open(&root.join(NAME), crate::fs::Access::Write).unwrap();
        file.write_at(&[b"x"], 60).unwrap();
        assert!(matches!(Catalog::load(&fs, root), Err(StoreError::Broken { .. })));
    }
}
