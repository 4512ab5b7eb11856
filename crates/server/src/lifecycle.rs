//! Phases of the server's life, and the count of connections that are still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

/// Where the server is in its life; it only moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are read and answered.
    Serving,
    /// No new requests are read; those in flight are answered, parked ones at once.
    Draining,
    /// What is still there is dropped.
    Dropping,
}

/// The phase, and the connections it concerns.
#[derive(Debug)]
pub struct Lifecycle {
    phase: watch::Sender<Phase>,
    connections: AtomicUsize,
    emptied: Notify,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving), connections: AtomicUsize::new(0), emptied: Notify::new() }
    }
}

impl Lifecycle {
    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Resolves when the phase is `phase` or a later one.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Moves on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Counts a connection in for as long as the place is kept; `None` when there are `max` already.
    #[must_use]
    pub fn enter(self: &Arc<Self>, max: usize) -> Option<Place> {
        let entered =
            self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < max).then(|| open + 1));
        entered.is_ok().then(|| Place(Arc::clone(self)))
    }

    /// Resolves when no connection is open.
    pub async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Registered before the count is read, or the last one to leave could be missed.
            emptied.as_mut().enable();
            if self.connections() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// A place among all connections, until it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Lifecycle>);

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_phase_is_reached_by_any_later_one_and_never_left() {
        let lifecycle = Lifecycle::default();
        lifecycle.advance(Phase::Dropping);
        lifecycle.reached(Phase::Draining).await;
        lifecycle.advance(Phase::Serving);
        assert_eq!(lifecycle.phase(), Phase::Dropping);
    }

    #[test]
    fn no_more_than_the_maximum_enter() {
        let lifecycle = Arc::new(Lifecycle::default());
        let (first, second) = (lifecycle.enter(2), lifecycle.enter(2));
        assert!(first.is_some() && second.is_some() && lifecycle.enter(2).is_none());
        drop(first);
        assert!(lifecycle.enter(2).is_some());
    }
}
