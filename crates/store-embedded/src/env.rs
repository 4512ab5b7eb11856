//! What all partitions of a store share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use milena_store::metrics::EngineMetrics;
use milena_store::{GrowthWatcher, StoreError};
use parking_lot::{Mutex, RwLock};

use crate::config::{Clock, EmbeddedConfig};
use crate::fs::{Fs, Lock};
use crate::handles::Handles;
use crate::pool::Pool;
use crate::threads::Due;

/// Two inline writes that took longer than this, within [`SLOW_FOR`], send the following ones to other threads for
/// that long: the kernel is throttling writers, and an async thread must not be held for that. One alone can be the
/// scheduler's doing, and a switch of threads costs more than ten small writes.
const SLOW_WRITE: Duration = Duration::from_millis(20);
/// See [`SLOW_WRITE`].
const SLOW_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Env {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) root: PathBuf,
    pub(crate) config: EmbeddedConfig,
    pub(crate) clock: Clock,
    pub(crate) handles: Handles,
    pub(crate) pool: Arc<Pool>,
    pub(crate) watcher: RwLock<Option<Arc<dyn GrowthWatcher>>>,
    pub(crate) closed: AtomicBool,
    pub(crate) metrics: EngineMetrics,
    /// Partitions that have to be flushed, and when.
    pub(crate) due: Due,
    /// Held until the store is closed and nothing can write any more.
    pub(crate) lock: Mutex<Option<Lock>>,
    started: Instant,
    /// Milliseconds after `started` up to which another slow write makes writes count as slow, and up to which they do.
    watched_until: AtomicU64,
    slow_until: AtomicU64,
    #[cfg(test)]
    pub(crate) mutant: crate::tests::Mutant,
}

impl Env {
    pub(crate) fn new(fs: Arc<dyn Fs>, root: PathBuf, config: EmbeddedConfig, clock: Clock) -> Self {
        Self {
            handles: Handles::new(config.open_files_max),
            fs,
            root,
            config,
            clock,
            pool: Arc::new(Pool::default()),
            watcher: RwLock::new(None),
            closed: AtomicBool::new(false),
            metrics: EngineMetrics::new("embedded"),
            due: Due::default(),
            lock: Mutex::new(None),
            started: Instant::now(),
            watched_until: AtomicU64::new(0),
            slow_until: AtomicU64::new(0),
            #[cfg(test)]
            mutant: crate::tests::Mutant::None,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    pub(crate) fn refuse_when_closed(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    pub(crate) fn note_write_time(&self, took: Duration) {
        if took > SLOW_WRITE {
            let now = self.started.elapsed();
            let until = millis(now + SLOW_FOR);
            if self.watched_until.swap(until, Ordering::Relaxed) > millis(now) {
                self.slow_until.store(until, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn writes_are_slow(&self) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        until != 0 && millis(self.started.elapsed()) < until
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
