//! Append and read.

use bytes::Bytes;

use super::*;
use crate::error::StoreError;
use crate::types::{AppendBatch, ProducerSpan};

fn numbered(range: std::ops::Range<u32>) -> Vec<TestMessage> {
    range.map(|number| TestMessage::new(u128::from(number), &number.to_be_bytes())).collect()
}

/// Batches of any size get consecutive offsets from 0 on.
pub fn offsets_are_dense_and_start_at_zero(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    assert_eq!(append(store.as_ref(), &at, &numbered(0..1)), 0);
    assert_eq!(append(store.as_ref(), &at, &numbered(1..100)), 1);
    assert_eq!(append(store.as_ref(), &at, &numbered(100..101)), 100);
    assert_eq!(bounds(store.as_ref(), &at), Bounds { start: 0, end: 101 });
    let found: Vec<_> = everything(store.as_ref(), &at).into_iter().map(|(_, message)| message).collect();
    assert_eq!(found, numbered(0..101));
}

/// Base offset, append time and log start of the answer are what reads say.
pub fn the_answer_to_an_append_is_true(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &numbered(0..3));
    let appended = block_on(store.append(&at, batch_of(&numbered(3..5)))).unwrap();
    let entries = read(store.as_ref(), &at, 3, EVERYTHING);
    let entry = entries.first().unwrap();
    assert_eq!((entry.base_offset, entry.count), (3, 2));
    assert_eq!(appended.base_offset.unwrap_or(3), 3);
    assert!(appended.append_time_micros == 0 || appended.append_time_micros == entry.append_time_micros);
    assert_eq!(appended.log_start, 0);
}

/// Ids, times, payloads and header blocks come back as they were written, whatever bytes they are.
pub fn messages_are_read_back_byte_for_byte(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    let capabilities = store.capabilities();
    let latest = capabilities.timestamp_span_micros.unwrap_or(u64::MAX);
    let shortest = vec![0; capabilities.payload_bytes_min];
    let every_byte: Vec<u8> = (0..=255).collect();
    let odd = vec![
        TestMessage { payload: shortest.clone(), ..TestMessage::default() },
        TestMessage { id: u128::MAX, origin_micros: latest, payload: every_byte.clone(), headers: Vec::new() },
        TestMessage { id: 1, origin_micros: 1, payload: shortest, headers: every_byte.clone() },
        TestMessage { id: 1, origin_micros: 1, payload: vec![0; 5_000], headers: vec![0xff; 5_000] },
        TestMessage::new(0x1234_5678_9abc_def0, &[b'x'; 1_000]),
    ];
    append(store.as_ref(), &at, &odd);
    for message in &odd {
        append(store.as_ref(), &at, std::slice::from_ref(message));
    }
    let mut batch = batch_of(&odd);
    batch.producer = Some(ProducerSpan { producer_id: u64::MAX >> 1, epoch: u16::MAX >> 1, base_sequence: 0 });
    block_on(store.append(&at, batch)).unwrap();
    let found: Vec<_> = everything(store.as_ref(), &at).into_iter().map(|(_, message)| message).collect();
    assert_eq!(found, [odd.clone(), odd.clone(), odd].concat());
}

/// Partitions of a topic have offsets and messages of their own.
pub fn partitions_are_independent(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    append_each(store.as_ref(), &topic.partition(0), [b"a".to_vec(), b"b".to_vec()]);
    append_each(store.as_ref(), &topic.partition(1), [b"c".to_vec()]);
    assert_eq!(payloads(&everything(store.as_ref(), &topic.partition(0))), [b"a", b"b"]);
    assert_eq!(payloads(&everything(store.as_ref(), &topic.partition(1))), [b"c"]);
}

/// Reading at the end is no error: the next message will be there.
pub fn a_read_at_the_end_is_empty(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    assert!(read(store.as_ref(), &at, 0, EVERYTHING).is_empty());
    append(store.as_ref(), &at, &numbered(0..3));
    assert!(read(store.as_ref(), &at, 3, EVERYTHING).is_empty());
}

/// Behind the end is `OutOfRange`, with the bounds as they are.
pub fn a_read_outside_is_out_of_range(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &numbered(0..3));
    for from in [4, u64::MAX] {
        let error = block_on(store.read(&at, from, EVERYTHING)).err();
        assert_eq!(error, Some(StoreError::OutOfRange { bounds: Bounds { start: 0, end: 3 } }));
    }
}

/// A read returns whole entries, so the first may begin before the offset that was asked for.
pub fn a_read_within_an_entry_returns_all_of_it(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &numbered(0..10));
    append(store.as_ref(), &at, &numbered(10..20));
    let entries = read(store.as_ref(), &at, 14, EVERYTHING);
    let messages = messages_of(&entries);
    assert!(messages.first().unwrap().0 <= 14);
    assert!(messages.iter().any(|(offset, message)| *offset == 14 && message.id == 14));
    assert_eq!(messages.last().unwrap().0, 19);
}

/// The limit counts whole entries; what would pass it is left for the next read.
pub fn a_read_stops_at_its_limit_between_entries(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append_each(store.as_ref(), &at, (0..10).map(|_| vec![7; 1_000]));
    let all = read(store.as_ref(), &at, 0, EVERYTHING);
    assert_eq!(messages_of(&all).len(), 10);
    let limit = ReadLimit { bytes: 3_500, at_least_one: true };
    let some = read(store.as_ref(), &at, 0, limit);
    let bytes: usize = some.iter().map(|entry| entry.frames.len()).sum();
    let count = messages_of(&some).len();
    assert!(bytes <= 3_500 && (1..=3).contains(&count), "{count} messages, {bytes} bytes");
    let next = read(store.as_ref(), &at, count as u64, limit);
    assert_eq!(next.first().unwrap().base_offset, count as u64);
}

/// With `at_least_one` a reader makes progress whatever its limit is.
pub fn at_least_one_entry_is_returned_when_asked(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append_each(store.as_ref(), &at, (0..3).map(|_| vec![7; 10_000]));
    for from in 0..3 {
        let entries = read(store.as_ref(), &at, from, ReadLimit { bytes: 1, at_least_one: true });
        assert_eq!(entries.len(), 1);
        assert!(messages_of(&entries).iter().any(|(offset, _)| *offset == from));
    }
}

/// Without `at_least_one` the limit is never passed.
pub fn without_at_least_one_a_too_small_limit_returns_nothing(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append_each(store.as_ref(), &at, (0..3).map(|_| vec![7; 10_000]));
    assert!(read(store.as_ref(), &at, 0, ReadLimit { bytes: 9_999, at_least_one: false }).is_empty());
}

/// A message and a batch of several MiB are stored, and read whole.
pub fn a_large_entry_is_stored_and_read(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    let size = store.capabilities().payload_bytes_max.min(8 << 20);
    let large = TestMessage::new(1, &(0..=250u8).cycle().take(size).collect::<Vec<u8>>());
    append(store.as_ref(), &at, std::slice::from_ref(&large));
    let many: Vec<_> = (0..2_000).map(|number| TestMessage::new(number, &[9; 1_000])).collect();
    append(store.as_ref(), &at, &many);
    let found = everything(store.as_ref(), &at);
    assert_eq!(found.len(), 2_001);
    assert!(found.first().unwrap().1 == large, "the large message is damaged");
    assert!(found.iter().skip(1).map(|(_, message)| message).eq(&many), "the large batch is damaged");
}

/// Whatever several threads append is there once, each thread's in its order, each batch in one piece.
pub fn appends_of_several_threads_keep_each_ones_order(factory: &dyn StoreFactory) {
    const THREADS: u32 = 4;
    const BATCHES: u32 = 50;
    let store = factory.open();
    let at = single(store.as_ref());
    let batch = |thread: u32, number: u32| -> Vec<TestMessage> {
        let id = |index: u32| u128::from(thread) << 64 | u128::from(number * 3 + index);
        (0..3).map(|index| TestMessage::new(id(index), &[b'x'; 50])).collect()
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, at) = (&store, &at);
            scope.spawn(move || {
                for number in 0..BATCHES {
                    let appended = block_on(store.append(at, batch_of(&batch(thread, number)))).unwrap();
                    if let Some(base) = appended.base_offset {
                        let entries = read(store.as_ref(), at, base, EVERYTHING);
                        let first = messages_of(&entries).into_iter().find(|(offset, _)| *offset == base);
                        assert_eq!(first.unwrap().1, batch(thread, number)[0], "the answer names another's offset");
                    }
                }
            });
        }
    });
    let found = everything(store.as_ref(), &at);
    assert_eq!(found.len(), (THREADS * BATCHES * 3) as usize);
    for thread in 0..THREADS {
        let own = found.iter().filter(|(_, message)| message.id >> 64 == u128::from(thread));
        let numbers: Vec<u128> = own.map(|(_, message)| message.id & u128::from(u64::MAX)).collect();
        assert_eq!(numbers, (0..u128::from(BATCHES * 3)).collect::<Vec<_>>(), "order of thread {thread}");
    }
    for whole in found.chunks(3) {
        assert_eq!(whole[0].1.id >> 64, whole[2].1.id >> 64, "a batch is in one piece");
    }
}

/// Reads beside a writer return a dense prefix of what it wrote, never a hole and never half a batch.
pub fn a_reader_beside_a_writer_sees_a_dense_prefix(factory: &dyn StoreFactory) {
    const BATCHES: u32 = 200;
    let store = factory.open();
    let at = single(store.as_ref());
    std::thread::scope(|scope| {
        let (store, at) = (&store, &at);
        scope.spawn(move || {
            for number in 0..BATCHES {
                append(store.as_ref(), at, &numbered(number * 5..number * 5 + 5));
            }
        });
        let mut next = 0;
        while next < u64::from(BATCHES * 5) {
            let end = bounds(store.as_ref(), at).end;
            assert!(end >= next && end.is_multiple_of(5), "the end is {end} after {next} were read");
            let entries = read(store.as_ref(), at, next, ReadLimit { bytes: 4_096, at_least_one: true });
            for (offset, message) in messages_of(&entries) {
                assert_eq!(message.id, u128::from(offset));
                if offset >= next {
                    assert_eq!(offset, next);
                    next += 1;
                }
            }
            std::thread::yield_now();
        }
    });
}

/// A batch that is no block of frames does not panic, and does not harm what is stored around it.
pub fn malformed_batches_do_no_harm(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    let (sound, mistreated) = (topic.partition(0), topic.partition(1));
    append(store.as_ref(), &sound, &numbered(0..3));
    let good = batch_of(&numbered(0..3));
    let bad = [
        AppendBatch { frames: Bytes::new(), count: 0, ..good.clone() },
        AppendBatch { frames: Bytes::new(), count: 1, ..good.clone() },
        AppendBatch { frames: Bytes::from_static(b"no frame"), count: 1, ..good.clone() },
        AppendBatch { frames: Bytes::from(vec![0xff; 100]), count: 1, ..good.clone() },
        AppendBatch { count: 0, ..good.clone() },
        AppendBatch { count: u32::MAX, ..good },
    ];
    for batch in bad {
        let _ = block_on(store.append(&mistreated, batch));
    }
    let _ = block_on(store.read(&mistreated, 0, EVERYTHING));
    append(store.as_ref(), &sound, &numbered(3..5));
    assert_eq!(everything(store.as_ref(), &sound).len(), 5);
}
