//! Throughput, CPU time and percentiles, under the names that all scenarios use.

use std::time::Instant;

use crate::Result;
use crate::latency::Latencies;
use crate::report::Measures;
use crate::servers::Target;
use crate::usage::Usage;

/// Time and CPU time of a phase.
pub(super) struct Meter {
    start: Instant,
    server: Option<Usage>,
    client: Usage,
}

impl Meter {
    pub(super) fn start(target: &Target) -> Result<Self> {
        Ok(Self { server: target.usage()?, client: Usage::own()?, start: Instant::now() })
    }

    /// Adds what became of so many records with values of so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn stop(
        self,
        target: &Target,
        name: &str,
        records: u64,
        record_bytes: usize,
        measures: &mut Measures,
    ) -> Result<()> {
        let seconds = self.start.elapsed().as_secs_f64();
        let bytes = records as f64 * record_bytes as f64;
        measures.add(format!("{name}: MB/s"), bytes / 1e6 / seconds);
        measures.add(format!("{name}: thousand records/s"), records as f64 / 1e3 / seconds);
        let used = |before: Usage, after: Usage| after.cpu.saturating_sub(before.cpu).as_secs_f64();
        if let Some((before, after)) = self.server.zip(target.usage()?) {
            let cpu = used(before, after);
            measures.add(format!("{name}: server CPU, cores"), cpu / seconds);
            measures.add(format!("{name}: server CPU-s per GB"), cpu / (bytes / 1e9));
            // A clock tick is the least that can be told from nothing.
            measures.add(format!("{name}: MB per server CPU-s"), bytes / 1e6 / cpu.max(0.01));
        }
        measures.add(format!("{name}: client CPU, cores"), used(self.client, Usage::own()?) / seconds);
        Ok(())
    }
}

/// Adds the percentiles of a phase.
pub(super) fn add_percentiles(measures: &mut Measures, name: &str, mut latencies: Latencies) {
    let [p50, p99, p999] = latencies.percentiles([0.5, 0.99, 0.999]);
    measures.add(format!("{name} p50, ms"), p50);
    measures.add(format!("{name} p99, ms"), p99);
    measures.add(format!("{name} p99.9, ms"), p999);
}

/// Adds the memory of the server, if it is known.
#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
pub(super) fn add_memory(measures: &mut Measures, target: &Target) -> Result<()> {
    if let Some(usage) = target.usage()? {
        measures.add("server memory, MB", usage.resident as f64 / 1e6);
    }
    Ok(())
}
