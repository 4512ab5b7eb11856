use std::future::ready;

use tokio::sync::Notify;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_idle_fetch_waits_its_time_and_reads_nothing() {
    let world = World::new();
    let topic = world.topic("orders", 100).await;
    let partitions: Vec<_> = (0..100).map(|index| at(index, 0)).collect();
    let started = Instant::now();
    let response = send(&world, 12, waiting(vec![of(&topic, partitions)], 500, 1)).await;
    assert_eq!(started.elapsed(), Duration::from_millis(500));
    assert!(response.responses[0].partitions.iter().all(|data| data.error_code == 0 && data.high_watermark == 0));
    assert_eq!(world.store.reads(), 0);
    assert_eq!(world.store.looks(), 200, "once before it parks, once behind");
    assert_eq!(world.fetches.purgatory.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_may_not_wait_or_wants_nothing_is_answered_at_once() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let tail = || vec![of(&topic, vec![at(0, 0)])];
    let started = Instant::now();
    for request in [waiting(tail(), 0, 1), waiting(tail(), -5, 1), waiting(tail(), 500, 0), waiting(tail(), 500, -1)] {
        assert_eq!(offsets(&one(&world, request).await), Vec::<i64>::new());
    }
    assert!(send(&world, 12, waiting(Vec::new(), 500, 1)).await.responses.is_empty());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_bounded_by_the_server() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let started = Instant::now();
    one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], i32::MAX, i32::MAX)).await;
    assert_eq!(started.elapsed(), world.limits.fetch_wait_max);
}

#[tokio::test(start_paused = true)]
async fn an_append_wakes_a_parked_fetch_at_once() {
    let world = World::new();
    let topic = world.topic("orders", 3).await;
    let fetch = one(&world, waiting(vec![of(&topic, vec![at(2, 0)])], 10_000, 1));
    let (data, took) = slept(fetch, async {
        advance(Duration::from_millis(70)).await;
        world.append_bytes(&topic, 1, 10).await;
        world.append_bytes(&topic, 2, 10).await;
    })
    .await;
    assert_eq!(offsets(&data), [0]);
    assert_eq!(took, Duration::from_millis(70));
    assert_eq!(world.fetches.purgatory.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_parked_fetch_of_many_partitions_wakes_once_when_min_bytes_are_there() {
    let world = World::new();
    let topic = world.topic("orders", 200).await;
    let partitions: Vec<_> = (0..200).map(|index| at(index, 0)).collect();
    let fetch = send(&world, 12, waiting(vec![of(&topic, partitions)], 10_000, 200 * 1_000));
    let (response, took) = slept(fetch, async {
        for partition in 0..200 {
            world.append_bytes(&topic, partition, 1_000).await;
        }
    })
    .await;
    assert_eq!(took, Duration::ZERO);
    assert_eq!(world.fetches.purgatory.wakes(), 1);
    assert_eq!(response.responses[0].partitions.iter().map(|data| offsets(data).len()).sum::<usize>(), 200);
}

#[tokio::test(start_paused = true)]
async fn too_few_bytes_are_answered_when_the_wait_is_over() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let fetch = one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], 500, 10_000));
    let (data, took) = slept(fetch, async {
        world.append_bytes(&topic, 0, 100).await;
    })
    .await;
    assert_eq!(took, Duration::from_millis(500));
    assert_eq!((offsets(&data), data.high_watermark), (vec![0], 1));
    assert_eq!(world.fetches.purgatory.wakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn min_bytes_are_counted_as_the_client_gets_them() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    world.append_bytes(&topic, 0, 1_000).await;
    let there = one(&world, request(vec![of(&topic, vec![at(0, 0)])])).await.records.unwrap().len();
    let exact = i32::try_from(there).unwrap();
    let started = Instant::now();
    one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], 500, exact)).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], 500, exact + 1)).await;
    assert_eq!(started.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn min_bytes_above_max_bytes_do_not_wait_for_what_cannot_come() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..20 {
        world.append_bytes(&topic, 0, 1_000).await;
    }
    let started = Instant::now();
    let request = waiting(vec![of(&topic, vec![at(0, 0)])], 500, i32::MAX).with_max_bytes(500);
    assert_eq!(offsets(&one(&world, request).await), [0]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_append_between_the_read_and_the_sleep_is_not_missed() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let append = (topic.store.partition(0), batch_of(&[TestMessage::new(1, b"x")]));
    *world.store.append_behind_bounds.lock() = Some(append);
    let started = Instant::now();
    let data = one(&world, waiting(vec![of(&topic, vec![at(0, 0)])], 10_000, 1)).await;
    assert_eq!(offsets(&data), [0]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_its_topic_ends_a_wait_with_3_by_name_and_100_by_id() {
    for (version, expected) in [(12, ResponseError::UnknownTopicOrPartition), (13, ResponseError::UnknownTopicId)] {
        let world = World::new();
        let topic = world.topic("orders", 2).await;
        let fetch = send(&world, version, waiting(vec![of(&topic, vec![at(0, 0), at(1, 0)])], 10_000, i32::MAX));
        // The directory still knows the topic at that moment.
        let (response, took) = slept(fetch, async { world.store.delete_topic(&topic.store).await.unwrap() }).await;
        assert_eq!(took, Duration::ZERO);
        for data in &response.responses[0].partitions {
            assert_eq!(data.error_code, code(expected));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_partition_does_not_wait_for_data_of_another() {
    let world = World::new();
    let topic = world.topic("orders", 2).await;
    let started = Instant::now();
    let response = send(&world, 12, waiting(vec![of(&topic, vec![at(0, 0), at(1, 9)])], 10_000, 1)).await;
    let codes: Vec<_> = response.responses[0].partitions.iter().map(|data| data.error_code).collect();
    assert_eq!(codes, [0, 1]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_is_answered_with_what_there_is() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let tail = || waiting(vec![of(&topic, vec![at(0, 0)])], 10_000, 10_000);
    let ending = Notify::new();
    let fetch = send_until(&world, 12, tail(), ending.notified());
    let (response, took) = slept(fetch, async {
        world.append_bytes(&topic, 0, 10).await;
        ending.notify_one();
    })
    .await;
    assert_eq!((offsets(&response.responses[0].partitions[0]), took), (vec![0], Duration::ZERO));
    let started = Instant::now();
    send_until(&world, 12, tail(), ready(())).await;
    assert_eq!(started.elapsed(), Duration::ZERO, "nobody waits for a client that is gone");
    assert_eq!(world.fetches.purgatory.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_partitions_are_fetched_and_waited_for() {
    let world = World::new();
    let mut topics = Vec::new();
    for index in 0..10 {
        topics.push(world.topic(&format!("topic-{index}"), 10_000).await);
    }
    let asked = topics.iter().map(|topic| of(topic, (0..10_000).map(|index| at(index, 0)).collect())).collect();
    let first = send(&world, 12, request(asked).with_session_epoch(0)).await;
    assert_eq!(first.responses.len(), 10);
    let next = waiting(Vec::new(), 30_000, 1).with_session_id(first.session_id).with_session_epoch(1);
    let (response, took) = slept(send(&world, 12, next), async {
        world.append_bytes(&topics[7], 9_999, 10).await;
    })
    .await;
    assert_eq!(took, Duration::ZERO);
    assert_eq!(response.responses.len(), 1);
    assert_eq!(response.responses[0].partitions.len(), 1);
}
