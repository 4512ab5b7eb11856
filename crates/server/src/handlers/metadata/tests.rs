//! Metadata through the bytes of its requests and answers.

use milena_store::testing::{MemoryStore, TestMessage, batch_of};
use milena_store::{Store, TopicSettings};

use super::*;
use crate::config::ServerConfig;
use crate::handlers::testing::{Bench, name};

fn by_name(names: &[&str]) -> MetadataRequest {
    let topics = names.iter().map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))));
    MetadataRequest::default().with_topics(Some(topics.collect())).with_allow_auto_topic_creation(false)
}

fn creating(names: &[&str]) -> MetadataRequest {
    by_name(names).with_allow_auto_topic_creation(true)
}

fn by_id(id: Uuid) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(None).with_topic_id(id);
    by_name(&[]).with_topics(Some(vec![topic]))
}

/// Name and error code of each topic.
fn topics(response: &MetadataResponse) -> Vec<(String, i16)> {
    let shown = |topic: &MetadataResponseTopic| {
        (topic.name.as_ref().map_or("(none)".to_owned(), |name| name.to_string()), topic.error_code)
    };
    response.topics.iter().map(shown).collect()
}

fn found(names: &[&str]) -> Vec<(String, i16)> {
    names.iter().map(|name| ((*name).to_owned(), 0)).collect()
}

async fn two_topics() -> Bench {
    let bench = Bench::new().await;
    bench.topic("b", 2).await;
    bench.topic("a", 1).await;
    bench
}

#[tokio::test]
async fn every_version_answers_with_the_broker_and_the_topic() {
    let bench = two_topics().await;
    for version in 0..=13 {
        let request = if version < 4 { creating(&["b"]) } else { by_name(&["b"]) };
        let response = bench.ask(version, &request).await;
        assert_eq!(response.brokers.len(), 1, "version {version}");
        assert_eq!(topics(&response), found(&["b"]), "version {version}");
        assert_eq!(response.topics[0].partitions.len(), 2, "version {version}");
    }
}

#[tokio::test]
async fn the_broker_has_the_address_of_the_listener_and_is_the_controller() {
    let bench = Bench::with(ServerConfig { instance_id: 5, ..ServerConfig::default() }).await;
    let response = bench.ask(9, &by_name(&[])).await;
    let broker = &response.brokers[0];
    assert_eq!((broker.host.as_str(), broker.port), ("kafka.example", 19_092));
    assert_eq!((broker.node_id, response.controller_id), (BrokerId(5), BrokerId(5)));
    assert_eq!(response.cluster_id.unwrap().as_str(), bench.broker.cluster_id);
}

#[tokio::test]
async fn a_partition_is_led_by_this_broker_alone_at_epoch_0() {
    let bench = two_topics().await;
    let response = bench.ask(12, &by_name(&["b"])).await;
    for (index, partition) in response.topics[0].partitions.iter().enumerate() {
        assert_eq!(partition.partition_index, i32::try_from(index).unwrap());
        assert_eq!((partition.leader_id, partition.leader_epoch), (BrokerId(0), 0));
        assert_eq!((&partition.replica_nodes, &partition.isr_nodes), (&vec![BrokerId(0)], &vec![BrokerId(0)]));
        assert!(partition.offline_replicas.is_empty());
    }
}

#[tokio::test]
async fn the_leader_epoch_of_a_partition_whose_end_fell_is_higher() {
    let memory = MemoryStore::new();
    let bench = Bench::over(ServerConfig::default(), std::sync::Arc::new(memory.clone())).await;
    let topic = bench.topic("b", 2).await;
    let at = topic.store.partition(1);
    memory.append(&at, batch_of(&[TestMessage::new(1, b"x")])).await.unwrap();
    memory.lose_tail(&at, 0);
    for version in [7, 12] {
        let response = bench.ask(version, &by_name(&["b"])).await;
        let epochs = response.topics[0].partitions.iter().map(|partition| partition.leader_epoch);
        assert_eq!(epochs.collect::<Vec<_>>(), [0, 1], "version {version}");
    }
}

#[tokio::test]
async fn an_empty_list_is_all_topics_in_version_0() {
    let bench = two_topics().await;
    let request = by_name(&[]).with_allow_auto_topic_creation(true);
    assert_eq!(topics(&bench.ask(0, &request).await), found(&["a", "b"]));
}

#[tokio::test]
async fn an_empty_list_is_no_topic_from_version_1_on() {
    let bench = two_topics().await;
    let request = by_name(&[]).with_allow_auto_topic_creation(true);
    for version in 1..=13 {
        assert!(bench.ask(version, &request).await.topics.is_empty(), "version {version}");
    }
}

#[tokio::test]
async fn null_is_all_topics_from_version_1_on() {
    let bench = two_topics().await;
    let request = MetadataRequest::default().with_topics(None);
    for version in 1..=13 {
        assert_eq!(topics(&bench.ask(version, &request).await), found(&["a", "b"]), "version {version}");
    }
}

#[tokio::test]
async fn a_topic_named_twice_is_answered_once() {
    let bench = two_topics().await;
    let response = bench.ask(9, &by_name(&["a", "x", "a", "x"])).await;
    assert_eq!(topics(&response), [("a".to_owned(), 0), ("x".to_owned(), 3)]);
}

#[tokio::test]
async fn an_unknown_name_comes_back_as_it_was_sent() {
    let bench = Bench::new().await;
    assert_eq!(topics(&bench.ask(9, &by_name(&["nowhere"])).await), [("nowhere".to_owned(), 3)]);
    let odd = "spaced out".repeat(3_000);
    assert_eq!(topics(&bench.ask(9, &by_name(&[&odd])).await), [(odd, 17)]);
}

#[tokio::test]
async fn a_missing_topic_is_created_when_the_client_allows_it() {
    let bench = Bench::with(ServerConfig { num_partitions: 3, ..ServerConfig::default() }).await;
    let response = bench.ask(12, &creating(&["new"])).await;
    assert_eq!(topics(&response), found(&["new"]));
    assert_eq!(response.topics[0].partitions.len(), 3);
    assert_eq!(bench.broker.topics.by_name("new").map(|topic| topic.id), Some(response.topics[0].topic_id));
}

#[tokio::test]
async fn a_missing_topic_is_not_created_when_the_server_forbids_it() {
    let bench = Bench::with(ServerConfig { auto_create_topics: false, ..ServerConfig::default() }).await;
    assert_eq!(topics(&bench.ask(12, &creating(&["new"])).await), [("new".to_owned(), 3)]);
    assert!(bench.broker.topics.list().is_empty());
}

#[tokio::test]
async fn a_bad_name_is_not_created_but_refused() {
    let bench = Bench::new().await;
    let response = bench.ask(12, &creating(&["..", "a/b", "", "__milena.configs"])).await;
    assert!(response.topics.iter().all(|topic| topic.error_code == 17), "{:?}", topics(&response));
}

#[tokio::test]
async fn one_request_creates_a_bounded_number_of_topics_and_the_rest_is_asked_for_again() {
    let mut config = ServerConfig::default();
    config.limits.auto_create_max = 2;
    let bench = Bench::with(config).await;
    let codes =
        |response: MetadataResponse| -> Vec<i16> { response.topics.iter().map(|topic| topic.error_code).collect() };
    assert_eq!(codes(bench.ask(12, &creating(&["a", "b", "c"])).await), [0, 0, 5]);
    assert_eq!(codes(bench.ask(12, &creating(&["a", "b", "c"])).await), [0, 0, 0]);
}

#[tokio::test]
async fn a_topic_is_found_by_its_id_and_answered_with_its_name() {
    let bench = two_topics().await;
    let id = bench.broker.topics.by_name("a").unwrap().id;
    for version in 12..=13 {
        assert_eq!(topics(&bench.ask(version, &by_id(id)).await), found(&["a"]));
    }
}

#[tokio::test]
async fn an_unknown_id_comes_back_without_a_name() {
    let bench = two_topics().await;
    let id = Uuid::from_u128(77);
    let response = bench.ask(12, &by_id(id)).await;
    assert_eq!(topics(&response), [("(none)".to_owned(), 100)]);
    assert_eq!(response.topics[0].topic_id, id);
}

#[tokio::test]
async fn an_id_before_version_12_is_an_invalid_request() {
    let bench = two_topics().await;
    let id = bench.broker.topics.by_name("a").unwrap().id;
    for version in 10..=11 {
        assert_eq!(topics(&bench.ask(version, &by_id(id)).await), [(String::new(), 42)]);
    }
}

#[tokio::test]
async fn an_item_with_neither_name_nor_id_is_an_unknown_id() {
    let bench = two_topics().await;
    assert_eq!(topics(&bench.ask(12, &by_id(Uuid::nil())).await), [("(none)".to_owned(), 100)]);
}

#[tokio::test]
async fn operations_are_unset_unless_asked_for() {
    let bench = two_topics().await;
    let response = bench.ask(8, &by_name(&["a"])).await;
    assert_eq!(response.cluster_authorized_operations, i32::MIN);
    assert_eq!(response.topics[0].topic_authorized_operations, i32::MIN);
    let request = by_name(&["a", "nowhere"]).with_allow_auto_topic_creation(false);
    let request =
        request.with_include_cluster_authorized_operations(true).with_include_topic_authorized_operations(true);
    let response = bench.ask(8, &request).await;
    assert_eq!(response.cluster_authorized_operations, CLUSTER_OPERATIONS);
    let operations: Vec<_> = response.topics.iter().map(|topic| topic.topic_authorized_operations).collect();
    assert_eq!(operations, [TOPIC_OPERATIONS; 2]);
}

#[tokio::test]
async fn internal_topics_are_hidden_unless_configured() {
    let bench = Bench::new().await;
    assert!(bench.ask(12, &MetadataRequest::default().with_topics(None)).await.topics.is_empty());
    let bench = Bench::with(ServerConfig { show_internal_topics: true, ..ServerConfig::default() }).await;
    let response = bench.ask(12, &MetadataRequest::default().with_topics(None)).await;
    let configs = response.topics.iter().find(|topic| topic.name == Some(name("__milena.configs"))).unwrap();
    assert!(configs.is_internal);
}

#[tokio::test]
async fn an_overridden_topic_is_listed_under_its_kafka_name_only() {
    let store = MemoryStore::new();
    store.create_topic("kafka", "physical", 1, &TopicSettings::default()).await.unwrap();
    let mut config = ServerConfig::default();
    let target = crate::config::MappedTopic { stream: "kafka".to_owned(), topic: "physical".to_owned() };
    config.topic_mapping.topics.insert("logical".to_owned(), target);
    let bench = Bench::over(config, Arc::new(store)).await;
    assert_eq!(topics(&bench.ask(12, &MetadataRequest::default().with_topics(None)).await), found(&["logical"]));
    assert_eq!(topics(&bench.ask(12, &creating(&["physical"])).await), [("physical".to_owned(), 17)]);
}

#[tokio::test]
async fn a_topic_id_stays_over_a_restart_and_changes_when_the_topic_is_created_again() {
    let store = MemoryStore::new();
    let bench = Bench::over(ServerConfig::default(), Arc::new(store.clone())).await;
    let first = bench.topic("t", 1).await;
    let bench = Bench::over(ServerConfig::default(), Arc::new(store.again())).await;
    let again = bench.broker.topics.by_name("t").unwrap();
    assert_eq!(again.id, first.id);
    bench.broker.topics.delete(&again).await.unwrap();
    assert_ne!(bench.topic("t", 1).await.id, first.id);
}

#[tokio::test]
async fn an_answer_to_many_unknown_names_is_not_much_larger_than_the_request() {
    let bench = Bench::new().await;
    let names: Vec<String> = (0..20_000).map(|n| format!("{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (_, sent, answered) = bench.ask_sized(9, &by_name(&names)).await;
    assert!(answered < 3 * sent, "{answered} bytes for {sent}");
}
