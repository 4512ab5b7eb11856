//! Committed offsets as consumer offsets of the store, over TCP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use std::sync::Arc;

use bytes::Bytes;
use groups_kit::{
    Member, builder, codes, commits, create, everything, fetch, fetched, group, join_request, offset_delete, offsets,
    subscription, text, topic,
};
use milena_server::config::MappedTopic;
use milena_server::groups::OffsetStorage;
use milena_server::{Server, ServerConfig, StartError};
use milena_store::testing::{MemoryStore, OffsetRules};
use milena_store::{OffsetStore, Store};
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteTopicsRequest, DescribeGroupsRequest, FindCoordinatorRequest, ListGroupsRequest,
};

async fn server_over(memory: &MemoryStore) -> TestServer {
    let builder = builder().memory(memory.clone());
    builder.config(|config| config.offset_storage = OffsetStorage::ConsumerOffsets).start().await
}

async fn server() -> (TestServer, MemoryStore) {
    let memory = MemoryStore::with_offsets(OffsetRules::Free);
    (server_over(&memory).await, memory)
}

async fn listed(client: &mut RawClient) -> Vec<(String, String)> {
    let answer = client.request(5, &ListGroupsRequest::default()).await;
    assert_eq!(answer.error_code, 0);
    answer.groups.iter().map(|group| (group.group_id.to_string(), group.group_state.to_string())).collect()
}

async fn state(client: &mut RawClient, name: &str) -> String {
    let request = DescribeGroupsRequest::default().with_groups(vec![group(name)]);
    client.request(5, &request).await.groups[0].group_state.to_string()
}

async fn delete_groups(client: &mut RawClient, names: &[&str]) -> Vec<i16> {
    let request = DeleteGroupsRequest::default().with_groups_names(names.iter().map(|name| group(name)).collect());
    client.request(2, &request).await.results.iter().map(|result| result.error_code).collect()
}

#[tokio::test]
async fn any_offset_is_stored_each_partition_by_itself_and_text_and_epoch_are_dropped() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 4).await;
    let mut request = commits("t", &[(0, 0), (1, 1_000), (2, i64::MAX), (9, 1), (3, -7), (1, 5)]);
    for partition in &mut request.topics[0].partitions {
        partition.committed_metadata = Some(text("who"));
        partition.committed_leader_epoch = 3;
    }
    assert_eq!(codes(&client.request(9, &request).await), [0, 0, 0, 3, 1, 0]);
    let mut other = server.client().await;
    let row = |offset: i64| (offset, -1, String::new());
    assert_eq!(fetched(&mut other, "t", &[0, 1, 2, 3]).await, [row(0), row(5), row(i64::MAX), row(-1)]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, -1), (2, -2), (1, 2)])).await), [0, 0, 0]);
    assert_eq!(offsets(&mut other, "t", &[0, 1, 2]).await, [-1, 2, -1]);
    let mut long = commits("t", &[(0, 1), (1, 1)]);
    long.topics[0].partitions[0].committed_metadata = Some(text(&"x".repeat(4_097)));
    assert_eq!(codes(&client.request(9, &long).await), [12, 0]);
}

#[tokio::test]
async fn a_conditional_commit_is_35_for_its_partition_and_stores_nothing() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    let mut request = commits("t", &[(0, 1), (1, 1)]);
    let tag = Bytes::copy_from_slice(&(-1_i64).to_be_bytes());
    request.topics[0].partitions[0].unknown_tagged_fields.insert(10_000, tag);
    assert_eq!(codes(&client.request(9, &request).await), [35, 0]);
    assert_eq!(offsets(&mut client, "t", &[0, 1]).await, [-1, 1]);
}

#[tokio::test]
async fn a_fetch_of_everything_finds_topics_under_their_kafka_names_and_none_of_others() {
    let memory = MemoryStore::with_offsets(OffsetRules::Free);
    let mapped = MappedTopic { stream: "billing".to_owned(), topic: "orders_v2".to_owned() };
    let server = builder()
        .memory(memory.clone())
        .config(|config| {
            config.offset_storage = OffsetStorage::Auto;
            config.topic_mapping.topics.insert("orders".to_owned(), mapped);
        })
        .start()
        .await;
    let mut client = server.client().await;
    for (name, partitions) in [("orders", 2), ("a", 3), ("unread", 1)] {
        create(&mut client, name, partitions).await;
    }
    assert_eq!(codes(&client.request(9, &commits("orders", &[(1, 7)])).await), [0]);
    assert_eq!(codes(&client.request(9, &commits("a", &[(2, 0), (0, 4)])).await), [0, 0]);
    let foreign = commits("a", &[(1, 1)]).with_group_id(group("other"));
    assert_eq!(codes(&client.request(9, &foreign).await), [0]);
    // A group of the engine's own clients, of the same name.
    let there = memory.topic("kafka", "unread").await.unwrap().unwrap().topic;
    memory.create_group(&there, "g").await.unwrap();
    memory.store(&there.partition(0), "g", 99).await.unwrap();
    let name = |name: &str| name.to_owned();
    assert_eq!(everything(&mut client).await, [(name("a"), 0, 4), (name("a"), 2, 0), (name("orders"), 1, 7)]);
    let there = memory.topic("billing", "orders_v2").await.unwrap().unwrap().topic;
    assert_eq!(memory.groups(&there).await.unwrap(), ["kafka.cg.g"]);
}

#[tokio::test]
async fn groups_with_members_and_groups_of_offsets_alone_are_listed_described_and_deleted() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    create(&mut client, "u", 1).await;
    let mut member = Member::new(&server).await;
    member.metadata = subscription(&["t"]);
    member.join().await;
    let id = member.id.clone();
    member.sync(&[(&id, "all")]).await;
    assert_eq!(member.commit("t", &[(0, 3)]).await, [0]);
    assert_eq!(member.commit("u", &[(0, 4)]).await, [0]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 9)])).await), [25], "the group has members");
    let alone = commits("t", &[(0, 5)]).with_group_id(group("tool"));
    assert_eq!(codes(&client.request(9, &alone).await), [0]);

    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(listed(&mut client).await, [pair("g", "Stable"), pair("tool", "Empty")]);
    assert_eq!(state(&mut client, "g").await, "Stable");
    assert_eq!(state(&mut client, "tool").await, "Empty");
    assert_eq!(state(&mut client, "nobody").await, "Dead");

    let deleted = async |client: &mut RawClient, topic: &str, of: &str| {
        let answer = client.request(0, &offset_delete(topic, of)).await;
        (answer.error_code, answer.topics.first().map(|topic| topic.partitions[0].error_code))
    };
    assert_eq!(deleted(&mut client, "t", "g").await, (0, Some(86)));
    assert_eq!(deleted(&mut client, "u", "g").await, (0, Some(0)));
    assert_eq!(deleted(&mut client, "u", "nobody").await, (69, None));
    assert_eq!(offsets(&mut client, "t", &[0]).await, [3]);
    assert_eq!(offsets(&mut client, "u", &[0]).await, [-1]);

    assert_eq!(delete_groups(&mut client, &["g", "nobody", "tool"]).await, [68, 69, 0]);
    assert_eq!(listed(&mut client).await, [pair("g", "Stable")]);
    assert_eq!(delete_groups(&mut client, &["tool"]).await, [69]);
}

#[tokio::test]
async fn offsets_are_there_after_a_restart_and_members_are_not() {
    let (server, _) = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    assert_eq!(member.commit("t", &[(0, 3)]).await, [0]);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(offsets(&mut client, "t", &[0]).await, [3]);
    let request = member.commits("t", &[(0, 4)]);
    assert_eq!(codes(&client.request(9, &request).await), [25]);
    assert_eq!(listed(&mut client).await, [("g".to_owned(), "Empty".to_owned())]);
    let server = server.restart_with(|config| config.offset_storage = OffsetStorage::Auto).await;
    assert_eq!(offsets(&mut server.client().await, "t", &[0]).await, [3]);
}

#[tokio::test]
async fn a_topic_that_was_deleted_takes_its_offsets_along() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 3)])).await), [0]);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic("t")]).with_timeout_ms(5_000);
    assert_eq!(client.request(5, &request).await.responses[0].error_code, 0);
    assert_eq!(offsets(&mut client, "t", &[0]).await, [-1]);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 4)])).await), [3]);
    create(&mut client, "t", 1).await;
    assert_eq!(offsets(&mut client, "t", &[0]).await, [-1]);
    assert_eq!(state(&mut client, "g").await, "Dead");
}

#[tokio::test]
async fn a_group_id_that_is_too_long_for_the_store_is_24_everywhere_and_the_longest_works() {
    let (server, _) = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    for (length, code) in [(246, 0), (247, 24)] {
        let name = "g".repeat(length);
        let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(&name)]);
        assert_eq!(client.request(4, &request).await.coordinators[0].error_code, code, "{length}");
        let request = commits("t", &[(0, 1)]).with_group_id(group(&name));
        assert_eq!(codes(&client.request(9, &request).await), [code], "{length}");
        let mut request = fetch("t", &[0]);
        request.groups[0].group_id = group(&name);
        assert_eq!(client.request(9, &request).await.groups[0].error_code, code, "{length}");
        let request = join_request("", None).with_group_id(group(&name));
        assert_eq!(client.request(3, &request).await.error_code, code, "{length}");
    }
}

async fn start(memory: &MemoryStore, asked: OffsetStorage) -> Result<Server, StartError> {
    let mut config = ServerConfig { offset_storage: asked, ..ServerConfig::default() };
    config.listeners[0].bind.set_port(0);
    Server::start(config, Arc::new(memory.again())).await
}

#[tokio::test]
async fn a_server_does_not_start_with_a_storage_that_the_store_or_the_choice_before_excludes() {
    let said = |error: Result<Server, StartError>| error.err().expect("no start").to_string();
    let memory = MemoryStore::with_offsets(OffsetRules::MembersOnly);
    let refused = said(start(&memory, OffsetStorage::ConsumerOffsets).await);
    assert!(refused.contains("no member of the group"), "{refused}");
    start(&memory, OffsetStorage::Auto).await.unwrap().shutdown().await.unwrap();
    memory.set_offset_rules(OffsetRules::Free);
    let elsewhere = said(start(&memory, OffsetStorage::ConsumerOffsets).await);
    assert!(elsewhere.contains("milena offsets migrate --to consumer-offsets"), "{elsewhere}");
    let none = said(start(&MemoryStore::new(), OffsetStorage::ConsumerOffsets).await);
    assert!(none.contains("Iggy server"), "{none}");
}
