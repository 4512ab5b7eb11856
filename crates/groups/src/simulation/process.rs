//! A client process: what it believes, what it sends, and what it makes of answers, as stock clients do.

use super::rng::Rng;
use crate::testing::subscription;
use crate::{Generation, GroupError, Joined, Token};

pub(crate) const PARTITIONS: i32 = 6;
pub(crate) const REBALANCE_MS_MAX: u64 = 4_000;

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Join,
    Sync { assignments: Vec<(String, Vec<u8>)> },
    Heartbeat,
    Commit { writes: Vec<Write>, outsider: bool },
    Leave,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) expected: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Wants to join.
    Out,
    /// Has joined, wants its assignment.
    Joined,
    /// Works.
    In,
    /// Has ended, by itself or because it was fenced.
    Gone,
}

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) version: i16,
    pub(crate) instance: Option<String>,
    pub(crate) member_id: String,
    pub(crate) generation: Generation,
    pub(crate) stage: Stage,
    pub(crate) leads: bool,
    pub(crate) roster: Vec<String>,
    pub(crate) protocols: Vec<(String, Vec<u8>)>,
    /// What its last join said.
    said: Vec<(String, Vec<u8>)>,
    pub(crate) session_ms: i32,
    pub(crate) rebalance_ms: i32,
    /// The request under way.
    pub(crate) waits_for: Option<Token>,
    pub(crate) paused_until: u64,
    /// Leave as soon as it can.
    pub(crate) leaving: bool,
    pub(crate) fenced: bool,
}

impl Process {
    pub(crate) fn new(name: String, instance: Option<String>, rng: &mut Rng) -> Self {
        let version = if instance.is_some() { rng.within(5, 9) } else { rng.within(0, 9) };
        let mut process = Self {
            name,
            version: i16::try_from(version).unwrap(),
            instance,
            member_id: String::new(),
            generation: Generation::NONE,
            stage: Stage::Out,
            leads: false,
            roster: Vec::new(),
            protocols: Vec::new(),
            said: Vec::new(),
            session_ms: i32::try_from(rng.within(1_000, 2_000)).unwrap(),
            rebalance_ms: i32::try_from(rng.within(500, REBALANCE_MS_MAX)).unwrap(),
            waits_for: None,
            paused_until: 0,
            leaving: false,
            fenced: false,
        };
        process.subscribe(rng);
        process
    }

    /// Takes up another subscription. All know "range"; some prefer what not all know.
    pub(crate) fn subscribe(&mut self, rng: &mut Rng) {
        let metadata = |rng: &mut Rng| {
            let mut blob = subscription(&["t"]);
            blob.extend(rng.next().to_be_bytes());
            blob
        };
        self.protocols = match rng.within(0, 9) {
            0 => vec![("other".to_owned(), metadata(rng))],
            1..=4 => vec![("sticky".to_owned(), metadata(rng)), ("range".to_owned(), metadata(rng))],
            _ => vec![("range".to_owned(), metadata(rng))],
        };
    }

    /// True when it shares no protocol with most others.
    pub(crate) fn knows_only_other(&self) -> bool {
        self.protocols.iter().all(|(name, _)| name == "other")
    }

    /// What it sends next, if anything.
    pub(crate) fn next_request(&mut self, calm: bool, offsets: &mut i64, rng: &mut Rng) -> Option<Request> {
        if self.leaving && !self.member_id.is_empty() {
            return Some(Request::Leave);
        }
        match self.stage {
            Stage::Gone => None,
            Stage::Out if !calm && rng.percent(3) => Some(self.commit(offsets, rng)),
            Stage::Out => {
                self.said.clone_from(&self.protocols);
                Some(Request::Join)
            }
            Stage::Joined => Some(Request::Sync { assignments: self.assign(rng) }),
            Stage::In if rng.percent(40) => Some(self.commit(offsets, rng)),
            Stage::In => Some(Request::Heartbeat),
        }
    }

    /// The leader gives everybody a text of its own, and leaves some out. Others file nonsense, which must be
    /// ignored.
    fn assign(&self, rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
        let blob = |id: &str, rng: &mut Rng| format!("{}/{id}/{:x}", self.generation.0, rng.next()).into_bytes();
        if self.leads {
            let chosen: Vec<&String> = self.roster.iter().filter(|_| !rng.percent(20)).collect();
            return chosen.into_iter().map(|id| (id.clone(), blob(id, rng))).collect();
        }
        if rng.percent(10) { vec![(self.member_id.clone(), b"nonsense".to_vec())] } else { Vec::new() }
    }

    fn commit(&self, offsets: &mut i64, rng: &mut Rng) -> Request {
        let count = rng.within(1, 3);
        let mut write = || {
            *offsets += 1;
            Write {
                partition: i32::try_from(rng.within(0, u64::try_from(PARTITIONS).unwrap() - 1)).unwrap(),
                offset: if rng.percent(5) { -1 } else { *offsets },
                expected: rng.percent(10).then(|| i64::try_from(rng.within(0, 20)).unwrap() - 1),
            }
        };
        let writes = (0..count).map(|_| write()).collect();
        Request::Commit { writes, outsider: self.stage == Stage::Out && self.member_id.is_empty() }
    }

    pub(crate) fn has_joined(&mut self, joined: &Joined) {
        self.member_id = joined.member_id.to_string();
        self.generation = joined.generation;
        self.leads = joined.leader == joined.member_id && !joined.skip_assignment;
        self.roster = joined.members.iter().map(|m| m.member_id.to_string()).collect();
        self.go_on(Stage::Joined);
    }

    /// One step further, unless the subscription changed on the way: that needs another join.
    pub(crate) fn go_on(&mut self, stage: Stage) {
        self.stage = if self.said == self.protocols { stage } else { Stage::Out };
    }

    pub(crate) fn has_failed(&mut self, error: GroupError, rng: &mut Rng) {
        match error {
            GroupError::UnknownMember => {
                self.member_id.clear();
                self.generation = Generation::NONE;
                self.stage = Stage::Out;
            }
            GroupError::IllegalGeneration | GroupError::RebalanceInProgress => self.stage = Stage::Out,
            GroupError::FencedInstance => {
                self.stage = Stage::Gone;
                self.fenced = true;
            }
            GroupError::InconsistentProtocol => {
                while self.knows_only_other() {
                    self.subscribe(rng);
                }
                self.stage = Stage::Out;
            }
            // It looks for the coordinator, and finds it at the same place.
            GroupError::NotCoordinator => {}
            GroupError::StoreFailed | GroupError::OffsetMismatch { .. } | GroupError::GroupFull { .. } => {}
            other => panic!("{other:?} was not expected"),
        }
    }
}
