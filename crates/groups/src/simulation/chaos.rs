//! What goes wrong: processes die, stand still and are replaced, the log is cut, the service dies.

use super::process::Stage;
use super::world::{Event, LogEntry, PROCESSES_MAX, Reply, Verdict, World};
use crate::offsets::testing::snapshot;
use crate::{Answer, GroupError, Groups, OffsetConfig};

impl World {
    pub(super) fn chaos(&mut self) -> Verdict {
        let live: Vec<usize> =
            (0..self.processes.len()).filter(|at| self.processes[*at].stage != Stage::Gone).collect();
        if live.len() < 2 || (live.len() < PROCESSES_MAX && self.rng.percent(15)) {
            self.start_process();
            return Ok(());
        }
        let at = live[self.rng.pick(live.len())];
        match self.rng.within(0, 99) {
            // A process dies, and its successor starts.
            0..=24 => {
                self.processes[at].stage = Stage::Gone;
                if let Some(token) = self.processes[at].waits_for.take() {
                    self.connection_lost(token);
                }
                if self.rng.percent(80) {
                    let (name, instance) = (self.processes[at].name.clone(), self.processes[at].instance.clone());
                    self.launch(name, instance);
                }
            }
            // It stands still, perhaps beyond its session.
            25..=44 => {
                let until = self.now + self.rng.within(200, 4_000);
                self.processes[at].paused_until = until;
            }
            // Its successor starts while it still runs.
            45..=54 => {
                if live.len() < PROCESSES_MAX && self.processes[at].instance.is_some() {
                    let (name, instance) = (self.processes[at].name.clone(), self.processes[at].instance.clone());
                    self.launch(name, instance);
                }
            }
            55..=74 => {
                self.processes[at].subscribe(&mut self.rng);
                if self.processes[at].stage == Stage::In {
                    self.processes[at].stage = Stage::Out;
                }
            }
            75..=84 => self.processes[at].leaving = true,
            85..=93 => self.snapshot(),
            _ => return self.restart(),
        }
        Ok(())
    }

    /// The log is replaced by the table, and what is not in the table yet stays behind it.
    fn snapshot(&mut self) {
        let records = snapshot(self.groups.offsets());
        let open = self.log.iter().position(|entry| entry.ticket.is_some() && entry.durable.is_none());
        let rest = self.log.split_off(open.unwrap_or(self.log.len()));
        self.log = records
            .into_iter()
            .map(|record| LogEntry { ticket: None, record, durable: Some(true) })
            .chain(rest)
            .collect();
        self.checks.stats.snapshots += 1;
    }

    /// The service gives up in favour of another one: everybody who waits hears of it, and nobody of a success.
    fn hand_over(&mut self) -> Verdict {
        self.groups.resign(&mut self.out);
        let events = std::mem::take(&mut self.out.events);
        self.checks.counted(&events, self.groups.coordinator())?;
        for (token, answer) in std::mem::take(&mut self.out.answers) {
            let open = self.open.remove(&token).ok_or_else(|| format!("{token:?} is answered, but nobody waits"))?;
            self.checks.answered(token, self.now)?;
            let sent_away = match &answer {
                Answer::Join(Err(refused)) => refused.error == GroupError::NotCoordinator,
                Answer::Sync(result) => *result == Err(GroupError::NotCoordinator),
                Answer::Commit(results) => results.iter().all(Result::is_err),
                _ => false,
            };
            if !sent_away {
                return Err(format!("{token:?} hears {answer:?} of a service that gave up"));
            }
            self.reply(open.process, token, Reply::Answer(answer));
        }
        self.checks.stats.handovers += 1;
        if self.open.is_empty() { Ok(()) } else { Err("a service gave up, and somebody waits on".to_owned()) }
    }

    /// The service dies, or hands over. Records that were not settled are in the log or are not; requests on the way
    /// are lost. Of a service that died, everybody's connection is gone.
    fn restart(&mut self) -> Verdict {
        self.epoch += 1;
        if self.rng.percent(50) {
            self.hand_over()?;
        } else {
            for at in 0..self.processes.len() {
                if self.processes[at].waits_for.take().is_some() {
                    self.after(150, Event::Act { process: at });
                }
            }
        }
        self.checks.restart();
        self.open.clear();
        self.events.retain(|_, event| !matches!(event, Event::Arrive { .. } | Event::Notice { .. }));
        self.groups = Groups::new(self.config.clone(), OffsetConfig::default());
        let mut kept = Vec::new();
        let mut answered = true;
        for mut entry in std::mem::take(&mut self.log) {
            answered &= entry.durable.is_some();
            if entry.durable.unwrap_or_else(|| self.rng.percent(50)) {
                self.groups.replay(&entry.record).map_err(|e| e.to_string())?;
                if !answered {
                    self.checks.landed(&entry.record)?;
                }
                entry.ticket = None;
                entry.durable = Some(true);
                kept.push(entry);
            }
        }
        self.log = kept;
        self.groups.loaded(self.clock().wall);
        self.check_table()
    }
}
