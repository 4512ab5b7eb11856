//! Percentiles of times, exact: every sample is kept.

use std::time::Duration;

/// Times.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    micros: Vec<u32>,
}

impl Latencies {
    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        self.micros.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }

    /// Adds all times of another.
    pub fn merge(&mut self, other: &Self) {
        self.micros.extend_from_slice(&other.micros);
    }

    /// Number of times.
    #[must_use]
    pub fn len(&self) -> usize {
        self.micros.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.micros.is_empty()
    }

    /// The times that are not exceeded by these shares (0 to 1) of all, in milliseconds; 0 when there are no times.
    pub fn percentiles<const N: usize>(&mut self, shares: [f64; N]) -> [f64; N] {
        self.micros.sort_unstable();
        shares.map(|share| {
            let micros = self.micros.get(rank(share, self.micros.len())).copied().unwrap_or(0);
            f64::from(micros) / 1000.0
        })
    }
}

/// Index of the smallest of `count` sorted values that at least `share` of them do not exceed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counts of samples are far below 2^52"
)]
fn rank(share: f64, count: usize) -> usize {
    ((share * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut latencies = Latencies::default();
        for millis in (1..=1000).rev() {
            latencies.add(Duration::from_millis(millis));
        }
        assert_eq!(latencies.percentiles([0.0, 0.5, 0.99, 0.999, 1.0]), [1.0, 500.0, 990.0, 999.0, 1000.0]);
    }

    #[test]
    fn no_samples_have_no_time() {
        assert_eq!(Latencies::default().percentiles([0.5]), [0.0]);
    }
}
