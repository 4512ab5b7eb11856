//! DescribeConfigs through the bytes of its requests and answers.

use std::collections::BTreeMap;

use super::*;
use crate::config::ServerConfig;
use crate::handlers::testing::{Bench, text};
use crate::topics::configs::TOPIC_KEYS;

fn resource(kind: i8, name: &str) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None)
}

fn request(resources: Vec<DescribeConfigsResource>) -> DescribeConfigsRequest {
    DescribeConfigsRequest::default().with_resources(resources)
}

async fn with_topic() -> Bench {
    let bench = Bench::new().await;
    let configs = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
    bench.broker.topics.create("t", 1, configs).await.unwrap();
    bench
}

async fn one(bench: &Bench, resource: DescribeConfigsResource) -> DescribeConfigsResult {
    bench.ask(4, &request(vec![resource])).await.results.remove(0)
}

fn config<'a>(result: &'a DescribeConfigsResult, name: &str) -> &'a DescribeConfigsResourceResult {
    result.configs.iter().find(|config| config.name == text(name)).unwrap_or_else(|| panic!("{name} is missing"))
}

#[tokio::test]
async fn every_version_shows_every_topic_config() {
    let bench = with_topic().await;
    for version in 1..=4 {
        let result = bench.ask(version, &request(vec![resource(TOPIC, "t")])).await.results.remove(0);
        assert_eq!((result.error_code, result.configs.len()), (0, TOPIC_KEYS.len()), "version {version}");
        assert_eq!((result.resource_type, result.resource_name.as_str()), (TOPIC, "t"));
    }
}

#[tokio::test]
async fn a_config_that_was_set_is_shown_with_its_source_and_others_with_theirs() {
    let bench = with_topic().await;
    let result = one(&bench, resource(TOPIC, "t")).await;
    let policy = config(&result, "cleanup.policy");
    assert_eq!((policy.value.as_deref(), policy.config_source, policy.config_type), (Some("compact"), 1, 7));
    let retention = config(&result, "retention.ms");
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("604800000"), 5));
    let segment = config(&result, "segment.bytes");
    assert_eq!((segment.value.as_deref(), segment.config_source), (Some("268435456"), 4));
    assert!(result.configs.iter().all(|config| !config.read_only && !config.is_sensitive));
}

#[tokio::test]
async fn synonyms_come_only_when_asked_for() {
    let bench = with_topic().await;
    let without = one(&bench, resource(TOPIC, "t")).await;
    assert!(without.configs.iter().all(|config| config.synonyms.is_empty()));
    let asked = request(vec![resource(TOPIC, "t")]).with_include_synonyms(true);
    let with = bench.ask(4, &asked).await.results.remove(0);
    let synonyms: Vec<_> = config(&with, "cleanup.policy")
        .synonyms
        .iter()
        .map(|synonym| (synonym.name.as_str(), synonym.value.as_deref(), synonym.source))
        .collect();
    assert_eq!(synonyms, [("cleanup.policy", Some("compact"), 1), ("log.cleanup.policy", Some("delete"), 5)]);
}

#[tokio::test]
async fn documentation_comes_only_when_asked_for() {
    let bench = with_topic().await;
    assert!(one(&bench, resource(TOPIC, "t")).await.configs.iter().all(|config| config.documentation.is_none()));
    let asked = request(vec![resource(TOPIC, "t")]).with_include_documentation(true);
    let with = bench.ask(4, &asked).await.results.remove(0);
    assert!(with.configs.iter().all(|config| config.documentation.as_ref().is_some_and(|text| text.len() > 20)));
}

#[tokio::test]
async fn a_list_of_keys_filters_and_an_empty_one_does_not() {
    let bench = with_topic().await;
    let keys =
        |keys: &[&str]| resource(TOPIC, "t").with_configuration_keys(Some(keys.iter().map(|key| text(key)).collect()));
    let result = one(&bench, keys(&["retention.ms", "no.such.key"])).await;
    assert_eq!(result.configs.len(), 1);
    config(&result, "retention.ms");
    assert_eq!(one(&bench, keys(&[])).await.configs.len(), TOPIC_KEYS.len());
}

#[tokio::test]
async fn an_unknown_topic_and_a_bad_name_are_errors() {
    let bench = with_topic().await;
    assert_eq!(one(&bench, resource(TOPIC, "nowhere")).await.error_code, 3);
    assert_eq!(one(&bench, resource(TOPIC, "no/where")).await.error_code, 17);
}

#[tokio::test]
async fn the_broker_shows_the_configs_that_tools_ask_for() {
    let bench = Bench::with(ServerConfig { instance_id: 2, num_partitions: 9, ..ServerConfig::default() }).await;
    for name in ["2", ""] {
        let result = one(&bench, resource(BROKER, name)).await;
        assert_eq!(result.error_code, 0);
        assert_eq!(config(&result, "num.partitions").value.as_deref(), Some("9"));
        assert_eq!(config(&result, "default.replication.factor").value.as_deref(), Some("1"));
        assert_eq!(config(&result, "log.retention.ms").value.as_deref(), Some("604800000"));
        let address = config(&result, "advertised.listeners").value.as_deref();
        assert_eq!(address, Some("PLAINTEXT://kafka.example:19092"));
        assert!(result.configs.iter().all(|config| config.read_only));
    }
}

#[tokio::test]
async fn another_broker_is_an_invalid_request() {
    let bench = Bench::new().await;
    for name in ["1", "-1", "zero"] {
        let result = one(&bench, resource(BROKER, name)).await;
        assert_eq!((result.error_code, result.configs.len()), (42, 0), "{name}");
    }
}

#[tokio::test]
async fn other_kinds_of_resources_get_an_error_and_never_an_empty_success() {
    let bench = with_topic().await;
    for kind in [0, 1, 3, 8, 64, -1, i8::MAX] {
        let result = one(&bench, resource(kind, "t")).await;
        assert_eq!((result.error_code, result.resource_type), (42, kind));
        assert!(result.error_message.is_some());
    }
}

#[tokio::test]
async fn a_resource_named_many_times_is_answered_once() {
    let bench = with_topic().await;
    let resources = vec![resource(TOPIC, "t"); 10_000];
    assert_eq!(bench.ask(4, &request(resources)).await.results.len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_into_an_answer_is_an_error_for_that_resource() {
    let mut config = ServerConfig::default();
    config.limits.max_frame_bytes = 2 << 20;
    let bench = Bench::with(config).await;
    let mut resources = Vec::new();
    for n in 0..400 {
        bench.topic(&format!("t{n}"), 1).await;
        resources.push(resource(TOPIC, &format!("t{n}")));
    }
    let asked = request(resources).with_include_documentation(true).with_include_synonyms(true);
    let (response, _, answered) = bench.ask_sized(4, &asked).await;
    assert!(answered < 2 << 20, "{answered}");
    assert_eq!(response.results[0].error_code, 0);
    let last = response.results.last().unwrap();
    assert_eq!((last.error_code, last.configs.len()), (44, 0));
}

#[tokio::test]
async fn groups_and_client_metrics_show_the_defaults_of_kafka_whether_they_exist_or_not() {
    let bench = Bench::new().await;
    for version in 1..=4 {
        for (kind, name, value, count) in
            [(GROUP, "consumer.session.timeout.ms", "45000", 10), (CLIENT_METRICS, "interval.ms", "300000", 3)]
        {
            let asked = request(vec![resource(kind, "any")]).with_include_synonyms(true);
            let result = bench.ask(version, &asked).await.results.remove(0);
            assert_eq!((result.error_code, result.configs.len()), (0, count), "version {version}");
            let shown = config(&result, name);
            assert_eq!((shown.value.as_deref(), shown.config_source), (Some(value), 5));
            assert_eq!(shown.synonyms.len(), usize::from(kind == GROUP));
            assert!(result.configs.iter().all(|config| config.read_only));
        }
    }
}

#[tokio::test]
async fn a_config_of_a_group_says_that_it_has_no_effect() {
    let bench = Bench::new().await;
    let asked = request(vec![resource(GROUP, "g")]).with_include_documentation(true);
    let result = bench.ask(4, &asked).await.results.remove(0);
    let told = |config: &DescribeConfigsResourceResult| config.documentation.as_ref().unwrap().contains("no effect");
    assert!(result.configs.iter().all(told));
}

#[tokio::test]
async fn a_group_or_client_metrics_without_a_name_are_an_invalid_request() {
    let bench = Bench::new().await;
    for (kind, words) in [(GROUP, "Group name"), (CLIENT_METRICS, "Client metrics subscription name")] {
        let result = one(&bench, resource(kind, "")).await;
        assert_eq!((result.error_code, result.configs.len()), (42, 0));
        assert!(result.error_message.is_some_and(|text| text.starts_with(words)));
    }
}
