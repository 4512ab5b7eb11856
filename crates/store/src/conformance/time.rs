//! Search by time.

use super::*;
use crate::types::{Found, TimeKind};

const SECOND: u64 = 1_000_000;

fn find(store: &dyn Store, at: &PartitionRef, from: u64, time: u64, kind: TimeKind) -> Option<u64> {
    block_on(store.find(at, from, time, kind)).unwrap().map(|found| found.offset)
}

fn timed(times: &[u64]) -> Vec<TestMessage> {
    times.iter().map(|time| TestMessage::new(1, b"x").at(*time)).collect()
}

/// The first message at or after the time, by offset, is found, also when a later one is nearer.
pub fn find_is_exact_when_times_are_out_of_order(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &timed(&[30, 10, 50]));
    append(store.as_ref(), &at, &timed(&[20, 60, 40]));
    let expected =
        [(1, Some(0)), (30, Some(0)), (31, Some(2)), (50, Some(2)), (51, Some(4)), (60, Some(4)), (61, None)];
    for (time, offset) in expected {
        assert_eq!(find(store.as_ref(), &at, 0, time, TimeKind::Origin), offset, "time {time}");
    }
    let found = block_on(store.find(&at, 0, 31, TimeKind::Origin)).unwrap();
    assert_eq!(found, Some(Found { offset: 2, time_micros: 50 }));
}

/// Messages before `from` are not looked at; at the end there is nothing.
pub fn find_starts_where_it_is_told(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &timed(&[30, 10, 50]));
    append(store.as_ref(), &at, &timed(&[20]));
    assert_eq!(find(store.as_ref(), &at, 1, 1, TimeKind::Origin), Some(1));
    assert_eq!(find(store.as_ref(), &at, 1, 11, TimeKind::Origin), Some(2));
    assert_eq!(find(store.as_ref(), &at, 3, 21, TimeKind::Origin), None);
    assert_eq!(find(store.as_ref(), &at, 4, 1, TimeKind::Origin), None);
}

/// A message without an origin time has its append time.
pub fn find_takes_the_append_time_of_untimed_messages(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &timed(&[10, 0]));
    let append_time = read(store.as_ref(), &at, 0, EVERYTHING).first().unwrap().append_time_micros;
    let found = block_on(store.find(&at, 0, 11, TimeKind::Origin)).unwrap();
    assert_eq!(found, Some(Found { offset: 1, time_micros: append_time }));
    assert_eq!(find(store.as_ref(), &at, 0, append_time + 1, TimeKind::Origin), None);
}

/// A search by append time looks at nothing else.
pub fn find_by_append_time_ignores_origin_times(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    let latest = store.capabilities().timestamp_span_micros.unwrap_or(u64::MAX);
    append(store.as_ref(), &at, &timed(&[latest, 1]));
    // Two appends may fall into one tick of the engine's clock; the expectation follows what was stored.
    append(store.as_ref(), &at, &timed(&[latest, 1]));
    let entries = read(store.as_ref(), &at, 0, EVERYTHING);
    let (first, last) = (entries.first().unwrap().append_time_micros, entries.last().unwrap().append_time_micros);
    assert_eq!(find(store.as_ref(), &at, 0, first, TimeKind::Append), Some(0));
    assert_eq!(find(store.as_ref(), &at, 1, first, TimeKind::Append), Some(1));
    let second = if last > first { 2 } else { 0 };
    assert_eq!(find(store.as_ref(), &at, 0, last, TimeKind::Append), Some(second));
    assert_eq!(find(store.as_ref(), &at, 0, last + SECOND * 3_600, TimeKind::Append), None);
}

/// Over enough data that an index matters, `find` and `newest` say what a scan of all messages says.
pub fn find_agrees_with_a_scan_over_many_entries(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    // A fixed walk: mostly forward, now and then far back or ahead.
    let mut state = 12_345u64;
    let mut times = Vec::new();
    for number in 1..=300u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let jump = match state >> 60 {
            0 => 50 * SECOND,
            1..=3 => 5 * SECOND,
            _ => 0,
        };
        let time = number * SECOND + (state >> 40) % SECOND;
        times.push(if state & (1 << 58) == 0 { time + jump } else { time.saturating_sub(jump).max(1) });
    }
    for chunk in times.chunks(3) {
        let large = chunk.iter().map(|time| TestMessage::new(1, &[b'x'; 3_000]).at(*time)).collect::<Vec<_>>();
        append(store.as_ref(), &at, &large);
    }
    let scan = |from: u64, wanted: u64| {
        let mut all = (0u64..).zip(&times).skip(usize::try_from(from).unwrap());
        all.find(|(_, time)| **time >= wanted).map(|(offset, _)| offset)
    };
    // Steps of seven seconds: an engine behind a network takes a while for each search.
    for wanted in (0..370).step_by(7).map(|number| number * SECOND) {
        for from in [0, 100, 299] {
            let found = find(store.as_ref(), &at, from, wanted, TimeKind::Origin);
            assert_eq!(found, scan(from, wanted), "time {wanted} from {from}");
        }
    }
    let latest = *times.iter().max().unwrap();
    let newest = block_on(store.newest(&at, TimeKind::Origin)).unwrap().unwrap();
    assert_eq!((Some(newest.offset), newest.time_micros), (scan(0, latest), latest));
}

/// The largest time wins, wherever it lies; of equal ones the first.
pub fn newest_is_the_first_of_the_latest(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &timed(&[10, 70, 30]));
    append(store.as_ref(), &at, &timed(&[70, 20]));
    let newest = block_on(store.newest(&at, TimeKind::Origin)).unwrap();
    assert_eq!(newest, Some(Found { offset: 1, time_micros: 70 }));
}

/// Nothing retained, nothing newest; never an error.
pub fn newest_of_an_empty_partition_is_none(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    assert_eq!(block_on(store.newest(&at, TimeKind::Origin)).unwrap(), None);
    assert_eq!(block_on(store.newest(&at, TimeKind::Append)).unwrap(), None);
    assert_eq!(find(store.as_ref(), &at, 0, 0, TimeKind::Origin), None);
}

/// A message without an origin time has its append time here too.
pub fn newest_takes_the_append_time_of_untimed_messages(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &timed(&[10, 0, 0]));
    let append_time = read(store.as_ref(), &at, 0, EVERYTHING).first().unwrap().append_time_micros;
    let newest = block_on(store.newest(&at, TimeKind::Origin)).unwrap();
    assert_eq!(newest, Some(Found { offset: 1, time_micros: append_time }));
    let newest = block_on(store.newest(&at, TimeKind::Append)).unwrap();
    assert_eq!(newest, Some(Found { offset: 0, time_micros: append_time }));
}
