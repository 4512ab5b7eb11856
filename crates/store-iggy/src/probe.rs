//! Looking for messages of other writers.
//!
//! The server pushes nothing and does not wait. So topics whose ends somebody asks for are looked at again by
//! themselves, for a while: one question covers all partitions of a topic, however many fetches wait for them. Pauses
//! are short after something came and grow while nothing does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::inner::Inner;
use crate::limits;
use crate::partition::probe_pause;
use crate::topics::TopicState;

/// A topic on the list.
struct Probe {
    state: Arc<TopicState>,
    pause: Duration,
    /// How long the next look may take.
    patience: Duration,
}

/// The topics that wait for a look, by the time at which it is due. One that is looked at is not among them.
#[derive(Default)]
struct Waiting {
    by_due: BTreeMap<(Instant, u64), Probe>,
    /// Tells apart what is due at one moment.
    next: u64,
}

impl Waiting {
    fn put(&mut self, due: Instant, probe: Probe) {
        self.next = self.next.wrapping_add(1);
        self.by_due.insert((due, self.next), probe);
    }

    /// The one that is due for longest.
    fn take_due(&mut self, now: Instant) -> Option<Probe> {
        let first = self.by_due.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    fn next_due(&self) -> Option<Instant> {
        self.by_due.first_key_value().map(|((due, _), _)| *due)
    }
}

/// What came of a look.
struct Looked {
    probe: Probe,
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

/// Looks at wanted topics until the store is gone. Some are looked at side by side, each for a limited time: one that the server
/// does not answer about must not hold up the others.
pub(crate) async fn run(store: Weak<Inner>) {
    let (mut waiting, mut looks) = (Waiting::default(), JoinSet::new());
    loop {
        let Some(inner) = store.upgrade().filter(|inner| inner.check_open().is_ok()) else { return };
        if !inner.falls.lock().is_empty() {
            let inner = Arc::clone(&inner);
            // Not here: the journal may be slow, and fetches wait for the looks.
            tokio::spawn(async move { inner.raise_all().await });
        }
        let fresh = std::mem::take(&mut *inner.probed.lock());
        for state in fresh {
            let pause = limits::PROBE_INTERVAL_MIN;
            waiting.put(Instant::now() + pause, Probe { state, pause, patience: limits::PROBE_PATIENCE });
        }
        begin_looks(&inner, &mut waiting, &mut looks);
        let longest = inner.config().probe_interval_max;
        drop(inner);
        if let Some(Looked { mut probe, grew }) = wait(&store, next_due(&waiting, looks.len()), &mut looks).await {
            let topics = waiting.by_due.len() + looks.len() + 1;
            probe.pause = probe_pause(probe.pause, grew, longest, topics);
            waiting.put(Instant::now() + probe.pause, probe);
        }
    }
}

/// When the next look is due; while there is no room for one, somebody else has to end first.
fn next_due(waiting: &Waiting, looking: usize) -> Instant {
    let next = waiting.next_due().filter(|_| looking < limits::PROBES_AT_ONCE);
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

/// Begins looks at what is due, the longest due first. What nobody asks for any more leaves the list then.
fn begin_looks(inner: &Arc<Inner>, waiting: &mut Waiting, looks: &mut JoinSet<Looked>) {
    let now = Instant::now();
    while looks.len() < limits::PROBES_AT_ONCE
        && let Some(probe) = waiting.take_due(now)
    {
        if !inner.topics.is_known(&probe.state) || !probe.state.stays_wanted(now, limits::INTEREST) {
            continue;
        }
        looks.spawn(look(Arc::clone(inner), probe));
    }
}

async fn look(inner: Arc<Inner>, mut probe: Probe) -> Looked {
    let before = ends(&probe.state);
    // A failure is told to whoever asks next; here it only makes the pause longer.
    let looked = timeout(probe.patience, inner.look(&probe.state, Instant::now())).await;
    probe.patience = match &looked {
        Ok(_) => limits::PROBE_PATIENCE,
        // Perhaps it is slow, and would answer in the end.
        Err(_) => probe.patience.saturating_mul(2).min(inner.config().call_timeout.max(limits::PROBE_PATIENCE)),
    };
    let grew = matches!(looked, Ok(Ok(()))) && ends(&probe.state) != before;
    Looked { probe, grew }
}

fn ends(state: &TopicState) -> u64 {
    state.partitions().iter().map(|partition| partition.lock().bounds().end).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use iggy_common::{IggyExpiry, MaxTopicSize};
    use milena_store::TopicRef;

    use super::*;
    use crate::options::Facts;
    use crate::topics::Topics;

    fn probe(id: u32) -> Probe {
        let (expiry, max_size) = (IggyExpiry::NeverExpire, MaxTopicSize::Unlimited);
        let facts = Facts { expiry, max_size, partitions: 1, segment_bytes: None, persists: None };
        let (state, _) = Topics::default().put(&TopicRef::new("kafka", &id.to_string(), 1, id, 1), facts);
        Probe { state, pause: limits::PROBE_INTERVAL_MIN, patience: limits::PROBE_PATIENCE }
    }

    #[test]
    fn the_topic_that_is_due_for_longest_is_looked_at_first_and_none_before_its_time() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut waiting = Waiting::default();
        for (id, due) in [(1, now + second), (2, now), (3, now - second), (4, now)] {
            waiting.put(due, probe(id));
        }
        assert_eq!(waiting.next_due(), Some(now - second));
        let taken: Vec<u32> =
            std::iter::from_fn(|| waiting.take_due(now)).map(|probe| probe.state.topic.topic_id()).collect();
        assert_eq!(taken, [3, 2, 4], "two that are due at one moment both stay on the list");
        assert_eq!(next_due(&waiting, 0), now + second);
        assert!(next_due(&waiting, limits::PROBES_AT_ONCE) > now + second, "there is no room for it");
        assert!(waiting.take_due(now + second).is_some() && waiting.next_due().is_none());
    }
}
