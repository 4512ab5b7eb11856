//! Reading partitions of the topic, up to their ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use crate::CHECKPOINT_BYTES_MAX;
use crate::delivery::TopicPartition;
use crate::member::{Context, seek};

/// For so long what was read counts as the beginning of the next scan: partitions are assigned, and tried again, in groups. Later the
/// topic might be another one.
const FRESH: Duration = Duration::from_secs(30);

/// How long one look for records may wait.
const LOOK: Duration = Duration::from_millis(100);

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
        match record.payload().filter(|value| value.len() <= CHECKPOINT_BYTES_MAX) {
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
    let mut checked = BTreeSet::new();
    let mut why = "it takes longer than it may".to_owned();
    if let Err(error) = assign(client, topic, open.keys().filter_map(|at| Some((*at, scans.get(at)?.next)))) {
        why = error.to_string();
    } else {
        while !open.is_empty() && Instant::now() < deadline {
            let (partition, proven) = match client.poll(LOOK) {
                Some(Ok(record)) => {
                    let partition = record.partition();
                    if let Some(scan) = scans.get_mut(&partition) {
                        scan.take(prefix, &record);
                    }
                    (partition, false)
                }
                // The last offsets may have no records any more. But a broker that has just become the leader may name an end below
                // the one that was asked for, so the first report is a reason to ask again, and the next one is believed.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    let known = checked.contains(&partition);
                    if !known && let Some((high, scan)) = open.get(&partition).zip(scans.get(&partition)) {
                        let left = deadline.saturating_duration_since(Instant::now());
                        match client.fetch_watermarks(topic, partition, left) {
                            Ok((_, end)) if end >= *high => drop(checked.insert(partition)),
                            _ => std::thread::sleep(LOOK),
                        }
                        if let Err(error) = seek(client, &TopicPartition::new(topic, partition), scan.next) {
                            why = error.to_string();
                        }
                    }
                    (partition, known)
                }
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

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    use super::*;

    const PREFIX: &str = "cu1/1/g/";

    fn record(offset: i64, key: &str, value: Option<&str>) -> OwnedMessage {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let time = Timestamp::NotAvailable;
        OwnedMessage::new(value.map(bytes), Some(bytes(key)), "progress".to_owned(), time, 0, offset, None)
    }

    fn scanned() -> Scan {
        let mut scan = Scan::default();
        scan.resume(0, 10);
        scan.take(PREFIX, &record(2, "cu1/1/g/orders/0", Some("one")));
        scan.take(PREFIX, &record(3, "cu1/1/h/orders/0", Some("another group's")));
        scan.take(PREFIX, &record(5, "cu1/1/g/orders/1", Some("two")));
        scan
    }

    #[test]
    fn a_scan_that_was_cut_off_goes_on_where_it_was() {
        let mut scan = scanned();
        assert!(!ended(&mut scan, 10));
        scan.resume(0, 12);
        assert_eq!((scan.next, scan.value("cu1/1/g/orders/0")), (6, Some(&b"one"[..])));
        scan.take(PREFIX, &record(11, "cu1/1/g/orders/0", None));
        assert!(ended(&mut scan, 12));
        assert_eq!((scan.value("cu1/1/g/orders/0"), scan.values.len()), (None, 1), "removed, and nothing of others");
    }

    #[test]
    fn retention_moves_a_scan_on_and_another_log_or_time_begins_it_again() {
        let mut scan = scanned();
        scan.resume(8, 12);
        assert_eq!((scan.next, scan.values.len()), (8, 2));
        scan.resume(0, 7);
        assert_eq!((scan.next, scan.values.len()), (0, 0), "the log is shorter: another one");
        let mut old = scanned();
        old.complete = Instant::now().checked_sub(FRESH * 2);
        assert!(old.complete.is_some());
        old.resume(0, 10);
        assert_eq!((old.next, old.values.len(), old.complete), (0, 0, None));
    }
}
