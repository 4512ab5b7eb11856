//! Wakes the thread that drives the clients.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// A flag that one thread waits for and any other raises, also from a callback of librdkafka.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Raises the flag.
    pub(crate) fn up(&self) {
        let mut raised = self.raised.lock();
        if !*raised {
            *raised = true;
            self.changed.notify_one();
        }
    }

    /// Waits until the flag is raised or the time has come, and lowers it.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        let mut raised = self.raised.lock();
        while !*raised && !self.changed.wait_until(&mut raised, deadline).timed_out() {}
        *raised = false;
    }
}
