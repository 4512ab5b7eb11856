//! What the door keeps beyond topics and messages: streams, consumer groups, consumer offsets, tokens.
//!
//! It lives in the internal topic `iggy` as a log with snapshots, like all of Milena's own state. In memory there is one
//! table. A change is checked, stored, and only then seen: a client that was answered finds it after a restart.

mod ends;
mod record;
mod table;

use std::sync::Arc;
use std::time::Duration;

use milena_server::{answered, open_log};
use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{Store, StoreError, TopicRef};
use parking_lot::RwLock;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

pub(crate) use record::{ConsumerKey, Incarnation, Record};
use table::Renaming;
pub(crate) use table::{Stream, Table};

/// Topic of the internal stream.
const TOPIC: &str = "iggy";

/// Bytes of log after which a snapshot takes their place.
const SNAPSHOT_BYTES: u64 = 4 << 20;

/// Time after a failed snapshot before the next: every write would list all topics and try again.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(30);

/// The table and the log behind it.
pub(crate) struct State {
    log: StateLog,
    table: Arc<RwLock<Table>>,
    store: Arc<dyn Store>,
    /// Held from the check of a change to its end, so that two of them cannot pass one check.
    changes: Mutex<()>,
    /// Held while a snapshot is taken; the time before which none is tried.
    snapshots: Mutex<Instant>,
}

/// The right to change what is checked first.
pub(crate) struct Change<'a> {
    state: &'a State,
    _turn: MutexGuard<'a, ()>,
}

impl State {
    /// Loads all that was stored, and forgets what belongs to topics that are gone.
    pub(crate) async fn open(store: Arc<dyn Store>, instance_id: u16) -> Result<Self, StoreError> {
        let table = Arc::new(RwLock::new(Table::default()));
        let mut broken = None;
        // Consumer offsets are as durable as the messages that they point at.
        let options = StateLogOptions {
            writer: u64::from(instance_id),
            durability: None,
            snapshot_bytes: SNAPSHOT_BYTES,
            ..StateLogOptions::default()
        };
        let loading = Arc::clone(&table);
        let opened = open_log(Arc::clone(&store), TOPIC, options, |event| match event {
            StateEvent::Reset => *loading.write() = Table::default(),
            StateEvent::Record(bytes) => match Record::decode(bytes) {
                Ok(record) => loading.write().apply(record),
                Err(reason) => broken = Some(reason),
            },
        });
        let log = opened.await?;
        if let Some(reason) = broken {
            return Err(StoreError::Broken { context: format!("a record of the topic {TOPIC}: {reason}") });
        }
        let state = Self { log, table, store, changes: Mutex::default(), snapshots: Mutex::new(Instant::now()) };
        answered("the list of topics", state.forget_missing()).await?;
        answered("the names of streams", state.settle_names()).await?;
        Ok(state)
    }

    /// Looks at the table.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read())
    }

    /// Waits for the turn to change something that is checked first.
    pub(crate) async fn change(&self) -> Change<'_> {
        Change { _turn: self.changes.lock().await, state: self }
    }

    /// Stores a record that needs no turn, because nothing that others may change was checked for it.
    pub(crate) async fn write(&self, record: Record) -> Result<(), StoreError> {
        let table = Arc::clone(&self.table);
        self.log.update(record.encode(), move |_| table.write().apply(record)).await?;
        if self.log.snapshot_due() {
            self.snapshot_once().await;
        }
        Ok(())
    }

    /// Takes the snapshot that is due, unless another write does, has done so, or failed a short while ago.
    async fn snapshot_once(&self) {
        let Ok(mut not_before) = self.snapshots.try_lock() else { return };
        if Instant::now() >= *not_before && self.log.snapshot_due() && !self.snapshot().await {
            *not_before = Instant::now() + SNAPSHOT_RETRY;
        }
    }

    /// Takes a snapshot; false when it failed, which leaves the one before it in force.
    async fn snapshot(&self) -> bool {
        let written = match self.forget_missing().await {
            Ok(()) => self.log.snapshot_with(|| self.table.read().records()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &written {
            tracing::warn!(%error, "the snapshot of Iggy groups and offsets is tried again later");
        }
        written.is_ok()
    }

    /// Ends what a crash or a failed write interrupted: a stream has the name that the store has it under. For whoever has the
    /// turn to change something, or is alone.
    pub(crate) async fn settle_names(&self) -> Result<(), StoreError> {
        self.settle(self.names_in_doubt().await?).await
    }

    /// The streams whose new name is not settled, as the store has them. For whoever has the turn to change something, or is
    /// alone.
    pub(crate) async fn names_in_doubt(&self) -> Result<Vec<Stream>, StoreError> {
        let pending = self.look(Table::renaming);
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let topics = self.store.topics().await?;
        let settled = pending.into_iter().map(|(stream, Renaming { name, of })| {
            let is_done = topics.iter().any(|info| info.topic.stream_id() == of && info.topic.stream() == name);
            if is_done { Stream { name, ..stream } } else { stream }
        });
        Ok(settled.collect())
    }

    /// Stores what [`Self::names_in_doubt`] found.
    pub(crate) async fn settle(&self, streams: Vec<Stream>) -> Result<(), StoreError> {
        for Stream { id, name, created_at_micros } in streams {
            self.write(Record::Stream { id, name, created_at_micros }).await?;
        }
        Ok(())
    }

    /// Topics that were deleted by others leave groups and offsets behind, under an identity that never comes back.
    async fn forget_missing(&self) -> Result<(), StoreError> {
        // Known before the listing, or a topic that is created after it would be forgotten at once.
        let mut gone = self.look(Table::known);
        for info in self.store.topics().await? {
            gone.remove(&Incarnation::of(&info.topic));
        }
        self.table.write().forget(&gone);
        Ok(())
    }
}

impl Change<'_> {
    /// Looks at the table; nobody else changes it in between.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        self.state.look(look)
    }

    /// Stores a record.
    pub(crate) async fn write(&self, record: Record) -> Result<(), StoreError> {
        self.state.write(record).await
    }

    /// Forgets all that belongs to a topic, if there is anything.
    pub(crate) async fn forget(&self, topic: &TopicRef) -> Result<(), StoreError> {
        let of = Incarnation::of(topic);
        if self.look(|table| table.knows(of)) { self.write(Record::Forget { of }).await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
