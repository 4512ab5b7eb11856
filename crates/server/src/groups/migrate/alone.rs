//! Nobody else serves groups of the store: this one is the coordinator, and the only gateway.

use std::sync::Arc;

use milena_store::Store;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::MigrateError;
use crate::config::ServerConfig;
use crate::gateways::{ClusterSettings, Gateways};
use crate::groups::coordinators::Coordinator;

const POLL: Duration = Duration::from_millis(100);

/// Time to say farewell.
const LEAVING_WAIT: Duration = Duration::from_secs(5);

/// The claim; none where an operator says that there is one gateway, which must not run then.
pub(super) struct Alone(Option<(Gateways, Duration)>);

impl Alone {
    /// Joins, and waits until whoever was killed is taken to be gone.
    pub(super) async fn claim(config: &ServerConfig, store: &Arc<dyn Store>) -> Result<Self, MigrateError> {
        let Some(cluster) = &config.cluster else { return Ok(Self(None)) };
        let settings = ClusterSettings { coordinates: true, ..cluster.clone() };
        let joined = Box::pin(Gateways::join(&settings, config, &[], Arc::clone(store))).await?;
        let alone = Self(Some((joined, cluster.lease_time)));
        let deadline = Instant::now() + cluster.lease_time * 3;
        while let Err(error) = alone.check() {
            if Instant::now() >= deadline {
                alone.leave().await;
                return Err(error);
            }
            sleep(POLL).await;
        }
        Ok(alone)
    }

    /// Whether it holds, with regard to all who had joined by now: what was read of the others before may be a beat old,
    /// and a server that joined since has found no move under way.
    pub(super) async fn confirm(&self) -> Result<(), MigrateError> {
        if let Some((gateways, lease)) = &self.0 {
            // A log that cannot be read for as long leaves no lease, which is what the check then finds.
            let _ = timeout(*lease, gateways.caught_up()).await;
        }
        self.check()
    }

    /// Whether it holds, as far as was read.
    fn check(&self) -> Result<(), MigrateError> {
        let Some((gateways, _)) = &self.0 else { return Ok(()) };
        let coordinators = gateways.coordinators();
        let alone = coordinators.coordinator_of("") == Coordinator::Here && coordinators.others().is_empty();
        if alone { Ok(()) } else { Err(MigrateError::Running) }
    }

    pub(super) async fn leave(self) {
        if let Some((gateways, _)) = self.0 {
            gateways.leave(LEAVING_WAIT).await;
        }
    }
}
