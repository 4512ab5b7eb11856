//! Start on an empty folder, memory of a server that has nothing to do, and connections that do nothing.

use std::path::Path;

use clap::Args;
use milena_wire::kafka_protocol::messages::ApiVersionsRequest;
use tokio::time::{Duration, Instant, sleep};

use crate::Result;
use crate::report::Measures;
use crate::servers::Target;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Starts on an empty folder; the median counts
    #[arg(long, default_value_t = 9)]
    pub starts: usize,
    /// Connections that each ask once and then do nothing
    #[arg(long, default_value_t = 10_000)]
    pub connections: usize,
}

impl Options {
    /// One round, on servers of its own.
    ///
    /// # Errors
    /// When a connection is refused.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub async fn round(&self, binary: &Path, settings: &[String]) -> Result<Measures> {
        let mut starts: Vec<Duration> = (0..self.starts.max(1))
            .map(|_| {
                let start = Instant::now();
                let _target = Target::milena(binary, settings);
                start.elapsed()
            })
            .collect();
        starts.sort_unstable();
        let median = starts.get(starts.len() / 2).copied().unwrap_or_default();
        let target = Target::milena(binary, settings);
        sleep(Duration::from_secs(1)).await;
        let resident = || -> Result<f64> { Ok(target.usage()?.unwrap_or_default().resident as f64) };
        let idle = resident()?;
        let mut connections = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let mut connection = target.connect().await?;
            connection.call(0, &ApiVersionsRequest::default()).await?;
            connections.push(connection);
        }
        let connected = resident()?;
        let mut measures = Measures::default();
        measures.add("start to ready on an empty folder, ms", median.as_secs_f64() * 1e3);
        measures.add("memory, idle, MB", idle / 1e6);
        measures.add("memory with idle connections, MB", connected / 1e6);
        measures.add("memory per idle connection, bytes", (connected - idle) / self.connections.max(1) as f64);
        Ok(measures)
    }
}
