//! CreateTopics through the bytes of its requests and answers.

use std::sync::Arc;

use milena_store::testing::MemoryStore;
use milena_wire::kafka_protocol::messages::BrokerId;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopicConfig;

use super::*;
use crate::config::ServerConfig;
use crate::handlers::testing::{Bench, name, text};

fn topic(topic: &str) -> CreatableTopic {
    CreatableTopic::default().with_name(name(topic)).with_num_partitions(1).with_replication_factor(1)
}

fn config(key: &str, value: &str) -> CreatableTopicConfig {
    CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
}

fn request(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5_000)
}

/// A topic whose partitions are assigned to the brokers given, by index.
fn manual(partitions: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = partitions.iter().map(|(index, brokers)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(*index)
            .with_broker_ids(brokers.iter().copied().map(BrokerId).collect())
    });
    topic("t").with_num_partitions(-1).with_replication_factor(-1).with_assignments(assignments.collect())
}

async fn one(bench: &Bench, topic: CreatableTopic) -> CreatableTopicResult {
    bench.ask(7, &request(vec![topic])).await.topics.remove(0)
}

async fn code(bench: &Bench, topic: CreatableTopic) -> i16 {
    one(bench, topic).await.error_code
}

fn codes(response: &CreateTopicsResponse) -> Vec<(&str, i16)> {
    response.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect()
}

fn names(bench: &Bench) -> Vec<String> {
    bench.broker.topics.list().iter().map(|topic| topic.name.to_string()).collect()
}

#[tokio::test]
async fn every_version_creates_a_topic() {
    for version in 2..=7 {
        let bench = Bench::new().await;
        let response = bench.ask(version, &request(vec![topic("t").with_num_partitions(3)])).await;
        assert_eq!(codes(&response), [("t", 0)], "version {version}");
        assert_eq!(response.topics[0].error_message, None, "version {version}");
        assert_eq!(bench.broker.topics.by_name("t").unwrap().partitions, 3, "version {version}");
    }
}

#[tokio::test]
async fn from_version_5_on_the_answer_describes_the_topic() {
    let bench = Bench::new().await;
    let wanted = topic("t").with_num_partitions(4).with_configs(vec![config("retention.ms", "60000")]);
    let result = bench.ask(5, &request(vec![wanted])).await.topics.remove(0);
    assert_eq!((result.num_partitions, result.replication_factor), (4, 1));
    let configs = result.configs.unwrap();
    let retention = configs.iter().find(|config| config.name == text("retention.ms")).unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("60000"), 1));
    let policy = configs.iter().find(|config| config.name == text("cleanup.policy")).unwrap();
    assert_eq!((policy.value.as_deref(), policy.config_source), (Some("delete"), 5));
}

#[tokio::test]
async fn version_7_answers_with_the_topic_id() {
    let bench = Bench::new().await;
    let result = one(&bench, topic("t")).await;
    assert_eq!(result.topic_id, bench.broker.topics.by_name("t").unwrap().id);
}

#[tokio::test]
async fn minus_one_is_the_servers_default() {
    let bench = Bench::with(ServerConfig { num_partitions: 6, ..ServerConfig::default() }).await;
    let result = one(&bench, topic("t").with_num_partitions(-1).with_replication_factor(-1)).await;
    assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 6, 1));
}

#[tokio::test]
async fn a_higher_replication_factor_is_answered_as_asked() {
    let bench = Bench::new().await;
    let result = one(&bench, topic("t").with_replication_factor(3)).await;
    assert_eq!((result.error_code, result.replication_factor), (0, 3));
}

#[tokio::test]
async fn a_replication_factor_of_zero_is_refused() {
    let bench = Bench::new().await;
    for factor in [0, -2, i16::MIN] {
        assert_eq!(code(&bench, topic("t").with_replication_factor(factor)).await, 38, "{factor}");
    }
}

#[tokio::test]
async fn partition_counts_outside_of_the_servers_range_are_refused() {
    let bench = Bench::with(ServerConfig { max_partitions_per_topic: 8, ..ServerConfig::default() }).await;
    for count in [0, -2, 9, i32::MAX] {
        assert_eq!(code(&bench, topic("t").with_num_partitions(count)).await, 37, "{count}");
    }
    assert_eq!(code(&bench, topic("t").with_num_partitions(8)).await, 0);
}

#[tokio::test]
async fn a_topic_that_exists_is_refused_also_with_another_partition_count() {
    let bench = Bench::new().await;
    bench.topic("t", 1).await;
    assert_eq!(code(&bench, topic("t")).await, 36);
    assert_eq!(code(&bench, topic("t").with_num_partitions(2)).await, 36);
}

#[tokio::test]
async fn bad_names_are_refused() {
    let bench = Bench::new().await;
    for bad in ["", ".", "..", "a b", "__milena.x", &"x".repeat(250)] {
        assert_eq!(code(&bench, topic(bad)).await, 17, "{bad}");
    }
}

#[tokio::test]
async fn a_topic_named_twice_is_refused_at_every_occurrence_and_not_created() {
    let bench = Bench::new().await;
    let response = bench.ask(7, &request(vec![topic("t"), topic("u"), topic("t")])).await;
    assert_eq!(codes(&response), [("t", 42), ("u", 0), ("t", 42)]);
    assert_eq!(names(&bench), ["u"]);
}

#[tokio::test]
async fn one_bad_topic_does_not_hinder_the_others() {
    let bench = Bench::new().await;
    let response = bench.ask(7, &request(vec![topic("a"), topic("b").with_num_partitions(0), topic("c")])).await;
    assert_eq!(codes(&response), [("a", 0), ("b", 37), ("c", 0)]);
}

#[tokio::test]
async fn a_manual_assignment_counts_partitions_and_replicas() {
    let bench = Bench::new().await;
    let result = one(&bench, manual(&[(1, &[2, 1]), (0, &[1, 2])])).await;
    assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 2, 2));
}

#[tokio::test]
async fn a_manual_assignment_beside_a_count_is_an_invalid_request() {
    let bench = Bench::new().await;
    assert_eq!(code(&bench, manual(&[(0, &[0])]).with_num_partitions(1)).await, 42);
    assert_eq!(code(&bench, manual(&[(0, &[0])]).with_replication_factor(1)).await, 42);
}

#[tokio::test]
async fn a_manual_assignment_that_is_none_is_refused() {
    let bench = Bench::new().await;
    let bad: [&[(i32, &[i32])]; 8] = [
        &[(1, &[0])],
        &[(0, &[0]), (2, &[0])],
        &[(0, &[0]), (0, &[0])],
        &[(-1, &[0])],
        &[(0, &[])],
        &[(0, &[1, 1])],
        &[(0, &[0]), (1, &[0, 1])],
        &[(0, &[-1])],
    ];
    for partitions in bad {
        assert_eq!(code(&bench, manual(partitions)).await, 39, "{partitions:?}");
    }
    assert!(names(&bench).is_empty());
}

#[tokio::test]
async fn configs_are_kept_and_survive_a_restart() {
    let store = MemoryStore::new();
    let bench = Bench::over(ServerConfig::default(), Arc::new(store.clone())).await;
    assert_eq!(code(&bench, topic("t").with_configs(vec![config("cleanup.policy", "compact")])).await, 0);
    let bench = Bench::over(ServerConfig::default(), Arc::new(store.again())).await;
    assert!(bench.broker.topics.by_name("t").unwrap().config.compacted);
}

#[tokio::test]
async fn an_unknown_config_or_a_bad_value_is_refused_and_nothing_is_created() {
    let bench = Bench::new().await;
    for (key, value) in [("dummy.doesntexist", "1"), ("retention.ms", "soon"), ("cleanup.policy", "keep")] {
        let result = one(&bench, topic("t").with_configs(vec![config("segment.ms", "5"), config(key, value)])).await;
        assert_eq!(result.error_code, 40, "{key}");
        assert!(result.error_message.unwrap().contains(key), "the message names it");
    }
    let null = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(None);
    assert_eq!(code(&bench, topic("t").with_configs(vec![null])).await, 40);
    assert!(names(&bench).is_empty());
}

#[tokio::test]
async fn validate_only_answers_the_same_and_creates_nothing() {
    let bench = Bench::new().await;
    bench.topic("there", 1).await;
    let topics = vec![topic("new").with_num_partitions(2), topic("there"), topic("bad").with_num_partitions(0)];
    let response = bench.ask(7, &request(topics).with_validate_only(true)).await;
    assert_eq!(codes(&response), [("new", 0), ("there", 36), ("bad", 37)]);
    assert_eq!((response.topics[0].num_partitions, response.topics[0].topic_id), (2, Uuid::nil()));
    assert_eq!(names(&bench), ["there"]);
}

#[tokio::test]
async fn a_timeout_of_zero_or_less_creates_all_the_same() {
    let bench = Bench::new().await;
    for (at, timeout) in [0, -1, i32::MIN].into_iter().enumerate() {
        let request = request(vec![topic(&format!("t{at}"))]).with_timeout_ms(timeout);
        assert_eq!(bench.ask(7, &request).await.topics[0].error_code, 0);
    }
}

#[tokio::test]
async fn more_partitions_than_one_request_may_ask_for_are_refused_for_every_topic() {
    let mut config = ServerConfig::default();
    config.limits.create_partitions_max = 10;
    let bench = Bench::with(config).await;
    let topics = || vec![topic("a").with_num_partitions(5), topic("b").with_num_partitions(5)];
    let mut over = topics();
    over.push(topic("c"));
    assert_eq!(codes(&bench.ask(7, &request(over)).await), [("a", 44), ("b", 44), ("c", 44)]);
    assert!(names(&bench).is_empty());
    assert_eq!(codes(&bench.ask(7, &request(topics())).await), [("a", 0), ("b", 0)]);
}

#[tokio::test]
async fn many_overlong_names_are_echoed_once_and_never_repeated_in_texts() {
    let bench = Bench::new().await;
    let topics = (0..100).map(|n| topic(&format!("{n}{}", "x".repeat(64_000)))).collect();
    let (response, sent, answered) = bench.ask_sized(7, &request(topics)).await;
    assert!(response.topics.iter().all(|topic| topic.error_code == 17 && topic.name.len() > 64_000));
    assert!(answered < sent + sent / 10, "{answered} bytes for {sent}");
}

#[tokio::test]
async fn an_answer_to_many_bad_items_is_bounded_by_the_size_of_the_request() {
    let bench = Bench::new().await;
    let topics = (0..50_000).map(|n| topic(&format!("{n}")).with_num_partitions(0)).collect();
    let (response, sent, answered) = bench.ask_sized(7, &request(topics)).await;
    assert!(response.topics.iter().all(|topic| topic.error_code == 44 || topic.error_code == 37));
    assert!(answered < 4 * sent, "{answered} bytes for {sent}");
}

#[tokio::test]
async fn two_clients_that_create_one_topic_get_one_success_and_one_36() {
    let bench = Bench::new().await;
    let wanted = request(vec![topic("t")]);
    let (one, two) = tokio::join!(bench.ask(7, &wanted), bench.ask(7, &wanted));
    let mut codes = [one.topics[0].error_code, two.topics[0].error_code];
    codes.sort_unstable();
    assert_eq!(codes, [0, 36]);
}
