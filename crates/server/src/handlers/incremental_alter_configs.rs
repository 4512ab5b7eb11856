//! IncrementalAlterConfigs (44), versions 0-1: changes single configs of a topic (KIP-339).
//!
//! - v0: base. v1: flexible.
//! - Operations: 0 sets, 1 deletes (the default is in force again), 2 appends to and 3 subtracts from a list; the list is
//!   the one in force, so the first append adds to the default. 2 and 3 on what is no list: 40. Any other operation: 42.
//! - Deleting a config that is not set, or a name that Kafka does not know, is a success, as in Kafka.
//! - Otherwise as AlterConfigs: each resource by itself, of one all or nothing, 40 for unknown configs and bad values, 42
//!   for what is named twice and for brokers, `validate_only`.

use milena_wire::kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use milena_wire::kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use milena_wire::kafka_protocol::messages::{ApiKey, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::admin::AdminError;
use super::config_resources::{Alteration, alter, check_names, value};
use crate::dispatch::{Api, Context, answer};
use crate::topics::configs::{ConfigChange, ConfigEdit, EditOp};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::IncrementalAlterConfigs,
    name: "IncrementalAlterConfigs",
    advertised: (0, 1),
    served: (0, 1),
    handle: |request| Box::pin(answer(ApiKey::IncrementalAlterConfigs, request, incremental_alter_configs)),
};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

async fn incremental_alter_configs(
    context: Context,
    request: IncrementalAlterConfigsRequest,
) -> Option<IncrementalAlterConfigsResponse> {
    let alterations = request.resources.into_iter().map(|resource| Alteration {
        kind: resource.resource_type,
        name: resource.resource_name,
        change: edits(resource.configs),
    });
    let altered = alter(&context, alterations.collect(), request.validate_only).await;
    let responses = altered.into_iter().map(|(kind, name, (code, text))| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(name)
            .with_error_code(code)
            .with_error_message(text)
    });
    Some(IncrementalAlterConfigsResponse::default().with_responses(responses.collect()))
}

fn edits(configs: Vec<AlterableConfig>) -> Result<ConfigChange, AdminError> {
    check_names(configs.iter().map(|config| &config.name))?;
    let edits = configs.into_iter().map(|config| {
        let op = match config.config_operation {
            SET => EditOp::Set(value(config.value)?),
            DELETE => EditOp::Delete,
            APPEND => EditOp::Append(value(config.value)?),
            SUBTRACT => EditOp::Subtract(value(config.value)?),
            _ => return Err(AdminError::Request("an operation on a config that does not exist")),
        };
        Ok(ConfigEdit { name: config.name.to_string(), op })
    });
    Ok(ConfigChange::Edit(edits.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;

    use super::super::config_resources::{BROKER, CLIENT_METRICS, GROUP, TOPIC};
    use super::*;
    use crate::handlers::testing::{Bench, text};

    fn request(kind: i8, configs: &[(i8, &str, Option<&str>)]) -> IncrementalAlterConfigsRequest {
        let configs = configs.iter().map(|(op, name, value)| {
            AlterableConfig::default().with_name(text(name)).with_config_operation(*op).with_value(value.map(text))
        });
        let resource = AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text("t"))
            .with_configs(configs.collect());
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
    }

    async fn code(bench: &Bench, configs: &[(i8, &str, Option<&str>)]) -> i16 {
        bench.ask(1, &request(TOPIC, configs)).await.responses[0].error_code
    }

    fn set(bench: &Bench) -> Vec<(String, String)> {
        bench.broker.topics.by_name("t").unwrap().config.set.clone().into_iter().collect()
    }

    fn value_of(bench: &Bench, name: &str) -> Option<String> {
        bench.broker.topics.by_name("t").unwrap().config.set.get(name).cloned()
    }

    #[tokio::test]
    async fn every_version_sets_and_deletes_single_configs() {
        for version in 0..=1 {
            let bench = Bench::new().await;
            bench.topic("t", 1).await;
            let both = [(SET, "retention.ms", Some("5000")), (SET, "segment.ms", Some("9"))];
            for (asked, left) in [(&both[..], 2), (&[(DELETE, "retention.ms", None)][..], 1)] {
                let response = bench.ask(version, &request(TOPIC, asked)).await.responses.remove(0);
                assert_eq!((response.error_code, response.error_message), (0, None), "version {version}");
                assert_eq!((response.resource_type, response.resource_name.as_str()), (TOPIC, "t"));
                assert_eq!(set(&bench).len(), left, "version {version}");
            }
            assert_eq!(value_of(&bench, "segment.ms").as_deref(), Some("9"));
        }
    }

    #[tokio::test]
    async fn words_are_appended_to_and_subtracted_from_the_list_in_force() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        let steps = [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
            (APPEND, "delete,compact", "delete,compact"),
        ];
        for (op, words, expected) in steps {
            assert_eq!(code(&bench, &[(op, "cleanup.policy", Some(words))]).await, 0);
            assert_eq!(value_of(&bench, "cleanup.policy").as_deref(), Some(expected), "{op} {words}");
        }
    }

    #[tokio::test]
    async fn only_lists_can_be_appended_to() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for op in [APPEND, SUBTRACT] {
            assert_eq!(code(&bench, &[(op, "retention.ms", Some("1"))]).await, 40);
            assert_eq!(code(&bench, &[(op, "no.such.config", Some("1"))]).await, 40);
        }
        assert_eq!(code(&bench, &[(APPEND, "cleanup.policy", Some("keep"))]).await, 40);
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn one_bad_edit_changes_nothing() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for bad in [(SET, "no.such.config", "1"), (SET, "segment.ms", "soon"), (SET, "max.compaction.lag.ms", "0")] {
            let edits = [(SET, "retention.ms", Some("9")), (bad.0, bad.1, Some(bad.2))];
            assert_eq!(code(&bench, &edits).await, 40, "{bad:?}");
        }
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn an_edit_that_conflicts_with_what_is_set_is_refused() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        assert_eq!(code(&bench, &[(SET, "max.compaction.lag.ms", Some("10"))]).await, 0);
        assert_eq!(code(&bench, &[(SET, "min.compaction.lag.ms", Some("11"))]).await, 40);
        assert_eq!(code(&bench, &[(SET, "min.compaction.lag.ms", Some("10"))]).await, 0);
        assert_eq!(code(&bench, &[(DELETE, "max.compaction.lag.ms", None)]).await, 0);
    }

    #[tokio::test]
    async fn deleting_what_is_not_set_or_not_known_succeeds() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for name in ["retention.ms", "message.format.version"] {
            assert_eq!(code(&bench, &[(DELETE, name, None)]).await, 0, "{name}");
        }
    }

    #[tokio::test]
    async fn on_groups_and_client_metrics_only_deleting_succeeds() {
        let bench = Bench::new().await;
        for kind in [GROUP, CLIENT_METRICS] {
            for (op, value, expected) in
                [(DELETE, None, 0), (SET, Some("1"), 42), (APPEND, Some("1"), 42), (SUBTRACT, Some("1"), 42)]
            {
                let response = bench.ask(1, &request(kind, &[(op, "interval.ms", value)])).await;
                assert_eq!(response.responses[0].error_code, expected, "{kind} {op}");
            }
        }
    }

    #[tokio::test]
    async fn missing_values_repeated_names_and_unknown_operations_are_invalid_requests() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for op in [SET, APPEND, SUBTRACT] {
            assert_eq!(code(&bench, &[(op, "cleanup.policy", None)]).await, 42, "{op}");
        }
        let twice = [(SET, "retention.ms", Some("1")), (DELETE, "retention.ms", None)];
        assert_eq!(code(&bench, &twice).await, 42);
        for op in [-1, 4, i8::MAX] {
            assert_eq!(code(&bench, &[(op, "retention.ms", Some("1"))]).await, 42, "{op}");
        }
        assert!(set(&bench).is_empty());
    }

    #[tokio::test]
    async fn validate_only_changes_nothing_and_a_broker_is_refused() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for (value, code) in [("5000", 0), ("soon", 40)] {
            let asked = request(TOPIC, &[(SET, "retention.ms", Some(value))]).with_validate_only(true);
            assert_eq!(bench.ask(1, &asked).await.responses[0].error_code, code);
        }
        assert!(set(&bench).is_empty());
        let broker = bench.ask(1, &request(BROKER, &[(SET, "log.retention.ms", Some("1"))])).await.responses.remove(0);
        assert_eq!(broker.error_code, 42);
        assert!(broker.error_message.is_some_and(|text| text.contains("configuration of Milena")));
    }
}
