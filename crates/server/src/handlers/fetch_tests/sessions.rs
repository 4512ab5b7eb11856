use super::*;

#[tokio::test(start_paused = true)]
async fn a_session_carries_partitions_from_request_to_request() {
    let world = World::new();
    let topic = world.topic("orders", 3).await;
    world.append_bytes(&topic, 1, 10).await;
    let partitions = (0..3).map(|index| at(index, 0)).collect();
    let first = send(&world, 16, request(vec![of(&topic, partitions)]).with_session_epoch(0)).await;
    assert!(first.session_id > 0);
    assert_eq!(first.responses[0].partitions.len(), 3);
    let next = |epoch, topics| waiting(topics, 500, 1).with_session_id(first.session_id).with_session_epoch(epoch);
    let second = send(&world, 16, next(1, vec![of(&topic, vec![at(1, 1)])])).await;
    assert_eq!(second.session_id, first.session_id);
    assert!(second.responses.is_empty(), "nothing new is nothing to tell");
    world.append_bytes(&topic, 2, 10).await;
    let third = send(&world, 16, next(2, Vec::new())).await;
    assert_eq!(third.responses[0].partitions.len(), 1);
    assert_eq!(offsets(&third.responses[0].partitions[0]), [0]);
    assert_eq!(third.responses[0].partitions[0].partition_index, 2);
}

#[tokio::test]
async fn session_errors_answer_the_whole_request() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    let new = request(vec![of(&topic, vec![at(0, 0)])]).with_session_epoch(0);
    let id = send(&world, 12, new).await.session_id;
    let continued = |id, epoch| request(Vec::new()).with_session_id(id).with_session_epoch(epoch);
    let expected = [
        (12, id + 1, 1, ResponseError::FetchSessionIdNotFound),
        (12, 0, 1, ResponseError::FetchSessionIdNotFound),
        (12, id, 9, ResponseError::InvalidFetchSessionEpoch),
        (13, id, 1, ResponseError::FetchSessionTopicIdError),
    ];
    for (version, id, epoch, error) in expected {
        let response = send(&world, version, continued(id.max(0), epoch)).await;
        assert_eq!((response.error_code, response.session_id), (code(error), 0));
        assert!(response.responses.is_empty());
    }
    assert_eq!(send(&world, 12, continued(id, 1)).await.error_code, 0, "errors leave the session as it was");
}

#[tokio::test]
async fn a_client_without_sessions_gets_none() {
    let world = World::new();
    let topic = world.topic("orders", 1).await;
    for (version, epoch) in [(4, -1), (6, -1), (7, -1), (17, -1)] {
        let request = request(vec![of(&topic, vec![at(0, 0)])]).with_session_epoch(epoch);
        assert_eq!(send(&world, version, request).await.session_id, 0);
    }
    assert!(world.fetches.sessions.is_empty());
}

#[tokio::test]
async fn a_partition_with_much_data_does_not_starve_the_others_of_a_session() {
    let world = World::new();
    let topic = world.topic("orders", 3).await;
    for partition in 0..3 {
        for _ in 0..50 {
            world.append_bytes(&topic, partition, 1_000).await;
        }
    }
    let partitions = (0..3).map(|index| at(index, 0)).collect();
    let mut next = request(vec![of(&topic, partitions)]).with_max_bytes(4_000).with_session_epoch(0);
    let mut served = Vec::new();
    let mut session = 0;
    for epoch in 1..=3 {
        let response = send(&world, 12, next).await;
        session = session.max(response.session_id);
        let with_data = response.responses.iter().flat_map(|topic| &topic.partitions);
        let with_data = with_data.filter(|data| !data.records.as_ref().unwrap().is_empty());
        served.extend(with_data.map(|data| data.partition_index));
        next = request(Vec::new()).with_max_bytes(4_000).with_session_id(session).with_session_epoch(epoch);
    }
    assert_eq!(served, [0, 1, 2]);
}
