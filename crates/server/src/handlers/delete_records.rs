//! DeleteRecords (21), versions 0-2: moves the start of partitions up.
//!
//! - v0: base. v2: flexible.
//! - Offset -1 is the end of the partition; any other one below 0 or above the end is 1. An offset at or below the start
//!   changes nothing and is a success. The answer carries the start as it is then.
//! - It is durable when it is answered. Space is freed as whole segments become free; on an Iggy server by its own retention.
//! - Fetches that wait below the new start are woken, and answered with 1.
//! - Unknown topic or partition 3; a topic of this server's own 17; a topic that is only compacted 44, as in Kafka: its
//!   records go when newer ones take their place. A store that cannot move a start to any offset: 35; both engines can.
//! - Left out: the low watermark of replicas. There is one.

use std::sync::Arc;

use milena_store::{PartitionRef, Store};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::delete_records_request::DeleteRecordsTopic;
use milena_wire::kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use milena_wire::kafka_protocol::messages::{ApiKey, DeleteRecordsRequest, DeleteRecordsResponse};

use super::admin::{Deadline, partition_of};
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::fetch::reader::kafka_offset;
use crate::topics::{Sought, Topic};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DeleteRecords,
    name: "DeleteRecords",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(answer(ApiKey::DeleteRecords, request, delete_records)),
};

/// Stands for the end of the partition.
const END: i64 = -1;

async fn delete_records(context: Context, request: DeleteRecordsRequest) -> Option<DeleteRecordsResponse> {
    let broker = &context.broker;
    let deadline = Deadline::new(request.timeout_ms, &broker.config.limits);
    let sought = request.topics.iter().map(|topic| {
        Sought::partitions(&topic.name, topic.partitions.iter().map(|partition| partition.partition_index))
    });
    broker.topics.seek(sought).await;
    let mut topics = Vec::with_capacity(request.topics.len());
    for DeleteRecordsTopic { name, partitions, .. } in request.topics {
        let topic = deletable(broker, &name);
        let mut results = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let asked = (partition.partition_index, partition.offset);
            let outcome = match &topic {
                Ok(topic) => delete(broker, topic, asked, deadline).await,
                Err(error) => Err(*error),
            };
            let result = DeleteRecordsPartitionResult::default().with_partition_index(partition.partition_index);
            results.push(match outcome {
                Ok(start) => result.with_low_watermark(kafka_offset(start)),
                Err(error) => result.with_low_watermark(-1).with_error_code(error.code()),
            });
        }
        topics.push(DeleteRecordsTopicResult::default().with_name(name).with_partitions(results));
    }
    Some(DeleteRecordsResponse::default().with_topics(topics))
}

/// The topic of that name, if records may be deleted from it.
fn deletable(broker: &Broker, name: &str) -> Result<Arc<Topic>, ResponseError> {
    let topic = broker.topics.by_name(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
    if topic.internal {
        return Err(ResponseError::InvalidTopicException);
    }
    if !broker.store.capabilities().trims {
        return Err(ResponseError::UnsupportedVersion);
    }
    if topic.config.compacted && broker.topics.rules().settings(&topic.config.set).keep_forever {
        return Err(ResponseError::PolicyViolation);
    }
    Ok(topic)
}

/// Moves the start of a partition up to an offset. Answers where it is then.
async fn delete(
    broker: &Broker,
    topic: &Topic,
    (partition, offset): (i32, i64),
    deadline: Deadline,
) -> Result<u64, ResponseError> {
    let at = partition_of(topic, partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let trimmed = deadline.limit(trim(broker.store.as_ref(), &at, offset)).await;
    let start = trimmed.ok_or(ResponseError::RequestTimedOut)??;
    broker.fetches.purgatory.start_moved(&at);
    Ok(start)
}

async fn trim(store: &dyn Store, at: &PartitionRef, offset: i64) -> Result<u64, ResponseError> {
    let bounds = store.bounds(at).await.map_err(|error| codes::of_store(&error))?;
    let before = if offset == END { Some(bounds.end) } else { u64::try_from(offset).ok() };
    let before = before.filter(|before| *before <= bounds.end).ok_or(ResponseError::OffsetOutOfRange)?;
    let trimmed = store.trim(at, before).await.map_err(|error| codes::of_store(&error))?;
    Ok(trimmed.start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use milena_store::testing::{Layer, Layered, MemoryStore, TestMessage, batch_of};
    use milena_store::{Bounds, Capabilities};
    use milena_wire::kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;

    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    fn request(topic: &str, wanted: &[(i32, i64)]) -> DeleteRecordsRequest {
        let partitions = wanted
            .iter()
            .map(|(index, offset)| DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset));
        let topic = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(partitions.collect());
        DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000)
    }

    /// Error code and low watermark of one partition.
    async fn delete(bench: &Bench, version: i16, partition: i32, offset: i64) -> (i16, i64) {
        let mut response = bench.ask(version, &request("t", &[(partition, offset)])).await;
        let result = response.topics.remove(0).partitions.remove(0);
        assert_eq!(result.partition_index, partition);
        (result.error_code, result.low_watermark)
    }

    /// A broker with ten messages in partition 0 of topic `t`.
    async fn with_ten(bench: Bench) -> (Bench, PartitionRef) {
        let topic = bench.topic("t", 2).await;
        let at = topic.store.partition(0);
        for n in 0..10_u128 {
            bench.broker.store.append(&at, batch_of(&[TestMessage::new(n + 1, b"x")])).await.unwrap();
        }
        (bench, at)
    }

    #[tokio::test]
    async fn every_version_moves_the_start_and_answers_it() {
        for version in 0..=2 {
            let (bench, at) = with_ten(Bench::new().await).await;
            assert_eq!(delete(&bench, version, 0, 4).await, (0, 4), "version {version}");
            assert_eq!(bench.broker.store.bounds(&at).await.unwrap(), Bounds { start: 4, end: 10 });
        }
    }

    #[tokio::test]
    async fn minus_1_is_the_end_and_offsets_go_on_behind_it() {
        let (bench, at) = with_ten(Bench::new().await).await;
        assert_eq!(delete(&bench, 2, 0, -1).await, (0, 10));
        let appended = bench.broker.store.append(&at, batch_of(&[TestMessage::new(99, b"x")])).await.unwrap();
        assert_eq!((appended.base_offset, appended.log_start), (Some(10), 10));
    }

    #[tokio::test]
    async fn the_start_never_moves_back() {
        let (bench, _) = with_ten(Bench::new().await).await;
        assert_eq!(delete(&bench, 2, 0, 6).await, (0, 6));
        for offset in [0, 3, 6] {
            assert_eq!(delete(&bench, 2, 0, offset).await, (0, 6), "{offset}");
        }
    }

    #[tokio::test]
    async fn offsets_outside_of_the_log_are_out_of_range_and_delete_nothing() {
        let (bench, at) = with_ten(Bench::new().await).await;
        for offset in [-2, i64::MIN, 11, i64::MAX] {
            assert_eq!(delete(&bench, 2, 0, offset).await, (1, -1), "{offset}");
        }
        assert_eq!(bench.broker.store.bounds(&at).await.unwrap().start, 0);
    }

    #[tokio::test]
    async fn an_empty_partition_can_be_emptied() {
        let (bench, _) = with_ten(Bench::new().await).await;
        for offset in [-1, 0] {
            assert_eq!(delete(&bench, 2, 1, offset).await, (0, 0));
        }
    }

    #[tokio::test]
    async fn unknown_topics_and_partitions_are_3_each_by_itself() {
        let (bench, _) = with_ten(Bench::new().await).await;
        let response = bench.ask(2, &request("t", &[(0, 1), (2, 1), (-1, 1)])).await;
        let codes: Vec<_> = response.topics[0].partitions.iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [0, 3, 3]);
        assert_eq!(bench.ask(2, &request("nowhere", &[(0, 1)])).await.topics[0].partitions[0].error_code, 3);
    }

    #[tokio::test]
    async fn records_of_a_topic_that_is_only_compacted_are_not_deleted() {
        let bench = Bench::new().await;
        for (topic, policy, code) in [("c", "compact", 44), ("cd", "compact,delete", 0), ("none", "", 0)] {
            let configs = BTreeMap::from([("cleanup.policy".to_owned(), policy.to_owned())]);
            bench.broker.topics.create(topic, 1, configs).await.unwrap();
            let response = bench.ask(2, &request(topic, &[(0, 0)])).await;
            assert_eq!(response.topics[0].partitions[0].error_code, code, "{topic}");
        }
    }

    #[tokio::test]
    async fn internal_topics_are_refused() {
        let config = ServerConfig { show_internal_topics: true, ..ServerConfig::default() };
        let store = MemoryStore::new();
        drop(Bench::over(config.clone(), Arc::new(store.clone())).await);
        let bench = Bench::over(config, Arc::new(store.again())).await;
        let internal = bench.broker.topics.list().into_iter().find(|topic| topic.internal).unwrap();
        let response = bench.ask(2, &request(&internal.name, &[(0, -1)])).await;
        assert_eq!(response.topics[0].partitions[0].error_code, 17);
    }

    /// A store that removes whole segments only.
    struct Whole(MemoryStore);

    impl Layer for Whole {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { trims: false, ..self.0.capabilities() }
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_trim_at_any_offset_is_35() {
        let store = Arc::new(Layered(Whole(MemoryStore::new())));
        let (bench, at) = with_ten(Bench::over(ServerConfig::default(), store).await).await;
        assert_eq!(delete(&bench, 2, 0, 5).await, (35, -1));
        assert_eq!(bench.broker.store.bounds(&at).await.unwrap().start, 0);
    }
}
