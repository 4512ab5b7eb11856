//! A shell around the state machine without any client: a log, a store of committed offsets, and one life of a consumer
//! after the other. It does what the machine says, and asserts what must hold whatever the machine says.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use milena_catchup::{
    AckOutcome, CommitFailure, CommitId, Epoch, Event, Input, Lane, Order, Output, Partition, Progress, Reset,
    Resolved, Settings, State,
};

pub(crate) use world::{LOG, Log, World, metadata, ranges};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) id: CommitId,
    pub(crate) floor: i64,
    pub(crate) metadata: String,
    pub(crate) attempt: u32,
    pub(crate) last: bool,
}

/// One assignment.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    ordered: bool,
    pub(crate) member: Option<i64>,
    pub(crate) reader: Option<i64>,
    /// A jump that the reader was told of and has not made.
    pub(crate) jump: Option<i64>,
    pub(crate) paused: BTreeMap<Lane, bool>,
    queues: [VecDeque<(Lane, i64)>; 2],
    held: BTreeSet<i64>,
    pub(crate) in_hand: BTreeSet<i64>,
    deferred: BTreeSet<i64>,
    /// All that was handed out, in order.
    pub(crate) delivered: Vec<(Lane, i64)>,
    high_water: BTreeMap<Lane, i64>,
    pub(crate) commits: Vec<Sent>,
    pub(crate) saves: Vec<(CommitId, Option<Progress>)>,
    pub(crate) read_backs: usize,
    pub(crate) events: Vec<Event>,
    pub(crate) retries: Vec<u32>,
    pub(crate) released: bool,
    view: Progress,
    inputs: u64,
}

impl Life {
    pub(crate) fn unresolved(world: &mut World, settings: Settings) -> Self {
        world.epochs += 1;
        let epoch = Epoch(world.epochs);
        let ordered = settings.order == Order::Offset;
        Self {
            partition: Partition::new(epoch, settings),
            epoch,
            ordered,
            member: None,
            reader: None,
            jump: None,
            paused: BTreeMap::from([(Lane::Live, true), (Lane::Backfill, false)]),
            queues: Default::default(),
            held: BTreeSet::new(),
            in_hand: BTreeSet::new(),
            deferred: BTreeSet::new(),
            delivered: Vec::new(),
            high_water: BTreeMap::new(),
            commits: Vec::new(),
            saves: Vec::new(),
            read_backs: 0,
            events: Vec::new(),
            retries: Vec::new(),
            released: false,
            view: Progress::new(LOG, i64::MIN),
            inputs: 0,
        }
    }

    pub(crate) fn start(world: &mut World, settings: Settings) -> Self {
        let mut life = Self::unresolved(world, settings);
        life.resolve(world);
        life
    }

    pub(crate) fn resolve(&mut self, world: &mut World) {
        let resolved = Resolved {
            committed: world.committed.clone(),
            checkpoint: world.checkpoint.clone(),
            log: LOG,
            low: world.log.low,
            high: world.log.high,
            reset: world.reset.unwrap_or(Reset::Earliest),
        };
        self.on(world, Input::Resolved(resolved));
    }

    pub(crate) fn on(&mut self, world: &mut World, input: Input) -> Vec<Output> {
        let record = match input {
            Input::Fetched { lane, offset, .. } => Some((lane, offset)),
            _ => None,
        };
        let out = self.partition.on(self.epoch, input);
        let (mut kept, mut dropped) = (0, 0);
        for output in &out {
            assert!(!self.released || matches!(output, Output::Ack(_) | Output::Drop), "{output:?} after the release");
            match output {
                Output::Hold => {
                    kept += 1;
                    assert!(self.held.insert(record.unwrap().1));
                }
                Output::Deliver { lane, offset } => {
                    kept += usize::from(record == Some((*lane, *offset)));
                    self.held.remove(offset);
                    assert!(!self.queued(*offset), "{offset} is queued twice");
                    self.queue(*lane).push_back((*lane, *offset));
                }
                Output::Drop => dropped += 1,
                other => self.perform(world, other),
            }
        }
        if record.is_some() {
            assert_eq!(kept + dropped, 1, "a record is kept or dropped: {out:?}");
        }
        self.assert_monotone();
        out
    }

    fn perform(&mut self, world: &mut World, output: &Output) {
        match output {
            Output::Seek { offset } => self.member = Some(*offset),
            Output::StartReader { from, .. } => self.reader = Some(*from),
            Output::SeekReader { offset } => self.jump = Some(*offset),
            Output::StopReader => (self.reader, self.jump) = (None, None),
            Output::Pause(lane) => assert_eq!(self.paused.insert(*lane, true), Some(false)),
            Output::Resume(lane) => assert_eq!(self.paused.insert(*lane, false), Some(true)),
            Output::DropQueued => {
                self.queues = Default::default();
                self.held.clear();
            }
            Output::Commit { id, floor, metadata, attempt, last } => {
                let (id, floor, attempt, last) = (*id, *floor, *attempt, *last);
                let ahead = Progress::ahead_of(metadata, LOG, floor).unwrap_or_default();
                world.assert_true(floor, &ahead);
                self.commits.push(Sent { id, floor, metadata: metadata.clone(), attempt, last });
            }
            Output::Save { id, checkpoint, .. } => {
                world.assert_true(0, &checkpoint.ahead);
                self.saves.push((*id, Some(checkpoint.clone())));
            }
            Output::Clear { id, .. } => self.saves.push((*id, None)),
            Output::ReadBack => self.read_backs += 1,
            Output::Event(event) => {
                if let Event::GapExpired(range) = event {
                    assert!(range.end <= world.log.low, "{range:?} is still there");
                    world.expired.insert(range.clone());
                }
                self.events.push(event.clone());
            }
            Output::RetryResolve { attempt } => self.retries.push(*attempt),
            Output::Released => self.released = true,
            Output::Ack(_) | Output::Hold | Output::Drop | Output::Deliver { .. } => {}
        }
    }

    /// B19: within an epoch the view only grows. Looked at after every fourth input, because it is the most expensive
    /// of the checks.
    fn assert_monotone(&mut self) {
        self.inputs += 1;
        if !self.inputs.is_multiple_of(4) {
            return;
        }
        let view = self.partition.view();
        if self.view.floor != i64::MIN {
            assert!(view.floor >= self.view.floor);
            let mut all = view.ahead.clone();
            all.insert(0..view.floor);
            assert!(all.covers(&self.view.ahead), "{:?} shrank to {view:?}", self.view);
        }
        if !matches!(self.partition.state(), State::Resolving | State::Failed) {
            self.view = view;
        }
    }

    fn queue(&mut self, lane: Lane) -> &mut VecDeque<(Lane, i64)> {
        let [first, second] = &mut self.queues;
        if self.ordered || lane == Lane::Live { first } else { second }
    }

    fn queued(&self, offset: i64) -> bool {
        self.queues.iter().flatten().any(|(_, queued)| *queued == offset)
    }

    /// One record through a lane's reader, or the end of the log.
    pub(crate) fn fetch(&mut self, world: &mut World, lane: Lane) -> bool {
        let at = if lane == Lane::Live { self.member } else { self.reader };
        let Some(at) = at else { return false };
        if at < world.log.low {
            self.on(world, Input::LogStart { low: world.log.low });
            // The machine says where to go on, unless it had read further before.
            self.make_jump();
            let to = world.log.low;
            *(if lane == Lane::Live { &mut self.member } else { &mut self.reader }) =
                if lane == Lane::Live { self.member.map(|at| at.max(to)) } else { self.reader.map(|at| at.max(to)) };
            return true;
        }
        let Some(offset) = world.log.next(at) else { return false };
        let next = Some(offset + 1);
        *(if lane == Lane::Live { &mut self.member } else { &mut self.reader }) = next;
        self.on(world, Input::Fetched { lane, offset, bytes: 10 });
        true
    }

    pub(crate) fn make_jump(&mut self) {
        if let (Some(_), Some(to)) = (self.reader, self.jump.take()) {
            self.reader = Some(to);
        }
    }

    pub(crate) fn end(&mut self, world: &mut World, lane: Lane) {
        let at = if lane == Lane::Live { self.member } else { self.reader };
        if at.is_some_and(|at| world.log.next(at).is_none()) {
            self.on(world, Input::End { lane, next: world.log.high });
        }
    }

    /// Gives the next record of a queue to the application, and asserts the promises O1, O2 and O6 about its order.
    pub(crate) fn hand_out(&mut self, world: &mut World, lane: Lane) -> Option<i64> {
        let (lane, offset) = self.queue(lane).pop_front()?;
        if !self.on(world, Input::HandOut { offset }).is_empty() {
            return None;
        }
        assert_eq!(lane, self.partition.lane_of(offset));
        if let Some(fork) = self.partition.fork() {
            assert_eq!(lane == Lane::Backfill, offset < fork, "O2");
        }
        if !self.deferred.remove(&offset) {
            let key = if self.ordered { Lane::Live } else { lane };
            let before = self.high_water.insert(key, offset);
            assert!(before.is_none_or(|before| before < offset), "O1, O6: {offset} after {before:?}");
        }
        assert!(self.in_hand.insert(offset));
        self.delivered.push((lane, offset));
        Some(offset)
    }

    pub(crate) fn ack(&mut self, world: &mut World, offset: i64) -> AckOutcome {
        if self.in_hand.remove(&offset) && !self.released {
            world.acked.insert(offset);
        }
        match self.on(world, Input::Ack { offset }).first() {
            Some(Output::Ack(outcome)) => *outcome,
            other => panic!("an acknowledgement is answered first, not by {other:?}"),
        }
    }

    pub(crate) fn defer(&mut self, world: &mut World, offset: i64) {
        assert!(self.in_hand.remove(&offset));
        self.deferred.insert(offset);
        self.on(world, Input::Defer { offset });
    }

    /// Everything that can be fetched without an acknowledgement.
    pub(crate) fn fetch_all(&mut self, world: &mut World) {
        while [Lane::Live, Lane::Backfill].into_iter().any(|lane| !self.paused[&lane] && self.fetch(world, lane)) {
            self.make_jump();
        }
        self.end(world, Lane::Backfill);
    }

    pub(crate) fn hand_out_all(&mut self, world: &mut World) -> Vec<i64> {
        [Lane::Live, Lane::Backfill]
            .into_iter()
            .flat_map(|lane| std::iter::from_fn(|| self.hand_out(world, lane)).collect::<Vec<_>>())
            .collect()
    }

    /// Reads, hands out and acknowledges until nothing comes any more.
    pub(crate) fn run_dry(&mut self, world: &mut World) {
        loop {
            self.fetch_all(world);
            let handed = self.hand_out_all(world);
            for offset in std::mem::take(&mut self.in_hand) {
                self.in_hand.insert(offset);
                self.ack(world, offset);
            }
            if handed.is_empty() && !self.fetch(world, Lane::Live) {
                return;
            }
        }
    }

    pub(crate) fn delivered_by(&self, lane: Lane) -> Vec<i64> {
        self.delivered.iter().filter(|(of, _)| *of == lane).map(|(_, offset)| *offset).collect()
    }

    /// The oldest commit that is not answered reaches the store (or not), and the answer this life (or not).
    pub(crate) fn answer(&mut self, world: &mut World, stored: bool, answer: Option<Result<(), CommitFailure>>) {
        if self.commits.is_empty() {
            return;
        }
        let sent = self.commits.remove(0);
        if stored {
            world.committed = Some((sent.floor, sent.metadata));
        }
        if let Some(result) = answer {
            self.on(world, Input::Committed { id: sent.id, result });
        }
    }

    pub(crate) fn answer_save(&mut self, world: &mut World, stored: bool, answer: Option<bool>) {
        if self.saves.is_empty() {
            return;
        }
        let (id, checkpoint) = self.saves.remove(0);
        if stored {
            world.checkpoint = checkpoint;
        }
        if let Some(ok) = answer {
            self.on(world, Input::Saved { id, ok });
        }
    }

    /// Commits, with everything answered.
    pub(crate) fn commit(&mut self, world: &mut World) {
        self.on(world, Input::CommitDue);
        self.answer_all(world);
    }

    pub(crate) fn answer_all(&mut self, world: &mut World) {
        while !(self.commits.is_empty() && self.saves.is_empty()) {
            self.answer(world, true, Some(Ok(())));
            self.answer_save(world, true, Some(true));
        }
    }
}
