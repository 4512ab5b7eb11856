//! Reading partitions of the topic, up to their ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::VALUE_BYTES_MAX;
use crate::member::Context;

/// For so long what was read counts as the beginning of the next scan: partitions are assigned, and tried again, in groups. Later the
/// topic might be another one.
const FRESH: Duration = Duration::from_secs(30);

/// What was read of one partition of the topic.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The next offset to read.
    next: i64,
    /// The newest value of each key of the group: as many as the group has partitions with a checkpoint.
    values: HashMap<String, Box<[u8]>>,
    /// When it was complete; `None` for one that is to go on.
    complete: Option<Instant>,
}

impl Scan {
    pub(super) fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|value| &**value)
    }

    /// Where to go on in a log with these ends; from the start when what is known may be of another log.
    fn resume(&mut self, low: i64, high: i64) {
        let stale = self.complete.is_some_and(|at| at.elapsed() > FRESH);
        if stale || self.next > high {
            *self = Self::default();
        }
        self.next = self.next.max(low);
        self.complete = None;
    }

    fn take(&mut self, prefix: &str, record: &impl Message) {
        self.next = self.next.max(record.offset().saturating_add(1));
        let key = record.key().and_then(|key| std::str::from_utf8(key).ok());
        let Some(key) = key.filter(|key| key.starts_with(prefix)) else { return };
        match record.payload().filter(|value| value.len() <= VALUE_BYTES_MAX) {
            Some(value) => self.values.insert(key.to_owned(), value.into()),
            // Longer ones are not ours.
            None => self.values.remove(key),
        };
    }
}

/// Reads these partitions up to where they end now. Answers those that could not be read, and why; what was read of them is kept.
pub(super) fn read(
    client: &BaseConsumer<Context>,
    (topic, prefix): (&str, &str),
    needed: &BTreeSet<i32>,
    scans: &mut BTreeMap<i32, Scan>,
    deadline: Instant,
) -> BTreeMap<i32, String> {
    let mut failures = BTreeMap::new();
    let mut open = BTreeMap::new();
    for &partition in needed {
        let left = deadline.saturating_duration_since(Instant::now());
        match client.fetch_watermarks(topic, partition, left) {
            Ok((low, high)) => {
                let scan = scans.entry(partition).or_default();
                scan.resume(low, high);
                open.insert(partition, high);
            }
            Err(error) => {
                failures.insert(partition, error.to_string());
            }
        }
    }
    open.retain(|partition, high| !scans.get_mut(partition).is_some_and(|scan| ended(scan, *high)));
    if open.is_empty() {
        return failures;
    }
    let mut why = "it takes longer than it may".to_owned();
    if let Err(error) = assign(client, topic, open.keys().filter_map(|at| Some((*at, scans.get(at)?.next)))) {
        why = error.to_string();
    } else {
        while !open.is_empty() && Instant::now() < deadline {
            let (partition, proven) = match client.poll(Duration::from_millis(100)) {
                Some(Ok(record)) => {
                    let partition = record.partition();
                    if let Some(scan) = scans.get_mut(&partition) {
                        scan.take(prefix, &record);
                    }
                    (partition, false)
                }
                // The last offsets may have no records any more.
                Some(Err(KafkaError::PartitionEOF(partition))) => (partition, true),
                Some(Err(error)) => {
                    tracing::debug!("checkpoint topic {topic}: {error}");
                    why = error.to_string();
                    continue;
                }
                None => continue,
            };
            let Some((high, scan)) = open.get(&partition).zip(scans.get_mut(&partition)) else { continue };
            if proven {
                scan.next = scan.next.max(*high);
            }
            if ended(scan, *high) {
                open.remove(&partition);
            }
        }
    }
    failures.extend(open.into_keys().map(|partition| (partition, why.clone())));
    failures
}

fn ended(scan: &mut Scan, high: i64) -> bool {
    if scan.next >= high {
        scan.complete = Some(Instant::now());
    }
    scan.complete.is_some()
}

fn assign(client: &BaseConsumer<Context>, topic: &str, from: impl Iterator<Item = (i32, i64)>) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for (partition, next) in from {
        list.add_partition_offset(topic, partition, Offset::Offset(next))?;
    }
    client.assign(&list)
}
