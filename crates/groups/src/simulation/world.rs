//! The service, its store, a bad network, and clients, under one clock.

use std::collections::{BTreeMap, HashMap};

use super::checks::{Checks, DELAY_MS_MAX, Stats};
use super::process::{Process, REBALANCE_MS_MAX, Request, Stage, Write};
use super::rng::Rng;
use crate::offsets::testing::ID;
use crate::{
    Answer, Committed, GroupConfig, GroupError, Groups, Moment, Now, OffsetConfig, Outputs, Ticket, Timestamp, Token,
};

pub(super) const GROUP: &str = "g";
pub(super) const PROCESSES_MAX: usize = 7;
const CHAOS_MS: u64 = 25_000;
/// Long enough for every session, rebalance and retry of the last processes.
const CALM_MS: u64 = 14_000;

pub(super) enum Event {
    /// A process looks what to do next.
    Act {
        process: usize,
    },
    Arrive {
        process: usize,
        token: Token,
        request: Request,
        sender: Process,
    },
    Deliver {
        process: usize,
        token: Token,
        answer: Reply,
    },
    /// The process gives up on that request and closes its connection.
    GiveUp {
        process: usize,
        token: Token,
    },
    /// The service notices that a connection is gone.
    Notice {
        token: Token,
    },
    Settle {
        epoch: u64,
        ticket: Ticket,
        durable: bool,
    },
    Chaos,
}

/// What comes back to a process.
#[derive(Clone)]
pub(super) enum Reply {
    Answer(Answer),
    Plain(Result<(), GroupError>),
}

/// A record on its way to the log or in it.
pub(super) struct LogEntry {
    pub(super) ticket: Option<Ticket>,
    pub(super) record: Vec<u8>,
    pub(super) durable: Option<bool>,
}

/// What is known of a request that the service has.
pub(super) struct Open {
    pub(super) process: usize,
    pub(super) sender: Process,
    pub(super) writes: Vec<Write>,
}

pub(crate) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) sequence: u64,
    pub(super) groups: Groups,
    pub(super) config: GroupConfig,
    pub(super) out: Outputs,
    pub(super) log: Vec<LogEntry>,
    pub(super) epoch: u64,
    pub(super) processes: Vec<Process>,
    pub(super) open: HashMap<Token, Open>,
    pub(super) tokens: u64,
    pub(super) offsets: i64,
    pub(super) calm: bool,
    pub(super) checks: Checks,
}

pub(super) type Verdict = Result<(), String>;

/// Runs the schedule of a seed.
pub(crate) fn run(seed: u64) -> Result<Stats, String> {
    let mut world = World::new(seed);
    world.run().map_err(|what| format!("seed {seed} at {} ms: {what}", world.now))?;
    Ok(world.checks.stats)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let delay = if rng.percent(50) { 0 } else { rng.within(1, DELAY_MS_MAX) };
        let config = GroupConfig {
            initial_rebalance_delay_ms: u32::try_from(delay).unwrap(),
            session_timeout_min_ms: 1_000,
            new_member_join_timeout_ms: 3_000,
            group_size_max: 9,
            ..GroupConfig::default()
        };
        let mut world = Self {
            groups: Groups::new(config.clone(), OffsetConfig::default()),
            config,
            rng,
            now: 0,
            events: BTreeMap::new(),
            sequence: 0,
            out: Outputs::default(),
            log: Vec::new(),
            epoch: 0,
            processes: Vec::new(),
            open: HashMap::new(),
            tokens: 0,
            offsets: 0,
            calm: false,
            checks: Checks::default(),
        };
        world.groups.loaded(Timestamp(0));
        for _ in 0..world.rng.within(1, 5) {
            world.start_process();
        }
        world.after(300, Event::Chaos);
        world
    }

    pub(super) fn clock(&self) -> Now {
        Now { moment: Moment::from_millis(self.now), wall: Timestamp(i64::try_from(self.now).unwrap()) }
    }

    pub(super) fn after(&mut self, millis: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + millis, self.sequence), event);
    }

    fn run(&mut self) -> Verdict {
        self.run_until(CHAOS_MS)?;
        self.calm = true;
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            process.paused_until = 0;
            if process.knows_only_other() && process.stage != Stage::Gone {
                while process.knows_only_other() {
                    process.subscribe(&mut self.rng);
                }
                process.stage = Stage::Out;
            }
            self.after(1, Event::Act { process: at });
        }
        self.run_until(CHAOS_MS + CALM_MS)?;
        self.everybody_works()
    }

    fn run_until(&mut self, end: u64) -> Verdict {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= end);
            let deadline = self.groups.deadline().map(Moment::as_millis).filter(|at| *at <= end);
            self.checks.nobody_waits_too_long(self.now)?;
            // Now and then something comes in just before a timer that is due.
            let late = self.rng.percent(5);
            match (event, deadline) {
                (None, None) => return Ok(()),
                (at, Some(due)) if at.is_none_or(|at| due <= at && !(late && at - due < 100)) => {
                    self.now = self.now.max(due);
                    let now = self.clock();
                    self.groups.tick(now, &mut self.out);
                    if self.groups.deadline().is_some_and(|next| next <= now.moment) {
                        return Err("a timer that was run is still due".to_owned());
                    }
                }
                _ => {
                    let Some(((at, _), event)) = self.events.pop_first() else { return Ok(()) };
                    self.now = self.now.max(at);
                    self.handle(event)?;
                }
            }
            self.drain()?;
        }
    }

    /// When nothing goes wrong any more, all that live are in one stable generation, and nobody else is.
    fn everybody_works(&self) -> Verdict {
        let live: Vec<&Process> = self.processes.iter().filter(|p| p.stage != Stage::Gone).collect();
        if let Some(stuck) = live.iter().find(|p| p.stage != Stage::In) {
            return Err(format!("{} is still {:?}", stuck.name, stuck.stage));
        }
        if live.iter().any(|p| p.generation != live[0].generation) {
            return Err("live processes are in different generations".to_owned());
        }
        let shown = self.groups.describe(GROUP).map_err(|e| e.to_string())?;
        if shown.members.len() != live.len() {
            return Err(format!("{} members, {} live processes", shown.members.len(), live.len()));
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::Act { process } => self.act(process),
            Event::Arrive { process, token, request, sender } => return self.arrive(process, token, request, &sender),
            Event::Deliver { process, token, answer } => self.deliver(process, token, answer),
            Event::GiveUp { process, token } => self.give_up(process, token),
            Event::Notice { token } => {
                // Commits are settled whoever listens.
                if self.open.get(&token).is_some_and(|open| open.writes.is_empty()) {
                    self.open.remove(&token);
                    self.checks.forgotten(token);
                    let now = self.clock();
                    self.groups.forget(GROUP, token, now, &mut self.out);
                }
            }
            Event::Settle { epoch, ticket, durable } if epoch == self.epoch => {
                if let Some(entry) = self.log.iter_mut().find(|entry| entry.ticket == Some(ticket)) {
                    entry.durable = Some(durable);
                }
                self.groups.settled(ticket, durable, &mut self.out);
            }
            Event::Settle { .. } => {}
            Event::Chaos if self.calm => {}
            Event::Chaos => {
                let pause = self.rng.within(50, 900);
                self.after(pause, Event::Chaos);
                return self.chaos();
            }
        }
        Ok(())
    }

    pub(super) fn start_process(&mut self) {
        let name = format!("p{}", self.processes.len());
        let instance = self.rng.percent(50).then(|| format!("inst{}", self.rng.pick(3)));
        self.launch(name, instance);
    }

    pub(super) fn launch(&mut self, name: String, instance: Option<String>) {
        let process = Process::new(name, instance, &mut self.rng);
        self.processes.push(process);
        let delay = self.rng.within(0, 300);
        self.after(delay, Event::Act { process: self.processes.len() - 1 });
    }

    fn act(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.stage == Stage::Gone || process.waits_for.is_some() {
            return;
        }
        if process.paused_until > self.now {
            let rest = process.paused_until - self.now;
            self.after(rest, Event::Act { process: at });
            return;
        }
        let Some(request) = process.next_request(self.calm, &mut self.offsets, &mut self.rng) else { return };
        self.tokens += 1;
        let token = Token(self.tokens);
        process.waits_for = Some(token);
        let sender = process.clone();
        let patience = match request {
            // Clients wait for a join as long as it may take; some are less patient.
            Request::Join if self.calm || self.rng.percent(80) => REBALANCE_MS_MAX + 1_000,
            Request::Sync { .. } if self.calm => REBALANCE_MS_MAX + 1_000,
            _ => self.rng.within(300, 3_000),
        };
        self.after(patience, Event::GiveUp { process: at, token });
        if self.calm || !self.rng.percent(2) {
            let delay = self.rng.within(0, 60);
            self.after(delay, Event::Arrive { process: at, token, request, sender });
        }
    }

    fn give_up(&mut self, at: usize, token: Token) {
        if self.processes[at].waits_for != Some(token) {
            return;
        }
        self.processes[at].waits_for = None;
        self.connection_lost(token);
        self.after(100, Event::Act { process: at });
    }

    /// The service hears of it, or it does not.
    pub(super) fn connection_lost(&mut self, token: Token) {
        if self.calm || self.rng.percent(85) {
            let delay = self.rng.within(0, 400);
            self.after(delay, Event::Notice { token });
        }
    }

    /// Carries away what came out of the service.
    fn drain(&mut self) -> Verdict {
        let events = std::mem::take(&mut self.out.events);
        self.checks.counted(&events, self.groups.coordinator())?;
        for append in std::mem::take(&mut self.out.appends) {
            let durable = self.calm || !self.rng.percent(8);
            let delay = self.rng.within(1, 120);
            let ticket = append.ticket;
            self.log.push(LogEntry { ticket: Some(ticket), record: append.record, durable: None });
            self.after(delay, Event::Settle { epoch: self.epoch, ticket, durable });
        }
        let answers = std::mem::take(&mut self.out.answers);
        let quiet = answers.is_empty();
        for (token, answer) in answers {
            let Some(open) = self.open.remove(&token) else {
                return Err(format!("{token:?} is answered, but nobody waits"));
            };
            self.checks.answered(token, self.now)?;
            match &answer {
                Answer::Join(Ok(joined)) => self.checks.joined(joined, open.sender.instance.as_deref())?,
                Answer::Sync(Ok(synced)) => {
                    let (generation, id) = (open.sender.generation.0, &open.sender.member_id);
                    self.checks.synced(generation, id, &synced.assignment)?;
                }
                Answer::Commit(results) => self.checks.acknowledge(&open.writes, results)?,
                _ => {}
            }
            self.reply(open.process, token, Reply::Answer(answer));
        }
        if quiet { Ok(()) } else { self.check_table() }
    }

    pub(super) fn reply(&mut self, process: usize, token: Token, answer: Reply) {
        if self.calm || !self.rng.percent(4) {
            let delay = if !self.calm && self.rng.percent(5) { 1_500 } else { self.rng.within(0, 60) };
            self.after(delay, Event::Deliver { process, token, answer });
        }
    }

    fn deliver(&mut self, at: usize, token: Token, answer: Reply) {
        let (process, rng) = (&mut self.processes[at], &mut self.rng);
        if process.waits_for != Some(token) || process.stage == Stage::Gone {
            return;
        }
        process.waits_for = None;
        let mut wait = 200;
        match answer {
            Reply::Plain(result) => match result {
                _ if process.leaving => process.stage = Stage::Gone,
                Ok(()) => {}
                Err(error) => process.has_failed(error, rng),
            },
            Reply::Answer(Answer::Join(Ok(joined))) => {
                process.has_joined(&joined);
                wait = 0;
            }
            Reply::Answer(Answer::Join(Err(refused))) if refused.error == GroupError::MemberIdRequired => {
                process.member_id = refused.member_id.to_string();
                wait = 0;
            }
            Reply::Answer(Answer::Join(Err(refused))) => process.has_failed(refused.error, rng),
            Reply::Answer(Answer::Sync(Ok(_))) => process.go_on(Stage::In),
            Reply::Answer(Answer::Sync(Err(error))) => process.has_failed(error, rng),
            Reply::Answer(Answer::Commit(results)) => {
                // An outsider that is told off keeps its stage, which is to join.
                for error in results.into_iter().filter_map(Result::err) {
                    process.has_failed(error, rng);
                }
            }
            Reply::Answer(_) => {}
        }
        if process.fenced && process.stage == Stage::Gone {
            process.fenced = false;
            self.checks.stats.fenced += 1;
        }
        self.after(wait, Event::Act { process: at });
    }

    pub(super) fn check_table(&self) -> Verdict {
        let view = self.groups.view(GROUP).map_err(|e| e.to_string())?;
        self.checks.stored(|partition| view.get("t", ID, partition).map_or(-1, Committed::offset))
    }
}
