//! The watcher.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::*;
use crate::engine::GrowthWatcher;
use crate::error::StoreError;
use crate::types::TopicRef;

/// How long a call may be late: it comes from the engine's own threads.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Recorder {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    grown: Vec<(PartitionRef, u64, usize)>,
    deleted: Vec<TopicRef>,
    fallen: Vec<(PartitionRef, u64)>,
}

impl Recorder {
    fn wait_for(&self, what: &str, done: impl Fn(&Heard) -> bool) {
        let heard = self.heard.lock().unwrap();
        let (_heard, timeout) = self.changed.wait_timeout_while(heard, PATIENCE, |heard| !done(heard)).unwrap();
        assert!(!timeout.timed_out(), "the watcher was not told: {what}");
    }
}

impl GrowthWatcher for Recorder {
    fn grown(&self, partition: &PartitionRef, end: u64, bytes: usize) {
        self.heard.lock().unwrap().grown.push((partition.clone(), end, bytes));
        self.changed.notify_all();
    }

    fn deleted(&self, topic: &TopicRef) {
        self.heard.lock().unwrap().deleted.push(topic.clone());
        self.changed.notify_all();
    }

    fn fell(&self, partition: &PartitionRef, end: u64) {
        self.heard.lock().unwrap().fallen.push((partition.clone(), end));
        self.changed.notify_all();
    }
}

/// Every end is announced, after it is readable, and the bytes add up to those of the frames.
pub fn the_watcher_hears_of_growth_when_it_is_readable(factory: &dyn StoreFactory) {
    let store = factory.open();
    let recorder = Arc::new(Recorder::default());
    store.watch(Arc::clone(&recorder) as Arc<dyn GrowthWatcher>);
    let at = single(store.as_ref());
    let batches = [vec![TestMessage::new(1, b"a")], vec![TestMessage::new(2, b"b"), TestMessage::new(3, b"c")]];
    for batch in &batches {
        append(store.as_ref(), &at, batch);
    }
    recorder.wait_for("end 3", |heard| heard.grown.iter().any(|(partition, end, _)| *partition == at && *end == 3));
    let written: usize = batches.iter().map(|batch| batch_of(batch).frames.len()).sum();
    let told: usize = recorder.heard.lock().unwrap().grown.iter().map(|(_, _, bytes)| *bytes).sum();
    assert_eq!(told, written);
    let ends: Vec<u64> = recorder.heard.lock().unwrap().grown.iter().map(|(_, end, _)| *end).collect();
    assert!(ends.is_sorted(), "{ends:?}");
    assert!(bounds(store.as_ref(), &at).end >= 3);
}

/// A deletion is announced with the identity that is gone.
pub fn the_watcher_hears_of_a_deletion(factory: &dyn StoreFactory) {
    let store = factory.open();
    let recorder = Arc::new(Recorder::default());
    store.watch(Arc::clone(&recorder) as Arc<dyn GrowthWatcher>);
    let topic = create(store.as_ref(), "orders", 1).topic;
    block_on(store.delete_topic(&topic)).unwrap();
    recorder.wait_for("the deletion", |heard| heard.deleted.contains(&topic));
}

/// A partition that was taken away has fallen to 0, a name that was given up is announced as a deletion.
pub fn the_watcher_hears_of_partitions_and_names_that_went(factory: &dyn StoreFactory) {
    let store = factory.open();
    let recorder = Arc::new(Recorder::default());
    store.watch(Arc::clone(&recorder) as Arc<dyn GrowthWatcher>);
    let topic = create(store.as_ref(), "orders", 3).topic;
    if matches!(block_on(store.shrink_topic(&topic, 1)), Err(StoreError::Unsupported { .. })) {
        return;
    }
    let fallen = [1, 2].map(|gone| (topic.partition(gone), 0));
    recorder.wait_for("the partitions", |heard| fallen.iter().all(|gone| heard.fallen.contains(gone)));
    block_on(store.rename_topic(&topic, "bills")).unwrap();
    let under = |heard: &Heard, stream: &str, name: &str| {
        heard.deleted.iter().any(|topic| (topic.stream(), topic.topic()) == (stream, name))
    };
    recorder.wait_for("the old name", |heard| under(heard, STREAM, "orders"));
    block_on(store.rename_stream(STREAM, "other")).unwrap();
    recorder.wait_for("the old stream", |heard| under(heard, STREAM, "bills"));
    // By the first name it ever had.
    block_on(store.delete_topic(&topic)).unwrap();
    recorder.wait_for("the name that it has now", |heard| under(heard, "other", "bills"));
}

/// There is one watcher: the last one registered.
pub fn a_later_watcher_replaces_the_first(factory: &dyn StoreFactory) {
    let store = factory.open();
    let (first, second) = (Arc::new(Recorder::default()), Arc::new(Recorder::default()));
    store.watch(Arc::clone(&first) as Arc<dyn GrowthWatcher>);
    store.watch(Arc::clone(&second) as Arc<dyn GrowthWatcher>);
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &[TestMessage::new(1, b"a")]);
    second.wait_for("end 1", |heard| !heard.grown.is_empty());
    assert!(first.heard.lock().unwrap().grown.is_empty());
}
