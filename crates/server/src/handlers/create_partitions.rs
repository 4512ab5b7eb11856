//! CreatePartitions (37), versions 0-3.
//!
//! - v0: base. v2: flexible. v3: as v2 (Kafka may throttle it).
//! - The count is that of all partitions, and only upwards: not more than there are, or more than the server takes, is
//!   37. Unknown topic 3, internal 17, named twice 42 for every occurrence.
//! - A manual assignment must name brokers for exactly the new partitions (39); placement itself is the engine's.
//! - `validate_only` answers the same and changes nothing.
//! - The timeout of the request is honoured within bounds; what was not done by then is answered with 7.

use std::collections::HashMap;

use milena_wire::kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use milena_wire::kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use milena_wire::kafka_protocol::messages::{ApiKey, CreatePartitionsRequest, CreatePartitionsResponse, TopicName};

use super::admin::{AdminError, Deadline, Texts, check_replicas};
use crate::broker::Broker;
use crate::dispatch::{Api, Context, answer};
use crate::topics::TopicError;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::CreatePartitions,
    name: "CreatePartitions",
    advertised: (0, 3),
    served: (0, 3),
    handle: |request| Box::pin(answer(ApiKey::CreatePartitions, request, create_partitions)),
};

async fn create_partitions(context: Context, request: CreatePartitionsRequest) -> Option<CreatePartitionsResponse> {
    let limits = &context.broker.config.limits;
    let deadline = Deadline::new(request.timeout_ms, limits);
    let mut texts = Texts::new(limits);
    context.broker.topics.seek_names(request.topics.iter().map(|topic| topic.name.as_str())).await;
    let mut times: HashMap<TopicName, u32> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_insert(0) += 1;
    }
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let outcome = if times.get(&topic.name).is_some_and(|times| *times > 1) {
            Err(AdminError::Request("the request names this topic more than once"))
        } else {
            grow(&context.broker, &topic, request.validate_only, deadline).await
        };
        let mut result = CreatePartitionsTopicResult::default().with_name(topic.name).with_error_message(None);
        if let Err(error) = outcome {
            (result.error_code, result.error_message) = texts.of_topic(&result.name, &error);
        }
        results.push(result);
    }
    Some(CreatePartitionsResponse::default().with_results(results))
}

async fn grow(
    broker: &Broker,
    wanted: &CreatePartitionsTopic,
    validate_only: bool,
    deadline: Deadline,
) -> Result<(), AdminError> {
    let topics = &broker.topics;
    let topic = topics.by_name(&wanted.name).ok_or(TopicError::NotFound)?;
    let count = i64::from(wanted.count);
    let all = topics.check_growth(&topic, count)?;
    if let Some(assignments) = &wanted.assignments {
        let new = usize::try_from(all - topic.partitions).unwrap_or(usize::MAX);
        if assignments.len() != new {
            let text = "a manual assignment must name brokers for every new partition, and for no other";
            return Err(AdminError::Assignment(text));
        }
        for partition in assignments {
            check_replicas(&partition.broker_ids)?;
        }
    }
    if !validate_only {
        deadline.within(topics.grow(&topic, count)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::BrokerId;
    use milena_wire::kafka_protocol::messages::create_partitions_request::CreatePartitionsAssignment;

    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    fn topic(topic: &str, count: i32) -> CreatePartitionsTopic {
        CreatePartitionsTopic::default().with_name(name(topic)).with_count(count).with_assignments(None)
    }

    fn assigned(count: i32, partitions: &[&[i32]]) -> CreatePartitionsTopic {
        let assignments = partitions.iter().map(|brokers| {
            let brokers = brokers.iter().copied().map(BrokerId).collect();
            CreatePartitionsAssignment::default().with_broker_ids(brokers)
        });
        topic("t", count).with_assignments(Some(assignments.collect()))
    }

    fn request(topics: Vec<CreatePartitionsTopic>) -> CreatePartitionsRequest {
        CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(5_000)
    }

    async fn code(bench: &Bench, topic: CreatePartitionsTopic) -> i16 {
        bench.ask(3, &request(vec![topic])).await.results[0].error_code
    }

    fn partitions(bench: &Bench) -> u32 {
        bench.broker.topics.by_name("t").unwrap().partitions
    }

    #[tokio::test]
    async fn every_version_grows_a_topic() {
        for version in 0..=3 {
            let bench = Bench::new().await;
            bench.topic("t", 1).await;
            let response = bench.ask(version, &request(vec![topic("t", 4)])).await;
            assert_eq!((response.results[0].error_code, partitions(&bench)), (0, 4), "version {version}");
            assert_eq!(response.results[0].error_message, None, "version {version}");
        }
    }

    #[tokio::test]
    async fn as_many_or_fewer_or_too_many_are_refused() {
        let bench = Bench::with(ServerConfig { max_partitions_per_topic: 8, ..ServerConfig::default() }).await;
        bench.topic("t", 3).await;
        for count in [3, 2, 0, -1, i32::MIN, 9, i32::MAX] {
            assert_eq!(code(&bench, topic("t", count)).await, 37, "{count}");
        }
        assert_eq!(partitions(&bench), 3);
    }

    #[tokio::test]
    async fn an_unknown_topic_is_3() {
        assert_eq!(code(&Bench::new().await, topic("nowhere", 2)).await, 3);
    }

    #[tokio::test]
    async fn a_topic_named_twice_is_refused_at_every_occurrence() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        let response = bench.ask(3, &request(vec![topic("t", 2), topic("t", 3)])).await;
        assert!(response.results.iter().all(|result| result.error_code == 42));
        assert_eq!((response.results.len(), partitions(&bench)), (2, 1));
    }

    #[tokio::test]
    async fn validate_only_answers_the_same_and_changes_nothing() {
        let bench = Bench::new().await;
        bench.topic("t", 2).await;
        for (count, code) in [(3, 0), (2, 37)] {
            let request = request(vec![topic("t", count)]).with_validate_only(true);
            assert_eq!(bench.ask(3, &request).await.results[0].error_code, code);
        }
        assert_eq!(partitions(&bench), 2);
    }

    #[tokio::test]
    async fn an_assignment_covers_exactly_the_new_partitions() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for bad in [assigned(3, &[&[0]]), assigned(3, &[&[0], &[0], &[0]]), assigned(3, &[]), assigned(2, &[&[]])] {
            assert_eq!(code(&bench, bad).await, 39);
        }
        assert_eq!(code(&bench, assigned(2, &[&[1, 1]])).await, 39);
        assert_eq!(partitions(&bench), 1);
        assert_eq!(code(&bench, assigned(3, &[&[0], &[0]])).await, 0);
        assert_eq!(partitions(&bench), 3);
    }

    #[tokio::test]
    async fn an_answer_to_many_bad_items_is_bounded_by_the_size_of_the_request() {
        let bench = Bench::new().await;
        let topics = (0..50_000).map(|n| topic(&format!("{n}"), 2)).collect();
        let (_, sent, answered) = bench.ask_sized(3, &request(topics)).await;
        assert!(answered < 2 * sent, "{answered} bytes for {sent}");
    }
}
