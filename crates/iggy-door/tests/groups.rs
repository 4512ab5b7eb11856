//! Consumer groups and consumer offsets through the SDK.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{TestDoor, id, poll, send, topic};
use iggy::prelude::*;
use milena_iggy_door::OffsetRules;

fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    result.unwrap_err().as_code()
}

fn consumer(name: &str) -> Consumer {
    Consumer::new(id(name))
}

fn group(name: &str) -> Consumer {
    Consumer::group(id(name))
}

async fn store(client: &TcpClient, who: &Consumer, partition: u32, offset: u64) -> Result<(), IggyError> {
    client.store_consumer_offset(who, &id("s"), &id("t"), Some(partition), offset).await
}

async fn stored(client: &TcpClient, who: &Consumer, partition: u32) -> Option<u64> {
    let found = client.get_consumer_offset(who, &id("s"), &id("t"), Some(partition)).await.unwrap();
    found.map(|info| info.stored_offset)
}

async fn two_members(door: &TestDoor) -> (TcpClient, TcpClient) {
    let first = door.client().await;
    topic(&first, 4).await;
    first.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    let second = door.client().await;
    for client in [&first, &second] {
        client.join_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    }
    (first, second)
}

async fn partitions(client: &TcpClient) -> Vec<Vec<u32>> {
    let details = client.get_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap().unwrap();
    details.members.into_iter().map(|member| member.partitions).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_created_listed_and_deleted_with_the_servers_codes() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    let created = client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    assert_eq!((created.id, created.partitions_count, created.members_count), (0, 1, 0));
    assert_eq!(code(client.create_consumer_group(&id("s"), &id("t"), "g").await), 5004);
    assert_eq!(code(client.create_consumer_group(&id("s"), &id("missing"), "g").await), 2010);
    assert_eq!(client.get_consumer_groups(&id("s"), &id("t")).await.unwrap().len(), 1);
    assert!(client.get_consumer_group(&id("s"), &id("t"), &id("other")).await.unwrap().is_none());
    assert_eq!(code(client.join_consumer_group(&id("s"), &id("t"), &id("other")).await), 5000);
    assert_eq!(code(client.leave_consumer_group(&id("s"), &id("t"), &id("g")).await), 5006);
    client.delete_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    assert_eq!(code(client.delete_consumer_group(&id("s"), &id("t"), &id("g")).await), 5000);
    let again = client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    assert_eq!(again.id, 1, "a new group is another group");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_share_the_partitions_and_a_closed_connection_gives_its_own_back() {
    let door = TestDoor::open().await;
    let (first, second) = two_members(&door).await;
    assert_eq!(partitions(&first).await, [vec![0, 1], vec![3, 2]]);
    let me = first.get_me().await.unwrap();
    assert_eq!(me.consumer_groups_count, 1);
    second.disconnect().await.unwrap();
    for _ in 0..500 {
        if partitions(&first).await == [vec![0, 1, 2, 3]] {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the partitions of the closed connection are not read: {:?}", partitions(&first).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_poll_what_is_assigned_to_them_and_go_on_where_they_committed() {
    let door = TestDoor::open().await;
    let (first, second) = two_members(&door).await;
    for partition in 0..4 {
        send(&first, partition, &[&format!("p{partition}a"), &format!("p{partition}b")]).await.unwrap();
    }
    let mut seen = Vec::new();
    for client in [&first, &second] {
        for _ in 0..4 {
            let polled =
                client.poll_messages(&id("s"), &id("t"), None, &group("g"), &PollingStrategy::next(), 1, true).await;
            seen.extend(polled.unwrap().messages.iter().map(|message| message.payload.clone()));
        }
    }
    seen.sort();
    let expected: Vec<_> = (0..4).flat_map(|partition| [format!("p{partition}a"), format!("p{partition}b")]).collect();
    assert_eq!(seen, expected, "each message went to one member");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_of_somebody_elses_partition_is_empty_and_says_that_the_assignment_is_old() {
    let door = TestDoor::open().await;
    let (first, _second) = two_members(&door).await;
    send(&first, 3, &["x"]).await.unwrap();
    let polled = first
        .poll_messages(&id("s"), &id("t"), Some(3), &group("g"), &PollingStrategy::first(), 1, false)
        .await
        .unwrap();
    assert_eq!((polled.messages.len(), polled.partition_id), (0, RESYNC_REQUIRED_PARTITION_SENTINEL));
}

/// A member at work on both partitions of a topic, from each of which it was given a message, and one that joins meanwhile.
async fn at_work(door: &TestDoor) -> (TcpClient, TcpClient) {
    let first = door.client().await;
    topic(&first, 2).await;
    first.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    first.join_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    for partition in 0..2 {
        send(&first, partition, &["work"]).await.unwrap();
        assert_eq!(work(&first, partition).await, ["work"]);
    }
    let second = door.client().await;
    second.join_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    (first, second)
}

/// What a member is given of a partition, without committing it.
async fn work(client: &TcpClient, partition: u32) -> Vec<String> {
    let next = PollingStrategy::next();
    let polled = client.poll_messages(&id("s"), &id("t"), Some(partition), &group("g"), &next, 5, false).await.unwrap();
    common::seen(&polled).into_iter().map(|(_, payload)| payload).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_at_work_goes_to_who_joined_when_its_messages_are_committed() {
    let door = TestDoor::open().await;
    let (first, second) = at_work(&door).await;
    assert_eq!(partitions(&first).await, [vec![0, 1], vec![]]);
    send(&first, 1, &["more"]).await.unwrap();
    assert_eq!(work(&first, 1).await, [""; 0], "it gets no more to do there");
    assert_eq!(work(&second, 1).await, [""; 0], "and nobody else what it has begun");
    store(&first, &group("g"), 1, 0).await.unwrap();
    assert_eq!(partitions(&first).await, [vec![0], vec![1]]);
    assert_eq!(code(store(&first, &group("g"), 1, 1).await), 20);
    assert_eq!(work(&second, 1).await, ["more"], "what was committed is not given out again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_at_work_goes_to_who_joined_when_its_messages_are_not_committed_in_time() {
    let wait = std::time::Duration::from_millis(300);
    let door = TestDoor::with(|config| config.limits.rebalancing_timeout = wait).await;
    let (first, second) = at_work(&door).await;
    tokio::time::sleep(wait).await;
    assert_eq!(work(&second, 1).await, ["work"], "it is given out again");
    assert_eq!(code(store(&first, &group("g"), 1, 0).await), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_lies_within_the_partition_and_is_there_after_a_restart() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 2).await;
    assert_eq!(code(store(&client, &consumer("c"), 0, 0).await), 4100, "there is no message yet");
    send(&client, 0, &["a", "b", "c"]).await.unwrap();
    assert_eq!(code(store(&client, &consumer("c"), 0, 3).await), 4100, "the end is not a message that was read");
    store(&client, &consumer("c"), 0, 2).await.unwrap();
    store(&client, &consumer("c"), 0, 1).await.unwrap();
    assert_eq!(stored(&client, &consumer("c"), 1).await, None);
    assert_eq!(code(store(&client, &consumer("c"), 9, 0).await), 20);
    client.disconnect().await.unwrap();
    let door = door.reopen().await;
    let client = door.client().await;
    assert_eq!(stored(&client, &consumer("c"), 0).await, Some(1));
    let delete = |partition| {
        let client = &client;
        async move { client.delete_consumer_offset(&consumer("c"), &id("s"), &id("t"), Some(partition)).await }
    };
    delete(0).await.unwrap();
    assert_eq!(code(delete(0).await), 3021);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_member_stores_for_its_group_and_anybody_reads() {
    let door = TestDoor::open().await;
    let (first, second) = two_members(&door).await;
    for partition in [0, 3] {
        send(&first, partition, &["x"]).await.unwrap();
    }
    let stranger = door.client().await;
    assert_eq!(code(store(&stranger, &group("g"), 0, 0).await), 20);
    assert_eq!(code(store(&first, &group("g"), 3, 0).await), 20, "that partition is the other member's");
    store(&second, &group("g"), 3, 0).await.unwrap();
    assert_eq!(stored(&stranger, &group("g"), 3).await, Some(0));
    assert_eq!(stored(&stranger, &group("unknown"), 3).await, None);
    first.delete_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    assert_eq!(stored(&stranger, &group("g"), 3).await, None);
    first.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    assert_eq!(stored(&stranger, &group("g"), 3).await, None, "a new group does not inherit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_one_hash_share_an_offset_as_on_the_server() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    send(&client, 0, &["a", "b"]).await.unwrap();
    store(&client, &consumer("group-79597"), 0, 1).await.unwrap();
    assert_eq!(stored(&client, &consumer("group-238340"), 0).await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_rules_take_any_offset_of_any_group_and_tell_all_names_apart() {
    let door = TestDoor::with(|config| config.offset_rules = OffsetRules::Free).await;
    let client = door.client().await;
    topic(&client, 1).await;
    store(&client, &group("kafka-group"), 0, 0).await.unwrap();
    store(&client, &group("kafka-group"), 0, 77).await.unwrap();
    assert_eq!(stored(&client, &group("kafka-group"), 0).await, Some(77));
    store(&client, &consumer("group-79597"), 0, 1).await.unwrap();
    assert_eq!(stored(&client, &consumer("group-238340"), 0).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_with_auto_commit_stores_the_last_offset_that_it_returned() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    send(&client, 0, &["a", "b", "c"]).await.unwrap();
    let who = consumer("c");
    let (s, t, strategy) = (id("s"), id("t"), PollingStrategy::next());
    let next = || client.poll_messages(&s, &t, Some(0), &who, &strategy, 2, true);
    assert_eq!(next().await.unwrap().messages.len(), 2);
    assert_eq!(stored(&client, &who, 0).await, Some(1));
    assert_eq!(next().await.unwrap().messages.len(), 1);
    assert_eq!(next().await.unwrap().messages.len(), 0);
    assert_eq!(stored(&client, &who, 0).await, Some(2), "an empty poll commits nothing");
    client.purge_topic(&id("s"), &id("t")).await.unwrap();
    assert_eq!(stored(&client, &who, 0).await, None);
    assert!(poll(&client, PollingStrategy::first(), 1).await.unwrap().messages.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_silent_for_too_long_is_evicted_and_its_connection_closed() {
    let door = TestDoor::with(|config| config.limits.heartbeat_timeout = std::time::Duration::from_millis(300)).await;
    let (first, _second) = two_members(&door).await;
    let stranger = door.client().await;
    for _ in 0..500 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let details = stranger.get_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap().unwrap();
        if details.members_count == 0 {
            assert!(first.ping().await.is_err(), "the connection of a silent member is closed");
            return;
        }
    }
    panic!("silent members stay");
}
