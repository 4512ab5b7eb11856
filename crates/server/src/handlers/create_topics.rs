//! CreateTopics (19), versions 2-7.
//!
//! - v2: base. v4: -1 is the server's default for partitions and replicas. v5: flexible, and the answer says
//!   partitions, replicas and configs. v7: topic id.
//! - Each topic succeeds or fails by itself. Bad name 17, exists 36, named twice 42 for every occurrence, partition count
//!   37, replication factor 38, manual assignment 39, config 40; more in one request than is taken 44 for every topic.
//! - Any replication factor from 1 up is accepted and answered as asked; replication is the engine's, and Metadata
//!   shows what is: one replica. For the same reason a manual assignment counts partitions and places nothing.
//! - `validate_only` answers the same and creates nothing; there is no topic id then.
//! - The timeout of the request is honoured within bounds; what was not done by then is answered with 7.

use std::collections::{BTreeMap, HashMap};

use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use milena_wire::kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use milena_wire::kafka_protocol::messages::{ApiKey, CreateTopicsRequest, CreateTopicsResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::admin::{AdminError, Deadline, Texts, check_replicas};
use crate::broker::Broker;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::CreateTopics,
    name: "CreateTopics",
    advertised: (2, 7),
    served: (2, 7),
    handle: |request| Box::pin(answer(ApiKey::CreateTopics, request, create_topics)),
};

/// From this version on the answer describes the topic.
const DESCRIBED: i16 = 5;

async fn create_topics(context: Context, request: CreateTopicsRequest) -> Option<CreateTopicsResponse> {
    let broker = &context.broker;
    let limits = &broker.config.limits;
    let deadline = Deadline::new(request.timeout_ms, limits);
    let mut texts = Texts::new(limits);
    let refused = too_much(broker, &request.topics);
    let repeated = repeated(&request.topics);
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let outcome = if repeated.get(&topic.name).is_some_and(|times| *times > 1) {
            Err(AdminError::Request("the request names this topic more than once"))
        } else if let Some(refusal) = &refused {
            Err(refusal.clone())
        } else {
            create(broker, &topic, request.validate_only, deadline).await
        };
        results.push(match outcome {
            Ok(created) => succeeded(broker, topic.name, &created, context.version),
            Err(error) => {
                let refusal = texts.of_topic(&topic.name, &error);
                failed(topic.name, refusal)
            }
        });
    }
    Some(CreateTopicsResponse::default().with_topics(results))
}

/// How often each topic is named.
fn repeated(topics: &[CreatableTopic]) -> HashMap<TopicName, u32> {
    let mut times = HashMap::new();
    for topic in topics {
        *times.entry(topic.name.clone()).or_insert(0) += 1;
    }
    times
}

/// Refuses the whole request when it asks for more partitions than one request may: all or nothing is what the
/// client can act on.
fn too_much(broker: &Broker, topics: &[CreatableTopic]) -> Option<AdminError> {
    let limit = broker.config.limits.create_partitions_max;
    let count = |topic: &CreatableTopic| match topic.num_partitions {
        _ if !topic.assignments.is_empty() => topic.assignments.len() as u64,
        -1 => u64::from(broker.config.num_partitions),
        // A count that is refused by itself still is an item to answer.
        count => u64::try_from(count).unwrap_or(1).max(1),
    };
    // One topic that alone is too large is refused by its own rule, with its own code.
    let asked: u64 = topics.iter().map(count).map(|count| count.min(u64::from(broker.topics.partitions_max()))).sum();
    let text = || format!("the request asks for {asked} partitions, one request may ask for {limit}");
    (topics.len() > 1 && asked > limit).then(|| AdminError::TooMuch(text()))
}

/// A topic that was created, or could be.
struct Created {
    id: Uuid,
    partitions: u32,
    replication_factor: i16,
    configs: BTreeMap<String, String>,
}

async fn create(
    broker: &Broker,
    topic: &CreatableTopic,
    validate_only: bool,
    deadline: Deadline,
) -> Result<Created, AdminError> {
    let topics = &broker.topics;
    let (asked, replication_factor) = counts(broker, topic)?;
    let partitions = topics.check_new(&topic.name, asked)?;
    let given = topic.configs.iter().map(|config| (config.name.as_str(), config.value.as_deref()));
    let configs = topics.rules().check(given).map_err(crate::topics::TopicError::Config)?;
    let mut created = Created { id: Uuid::nil(), partitions, replication_factor, configs };
    if !validate_only {
        let new = topics.create_topic(&topic.name, asked, created.configs.clone());
        created.id = deadline.within(new).await?.id;
    }
    Ok(created)
}

/// Partitions and replicas that are asked for.
fn counts(broker: &Broker, topic: &CreatableTopic) -> Result<(i64, i16), AdminError> {
    let factor = topic.replication_factor;
    if !topic.assignments.is_empty() {
        if topic.num_partitions != -1 || factor != -1 {
            let text = "a manual assignment stands for the counts of partitions and replicas: both must be -1";
            return Err(AdminError::Request(text));
        }
        return manual(&topic.assignments);
    }
    let partitions = match topic.num_partitions {
        -1 => i64::from(broker.config.num_partitions),
        count => i64::from(count),
    };
    match factor {
        -1 => Ok((partitions, 1)),
        1.. => Ok((partitions, factor)),
        _ => Err(AdminError::ReplicationFactor(factor)),
    }
}

fn manual(assignments: &[CreatableReplicaAssignment]) -> Result<(i64, i16), AdminError> {
    let mut indices: Vec<i32> = assignments.iter().map(|partition| partition.partition_index).collect();
    indices.sort_unstable();
    if !indices.iter().copied().eq((0_i32..).take(indices.len())) {
        return Err(AdminError::Assignment("the partitions of a manual assignment must be 0, 1, 2, and so on"));
    }
    let factor = assignments.first().map_or(1, |partition| partition.broker_ids.len());
    for partition in assignments {
        check_replicas(&partition.broker_ids)?;
        if partition.broker_ids.len() != factor {
            return Err(AdminError::Assignment("the partitions of a manual assignment differ in their replicas"));
        }
    }
    let partitions = i64::try_from(assignments.len()).unwrap_or(i64::MAX);
    Ok((partitions, i16::try_from(factor).unwrap_or(i16::MAX)))
}

fn succeeded(broker: &Broker, name: TopicName, created: &Created, version: i16) -> CreatableTopicResult {
    let result = CreatableTopicResult::default().with_name(name).with_error_message(None);
    if version < DESCRIBED {
        return result;
    }
    let configs = broker.topics.rules().entries(&created.configs).into_iter().map(|entry| {
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(entry.name))
            .with_value(Some(StrBytes::from_string(entry.value)))
            .with_read_only(entry.read_only)
            .with_config_source(entry.source.code())
    });
    result
        .with_topic_id(created.id)
        .with_num_partitions(i32::try_from(created.partitions).unwrap_or(i32::MAX))
        .with_replication_factor(created.replication_factor)
        .with_configs(Some(configs.collect()))
}

fn failed(name: TopicName, (code, text): (i16, Option<StrBytes>)) -> CreatableTopicResult {
    CreatableTopicResult::default().with_name(name).with_error_code(code).with_error_message(text)
}

#[cfg(test)]
mod tests;
