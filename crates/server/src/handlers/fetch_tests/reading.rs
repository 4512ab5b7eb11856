use bytes::Bytes;

use std::sync::atomic::Ordering;

use super::*;

#[tokio::test]
async fn records_come_back_in_one_batch_with_their_offsets() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for id in 0..5 {
        world.append(&topic, 0, &[TestMessage::new(id, b"a").at(1_000_000), TestMessage::new(id, b"b")]).await;
    }
    let data = one(&world, request(vec![of(&topic, vec![at(0, 3)])])).await;
    assert_eq!(data.error_code, 0);
    assert_eq!((data.high_watermark, data.last_stable_offset, data.log_start_offset), (10, 10, 0));
    assert_eq!(offsets(&data), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(records(&data)[1].value.as_deref(), Some(&b"a"[..]));
    assert_eq!(records(&data)[1].timestamp_ms, 1000);
    let bytes = data.records.unwrap();
    let batch_length = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
    assert_eq!(bytes.len(), 12 + batch_length as usize, "one batch for all records");
}

#[tokio::test]
async fn every_version_answers() {
    let world = World::new();
    let topic = world.topic("orders", 2).await;
    world.append_bytes(&topic, 1, 10).await;
    for version in API.served.0..=API.served.1 {
        let response = send(&world, version, request(vec![of(&topic, vec![at(0, 0), at(1, 0)])])).await;
        let answered = &response.responses[0];
        if version >= 13 {
            assert_eq!((answered.topic_id, answered.topic.as_str()), (topic.id, ""), "{version}");
        } else {
            assert_eq!(answered.topic.as_str(), "orders", "{version}");
        }
        assert_eq!(answered.partitions[0].records, Some(Bytes::new()), "{version}");
        assert_eq!(offsets(&answered.partitions[1]), [0], "{version}");
        assert_eq!(answered.partitions[1].preferred_read_replica, -1, "{version}");
    }
}

#[tokio::test]
async fn the_list_of_aborted_transactions_is_empty_or_null_as_the_isolation_asks() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    for version in [4, 11, 17] {
        for (isolation, expected) in [(0, None), (1, Some(Vec::new()))] {
            let request = request(vec![of(&topic, vec![at(0, 0)])]).with_isolation_level(isolation);
            let response = send(&world, version, request).await;
            assert_eq!(response.responses[0].partitions[0].aborted_transactions, expected);
        }
    }
}

#[tokio::test]
async fn an_offset_outside_the_log_is_answered_with_the_true_bounds() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..10 {
        world.append_bytes(&topic, 0, 10).await;
    }
    world.store.trim(&topic.store.partition(0), 4).await.unwrap();
    for offset in [-1, 0, 3, 11, i64::MAX, i64::MIN] {
        let data = one(&world, waiting(vec![of(&topic, vec![at(0, offset)])], 10_000, 1)).await;
        assert_eq!(data.error_code, code(ResponseError::OffsetOutOfRange), "offset {offset}");
        assert_eq!((data.log_start_offset, data.high_watermark), (4, 10), "offset {offset}");
    }
    assert_eq!(offsets(&one(&world, request(vec![of(&topic, vec![at(0, 4)])])).await), [4, 5, 6, 7, 8, 9]);
    assert_eq!(one(&world, request(vec![of(&topic, vec![at(0, 10)])])).await.error_code, 0, "the end is inside");
}

#[tokio::test]
async fn unknown_topics_and_partitions_are_3_by_name_and_100_by_id() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let mut unknown = of(&topic, vec![at(0, 0)]).with_topic(TopicName(StrBytes::from_static_str("nobody")));
    unknown.topic_id = Uuid::from_u128(77);
    let topics = vec![unknown, of(&topic, vec![at(1, 0), at(-1, 0)])];
    for (version, expected) in [(12, ResponseError::UnknownTopicOrPartition), (13, ResponseError::UnknownTopicId)] {
        let response = send(&world, version, waiting(topics.clone(), 10_000, 1)).await;
        let nobody = &response.responses[0];
        assert_eq!(nobody.partitions[0].error_code, code(expected));
        assert_eq!((nobody.partitions[0].high_watermark, nobody.partitions[0].log_start_offset), (-1, -1));
        for data in &response.responses[1].partitions {
            assert_eq!(data.error_code, code(ResponseError::UnknownTopicOrPartition));
        }
        for data in response.responses.iter().flat_map(|topic| &topic.partitions) {
            assert_eq!(data.aborted_transactions, Some(Vec::new()), "as Kafka has it");
        }
    }
    let missed = || world.topics.missed.load(Ordering::Relaxed);
    assert_eq!(missed(), 2, "another gateway may know them");
    send(&world, 12, waiting(vec![of(&topic, vec![at(0, 0)])], 0, 1)).await;
    assert_eq!(missed(), 2);
}

#[tokio::test]
async fn a_leader_epoch_of_the_future_is_unknown_and_a_negative_one_is_none() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    // Any negative epoch is none.
    for (epoch, expected) in [(-2, 0), (-1, 0), (0, 0), (1, code(ResponseError::UnknownLeaderEpoch))] {
        let partition = at(0, 0).with_current_leader_epoch(epoch);
        let data = one(&world, waiting(vec![of(&topic, vec![partition])], 10_000, 1)).await;
        assert_eq!(data.error_code, expected, "epoch {epoch}");
    }
}

#[tokio::test]
async fn one_record_is_returned_even_when_it_is_larger_than_every_limit() {
    let world = World::new();
    let topic = world.topic("orders", 2).await;
    let big = TestMessage::new(1, &vec![b'x'; 100_000]);
    world.append(&topic, 0, &[big.clone(), big.clone()]).await;
    world.append(&topic, 1, &[big]).await;
    for (max_bytes, partition_max_bytes) in [(0, 0), (1, 1), (1000, MIB), (50 * MIB, 1), (-1, -1)] {
        let partitions = (0..2).map(|index| at(index, 0).with_partition_max_bytes(partition_max_bytes)).collect();
        let request = request(vec![of(&topic, partitions)]).with_max_bytes(max_bytes);
        let response = send(&world, 12, request).await;
        let answered = &response.responses[0].partitions;
        // Which of the two comes first is drawn.
        let counts: Vec<_> = answered.iter().map(|data| offsets(data).len()).collect();
        assert!(matches!(counts[..], [1, 0] | [0, 1]), "{max_bytes} {partition_max_bytes}: {counts:?}, one in all");
        assert_eq!(answered.iter().map(|data| data.high_watermark).collect::<Vec<_>>(), [2, 1]);
    }
}

#[tokio::test]
async fn limits_cut_at_a_record() {
    let world = World::new();
    let topic = world.topic("orders", 3).await;
    for partition in 0..3 {
        world.append(&topic, partition, &vec![TestMessage::new(1, &[b'x'; 1000]); 20]).await;
    }
    let partitions = || (0..3).map(|index| at(index, 0).with_partition_max_bytes(5_000)).collect();
    let response = send(&world, 12, request(vec![of(&topic, partitions())])).await;
    let sizes: Vec<_> = response.responses[0].partitions.iter().map(|data| offsets(data).len()).collect();
    assert_eq!(sizes, [4, 4, 4]);
    let bounded = request(vec![of(&topic, partitions())]).with_max_bytes(8_000);
    let response = send(&world, 12, bounded).await;
    let data = &response.responses[0].partitions;
    let sizes: Vec<_> = data.iter().map(|data| offsets(data).len()).collect();
    assert_eq!(sizes, [4, 3, 0]);
    let bytes: usize = data.iter().map(|data| data.records.as_ref().unwrap().len()).sum();
    assert!(bytes <= 8_000);
}

#[tokio::test]
async fn an_answer_ends_when_it_is_large_enough_and_no_partition_starves() {
    const PARTITIONS: i32 = 8;
    let world = World::new();
    let topic = world.topic("orders", PARTITIONS.unsigned_abs()).await;
    for partition in 0..PARTITIONS.unsigned_abs() {
        world.append(&topic, partition, &vec![TestMessage::new(1, &[b'x'; 100_000]); 10]).await;
    }
    let ask = |min_bytes| {
        let partitions = (0..PARTITIONS).map(|index| at(index, 0)).collect();
        waiting(vec![of(&topic, partitions)], 0, min_bytes)
    };
    let idle = world.topic("idle", 1).await;
    let mut served = [0; PARTITIONS as usize];
    let mut rounds = 0;
    while served.contains(&0) && rounds < 200 {
        rounds += 1;
        // As many other consumers as there are partitions, in step with this one.
        for _ in 1..PARTITIONS {
            send(&world, 12, waiting(vec![of(&idle, vec![at(0, 0)])], 0, 1)).await;
        }
        let response = send(&world, 12, ask(1)).await;
        let partitions = &response.responses[0].partitions;
        let indices: Vec<i32> = partitions.iter().map(|data| data.partition_index).collect();
        assert_eq!(indices, (0..PARTITIONS).collect::<Vec<_>>(), "in the order of the request");
        let sizes: Vec<usize> = partitions.iter().map(|data| data.records.as_ref().unwrap().len()).collect();
        assert!((3_900_000..=FETCH_ENOUGH_BYTES).contains(&sizes.iter().sum::<usize>()), "{sizes:?}");
        served.iter_mut().zip(&sizes).for_each(|(served, size)| *served += usize::from(*size > 900_000));
    }
    assert!(!served.contains(&0), "{served:?} in {rounds} rounds");
    let response = send(&world, 12, ask(6_000_000)).await;
    let bytes = |data: &PartitionData| data.records.as_ref().unwrap().len();
    assert!(response.responses[0].partitions.iter().map(bytes).sum::<usize>() >= 5_900_000, "as it was asked for");
}

#[tokio::test]
async fn the_server_bounds_what_a_client_may_ask_for() {
    let world = World::with(Limits { fetch_response_bytes: 10_000, ..Limits::default() });
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &vec![TestMessage::new(1, &[b'x'; 1000]); 100]).await;
    let request = request(vec![of(&topic, vec![at(0, 0).with_partition_max_bytes(i32::MAX)])]);
    let data = one(&world, request.with_max_bytes(i32::MAX)).await;
    let bytes = data.records.as_ref().unwrap().len();
    assert!((9_000..=10_000).contains(&bytes), "{bytes}");
}

#[tokio::test(start_paused = true)]
async fn no_record_lies_above_the_watermark_it_comes_with() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 10).await;
    let append = (topic.store.partition(0), batch_of(&[TestMessage::new(1, b"x")]));
    *world.store.append_behind_bounds.lock() = Some(append);
    let data = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await;
    assert_eq!(offsets(&data), [0, 1]);
    assert_eq!((data.high_watermark, data.last_stable_offset), (2, 2));
}

#[tokio::test]
async fn answers_that_nobody_reads_shorten_further_ones_down_to_one_record() {
    const RECORD: usize = 100_000;
    let world = World::with(Limits { in_flight_bytes: 1 << 20, ..Limits::default() });
    let topic = world.topic("t", 2).await;
    for partition in [0, 1] {
        for _ in 0..8 {
            world.append_bytes(&topic, partition, RECORD).await;
        }
    }
    let frame = async || {
        let environment = Environment {
            store: &world.store,
            topics: &world.topics,
            fetches: &world.fetches,
            metrics: &world.metrics,
            request: None,
            threads_can_block: false,
        };
        let partitions = (0..2).map(|index| at(index, 0)).collect();
        let asked = Asked::new(12, 5, &request(vec![of(&topic, partitions)]), &world.limits);
        fetch(&environment, asked, pending()).await.unwrap()
    };
    let records_of = |answer: &Pieces| answer.bytes.concat().len() / RECORD;
    let unread = frame().await;
    assert_eq!(records_of(&unread), 10, "as many as there is room for");
    let one = frame().await;
    assert_eq!(records_of(&one), 1, "a consumer goes on all the same");
    drop((unread, one));
    assert_eq!(world.fetches.room.free(), 1 << 20);
    assert_eq!(records_of(&frame().await), 10);
}
