//! What happened, in order: each entry has the time at which the member itself noted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970. All processes are on one machine, so their clocks are one.
pub type Nanos = u64;

pub fn now() -> Nanos {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Assigned {
        generation: i32,
        partitions: Vec<i32>,
    },
    Revoked {
        generation: i32,
        partitions: Vec<i32>,
    },
    Got {
        generation: i32,
        partition: i32,
        offset: i64,
    },
    Acked {
        offsets: Vec<(i32, i64)>,
    },
    Refused {
        reason: String,
    },
    Failed {
        reason: String,
    },
    /// The member was killed or stopped: it cannot know what the group decides from here on.
    Silenced,
    /// The server lost its members: they learn it one by one, so that ownership may overlap until then.
    ServerRestarted,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Nanos,
    pub member: String,
    /// The instance id of a static member, which outlives its processes; else the member's name.
    pub identity: String,
    pub event: Event,
}

#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    pub fn add(&self, entry: Entry) {
        self.0.lock().unwrap().push(entry);
    }

    pub fn note(&self, member: &str, identity: &str, event: Event) {
        self.add(Entry { at: now(), member: member.to_owned(), identity: identity.to_owned(), event });
    }

    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.0.lock().unwrap().clone();
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    /// What each member has that is not silenced.
    pub fn owned(&self) -> BTreeMap<String, BTreeSet<i32>> {
        let mut owned: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for entry in self.entries() {
            let own = owned.entry(entry.member.clone()).or_default();
            match entry.event {
                Event::Assigned { partitions, .. } => own.extend(partitions),
                Event::Revoked { partitions, .. } => own.retain(|partition| !partitions.contains(partition)),
                Event::Silenced => own.clear(),
                Event::ServerRestarted => owned.clear(),
                _ => {}
            }
        }
        owned.retain(|_, own| !own.is_empty());
        owned
    }

    /// Waits until `members` members share all partitions evenly, and gives who has what. Uneven is not over yet: who has
    /// too many may not have read the answer that takes some of them away.
    pub fn shared_by(&self, members: usize, partitions: usize, patience: Duration) -> BTreeMap<String, BTreeSet<i32>> {
        let even = partitions / members..=partitions.div_ceil(members);
        self.wait(&format!("{members} members do not share {partitions} partitions evenly"), patience, || {
            let owned = self.owned();
            let whole = owned.values().map(BTreeSet::len).sum::<usize>() == partitions;
            let even = owned.values().all(|own| even.contains(&own.len()));
            (whole && even && owned.len() == members).then_some(owned)
        })
    }

    pub fn wait<T>(&self, what: &str, patience: Duration, mut done: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(result) = done() {
                return result;
            }
            assert!(start.elapsed() < patience, "{what} after {patience:?}\n{}", self.summary());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everything but deliveries and acknowledgements, for a person.
    pub fn summary(&self) -> String {
        let entries = self.entries();
        let start = entries.first().map_or(0, |entry| entry.at);
        let quiet = |entry: &&Entry| !matches!(entry.event, Event::Got { .. } | Event::Acked { .. });
        let line =
            |entry: &Entry| format!("{:>7} ms  {}  {:?}\n", (entry.at - start) / 1_000_000, entry.member, entry.event);
        entries.iter().filter(quiet).map(line).collect()
    }
}
