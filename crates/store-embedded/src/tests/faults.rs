//! One thing goes wrong at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use milena_store::{
    Appended, Bounds, Durability, GrowthWatcher, PartitionRef, Store, StoreError, TopicRef, TopicSettings,
};
use parking_lot::Mutex;
use pollster::block_on;

use super::basics::{batch, payloads};
use crate::env::Env;
use crate::fs::Fs;
use crate::fs::faulty::FaultyFs;
use crate::partition::Partition;
use crate::store::Inner;
use crate::{EmbeddedConfig, EmbeddedStore, system_clock};

pub(super) fn open(fs: &FaultyFs, config: &EmbeddedConfig) -> Arc<Inner> {
    let env = Env::new(Arc::new(fs.clone()), PathBuf::from("/data"), config.clone(), system_clock());
    Inner::open_on(env).unwrap()
}

pub(super) fn config(durability: Durability) -> EmbeddedConfig {
    EmbeddedConfig { durability, maintenance_every: None, ..EmbeddedConfig::default() }
}

pub(super) fn create(inner: &Inner) -> (PartitionRef, Arc<Partition>) {
    let at = inner.create("kafka", "t", 1, &TopicSettings::default()).unwrap().topic.partition(0);
    let partition = inner.partition(&at).unwrap();
    (at, partition)
}

fn append(partition: &Arc<Partition>, payload: &[u8]) -> Result<Appended, StoreError> {
    block_on(partition.append(batch(&[payload])))
}

#[test]
fn a_full_device_fails_the_append_and_the_next_one_succeeds_once_there_is_space() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (_, partition) = create(&inner);
    append(&partition, b"first").unwrap();
    let full = fs.used() + 50;
    fs.faults(|faults| faults.capacity = Some(full));
    assert!(matches!(append(&partition, &[7; 100]), Err(StoreError::Full { .. })));
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 1 });
    fs.faults(|faults| faults.capacity = None);
    assert_eq!(append(&partition, b"second").unwrap().base_offset, Some(1));
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::of(inner));
    let at = block_on(store.topic("kafka", "t")).unwrap().unwrap().topic.partition(0);
    assert_eq!(payloads(&store, &at, 0), [&b"first"[..], b"second"]);
}

#[test]
fn after_a_failed_write_nothing_of_it_is_found_at_the_next_start() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (at, partition) = create(&inner);
    append(&partition, b"first").unwrap();
    fs.faults(|faults| faults.write_fails_in = Some(0));
    assert!(matches!(append(&partition, &[7; 100]), Err(StoreError::Broken { .. })));
    drop((inner, partition));
    fs.kill();
    let inner = open(&fs, &config(Durability::Os));
    assert_eq!(inner.partition(&at).unwrap().bounds().end, 1);
}

#[test]
fn after_a_failed_flush_the_partition_refuses_writes_until_it_is_opened_again() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Always));
    let (at, partition) = create(&inner);
    append(&partition, b"first").unwrap();
    fs.faults(|faults| faults.sync_fails_in = Some(0));
    assert!(matches!(append(&partition, b"second"), Err(StoreError::InDoubt { .. })));
    assert_eq!(partition.bounds().end, 1, "what is not on the device is not shown");
    assert!(matches!(append(&partition, b"third"), Err(StoreError::Broken { .. })));
    drop((inner, partition));
    fs.kill();
    let inner = open(&fs, &config(Durability::Always));
    let partition = inner.partition(&at).unwrap();
    let end = partition.bounds().end;
    assert_eq!(append(&partition, b"fourth").unwrap().base_offset, Some(end));
}

#[test]
fn appends_that_wait_share_one_flush() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Always));
    let (_, partition) = create(&inner);
    append(&partition, b"the first one creates the files").unwrap();
    let mut waiting: Vec<_> = (0..50).map(|_| partition.enqueue(batch(&[b"x"]))).collect();
    // The second flush would fail.
    fs.faults(|faults| faults.sync_fails_in = Some(1));
    partition.lead_now();
    let offsets: Vec<u64> =
        waiting.iter_mut().map(|answer| answer.try_recv().unwrap().unwrap().base_offset.unwrap()).collect();
    assert_eq!(offsets, (1..=50).collect::<Vec<u64>>());
}

#[test]
fn a_limit_of_unflushed_messages_is_kept() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let settings = TopicSettings { flush_messages: Some(3), ..TopicSettings::default() };
    let at = inner.create("kafka", "t", 1, &settings).unwrap().topic.partition(0);
    let partition = inner.partition(&at).unwrap();
    for acknowledged in 1..10u64 {
        append(&partition, b"x").unwrap();
        assert_eq!(partition.durable_end(), acknowledged / 3 * 3);
    }
}

#[test]
fn an_interval_flushes_when_its_time_has_come() {
    let fs = FaultyFs::new(1);
    let every = Duration::from_secs(60);
    let inner = open(&fs, &config(Durability::Interval { every, bytes: 1 << 30 }));
    let (_, partition) = create(&inner);
    append(&partition, b"x").unwrap();
    append(&partition, b"y").unwrap();
    let now = Instant::now();
    assert!(inner.env.due.take(now).is_empty());
    assert_eq!(partition.durable_end(), 0);
    let due = inner.env.due.take(now + every);
    assert_eq!(due.len(), 1);
    inner.flush_due(&due);
    assert_eq!(partition.durable_end(), 2);
    append(&partition, b"z").unwrap();
    assert_eq!(inner.env.due.take(Instant::now() + every).len(), 1);
}

#[test]
fn many_partitions_are_flushed_together_and_a_failure_poisons_all_of_them() {
    for fails in [false, true] {
        let fs = FaultyFs::new(1);
        let every = Duration::from_secs(60);
        let inner = open(&fs, &config(Durability::Interval { every, bytes: 1 << 30 }));
        let topic = inner.create("kafka", "t", 20, &TopicSettings::default()).unwrap().topic;
        let partitions: Vec<_> = (0..20).map(|number| inner.partition(&topic.partition(number)).unwrap()).collect();
        for partition in &partitions {
            append(partition, b"x").unwrap();
        }
        fs.faults(|faults| faults.sync_fails_in = Some(u64::from(!fails)));
        inner.flush_due(&inner.env.due.take(Instant::now() + every));
        for partition in &partitions {
            assert_eq!(partition.durable_end(), u64::from(!fails));
            assert_eq!(append(partition, b"y").is_err(), fails);
        }
    }
}

#[test]
fn new_settings_are_in_force_for_the_next_append() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (at, partition) = create(&inner);
    append(&partition, b"x").unwrap();
    assert_eq!(partition.durable_end(), 0);
    let settings = TopicSettings { durability: Some(Durability::Always), ..TopicSettings::default() };
    inner.update(&at.topic, &settings).unwrap();
    append(&partition, b"y").unwrap();
    assert_eq!(partition.durable_end(), 2);
}

#[test]
fn open_files_stay_within_their_bound() {
    let fs = FaultyFs::new(1);
    let small = EmbeddedConfig { segment_bytes: 300, open_files_max: 8, ..config(Durability::Os) };
    let inner = open(&fs, &small);
    let (at, partition) = create(&inner);
    for number in 0..200u8 {
        append(&partition, &[number; 100]).unwrap();
        assert!(inner.env.handles.count() <= 8);
    }
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::of(inner.clone()));
    assert_eq!(payloads(&store, &at, 0).len(), 200);
    assert!(inner.env.handles.count() <= 8);
}

#[test]
fn a_topic_whose_deletion_was_interrupted_is_removed_at_the_next_start() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (at, partition) = create(&inner);
    append(&partition, b"x").unwrap();
    // The catalog is replaced in five changes; the crash comes with the first file.
    fs.faults(|faults| faults.crash_in = Some(5));
    drop(inner.delete(&at.topic));
    drop((inner, partition));
    fs.kill();
    assert!(fs.paths().contains(&PathBuf::from("/data/1/1/0")));
    let inner = open(&fs, &config(Durability::Os));
    assert!(inner.topics().is_empty());
    assert!(!fs.paths().contains(&PathBuf::from("/data/1/1")));
}

#[test]
fn a_catalog_that_cannot_be_written_changes_nothing() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    fs.faults(|faults| faults.write_fails_in = Some(0));
    assert!(inner.create("kafka", "t", 1, &TopicSettings::default()).is_err());
    assert!(inner.topics().is_empty());
    inner.create("kafka", "t", 1, &TopicSettings::default()).unwrap();
}

#[test]
fn a_folder_with_data_and_no_catalog_is_refused() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (_, partition) = create(&inner);
    append(&partition, b"x").unwrap();
    drop((inner, partition));
    fs.kill();
    fs.remove_file(Path::new("/data/catalog")).unwrap();
    let env = Env::new(Arc::new(fs), PathBuf::from("/data"), config(Durability::Os), system_clock());
    let refused = Inner::open_on(env).err().unwrap();
    assert!(refused.to_string().contains("no catalog"), "{refused}");
}

#[derive(Default)]
struct Recorder {
    grown: Mutex<Vec<(u64, usize)>>,
    deleted: AtomicUsize,
}

impl GrowthWatcher for Recorder {
    fn grown(&self, _: &PartitionRef, end: u64, bytes: usize) {
        self.grown.lock().push((end, bytes));
    }

    fn deleted(&self, _: &TopicRef) {
        self.deleted.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_watcher_is_told_of_growth_and_of_deletion() {
    let store = EmbeddedStore::open(&config(Durability::Os)).unwrap();
    let recorder = Arc::new(Recorder::default());
    store.watch(recorder.clone());
    let topic = block_on(store.create_topic("kafka", "t", 1, &TopicSettings::default())).unwrap().topic;
    block_on(store.append(&topic.partition(0), batch(&[b"x", b"y"]))).unwrap();
    block_on(store.delete_topic(&topic)).unwrap();
    assert_eq!(*recorder.grown.lock(), [(2, 66)]);
    assert_eq!(recorder.deleted.load(Ordering::Relaxed), 1);
}
