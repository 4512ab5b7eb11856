//! Producers, topics and configs through several gateways in front of one store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod gateways_kit;
mod groups_kit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateways_kit::{Gateway, REFRESH, TAKEN_OVER, agreed, member};
use groups_kit::{codes, commits, create, fetch, text, topic};
use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch, read_record_set};
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, FetchRequest,
    InitProducerIdRequest, ListOffsetsRequest, OffsetFetchRequest, ProduceRequest,
};
use tokio::time::{Instant, sleep, timeout};

async fn gateways<const N: usize>(store: &Arc<dyn Store>) -> [Gateway; N] {
    let mut started = Vec::new();
    for instance in 1..=u16::try_from(N).unwrap() {
        started.push(Gateway::start(store, instance).await);
    }
    agreed(&started.iter().collect::<Vec<_>>()).await;
    started.try_into().map_err(|_| ()).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Waits until a gateway sees what another one did; it may take one look at the store, on a machine that is busy.
async fn sees<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let since = Instant::now();
    while !look().await {
        assert!(since.elapsed() < TAKEN_OVER, "{what}");
        sleep(REFRESH / 4).await;
    }
}

/// Leaders by topic and partition, as a gateway says.
async fn leaders(gateway: &Gateway) -> BTreeMap<(String, i32), i32> {
    let answer = gateway.metadata().await;
    let topics = answer.topics.iter().flat_map(|topic| {
        let name = topic.name.as_ref().unwrap().to_string();
        topic.partitions.iter().map(move |partition| ((name.clone(), partition.partition_index), partition.leader_id.0))
    });
    topics.collect()
}

fn records(producer_id: i64, base_sequence: i32) -> Bytes {
    let record = Record { timestamp_ms: 1, value: Some(b"value".to_vec()), ..Record::default() };
    let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence };
    build_batch(&[record.clone(), record], Codec::None, Some(stamp)).into()
}

/// Error code and offset of a batch of two records.
async fn produce(gateway: &Gateway, name: &str, producer_id: i64, base_sequence: i32) -> (i16, i64) {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(records(producer_id, base_sequence)));
    let data = TopicProduceData::default().with_name(topic(name)).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
    let answer = gateway.client().await.request(9, &request).await.responses[0].partition_responses[0].clone();
    (answer.error_code, answer.base_offset)
}

async fn producer_id(gateway: &Gateway) -> i64 {
    let answer = gateway.client().await.request(4, &InitProducerIdRequest::default()).await;
    assert_eq!(answer.error_code, 0);
    answer.producer_id.0
}

async fn retention(gateway: &Gateway, name: &str) -> Option<String> {
    let keys = Some(vec![text("retention.ms")]);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(name))
        .with_configuration_keys(keys);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = gateway.client().await.request(4, &request).await;
    let config = answer.results[0].configs.first()?;
    config.value.as_ref().map(ToString::to_string)
}

async fn delete(gateway: &Gateway, name: &str) {
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic(name)]).with_timeout_ms(5_000);
    assert_eq!(gateway.client().await.request(5, &request).await.responses[0].error_code, 0);
}

#[tokio::test]
async fn all_gateways_name_the_same_leaders_and_only_those_of_one_that_died_move() {
    let store = memory();
    let [one, two, three] = gateways(&store).await;
    create(&mut one.client().await, "t", 30).await;
    for gateway in [&one, &two, &three] {
        sees("three gateways", || async { gateway.metadata().await.brokers.len() == 3 }).await;
    }
    let named = leaders(&one).await;
    for gateway in [&two, &three] {
        sees("the topic", || async { !leaders(gateway).await.is_empty() }).await;
        assert_eq!(leaders(gateway).await, named);
    }
    assert!((1..=3).all(|node| named.values().any(|leader| *leader == node)), "{named:?}");
    drop(three);
    sees("one is gone", || async { one.metadata().await.brokers.len() == 2 }).await;
    for (partition, leader) in leaders(&one).await {
        assert!(leader == named[&partition] || named[&partition] == 3, "{partition:?}");
        assert_ne!(leader, 3);
    }
}

#[tokio::test]
async fn a_producer_may_change_between_gateways_as_it_likes() {
    let store = memory();
    let [one, two, three] = gateways(&store).await;
    create(&mut one.client().await, "t", 1).await;
    for gateway in [&two, &three] {
        sees("the topic", || async { !leaders(gateway).await.is_empty() }).await;
    }
    // A block of ids is taken by each after all had started, so no gateway knows the ids of another one yet.
    for gateway in [&one, &two, &three] {
        let id = producer_id(gateway).await;
        let (_, begin) = produce(&one, "t", id, 0).await;
        for (turn, there) in [&two, &three, &one, &one, &two, &one].into_iter().enumerate() {
            let turn = i32::try_from(turn).unwrap();
            let expected = (0, begin + i64::from(turn) * 2);
            assert_eq!(produce(there, "t", id, turn * 2).await, expected, "a retry of the last batch");
            assert_eq!(produce(there, "t", id, turn * 2 + 4).await.0, 45, "a gap");
            assert_eq!(produce(there, "t", id, turn * 2 + 2).await, (0, expected.1 + 2), "the next one");
        }
    }
    let at = one.server.broker().topics.by_name("t").unwrap().store.partition(0);
    assert_eq!(store.bounds(&at).await.unwrap().end, 3 * 14);
}

#[tokio::test]
async fn a_batch_whose_producer_cannot_be_looked_up_is_not_stored_as_that_of_a_stranger() {
    let store = memory();
    let [one, two] = gateways(&store).await;
    create(&mut two.client().await, "t", 1).await;
    sees("the topic", || async { !leaders(&one).await.is_empty() }).await;
    let id = producer_id(&two).await;
    one.line.cut(true);
    assert_eq!(produce(&one, "t", id, 0).await, (6, -1), "clients try again");
    one.line.cut(false);
    assert_eq!(produce(&one, "t", id, 0).await, (0, 0));
    assert_eq!(produce(&two, "t", id, 0).await, (0, 0), "and it is known");
}

#[tokio::test]
async fn ids_that_nobody_gave_out_are_stored_without_a_state_through_every_gateway() {
    let store = memory();
    let [one, two] = gateways(&store).await;
    create(&mut one.client().await, "t", 1).await;
    sees("the topic", || async { !leaders(&two).await.is_empty() }).await;
    let theirs = producer_id(&one).await;
    for (offset, gateway) in [(0, &one), (2, &two), (4, &two)] {
        assert_eq!(produce(gateway, "t", theirs + 5_000, 0).await, (0, offset));
    }
}

#[tokio::test]
async fn what_one_gateway_does_to_topics_the_others_see() {
    let store = memory();
    let [one, two] = gateways(&store).await;
    let config = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("86400000")));
    let new = CreatableTopic::default()
        .with_name(topic("t"))
        .with_num_partitions(1)
        .with_replication_factor(-1)
        .with_configs(vec![config]);
    let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(5_000);
    assert_eq!(two.client().await.request(5, &request).await.topics[0].error_code, 0);
    sees("the configs", || async { retention(&one, "t").await.as_deref() == Some("86400000") }).await;

    let grown = CreatePartitionsTopic::default().with_name(topic("t")).with_count(3).with_assignments(None);
    let request = CreatePartitionsRequest::default().with_topics(vec![grown]).with_timeout_ms(5_000);
    assert_eq!(one.client().await.request(2, &request).await.results[0].error_code, 0);
    sees("the partitions", || async { leaders(&two).await.len() == 3 }).await;
    assert_eq!(retention(&two, "t").await.as_deref(), Some("86400000"));

    delete(&one, "t").await;
    sees("that it is gone", || async { leaders(&two).await.is_empty() }).await;
    create(&mut one.client().await, "t", 1).await;
    sees("the new one, without configs", || async { retention(&two, "t").await.is_some_and(|ms| ms != "86400000") })
        .await;
}

#[tokio::test]
async fn a_topic_that_another_gateway_deleted_takes_its_offsets_along_and_wakes_who_waits() {
    let store = memory();
    let [one, two] = gateways(&store).await;
    create(&mut one.client().await, "t", 1).await;
    sees("the topic", || async { !leaders(&two).await.is_empty() }).await;
    let coordinator = agreed(&[&one, &two]).await;
    let (here, there) = if coordinator == 1 { (&one, &two) } else { (&two, &one) };
    let mut client = member(here).await.client;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 5)])).await), [0]);

    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default().with_topic(topic("t")).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_min_bytes(1)
        .with_max_wait_ms(30_000)
        .with_topics(vec![wanted]);
    let mut waiting = here.client().await;
    waiting.send(12, &request).await;
    sleep(Duration::from_millis(100)).await;
    delete(there, "t").await;
    let answer = timeout(TAKEN_OVER, waiting.receive::<FetchRequest>()).await.expect("it is woken");
    assert_eq!(answer.responses[0].partitions[0].error_code, 3);

    let all = OffsetFetchRequestGroup::default().with_group_id(groups_kit::group("g")).with_topics(None);
    let request = OffsetFetchRequest::default().with_groups(vec![all]);
    let since = Instant::now();
    while !client.request(9, &request).await.groups[0].topics.is_empty() {
        assert!(since.elapsed() < TAKEN_OVER, "offsets of a topic that is gone");
        sleep(REFRESH / 4).await;
    }
    create(&mut there.client().await, "t", 1).await;
    let answer = client.request(9, &fetch("t", &[0])).await;
    assert_eq!(answer.groups[0].topics[0].partitions[0].committed_offset, -1);
}

/// As Kafka Streams fills a global table: every partition, from its leader, up to the end that was asked for first.
#[tokio::test]
async fn all_partitions_are_read_to_their_ends_from_the_leaders_that_are_named() {
    const PARTITIONS: i32 = 6;
    let store = memory();
    let both: [Gateway; 2] = gateways(&store).await;
    create(&mut both[0].client().await, "table", PARTITIONS).await;
    sees("each gateway leads some partitions", || async {
        let found = leaders(&both[0]).await;
        let led: BTreeSet<i32> = found.values().copied().collect();
        led.len() == 2 && leaders(&both[1]).await == found
    })
    .await;
    let found = leaders(&both[0]).await;
    let ports: BTreeMap<i32, i32> =
        both[0].metadata().await.brokers.iter().map(|broker| (broker.node_id.0, broker.port)).collect();
    for partition in 0..PARTITIONS {
        let leader = ports[&found[&("table".to_owned(), partition)]];
        let mut client = RawClient::connect(("127.0.0.1", u16::try_from(leader).unwrap())).await;
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records(-1, -1)));
        let data = TopicProduceData::default().with_name(topic("table")).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
        assert_eq!(client.request(9, &request).await.responses[0].partition_responses[0].error_code, 0);
        let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(-1);
        let asked = ListOffsetsTopic::default().with_name(topic("table")).with_partitions(vec![asked]);
        let listed = client.request(7, &ListOffsetsRequest::default().with_topics(vec![asked])).await;
        let end = listed.topics[0].partitions[0].offset;
        assert_eq!(end, 2, "partition {partition}");
        let mut position = 0;
        while position < end {
            let wanted = FetchPartition::default().with_partition(partition).with_fetch_offset(position);
            let wanted = FetchTopic::default()
                .with_topic(topic("table"))
                .with_partitions(vec![wanted.with_partition_max_bytes(1)]);
            let request = FetchRequest::default().with_max_wait_ms(10_000).with_min_bytes(1).with_max_bytes(1 << 20);
            let answer = client.request(12, &request.with_topics(vec![wanted])).await;
            let data = &answer.responses[0].partitions[0];
            let read = read_record_set(data.records.as_ref().unwrap(), 1 << 20).unwrap();
            assert!(!read.is_empty(), "partition {partition} stops at {position}: {}", data.error_code);
            position = read.last().unwrap().offset + 1;
        }
    }
}
