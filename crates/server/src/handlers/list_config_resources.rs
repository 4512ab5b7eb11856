//! ListConfigResources (74), versions 0-1: what has configs (KIP-1142).
//!
//! - v0: only client metrics, of which there are none (as it was called ListClientMetricsResources). v1: the request names
//!   types of resources, none being all.
//! - Topics and brokers are what DescribeConfigs describes. Nothing can be set on groups and client metrics, and so
//!   there are none of them; loggers cannot be described, and so are not listed. Any other type: 35.

use std::collections::HashSet;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::list_config_resources_response::ConfigResource;
use milena_wire::kafka_protocol::messages::{ApiKey, ListConfigResourcesRequest, ListConfigResourcesResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::brokers;
use super::config_resources::{BROKER, CLIENT_METRICS, GROUP, TOPIC};
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ListConfigResources,
    name: "ListConfigResources",
    advertised: (0, 1),
    served: (0, 1),
    handle: |request| Box::pin(answer(ApiKey::ListConfigResources, request, list_config_resources)),
};

const LOGGER: i8 = 8;

async fn list_config_resources(
    context: Context,
    request: ListConfigResourcesRequest,
) -> Option<ListConfigResourcesResponse> {
    let types: HashSet<i8> = match context.version {
        0 => HashSet::from([CLIENT_METRICS]),
        _ if request.resource_types.is_empty() => HashSet::from([TOPIC, BROKER]),
        _ => request.resource_types.into_iter().collect(),
    };
    let response = ListConfigResourcesResponse::default();
    if !types.iter().all(|kind| [TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP].contains(kind)) {
        return Some(response.with_error_code(ResponseError::UnsupportedVersion.code()));
    }
    let mut resources = Vec::new();
    if types.contains(&TOPIC) {
        let topics = context.broker.topics.list();
        resources.extend(topics.iter().map(|topic| resource(TOPIC, topic.name.to_string())));
    }
    if types.contains(&BROKER) {
        let known = brokers::known(&context);
        resources.extend(known.iter().map(|broker| resource(BROKER, broker.id.to_string())));
    }
    Some(response.with_config_resources(resources))
}

fn resource(kind: i8, name: String) -> ConfigResource {
    ConfigResource::default().with_resource_type(kind).with_resource_name(StrBytes::from_string(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::Bench;

    async fn listed(bench: &Bench, version: i16, types: &[i8]) -> (i16, Vec<(i8, String)>) {
        let asked = ListConfigResourcesRequest::default().with_resource_types(types.to_vec());
        let response = bench.ask(version, &asked).await;
        let resources = response.config_resources.iter();
        (response.error_code, resources.map(|one| (one.resource_type, one.resource_name.to_string())).collect())
    }

    #[tokio::test]
    async fn version_1_lists_topics_and_brokers_and_version_0_the_client_metrics_that_nobody_has() {
        let bench = Bench::with(ServerConfig { instance_id: 4, ..ServerConfig::default() }).await;
        bench.topic("t", 1).await;
        let (topic, broker) = ((TOPIC, "t".to_owned()), (BROKER, "4".to_owned()));
        assert_eq!(listed(&bench, 0, &[]).await, (0, Vec::new()));
        assert_eq!(listed(&bench, 1, &[]).await, (0, vec![topic.clone(), broker.clone()]));
        assert_eq!(listed(&bench, 1, &[TOPIC, TOPIC]).await, (0, vec![topic]));
        assert_eq!(listed(&bench, 1, &[BROKER, GROUP]).await, (0, vec![broker]));
        assert_eq!(listed(&bench, 1, &[GROUP, CLIENT_METRICS, LOGGER]).await, (0, Vec::new()));
    }

    #[tokio::test]
    async fn a_type_that_does_not_exist_is_35() {
        let bench = Bench::new().await;
        for kind in [0, 1, 3, 64, -1] {
            assert_eq!(listed(&bench, 1, &[TOPIC, kind]).await, (35, Vec::new()), "{kind}");
        }
    }
}
