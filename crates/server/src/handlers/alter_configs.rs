//! AlterConfigs (33), versions 0-2: replaces the configs of a topic.
//!
//! - v0: base. v2: flexible.
//! - What is not named is set no longer: that is what the request means, and why clients prefer IncrementalAlterConfigs.
//! - Each resource succeeds or fails by itself, and of one all configs or none. Unknown config or bad value 40; unknown
//!   topic 3, bad topic name 17, internal topic 17; named twice, also a config within its resource, 42 with nothing
//!   changed; a config without a value 42.
//! - A broker is 42: its configs come from the server's own configuration. So is every other kind of resource, but
//!   that an empty list for a group or for client metrics succeeds: nothing is ever set on them.
//! - `validate_only` answers the same and changes nothing. What is changed is in force when the answer is sent.

use milena_wire::kafka_protocol::messages::alter_configs_request::AlterableConfig;
use milena_wire::kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use milena_wire::kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse, ApiKey};

use super::admin::AdminError;
use super::config_resources::{Alteration, alter, check_names, value};
use crate::dispatch::{Api, Context, answer};
use crate::topics::configs::ConfigChange;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::AlterConfigs,
    name: "AlterConfigs",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(answer(ApiKey::AlterConfigs, request, alter_configs)),
};

async fn alter_configs(context: Context, request: AlterConfigsRequest) -> Option<AlterConfigsResponse> {
    let alterations = request.resources.into_iter().map(|resource| Alteration {
        kind: resource.resource_type,
        name: resource.resource_name,
        change: replacement(resource.configs),
    });
    let altered = alter(&context, alterations.collect(), request.validate_only).await;
    let responses = altered.into_iter().map(|(kind, name, (code, text))| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(name)
            .with_error_code(code)
            .with_error_message(text)
    });
    Some(AlterConfigsResponse::default().with_responses(responses.collect()))
}

fn replacement(configs: Vec<AlterableConfig>) -> Result<ConfigChange, AdminError> {
    check_names(configs.iter().map(|config| &config.name))?;
    let pairs = configs.into_iter().map(|config| Ok((config.name.to_string(), value(config.value)?)));
    Ok(ConfigChange::Replace(pairs.collect::<Result<_, AdminError>>()?))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::alter_configs_request::AlterConfigsResource;

    use super::super::config_resources::{BROKER, CLIENT_METRICS, GROUP, TOPIC};
    use super::*;
    use crate::handlers::testing::{Bench, text};

    fn resource(kind: i8, name: &str, configs: &[(&str, Option<&str>)]) -> AlterConfigsResource {
        let configs = configs
            .iter()
            .map(|(name, value)| AlterableConfig::default().with_name(text(name)).with_value(value.map(text)));
        AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(configs.collect())
    }

    fn request(resources: Vec<AlterConfigsResource>) -> AlterConfigsRequest {
        AlterConfigsRequest::default().with_resources(resources)
    }

    async fn code(bench: &Bench, resource: AlterConfigsResource) -> i16 {
        bench.ask(2, &request(vec![resource])).await.responses[0].error_code
    }

    fn set(bench: &Bench) -> Vec<(String, String)> {
        bench.broker.topics.by_name("t").unwrap().config.set.clone().into_iter().collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[tokio::test]
    async fn every_version_replaces_the_set_and_what_is_not_named_is_set_no_longer() {
        for version in 0..=2 {
            let bench = Bench::new().await;
            bench.topic("t", 1).await;
            for (name, value) in [("retention.ms", "5000"), ("cleanup.policy", "compact")] {
                let asked = request(vec![resource(TOPIC, "t", &[(name, Some(value))])]);
                let response = bench.ask(version, &asked).await.responses.remove(0);
                assert_eq!((response.error_code, response.error_message), (0, None), "version {version}");
                assert_eq!((response.resource_type, response.resource_name.as_str()), (TOPIC, "t"));
            }
            assert_eq!(set(&bench), [pair("cleanup.policy", "compact")], "version {version}");
        }
    }

    #[tokio::test]
    async fn an_empty_list_resets_a_topic_to_the_defaults() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        assert_eq!(code(&bench, resource(TOPIC, "t", &[("retention.ms", Some("5000"))])).await, 0);
        assert_eq!(code(&bench, resource(TOPIC, "t", &[])).await, 0);
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn one_unknown_config_or_bad_value_changes_nothing() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        assert_eq!(code(&bench, resource(TOPIC, "t", &[("retention.ms", Some("5000"))])).await, 0);
        for bad in [("no.such.config", "1"), ("segment.ms", "soon"), ("cleanup.policy", "keep")] {
            let configs = [("retention.ms", Some("9")), (bad.0, Some(bad.1))];
            let response = bench.ask(2, &request(vec![resource(TOPIC, "t", &configs)])).await.responses.remove(0);
            assert_eq!(response.error_code, 40, "{bad:?}");
            assert!(response.error_message.is_some_and(|text| text.contains(bad.0)), "{bad:?}");
        }
        assert_eq!(set(&bench), [pair("retention.ms", "5000")]);
    }

    #[tokio::test]
    async fn a_config_without_a_value_or_named_twice_is_an_invalid_request() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        assert_eq!(code(&bench, resource(TOPIC, "t", &[("retention.ms", None)])).await, 42);
        let twice = [("retention.ms", Some("1")), ("retention.ms", Some("1"))];
        assert_eq!(code(&bench, resource(TOPIC, "t", &twice)).await, 42);
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn a_resource_named_twice_is_refused_at_every_occurrence() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        let item = |value| resource(TOPIC, "t", &[("retention.ms", Some(value))]);
        let response = bench.ask(2, &request(vec![item("1"), item("2")])).await;
        assert_eq!(response.responses.iter().map(|item| item.error_code).collect::<Vec<_>>(), [42, 42]);
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn validate_only_answers_the_same_and_changes_nothing() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for (value, code) in [("5000", 0), ("soon", 40)] {
            let asked = request(vec![resource(TOPIC, "t", &[("retention.ms", Some(value))])]).with_validate_only(true);
            assert_eq!(bench.ask(2, &asked).await.responses[0].error_code, code);
        }
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn topics_that_are_not_there_or_cannot_be_have_their_codes() {
        let bench = Bench::new().await;
        let configs = [("retention.ms", Some("1"))];
        for (name, expected) in [("nowhere", 3), ("no/where", 17), ("", 42)] {
            assert_eq!(code(&bench, resource(TOPIC, name, &configs)).await, expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_broker_is_told_where_its_configs_come_from_and_other_kinds_are_refused() {
        let bench = Bench::new().await;
        for name in ["0", "", "7"] {
            let asked = request(vec![resource(BROKER, name, &[("log.retention.ms", Some("1"))])]);
            let response = bench.ask(2, &asked).await.responses.remove(0);
            assert_eq!(response.error_code, 42, "{name}");
            assert!(response.error_message.is_some_and(|text| text.contains("configuration of Milena")));
        }
        for kind in [0, 1, 3, 8, 64, -1, i8::MAX] {
            assert_eq!(code(&bench, resource(kind, "t", &[])).await, 42, "{kind}");
        }
    }

    #[tokio::test]
    async fn nothing_can_be_set_on_groups_and_client_metrics_and_so_all_can_be_taken_away() {
        let bench = Bench::new().await;
        for (kind, name) in [(GROUP, "consumer.session.timeout.ms"), (CLIENT_METRICS, "interval.ms")] {
            assert_eq!(code(&bench, resource(kind, "any", &[])).await, 0);
            assert_eq!(code(&bench, resource(kind, "", &[])).await, 42);
            for config in [name, "no.such.config"] {
                assert_eq!(code(&bench, resource(kind, "any", &[(config, Some("50000"))])).await, 42, "{config}");
            }
        }
    }

    #[tokio::test]
    async fn an_answer_to_many_bad_items_is_bounded_by_the_size_of_the_request() {
        let bench = Bench::new().await;
        let resources = (0..20_000).map(|n| resource(TOPIC, &format!("{n}"), &[("x", Some("1"))])).collect();
        let (_, sent, answered) = bench.ask_sized(2, &request(resources)).await;
        assert!(answered < 2 * sent, "{answered} bytes for {sent}");
    }
}
