//! The entry points of the fuzz target: any bytes as what stands beside a committed offset, or in a checkpoint topic.
//!
//! They are plain functions, so that the tests run them over a corpus and a fuzzer needs no more than a call.

use std::ops::Range;

use crate::{LogId, Progress, RangeSet, progress, user_metadata};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Target); 3] = [("text", text), ("sealed", sealed), ("numbers", numbers)];

/// Bounds on a string that a progress is written under, in bytes: none, some that are too small, one that is not.
const BOUNDS: [usize; 5] = [0, 20, 40, 300, usize::MAX];

/// The bytes as the string itself.
///
/// # Panics
/// When what was read of it does not come back from what is written.
pub fn text(data: &[u8]) {
    let metadata = String::from_utf8_lossy(data);
    let user = user_metadata(&metadata);
    assert!(metadata.ends_with(user), "the user's part is the end of the whole");
    if let Ok(progress) = Progress::decode(&metadata) {
        comes_back(&progress, user);
    }
}

/// The bytes as what stands in the string in front of a checksum that is put right: a changed byte would else be found by that, and
/// nothing behind it be reached.
///
/// # Panics
/// As [`text`] does.
pub fn sealed(data: &[u8]) {
    text(progress::sealed(data).as_bytes());
}

/// The bytes as numbers of eight bytes: log, floor, then starts and ends of ranges, as they come.
///
/// # Panics
/// When such a progress does not come back from what is written, or when more is claimed than it has.
pub fn numbers(data: &[u8]) {
    let mut numbers =
        data.chunks_exact(8).filter_map(|bytes| bytes.first_chunk()).map(|bytes| i64::from_le_bytes(*bytes));
    let (Some(log), Some(floor)) = (numbers.next(), numbers.next()) else { return };
    let mut progress = Progress::new(LogId(log.cast_unsigned()), floor.max(0));
    while let (Some(start), Some(end)) = (numbers.next(), numbers.next()) {
        progress.ahead.insert(start..end);
    }
    // What lies below the floor is not written.
    progress.ahead.clip(progress.floor..i64::MAX);
    comes_back(&progress, "node 7");
}

fn comes_back(progress: &Progress, user: &str) {
    assert!(progress.floor >= 0, "a floor below zero: {progress:?}");
    let ranges: Vec<Range<i64>> = progress.ahead.iter().collect();
    assert!(ranges.iter().all(|range| range.start >= progress.floor && range.start < range.end), "{progress:?}");
    assert!(ranges.is_sorted_by(|one, next| one.end < next.start), "ranges that touch are one: {progress:?}");
    for bytes_max in BOUNDS {
        let encoded = progress.encode(user, bytes_max);
        assert!(encoded.metadata.len() <= bytes_max, "{} bytes of {bytes_max}", encoded.metadata.len());
        assert!(progress.ahead.covers(&encoded.ahead), "claimed and not finished: {encoded:?}");
        assert_eq!(encoded.ahead.len() + encoded.dropped, progress.ahead.len());
        if encoded.metadata.is_empty() {
            assert!(encoded.ahead.is_empty());
            continue;
        }
        let expected = Progress { ahead: encoded.ahead, ..progress.clone() };
        assert_eq!(Progress::decode(&encoded.metadata), Ok(expected.clone()));
        assert_eq!(Progress::ahead_of(&encoded.metadata, progress.log, progress.floor), Ok(expected.ahead));
        assert!(Progress::ahead_of(&encoded.metadata, LogId(!progress.log.0), progress.floor).is_err());
    }
    assert_eq!(progress.encode(user, usize::MAX).dropped, 0);
    let clipped = {
        let mut clipped = progress.clone();
        clipped.clip(progress.floor..progress.floor.saturating_add(1_000));
        clipped
    };
    assert!(clipped.floor >= progress.floor && finished(progress).covers(&finished(&clipped)), "{clipped:?}");
}

/// All of it as one set.
fn finished(progress: &Progress) -> RangeSet {
    let mut all = progress.ahead.clone();
    all.insert(i64::MIN..progress.floor);
    all
}
