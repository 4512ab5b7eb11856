//! Commits and heartbeats for some seconds.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::meter::add_percentiles;
use crate::Result;
use crate::members::{HEARTBEAT_INTERVAL, Member};
use crate::pulse::{Beats, Rhythm};
use crate::report::Measures;
use crate::servers::Target;
use crate::usage::Usage;

/// Requests of one member without an answer, at most, when it keeps to a schedule: those of one second.
const DEPTH: usize = 10;

/// Who is there.
#[derive(Debug, Default)]
pub struct Cast {
    /// Those who commit.
    pub committers: Vec<Member>,
    /// Those who only send heartbeats, in groups of their own.
    pub observers: Vec<Member>,
}

/// What they do.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// How committers commit.
    pub commits: Commits,
    /// How long nothing counts.
    pub warm_up: Duration,
    /// How long what is answered counts.
    pub time: Duration,
}

/// How committers commit.
#[derive(Debug, Clone, Copy)]
pub enum Commits {
    /// They do not.
    None,
    /// Each with that time between two commits.
    Every(Duration),
    /// Each as soon as its last commit is answered.
    Flood,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Commits; a unit is a partition.
    pub commits: Beats,
    /// Heartbeats of observers.
    pub heartbeats: Beats,
    /// CPU time of the server, if it is known.
    pub server: Option<Duration>,
    /// CPU time of this process.
    pub client: Duration,
    /// How long it took.
    pub time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Commits,
    Watches,
}

impl Cast {
    /// Plays a phase.
    ///
    /// # Errors
    /// The first thing that a member is refused.
    pub async fn play(&mut self, target: &Target, phase: &Phase) -> Result<Outcome> {
        let start = Instant::now() + Duration::from_millis(50);
        let from = start + phase.warm_up;
        let until = from + phase.time;
        let mut playing = JoinSet::new();
        let (interval, depth) = match phase.commits {
            Commits::None => (None, 0),
            Commits::Every(interval) => (Some(interval), DEPTH),
            Commits::Flood => (None, 1),
        };
        if depth > 0 {
            let committers = std::mem::take(&mut self.committers);
            for (mut member, rhythm) in staggered(committers, Rhythm { start, interval, depth, from, until }) {
                playing.spawn(async move { (Role::Commits, member.commit_for(&rhythm).await, member) });
            }
        }
        let beats = Rhythm { start, interval: Some(HEARTBEAT_INTERVAL), depth: DEPTH, from, until };
        for (mut member, rhythm) in staggered(std::mem::take(&mut self.observers), beats) {
            playing.spawn(async move { (Role::Watches, member.heartbeat_for(&rhythm).await, member) });
        }
        sleep_until(from).await;
        let before = (target.usage()?, Usage::own()?);
        sleep_until(until).await;
        let after = (target.usage()?, Usage::own()?);
        let mut outcome = Outcome {
            commits: Beats::default(),
            heartbeats: Beats::default(),
            server: before.0.zip(after.0).map(|(before, after)| after.cpu.saturating_sub(before.cpu)),
            client: after.1.cpu.saturating_sub(before.1.cpu),
            time: phase.time,
        };
        while let Some(played) = playing.join_next().await {
            let (role, beats, member) = played?;
            match role {
                Role::Commits => {
                    outcome.commits.merge(&beats?);
                    self.committers.push(member);
                }
                Role::Watches => {
                    outcome.heartbeats.merge(&beats?);
                    self.observers.push(member);
                }
            }
        }
        Ok(outcome)
    }

    /// All leave their groups.
    ///
    /// # Errors
    /// When a connection ends.
    pub async fn leave(self) -> Result<()> {
        for member in self.committers.into_iter().chain(self.observers) {
            member.leave().await?;
        }
        Ok(())
    }
}

/// Spreads the first requests over one interval.
fn staggered(members: Vec<Member>, rhythm: Rhythm) -> impl Iterator<Item = (Member, Rhythm)> {
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX).max(1);
    let step = rhythm.interval.unwrap_or_default() / count;
    let starts = (0u32..).map(move |number| rhythm.start + step * number);
    members.into_iter().zip(starts).map(move |(member, start)| (member, Rhythm { start, ..rhythm }))
}

impl Outcome {
    /// Adds the figures of the commits, with `name` before each.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn add_commits(&mut self, measures: &mut Measures, name: &str) {
        let seconds = self.time.as_secs_f64();
        measures.add(format!("{name}: commits/s"), self.commits.latencies.len() as f64 / seconds);
        measures.add(format!("{name}: partition-commits/s"), self.commits.units as f64 / seconds);
        add_percentiles(measures, &format!("{name}: commit"), self.commits.latencies.clone());
        measures.add(format!("{name}: commits skipped"), self.commits.skipped as f64);
        let [late] = self.commits.late.percentiles([0.99]);
        measures.add(format!("{name}: sent late p99, ms"), late);
        if let Some(server) = self.server {
            measures.add(format!("{name}: server CPU, cores"), server.as_secs_f64() / seconds);
            let million = self.commits.units.max(1) as f64 / 1e6;
            measures.add(format!("{name}: server CPU-s per million partition-commits"), server.as_secs_f64() / million);
        }
        measures.add(format!("{name}: client CPU, cores"), self.client.as_secs_f64() / seconds);
    }

    /// Adds the figures of the heartbeats, with `name` before each.
    pub fn add_heartbeats(&self, measures: &mut Measures, name: &str) {
        add_percentiles(measures, &format!("{name}: heartbeat"), self.heartbeats.latencies.clone());
    }
}
