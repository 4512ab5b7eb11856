//! Checkpoints in a topic of their own, the newest of each key: for brokers that do not keep the metadata of committed offsets.
//!
//! | Part of a record | Content |
//! | --- | --- |
//! | key | `cu1/<bytes of the group's name>/<group>/<topic>/<partition>`: a group's name may have slashes, and its length says where it ends |
//! | value | [`Progress`] in its written form (format, log, floor, ranges, checksum); none when the checkpoint is removed |
//! | partition | CRC-32 of the key modulo the number of partitions, as librdkafka's partitioner `consistent` has it |
//!
//! The `floor` of a checkpoint is the last floor that its writer knew to be committed.

mod admin;
mod produce;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;

use super::CheckpointStore;
use crate::delivery::TopicPartition;
use crate::member::Context;
use crate::{CHECKPOINT_BYTES_MAX, Error, Progress};

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the question for the topic's policy may take, which is only for a warning.
const POLICY_PATIENCE: Duration = Duration::from_secs(2);

/// How often a topic that was just made is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What only consumers have, by the beginnings of the names: a producer would complain of it, and checkpoints are read otherwise.
const OF_CONSUMERS: [&str; 20] = [
    "allow.auto.create.topics",
    "auto.commit.",
    "auto.offset.reset",
    "check.crcs",
    // A follower that lags would end before the newest checkpoint (KIP-392).
    "client.rack",
    "consume.",
    "coordinator.query.",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.",
    "offset.store.",
    "partition.assignment.strategy",
    "queued.",
    "session.timeout.ms",
    "transactional.id",
];

/// Checkpoints of one group in a compacted topic.
///
/// A load reads the partitions of the topic that its keys belong to, up to their ends at that moment, and keeps what belongs to the
/// group. It may take 10 s; a load that takes longer fails, and the next one goes on where it ended. A topic that does not exist is
/// made by the first load: compacted, three partitions, as many replicas as the brokers have for default.
///
/// Partitions must not be added to the topic: keys would move to others, and what was stored before would be forgotten.
pub struct TopicStore {
    /// Without what makes a client a member or a consumer.
    config: ClientConfig,
    topic: String,
    /// What the keys of the group begin with.
    prefix: String,
    /// A topic that is missing is made.
    makes: bool,
    /// Of the topic, as the last load found it; 0 before.
    partitions: AtomicI32,
    scans: Mutex<BTreeMap<i32, scan::Scan>>,
    producer: Mutex<Option<produce::Producer>>,
    /// Its policy was asked for.
    looked: AtomicBool,
    compacted: Mutex<Option<bool>>,
}

impl TopicStore {
    /// A store for the group in `config` (a consumer's configuration) in that topic. Nothing is asked of the broker yet.
    ///
    /// # Errors
    /// [`Error::Setting`] without a group or with an empty name.
    pub fn new(config: &ClientConfig, topic: &str) -> Result<Self, Error> {
        let wrong = |setting, reason: &str| Error::Setting { setting, reason: reason.to_owned() };
        let group = config.get("group.id").filter(|group| !group.is_empty());
        let group = group.ok_or_else(|| wrong("group.id", "is needed"))?;
        if topic.is_empty() {
            return Err(wrong("checkpoint", "the topic needs a name"));
        }
        let mut clients = config.clone();
        for (key, _) in config.config_map() {
            if OF_CONSUMERS.iter().any(|of| key.starts_with(of)) {
                clients.remove(key);
            }
        }
        clients.set("client.id", format!("{}.checkpoint", config.get("client.id").unwrap_or("rdkafka")));
        Ok(Self {
            config: clients,
            topic: topic.to_owned(),
            prefix: format!("cu1/{}/{group}/", group.len()),
            makes: true,
            partitions: AtomicI32::new(0),
            scans: Mutex::default(),
            producer: Mutex::default(),
            looked: AtomicBool::new(false),
            compacted: Mutex::default(),
        })
    }

    /// For a look from outside: a topic that is missing stays missing.
    pub(crate) fn looking(config: &ClientConfig, topic: &str) -> Result<Self, Error> {
        Ok(Self { makes: false, ..Self::new(config, topic)? })
    }

    /// Whether the topic is compacted; `None` before the first load, and where the broker does not tell. One that is not works too: it
    /// grows, and what its retention takes away is forgotten.
    #[must_use]
    pub fn compacted(&self) -> Option<bool> {
        *self.compacted.lock()
    }

    fn key(&self, of: &TopicPartition) -> String {
        format!("{}{}/{}", self.prefix, of.topic, of.partition)
    }

    /// A client that reads, and is no member of a group.
    fn reader(&self) -> Result<BaseConsumer<Context>, Error> {
        let mut config = self.config.clone();
        config
            // librdkafka wants a group, and never asks for it: nothing is subscribed to or committed.
            .set("group.id", format!("{}checkpoint", self.prefix))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("allow.auto.create.topics", "false")
            // Checkpoints are in no transaction, and somebody else's open one must not hide them.
            .set("isolation.level", "read_uncommitted")
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "8192");
        Ok(config.create_with_context(Context::new())?)
    }

    /// The number of partitions. Makes the topic where it is missing.
    fn prepare(&self, client: &BaseConsumer<Context>, deadline: Instant) -> Result<i32, Error> {
        let mut made = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let metadata = client.fetch_metadata(Some(&self.topic), left)?;
            let found = metadata.topics().iter().find(|topic| topic.name() == self.topic);
            match found.map(|topic| (topic.error().map(RDKafkaErrorCode::from), topic.partitions().len())) {
                Some((None, count @ 1..)) => {
                    self.look_at_policy(made, left);
                    let count = i32::try_from(count).unwrap_or(i32::MAX);
                    self.partitions.store(count, Ordering::Relaxed);
                    return Ok(count);
                }
                None | Some((Some(RDKafkaErrorCode::UnknownTopicOrPartition), _)) if !self.makes => {
                    return Err(self.failed("there is none of this name"));
                }
                None | Some((Some(RDKafkaErrorCode::UnknownTopicOrPartition), _)) if !made => {
                    admin::create(&self.config, &self.topic, left)?;
                    made = true;
                }
                // It is on its way.
                None
                | Some((
                    None | Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::LeaderNotAvailable),
                    _,
                )) => {}
                Some((Some(code), _)) => return Err(self.failed(&format!("{code}"))),
            }
            if deadline <= Instant::now() {
                return Err(self.failed("it is not there in time"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Once: is it compacted?
    fn look_at_policy(&self, made: bool, within: Duration) {
        if self.looked.swap(true, Ordering::Relaxed) {
            return;
        }
        if made {
            *self.compacted.lock() = Some(true);
            return;
        }
        match admin::is_compacted(&self.config, &self.topic, within.min(POLICY_PATIENCE)) {
            Ok(true) => *self.compacted.lock() = Some(true),
            Ok(false) => {
                *self.compacted.lock() = Some(false);
                tracing::warn!("the checkpoint topic {} is not compacted: it grows, or forgets", self.topic);
            }
            Err(error) => tracing::debug!("configuration of {}: {error}", self.topic),
        }
    }

    fn failed(&self, why: &str) -> Error {
        Error::Checkpoint(format!("topic {}: {why}", self.topic))
    }

    fn load_all(&self, partitions: &[TopicPartition]) -> Result<Vec<Result<Option<Progress>, Error>>, Error> {
        let deadline = Instant::now() + PATIENCE;
        let client = self.reader()?;
        let count = self.prepare(&client, deadline)?;
        let keys: Vec<_> = partitions.iter().map(|partition| self.key(partition)).collect();
        let needed: BTreeSet<_> = keys.iter().map(|key| place(key, count)).collect();
        let mut scans = self.scans.lock();
        let failures = scan::read(&client, (&self.topic, &self.prefix), &needed, &mut scans, deadline);
        let answer = |key: &String| {
            let at = place(key, count);
            if let Some(why) = failures.get(&at) {
                return Err(self.failed(&format!("partition {at}: {why}")));
            }
            Ok(scans.get(&at).and_then(|scan| scan.value(key)).and_then(|value| self.read_value(key, value)))
        };
        Ok(keys.iter().map(answer).collect())
    }

    /// Something else than a checkpoint counts as none, as it does in the metadata of an offset.
    fn read_value(&self, key: &str, value: &[u8]) -> Option<Progress> {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let read = Progress::decode(text);
        if let Err(why) = &read {
            tracing::warn!("topic {}, key {key}: {why}", self.topic);
        }
        read.ok()
    }

    fn write<'a>(
        &self,
        what: impl Iterator<Item = (&'a TopicPartition, Option<&'a Progress>)>,
    ) -> Vec<Result<(), Error>> {
        let count = self.partitions.load(Ordering::Relaxed);
        let records = what.map(|(partition, checkpoint)| {
            let key = self.key(partition);
            let value = checkpoint.map(|checkpoint| {
                let encoded = checkpoint.encode_always(CHECKPOINT_BYTES_MAX);
                if encoded.dropped > 0 {
                    tracing::warn!("checkpoint of {partition}: {} ranges do not fit", encoded.dropped);
                }
                encoded.metadata
            });
            produce::Record { partition: place(&key, count), key, value }
        });
        let records: Vec<_> = records.collect();
        if count == 0 {
            return records.iter().map(|_| Err(self.failed("nothing was loaded from it yet"))).collect();
        }
        let mut producer = self.producer.lock();
        if producer.as_ref().is_some_and(produce::Producer::is_dead) {
            *producer = None;
        }
        let made = match producer.take() {
            Some(made) => Ok(made),
            None => produce::Producer::create(&self.config, PATIENCE),
        };
        match made {
            Ok(made) => producer.insert(made).send(&self.topic, &records),
            Err(error) => records.iter().map(|_| Err(Error::Client(error.clone()))).collect(),
        }
    }
}

/// The partition that a key belongs to.
fn place(key: &str, partitions: i32) -> i32 {
    let hash = crc_fast::crc32_iso_hdlc(key.as_bytes());
    let partitions = u32::try_from(partitions).unwrap_or(1).max(1);
    i32::try_from(hash % partitions).unwrap_or(0)
}

impl CheckpointStore for TopicStore {
    fn load(&self, partitions: &[TopicPartition]) -> Vec<Result<Option<Progress>, Error>> {
        self.load_all(partitions).unwrap_or_else(|error| partitions.iter().map(|_| Err(error.clone())).collect())
    }

    fn save(&self, checkpoints: &[(TopicPartition, Progress)]) -> Vec<Result<(), Error>> {
        self.write(checkpoints.iter().map(|(partition, checkpoint)| (partition, Some(checkpoint))))
    }

    fn clear(&self, partitions: &[TopicPartition]) -> Vec<Result<(), Error>> {
        self.write(partitions.iter().map(|partition| (partition, None)))
    }
}
