use milena_records::TimestampType;
use milena_store::StoreError;
use milena_store::testing::TestMessage;
use milena_wire::kafka_protocol::protocol::StrBytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fetch::testing::World;
use crate::topics::Topic;

fn asked(topic: &Topic, times: &[(i32, i64)]) -> ListOffsetsTopic {
    let partitions = times.iter().map(|(partition, time)| {
        ListOffsetsPartition::default().with_partition_index(*partition).with_timestamp(*time)
    });
    let name = TopicName(StrBytes::from_string(topic.name.to_string()));
    ListOffsetsTopic::default().with_name(name).with_partitions(partitions.collect())
}

async fn send(world: &World, version: i16, topics: Vec<ListOffsetsTopic>) -> ListOffsetsResponse {
    list_offsets(&world.store, &world.topics, version, &ListOffsetsRequest::default().with_topics(topics)).await
}

/// Error, offset and timestamp of partition 0.
async fn at(world: &World, topic: &Topic, version: i16, time: i64) -> (i16, i64, i64) {
    let response = send(world, version, vec![asked(topic, &[(0, time)])]).await;
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.offset, partition.timestamp)
}

const NONE: (i16, i64, i64) = (0, -1, -1);

/// A message with a `kafka.ts` header.
fn stamped(origin_ms: u64, kafka_ts_ms: i64) -> TestMessage {
    let mut headers = Vec::new();
    for (name, value) in [("kafka.ts", kafka_ts_ms.to_le_bytes().to_vec()), ("kafka.v", vec![1])] {
        headers.push(2);
        headers.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        headers.extend(name.as_bytes());
        headers.push(if name == "kafka.v" { 1 } else { 7 });
        headers.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        headers.extend(value);
    }
    TestMessage { headers, ..TestMessage::new(1, b"x") }.at(origin_ms * 1000)
}

fn message(time_ms: u64) -> TestMessage {
    TestMessage::new(1, b"x").at(time_ms * 1000)
}

#[tokio::test]
async fn the_ends_of_a_log_are_its_bounds() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    assert_eq!(at(&world, &topic, 9, LATEST).await, (0, 0, -1));
    assert_eq!(at(&world, &topic, 9, EARLIEST).await, (0, 0, -1));
    for _ in 0..10 {
        world.append(&topic, 0, &[message(7)]).await;
    }
    world.store.trim(&topic.store.partition(0), 4).await.unwrap();
    assert_eq!(at(&world, &topic, 1, LATEST).await, (0, 10, -1));
    assert_eq!(at(&world, &topic, 1, EARLIEST).await, (0, 4, -1));
    assert_eq!(at(&world, &topic, 8, EARLIEST_LOCAL).await, (0, 4, -1));
    assert_eq!(at(&world, &topic, 9, LATEST_TIERED).await, NONE);
    assert_eq!(world.store.reads() + world.store.finds(), 0);
}

#[tokio::test]
async fn special_times_of_later_versions_and_unknown_ones_are_35_for_their_partition() {
    let world = World::new();
    let topic = world.topic("orders", 2).await;
    let refused = (ResponseError::UnsupportedVersion.code(), -1, -1);
    for (version, time) in
        [(6, MAX_TIMESTAMP), (7, EARLIEST_LOCAL), (8, LATEST_TIERED), (10, -6), (10, i64::MIN), (1, -3)]
    {
        assert_eq!(at(&world, &topic, version, time).await, refused, "version {version} time {time}");
    }
    let response = send(&world, 10, vec![asked(&topic, &[(0, -6), (1, LATEST)])]).await;
    assert_eq!(response.topics[0].partitions[1].error_code, 0);
}

#[tokio::test]
async fn a_time_finds_the_first_record_at_or_behind_it_also_out_of_order() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(50), message(20)]).await;
    world.append(&topic, 0, &[message(10), message(90), message(30)]).await;
    let expected = [(0, (0, 50)), (50, (0, 50)), (51, (3, 90)), (90, (3, 90))];
    for (time, (offset, timestamp)) in expected {
        assert_eq!(at(&world, &topic, 5, time).await, (0, offset, timestamp), "time {time}");
    }
    assert_eq!(at(&world, &topic, 5, 91).await, NONE);
    assert_eq!(at(&world, &topic, 5, i64::MAX).await, NONE);
}

#[tokio::test]
async fn a_time_before_the_first_retained_record_finds_that() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for time in 1..=10 {
        world.append(&topic, 0, &[message(time)]).await;
    }
    world.store.trim(&topic.store.partition(0), 6).await.unwrap();
    assert_eq!(at(&world, &topic, 5, 0).await, (0, 6, 7));
}

#[tokio::test]
async fn an_empty_partition_has_no_record_of_any_time() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    assert_eq!(at(&world, &topic, 9, 0).await, NONE);
    assert_eq!(at(&world, &topic, 9, MAX_TIMESTAMP).await, NONE);
}

#[tokio::test]
async fn the_largest_timestamp_is_that_of_its_first_record() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(50), message(90), message(20), message(90)]).await;
    assert_eq!(at(&world, &topic, 7, MAX_TIMESTAMP).await, (0, 1, 90));
}

#[tokio::test]
async fn a_record_stamped_with_the_epoch_is_found_by_that() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[stamped(0, 0), stamped(0, 0)]).await;
    world.append(&topic, 0, &[stamped(0, 0), message(70), stamped(0, 0)]).await;
    world.append(&topic, 0, &[stamped(0, 0)]).await;
    assert_eq!(at(&world, &topic, 7, 0).await, (0, 0, 0));
    assert_eq!(at(&world, &topic, 7, 1).await, (0, 3, 70));
    assert_eq!(at(&world, &topic, 7, 71).await, NONE);
    assert_eq!(at(&world, &topic, 7, MAX_TIMESTAMP).await, (0, 3, 70));
}

#[tokio::test]
async fn only_records_of_the_epoch_still_have_a_largest_timestamp() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[stamped(0, 0), stamped(0, 0)]).await;
    assert_eq!(at(&world, &topic, 7, MAX_TIMESTAMP).await, (0, 0, 0));
}

#[tokio::test]
async fn under_log_append_time_the_append_time_counts() {
    let world = World::new();
    let topic = world.topic_with("orders", 1, TimestampType::LogAppendTime).await;
    world.append(&topic, 0, &[message(50), message(90)]).await;
    world.append(&topic, 0, &[stamped(3, 4)]).await;
    let (error, first, first_time) = at(&world, &topic, 7, 91).await;
    assert_eq!((error, first), (0, 0));
    assert!(first_time > 91);
    let (_, second, second_time) = at(&world, &topic, 7, MAX_TIMESTAMP).await;
    assert!(second_time >= first_time);
    assert_eq!(at(&world, &topic, 7, second_time + 1).await, NONE);
    assert!(second <= 2);
}

#[tokio::test]
async fn many_records_that_only_look_late_do_not_cost_a_search_each() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..500 {
        world.append(&topic, 0, &[stamped(0, 0)]).await;
    }
    world.append(&topic, 0, &[message(70)]).await;
    assert_eq!(at(&world, &topic, 7, 1).await, (0, 500, 70));
    assert!(world.store.finds() <= 2, "{} searches", world.store.finds());
}

#[tokio::test]
async fn a_partition_named_twice_is_refused_each_time() {
    let world = World::new();
    let topic = world.topic("orders", 3).await;
    let topics = vec![asked(&topic, &[(0, LATEST), (1, LATEST)]), asked(&topic, &[(2, LATEST), (0, EARLIEST)])];
    let response = send(&world, 9, topics).await;
    let codes = response.topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| partition.error_code));
    assert_eq!(codes.collect::<Vec<_>>(), [42, 0, 0, 42]);
}

#[tokio::test]
async fn unknown_topics_and_partitions_are_3() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let nobody = asked(&topic, &[(0, LATEST)]).with_name(TopicName(StrBytes::from_static_str("nobody")));
    let response = send(&world, 9, vec![nobody, asked(&topic, &[(1, LATEST), (-1, LATEST)])]).await;
    assert_eq!(response.topics[0].name.as_str(), "nobody");
    for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
        assert_eq!((partition.error_code, partition.offset, partition.timestamp), (3, -1, -1));
    }
}

#[tokio::test]
async fn leader_epochs_are_checked_and_answered_from_version_4() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(5)]).await;
    for (epoch, expected) in [(-1, 0), (0, 0), (1, 75), (-2, 74)] {
        let mut topic = asked(&topic, &[(0, LATEST)]);
        topic.partitions[0].current_leader_epoch = epoch;
        let response = send(&world, 4, vec![topic]).await;
        assert_eq!(response.topics[0].partitions[0].error_code, expected, "epoch {epoch}");
    }
    for (version, time, expected) in [(3, LATEST, -1), (4, LATEST, 0), (4, 5, 0), (4, 6, -1), (9, LATEST_TIERED, -1)] {
        let response = send(&world, version, vec![asked(&topic, &[(0, time)])]).await;
        assert_eq!(response.topics[0].partitions[0].leader_epoch, expected, "version {version} time {time}");
    }
}

#[tokio::test]
async fn an_offset_comes_with_the_epoch_of_its_record_and_an_end_with_the_current_one() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for time in [1, 2, 3] {
        world.append(&topic, 0, &[message(time)]).await;
    }
    world.lose_tail(&topic, 0, 2);
    world.append(&topic, 0, &[message(9)]).await;
    for (time, offset, epoch) in [(EARLIEST, 0, 0), (2, 1, 0), (3, 2, 1), (MAX_TIMESTAMP, 2, 1), (LATEST, 3, 1)] {
        let response = send(&world, 7, vec![asked(&topic, &[(0, time)])]).await;
        let partition = &response.topics[0].partitions[0];
        assert_eq!((partition.offset, partition.leader_epoch), (offset, epoch), "time {time}");
    }
    let mut stale = asked(&topic, &[(0, LATEST)]);
    stale.partitions[0].current_leader_epoch = 0;
    assert_eq!(send(&world, 7, vec![stale]).await.topics[0].partitions[0].error_code, 74);
}

#[tokio::test]
async fn a_partition_that_cannot_be_read_now_is_never_answered_as_empty() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(5)]).await;
    world.store.close().await.unwrap();
    for time in [LATEST, EARLIEST, MAX_TIMESTAMP, 5] {
        assert_eq!(at(&world, &topic, 7, time).await, (ResponseError::NotLeaderOrFollower.code(), -1, -1));
    }
}

#[tokio::test]
async fn a_damaged_entry_is_56_for_a_search_that_meets_it() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(5)]).await;
    let broken = StoreError::Broken { context: "segment 0".to_owned() };
    *world.store.read_fault.lock() = Some((topic.store.partition(0), broken));
    assert_eq!(at(&world, &topic, 7, 5).await.0, ResponseError::KafkaStorageError.code());
    assert_eq!(at(&world, &topic, 7, LATEST).await.0, 0);
}

#[tokio::test]
async fn every_version_is_encoded() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append(&topic, 0, &[message(5)]).await;
    for version in API.served.0..=API.served.1 {
        let response = send(&world, version, vec![asked(&topic, &[(0, LATEST), (0, 5), (9, 5)])]).await;
        let frame = milena_wire::encode_response(ApiKey::ListOffsets, version, 1, &response).unwrap();
        let (_, decoded) =
            milena_wire::decode_response::<ListOffsetsResponse>(ApiKey::ListOffsets, version, frame.slice(4..))
                .unwrap();
        assert_eq!(decoded, response, "version {version}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_time_finds_what_a_look_at_every_record_finds(
        batches in vec(vec((0..12_u64, any::<bool>()), 1..4), 0..12),
        times in vec(0..14_i64, 1..6),
        trim in 0..10_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let topic = world.topic("orders", 1).await;
            let mut seen = Vec::new();
            for batch in &batches {
                let messages: Vec<_> = batch
                    .iter()
                    .map(|(time, epoch)| if *epoch { stamped(0, 0) } else { message(*time + 1) })
                    .collect();
                world.append(&topic, 0, &messages).await;
                seen.extend(batch.iter().map(|(time, epoch)| if *epoch { 0 } else { time.cast_signed() + 1 }));
            }
            let start = world.store.trim(&topic.store.partition(0), trim).await.unwrap().start;
            let retained = || (0_i64..).zip(&seen).skip(usize::try_from(start).unwrap()).map(|(offset, time)| (offset, *time));
            for time in times {
                let first = retained().find(|(_, timestamp)| *timestamp >= time);
                let expected = first.map_or(NONE, |(offset, timestamp)| (0, offset, timestamp));
                prop_assert_eq!(at(&world, &topic, 7, time).await, expected);
            }
            let newest = retained().map(|(offset, time)| (time, -offset)).max();
            let expected = newest.map_or(NONE, |(time, offset)| (0, -offset, time));
            prop_assert_eq!(at(&world, &topic, 7, MAX_TIMESTAMP).await, expected);
            Ok(())
        })?;
    }
}
