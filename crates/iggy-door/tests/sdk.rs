//! The published Rust SDK as a client: streams, topics, messages.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{TestDoor, id, poll, seen, send, topic};
use iggy::prelude::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_connects_creates_sends_and_polls() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    client.ping().await.unwrap();
    topic(&client, 2).await;
    let sent = send(&client, 0, &["one", "two", "three"]).await.unwrap();
    assert_eq!(sent.confirmations.len(), 1);
    assert_eq!((sent.confirmations[0].partition_id, sent.confirmations[0].base_offset), (0, 0));
    let again = send(&client, 0, &["four"]).await.unwrap();
    assert_eq!(again.confirmations[0].base_offset, 3);
    let polled = poll(&client, PollingStrategy::first(), 10).await.unwrap();
    let expected = [(0, "one"), (1, "two"), (2, "three"), (3, "four")].map(|(offset, text)| (offset, text.to_owned()));
    assert_eq!(seen(&polled), expected);
    assert_eq!((polled.partition_id, polled.current_offset), (0, 3));
    let details = client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap();
    assert_eq!((details.partitions_count, details.messages_count), (2, 4));
    assert_eq!(details.partitions[0].current_offset, 3);
}

fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    result.unwrap_err().as_code()
}

fn numbered(offsets: &[u64]) -> Vec<(u64, String)> {
    offsets.iter().map(|offset| (*offset, format!("m{offset}"))).collect()
}

async fn ten(client: &TcpClient) {
    topic(client, 1).await;
    for offset in 0..10 {
        send(client, 0, &[&format!("m{offset}")]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_strategy_begins_where_it_says() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    ten(&client).await;
    let polled = poll(&client, PollingStrategy::offset(4), 3).await.unwrap();
    assert_eq!(seen(&polled), numbered(&[4, 5, 6]));
    let polled = poll(&client, PollingStrategy::last(), 2).await.unwrap();
    assert_eq!(seen(&polled), numbered(&[8, 9]));
    let polled = poll(&client, PollingStrategy::first(), 1).await.unwrap();
    let sixth = poll(&client, PollingStrategy::offset(6), 1).await.unwrap().messages[0].header.timestamp;
    assert_eq!(seen(&polled), numbered(&[0]));
    let polled = poll(&client, PollingStrategy::timestamp(sixth.into()), 2).await.unwrap();
    assert_eq!(seen(&polled), numbered(&[6, 7]), "the append time counts");
    let polled = poll(&client, PollingStrategy::timestamp((sixth + 1_000_000_000).into()), 2).await.unwrap();
    assert!(polled.messages.is_empty());
    let polled = poll(&client, PollingStrategy::next(), 2).await.unwrap();
    assert_eq!(seen(&polled), numbered(&[0, 1]), "nothing is stored, so it begins at the beginning");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_at_and_behind_the_end_of_nothing_and_of_no_partition_are_told_apart() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    let empty = poll(&client, PollingStrategy::first(), 10).await.unwrap();
    assert_eq!((empty.current_offset, empty.count), (0, 0));
    send(&client, 0, &["m0"]).await.unwrap();
    for offset in [1, 100] {
        assert!(poll(&client, PollingStrategy::offset(offset), 1).await.unwrap().messages.is_empty());
    }
    assert_eq!(poll(&client, PollingStrategy::first(), 0).await.unwrap().count, 0);
    let consumer = Consumer::new(Identifier::numeric(1).unwrap());
    let strategy = PollingStrategy::first();
    let of = |stream: &'static str, topic: &'static str, partition| {
        let (client, consumer) = (&client, &consumer);
        async move { client.poll_messages(&id(stream), &id(topic), Some(partition), consumer, &strategy, 1, false).await }
    };
    assert_eq!(code(of("s", "t", 5).await), 3007);
    assert_eq!(code(of("s", "missing", 0).await), 2010);
    assert_eq!(code(of("missing", "t", 0).await), 1009);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_times_and_user_headers_come_back_as_they_were_sent() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    let headers = std::collections::BTreeMap::from([
        (HeaderKey::try_from("text").unwrap(), HeaderValue::try_from("value").unwrap()),
        (HeaderKey::try_from("number").unwrap(), HeaderValue::from(7u64)),
    ]);
    let mut sent = IggyMessage::builder()
        .id(0xDEAD_BEEF_CAFE)
        .payload(bytes::Bytes::from_static(b"x"))
        .user_headers(headers.clone())
        .build()
        .unwrap();
    sent.header.origin_timestamp = 1_234_567;
    client.send_messages(&id("s"), &id("t"), &Partitioning::balanced(), &mut [sent]).await.unwrap();
    let polled = poll(&client, PollingStrategy::first(), 1).await.unwrap();
    let message = &polled.messages[0];
    assert_eq!((message.header.id, message.header.origin_timestamp), (0xDEAD_BEEF_CAFE, 1_234_567));
    assert_eq!(message.user_headers_map().unwrap(), Some(headers));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_topics_are_created_listed_and_deleted_with_the_servers_codes() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 2).await;
    assert_eq!(code(client.create_stream("s").await), 1012);
    let options = |partitions| TopicCreateOptions { partitions_count: Some(partitions), ..Default::default() };
    assert_eq!(code(client.create_topic(&id("s"), "t", &options(1)).await), 2013);
    assert_eq!(code(client.create_topic(&id("nowhere"), "t", &options(1)).await), 1009);
    assert_eq!(code(client.create_topic(&id("s"), "u", &options(1001)).await), 2015);
    assert_eq!(code(client.create_topic(&id("s"), "u", &options(0)).await), 2019);
    client.create_stream("empty").await.unwrap();
    let streams = client.get_streams().await.unwrap();
    let names: Vec<_> = streams.iter().map(|stream| (stream.id, stream.name.as_str(), stream.topics_count)).collect();
    assert_eq!(names, [(0, "s", 1), (1, "empty", 0)]);
    let by_number = client.get_stream(&Identifier::numeric(1).unwrap()).await.unwrap().unwrap();
    assert_eq!(by_number.name, "empty");
    assert_eq!(client.get_topics(&id("s")).await.unwrap().len(), 1);
    assert!(client.get_topics(&id("nowhere")).await.unwrap().is_empty());
    assert!(client.get_topic(&id("s"), &id("missing")).await.unwrap().is_none());
    assert!(client.get_stream(&id("missing")).await.unwrap().is_none());
    client.delete_topic(&id("s"), &id("t")).await.unwrap();
    assert_eq!(code(client.delete_topic(&id("s"), &id("t")).await), 2010);
    client.delete_stream(&id("s")).await.unwrap();
    assert_eq!(code(client.delete_stream(&id("s")).await), 1009);
    assert_eq!(client.create_stream("again").await.unwrap().id, 0, "numbers are given again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_grows_changes_its_expiry_and_is_purged_without_going_back_in_offsets() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    ten(&client).await;
    client.create_partitions(&id("s"), &id("t"), 2).await.unwrap();
    assert_eq!(client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap().partitions_count, 3);
    let expiry = IggyExpiry::ExpireDuration(IggyDuration::from(3_000_000));
    let options = TopicUpdateOptions { message_expiry: Some(expiry), ..TopicUpdateOptions::default() };
    client.update_topic(&id("s"), &id("t"), "t", &options).await.unwrap();
    let details = client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap();
    assert_eq!(details.message_expiry, expiry);
    client.purge_topic(&id("s"), &id("t")).await.unwrap();
    let details = client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap();
    assert_eq!((details.messages_count, details.partitions[0].current_offset), (0, 9));
    assert_eq!(send(&client, 0, &["m10"]).await.unwrap().confirmations[0].base_offset, 10);
    let polled = poll(&client, PollingStrategy::offset(0), 5).await.unwrap();
    assert_eq!(seen(&polled), numbered(&[10]), "below the start is the start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_partitions_are_deleted_with_their_offsets_and_come_back_where_they_ended() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 3).await;
    let consumer = Consumer::new(id("c"));
    for partition in 0..3 {
        send(&client, partition, &["a", "b"]).await.unwrap();
        client.store_consumer_offset(&consumer, &id("s"), &id("t"), Some(partition), 1).await.unwrap();
    }
    client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    client.join_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap();
    client.delete_partitions(&id("s"), &id("t"), 2).await.unwrap();
    let details = client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap();
    assert_eq!((details.partitions_count, details.messages_count), (1, 2));
    let group = client.get_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap().unwrap();
    assert_eq!((group.partitions_count, group.members[0].partitions.clone()), (1, vec![0]));
    assert_eq!(code(send(&client, 1, &["x"]).await), 20);
    for more in [1, 2] {
        assert_eq!(code(client.delete_partitions(&id("s"), &id("t"), more).await), 2019, "one stays");
    }
    let door = door.reopen().await;
    let client = door.client().await;
    client.create_partitions(&id("s"), &id("t"), 2).await.unwrap();
    assert_eq!(send(&client, 2, &["c"]).await.unwrap().confirmations[0].base_offset, 2);
    let stored = async |partition| {
        let stored = client.get_consumer_offset(&consumer, &id("s"), &id("t"), Some(partition)).await.unwrap();
        stored.map(|info| info.stored_offset)
    };
    assert_eq!((stored(0).await, stored(1).await, stored(2).await), (Some(1), None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_and_a_topic_have_another_name_and_all_that_they_had() {
    let mut door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    send(&client, 0, &["a"]).await.unwrap();
    client.create_stream("other").await.unwrap();
    client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    let consumer = Consumer::new(id("c"));
    client.store_consumer_offset(&consumer, &id("s"), &id("t"), Some(0), 0).await.unwrap();
    let before = client.get_topic(&id("s"), &id("t")).await.unwrap().unwrap();
    let same = TopicUpdateOptions::default();
    client.update_topic(&id("s"), &id("t"), "renamed", &same).await.unwrap();
    assert_eq!(code(client.update_stream(&id("s"), "other", &StreamUpdateOptions::default()).await), 1012);
    assert_eq!(code(client.update_stream(&id("s"), "__milena", &StreamUpdateOptions::default()).await), 1013);
    client.update_stream(&id("s"), "moved", &StreamUpdateOptions::default()).await.unwrap();
    // One without topics is not in the store, and is renamed all the same.
    client.update_stream(&id("other"), "bare", &StreamUpdateOptions::default()).await.unwrap();
    for _ in 0..2 {
        let client = door.client().await;
        let streams = client.get_streams().await.unwrap();
        let names: Vec<_> = streams.iter().map(|stream| (stream.id, stream.name.as_str())).collect();
        assert_eq!(names, [(0, "moved"), (1, "bare")]);
        let after = client.get_topic(&id("moved"), &id("renamed")).await.unwrap().unwrap();
        assert_eq!((after.id, after.created_at, after.messages_count), (before.id, before.created_at, 1));
        assert!(client.get_topic(&id("moved"), &id("t")).await.unwrap().is_none());
        assert!(client.get_stream(&id("s")).await.unwrap().is_none());
        let groups = client.get_consumer_groups(&id("moved"), &id("renamed")).await.unwrap();
        assert_eq!(groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["g"]);
        let offset = client.get_consumer_offset(&consumer, &id("moved"), &id("renamed"), Some(0)).await.unwrap();
        assert_eq!(offset.unwrap().stored_offset, 0);
        door = door.reopen().await;
    }
    let client = door.client().await;
    assert_eq!(client.create_stream("s").await.unwrap().id, 2, "the name is free, the number is not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_tokens_and_the_number_of_a_stream_survive_a_restart() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    client.create_stream("first").await.unwrap();
    client.create_stream("second").await.unwrap();
    client.delete_stream(&id("first")).await.unwrap();
    let token = client.create_personal_access_token("pool", PersonalAccessTokenExpiry::NeverExpire).await.unwrap();
    client.disconnect().await.unwrap();
    let door = door.reopen().await;
    let client = door.anonymous().await;
    client.login_with_personal_access_token(&token.token).await.unwrap();
    let streams = client.get_streams().await.unwrap();
    assert_eq!(streams.iter().map(|stream| (stream.id, stream.name.as_str())).collect::<Vec<_>>(), [(1, "second")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_to_nowhere_are_one_code_and_large_batches_arrive_whole() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    assert_eq!(code(send(&client, 7, &["x"]).await), 20);
    let mut message = [IggyMessage::from("x")];
    let to = Partitioning::partition_id(0);
    assert_eq!(code(client.send_messages(&id("s"), &id("missing"), &to, &mut message).await), 20);
    assert_eq!(code(client.send_messages(&id("missing"), &id("t"), &to, &mut message).await), 20);
    let large = vec![7u8; 3 << 20];
    let mut messages: Vec<_> =
        (0..5).map(|_| IggyMessage::builder().payload(large.clone().into()).build().unwrap()).collect();
    client.send_messages(&id("s"), &id("t"), &to, &mut messages).await.unwrap();
    let polled = poll(&client, PollingStrategy::first(), 10).await.unwrap();
    assert_eq!(polled.messages.len(), 5);
    assert!(polled.messages.iter().all(|message| message.payload[..] == large[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_returns_no_more_bytes_than_it_may_but_always_a_message() {
    let door = TestDoor::with(|config| config.limits.poll_bytes_max = 1_000).await;
    let client = door.client().await;
    topic(&client, 1).await;
    for _ in 0..5 {
        send(&client, 0, &[&"x".repeat(600)]).await.unwrap();
    }
    assert_eq!(poll(&client, PollingStrategy::first(), 5).await.unwrap().messages.len(), 1);
    send(&client, 0, &[&"y".repeat(5_000)]).await.unwrap();
    assert_eq!(poll(&client, PollingStrategy::offset(5), 5).await.unwrap().messages.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_describes_itself_its_options_and_its_clients() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    ten(&client).await;
    let cluster = client.get_cluster_metadata().await.unwrap();
    assert_eq!(cluster.nodes.len(), 1);
    assert_eq!(cluster.nodes[0].endpoints.tcp, door.door.address().port());
    let stats = client.get_stats().await.unwrap();
    assert_eq!((stats.streams_count, stats.topics_count, stats.messages_count, stats.clients_count), (1, 1, 10, 1));
    let options = client.describe_options(OptionsScope::Topic).await.unwrap();
    assert!(options.iter().any(|option| option.key == "durability"));
    let me = client.get_me().await.unwrap();
    assert_eq!(client.get_clients().await.unwrap().len(), 1);
    assert_eq!(client.get_client(me.client_id).await.unwrap().unwrap().user_id, Some(0));
    assert!(client.get_client(999).await.unwrap().is_none());
    let users = client.get_users().await.unwrap();
    assert_eq!(users.iter().map(|user| user.username.as_str()).collect::<Vec<_>>(), ["iggy"]);
    assert_eq!(code(client.flush_unsaved_buffer(&id("s"), &id("t"), 0, true).await), 5);
    assert_eq!(code(client.create_user("somebody", "password", UserStatus::Active, None).await), 5);
}
