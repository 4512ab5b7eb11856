//! Searches by time, trimming and retention.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milena_store::{Bounds, Found, PartitionRef, Store, StoreError, TimeKind, TopicSettings};
use pollster::block_on;

use super::basics::{ALL, batch, payloads, timed};
use crate::{Clock, EmbeddedConfig, EmbeddedStore, open};

/// A store with a clock that the test moves.
struct Fixture {
    store: Arc<EmbeddedStore>,
    now: Arc<AtomicU64>,
    at: PartitionRef,
    config: EmbeddedConfig,
}

fn clock(now: &Arc<AtomicU64>) -> Clock {
    let now = now.clone();
    Arc::new(move || now.load(Ordering::Relaxed))
}

impl Fixture {
    fn new(dir: Option<&Path>, settings: &TopicSettings) -> Self {
        let config = EmbeddedConfig {
            dir: dir.map(Path::to_owned),
            segment_bytes: 400,
            maintenance_every: None,
            ..EmbeddedConfig::default()
        };
        let now = Arc::new(AtomicU64::new(1000));
        let store = EmbeddedStore::open_with_clock(&config, clock(&now)).unwrap();
        let at = block_on(store.create_topic("kafka", "t", 1, settings)).unwrap().topic.partition(0);
        Self { store, now, at, config }
    }

    fn reopen(self) -> Self {
        let Self { store, now, at, config } = self;
        drop(store);
        let store = EmbeddedStore::open_with_clock(&config, clock(&now)).unwrap();
        Self { store, now, at, config }
    }

    fn append_at(&self, now: u64, messages: &[u64]) {
        self.now.store(now, Ordering::Relaxed);
        let messages: Vec<(u64, &[u8])> = messages.iter().map(|origin| (*origin, &b"0123456789"[..])).collect();
        block_on(self.store.append(&self.at, timed(&messages))).unwrap();
    }

    fn bounds(&self) -> (u64, u64) {
        let Bounds { start, end } = block_on(self.store.bounds(&self.at)).unwrap();
        (start, end)
    }

    fn size(&self) -> u64 {
        block_on(self.store.sizes(&self.at.topic)).unwrap()[0].bytes
    }
}

#[test]
fn searches_by_time_agree_with_looking_at_every_message() {
    let fixture = Fixture::new(None, &TopicSettings::default());
    let origins = [50u64, 3, 0, 70, 70, 20, 0, 1, 90, 15, 90, 0, 4, 60, 5000, 2, 1, 33, 0, 12];
    let mut messages = Vec::new();
    for (number, pair) in origins.chunks(2).enumerate() {
        let append = [40, 45, 30, 31, 80, 81, 20, 95, 7, 8][number];
        fixture.append_at(append, pair);
        messages.extend(pair.iter().map(|origin| (if *origin == 0 { append } else { *origin }, append)));
    }
    block_on(fixture.store.trim(&fixture.at, 3)).unwrap();
    for kind in [TimeKind::Origin, TimeKind::Append] {
        let time_of = |offset: u64| {
            let (origin, append) = messages[usize::try_from(offset).unwrap()];
            if kind == TimeKind::Origin { origin } else { append }
        };
        let all = || (3..20).map(|offset| Found { offset, time_micros: time_of(offset) });
        for from in 0..21 {
            for time in 0..100 {
                let expected = all().find(|found| found.offset >= from && found.time_micros >= time);
                let found = block_on(fixture.store.find(&fixture.at, from, time, kind)).unwrap();
                assert_eq!(found, expected, "from {from}, time {time}, {kind:?}");
            }
        }
        let newest = all().reduce(|left, right| if right.time_micros > left.time_micros { right } else { left });
        assert_eq!(block_on(fixture.store.newest(&fixture.at, kind)).unwrap(), newest);
    }
}

#[test]
fn an_empty_partition_has_no_newest_message() {
    let fixture = Fixture::new(None, &TopicSettings::default());
    assert_eq!(block_on(fixture.store.newest(&fixture.at, TimeKind::Origin)).unwrap(), None);
    assert_eq!(block_on(fixture.store.find(&fixture.at, 0, 0, TimeKind::Origin)).unwrap(), None);
}

#[test]
fn a_trim_moves_the_start_for_good_and_frees_whole_segments() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(Some(dir.path()), &TopicSettings::default());
    for _ in 0..30 {
        fixture.append_at(1, &[1]);
    }
    let before = fixture.size();
    assert_eq!(block_on(fixture.store.trim(&fixture.at, 17)).unwrap(), Bounds { start: 17, end: 30 });
    assert_eq!(block_on(fixture.store.trim(&fixture.at, 5)).unwrap(), Bounds { start: 17, end: 30 });
    assert!(fixture.size() < before * 3 / 4);
    let read = block_on(fixture.store.read(&fixture.at, 16, ALL));
    assert_eq!(read.unwrap_err(), StoreError::OutOfRange { bounds: Bounds { start: 17, end: 30 } });
    let fixture = fixture.reopen();
    assert_eq!(fixture.bounds(), (17, 30));
    let store: Arc<dyn Store> = fixture.store.clone();
    assert_eq!(payloads(&store, &fixture.at, 17).len(), 13);
}

#[test]
fn a_partition_that_is_trimmed_to_its_end_is_empty_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(Some(dir.path()), &TopicSettings::default());
    for _ in 0..5 {
        fixture.append_at(1, &[1]);
    }
    block_on(fixture.store.trim(&fixture.at, 99)).unwrap();
    assert_eq!((fixture.bounds(), fixture.size()), ((5, 5), 0));
    let fixture = fixture.reopen();
    assert_eq!(fixture.bounds(), (5, 5));
    fixture.append_at(1, &[1]);
    assert_eq!(fixture.reopen().bounds(), (5, 6));
}

#[test]
fn segments_go_by_age_of_their_newest_append() {
    let settings = TopicSettings { retention: Some(Some(Duration::from_micros(100))), ..TopicSettings::default() };
    let fixture = Fixture::new(None, &settings);
    for now in 1..=20 {
        fixture.append_at(now * 10, &[1]);
    }
    fixture.store.maintain(200);
    // Three entries fit into a segment. Offset 8 was appended at 90 and shares its segment with 6 and 7.
    assert_eq!(fixture.bounds(), (9, 20));
    fixture.store.maintain(10_000);
    assert_eq!((fixture.bounds(), fixture.size()), ((20, 20), 0));
}

#[test]
fn segments_go_by_size_until_the_rest_is_within_the_limit() {
    let settings = TopicSettings { retention_bytes: Some(Some(900)), ..TopicSettings::default() };
    let fixture = Fixture::new(None, &settings);
    for _ in 0..30 {
        fixture.append_at(1, &[1]);
    }
    fixture.store.maintain(1);
    let size = fixture.size();
    assert!((900..1300).contains(&size), "{size}");
}

#[test]
fn topics_that_keep_for_ever_keep_for_ever() {
    let settings = TopicSettings {
        retention: Some(Some(Duration::from_micros(1))),
        retention_bytes: Some(Some(1)),
        keep_forever: true,
        ..TopicSettings::default()
    };
    let fixture = Fixture::new(None, &settings);
    for _ in 0..30 {
        fixture.append_at(1, &[1]);
    }
    fixture.store.maintain(u64::MAX);
    assert_eq!(fixture.bounds(), (0, 30));
}

#[test]
fn a_segment_is_sealed_at_its_age() {
    let settings = TopicSettings { segment_age: Some(Duration::from_micros(50)), ..TopicSettings::default() };
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(Some(dir.path()), &settings);
    let segments = || {
        let files = std::fs::read_dir(dir.path().join("1/1/0")).unwrap();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "log")).count()
    };
    fixture.append_at(100, &[1]);
    fixture.append_at(150, &[1]);
    assert_eq!(segments(), 1);
    fixture.append_at(151, &[1]);
    assert_eq!(segments(), 2);
    fixture.store.maintain(202);
    fixture.append_at(151, &[1]);
    assert_eq!(segments(), 3);
    assert_eq!(fixture.reopen().bounds(), (0, 4));
}

#[test]
fn a_deleted_topic_leaves_no_files_and_its_name_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(Some(dir.path()), &TopicSettings::default());
    fixture.append_at(1, &[1]);
    block_on(fixture.store.delete_topic(&fixture.at.topic)).unwrap();
    assert!(!dir.path().join("1/1").exists());
    let append = block_on(fixture.store.append(&fixture.at, batch(&[b"x"])));
    assert!(matches!(append, Err(StoreError::NotFound { .. })));
    let again = block_on(fixture.store.create_topic("kafka", "t", 1, &TopicSettings::default())).unwrap();
    assert_ne!(again.topic, fixture.at.topic);
    assert_eq!(block_on(fixture.store.bounds(&again.topic.partition(0))).unwrap(), Bounds { start: 0, end: 0 });
}

#[test]
fn the_volume_is_that_of_the_folder_and_memory_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&EmbeddedConfig { dir: Some(dir.path().to_owned()), ..EmbeddedConfig::default() }).unwrap();
    let told = block_on(store.volume()).unwrap().unwrap();
    let found = rustix::fs::statvfs(dir.path()).unwrap();
    assert_eq!(told.total_bytes, found.f_blocks * found.f_frsize);
    assert!(told.usable_bytes > 0 && told.usable_bytes <= told.total_bytes, "{told:?}");
    let memory = open(&EmbeddedConfig::default()).unwrap();
    assert_eq!(block_on(memory.volume()).unwrap(), None);
}
