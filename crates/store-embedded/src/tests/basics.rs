//! Append and read through the trait.

use std::sync::Arc;

use bytes::Bytes;
use milena_store::frame::{Frames, frame_header};
use milena_store::{AppendBatch, ReadLimit, Store, StoreError, TopicSettings};
use pollster::block_on;

use crate::{EmbeddedConfig, open};

pub(crate) fn batch(payloads: &[&[u8]]) -> AppendBatch {
    timed(&payloads.iter().map(|payload| (0, *payload)).collect::<Vec<_>>())
}

pub(crate) fn timed(messages: &[(u64, &[u8])]) -> AppendBatch {
    let mut frames = Vec::new();
    for (origin, payload) in messages {
        frames.extend_from_slice(&frame_header(1, *origin, u32::try_from(payload.len()).unwrap(), 0));
        frames.extend_from_slice(payload);
    }
    AppendBatch {
        frames: Bytes::from(frames),
        count: u32::try_from(messages.len()).unwrap(),
        origin_min_micros: 0,
        origin_max_micros: 0,
        has_untimed: true,
        producer: None,
    }
}

pub(crate) const ALL: ReadLimit = ReadLimit { bytes: 1 << 30, at_least_one: true };

pub(crate) fn payloads(store: &Arc<dyn Store>, at: &milena_store::PartitionRef, from: u64) -> Vec<Vec<u8>> {
    let mut from = from;
    let mut all = Vec::new();
    loop {
        let entries = block_on(store.read(at, from, ALL)).unwrap();
        let Some(last) = entries.last() else { return all };
        from = last.base_offset + u64::from(last.count);
        for entry in entries {
            all.extend(Frames::new(&entry.frames).map(|frame| frame.payload.to_vec()));
        }
    }
}

#[test]
fn what_was_appended_is_read_back_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { dir: Some(dir.path().to_owned()), ..EmbeddedConfig::default() };
    let store = open(&config).unwrap();
    let info = block_on(store.create_topic("kafka", "t", 2, &TopicSettings::default())).unwrap();
    let at = info.topic.partition(1);
    let first = block_on(store.append(&at, batch(&[b"a", b"b"]))).unwrap();
    assert_eq!(first.base_offset, Some(0));
    let second = block_on(store.append(&at, batch(&[b"c"]))).unwrap();
    assert_eq!(second.base_offset, Some(2));
    assert_eq!(payloads(&store, &at, 0), [b"a", b"b", b"c"]);
    drop(store);
    let store = open(&config).unwrap();
    let info = block_on(store.topic("kafka", "t")).unwrap().unwrap();
    let at = info.topic.partition(1);
    assert_eq!(block_on(store.bounds(&at)).unwrap().end, 3);
    assert_eq!(payloads(&store, &at, 0), [b"a", b"b", b"c"]);
    assert_eq!(block_on(store.append(&at, batch(&[b"d"]))).unwrap().base_offset, Some(3));
    assert_eq!(payloads(&store, &at, 3), [b"d"]);
}

#[test]
fn a_second_process_is_told_that_the_folder_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { dir: Some(dir.path().to_owned()), ..EmbeddedConfig::default() };
    let store = open(&config).unwrap();
    let Err(StoreError::Busy { reason }) = open(&config) else { panic!("opened twice") };
    assert!(reason.contains("in use by another process"), "{reason}");
    block_on(store.close()).unwrap();
    open(&config).unwrap();
}

#[test]
fn segments_roll_and_reads_cross_them() {
    let config = EmbeddedConfig { segment_bytes: 1000, ..EmbeddedConfig::default() };
    let store = open(&config).unwrap();
    let info = block_on(store.create_topic("kafka", "t", 1, &TopicSettings::default())).unwrap();
    let at = info.topic.partition(0);
    let written: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number; 50]).collect();
    for payload in &written {
        block_on(store.append(&at, batch(&[payload]))).unwrap();
    }
    assert_eq!(payloads(&store, &at, 0), written);
    for from in 0..100 {
        assert_eq!(payloads(&store, &at, from as u64), written[from..]);
    }
}
