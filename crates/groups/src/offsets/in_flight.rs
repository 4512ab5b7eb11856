//! Records on their way to the log, and requests that wait for them.
//!
//! The log keeps records in the order in which they were handed out, so the table must change in that order, too. A
//! conditional commit can be judged only when nothing of its group is under way: what it compares with might not
//! become durable. It waits, and whatever its group commits after it waits behind it, so that commits of a group keep
//! their order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::commit::Waiting;
use super::record::{Change, Mark};
use super::table::TopicKey;
use super::topic_counts::TopicCounts;
use crate::error::GroupError;
use crate::output::Ticket;
use crate::types::Token;

/// What to answer when a record is settled.
#[derive(Debug)]
pub(crate) enum Reply {
    None,
    Commit(Token, Vec<Result<(), GroupError>>),
    DeleteOffsets(Token, Vec<Result<(), GroupError>>),
    DeleteGroup(Token, Arc<str>),
}

#[derive(Debug)]
struct Entry {
    change: Change,
    reply: Reply,
    durable: Option<bool>,
}

/// A record whose fate is known.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) change: Change,
    pub(crate) reply: Reply,
    pub(crate) durable: bool,
    /// What to record next about its group having members.
    pub(crate) next_mark: Option<Mark>,
}

#[derive(Debug, Default)]
struct Load {
    records: usize,
    /// A record of the group having members, or none, is under way.
    marking: bool,
    /// What to record after it: the last word counts, however often a group flaps while the store is slow.
    next_mark: Option<Mark>,
    waiting: VecDeque<Waiting>,
}

/// All that is under way.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Ticket of the first entry; the others follow without gaps.
    first: u64,
    entries: VecDeque<Entry>,
    groups: HashMap<Arc<str>, Load>,
    /// Removals of each topic.
    removals: TopicCounts,
    waiting: usize,
    adds: usize,
}

impl InFlight {
    /// Requests and records under way.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.waiting
    }

    /// How many offsets the records under way may add.
    pub(crate) fn adds(&self) -> usize {
        self.adds
    }

    /// True when a record of the group is under way, or a request waits for one.
    pub(crate) fn is_busy(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// True when a request of the group waits.
    pub(crate) fn has_waiting(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|load| !load.waiting.is_empty())
    }

    pub(crate) fn push(&mut self, change: Change, reply: Reply) -> Ticket {
        if let Some(group) = change.group() {
            let load = self.groups.entry(group.clone()).or_default();
            load.records += 1;
            load.marking |= matches!(change, Change::Mark { .. });
        }
        if let Change::RemoveTopic { topic } = &change {
            self.removals.add(topic);
        }
        self.adds += change.adds();
        let ticket = Ticket(self.first + self.entries.len() as u64);
        self.entries.push_back(Entry { change, reply, durable: None });
        ticket
    }

    /// Keeps a mark until the one that is under way is settled. False when none is.
    pub(crate) fn hold_mark(&mut self, group: &str, mark: Mark) -> bool {
        let Some(load) = self.groups.get_mut(group).filter(|load| load.marking) else { return false };
        load.next_mark = Some(mark);
        true
    }

    /// Notes what became of a record. A ticket that is not under way is ignored.
    pub(crate) fn note(&mut self, ticket: Ticket, durable: bool) {
        let at = ticket.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at))
            && entry.durable.is_none()
        {
            entry.durable = Some(durable);
        }
    }

    /// The oldest record, once it is settled.
    pub(crate) fn pop(&mut self) -> Option<Settled> {
        let durable = self.entries.front()?.durable?;
        let entry = self.entries.pop_front()?;
        self.first += 1;
        self.adds = self.adds.saturating_sub(entry.change.adds());
        if let Change::RemoveTopic { topic } = &entry.change {
            self.removals.remove(topic);
        }
        let mut next_mark = None;
        if let Some(group) = entry.change.group()
            && let Some(load) = self.groups.get_mut(group)
        {
            load.records = load.records.saturating_sub(1);
            if matches!(entry.change, Change::Mark { .. }) {
                load.marking = false;
                next_mark = load.next_mark.take();
            }
            if load.records == 0 && load.waiting.is_empty() {
                self.groups.remove(group);
            }
        }
        Some(Settled { change: entry.change, reply: entry.reply, durable, next_mark })
    }

    /// Everything that is under way, in order: replies to records, and requests that wait. Nothing is, afterwards.
    pub(crate) fn give_up(&mut self) -> (Vec<Reply>, Vec<Waiting>) {
        self.first += self.entries.len() as u64;
        let replies = self.entries.drain(..).map(|entry| entry.reply).collect();
        let waiting = self.groups.drain().flat_map(|(_, load)| load.waiting).collect();
        self.removals.clear();
        (self.waiting, self.adds) = (0, 0);
        (replies, waiting)
    }

    /// The topics of that name in commits of the group that are under way.
    pub(crate) fn topics_of(&self, group: &str, name: &str) -> Vec<TopicKey> {
        let stores = self.entries.iter().filter_map(|entry| match &entry.change {
            Change::Store(store) if &*store.group == group => Some(store),
            _ => None,
        });
        stores.flat_map(|store| &store.topics).map(|(key, _)| key).filter(|key| &*key.name == name).cloned().collect()
    }

    /// True when a commit that is under way has an offset of the topic.
    pub(crate) fn stores(&self, topic: &TopicKey) -> bool {
        self.entries.iter().any(|entry| match &entry.change {
            Change::Store(store) => store.topics.iter().any(|(key, _)| key == topic),
            _ => false,
        })
    }

    /// True when a removal of the topic is under way.
    pub(crate) fn removes(&self, topic: &TopicKey) -> bool {
        self.removals.of(topic) > 0
    }

    pub(crate) fn wait(&mut self, request: Waiting) {
        self.waiting += 1;
        self.groups.entry(request.request.group.clone()).or_default().waiting.push_back(request);
    }

    /// The next request of the group that need not wait any longer.
    pub(crate) fn next_waiting(&mut self, group: &str) -> Option<Waiting> {
        let load = self.groups.get_mut(group)?;
        let next = load.waiting.front()?;
        if next.request.is_conditional() && load.records > 0 {
            return None;
        }
        let next = load.waiting.pop_front();
        if load.records == 0 && load.waiting.is_empty() {
            self.groups.remove(group);
        }
        self.waiting -= 1;
        next
    }
}
