//! Making the topic, and looking at how it is configured.
//!
//! The answers are waited for without a runtime: the caller may be in one, where waiting for a second one panics.

use std::time::Duration;

use pollster::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use crate::member::Context;

/// Enough for loads of different groups to read less than all.
const PARTITIONS: i32 = 3;

/// The brokers' own default (KIP-464).
const REPLICAS: i32 = -1;

fn client(config: &ClientConfig) -> KafkaResult<AdminClient<Context>> {
    config.create_with_context(Context::new())
}

fn options(within: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within))
}

/// Makes the topic; one that is there by now is as good.
pub(super) fn create(config: &ClientConfig, topic: &str, within: Duration) -> KafkaResult<()> {
    let client = client(config)?;
    let topic = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(REPLICAS)).set("cleanup.policy", "compact");
    let answers = block_on(client.create_topics([&topic], &options(within)))?;
    match answers.into_iter().next() {
        Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => Err(KafkaError::AdminOp(code)),
        _ => Ok(()),
    }
}

/// Whether `cleanup.policy` has `compact` in it.
pub(super) fn is_compacted(config: &ClientConfig, topic: &str, within: Duration) -> KafkaResult<bool> {
    let client = client(config)?;
    let answers = block_on(client.describe_configs([&ResourceSpecifier::Topic(topic)], &options(within)))?;
    let found = answers.into_iter().next().unwrap_or(Err(RDKafkaErrorCode::Fail)).map_err(KafkaError::AdminOp)?;
    let policy = found.get("cleanup.policy").and_then(|entry| entry.value.as_deref());
    let policy = policy.ok_or(KafkaError::AdminOp(RDKafkaErrorCode::InvalidConfig))?;
    Ok(policy.split(',').any(|part| part.trim() == "compact"))
}
