//! Hundreds of consumers that commit all the time, and heartbeats of others beside them.
//!
//! Consumers are in as many groups as told and share the partitions of one topic. Each commits all of its own in one
//! request per interval. Observers are alone in their groups and send a heartbeat every 100 ms. Phases, on the same
//! connections: no commits; commits at the interval; commits at a slower rate; and, if asked for, as fast as they are
//! answered.

use std::time::Duration;

use clap::Args;

use super::meter::add_memory;
use super::phase::{Cast, Commits, Phase};
use crate::Result;
use crate::members::{Member, Plan, assemble};
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::create_topic;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Consumers that commit
    #[arg(long, default_value_t = 300)]
    pub consumers: usize,
    /// Groups that they are in
    #[arg(long, default_value_t = 1)]
    pub groups: usize,
    /// Partitions that each group shares out
    #[arg(long, default_value_t = 10_000)]
    pub partitions: i32,
    /// Milliseconds between two commits of a consumer
    #[arg(long, default_value_t = 100)]
    pub interval: u64,
    /// Partition-commits per second in the slower phase; 0 for none
    #[arg(long, default_value_t = 25_000)]
    pub slower: u64,
    /// A phase in which each consumer commits again as soon as it is answered
    #[arg(long)]
    pub flood: bool,
    /// Groups of one member that send heartbeats
    #[arg(long, default_value_t = 50)]
    pub observers: usize,
    /// Seconds of each phase
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn round(&self, target: &Target, round: usize) -> Result<Measures> {
        let mut cast = self.assemble(target, round).await?;
        let time = Duration::from_secs(self.seconds);
        let phase = |commits| Phase { commits, warm_up: Duration::from_secs(1).min(time), time };
        let mut measures = Measures::default();
        let idle = cast.play(target, &phase(Commits::None)).await?;
        idle.add_heartbeats(&mut measures, "no commits");
        let interval = Duration::from_millis(self.interval);
        let mut phases = vec![(format!("every {} ms", self.interval), Commits::Every(interval))];
        if let Some(interval) = self.slower_interval() {
            phases.push((format!("{}/s", self.slower), Commits::Every(interval)));
        }
        if self.flood {
            phases.push(("flood".to_owned(), Commits::Flood));
        }
        for (name, commits) in phases {
            let mut outcome = cast.play(target, &phase(commits)).await?;
            outcome.add_commits(&mut measures, &name);
            outcome.add_heartbeats(&mut measures, &name);
        }
        cast.leave().await?;
        add_memory(&mut measures, target)?;
        Ok(measures)
    }

    /// Time between two commits of a consumer in the slower phase.
    fn slower_interval(&self) -> Option<Duration> {
        let all = u64::try_from(self.partitions).ok()? * self.groups as u64;
        Some(Duration::from_micros((all * 1_000_000).checked_div(self.slower)?))
    }

    async fn assemble(&self, target: &Target, round: usize) -> Result<Cast> {
        let topic = format!("bench-{}", self.partitions);
        create_topic(&mut target.connect().await?, &topic, self.partitions).await?;
        let plan = |name: String, members| Plan {
            address: target.address.clone(),
            group: format!("{name}-{round}"),
            topic: topic.clone(),
            partitions: self.partitions,
            members,
        };
        let mut cast = Cast::default();
        let groups = self.groups.max(1);
        for number in 0..groups {
            let share = self.consumers / groups + usize::from(number < self.consumers % groups);
            cast.committers.extend(assemble(&plan(format!("committers-{number}"), share)).await?);
        }
        for number in 0..self.observers {
            let plan = plan(format!("observers-{number}"), 1);
            cast.observers.push(Member::alone(target.connect().await?, &plan, None).await?);
        }
        Ok(cast)
    }
}
