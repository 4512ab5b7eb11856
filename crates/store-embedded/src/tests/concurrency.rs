//! Many callers at once, on an async runtime and real files.

use std::sync::Arc;
use std::time::Duration;

use milena_store::frame::Frames;
use milena_store::{Durability, PartitionRef, ReadLimit, Store, TopicSettings};
use tokio::runtime::Builder;

use super::basics::{ALL, batch};
use crate::{EmbeddedConfig, open};

const WRITERS: u8 = 8;
const APPENDS: u8 = 60;

fn store(dir: &tempfile::TempDir, durability: Durability) -> Arc<dyn Store> {
    let dir = Some(dir.path().to_owned());
    open(&EmbeddedConfig { dir, durability, segment_bytes: 20_000, ..EmbeddedConfig::default() }).unwrap()
}

/// Appends one after the other; answers the offsets it was given.
async fn write(store: Arc<dyn Store>, at: PartitionRef, writer: u8) -> Vec<(u64, [u8; 2])> {
    let mut given = Vec::new();
    for number in 0..APPENDS {
        let appended = store.append(&at, batch(&[&[writer, number]])).await.unwrap();
        given.push((appended.base_offset.unwrap(), [writer, number]));
    }
    given
}

/// Reads along until the last offset, and finds every message where it is.
async fn follow(store: Arc<dyn Store>, at: PartitionRef) -> Vec<Vec<u8>> {
    let mut read: Vec<Vec<u8>> = Vec::new();
    while read.len() < usize::from(WRITERS) * usize::from(APPENDS) {
        for entry in store.read(&at, read.len() as u64, ReadLimit { bytes: 500, at_least_one: true }).await.unwrap() {
            assert_eq!(entry.base_offset, read.len() as u64);
            read.extend(Frames::new(&entry.frames).map(|frame| frame.payload.to_vec()));
        }
        tokio::task::yield_now().await;
    }
    read
}

#[test]
fn concurrent_appends_get_dense_offsets_in_order_and_readers_see_them_all() {
    let interval = Durability::Interval { every: Duration::from_millis(1), bytes: 5_000 };
    for durability in [Durability::Os, interval, Durability::Always] {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let store = store(&dir, durability);
            let info = store.create_topic("kafka", "t", 1, &TopicSettings::default()).await.unwrap();
            let at = info.topic.partition(0);
            let reader = tokio::spawn(follow(store.clone(), at.clone()));
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), at.clone(), writer))).collect();
            let mut given = Vec::new();
            for writer in writers {
                let mine = writer.await.unwrap();
                assert!(mine.is_sorted(), "a later append of one writer lies behind its earlier ones");
                given.extend(mine);
            }
            given.sort_unstable();
            let read = reader.await.unwrap();
            for (expected, (offset, payload)) in (0..).zip(&given) {
                assert_eq!(*offset, expected);
                assert_eq!(read[usize::try_from(*offset).unwrap()], payload);
            }
        });
    }
}

#[test]
fn a_caller_that_gives_up_leaves_the_partition_in_order() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let store = store(&dir, Durability::Always);
        let info = store.create_topic("kafka", "t", 1, &TopicSettings::default()).await.unwrap();
        let at = info.topic.partition(0);
        for number in 0..50u8 {
            // Polled once at most, then dropped.
            let append = store.append(&at, batch(&[&[number]]));
            tokio::select! { biased; _ = append => {}, () = std::future::ready(()) => {} }
        }
        let last = store.append(&at, batch(&[b"last"])).await.unwrap().base_offset.unwrap();
        let entries = store.read(&at, 0, ALL).await.unwrap();
        let payloads: Vec<Vec<u8>> =
            entries.iter().flat_map(|entry| Frames::new(&entry.frames)).map(|frame| frame.payload.to_vec()).collect();
        assert_eq!(payloads.len() as u64, last + 1);
        assert_eq!(payloads.last().unwrap(), b"last");
        assert!(payloads[..payloads.len() - 1].is_sorted());
    });
}

#[test]
fn a_runtime_that_ends_takes_no_acknowledged_message_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir, Durability::Always);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let info = pollster::block_on(store.create_topic("kafka", "t", 1, &TopicSettings::default())).unwrap();
    let at = info.topic.partition(0);
    for number in 0..20u8 {
        let (store, at) = (store.clone(), at.clone());
        runtime.spawn(async move { store.append(&at, batch(&[&[number]])).await });
    }
    runtime.shutdown_background();
    // Whoever led is gone or done; the partition takes appends again, now without a runtime.
    let appended = loop {
        match pollster::block_on(store.append(&at, batch(&[b"after"]))) {
            Ok(appended) => break appended,
            Err(error) => assert!(matches!(error, milena_store::StoreError::Busy { .. }), "{error}"),
        }
    };
    let entries = pollster::block_on(store.read(&at, 0, ALL)).unwrap();
    let end = entries.iter().map(|entry| entry.base_offset + u64::from(entry.count)).max().unwrap();
    assert!(appended.base_offset.unwrap() < end);
}
