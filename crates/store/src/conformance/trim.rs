//! The start of a partition, and sizes.

use super::*;
use crate::error::StoreError;
use crate::types::TimeKind;

/// A store whose partition holds `0..=8` as three batches of three, when the engine can trim at all.
///
/// An engine that cannot must say so; then there is nothing more to see.
fn trimmable(factory: &dyn StoreFactory) -> Option<(Arc<dyn Store>, PartitionRef)> {
    let store = factory.open();
    let at = single(store.as_ref());
    for base in [0u8, 3, 6] {
        let batch: Vec<_> = (base..base + 3).map(|number| TestMessage::new(u128::from(number), &[number])).collect();
        append(store.as_ref(), &at, &batch);
    }
    if store.capabilities().trims {
        return Some((store, at));
    }
    let error = block_on(store.trim(&at, 1)).err();
    assert!(matches!(error, Some(StoreError::Unsupported { .. })), "{error:?}");
    None
}

/// The start is where it was put, also within a batch; what lies below is `OutOfRange`, what lies above is there.
pub fn trim_moves_the_start_at_once_and_exactly(factory: &dyn StoreFactory) {
    let Some((store, at)) = trimmable(factory) else { return };
    let trimmed = Bounds { start: 4, end: 9 };
    assert_eq!(block_on(store.trim(&at, 4)).unwrap(), trimmed);
    assert_eq!(bounds(store.as_ref(), &at), trimmed);
    let below = block_on(store.read(&at, 3, EVERYTHING)).err();
    assert_eq!(below, Some(StoreError::OutOfRange { bounds: trimmed }));
    assert_eq!(payloads(&everything(store.as_ref(), &at)), [[4], [5], [6], [7], [8]]);
}

/// A lower offset changes nothing; one behind the end empties the partition.
pub fn trim_never_moves_back_and_stops_at_the_end(factory: &dyn StoreFactory) {
    let Some((store, at)) = trimmable(factory) else { return };
    block_on(store.trim(&at, 4)).unwrap();
    assert_eq!(block_on(store.trim(&at, 2)).unwrap(), Bounds { start: 4, end: 9 });
    assert_eq!(block_on(store.trim(&at, u64::MAX)).unwrap(), Bounds { start: 9, end: 9 });
    assert!(read(store.as_ref(), &at, 9, EVERYTHING).is_empty());
}

/// Offsets go on behind the old end after everything was trimmed, and after a reopen too.
pub fn a_trimmed_partition_goes_on_where_it_was(factory: &dyn StoreFactory) {
    let Some((store, at)) = trimmable(factory) else { return };
    block_on(store.trim(&at, 9)).unwrap();
    let appended = block_on(store.append(&at, batch_of(&[TestMessage::new(9, b"a")]))).unwrap();
    assert_eq!((appended.base_offset.unwrap_or(9), appended.log_start), (9, 9));
    block_on(store.trim(&at, 10)).unwrap();
    if !factory.keeps_data() {
        return;
    }
    let store = factory.reopen(store);
    assert_eq!(bounds(store.as_ref(), &at), Bounds { start: 10, end: 10 });
    assert_eq!(append(store.as_ref(), &at, &[TestMessage::new(10, b"b")]), 10);
}

/// Searches do not see what lies below the start.
pub fn what_was_trimmed_is_not_found_by_time(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    if !store.capabilities().trims {
        return;
    }
    let times = [90, 20, 80, 30];
    append(store.as_ref(), &at, &times.map(|time| TestMessage::new(1, b"x").at(time)));
    block_on(store.trim(&at, 1)).unwrap();
    assert_eq!(block_on(store.find(&at, 1, 1, TimeKind::Origin)).unwrap().map(|found| found.offset), Some(1));
    assert_eq!(block_on(store.find(&at, 1, 81, TimeKind::Origin)).unwrap(), None);
    assert_eq!(block_on(store.newest(&at, TimeKind::Origin)).unwrap().map(|found| found.offset), Some(2));
    block_on(store.trim(&at, 4)).unwrap();
    assert_eq!(block_on(store.newest(&at, TimeKind::Origin)).unwrap(), None);
}

/// The start is durable when `trim` returns.
pub fn a_trim_survives_a_reopen(factory: &dyn StoreFactory) {
    let Some((store, at)) = trimmable(factory).filter(|_| factory.keeps_data()) else { return };
    block_on(store.trim(&at, 4)).unwrap();
    let store = factory.reopen(store);
    assert_eq!(bounds(store.as_ref(), &at), Bounds { start: 4, end: 9 });
    assert_eq!(payloads(&everything(store.as_ref(), &at)), [[4], [5], [6], [7], [8]]);
}

/// There is one size per partition, and a fuller partition is larger.
pub fn sizes_name_every_partition(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 3).topic;
    append_each(store.as_ref(), &topic.partition(1), (0..10).map(|_| vec![7; 1_000]));
    let mut sizes = block_on(store.sizes(&topic)).unwrap();
    sizes.sort_by_key(|size| size.partition);
    assert_eq!(sizes.iter().map(|size| size.partition).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(sizes[1].bytes >= 10_000 && sizes[1].bytes > sizes[0].bytes, "{sizes:?}");
}

/// Segments that are no longer written to are told oldest first, as many as asked for; to trim to the end of one takes it
/// off. An engine that does not tell must say so.
pub fn sealed_segments_are_told_oldest_first_until_they_are_trimmed(factory: &dyn StoreFactory) {
    let store = factory.open();
    let settings = TopicSettings { segment_bytes: Some(1 << 20), ..TopicSettings::default() };
    let topic = block_on(store.create_topic(STREAM, "segments", 1, &settings)).unwrap().topic;
    let at = topic.partition(0);
    let sealed = |most| block_on(store.sealed_segments(&at, most));
    append_each(store.as_ref(), &at, (0..6).map(|number| vec![number; 600 << 10]));
    let all = match sealed(usize::MAX) {
        Err(error) => {
            assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
            return;
        }
        Ok(all) => all,
    };
    assert!(all.len() >= 2, "3.5 MiB in segments of 1 MiB: {all:?}");
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    let Bounds { start, end } = bounds(store.as_ref(), &at);
    assert!(all.iter().all(|offset| (start + 1..end).contains(offset)), "the last one is written to: {all:?}");
    assert_eq!(sealed(1).unwrap(), all[..1]);
    assert!(sealed(0).unwrap().is_empty());
    block_on(store.trim(&at, all[0])).unwrap();
    assert_eq!(sealed(usize::MAX).unwrap(), all[1..]);
}
