use std::sync::{Arc, Mutex};

use pollster::block_on;

use super::*;
use crate::engine::{GrowthWatcher, Store, StoreFuture};
use crate::metrics::EngineMetrics;
use crate::types::{PartitionRef, TopicRef, TopicSettings};

/// Ends that were told.
#[derive(Default)]
struct Ends(Mutex<Vec<u64>>);

impl GrowthWatcher for Ends {
    fn grown(&self, _partition: &PartitionRef, end: u64, _bytes: usize) {
        self.0.lock().unwrap().push(end);
    }

    fn deleted(&self, _topic: &TopicRef) {}
}

fn watched(store: &MemoryStore) -> Arc<Ends> {
    let ends = Arc::new(Ends::default());
    store.watch(Arc::clone(&ends) as Arc<dyn GrowthWatcher>);
    ends
}

#[test]
fn each_opening_of_the_same_data_has_its_watcher_until_it_is_closed() {
    let store = MemoryStore::new();
    let first = watched(&store);
    let again = store.again();
    let second = watched(&again);
    let at = block_on(store.create_topic("s", "t", 1, &TopicSettings::default())).unwrap().topic.partition(0);
    let append = || block_on(again.append(&at, batch_of(&[TestMessage::new(1, b"x")]))).unwrap();
    append();
    block_on(store.close()).unwrap();
    append();
    assert_eq!((&*first.0.lock().unwrap(), &*second.0.lock().unwrap()), (&vec![1], &vec![1, 2]));
}

/// A store that tells its segments and its metrics, and nothing else.
struct Telling {
    memory: MemoryStore,
    metrics: EngineMetrics,
}

impl Layer for Telling {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn sealed_segments<'a>(&'a self, _at: &'a PartitionRef, most: usize) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move { Ok(vec![most as u64]) })
    }

    fn metrics(&self) -> Option<&EngineMetrics> {
        Some(&self.metrics)
    }
}

/// Changes nothing.
struct Plain(Layered<Telling>);

impl Layer for Plain {
    fn below(&self) -> &dyn Store {
        &self.0
    }
}

#[test]
fn a_layer_hands_down_what_has_an_answer_by_default() {
    let store = Layered(Plain(Layered(Telling { memory: MemoryStore::new(), metrics: EngineMetrics::new("telling") })));
    let at = TopicRef::new("s", "t", 1, 1, 1).partition(0);
    assert_eq!(block_on(store.sealed_segments(&at, 7)).unwrap(), [7]);
    assert!(Store::metrics(&store).is_some());
}
