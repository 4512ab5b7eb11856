//! Memory of groups that do nothing.
//!
//! Each group has one static member, which joined and got its assignment; nobody sends anything afterwards, and the
//! session has not ended yet. They joined over a few connections, so that what a connection needs is not counted.

use clap::Args;
use tokio::task::JoinSet;

use crate::Result;
use crate::members::{Member, Plan};
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::find_coordinator;

/// Connections over which the members join.
const CONNECTIONS: usize = 16;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Groups
    #[arg(long, default_value_t = 20_000)]
    pub groups: usize,
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a request is refused, or the process id of the server is not known.
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    pub async fn round(&self, target: &Target, round: usize) -> Result<Measures> {
        let resident =
            || -> Result<f64> { Ok(target.usage()?.ok_or("the server's process id is not known")?.resident as f64) };
        find_coordinator(&mut target.connect().await?, "first").await?;
        let before = resident()?;
        let mut joining = JoinSet::new();
        for first in 0..CONNECTIONS.min(self.groups) {
            let mut connection = target.connect().await?;
            let numbers = (first..self.groups).step_by(CONNECTIONS);
            let address = target.address.clone();
            joining.spawn(async move {
                for number in numbers {
                    let plan = Plan {
                        address: address.clone(),
                        group: format!("idle-{round}-{number}"),
                        topic: "orders".to_owned(),
                        partitions: 12,
                        members: 1,
                    };
                    connection = Member::alone(connection, &plan, Some("instance-1")).await?.into_connection();
                }
                Result::<()>::Ok(())
            });
        }
        while let Some(joined) = joining.join_next().await {
            joined??;
        }
        let bytes = resident()? - before;
        let mut measures = Measures::default();
        measures.add("memory of all groups, MB", bytes / 1e6);
        measures.add("memory per group, bytes", bytes / self.groups as f64);
        Ok(measures)
    }
}
