//! AlterPartitionReassignments (45), version 0: moves partitions to other brokers.
//!
//! - Where data lies is the engine's business, and each partition shows one replica, its leader: any other
//!   assignment is 39 with a message. The one that is in force already is a success, since there is nothing to do.
//! - No replicas at all cancels a reassignment, of which there is never one: 85. Unknown topic or partition 3.

use milena_wire::kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use milena_wire::kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use milena_wire::kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ApiKey, BrokerId,
};

use super::admin::{AdminError, Texts, partition_of};
use super::brokers;
use super::leaders::Leaders;
use crate::dispatch::{Api, Context, answer};
use crate::topics::{Sought, Topic, TopicError};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::AlterPartitionReassignments,
    name: "AlterPartitionReassignments",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::AlterPartitionReassignments, request, alter_partition_reassignments)),
};

async fn alter_partition_reassignments(
    context: Context,
    request: AlterPartitionReassignmentsRequest,
) -> Option<AlterPartitionReassignmentsResponse> {
    let broker = &context.broker;
    let sought = request.topics.iter().map(|topic| {
        Sought::partitions(&topic.name, topic.partitions.iter().map(|partition| partition.partition_index))
    });
    broker.topics.seek(sought).await;
    let mut texts = Texts::new(&broker.config.limits);
    let leaders = Leaders::new(&brokers::known(&context));
    let responses = request.topics.into_iter().map(|ReassignableTopic { name, partitions, .. }| {
        let topic = broker.topics.by_name(&name);
        let partitions = partitions.into_iter().map(|asked| {
            let outcome = reassign(topic.as_deref(), &asked, &leaders);
            let (code, text) = outcome.map_or_else(|error| texts.of(&error), |()| (0, None));
            ReassignablePartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code)
                .with_error_message(text)
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default().with_name(name).with_partitions(partitions)
    });
    let responses = responses.collect();
    Some(AlterPartitionReassignmentsResponse::default().with_error_message(None).with_responses(responses))
}

fn reassign(topic: Option<&Topic>, asked: &ReassignablePartition, leaders: &Leaders) -> Result<(), AdminError> {
    let known = topic.and_then(|topic| Some((topic.id, partition_of(topic, asked.partition_index)?.partition)));
    let Some((id, partition)) = known else {
        return Err(AdminError::Topic(TopicError::NotFound));
    };
    match &asked.replicas {
        None => Err(AdminError::NoReassignment),
        Some(replicas) if *replicas == [BrokerId(leaders.of(id, partition))] => Ok(()),
        Some(_) => Err(AdminError::Assignment(
            "the engine behind this server places partitions; each shows one replica, its leader",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    async fn outcome(bench: &Bench, topic: &str, partition: i32, replicas: Option<&[i32]>) -> (i16, bool) {
        let replicas = replicas.map(|replicas| replicas.iter().copied().map(BrokerId).collect());
        let partition = ReassignablePartition::default().with_partition_index(partition).with_replicas(replicas);
        let topic = ReassignableTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let asked = AlterPartitionReassignmentsRequest::default().with_timeout_ms(1_000).with_topics(vec![topic]);
        let response = bench.ask(0, &asked).await;
        assert_eq!(response.error_code, 0);
        let result = &response.responses[0].partitions[0];
        (result.error_code, result.error_message.is_some())
    }

    #[tokio::test]
    async fn placement_is_refused_but_for_what_is_in_force() {
        let bench = Bench::with(ServerConfig { instance_id: 2, ..ServerConfig::default() }).await;
        bench.topic("t", 1).await;
        assert_eq!(outcome(&bench, "t", 0, Some(&[2])).await, (0, false));
        for replicas in [&[1][..], &[2, 1], &[], &[-1]] {
            assert_eq!(outcome(&bench, "t", 0, Some(replicas)).await, (39, true), "{replicas:?}");
        }
    }

    #[tokio::test]
    async fn there_is_no_reassignment_to_cancel() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        assert_eq!(outcome(&bench, "t", 0, None).await, (85, true));
    }

    #[tokio::test]
    async fn unknown_topics_and_partitions_are_3() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        for (topic, partition) in [("nowhere", 0), ("t", 1), ("t", -1)] {
            assert_eq!(outcome(&bench, topic, partition, Some(&[0])).await.0, 3, "{topic} {partition}");
            assert_eq!(outcome(&bench, topic, partition, None).await.0, 3, "{topic} {partition}");
        }
    }
}
