//! Partitions and names that go, with the process or the machine dying at every step of it.

use std::path::Path;
use std::sync::Arc;

use milena_store::{Bounds, Durability, StoreError, TopicRef, TopicSettings};
use pollster::block_on;

use super::basics::batch;
use super::faults::{config, open};
use crate::fs::faulty::FaultyFs;
use crate::store::Inner;

/// A topic of three partitions with three messages in each, all of them on the device.
fn filled(inner: &Inner) -> TopicRef {
    let topic = inner.create("kafka", "t", 3, &TopicSettings::default()).unwrap().topic;
    for partition in 0..3 {
        append(inner, &topic, partition).unwrap();
        append(inner, &topic, partition).unwrap();
        append(inner, &topic, partition).unwrap();
    }
    topic
}

fn append(inner: &Inner, topic: &TopicRef, partition: u32) -> Result<u64, StoreError> {
    let appended = block_on(inner.partition(&topic.partition(partition))?.append(batch(&[b"x"])))?;
    Ok(appended.base_offset.unwrap())
}

fn bounds(inner: &Inner, topic: &TopicRef, partition: u32) -> Bounds {
    inner.partition(&topic.partition(partition)).unwrap().bounds()
}

/// Runs `change` with a death at each of its steps, until it comes to its end; then looks at what a new start finds.
fn with_a_death_at_every_step(
    change: impl Fn(&Arc<Inner>, &TopicRef) -> Result<(), StoreError>,
    look: impl Fn(&Arc<Inner>, &TopicRef, Option<bool>),
) {
    for machine in [false, true] {
        for step in 0..1_000 {
            let fs = FaultyFs::new(step);
            let settings = config(Durability::Always);
            let inner = open(&fs, &settings);
            let topic = filled(&inner);
            fs.faults(|faults| faults.crash_in = Some(step));
            let outcome = change(&inner, &topic);
            let died = fs.has_crashed();
            drop(inner);
            if machine {
                fs.crash();
            } else {
                fs.kill();
            }
            let answered = match &outcome {
                Ok(()) => Some(true),
                Err(StoreError::InDoubt { .. }) => None,
                Err(_) => Some(false),
            };
            // Twice, as the first start may itself have had to put something right.
            look(&open(&fs, &settings), &topic, answered);
            fs.kill();
            look(&open(&fs, &settings), &topic, answered);
            if !died {
                assert!(step > 3 && outcome.is_ok());
                break;
            }
        }
    }
}

#[test]
fn a_death_while_partitions_go_leaves_all_of_them_whole_or_none() {
    let change = |inner: &Arc<Inner>, topic: &TopicRef| inner.shrink(topic, 1).map(drop);
    with_a_death_at_every_step(change, |inner, topic, answered| {
        let partitions = inner.named("kafka", "t").unwrap().partitions;
        assert!(partitions == 1 || partitions == 3);
        if let Some(is_done) = answered {
            // A refusal may have come after the catalog was there.
            assert!(partitions == 1 || !is_done);
        }
        for partition in 0..partitions {
            let bounds = bounds(inner, topic, partition);
            assert!(bounds.start == 0 && bounds.end >= 3, "{bounds:?}");
        }
        if partitions == 1 {
            inner.grow(topic, 3).unwrap();
            for partition in 1..3 {
                let begun = bounds(inner, topic, partition);
                assert_eq!(append(inner, topic, partition).unwrap(), begun.start, "{begun:?}");
                assert!(begun.start >= 3);
            }
            inner.shrink(topic, 1).unwrap();
        }
    });
}

#[test]
fn a_death_while_names_change_leaves_the_old_ones_or_the_new_ones() {
    let change = |inner: &Arc<Inner>, _: &TopicRef| inner.rename_stream("kafka", "other");
    with_a_death_at_every_step(change, |inner, topic, answered| {
        let (old, new) = (inner.named("kafka", "t"), inner.named("other", "t"));
        assert!(old.is_some() != new.is_some(), "{old:?} {new:?}");
        assert!(answered != Some(true) || new.is_some());
        let found = old.or(new).unwrap();
        assert_eq!(&found.topic, topic);
        assert_eq!(bounds(inner, &found.topic, 2), Bounds { start: 0, end: 3 });
    });
}

#[test]
fn what_the_catalog_refuses_leaves_the_partitions_open_for_writing() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let topic = filled(&inner);
    fs.faults(|faults| faults.write_fails_in = Some(0));
    inner.shrink(&topic, 1).unwrap_err();
    assert_eq!(append(&inner, &topic, 2).unwrap(), 3);
    assert_eq!(bounds(&inner, &topic, 2), Bounds { start: 0, end: 4 });
}

#[test]
fn a_flush_that_fails_while_a_partition_is_about_to_go_acknowledges_nothing() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let topic = filled(&inner);
    let partition = inner.partition(&topic.partition(2)).unwrap();
    partition.retire();
    fs.faults(|faults| faults.sync_fails_in = Some(0));
    assert!(matches!(partition.flush_all(), Err(StoreError::InDoubt { .. })));
    partition.revive();
    assert!(matches!(append(&inner, &topic, 2), Err(StoreError::Broken { .. })));
}

#[test]
fn what_is_in_doubt_is_still_flushed() {
    let fs = FaultyFs::new(1);
    let inner = open(&fs, &config(Durability::Os));
    let topic = filled(&inner);
    let leaving = inner.partition(&topic.partition(2)).unwrap();
    // The first flush is that of the new catalog, the second that of its name.
    fs.faults(|faults| faults.sync_fails_in = Some(1));
    assert!(matches!(inner.shrink(&topic, 2), Err(StoreError::InDoubt { .. })));
    assert_eq!(leaving.durable_end(), 0);
    leaving.flush_all().unwrap();
    assert_eq!(leaving.durable_end(), 3);
    let deleted = inner.partition(&topic.partition(1)).unwrap();
    fs.faults(|faults| faults.sync_fails_in = Some(1));
    assert!(matches!(inner.delete(&topic), Err(StoreError::InDoubt { .. })));
    fs.faults(|faults| faults.sync_fails_in = Some(0));
    assert!(matches!(deleted.flush_all(), Err(StoreError::InDoubt { .. })));
}

#[test]
fn partitions_that_are_added_again_at_once_keep_their_files() {
    let fs = FaultyFs::new(1);
    let settings = config(Durability::Always);
    let inner = open(&fs, &settings);
    let topic = filled(&inner);
    let grow = {
        let (inner, topic) = (inner.clone(), topic.clone());
        move || {
            inner.grow(&topic, 3).unwrap();
            append(&inner, &topic, 2).unwrap()
        }
    };
    let added = Arc::new(std::sync::OnceLock::new());
    fs.faults(|faults| {
        let (inner, grow, added) = (inner.clone(), grow.clone(), added.clone());
        // Whoever grows the topic waits while the catalog is held; otherwise it is grown here, just before the removal.
        faults.before_listing = Some(Box::new(move || {
            if inner.catalog.try_lock().is_some() {
                added.set(grow()).unwrap();
            }
        }));
    });
    inner.shrink(&topic, 2).unwrap();
    assert_eq!(*added.get_or_init(grow), 3);
    drop(inner);
    fs.kill();
    let inner = open(&fs, &settings);
    assert_eq!(bounds(&inner, &topic, 2), Bounds { start: 3, end: 4 });
}

#[test]
fn the_files_of_partitions_that_went_go_at_once_and_those_that_a_death_left_at_the_next_start() {
    let fs = FaultyFs::new(1);
    let settings = config(Durability::Os);
    let inner = open(&fs, &settings);
    let topic = filled(&inner);
    let folder = |partition: u32| {
        let dir = Path::new("/data").join(topic.stream_id().to_string()).join(topic.topic_id().to_string());
        dir.join(partition.to_string())
    };
    let is_there = |partition: u32| fs.paths().iter().any(|path| path.starts_with(folder(partition)));
    inner.shrink(&topic, 2).unwrap();
    assert!(!is_there(2) && is_there(1));
    // The catalog is replaced, and then the process dies.
    let mut step = 0;
    while is_there(1) {
        fs.faults(|faults| faults.crash_in = Some(step));
        let _ = inner.shrink(&topic, 1);
        let done = inner.named("kafka", "t").unwrap().partitions == 1;
        fs.kill();
        if done {
            break;
        }
        step += 1;
    }
    drop(inner);
    let inner = open(&fs, &settings);
    assert!(!is_there(1) && is_there(0));
    inner.grow(&topic, 2).unwrap();
    assert_eq!(bounds(&inner, &topic, 1), Bounds { start: 3, end: 3 });
}

#[test]
fn a_due_flush_of_a_partition_that_went_is_no_failure() {
    let fs = FaultyFs::new(1);
    let every = Durability::Interval { every: std::time::Duration::from_secs(3_600), bytes: u64::MAX };
    let inner = open(&fs, &config(every));
    let topic = filled(&inner);
    let leaving = inner.partition(&topic.partition(2)).unwrap();
    inner.shrink(&topic, 1).unwrap();
    inner.flush_due(std::slice::from_ref(&leaving));
    assert_eq!(inner.env.metrics.flush_failures.get(), 0);
    assert!(matches!(leaving.trim(1), Err(StoreError::NotFound { .. })));
    assert!(matches!(leaving.maintain(1), Err(StoreError::NotFound { .. })));
}
