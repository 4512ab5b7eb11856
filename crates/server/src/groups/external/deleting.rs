//! Groups that are being deleted.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Their ids. A request deletes one group after the other, so there are no more of them than requests under way.
#[derive(Debug, Default)]
pub(super) struct Deleting(Arc<Mutex<HashSet<String>>>);

impl Deleting {
    /// Marks a group for as long as the answer lives; `None` when somebody else deletes it.
    pub(super) fn mark(&self, group: &str) -> Option<Mark> {
        let new = self.0.lock().insert(group.to_owned());
        new.then(|| Mark { all: Arc::clone(&self.0), group: group.to_owned() })
    }

    pub(super) fn contains(&self, group: &str) -> bool {
        self.0.lock().contains(group)
    }
}

/// A group is being deleted.
#[derive(Debug)]
pub(super) struct Mark {
    all: Arc<Mutex<HashSet<String>>>,
    group: String,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.all.lock().remove(&self.group);
    }
}
