//! What must hold in every schedule.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::process::{REBALANCE_MS_MAX, Write};
use super::world::GROUP;
use crate::offsets::testing::{Change, decode};
use crate::{Coordinator, GroupError, GroupEvent, GroupState, Joined, Token};

/// Longest initial delay.
pub(crate) const DELAY_MS_MAX: u64 = 500;

/// No rebalance takes longer, and so no answer of a join or sync. One tick may be late.
const WAIT_MS_MAX: u64 = REBALANCE_MS_MAX + DELAY_MS_MAX + 200;

/// What one generation was told.
#[derive(Default)]
struct Told {
    leader: String,
    protocol: Option<String>,
    /// Persons and blobs, once the leader filed them.
    filed: Option<HashMap<String, Vec<u8>>>,
}

/// What happened, so that a simulation in which nothing happens is noticed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Stats {
    pub(crate) generations: u64,
    pub(crate) assignments: u64,
    pub(crate) commits: u64,
    pub(crate) refused_commits: u64,
    pub(crate) failed_commits: u64,
    pub(crate) fenced: u64,
    pub(crate) returned: u64,
    pub(crate) skipped: u64,
    pub(crate) restarts: u64,
    pub(crate) handovers: u64,
    pub(crate) snapshots: u64,
    pub(crate) forgotten: u64,
}

impl Stats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.generations += other.generations;
        self.assignments += other.assignments;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.failed_commits += other.failed_commits;
        self.fenced += other.fenced;
        self.returned += other.returned;
        self.skipped += other.skipped;
        self.restarts += other.restarts;
        self.handovers += other.handovers;
        self.snapshots += other.snapshots;
        self.forgotten += other.forgotten;
    }
}

/// A static member is the same person under every id that it gets.
fn person(member_id: &str) -> String {
    match member_id.split_once('-') {
        Some((instance, _)) if instance.starts_with("inst") => instance.to_owned(),
        _ => member_id.to_owned(),
    }
}

#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) stats: Stats,
    generations: HashMap<i32, Told>,
    last: i32,
    /// Requests that the coordinator has and has not answered, and since when.
    open: BTreeMap<Token, u64>,
    /// Members by the events that told of them.
    members: usize,
    /// True between an event that a rebalance began and one that it ended.
    rebalancing: bool,
    /// Ids that each instance was told.
    given: HashMap<String, Vec<String>>,
    fenced: HashSet<String>,
    /// Offsets by acknowledgements.
    pub(crate) acknowledged: BTreeMap<i32, i64>,
}

type Verdict = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl Checks {
    /// The coordinator starts anew and knows nobody.
    pub(crate) fn restart(&mut self) {
        self.generations.clear();
        self.last = 0;
        self.open.clear();
        self.members = 0;
        self.rebalancing = false;
        self.given.clear();
        self.fenced.clear();
        self.stats.restarts += 1;
    }

    /// What counters are told agrees with what there is.
    pub(crate) fn counted(&mut self, events: &[GroupEvent], coordinator: &Coordinator) -> Verdict {
        if events.is_empty() {
            return Ok(());
        }
        for event in events {
            match event {
                GroupEvent::MemberJoined => self.members += 1,
                GroupEvent::MemberGone(_) => self.members -= 1,
                GroupEvent::RebalanceBegan(_) => self.rebalancing = true,
                GroupEvent::RebalanceEnded { .. } => {
                    ensure(self.rebalancing, || "a rebalance ended that never began".to_owned())?;
                    self.rebalancing = false;
                }
                _ => {}
            }
        }
        let (census, state) = (coordinator.census(), coordinator.state(GROUP));
        let shown = coordinator.describe(GROUP).map_or(0, |shown| shown.members.len());
        let is_counted = state == GroupState::Dead || census.groups(state) == 1;
        let all = census.members + census.pending;
        ensure(is_counted && census.members == shown && self.members == shown && all == coordinator.members(), || {
            format!("{census:?}, {} members by events, {shown} are shown, {state:?}", self.members)
        })
    }

    pub(crate) fn opened(&mut self, token: Token, now: u64) {
        self.open.insert(token, now);
    }

    pub(crate) fn forgotten(&mut self, token: Token) {
        if self.open.remove(&token).is_some() {
            self.stats.forgotten += 1;
        }
    }

    /// Every request is answered once, and in time.
    pub(crate) fn answered(&mut self, token: Token, now: u64) -> Verdict {
        let since = self.open.remove(&token).ok_or_else(|| format!("{token:?} is answered without being open"))?;
        ensure(now - since <= WAIT_MS_MAX, || format!("{token:?} waited {} ms", now - since))
    }

    /// Nobody waits for ever.
    pub(crate) fn nobody_waits_too_long(&self, now: u64) -> Verdict {
        // Tokens are given out in the order of time, so that the first one waits longest, but for the way to the
        // service.
        match self.open.first_key_value().filter(|(_, since)| now - **since > WAIT_MS_MAX) {
            Some((token, since)) => Err(format!("{token:?} waits since {since}, now is {now}")),
            None => Ok(()),
        }
    }

    /// A static member takes its place; all its ids so far are void.
    pub(crate) fn took_over(&mut self, instance: &str) {
        self.fenced.extend(self.given.remove(instance).unwrap_or_default());
    }

    /// No two members of one generation hear of different leaders or protocols, and generations never fall.
    pub(crate) fn joined(&mut self, joined: &Joined, instance: Option<&str>) -> Verdict {
        let generation = joined.generation.0;
        ensure(generation >= self.last && generation > 0, || format!("generation {generation} after {}", self.last))?;
        self.last = generation;
        let protocol = joined.protocol.as_deref().map(str::to_owned);
        let leader = person(&joined.leader);
        if let Some(instance) = instance {
            self.given.entry(instance.to_owned()).or_default().push(joined.member_id.to_string());
        }
        self.stats.skipped += u64::from(joined.skip_assignment);
        if let Some(told) = self.generations.get(&generation) {
            self.stats.returned += u64::from(told.filed.is_some() && instance.is_some());
            ensure(told.leader == leader, || format!("{generation}: leaders {} and {leader}", told.leader))?;
            ensure(told.protocol == protocol, || format!("{generation}: {:?} and {protocol:?}", told.protocol))?;
        } else {
            self.stats.generations += 1;
            self.generations.insert(generation, Told { leader, protocol, filed: None });
        }
        let leads = joined.leader == joined.member_id;
        ensure(!leads || joined.members.iter().any(|m| m.member_id == joined.member_id), || {
            format!("the leader of {generation} is not among its members")
        })?;
        ensure(leads || joined.members.is_empty(), || "a follower hears who is in".to_owned())
    }

    /// The group became stable by this very request.
    pub(crate) fn filed(&mut self, generation: i32, member_id: &str, assignments: &[(String, Vec<u8>)]) -> Verdict {
        let told = self.generations.get_mut(&generation).ok_or("a generation that nobody was told")?;
        ensure(told.leader == person(member_id), || format!("{member_id} files, {} leads", told.leader))?;
        ensure(told.filed.is_none(), || format!("{generation} is filed twice"))?;
        told.filed = Some(assignments.iter().map(|(id, blob)| (person(id), blob.clone())).collect());
        Ok(())
    }

    /// Every member gets exactly what its leader filed for it, or nothing if it was left out.
    pub(crate) fn synced(&mut self, generation: i32, member_id: &str, assignment: &[u8]) -> Verdict {
        self.stats.assignments += 1;
        let told = self.generations.get(&generation).ok_or("a generation that nobody was told")?;
        let filed = told.filed.as_ref().ok_or_else(|| format!("{generation} has an assignment that nobody filed"))?;
        let mine = filed.get(&person(member_id)).map(Vec::as_slice).unwrap_or_default();
        ensure(mine == assignment, || format!("{member_id} in {generation} got {assignment:?}, filed was {mine:?}"))
    }

    /// A commit of a member passed the coordinator's check.
    pub(crate) fn allowed(&mut self, generation: i32, member_id: &str) -> Verdict {
        ensure(!self.fenced.contains(member_id), || format!("{member_id} is fenced and commits"))?;
        ensure(generation == self.last, || format!("a commit of {generation} in {}", self.last))
    }

    /// A commit is answered.
    pub(crate) fn acknowledge(&mut self, writes: &[Write], results: &[Result<(), GroupError>]) -> Verdict {
        ensure(writes.len() == results.len(), || "an answer of another length".to_owned())?;
        for (write, result) in writes.iter().zip(results) {
            if result.is_ok() {
                self.take(write.partition, write.offset);
            }
        }
        self.stats.commits += u64::from(results.iter().any(Result::is_ok));
        self.stats.failed_commits += u64::from(results.contains(&Err(GroupError::StoreFailed)));
        Ok(())
    }

    fn take(&mut self, partition: i32, offset: i64) {
        if offset < 0 {
            self.acknowledged.remove(&partition);
        } else {
            self.acknowledged.insert(partition, offset);
        }
    }

    /// A record that nobody was told of is in the log after a restart; it counts.
    pub(crate) fn landed(&mut self, record: &[u8]) -> Verdict {
        let Change::Store(store) = decode(record).map_err(|e| e.to_string())? else { return Ok(()) };
        for write in store.topics.into_iter().flat_map(|(_, writes)| writes) {
            self.take(write.partition, write.value.map_or(-1, |value| value.offset));
        }
        Ok(())
    }

    /// The table holds what was acknowledged last, for each partition.
    pub(crate) fn stored(&self, stored: impl Fn(i32) -> i64) -> Verdict {
        for partition in 0..super::process::PARTITIONS {
            let expected = self.acknowledged.get(&partition).copied().unwrap_or(-1);
            let is = stored(partition);
            ensure(is == expected, || format!("partition {partition} holds {is}, acknowledged is {expected}"))?;
        }
        Ok(())
    }
}
