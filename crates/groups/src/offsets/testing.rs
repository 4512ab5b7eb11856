//! A table with a log behind it, for tests.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;

pub(crate) use super::codec::decode;
pub(crate) use super::record::Change;
use crate::{Answer, Append, Token};

/// Incarnation of the topics that these tests use.
pub(crate) const ID: TopicId = TopicId(7);
use crate::types::TopicId;

pub(crate) struct Desk {
    pub(crate) offsets: Offsets,
    pub(crate) out: Outputs,
    pub(crate) now: Timestamp,
    /// Durable records.
    pub(crate) log: Vec<Vec<u8>>,
    answers: HashMap<Token, Answer>,
    tokens: u64,
}

pub(crate) fn part(partition: i32, offset: i64) -> CommitPartition {
    CommitPartition { partition, exists: true, offset, leader_epoch: -1, metadata: None, expected: None }
}

pub(crate) fn topic(name: &str, partitions: Vec<CommitPartition>) -> CommitTopic {
    CommitTopic { name: Arc::from(name), id: Some(ID), partitions }
}

pub(crate) fn request(group: &str, topics: Vec<CommitTopic>) -> CommitRequest {
    CommitRequest { group: Arc::from(group), retention_ms: None, topics }
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(OffsetConfig { restart_grace_ms: 0, ..OffsetConfig::default() })
    }

    pub(crate) fn with(config: OffsetConfig) -> Self {
        let mut offsets = Offsets::new(config);
        let now = Timestamp(1_000_000);
        offsets.loaded(now);
        Self { offsets, out: Outputs::default(), now, log: Vec::new(), answers: HashMap::new(), tokens: 0 }
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Sends a commit; nothing is settled yet.
    pub(crate) fn send(&mut self, request: CommitRequest) -> Token {
        let token = self.token();
        self.offsets.commit(token, request, false, self.now, &mut self.out);
        token
    }

    /// Settles one record.
    pub(crate) fn settle(&mut self, append: Append, durable: bool) {
        if durable {
            self.log.push(append.record);
        }
        self.offsets.settled(append.ticket, durable, &mut self.out);
    }

    /// Settles everything that is under way, in order.
    pub(crate) fn settle_all(&mut self, durable: bool) {
        while !self.out.appends.is_empty() {
            let append = self.out.appends.remove(0);
            self.settle(append, durable);
        }
    }

    pub(crate) fn answer(&mut self, token: Token) -> Option<Answer> {
        for (token, answer) in self.out.answers.drain(..) {
            assert!(self.answers.insert(token, answer).is_none(), "answered twice");
        }
        self.answers.remove(&token)
    }

    pub(crate) fn committed(&mut self, token: Token) -> Vec<Result<(), GroupError>> {
        match self.answer(token) {
            Some(Answer::Commit(results)) => results,
            other => panic!("{other:?}"),
        }
    }

    /// Commits and waits for the answer.
    pub(crate) fn commit(&mut self, group: &str, topics: Vec<CommitTopic>) -> Vec<Result<(), GroupError>> {
        let token = self.send(request(group, topics));
        self.settle_all(true);
        self.committed(token)
    }

    pub(crate) fn get(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.offsets.view(group).unwrap().get(topic, ID, partition).map(Committed::offset)
    }

    /// Everything in the table, with all that belongs to it.
    pub(crate) fn rows(&self) -> Vec<(Arc<str>, Mark, TopicKey, i32, Committed)> {
        rows(&self.offsets)
    }

    /// A table that was loaded from the log.
    pub(crate) fn restarted(&self) -> Self {
        let mut desk = Self::with(self.offsets.config.clone());
        desk.offsets.reset();
        for record in &self.log {
            desk.offsets.replay(record).unwrap();
        }
        desk.now = self.now;
        desk.offsets.loaded(self.now);
        desk.log.clone_from(&self.log);
        desk
    }
}

pub(crate) fn rows(offsets: &Offsets) -> Vec<(Arc<str>, Mark, TopicKey, i32, Committed)> {
    let mut groups: Vec<_> = offsets.groups().cloned().collect();
    groups.sort();
    let of = |group: Arc<str>| {
        let mark = offsets.table.mark(&group);
        let view = offsets.view(&group).unwrap();
        view.iter().map(|(key, p, c)| (group.clone(), mark, key.clone(), p, c.clone())).collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(of).collect()
}

/// The records of a snapshot.
pub(crate) fn snapshot(offsets: &Offsets) -> Vec<Vec<u8>> {
    let (mut walk, mut records) = (Walk::default(), Vec::new());
    while !walk.is_over() {
        records.extend(offsets.freeze(&mut walk).records());
    }
    records
}

/// The topics that groups hold offsets of.
pub(crate) fn topics(offsets: &Offsets) -> Vec<TopicKey> {
    let (mut walk, mut topics) = (Walk::default(), HashSet::new());
    while !walk.is_over() {
        offsets.topics(&mut walk, &mut topics);
    }
    let mut topics: Vec<_> = topics.into_iter().collect();
    topics.sort();
    topics
}
