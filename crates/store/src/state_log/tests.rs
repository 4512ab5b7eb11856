//! The log over the reference engine and its faults, against a model.

use std::sync::Arc;

use futures_util::FutureExt;

use super::{StateEvent, StateLog, StateLogOptions, StateLogReader};
use crate::engine::Store;
use crate::error::StoreError;
use crate::testing::{Fault, MemoryStore};
use crate::types::{Bounds, Durability};

mod holes;
mod property;

const TOPIC: &str = "table";

fn open_with(store: &MemoryStore, options: StateLogOptions) -> Result<(StateLog, Vec<Vec<u8>>), StoreError> {
    let mut table: Vec<Vec<u8>> = Vec::new();
    let log = pollster::block_on(StateLog::open(Arc::new(store.clone()), TOPIC, options, |event| match event {
        StateEvent::Reset => table.clear(),
        StateEvent::Record(record) => table.push(record.to_vec()),
    }))?;
    Ok((log, table))
}

fn open(store: &MemoryStore) -> (StateLog, Vec<Vec<u8>>) {
    open_with(store, StateLogOptions::default()).unwrap()
}

fn append(log: &StateLog, record: &[u8]) -> Result<(), StoreError> {
    pollster::block_on(log.append(record.to_vec()))
}

fn bounds(store: &MemoryStore, log: &StateLog) -> Bounds {
    pollster::block_on(store.bounds(log.partition())).unwrap()
}

#[test]
fn what_was_appended_is_told_at_the_next_open_in_order() {
    let store = MemoryStore::new();
    let (log, table) = open(&store);
    assert!(table.is_empty());
    append(&log, b"a").unwrap();
    append(&log, b"b").unwrap();
    assert_eq!(open(&store).1, [b"a", b"b"]);
}

#[test]
fn the_topic_is_internal_has_one_partition_and_is_kept_for_ever() {
    let store = MemoryStore::new();
    let _log = open(&store);
    let info = pollster::block_on(store.topic(crate::INTERNAL_STREAM, TOPIC)).unwrap().unwrap();
    assert_eq!((info.partitions, info.settings.keep_forever), (1, true));
    assert_eq!(info.settings.durability, Some(Durability::Always));
}

#[test]
fn another_durability_at_the_next_open_is_set_on_the_topic() {
    let store = MemoryStore::new();
    let _log = open(&store);
    let options = StateLogOptions { durability: Some(Durability::Os), ..StateLogOptions::default() };
    open_with(&store, options).unwrap();
    let info = pollster::block_on(store.topic(crate::INTERNAL_STREAM, TOPIC)).unwrap().unwrap();
    assert_eq!((info.settings.keep_forever, info.settings.durability), (true, Some(Durability::Os)));
}

#[test]
fn an_append_in_doubt_that_landed_does_not_count_once_another_followed() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::InDoubtApplied);
    assert!(matches!(append(&log, b"doubt"), Err(StoreError::InDoubt { .. })));
    append(&log, b"after").unwrap();
    assert_eq!(open(&store).1, [b"after"]);
}

#[test]
fn an_append_in_doubt_that_landed_counts_when_the_process_ended_before_it_knew() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::InDoubtApplied);
    assert!(append(&log, b"doubt").is_err());
    drop(log);
    assert_eq!(open(&store).1, [b"doubt"]);
}

#[test]
fn an_append_in_doubt_never_lands_behind_a_newer_one() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    // The claim and the next record overtake it.
    store.plan(Fault::InDoubtLate { appends: 2 });
    assert!(append(&log, b"old").is_err());
    append(&log, b"new").unwrap();
    append(&log, b"newest").unwrap();
    assert_eq!(open(&store).1, [b"new".to_vec(), b"newest".to_vec()]);
}

#[test]
fn a_log_in_doubt_takes_no_append_until_it_is_settled() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::InDoubtApplied);
    assert!(append(&log, b"doubt").is_err());
    store.plan(Fault::Busy);
    let before = bounds(&store, &log);
    assert!(matches!(append(&log, b"refused"), Err(StoreError::Busy { .. })));
    assert_eq!(bounds(&store, &log), before);
    append(&log, b"after").unwrap();
    assert_eq!(open(&store).1, [b"after"]);
}

#[test]
fn an_append_whose_future_is_dropped_is_in_doubt() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::Hangs { applied: true });
    assert!(log.append(b"dropped".to_vec()).now_or_never().is_none());
    append(&log, b"after").unwrap();
    assert_eq!(open(&store).1, [b"after"]);
}

#[test]
fn an_append_that_was_refused_leaves_the_log_open() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::Full);
    assert!(matches!(append(&log, b"refused"), Err(StoreError::Full { .. })));
    append(&log, b"a").unwrap();
    assert_eq!(open(&store).1, [b"a"]);
}

#[test]
fn a_full_device_does_not_prevent_opening() {
    let store = MemoryStore::new();
    append(&open(&store).0, b"a").unwrap();
    store.plan(Fault::Full);
    let (log, table) = open(&store);
    assert_eq!(table, [b"a"]);
    append(&log, b"b").unwrap();
    assert_eq!(open(&store).1, [b"a", b"b"]);
}

#[test]
fn an_engine_that_does_not_say_where_it_stored_is_read_to_find_out() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    store.plan(Fault::NoOffset);
    append(&log, b"a").unwrap();
    append(&log, b"b").unwrap();
    assert_eq!(open(&store).1, [b"a", b"b"]);
}

#[test]
fn a_writer_that_was_overtaken_is_refused_from_then_on() {
    let store = MemoryStore::new();
    let (old, _) = open(&store);
    append(&old, b"a").unwrap();
    let options = StateLogOptions { writer: 1, ..StateLogOptions::default() };
    let (new, _) = open_with(&store, options).unwrap();
    append(&new, b"b").unwrap();
    assert!(!pollster::block_on(old.is_overtaken()));
    assert!(matches!(append(&old, b"stale"), Err(StoreError::Busy { .. })));
    assert!(pollster::block_on(old.is_overtaken()) && !pollster::block_on(new.is_overtaken()));
    assert!(matches!(append(&old, b"stale"), Err(StoreError::Busy { .. })));
    append(&new, b"c").unwrap();
    assert_eq!(open(&store).1, [b"a", b"b", b"c"]);
}

#[test]
fn a_snapshot_replaces_what_it_covers_and_only_that_is_trimmed() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    append(&log, b"a").unwrap();
    append(&log, b"b").unwrap();
    let covered = bounds(&store, &log).end;
    pollster::block_on(log.snapshot(vec![b"ab".to_vec()])).unwrap();
    assert_eq!(bounds(&store, &log).start, covered);
    append(&log, b"c").unwrap();
    assert_eq!(open(&store).1, [b"ab".to_vec(), b"c".to_vec()]);
}

#[test]
fn a_log_that_is_not_flushed_at_every_append_keeps_one_snapshot_more() {
    let store = MemoryStore::new();
    let options = StateLogOptions { durability: Some(Durability::Os), ..StateLogOptions::default() };
    let (log, _) = open_with(&store, options.clone()).unwrap();
    append(&log, b"a").unwrap();
    let first = bounds(&store, &log).end;
    pollster::block_on(log.snapshot(vec![b"a".to_vec()])).unwrap();
    assert_eq!(bounds(&store, &log).start, 0);
    drop(log);
    let (log, _) = open_with(&store, options).unwrap();
    pollster::block_on(log.snapshot(vec![b"a".to_vec()])).unwrap();
    assert_eq!(bounds(&store, &log).start, first);
}

#[test]
fn a_snapshot_that_is_cut_off_leaves_the_one_before_it() {
    let options = StateLogOptions { chunk_bytes: 8, ..StateLogOptions::default() };
    for written in 0..4 {
        let store = MemoryStore::new();
        let (log, _) = open_with(&store, options.clone()).unwrap();
        append(&log, b"old").unwrap();
        pollster::block_on(log.snapshot(vec![b"first".to_vec()])).unwrap();
        append(&log, b"a").unwrap();
        for _ in 0..written {
            store.plan(None);
        }
        store.plan(Fault::Full);
        let pieces = vec![b"1111".to_vec(), b"2222".to_vec(), b"3333".to_vec(), b"4444".to_vec()];
        assert!(pollster::block_on(log.snapshot(pieces)).is_err());
        append(&log, b"b").unwrap();
        assert_eq!(open(&store).1, [b"first".to_vec(), b"a".to_vec(), b"b".to_vec()], "{written} chunks");
    }
}

#[test]
fn an_empty_snapshot_empties_the_table() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    append(&log, b"a").unwrap();
    pollster::block_on(log.snapshot(Vec::new())).unwrap();
    assert!(open(&store).1.is_empty());
}

#[test]
fn a_snapshot_is_due_by_the_bytes_behind_the_last_one_across_restarts() {
    let store = MemoryStore::new();
    let options = StateLogOptions { snapshot_bytes: 1_000, ..StateLogOptions::default() };
    let (log, _) = open_with(&store, options.clone()).unwrap();
    append(&log, &[1; 500]).unwrap();
    assert!(!log.snapshot_due());
    append(&log, &[2; 500]).unwrap();
    assert!(log.snapshot_due());
    let (log, _) = open_with(&store, options.clone()).unwrap();
    assert!(log.snapshot_due());
    pollster::block_on(log.snapshot(vec![vec![0; 1_500]])).unwrap();
    append(&log, &[3; 1_000]).unwrap();
    assert!(!log.snapshot_due(), "a large snapshot raises the mark");
    let (log, _) = open_with(&store, options).unwrap();
    append(&log, &[4; 500]).unwrap();
    assert!(log.snapshot_due());
}

#[test]
fn a_record_larger_than_the_engine_takes_is_refused() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let limit = store.capabilities().payload_bytes_max;
    assert!(matches!(append(&log, &vec![0; limit]), Err(StoreError::Refused { .. })));
    append(&log, b"a").unwrap();
    assert_eq!(open(&store).1, [b"a"]);
}

#[test]
fn an_alien_message_in_the_log_is_an_error_and_not_an_empty_table() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let alien = crate::testing::batch_of(&[crate::testing::TestMessage::new(1, b"alien")]);
    pollster::block_on(store.append(log.partition(), alien)).unwrap();
    assert!(matches!(open_with(&store, StateLogOptions::default()), Err(StoreError::Broken { .. })));
}

#[test]
fn appends_of_several_threads_are_applied_in_the_order_in_which_they_are_stored() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let table = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (log, table) = (&log, &table);
            scope.spawn(move || {
                for index in 0..50u8 {
                    let apply = |record: &[u8]| table.lock().unwrap().push(record.to_vec());
                    pollster::block_on(log.update(vec![thread, index], apply)).unwrap();
                    if index % 20 == 0 {
                        pollster::block_on(log.snapshot_with(|| table.lock().unwrap().clone())).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(open(&store).1, *table.lock().unwrap());
}

/// What a reader tells; `None` when nothing happened.
fn follow(reader: &mut StateLogReader) -> Option<Vec<Vec<u8>>> {
    let mut table: Vec<Vec<u8>> = Vec::new();
    let grew = pollster::block_on(reader.follow(|event| match event {
        StateEvent::Reset => table.clear(),
        StateEvent::Record(record) => table.push(record.to_vec()),
    }));
    grew.unwrap().then_some(table)
}

#[test]
fn a_reader_sees_what_is_written_and_does_not_disturb_the_writer() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let mut reader = log.reader();
    assert_eq!(follow(&mut reader), Some(vec![]));
    append(&log, b"a").unwrap();
    assert_eq!(follow(&mut reader), Some(vec![b"a".to_vec()]));
    assert_eq!(follow(&mut reader), None);
    append(&log, b"b").unwrap();
    let end = bounds(&store, &log).end;
    reader.knows_to(end);
    assert_eq!((follow(&mut reader), pollster::block_on(log.end())), (None, end));
    let other = StateLogOptions { writer: 1, ..StateLogOptions::default() };
    append(&open_with(&store, other).unwrap().0, b"c").unwrap();
    assert_eq!(follow(&mut reader), Some(vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]));
    assert_eq!(pollster::block_on(log.end()), end, "what another one wrote is not known to this writer");
}

#[test]
fn a_reader_follows_a_log_that_was_trimmed() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let mut reader = log.reader();
    append(&log, b"a").unwrap();
    assert!(follow(&mut reader).is_some());
    pollster::block_on(log.snapshot(vec![b"ab".to_vec()])).unwrap();
    append(&log, b"c").unwrap();
    assert_eq!(follow(&mut reader), Some(vec![b"ab".to_vec(), b"c".to_vec()]));
}

#[test]
fn a_reader_takes_back_a_record_that_was_made_not_to_count() {
    let store = MemoryStore::new();
    let (log, _) = open(&store);
    let mut reader = log.reader();
    store.plan(Fault::InDoubtApplied);
    assert!(append(&log, b"doubt").is_err());
    assert!(pollster::block_on(log.is_in_doubt()));
    assert_eq!(follow(&mut reader), Some(vec![b"doubt".to_vec()]));
    append(&log, b"a").unwrap();
    assert!(!pollster::block_on(log.is_in_doubt()));
    assert_eq!(follow(&mut reader), Some(vec![b"a".to_vec()]));
}

#[test]
fn a_log_that_is_only_opened_again_and_again_comes_to_a_snapshot() {
    let store = MemoryStore::new();
    let options = StateLogOptions { snapshot_bytes: 300, ..StateLogOptions::default() };
    let openings = (0..20).take_while(|_| !open_with(&store, options.clone()).unwrap().0.snapshot_due()).count();
    assert!((2..10).contains(&openings), "{openings}");
}
