//! A copy of a data folder, in use or not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use milena_store::{PartitionRef, Store, TopicRef, TopicSettings};
use pollster::block_on;
use tempfile::TempDir;

use super::basics::{batch, payloads};
use crate::{BackupError, BackupReport, EmbeddedConfig, EmbeddedStore, OpenError, backup, check_data, open};

fn config(dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        dir: Some(dir.to_owned()),
        segment_bytes: 2000,
        maintenance_every: None,
        ..EmbeddedConfig::default()
    }
}

fn create(store: &dyn Store, topic: &str) -> PartitionRef {
    block_on(store.create_topic("kafka", topic, 1, &TopicSettings::default())).unwrap().topic.partition(0)
}

fn append(store: &dyn Store, at: &PartitionRef, number: u64) {
    block_on(store.append(at, batch(&[&number.to_le_bytes()]))).unwrap();
}

fn numbers(store: &Arc<dyn Store>, at: &PartitionRef, from: u64) -> Vec<u64> {
    payloads(store, at, from).iter().map(|payload| u64::from_le_bytes(payload[..].try_into().unwrap())).collect()
}

fn same(_: &TopicRef) -> u8 {
    0
}

/// A place for a copy, and the folder around it.
fn place() -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    (dir, to)
}

#[test]
fn a_copy_taken_while_the_store_is_in_use_opens_with_what_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let (_around, to) = place();
    let store: Arc<dyn Store> = EmbeddedStore::open(&config(dir.path())).unwrap();
    let at = create(&*store, "t");
    (0..100).for_each(|number| append(&*store, &at, number));
    let report = backup(dir.path(), &to, same).unwrap();
    append(&*store, &at, 100);
    assert_eq!((report.topics, report.partitions), (1, 1));
    assert!(report.segments > 3 && report.bytes > 100 * 64, "{report:?}");
    assert!(check_data(&to).unwrap().problems.is_empty());
    let copy = open(&config(&to)).unwrap();
    assert_eq!(numbers(&copy, &at, 0), (0..100).collect::<Vec<u64>>());
    append(&*copy, &at, 7);
    assert_eq!(numbers(&copy, &at, 100), [7]);
}

/// A check that fails must end the appends beside it.
struct StopsWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn copies_taken_under_appends_and_trims_are_whole_logs_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = EmbeddedStore::open(&config(dir.path())).unwrap();
    let at = create(&*store, "t");
    let (stop, trimmed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopsWhenDropped(&stop);
        scope.spawn(|| {
            for number in 0.. {
                append(&*store, &at, number);
                if number % 50 == 49 {
                    // What is at the start is always less than 30 messages old.
                    block_on(store.trim(&at, number - 20)).unwrap();
                    trimmed.store(number - 20, Ordering::Release);
                }
                if stop.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        for _ in 0..20 {
            let (_around, to) = place();
            let before = trimmed.load(Ordering::Acquire);
            let end = block_on(store.bounds(&at)).unwrap().end;
            backup(dir.path(), &to, same).unwrap();
            assert!(check_data(&to).unwrap().problems.is_empty());
            let copy = open(&config(&to)).unwrap();
            let bounds = block_on(copy.bounds(&at)).unwrap();
            assert!(bounds.start >= before && bounds.end >= end, "{bounds:?}, before: {before}..{end}");
            assert_eq!(numbers(&copy, &at, bounds.start), (bounds.start..bounds.end).collect::<Vec<u64>>());
        }
    });
    assert!(trimmed.load(Ordering::Acquire) > 0);
}

#[test]
fn a_torn_tail_is_cut_off_the_copy_and_damage_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = EmbeddedStore::open(&config(dir.path())).unwrap();
    let at = create(&*store, "t");
    (0..100).for_each(|number| append(&*store, &at, number));
    block_on(store.close()).unwrap();
    let partition = dir.path().join("1/1/0");
    let mut segments: Vec<_> = std::fs::read_dir(&partition).unwrap().map(|item| item.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    segments.sort();
    let torn = segments.last().unwrap();
    let mut bytes = std::fs::read(torn).unwrap();
    bytes.extend_from_slice(b"MEnt and then nothing that is whole");
    std::fs::write(torn, &bytes).unwrap();
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    bytes[150] ^= 1;
    std::fs::write(&segments[0], &bytes).unwrap();
    // After a clean stop a torn end would be damage.
    std::fs::remove_file(dir.path().join("session")).unwrap();
    let (_around, to) = place();
    backup(dir.path(), &to, same).unwrap();
    let problems = check_data(&to).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!((problems[0].offset, problems[0].torn_tail), (Some(1), false));
    let copy = open(&config(&to)).unwrap();
    assert_eq!(numbers(&copy, &at, 2), (2..100).collect::<Vec<u64>>());
}

#[test]
fn topics_of_a_later_rank_are_copied_later_and_nothing_is_left_of_a_copy_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = EmbeddedStore::open(&config(dir.path())).unwrap();
    let topics = [create(&*store, "last"), create(&*store, "first")];
    // Both topics' folders are files, so the copy ends at the one that comes first.
    for at in &topics {
        append(&*store, at, 0);
        let folder = dir.path().join("1").join(at.topic.topic_id().to_string());
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
    }
    let (_around, to) = place();
    let error = backup(dir.path(), &to, |topic| u8::from(topic.topic() == "last")).unwrap_err();
    let first = dir.path().join("1").join(topics[1].topic.topic_id().to_string());
    assert!(error.to_string().contains(&first.display().to_string()), "{error}");
    assert!(!to.exists() && !to.with_extension("partial").exists());
}

#[test]
fn a_copy_never_goes_over_something_and_needs_a_data_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (around, to) = place();
    let missing = backup(dir.path(), &to, same).unwrap_err();
    assert!(matches!(missing, BackupError::From(OpenError::NoCatalog { .. })), "{missing}");
    drop(open(&config(dir.path())).unwrap());
    // A slash behind the name changes nothing.
    assert_eq!(backup(dir.path(), &to.join(""), same).unwrap(), BackupReport::default());
    assert!(matches!(backup(dir.path(), &to, same), Err(BackupError::Taken { .. })));
    let half = around.path().join("half.partial");
    std::fs::create_dir(&half).unwrap();
    let taken = backup(dir.path(), &around.path().join("half"), same).unwrap_err();
    assert!(taken.to_string().contains("half.partial"), "{taken}");
    assert!(half.exists());
}

#[test]
fn the_damaged_end_of_a_closed_store_is_copied_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = EmbeddedStore::open(&config(dir.path())).unwrap();
    let at = create(&*store, "t");
    append(&*store, &at, 0);
    append(&*store, &at, 1);
    block_on(store.close()).unwrap();
    let segment = dir.path().join("1/1/0/00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let (_around, to) = place();
    backup(dir.path(), &to, same).unwrap();
    for folder in [dir.path(), &to] {
        let report = check_data(folder).unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        assert!(!report.is_sound(), "{report:?}");
    }
}
