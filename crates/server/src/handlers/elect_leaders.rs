//! ElectLeaders (43), versions 0-2: elects leaders of partitions.
//!
//! - v0: preferred leaders. v1: the kind of election, and an error code of the whole answer. v2: flexible.
//! - Every partition has one replica, which is its leader: 84 for each partition that is named, upon which Kafka's tools
//!   say that there was nothing to do. Unknown topic or partition 3.
//! - No list is all partitions; then those without need of an election are left out, which are all, and their topics are not:
//!   as in Kafka.
//! - A kind of election that does not exist: 42.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use milena_wire::kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use milena_wire::kafka_protocol::messages::{ApiKey, ElectLeadersRequest, ElectLeadersResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::admin::partition_of;
use crate::dispatch::{Api, Context, answer};
use crate::topics::Sought;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ElectLeaders,
    name: "ElectLeaders",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(answer(ApiKey::ElectLeaders, request, elect_leaders)),
};

/// Preferred and unclean elections.
const KINDS: std::ops::RangeInclusive<i8> = 0..=1;

async fn elect_leaders(context: Context, request: ElectLeadersRequest) -> Option<ElectLeadersResponse> {
    let known_kind = KINDS.contains(&request.election_type);
    let Some(named) = request.topic_partitions else {
        return Some(of_all(&context, known_kind));
    };
    let sought = named.iter().map(|topic| Sought::partitions(&topic.topic, topic.partitions.iter().copied()));
    context.broker.topics.seek(sought).await;
    let results = named.into_iter().map(|TopicPartitions { topic: name, partitions, .. }| {
        let topic = context.broker.topics.by_name(&name);
        let results = partitions.into_iter().map(|index| {
            let error = match &topic {
                _ if !known_kind => ResponseError::InvalidRequest,
                Some(topic) if partition_of(topic, index).is_some() => ResponseError::ElectionNotNeeded,
                _ => ResponseError::UnknownTopicOrPartition,
            };
            PartitionResult::default().with_partition_id(index).with_error_code(error.code()).with_error_message(None)
        });
        ReplicaElectionResult::default().with_topic(name).with_partition_result(results.collect())
    });
    let mut response = ElectLeadersResponse::default().with_replica_election_results(results.collect());
    // The field came with the kind.
    if !known_kind && context.version >= 1 {
        response.error_code = ResponseError::InvalidRequest.code();
    }
    Some(response)
}

fn of_all(context: &Context, known_kind: bool) -> ElectLeadersResponse {
    if !known_kind {
        return ElectLeadersResponse::default().with_error_code(ResponseError::InvalidRequest.code());
    }
    let topics = context.broker.topics.list();
    let results = topics.iter().map(|topic| {
        ReplicaElectionResult::default().with_topic(TopicName(StrBytes::from_string(topic.name.to_string())))
    });
    ElectLeadersResponse::default().with_replica_election_results(results.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::{Bench, name};

    fn request(topics: Option<&[(&str, &[i32])]>) -> ElectLeadersRequest {
        let topics = topics.map(|topics| {
            let topics = topics.iter().map(|(topic, partitions)| {
                TopicPartitions::default().with_topic(name(topic)).with_partitions(partitions.to_vec())
            });
            topics.collect()
        });
        ElectLeadersRequest::default().with_topic_partitions(topics).with_timeout_ms(1_000)
    }

    fn codes(response: &ElectLeadersResponse) -> Vec<i16> {
        let results = response.replica_election_results.iter();
        results.flat_map(|topic| topic.partition_result.iter().map(|result| result.error_code)).collect()
    }

    #[tokio::test]
    async fn every_version_says_that_no_election_is_needed_and_what_is_not_there() {
        let bench = Bench::new().await;
        bench.topic("t", 2).await;
        for version in 0..=2 {
            let asked = request(Some(&[("t", &[0, 1, 2, -1]), ("nowhere", &[0])]));
            let response = bench.ask(version, &asked).await;
            assert_eq!((response.error_code, codes(&response)), (0, vec![84, 84, 3, 3, 3]), "version {version}");
        }
    }

    #[tokio::test]
    async fn of_all_partitions_none_is_named_in_any_version() {
        let bench = Bench::new().await;
        bench.topic("t", 2).await;
        for version in 0..=2 {
            let response = bench.ask(version, &request(None)).await;
            let topics: Vec<_> =
                response.replica_election_results.iter().map(|topic| topic.topic.to_string()).collect();
            assert_eq!((response.error_code, codes(&response).len()), (0, 0), "version {version}");
            assert_eq!(topics, ["t"], "version {version}");
        }
    }

    #[tokio::test]
    async fn a_kind_of_election_that_does_not_exist_is_an_invalid_request() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for version in 1..=2 {
            let asked = request(Some(&[("t", &[0])])).with_election_type(2);
            let response = bench.ask(version, &asked).await;
            assert_eq!((response.error_code, codes(&response)), (42, vec![42]), "version {version}");
        }
    }
}
