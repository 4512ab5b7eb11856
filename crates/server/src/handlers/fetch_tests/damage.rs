use crate::metrics::Counter;

use super::*;

#[tokio::test]
async fn a_damaged_entry_is_56_for_its_partition_alone() {
    let world = World::new();
    let topic = world.topic("orders", 2).await;
    world.append_bytes(&topic, 0, 10).await;
    world.append_bytes(&topic, 1, 10).await;
    let broken = StoreError::Broken { context: "segment 0, byte 99".to_owned() };
    *world.store.read_fault.lock() = Some((topic.store.partition(0), broken));
    let response = send(&world, 12, waiting(vec![of(&topic, vec![at(0, 0), at(1, 0)])], 10_000, 1)).await;
    let data = &response.responses[0].partitions;
    assert_eq!(data[0].error_code, code(ResponseError::KafkaStorageError));
    assert_eq!((data[1].error_code, offsets(&data[1])), (0, vec![0]));
}

#[tokio::test]
async fn an_engine_that_is_busy_gets_a_code_that_clients_try_again() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    let busy = StoreError::Busy { reason: "rebuilding".to_owned() };
    *world.store.read_fault.lock() = Some((topic.store.partition(0), busy));
    let data = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await;
    assert_eq!(data.error_code, code(ResponseError::NotLeaderOrFollower));
    world.store.close().await.unwrap();
    let data = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await;
    assert_eq!(data.error_code, code(ResponseError::NotLeaderOrFollower));
}

#[tokio::test]
async fn a_log_that_was_trimmed_during_the_read_is_answered_with_its_new_bounds() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    let bounds = milena_store::Bounds { start: 5, end: 9 };
    *world.store.read_fault.lock() = Some((topic.store.partition(0), StoreError::OutOfRange { bounds }));
    let data = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await;
    assert_eq!(data.error_code, code(ResponseError::OffsetOutOfRange));
    assert_eq!((data.log_start_offset, data.high_watermark), (5, 9));
}

#[tokio::test]
async fn any_stored_message_is_read_and_the_next_one_too() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let poisoned = TestMessage { headers: vec![0xFF; 40], ..TestMessage::new(1, b"poison") };
    world.append(&topic, 0, &[poisoned]).await;
    world.append(&topic, 0, &[TestMessage::new(2, b"sound")]).await;
    let data = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await;
    let values: Vec<_> = records(&data).into_iter().map(|record| record.value.unwrap()).collect();
    assert_eq!(values, [b"poison".to_vec(), b"sound".to_vec()]);
}

/// A frame that says it is longer than it is.
fn torn() -> Vec<u8> {
    frame_header(1, 1, 50, 0).to_vec()
}

#[tokio::test(start_paused = true)]
async fn messages_that_cannot_be_read_are_passed_over() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..6 {
        world.append_bytes(&topic, 0, 10_000).await;
    }
    *world.store.spoilt.lock() = Some((5, torn()));
    let partition = at(0, 0).with_partition_max_bytes(100);
    let data = one(&world, waiting(vec![of(&topic, vec![partition])], 10_000, 1)).await;
    assert_eq!((data.error_code, offsets(&data)), (0, vec![5]));
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_cannot_be_read_is_passed_over_so_that_a_reader_comes_to_the_end() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    world.append_bytes(&topic, 0, 10).await;
    for frames in [torn(), Vec::new()] {
        *world.store.spoilt.lock() = Some((2, frames));
        let data = one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], 10_000, 1)).await;
        assert_eq!((data.error_code, records(&data).len(), reaches(&data)), (0, 0, 2));
        assert_eq!(data.high_watermark, 2);
    }
    // At the end it waits as ever, and what comes then is read.
    let fetch = one(&world, waiting(vec![of(&topic, vec![at(0, 2)])], 10_000, 1));
    let (data, took) = slept(fetch, async {
        world.append_bytes(&topic, 0, 10).await;
    })
    .await;
    assert_eq!((data.error_code, offsets(&data), took), (0, vec![2], Duration::ZERO));
}

/// Offset behind the last batch of an answer, by its header.
fn reaches(data: &PartitionData) -> i64 {
    let batch = data.records.as_ref().unwrap();
    let base = i64::from_be_bytes(*batch.first_chunk().unwrap());
    base + i64::from(i32::from_be_bytes(*batch[23..].first_chunk().unwrap())) + 1
}

#[tokio::test]
async fn passing_over_goes_on_in_the_next_fetch_after_64_reads() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..100 {
        world.append_bytes(&topic, 0, 10_000).await;
    }
    *world.store.spoilt.lock() = Some((100, torn()));
    let partition = at(0, 0).with_partition_max_bytes(100);
    let data = one(&world, waiting(vec![of(&topic, vec![partition])], 10_000, 1)).await;
    assert_eq!((data.error_code, reaches(&data), world.store.reads()), (0, 64, 64));
    let partition = at(0, 64).with_partition_max_bytes(100);
    let data = one(&world, waiting(vec![of(&topic, vec![partition])], 10_000, 1)).await;
    assert_eq!((data.error_code, reaches(&data), world.store.reads()), (0, 100, 100));
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_counted() {
    let world = World::with(Limits { fetch_sessions: 0, ..Limits::default() });
    let topic = world.topic("orders", 2).await;
    let strange = TestMessage { headers: vec![0xFF; 40], ..TestMessage::new(1, b"strange") };
    world.append(&topic, 0, &[strange, TestMessage::new(2, b"sound")]).await;
    let both = request(vec![of(&topic, vec![at(0, 0), at(1, 7)])]).with_session_epoch(0);
    let response = send(&world, 12, both).await;
    let bytes = response.responses[0].partitions[0].records.as_ref().unwrap().len() as u64;
    one(&world, waiting(vec![of(&topic, vec![at(1, 0)])], 10, 1)).await;
    let counters = &world.metrics;
    let counted = [&counters.records, &counters.bytes, &counters.unmapped, &counters.errors, &counters.parked];
    assert_eq!(counted.map(Counter::get), [2, bytes, 1, 1, 1]);
    assert_eq!(counters.sessions_refused.get(), 1);
}
