//! How long a large group takes to become stable.
//!
//! All members connect and join at once, with heartbeats every 100 ms while they wait; the end is when each has its
//! assignment in the same generation.

use clap::Args;
use tokio::time::Instant;

use crate::Result;
use crate::members::{Plan, assemble};
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::{create_topic, find_coordinator};

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Members of the group
    #[arg(long, default_value_t = 100)]
    pub members: usize,
    /// Partitions that they share
    #[arg(long, default_value_t = 100)]
    pub partitions: i32,
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn round(&self, target: &Target, round: usize) -> Result<Measures> {
        let topic = format!("bench-{}", self.partitions);
        let mut connection = target.connect().await?;
        create_topic(&mut connection, &topic, self.partitions).await?;
        let group = format!("joins-{round}");
        find_coordinator(&mut connection, &group).await?;
        let address = target.address.clone();
        let plan = Plan { address, group, topic, partitions: self.partitions, members: self.members };
        let start = Instant::now();
        let members = assemble(&plan).await?;
        let took = start.elapsed();
        let mut measures = Measures::default();
        measures.add("time until stable, ms", took.as_secs_f64() * 1e3);
        if let Some(member) = members.first() {
            measures.add("generations", f64::from(member.generation()));
        }
        for member in members {
            member.leave().await?;
        }
        Ok(measures)
    }
}
