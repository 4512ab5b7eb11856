//! Keeps the offsets in step with the mandate: loads them when groups are coordinated here, gives them up when they no
//! longer are, and loads them again when another gateway wrote behind our back.
//!
//! Loading always goes into a table of its own, which takes its place whole. Until then requests are answered with 14, never
//! with "nothing stored": a consumer would reset its position.

use std::sync::Arc;

use milena_groups::Groups;
use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};

use super::appender::Appender;
use super::bundle::{broken, unbundle};
use super::shared::Shared;
use super::topics::{Existing, forget_missing};
use crate::opening::open_log;

/// Topic of the internal stream that holds the committed offsets.
pub const OFFSETS_TOPIC: &str = "offsets";

/// Waits between attempts to load: none before the first, then from the one to the other, doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Who has coordinated for so long is in no fight with another writer, and loads at once the next time.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Why coordinating ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The server stops, and everything is written.
    Closed,
    /// Another gateway wrote the log: the table is not what the log says.
    Overtaken,
    /// The mandate changed.
    Mandate,
}

/// Loads, appends, gives up.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn Store>,
    pub(super) existing: Existing,
    pub(super) options: StateLogOptions,
    /// True on a runtime where a thread may say that it is busy.
    pub(super) can_block: bool,
}

impl Keeper {
    /// Follows the mandate until the service is closed. `mandated` is what it said last, `log` what was loaded then.
    pub(super) async fn run(self, mut mandate: watch::Receiver<bool>, mut mandated: bool, mut log: Option<StateLog>) {
        let mut retry = Retry::default();
        loop {
            let end = tokio::select! {
                biased;
                () = changed(&mut mandate) => End::Mandate,
                end = self.coordinate(mandated, log.take(), &mut retry) => end,
            };
            match end {
                End::Closed => return,
                End::Overtaken if retry.is_first() => {
                    tracing::warn!(
                        "another gateway wrote committed offsets; members join again, offsets are loaded anew"
                    );
                }
                End::Overtaken => {}
                End::Mandate => {
                    mandated = *mandate.borrow_and_update();
                    retry = Retry::default();
                    tracing::info!(here = mandated, "the coordinator of consumer groups changes");
                }
            }
            self.shared.resign(if mandated { self.shared.loading() } else { self.shared.elsewhere() });
        }
    }

    async fn coordinate(&self, mandated: bool, log: Option<StateLog>, retry: &mut Retry) -> End {
        if !mandated {
            self.shared.closed().await;
            return End::Closed;
        }
        let log = match log {
            Some(log) => log,
            None => tokio::select! {
                log = self.load_in_the_end(retry) => log,
                () = self.shared.closed() => return End::Closed,
            },
        };
        let since = Instant::now();
        let end = Appender { shared: &self.shared, log, can_block: self.can_block }.run().await;
        if since.elapsed() >= SETTLED_AFTER {
            *retry = Retry::default();
        }
        end
    }

    async fn load_in_the_end(&self, retry: &mut Retry) -> StateLog {
        let mut failed = false;
        loop {
            sleep(retry.next_wait()).await;
            match self.load().await {
                Ok(log) => return log,
                // Said once: it is tried for as long as it takes.
                Err(error) if !failed => tracing::error!(%error, "committed offsets cannot be loaded; clients wait"),
                Err(_) => {}
            }
            failed = true;
        }
    }

    /// Reads the log and begins to serve what it says.
    ///
    /// A commit is as durable as what a producer stores: the topic takes the store's default.
    pub(super) async fn load(&self) -> Result<StateLog, StoreError> {
        let (groups, log) = load_log(&self.store, self.options.clone(), self.shared.loading()).await?;
        tracing::info!(offsets = groups.offsets().len(), "committed offsets are loaded");
        self.shared.metrics.loads.add(1);
        self.shared.begin(groups);
        while self.shared.run(|groups, _, out| groups.pay(out)) {
            // There may be thousands; between two of them others have their turn.
            yield_now().await;
        }
        forget_missing(&self.shared, &self.existing).await;
        Ok(log)
    }
}

/// Reads the log into `groups`, which are to begin without offsets.
pub(super) async fn load_log(
    store: &Arc<dyn Store>,
    options: StateLogOptions,
    mut groups: Groups,
) -> Result<(Groups, StateLog), StoreError> {
    let mut damage = None;
    let log = open_log(Arc::clone(store), OFFSETS_TOPIC, options, |event| match event {
        StateEvent::Reset => groups.reset(),
        StateEvent::Record(bytes) => {
            if let Err(error) = replay(&mut groups, bytes) {
                damage.get_or_insert(error);
            }
        }
    })
    .await?;
    match damage {
        Some(error) => Err(error),
        None => Ok((groups, log)),
    }
}

fn replay(groups: &mut Groups, bytes: &[u8]) -> Result<(), StoreError> {
    unbundle(bytes, |record| groups.replay(record).map_err(|error| broken(&format!("cannot be read: {error}"))))
}

/// Resolves with the next change of the mandate, which may never come.
pub(super) async fn changed(mandate: &mut watch::Receiver<bool>) {
    if mandate.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits between attempts.
#[derive(Debug, Default)]
struct Retry {
    next: Duration,
}

impl Retry {
    fn is_first(&self) -> bool {
        self.next.is_zero()
    }

    fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).clamp(RETRY_MIN, RETRY_MAX);
        wait
    }
}

#[cfg(test)]
mod tests;
