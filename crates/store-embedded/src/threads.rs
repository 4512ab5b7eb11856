//! The store's own threads. Both sleep while there is nothing to do.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::env::Env;
use crate::partition::Partition;
use crate::store::Inner;

/// Longest sleep, so that a store that was dropped without notice is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Partitions that have to be flushed, and when. Each is in it once at most, since it is added when its first byte
/// becomes unflushed.
#[derive(Default)]
pub(crate) struct Due {
    state: Mutex<DueState>,
    wake: Condvar,
}

#[derive(Default)]
struct DueState {
    partitions: Vec<(Instant, Weak<Partition>)>,
    stopped: bool,
}

impl Due {
    pub(crate) fn add(&self, at: Instant, partition: Weak<Partition>) {
        let mut state = self.state.lock();
        let earliest = state.partitions.iter().map(|(at, _)| *at).min();
        state.partitions.push((at, partition));
        if earliest.is_none_or(|earliest| at < earliest) {
            self.wake.notify_one();
        }
    }

    /// The partitions whose time has come by `now`.
    pub(crate) fn take(&self, now: Instant) -> Vec<Arc<Partition>> {
        let mut state = self.state.lock();
        let due = state.partitions.extract_if(.., |(at, _)| *at <= now);
        due.filter_map(|(_, partition)| partition.upgrade()).collect()
    }

    /// Waits until a partition is due; false when the store stops.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.stopped {
            let now = Instant::now();
            let earliest = state.partitions.iter().map(|(at, _)| *at).min();
            match earliest {
                Some(at) if at <= now => return true,
                Some(at) => drop(self.wake.wait_until(&mut state, at)),
                None => drop(self.wake.wait_for(&mut state, SLEEP_MAX)),
            }
        }
        false
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_all();
    }
}

/// The running threads.
pub(crate) struct Threads {
    env: Arc<Env>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts the threads. When the system has none to give, the store works without: what they do is then done late
    /// or not at all, which is logged.
    pub(crate) fn start(inner: &Arc<Inner>) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let mut handles = Vec::new();
        let (weak, env) = (Arc::downgrade(inner), inner.env.clone());
        handles.extend(spawn("milena-flush", move || {
            while env.due.wait() {
                let Some(inner) = weak.upgrade() else { return };
                inner.flush_due(&env.due.take(Instant::now()));
            }
        }));
        if let Some(every) = inner.env.config.maintenance_every {
            let (weak, stopped) = (Arc::downgrade(inner), stop.clone());
            handles.extend(spawn("milena-keep", move || {
                while let Some(inner) = weak.upgrade() {
                    inner.maintain(inner.env.now());
                    drop(inner);
                    if !sleep(&stopped, every) {
                        return;
                    }
                }
            }));
        }
        Self { env: inner.env.clone(), stop, handles: Mutex::new(handles) }
    }

    #[cfg(test)]
    pub(crate) fn none(inner: &Inner) -> Self {
        Self { env: inner.env.clone(), stop: Arc::default(), handles: Mutex::default() }
    }

    /// Tells the threads to end, once they are through with what they are doing.
    pub(crate) fn stop(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.env.due.stop();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        // Waited for, so that the folder is free for the next one who opens it.
        for handle in self.handles.lock().drain(..) {
            drop(handle.join());
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|error| tracing::error!(%error, thread = name, "a thread could not be started")).ok()
}

/// False when told to stop.
fn sleep(stop: &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let until = Instant::now() + time;
    let mut stopped = stop.0.lock();
    while !*stopped {
        if stop.1.wait_until(&mut stopped, until).timed_out() {
            return !*stopped;
        }
    }
    false
}
