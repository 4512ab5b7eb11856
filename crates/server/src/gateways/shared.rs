//! What the driver knows, for everybody else.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::machine::Standing;
use crate::groups::{Coordinator, Coordinators, Node};

/// What follows from the log, as far as it was read.
#[derive(Debug)]
pub(super) struct Published {
    /// The term in which groups are coordinated here, and until when that holds without further notice.
    pub(super) mandate: Option<(u64, Instant)>,
    /// The gateway that coordinates, when it is another one.
    pub(super) coordinator: Option<Arc<Node>>,
    pub(super) others: Vec<Arc<Node>>,
    pub(super) standing: Standing,
}

/// Answers from memory.
#[derive(Debug)]
pub(super) struct Shared {
    now: RwLock<Published>,
    mandate: watch::Sender<bool>,
    standing: watch::Sender<Standing>,
    serving: watch::Sender<bool>,
    leaving: watch::Sender<bool>,
    /// When the newest look at the log began that read all there was.
    read_at: watch::Sender<Option<Instant>>,
}

impl Shared {
    pub(super) fn new() -> Self {
        let published = Published { mandate: None, coordinator: None, others: Vec::new(), standing: Standing::Waiting };
        Self {
            now: RwLock::new(published),
            mandate: watch::Sender::new(false),
            standing: watch::Sender::new(Standing::Waiting),
            serving: watch::Sender::new(false),
            leaving: watch::Sender::new(false),
            read_at: watch::Sender::new(None),
        }
    }

    pub(super) fn publish(&self, published: Published) {
        let standing = published.standing.clone();
        let term = published.mandate.map(|(term, _)| term);
        let before = std::mem::replace(&mut *self.now.write(), published);
        // Another term is another mandate, also when none was without it for long enough to be seen.
        if before.mandate.map(|(term, _)| term) != term {
            tracing::info!(here = term.is_some(), "the lease of the coordinator changes");
            self.mandate.send_replace(term.is_some());
        }
        self.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }

    pub(super) fn serve(&self, serves: bool) {
        self.serving.send_replace(serves);
    }

    pub(super) fn serves(&self) -> bool {
        *self.serving.borrow()
    }

    /// Resolves when it is no longer so that this gateway serves, or does not.
    pub(super) async fn serves_other_than(&self, serves: bool) {
        let _ = self.serving.subscribe().wait_for(|now| *now != serves).await;
    }

    /// All that was in the log at that time was read, and published.
    pub(super) fn note_read(&self, at: Instant) {
        self.read_at.send_replace(Some(at));
    }

    /// Resolves when all that was in the log at that time was read, and published: a look that began after it has ended.
    pub(super) async fn read_since(&self, at: Instant) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.read_at.subscribe().wait_for(|read| read.is_some_and(|read| read > at)).await;
    }

    pub(super) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    pub(super) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Resolves when this gateway is to leave.
    pub(super) async fn left(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    /// Resolves when somebody else has the number of this gateway, or may have it.
    pub(super) async fn displaced(&self) {
        let _ = self.standing.subscribe().wait_for(|standing| *standing == Standing::Displaced).await;
    }
}

impl Coordinators for Shared {
    fn coordinator_of(&self, _group: &str) -> Coordinator {
        let now = self.now.read();
        match (&now.mandate, &now.coordinator) {
            (Some((_, until)), _) if Instant::now() < *until => Coordinator::Here,
            (_, Some(node)) => Coordinator::At(Arc::clone(node)),
            _ => Coordinator::Unknown,
        }
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        self.mandate.subscribe()
    }

    fn others(&self) -> Vec<Arc<Node>> {
        self.now.read().others.clone()
    }
}
