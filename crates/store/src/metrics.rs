//! Counters and histograms as plain atomics: to count neither allocates nor locks. Whoever exports them reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows, since the start of the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many values fell into each of a few ranges, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above all of them.
    buckets: Box<[Counter]>,
    sum: Counter,
}

impl Histogram {
    /// An empty histogram. `bounds` are the largest values of each range, rising.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, buckets, sum: Counter::default() }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        // A dozen comparisons in a row are as quick as a search.
        let at = self.bounds.iter().take_while(|bound| value > **bound).count();
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum.add(value);
    }

    /// Counts a time, in nanoseconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What was counted so far. Values that are counted at the same moment may be in it by half: in a bucket and not in
    /// the sum.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.buckets.iter().map(Counter::get).collect(),
            sum: self.sum.get(),
        }
    }
}

/// The state of a [`Histogram`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Largest value of each range but the last.
    pub bounds: &'static [u64],
    /// Values in each range, one more than there are bounds. They are not cumulative.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

/// Ranges of the time that a request, an append or a flush takes, in nanoseconds: 100 us, as a good disk needs, to 10 s,
/// about three to a decade.
pub const LATENCY_BOUNDS: &[u64] = &[
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// What an engine counts about itself, all topics together, internal ones too.
#[derive(Debug)]
pub struct EngineMetrics {
    /// Name of the engine, for a label.
    pub engine: &'static str,
    /// Appends that were written.
    pub appends: Counter,
    /// Messages in them.
    pub messages: Counter,
    /// Bytes that were written for them.
    pub bytes: Counter,
    /// Time of each flush to the device that succeeded; one flush may serve many appends and partitions.
    pub flush_time: Histogram,
    /// Flushes that failed. A partition whose flush failed takes no appends until the store is opened again.
    pub flush_failures: Counter,
    /// Damaged entries that reads and recovery came across.
    pub damaged_entries: Counter,
    /// Times that the end of a partition moved back, so that its epoch rose.
    pub end_falls: Counter,
    /// Reads that brought messages which the node that leads lacks, from another node of the engine's cluster.
    pub gap_reads: Counter,
    /// Acknowledged messages that no node of the engine's cluster has, so that readers passed over them.
    pub lost_messages: Counter,
    /// Calls to a node of the engine's cluster that were answered with the reply to something else.
    pub stray_replies: Counter,
    /// Topics that were met whose acknowledged messages the engine may hold in memory only.
    pub undurable_topics: Counter,
}

impl EngineMetrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(engine: &'static str) -> Self {
        Self {
            engine,
            appends: Counter::default(),
            messages: Counter::default(),
            bytes: Counter::default(),
            flush_time: Histogram::new(LATENCY_BOUNDS),
            flush_failures: Counter::default(),
            damaged_entries: Counter::default(),
            end_falls: Counter::default(),
            gap_reads: Counter::default(),
            lost_messages: Counter::default(),
            stray_replies: Counter::default(),
            undurable_topics: Counter::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_in_its_range_and_one_above_in_the_next() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.counts, snapshot.sum), (vec![2, 2, 2], 1_062));
    }
}
