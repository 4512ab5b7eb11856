//! Looking for messages of other writers.
//!
//! The server pushes nothing and does not wait. So topics whose ends somebody asks for are looked at again by
//! themselves, for a while: one question covers all partitions of a topic, however many fetches wait for them. Pauses
//! are short after something came and grow while nothing does.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::inner::Inner;
use crate::limits;
use crate::partition::probe_pause;
use crate::topics::TopicState;

/// A topic on the list.
struct Probe {
    state: Arc<TopicState>,
    pause: Duration,
    due: Instant,
}

impl Inner {
    /// Notes that somebody asks for an end of this topic.
    pub(crate) fn want(&self, state: &Arc<TopicState>) {
        if self.watcher.read().is_some() && state.want() {
            self.probed.lock().push(Arc::clone(state));
            self.probe_wake.notify_one();
        }
    }
}

/// Looks at wanted topics until the store is gone.
pub(crate) async fn run(store: Weak<Inner>) {
    let mut probes: Vec<Probe> = Vec::new();
    loop {
        let Some(inner) = store.upgrade().filter(|inner| inner.check_open().is_ok()) else { return };
        if !inner.falls.lock().is_empty() {
            let inner = Arc::clone(&inner);
            // Not here: the journal may be slow, and fetches wait for the looks.
            tokio::spawn(async move { inner.raise_all().await });
        }
        let fresh = std::mem::take(&mut *inner.probed.lock());
        let due = Instant::now() + limits::PROBE_INTERVAL_MIN;
        probes.extend(fresh.into_iter().map(|state| Probe { state, pause: limits::PROBE_INTERVAL_MIN, due }));
        round(&inner, &mut probes).await;
        let next = probes.iter().map(|probe| probe.due).min();
        let longest = Instant::now() + limits::INTEREST;
        drop(inner);
        wait(&store, next.unwrap_or(longest)).await;
    }
}

async fn wait(store: &Weak<Inner>, until: Instant) {
    let Some(inner) = store.upgrade() else { return };
    tokio::select! {
        () = sleep_until(until.into()) => {}
        () = inner.probe_wake.notified() => {}
    }
}

async fn round(inner: &Arc<Inner>, probes: &mut Vec<Probe>) {
    let now = Instant::now();
    probes.retain(|probe| {
        let kept = probe.state.is_wanted(now, limits::INTEREST) && inner.topics.get(&probe.state.topic).is_some();
        if !kept {
            probe.state.probed.store(false, Ordering::Release);
        }
        kept
    });
    let topics = probes.len();
    for probe in probes.iter_mut().filter(|probe| probe.due <= now) {
        let before = ends(&probe.state);
        // A failure is told to whoever asks next; here it only makes the pause longer.
        let looked = inner.look(&probe.state, now).await;
        let grew = looked.is_ok() && ends(&probe.state) != before;
        probe.pause = probe_pause(probe.pause, grew, inner.config().probe_interval_max, topics);
        probe.due = Instant::now() + probe.pause;
    }
}

fn ends(state: &TopicState) -> u64 {
    state.partitions().iter().map(|partition| partition.lock().bounds().end).fold(0, u64::wrapping_add)
}
