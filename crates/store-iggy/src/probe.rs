//! Looking for messages of other writers.
//!
//! The server pushes nothing and does not wait. So topics whose ends somebody asks for are looked at again by
//! themselves, for a while: one question covers all partitions of a topic, however many fetches wait for them. Pauses
//! are short after something came and grow while nothing does.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::inner::Inner;
use crate::limits;
use crate::partition::probe_pause;
use crate::topics::TopicState;

/// A topic on the list.
struct Probe {
    state: Arc<TopicState>,
    pause: Duration,
    /// `None` while it is looked at.
    due: Option<Instant>,
}

/// What came of a look.
struct Looked {
    state: Arc<TopicState>,
    grew: bool,
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

/// Looks at wanted topics until the store is gone. Some are looked at side by side: one that the server does not answer about
/// must not hold up the others.
pub(crate) async fn run(store: Weak<Inner>) {
    let (mut probes, mut looks) = (Vec::new(), JoinSet::new());
    loop {
        let Some(inner) = store.upgrade().filter(|inner| inner.check_open().is_ok()) else { return };
        if !inner.falls.lock().is_empty() {
            let inner = Arc::clone(&inner);
            // Not here: the journal may be slow, and fetches wait for the looks.
            tokio::spawn(async move { inner.raise_all().await });
        }
        let fresh = std::mem::take(&mut *inner.probed.lock());
        let due = Some(Instant::now() + limits::PROBE_INTERVAL_MIN);
        probes.extend(fresh.into_iter().map(|state| Probe { state, pause: limits::PROBE_INTERVAL_MIN, due }));
        forget_unwanted(&inner, &mut probes);
        begin_looks(&inner, &mut probes, &mut looks);
        let longest = inner.config().probe_interval_max;
        drop(inner);
        if let Some(looked) = wait(&store, next_due(&probes, looks.len()), &mut looks).await {
            let topics = probes.len();
            if let Some(probe) = probes.iter_mut().find(|probe| Arc::ptr_eq(&probe.state, &looked.state)) {
                probe.pause = probe_pause(probe.pause, looked.grew, longest, topics);
                probe.due = Some(Instant::now() + probe.pause);
            }
        }
    }
}

/// When the next look is due; while there is no room for one, somebody else has to end first.
fn next_due(probes: &[Probe], looking: usize) -> Instant {
    let next = probes.iter().filter_map(|probe| probe.due).min().filter(|_| looking < limits::PROBES_AT_ONCE);
    next.unwrap_or_else(|| Instant::now() + limits::INTEREST)
}

/// Until then, or until there is something to do before that: a look that ended, perhaps.
async fn wait(store: &Weak<Inner>, until: Instant, looks: &mut JoinSet<Looked>) -> Option<Looked> {
    let inner = store.upgrade()?;
    tokio::select! {
        () = sleep_until(until.into()) => None,
        () = inner.probe_wake.notified() => None,
        Some(looked) = looks.join_next() => looked.ok(),
    }
}

fn forget_unwanted(inner: &Inner, probes: &mut Vec<Probe>) {
    let now = Instant::now();
    probes.retain(|probe| {
        let wanted = probe.state.is_wanted(now, limits::INTEREST) && inner.topics.get(&probe.state.topic).is_some();
        if !wanted && probe.due.is_some() {
            probe.state.probed.store(false, Ordering::Release);
            return false;
        }
        true
    });
}

/// Begins looks at what is due, the longest due first.
fn begin_looks(inner: &Arc<Inner>, probes: &mut [Probe], looks: &mut JoinSet<Looked>) {
    let now = Instant::now();
    while looks.len() < limits::PROBES_AT_ONCE {
        let due = probes.iter_mut().filter(|probe| probe.due.is_some_and(|due| due <= now));
        let Some(probe) = due.min_by_key(|probe| probe.due) else { return };
        probe.due = None;
        let (inner, state) = (Arc::clone(inner), Arc::clone(&probe.state));
        looks.spawn(async move {
            let before = ends(&state);
            // A failure is told to whoever asks next; here it only makes the pause longer.
            let looked = inner.look(&state, now).await;
            let grew = looked.is_ok() && ends(&state) != before;
            Looked { state, grew }
        });
    }
}

fn ends(state: &TopicState) -> u64 {
    state.partitions().iter().map(|partition| partition.lock().bounds().end).fold(0, u64::wrapping_add)
}
