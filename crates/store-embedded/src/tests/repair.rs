//! Damage is cut out of a folder, and everything else stays.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_store::{INTERNAL_STREAM, PartitionRef, Store, StoreError, TimeKind, TopicSettings};
use pollster::block_on;
use tempfile::TempDir;

use super::basics::{ALL, batch};
use crate::repair::repair_until;
use crate::{EmbeddedConfig, RepairKind, check_data, open, repair_data};

/// Bytes of an entry with one message of 8 bytes.
const ENTRY: usize = 64 + 32 + 8;
const HEAD: usize = 40;

/// A folder with one partition of 100 messages, in segments of about 18.
struct Folder {
    dir: TempDir,
    at: PartitionRef,
}

impl Folder {
    fn new(stream: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&config(dir.path())).unwrap();
        let topic = block_on(store.create_topic(stream, "t", 1, &TopicSettings::default())).unwrap().topic;
        let at = topic.partition(0);
        for number in 0..100u64 {
            block_on(store.append(&at, batch(&[&number.to_le_bytes()]))).unwrap();
        }
        block_on(store.close()).unwrap();
        Self { dir, at }
    }

    fn segments(&self) -> Vec<PathBuf> {
        let items = std::fs::read_dir(self.dir.path().join("1/1/0")).unwrap();
        let mut paths: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
        paths.sort();
        paths
    }

    fn open(&self) -> Arc<dyn Store> {
        open(&config(self.dir.path())).unwrap()
    }

    /// Every offset that can be read, and that its message is the one that was stored there.
    fn offsets(&self) -> Vec<u64> {
        let store = self.open();
        let bounds = block_on(store.bounds(&self.at)).unwrap();
        let (mut from, mut found) = (bounds.start, Vec::new());
        while from < bounds.end {
            let entries = block_on(store.read(&self.at, from, ALL)).unwrap();
            let Some(last) = entries.last() else { break };
            from = last.base_offset + u64::from(last.count);
            for entry in &entries {
                assert!(entry.frames.ends_with(&entry.base_offset.to_le_bytes()));
                found.push(entry.base_offset);
            }
        }
        block_on(store.close()).unwrap();
        found
    }

    fn repair(&self, execute: bool) -> Vec<RepairKind> {
        let report = repair_data(self.dir.path(), execute, "2026-11-29T12:00:00Z").unwrap();
        report.repairs.into_iter().map(|repair| repair.kind).collect()
    }

    fn is_sound(&self) -> bool {
        check_data(self.dir.path()).unwrap().problems.is_empty()
    }
}

fn config(dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        dir: Some(dir.to_owned()),
        segment_bytes: 2000,
        maintenance_every: None,
        ..EmbeddedConfig::default()
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0xff;
    std::fs::write(path, &bytes).unwrap();
}

fn all_but(gone: std::ops::Range<u64>) -> Vec<u64> {
    (0..100).filter(|offset| !gone.contains(offset)).collect()
}

#[test]
fn a_damaged_entry_is_cut_out_and_reads_pass_over_it() {
    let folder = Folder::new("kafka");
    let first = folder.segments().remove(0);
    let before = std::fs::read(&first).unwrap();
    flip(&first, HEAD + 3 * ENTRY + 70);
    flip(&first, HEAD + 4 * ENTRY + 2);
    let damaged = std::fs::read(&first).unwrap();
    let cut = [RepairKind::CutOut { from: 3, to: 5 }];
    // Without the word to do it nothing changes.
    assert_eq!(folder.repair(false), cut);
    assert_eq!(std::fs::read(&first).unwrap(), damaged);
    assert!(!folder.is_sound());
    assert_eq!(folder.repair(true), cut);
    assert!(folder.is_sound());
    assert_eq!(check_data(folder.dir.path()).unwrap().cut_out, 2);
    assert_eq!(folder.offsets(), all_but(3..5));
    assert_eq!(folder.repair(true), []);
    // The file is kept as it was, and the log says what was done.
    let kept = std::fs::read(folder.dir.path().join("repaired/1-1-0-00000000000000000000.log.1")).unwrap();
    assert_eq!(kept, damaged);
    assert_eq!(kept.len(), before.len());
    let log = std::fs::read_to_string(folder.dir.path().join("repairs.log")).unwrap();
    assert!(log.starts_with("2026-11-29T12:00:00Z kafka/t/0: the messages from offset 3 up to 5 are"), "{log}");
    // Searches by time are not held up by it, and appends go on at the end.
    let store = folder.open();
    assert_eq!(block_on(store.find(&folder.at, 3, 0, TimeKind::Append)).unwrap().unwrap().offset, 5);
    assert!(block_on(store.newest(&folder.at, TimeKind::Append)).unwrap().is_some());
    assert_eq!(block_on(store.append(&folder.at, batch(&[&100u64.to_le_bytes()]))).unwrap().base_offset, Some(100));
}

#[test]
fn the_damaged_end_of_an_older_segment_and_a_missing_segment_are_cut_out() {
    let folder = Folder::new("kafka");
    let segments = folder.segments();
    let base = |number: usize| segments[number].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let bytes = std::fs::read(&segments[1]).unwrap();
    std::fs::write(&segments[1], &bytes[..bytes.len() - 30]).unwrap();
    std::fs::remove_file(&segments[3]).unwrap();
    let cuts =
        [RepairKind::CutOut { from: base(2) - 1, to: base(2) }, RepairKind::CutOut { from: base(3), to: base(4) }];
    assert_eq!(folder.repair(true), cuts);
    assert!(folder.is_sound());
    let mut expected = all_but(base(3)..base(4));
    expected.retain(|offset| *offset != base(2) - 1);
    assert_eq!(folder.offsets(), expected);
}

#[test]
fn a_segment_of_which_nothing_is_left_becomes_a_hole() {
    let folder = Folder::new("kafka");
    let segments = folder.segments();
    let size = std::fs::metadata(&segments[1]).unwrap().len();
    std::fs::write(&segments[1], vec![0; usize::try_from(size).unwrap()]).unwrap();
    std::fs::remove_file(segments[1].with_extension("index")).ok();
    let base = |number: usize| segments[number].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(folder.repair(true), [RepairKind::Head, RepairKind::CutOut { from: base(1), to: base(2) }]);
    assert!(folder.is_sound());
    assert_eq!(folder.offsets(), all_but(base(1)..base(2)));
}

/// Consumers that read up to the end would wait for ever in front of a hole that they are not told of.
#[test]
fn a_hole_at_the_end_is_read_as_an_entry_without_frames_until_something_follows() {
    let folder = Folder::new("kafka");
    let segments = folder.segments();
    let newest = segments.last().unwrap();
    let end = newest.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    // The newest segment was begun and not written yet, and the end of the one before it is damaged.
    let bytes = std::fs::read(newest).unwrap();
    std::fs::write(newest, &bytes[..HEAD]).unwrap();
    std::fs::remove_file(newest.with_extension("index")).ok();
    let before = &segments[segments.len() - 2];
    let size = usize::try_from(std::fs::metadata(before).unwrap().len()).unwrap();
    flip(before, size - 3);
    assert_eq!(folder.repair(true), [RepairKind::CutOut { from: end - 1, to: end }]);
    let store = folder.open();
    assert_eq!(block_on(store.bounds(&folder.at)).unwrap().end, end);
    let read = |from| {
        let entries = block_on(store.read(&folder.at, from, ALL)).unwrap();
        entries.iter().map(|entry| (entry.base_offset, entry.count, entry.frames.is_empty())).collect::<Vec<_>>()
    };
    assert_eq!(read(end - 2), [(end - 2, 1, false)]);
    assert_eq!(read(end - 1), [(end - 1, 1, true)]);
    assert_eq!(read(end), []);
    block_on(store.append(&folder.at, batch(&[b"after it"]))).unwrap();
    assert_eq!(read(end - 1), [(end, 1, false)]);
}

#[test]
fn missing_first_segments_move_the_start_and_a_damaged_start_is_made_anew() {
    let folder = Folder::new("kafka");
    let segments = folder.segments();
    std::fs::remove_file(&segments[0]).unwrap();
    let first = segments[1].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(folder.repair(true), [RepairKind::MoveStart { from: 0, to: first }]);
    assert!(folder.is_sound());
    assert_eq!(folder.offsets(), (first..100).collect::<Vec<u64>>());
    flip(&folder.dir.path().join("1/1/0/start"), 17);
    assert_eq!(folder.repair(true), [RepairKind::NewStart { to: first }]);
    assert!(folder.is_sound());
    assert_eq!(folder.offsets(), (first..100).collect::<Vec<u64>>());
}

#[test]
fn a_torn_end_is_left_to_the_next_start_and_state_to_a_backup() {
    let folder = Folder::new("kafka");
    let newest = folder.segments().pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() - 30]).unwrap();
    std::fs::remove_file(folder.dir.path().join("session")).unwrap();
    assert_eq!(folder.repair(true), []);
    let folder = Folder::new(INTERNAL_STREAM);
    let first = folder.segments().remove(0);
    flip(&first, HEAD + 3 * ENTRY + 70);
    let damaged = std::fs::read(&first).unwrap();
    assert_eq!(folder.repair(true), [RepairKind::State]);
    assert_eq!(std::fs::read(&first).unwrap(), damaged);
}

#[test]
fn the_damaged_end_of_a_closed_store_is_no_torn_one_and_is_cut_off() {
    let folder = Folder::new("kafka");
    let newest = folder.segments().pop().unwrap();
    let size = usize::try_from(std::fs::metadata(&newest).unwrap().len()).unwrap();
    flip(&newest, size - 3);
    assert!(!folder.is_sound());
    assert_eq!(folder.repair(true), [RepairKind::CutEnd { from: 99 }]);
    assert!(folder.is_sound());
    assert_eq!(folder.offsets(), (0..99).collect::<Vec<u64>>());
}

#[test]
fn a_damaged_start_without_segments_does_not_stop_the_repair_of_others() {
    let folder = Folder::new("kafka");
    let first = folder.segments().remove(0);
    flip(&first, HEAD + 3 * ENTRY + 70);
    let store = folder.open();
    let topic = block_on(store.create_topic("kafka", "u", 1, &TopicSettings::default())).unwrap().topic;
    block_on(store.close()).unwrap();
    let other = folder.dir.path().join("1").join(topic.topic_id().to_string()).join("0");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("start"), "x").unwrap();
    assert_eq!(folder.repair(true), [RepairKind::CutOut { from: 3, to: 4 }, RepairKind::Hopeless]);
}

#[test]
fn a_repaired_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("kafka");
    let first = folder.segments().remove(0);
    std::fs::set_permissions(&first, PermissionsExt::from_mode(0o640)).unwrap();
    flip(&first, HEAD + 3 * ENTRY + 70);
    folder.repair(true);
    assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_newest_segment_without_a_head_is_left_as_it_is() {
    let folder = Folder::new("kafka");
    let newest = folder.segments().pop().unwrap();
    std::fs::write(&newest, vec![7; 500]).unwrap();
    std::fs::remove_file(newest.with_extension("index")).ok();
    assert_eq!(folder.repair(true), [RepairKind::Hopeless]);
    assert_eq!(std::fs::read(&newest).unwrap(), vec![7; 500]);
}

#[test]
fn a_folder_in_use_is_not_repaired() {
    let folder = Folder::new("kafka");
    let store = folder.open();
    let error = repair_data(folder.dir.path(), true, "now").unwrap_err();
    assert!(error.to_string().contains("in use by another process"), "{error}");
    assert!(matches!(StoreError::from(error), StoreError::Busy { .. }));
    drop(store);
}

/// A folder with damage of every kind that a repair changes files for, and the offsets that are left then.
fn damaged() -> (Folder, Vec<u64>) {
    let folder = Folder::new("kafka");
    let segments = folder.segments();
    let base = |number: usize| segments[number].file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    std::fs::remove_file(&segments[0]).unwrap();
    // The head of one, within another, and the end.
    flip(&segments[1], 3);
    flip(&segments[2], HEAD + ENTRY + 70);
    let newest = segments.last().unwrap();
    flip(newest, usize::try_from(std::fs::metadata(newest).unwrap().len()).unwrap() - 3);
    let left = (base(1)..99).filter(|offset| *offset != base(2) + 1).collect();
    (folder, left)
}

#[test]
fn a_repair_that_ends_before_any_of_its_changes_is_run_again() {
    let mut changes = 0;
    loop {
        let (folder, left) = damaged();
        let to_go = Cell::new(changes);
        let before_change = || match to_go.get() {
            0 => Err(io::Error::other("ended")),
            more => {
                to_go.set(more - 1);
                Ok(())
            }
        };
        let ended = repair_until(folder.dir.path(), true, "now", &before_change);
        if let Err(error) = &ended {
            assert!(error.to_string().contains("ended"), "{error}");
            folder.repair(true);
        }
        assert!(folder.is_sound(), "after {changes} changes");
        assert_eq!(folder.repair(true), [], "after {changes} changes");
        assert_eq!(folder.offsets(), left, "after {changes} changes");
        if ended.is_ok() {
            break;
        }
        changes += 1;
    }
    // The log, three segments and the start.
    assert!(changes > 25, "{changes}");
}
