//! Who is told of changes.

use std::sync::{Arc, Mutex};

use crate::engine::GrowthWatcher;

/// What clones of one opening share; true until it is closed.
pub(super) type Opening = Arc<Mutex<bool>>;

/// The watcher of each opening of the same data.
#[derive(Default)]
pub(super) struct Watchers(Vec<(Opening, Arc<dyn GrowthWatcher>)>);

impl Watchers {
    /// Replaces the watcher of an opening.
    pub(super) fn set(&mut self, opening: &Opening, watcher: Arc<dyn GrowthWatcher>) {
        self.remove(opening);
        self.0.push((Arc::clone(opening), watcher));
    }

    /// Takes the watcher of an opening away.
    pub(super) fn remove(&mut self, opening: &Opening) {
        self.0.retain(|(of, _)| !Arc::ptr_eq(of, opening));
    }

    /// Tells all of them.
    pub(super) fn tell(&self, tell: impl Fn(&dyn GrowthWatcher)) {
        self.0.iter().for_each(|(_, watcher)| tell(watcher.as_ref()));
    }
}
