//! What a reader hears when the end of a partition moved back.

use super::*;

const FENCED: i16 = 74;

/// Offsets 0 to 5 of epoch 0, of which 4 and 5 were lost; then 4 to 6 of epoch 1.
async fn fallen(world: &World) -> Arc<Topic> {
    let topic = world.topic("orders", 1).await;
    for _ in 0..6 {
        world.append_bytes(&topic, 0, 10).await;
    }
    world.lose_tail(&topic, 0, 4);
    for _ in 0..3 {
        world.append_bytes(&topic, 0, 10).await;
    }
    topic
}

fn epoch_of(data: &PartitionData) -> i32 {
    let header = data.records.as_ref().unwrap();
    i32::from_be_bytes(header[12..16].try_into().unwrap())
}

#[tokio::test]
async fn a_reader_of_the_older_epoch_is_fenced_at_any_offset() {
    let world = World::new();
    let topic = fallen(&world).await;
    for offset in [0, 4, 6, 7, 100] {
        let want = at(0, offset).with_current_leader_epoch(0);
        let data = one(&world, waiting(vec![of(&topic, vec![want])], 10_000, 1)).await;
        assert_eq!((data.error_code, data.high_watermark), (FENCED, 7), "offset {offset}");
    }
    let want = at(0, 4).with_current_leader_epoch(1);
    assert_eq!(offsets(&one(&world, request(vec![of(&topic, vec![want])])).await), [4, 5, 6]);
}

#[tokio::test]
async fn an_answer_ends_where_an_epoch_does_and_its_batch_names_the_epoch() {
    let world = World::new();
    let topic = fallen(&world).await;
    let old = one(&world, request(vec![of(&topic, vec![at(0, 1)])])).await;
    assert_eq!((offsets(&old), epoch_of(&old)), (vec![1, 2, 3], 0));
    let new = one(&world, request(vec![of(&topic, vec![at(0, 4)])])).await;
    assert_eq!((offsets(&new), epoch_of(&new)), (vec![4, 5, 6], 1));
}

#[tokio::test]
async fn a_replica_is_told_where_its_log_diverges_at_once() {
    let world = World::new();
    let topic = fallen(&world).await;
    for (offset, epoch, expected) in [(6, 0, (0, 4)), (5, 0, (0, 4)), (8, 1, (1, 7))] {
        let want = at(0, offset).with_current_leader_epoch(1).with_last_fetched_epoch(epoch);
        let data = one(&world, waiting(vec![of(&topic, vec![want])], 10_000, 1)).await;
        assert_eq!((data.error_code, data.high_watermark), (0, 7));
        assert_eq!((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), expected, "offset {offset}");
        assert!(data.records.is_none_or(|records| records.is_empty()));
    }
    let same = at(0, 4).with_last_fetched_epoch(0);
    assert_eq!(offsets(&one(&world, request(vec![of(&topic, vec![same])])).await), [4, 5, 6]);
    let unheard_of = at(0, 4).with_last_fetched_epoch(2);
    assert_eq!(one(&world, request(vec![of(&topic, vec![unheard_of])])).await.error_code, 1);
}

#[tokio::test]
async fn a_replica_of_an_older_version_is_not_told() {
    let world = World::new();
    let topic = fallen(&world).await;
    for version in [4, 9, 11] {
        let response = send(&world, version, request(vec![of(&topic, vec![at(0, 4)])])).await;
        assert_eq!(offsets(&response.responses[0].partitions[0]), [4, 5, 6], "version {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_waits_hears_of_the_fall() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for _ in 0..3 {
        world.append_bytes(&topic, 0, 10).await;
    }
    let want = at(0, 3).with_current_leader_epoch(0);
    let fetch = one(&world, waiting(vec![of(&topic, vec![want])], 10_000, 1));
    let (data, slept) = slept(fetch, async {
        advance(Duration::from_secs(1)).await;
        world.lose_tail(&topic, 0, 1);
    })
    .await;
    assert_eq!((data.error_code, data.high_watermark, slept), (FENCED, 1, Duration::from_secs(1)));
}
