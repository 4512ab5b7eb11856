//! DescribeProducers (61), version 0: idempotent producers that are remembered, partition by partition.
//!
//! - Producer id, epoch, sequence of its last record, and when it last sent a batch. There is no coordinator epoch and no
//!   open transaction: -1 each.
//! - Unknown topic or partition 3.
//! - After a start, or an idle time, a partition remembers its producers from the first batch of one on: until then the
//!   list is empty. With `idempotence = "allocate"` it always is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_producers_request::TopicRequest;
use milena_wire::kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeProducersRequest, DescribeProducersResponse, ProducerId};

use super::admin::partition_of;
use crate::dispatch::{Api, Context, answer};
use crate::produce::dedup::Remembered;
use crate::topics::Sought;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeProducers,
    name: "DescribeProducers",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::DescribeProducers, request, describe_producers)),
};

async fn describe_producers(context: Context, request: DescribeProducersRequest) -> Option<DescribeProducersResponse> {
    let broker = &context.broker;
    let topics = request.topics.iter();
    let sought = topics.map(|topic| Sought::partitions(&topic.name, topic.partition_indexes.iter().copied()));
    broker.topics.seek(sought).await;
    // A partition that is named twice would make the answer larger than what there is to tell.
    let mut seen = std::collections::HashSet::new();
    let topics = request.topics.into_iter().map(|TopicRequest { name, partition_indexes, .. }| {
        let topic = broker.topics.by_name(&name);
        let mut partitions = Vec::with_capacity(partition_indexes.len());
        for index in partition_indexes {
            let response = PartitionResponse::default().with_partition_index(index).with_error_message(None);
            let at = topic.as_ref().and_then(|topic| partition_of(topic, index));
            partitions.push(match at {
                Some(at) if seen.insert(at.clone()) => {
                    let producers = broker.produce.remembered(&at).into_iter().map(state);
                    response.with_active_producers(producers.collect())
                }
                Some(_) => response.with_error_code(ResponseError::InvalidRequest.code()),
                None => response.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
            });
        }
        TopicResponse::default().with_name(name).with_partitions(partitions)
    });
    let topics = topics.collect();
    Some(DescribeProducersResponse::default().with_topics(topics))
}

fn state(producer: Remembered) -> ProducerState {
    let ago = Instant::now().saturating_duration_since(producer.used_at);
    let at = SystemTime::now().checked_sub(ago).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let millis = at.and_then(|since| i64::try_from(since.as_millis()).ok());
    ProducerState::default()
        .with_producer_id(ProducerId(i64::try_from(producer.producer_id).unwrap_or(i64::MAX)))
        .with_producer_epoch(i32::from(producer.epoch))
        .with_last_sequence(producer.last_sequence.and_then(|last| i32::try_from(last).ok()).unwrap_or(-1))
        .with_last_timestamp(millis.unwrap_or(-1))
        .with_coordinator_epoch(-1)
        .with_current_txn_start_offset(-1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use milena_records::Codec;
    use milena_records::client::{ProducerStamp, Record, build_batch};
    use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use milena_wire::kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest};

    use super::*;
    use crate::handlers::testing::{Bench, name};

    fn request(topics: &[(&str, &[i32])]) -> DescribeProducersRequest {
        let topics = topics.iter().map(|(topic, indexes)| {
            TopicRequest::default().with_name(name(topic)).with_partition_indexes(indexes.to_vec())
        });
        DescribeProducersRequest::default().with_topics(topics.collect())
    }

    /// Sends two records of a new producer; answers its id.
    async fn produce(bench: &Bench) -> i64 {
        let asked = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(1);
        let producer_id = bench.ask(4, &asked).await.producer_id.0;
        let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence: 0 };
        let record = || Record { timestamp_ms: 1, value: Some("v".into()), ..Record::default() };
        let batch = Bytes::from(build_batch(&[record(), record()], Codec::None, Some(stamp)));
        let partition = PartitionProduceData::default().with_index(1).with_records(Some(batch));
        let data = TopicProduceData::default().with_name(name("t")).with_partition_data(vec![partition]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![data]);
        assert_eq!(bench.ask(9, &request).await.responses[0].partition_responses[0].error_code, 0);
        producer_id
    }

    #[tokio::test]
    async fn producers_of_a_partition_are_told_with_their_last_sequence() {
        let bench = Bench::new().await;
        bench.topic("t", 2).await;
        let producer_id = produce(&bench).await;
        let response = bench.ask(0, &request(&[("t", &[0, 1])])).await;
        let partitions = &response.topics[0].partitions;
        assert_eq!((partitions[0].error_code, partitions[0].active_producers.len()), (0, 0));
        let producer = &partitions[1].active_producers[0];
        assert_eq!((producer.producer_id.0, producer.producer_epoch, producer.last_sequence), (producer_id, 0, 1));
        assert_eq!((producer.coordinator_epoch, producer.current_txn_start_offset), (-1, -1));
        assert!(producer.last_timestamp > 1_000_000_000_000, "{}", producer.last_timestamp);
    }

    #[tokio::test]
    async fn unknown_topics_and_partitions_are_3_and_one_named_twice_is_told_once() {
        let bench = Bench::new().await;
        bench.topic("t", 2).await;
        let response = bench.ask(0, &request(&[("t", &[2, -1, 0, 0]), ("nowhere", &[0])])).await;
        let topics = response.topics.iter();
        let codes: Vec<_> = topics.flat_map(|topic| topic.partitions.iter().map(|one| one.error_code)).collect();
        assert_eq!(codes, [3, 3, 0, 42, 3]);
    }
}
