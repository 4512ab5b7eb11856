//! Stored bytes go bad.

use std::path::PathBuf;
use std::sync::Arc;

use milena_store::{Durability, Entry, StoreError};
use pollster::block_on;

use super::basics::{ALL, batch};
use super::faults::{config, create, open};
use crate::EmbeddedConfig;
use crate::check::check_on;
use crate::fault::{Fault, Wait};
use crate::fs::Fs;
use crate::fs::faulty::FaultyFs;
use crate::partition::Partition;
use crate::store::Inner;

const FIRST: &str = "/data/1/1/0/00000000000000000000.log";
/// Bytes of an entry with one message of 100 bytes.
const ENTRY_BYTES: usize = 64 + 32 + 100;

fn filled(fs: &FaultyFs, config: &EmbeddedConfig, count: u8) -> (Arc<Inner>, Arc<Partition>) {
    let inner = open(fs, config);
    let (_, partition) = create(&inner);
    for number in 0..count {
        block_on(partition.append(batch(&[&[number; 100]]))).unwrap();
    }
    (inner, partition)
}

fn reopen(fs: &FaultyFs, config: &EmbeddedConfig) -> (Arc<Inner>, Arc<Partition>) {
    let inner = open(fs, config);
    let at = inner.topics()[0].topic.partition(0);
    let partition = inner.partition(&at).unwrap();
    (inner, partition)
}

fn read(partition: &Partition, from: u64) -> Result<Vec<Entry>, StoreError> {
    partition.read(from, ALL, Wait::Yes).map_err(Fault::into_store)
}

fn offsets(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.base_offset).collect()
}

#[test]
fn a_damaged_entry_is_answered_as_such_and_those_around_it_are_read() {
    // In every part of the entry: marker, length, times, payload.
    for at in [0, 13, 45, ENTRY_BYTES - 1] {
        let fs = FaultyFs::new(1);
        let small = EmbeddedConfig { segment_bytes: 1100, ..config(Durability::Os) };
        let (inner, partition) = filled(&fs, &small, 12);
        fs.damage(&PathBuf::from(FIRST), 40 + 2 * ENTRY_BYTES + at);
        assert_eq!(offsets(&read(&partition, 0).unwrap()), [0, 1], "byte {at}");
        assert!(matches!(read(&partition, 2), Err(StoreError::Broken { .. })), "byte {at}");
        assert_eq!(offsets(&read(&partition, 3).unwrap()), (3..12).collect::<Vec<u64>>(), "byte {at}");
        // It is in an older segment, so nothing is cut at the next start.
        drop((inner, partition));
        fs.kill();
        let (_inner, partition) = reopen(&fs, &small);
        assert!(matches!(read(&partition, 2), Err(StoreError::Broken { .. })), "byte {at}");
        assert_eq!(offsets(&read(&partition, 3).unwrap()), (3..12).collect::<Vec<u64>>(), "byte {at}");
    }
}

#[test]
fn damage_within_the_newest_segment_is_no_torn_tail() {
    let fs = FaultyFs::new(1);
    let (inner, partition) = filled(&fs, &config(Durability::Os), 6);
    fs.damage(&PathBuf::from(FIRST), 40 + 2 * ENTRY_BYTES + 70);
    drop((inner, partition));
    fs.kill();
    let (inner, partition) = reopen(&fs, &config(Durability::Os));
    assert_eq!(partition.bounds().end, 6);
    assert!(matches!(read(&partition, 2), Err(StoreError::Broken { .. })));
    assert_eq!(offsets(&read(&partition, 3).unwrap()), [3, 4, 5]);
    assert!(inner.env.metrics.damaged_entries.get() > 0);
}

#[test]
fn damage_to_what_was_flushed_is_not_cut_off_after_a_crash_of_the_machine() {
    let fs = FaultyFs::new(1);
    let (inner, partition) = filled(&fs, &config(Durability::Always), 6);
    fs.damage(&PathBuf::from(FIRST), 40 + 2 * ENTRY_BYTES + 70);
    drop((inner, partition));
    fs.crash();
    let (_inner, partition) = reopen(&fs, &config(Durability::Always));
    assert_eq!(partition.bounds().end, 6);
    assert!(matches!(read(&partition, 2), Err(StoreError::Broken { .. })));
    assert_eq!(offsets(&read(&partition, 3).unwrap()), [3, 4, 5]);
}

#[test]
fn a_payload_that_looks_like_an_entry_does_not_lead_recovery_astray() {
    let fs = FaultyFs::new(1);
    let (inner, partition) = filled(&fs, &config(Durability::Os), 3);
    // The image of an entry of this log with a later offset, but it lacks the nonce.
    let mut forged = crate::format::EntryHeader {
        nonce: 0,
        frame_bytes: 0,
        count: 1,
        codec: 0,
        base_offset: 900,
        append_micros: 1,
        time_min: 1,
        time_max: 1,
        durable_end: 900,
    }
    .encode(&[])
    .to_vec();
    forged.extend_from_slice(&[0; 40]);
    block_on(partition.append(batch(&[&forged]))).unwrap();
    fs.damage(&PathBuf::from(FIRST), 40 + 3 * ENTRY_BYTES + 60);
    drop((inner, partition));
    fs.kill();
    let (_inner, partition) = reopen(&fs, &config(Durability::Os));
    assert_eq!(partition.bounds().end, 3);
}

#[test]
fn zeros_at_the_end_of_a_segment_are_cut_off() {
    let fs = FaultyFs::new(1);
    let (inner, partition) = filled(&fs, &config(Durability::Os), 3);
    drop((inner, partition));
    let file = fs.open(&PathBuf::from(FIRST), crate::fs::Access::Write).unwrap();
    let size = file.size().unwrap();
    file.truncate(size + 5000).unwrap();
    fs.kill();
    let (_inner, partition) = reopen(&fs, &config(Durability::Os));
    assert_eq!(partition.bounds().end, 3);
    assert_eq!(partition.bytes(), size);
    block_on(partition.append(batch(&[b"x"]))).unwrap();
    assert_eq!(offsets(&read(&partition, 0).unwrap()), [0, 1, 2, 3]);
}

#[test]
fn a_missing_or_wrong_index_changes_no_answer() {
    let index = PathBuf::from(FIRST.replace(".log", ".index"));
    for wrong in [None, Some(vec![0; 500]), Some(b"MilenaIx and then something else".to_vec())] {
        let fs = FaultyFs::new(1);
        let small = EmbeddedConfig { segment_bytes: 1100, ..config(Durability::Os) };
        let (inner, partition) = filled(&fs, &small, 12);
        drop((inner, partition));
        fs.remove_file(&index).unwrap();
        if let Some(content) = &wrong {
            fs.open(&index, crate::fs::Access::Create).unwrap().write_at(&[content], 0).unwrap();
        }
        fs.kill();
        let (_inner, partition) = reopen(&fs, &small);
        assert_eq!(offsets(&read(&partition, 3).unwrap()), (3..12).collect::<Vec<u64>>());
    }
}

#[test]
fn a_partition_whose_start_is_unreadable_is_not_opened() {
    let fs = FaultyFs::new(1);
    let (inner, partition) = filled(&fs, &config(Durability::Os), 6);
    partition.trim(4).unwrap();
    drop((inner, partition));
    fs.damage(&PathBuf::from("/data/1/1/0/start"), 17);
    fs.kill();
    let inner = open(&fs, &config(Durability::Os));
    let at = inner.topics()[0].topic.partition(0);
    assert!(matches!(inner.partition(&at), Err(StoreError::Broken { .. })));
}

#[test]
fn a_check_counts_what_is_there_and_names_what_is_damaged() {
    let fs = FaultyFs::new(1);
    let small = EmbeddedConfig { segment_bytes: 1100, ..config(Durability::Os) };
    let (inner, partition) = filled(&fs, &small, 12);
    drop((inner, partition));
    let root = PathBuf::from("/data");
    fs.kill();
    let report = check_on(&fs, &root).unwrap();
    assert_eq!((report.topics, report.partitions, report.segments), (1, 1, 3));
    assert_eq!((report.entries, report.messages, report.problems.len()), (12, 12, 0));
    fs.damage(&PathBuf::from(FIRST), 40 + 2 * ENTRY_BYTES + 70);
    let newest = PathBuf::from(FIRST.replace("00.log", "10.log"));
    let file = fs.open(&newest, crate::fs::Access::Write).unwrap();
    file.truncate(file.size().unwrap() - 5).unwrap();
    let report = check_on(&fs, &root).unwrap();
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.offset, problem.torn_tail)).collect();
    assert_eq!(found, [(Some(2), false), (Some(11), true)]);
    assert!(!report.is_sound());
    fs.remove_file(&PathBuf::from(FIRST)).unwrap();
    let report = check_on(&fs, &root).unwrap();
    assert_eq!(report.problems[0].what, "the messages from offset 0 to 5 are missing");
}

#[test]
fn a_damaged_end_after_a_clean_stop_is_counted_as_damage_and_a_torn_one_after_a_kill_is_not() {
    for closed in [true, false] {
        let fs = FaultyFs::new(1);
        let (inner, partition) = filled(&fs, &config(Durability::Os), 6);
        if closed {
            inner.close().unwrap();
        }
        drop((inner, partition));
        fs.damage(&PathBuf::from(FIRST), 40 + 5 * ENTRY_BYTES + 70);
        if !closed {
            fs.kill();
        }
        let (inner, partition) = reopen(&fs, &config(Durability::Os));
        assert_eq!(partition.bounds().end, 5, "closed: {closed}");
        assert_eq!(inner.env.metrics.damaged_entries.get(), u64::from(closed));
        assert_eq!(offsets(&read(&partition, 0).unwrap()), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn an_entry_whose_length_grew_over_the_ends_of_blocks_is_damaged_and_ends_no_reader() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let (_, partition) = create(&inner);
    for number in 0..4 {
        block_on(partition.append(batch(&[&[number; 100_000]]))).unwrap();
    }
    // The third byte of the length of the second entry: 100,032 bytes become 165,568.
    let at = 40 + (64 + 32 + 100_000) + 14;
    fs.open(&PathBuf::from(FIRST), crate::fs::Access::Write).unwrap().write_at(&[&[2]], at).unwrap();
    assert_eq!(offsets(&read(&partition, 0).unwrap()), [0]);
    assert!(matches!(read(&partition, 1), Err(StoreError::Broken { .. })));
    assert_eq!(offsets(&read(&partition, 2).unwrap()), [2, 3]);
}
