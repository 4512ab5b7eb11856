//! DescribeConfigs (32), versions 1-4: configs of topics and of the broker.
//!
//! - v1: base, with sources and synonyms. v3: types and documentation. v4: flexible.
//! - A topic shows every topic config of Kafka 4, a broker the configs that tools ask for; no answer is an empty
//!   success. A null or empty list of keys asks for all. A key that does not exist is left out.
//! - Unknown topic 3, bad topic name 17, another broker's id 42, any other kind of resource 42. The empty broker name,
//!   Kafka's defaults of the whole cluster, is answered as this broker: it is the cluster.
//! - A group and a subscription to client metrics show Kafka's defaults, whether they exist or not, as there: tools that
//!   describe a group with all of its configs must not fail. An empty name is 42.
//! - Synonyms and documentation come only when asked for. Nothing here is a secret.
//! - A resource named twice is answered once. The answer is as large as a request may be at most; what does not fit is
//!   answered with 44, upon which the client can ask for less at once.

use std::collections::HashSet;

use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeConfigsRequest, DescribeConfigsResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::admin::{AdminError, Texts};
use super::config_resources::{BROKER, CLIENT_METRICS, GROUP, TOPIC, check_other_name};
use crate::dispatch::{Api, Context, answer};
use crate::topics::TopicError;
use crate::topics::configs::{ConfigEntry, broker, others};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeConfigs,
    name: "DescribeConfigs",
    advertised: (1, 4),
    served: (1, 4),
    handle: |request| Box::pin(answer(ApiKey::DescribeConfigs, request, describe_configs)),
};

/// Bytes of a config or synonym beside its texts, at most.
const FIXED_BYTES: usize = 16;

async fn describe_configs(context: Context, mut request: DescribeConfigsRequest) -> Option<DescribeConfigsResponse> {
    let limits = &context.broker.config.limits;
    let mut texts = Texts::new(limits);
    let mut room = limits.max_frame_bytes;
    let asked = request.resources.iter().filter(|resource| resource.resource_type == TOPIC);
    context.broker.topics.seek_names(asked.map(|resource| resource.resource_name.as_str())).await;
    let mut seen = HashSet::new();
    let mut results = Vec::new();
    for resource in std::mem::take(&mut request.resources) {
        if !seen.insert((resource.resource_type, resource.resource_name.clone())) {
            continue;
        }
        let described = entries(&context, &resource).and_then(|entries| {
            let configs = shown(entries, &request, &resource);
            let size: usize = configs.iter().map(size).sum();
            room = room.checked_sub(size).ok_or_else(too_large)?;
            Ok(configs)
        });
        let mut result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            // The empty text and not null, as Kafka has it.
            .with_error_message(Some(StrBytes::default()));
        match described {
            Ok(configs) => result.configs = configs,
            Err(error) => (result.error_code, result.error_message) = texts.of(&error),
        }
        results.push(result);
    }
    Some(DescribeConfigsResponse::default().with_results(results))
}

fn too_large() -> AdminError {
    AdminError::TooMuch("the answer would be too large: ask for fewer resources at once".to_owned())
}

fn entries(context: &Context, resource: &DescribeConfigsResource) -> Result<Vec<ConfigEntry>, AdminError> {
    let server = &context.broker;
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => match server.topics.by_name(name) {
            Some(topic) => Ok(server.topics.rules().entries(&topic.config.set)),
            None => {
                server.topics.check_name(name)?;
                Err(AdminError::Topic(TopicError::NotFound))
            }
        },
        BROKER if name.is_empty() || name.parse() == Ok(server.node_id()) => {
            Ok(broker::entries(&server.config, server.topics.rules(), &context.connection.listener))
        }
        BROKER => Err(AdminError::Request("this broker has another id, or the name is no id")),
        kind @ (GROUP | CLIENT_METRICS) => {
            check_other_name(kind, name)?;
            Ok(if kind == GROUP { others::group() } else { others::client_metrics() })
        }
        _ => Err(AdminError::Request("configs of loggers, and of what does not exist, cannot be described")),
    }
}

fn shown(
    entries: Vec<ConfigEntry>,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Vec<DescribeConfigsResourceResult> {
    let keys: HashSet<&str> = resource.configuration_keys.iter().flatten().map(StrBytes::as_str).collect();
    let wanted = entries.into_iter().filter(|entry| keys.is_empty() || keys.contains(entry.name));
    wanted.map(|entry| config(entry, request.include_synonyms, request.include_documentation)).collect()
}

fn config(entry: ConfigEntry, with_synonyms: bool, with_documentation: bool) -> DescribeConfigsResourceResult {
    let synonyms = entry.synonyms.into_iter().filter(|_| with_synonyms).map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(StrBytes::from_static_str(synonym.name))
            .with_value(Some(StrBytes::from_string(synonym.value)))
            .with_source(synonym.source.code())
    });
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(entry.name))
        .with_value(Some(StrBytes::from_string(entry.value)))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source.code())
        .with_synonyms(synonyms.collect())
        .with_config_type(entry.kind.code())
        .with_documentation(with_documentation.then(|| StrBytes::from_string(entry.documentation)))
}

fn size(config: &DescribeConfigsResourceResult) -> usize {
    let text = |text: &Option<StrBytes>| text.as_ref().map_or(0, |text| text.len());
    let synonyms = config.synonyms.iter().map(|synonym| synonym.name.len() + text(&synonym.value) + FIXED_BYTES);
    config.name.len() + text(&config.value) + text(&config.documentation) + FIXED_BYTES + synonyms.sum::<usize>()
}

#[cfg(test)]
mod tests;
