//! A bounded cache of open segment files.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::format::SegmentHeader;
use crate::fs::File;
use crate::index::Index;

/// An open segment.
pub(crate) struct Handle {
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
    /// Index of a sealed segment, loaded when first needed.
    pub(crate) index: OnceLock<Arc<Index>>,
}

/// Partition (a number of this process) and base offset.
pub(crate) type Key = (u64, u64);

/// Open segments, the least recently used closed first.
pub(crate) struct Handles {
    open: Mutex<Open>,
    limit: usize,
}

#[derive(Default)]
struct Open {
    by_key: HashMap<Key, (Arc<Handle>, u64)>,
    tick: u64,
}

impl Handles {
    pub(crate) fn new(limit: usize) -> Self {
        Self { open: Mutex::new(Open::default()), limit: limit.max(8) }
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<Handle>> {
        let mut open = self.open.lock();
        open.tick += 1;
        let tick = open.tick;
        let (handle, used) = open.by_key.get_mut(&key)?;
        *used = tick;
        Some(handle.clone())
    }

    /// Keeps the handle of a file that was just created, in place of one of an earlier file of that name.
    pub(crate) fn keep_new(&self, key: Key, handle: Handle) -> Arc<Handle> {
        self.forget(key);
        self.keep(key, handle)
    }

    /// Keeps the handle, unless another thread was faster: then that one is the answer.
    pub(crate) fn keep(&self, key: Key, handle: Handle) -> Arc<Handle> {
        let mut open = self.open.lock();
        open.tick += 1;
        let tick = open.tick;
        if open.by_key.len() >= self.limit && !open.by_key.contains_key(&key) {
            evict(&mut open.by_key, self.limit / 8);
        }
        open.by_key.entry(key).or_insert_with(|| (Arc::new(handle), tick)).0.clone()
    }

    pub(crate) fn forget(&self, key: Key) {
        self.open.lock().by_key.remove(&key);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.open.lock().by_key.len()
    }
}

/// Closes the `count` least recently used ones, and one at least. Several at once, because finding them walks all.
fn evict(by_key: &mut HashMap<Key, (Arc<Handle>, u64)>, count: usize) {
    let mut used: Vec<(u64, Key)> = by_key.iter().map(|(key, (_, used))| (*used, *key)).collect();
    let count = count.max(1).min(used.len());
    used.select_nth_unstable(count - 1);
    for (_, key) in used.into_iter().take(count) {
        by_key.remove(&key);
    }
}
