//! The store tells one watcher about growth; several parts of the broker want to know.

use std::sync::Arc;

use milena_store::{GrowthWatcher, PartitionRef, TopicRef};

/// Tells every part in order. Each must return at once.
pub struct Watchers(pub Vec<Arc<dyn GrowthWatcher>>);

impl GrowthWatcher for Watchers {
    fn grown(&self, partition: &PartitionRef, end: u64, bytes: usize) {
        for watcher in &self.0 {
            watcher.grown(partition, end, bytes);
        }
    }

    fn fell(&self, partition: &PartitionRef, end: u64) {
        for watcher in &self.0 {
            watcher.fell(partition, end);
        }
    }

    fn deleted(&self, topic: &TopicRef) {
        for watcher in &self.0 {
            watcher.deleted(topic);
        }
    }
}
