//! Record timestamps to origin timestamps.

use crate::produce::ProduceRules;

/// Largest millisecond that fits into 64 bits of microseconds.
const MS_MAX: i64 = (u64::MAX / 1000).cast_signed();

/// How the time of one record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    /// Origin timestamp.
    pub(super) origin_micros: u64,
    /// Content of `kafka.ts`, where the origin timestamp does not say it.
    pub(super) marker: Option<i64>,
}

/// Timestamps of a batch, seen so far.
#[derive(Debug)]
pub(super) struct Times {
    accepted_low: i64,
    accepted_high: i64,
    span_micros: Option<u64>,
    min_ms: i64,
    max_ms: i64,
    /// A record without a time, or of the epoch: both have origin 0.
    has_zero: bool,
    /// First and last origin timestamp of the second pass.
    window: Option<(u64, u64)>,
}

impl Times {
    pub(super) fn new(rules: &ProduceRules) -> Self {
        Self {
            accepted_low: *rules.timestamps_ms.start(),
            accepted_high: (*rules.timestamps_ms.end()).min(MS_MAX),
            span_micros: rules.timestamp_span_micros,
            min_ms: i64::MAX,
            max_ms: 0,
            has_zero: false,
            window: None,
        }
    }

    /// Where a record of this time goes; `None` is a time that overflowed.
    #[inline]
    pub(super) fn place(&mut self, time_ms: Option<i64>) -> Result<Stored, &'static str> {
        if let Some(ms) = time_ms
            && ms > 0
            && ms >= self.accepted_low
            && ms <= self.accepted_high
            && self.window.is_none()
        {
            self.min_ms = self.min_ms.min(ms);
            self.max_ms = self.max_ms.max(ms);
            return Ok(Stored { origin_micros: ms.cast_unsigned() * 1000, marker: None });
        }
        self.place_slow(time_ms)
    }

    fn place_slow(&mut self, time_ms: Option<i64>) -> Result<Stored, &'static str> {
        let Some(ms) = time_ms else { return Err("the record timestamp overflows") };
        if ms < -1 {
            return Err("the record timestamp is negative");
        }
        if ms > MS_MAX {
            return Err("the record timestamp does not fit into 64 bits of microseconds");
        }
        if ms != -1 && !(self.accepted_low..=self.accepted_high).contains(&ms) {
            return Err("the record timestamp is outside the range that the topic accepts");
        }
        if let Some((first, last)) = self.window {
            return Ok(clamp(ms, first, last));
        }
        // Only -1 and 0 are left: times above 0 took the fast path.
        self.has_zero = true;
        Ok(Stored { origin_micros: 0, marker: (ms == 0).then_some(0) })
    }

    /// True, once, when the batch spans more than the store takes in one append and must be mapped again. From then
    /// on every origin timestamp lies in the window that starts at the earliest time above 0.
    pub(super) fn clamp_needed(&mut self) -> bool {
        let Some(span) = self.span_micros else { return false };
        if self.window.is_some() || self.max_ms == 0 {
            return false;
        }
        let (first, last) = (micros(self.min_ms), micros(self.max_ms));
        // The store counts an origin timestamp of 0 like any other.
        let lowest = if self.has_zero { 0 } else { first };
        if last - lowest <= span {
            return false;
        }
        self.window = Some((first, first.saturating_add(span)));
        true
    }

    /// Smallest origin timestamp above 0 and largest, as stored, and whether one is 0.
    pub(super) fn origins(&self) -> (u64, u64, bool) {
        if self.max_ms == 0 {
            return (0, 0, true);
        }
        let (first, last) = (micros(self.min_ms), micros(self.max_ms));
        match self.window {
            Some((_, end)) => (first, last.min(end), false),
            None => (first, last, self.has_zero),
        }
    }
}

fn clamp(ms: i64, first: u64, last: u64) -> Stored {
    if ms <= 0 {
        return Stored { origin_micros: first, marker: Some(ms) };
    }
    let exact = micros(ms);
    if exact > last {
        Stored { origin_micros: last, marker: Some(ms) }
    } else {
        Stored { origin_micros: exact, marker: None }
    }
}

fn micros(ms: i64) -> u64 {
    ms.max(0).cast_unsigned() * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(span_micros: Option<u64>) -> Times {
        Times::new(&ProduceRules {
            timestamp_span_micros: span_micros,
            payload_bytes_max: 1,
            header_bytes_max: 1,
            key_required: false,
            timestamps_ms: i64::MIN..=i64::MAX,
        })
    }

    #[test]
    fn times_within_the_span_are_stored_as_they_are() {
        let mut times = times(Some(5_000));
        for ms in [10i64, 12, 15] {
            let stored = Stored { origin_micros: ms.cast_unsigned() * 1000, marker: None };
            assert_eq!(times.place(Some(ms)), Ok(stored));
        }
        assert!(!times.clamp_needed());
        assert_eq!(times.origins(), (10_000, 15_000, false));
    }

    #[test]
    fn what_lies_outside_the_window_is_clamped_and_marked() {
        let mut times = times(Some(5_000));
        for ms in [16, 10, -1, 0] {
            times.place(Some(ms)).unwrap();
        }
        assert!(times.clamp_needed());
        assert_eq!(times.place(Some(16)), Ok(Stored { origin_micros: 15_000, marker: Some(16) }));
        assert_eq!(times.place(Some(10)), Ok(Stored { origin_micros: 10_000, marker: None }));
        assert_eq!(times.place(Some(-1)), Ok(Stored { origin_micros: 10_000, marker: Some(-1) }));
        assert_eq!(times.place(Some(0)), Ok(Stored { origin_micros: 10_000, marker: Some(0) }));
        assert!(!times.clamp_needed());
        assert_eq!(times.origins(), (10_000, 15_000, false));
    }

    #[test]
    fn no_time_is_origin_zero_and_the_epoch_is_marked() {
        let mut times = times(Some(5_000));
        assert_eq!(times.place(Some(-1)), Ok(Stored { origin_micros: 0, marker: None }));
        assert_eq!(times.place(Some(0)), Ok(Stored { origin_micros: 0, marker: Some(0) }));
        assert!(!times.clamp_needed());
        assert_eq!(times.origins(), (0, 0, true));
    }

    #[test]
    fn times_below_minus_one_and_beyond_microseconds_are_refused() {
        let mut times = times(None);
        assert!(times.place(Some(-2)).is_err());
        assert!(times.place(Some(MS_MAX)).is_ok());
        assert!(times.place(Some(MS_MAX + 1)).is_err());
        assert!(times.place(None).is_err());
    }

    #[test]
    fn the_topics_range_binds_every_time_but_the_missing_one() {
        let mut times = times(None);
        times.accepted_low = 100;
        times.accepted_high = 200;
        assert!(times.place(Some(-1)).is_ok());
        assert!(times.place(Some(0)).is_err());
        assert!(times.place(Some(99)).is_err());
        assert!(times.place(Some(100)).is_ok());
        assert!(times.place(Some(200)).is_ok());
        assert!(times.place(Some(201)).is_err());
    }
}
