use std::future::{Future, pending};

use futures_util::FutureExt;
use milena_records::client::{Record, read_record_set};
use milena_store::frame::frame_header;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Store, StoreError};
use milena_wire::decode_response;
use milena_wire::kafka_protocol::messages::FetchResponse;
use milena_wire::kafka_protocol::messages::fetch_response::PartitionData;
use milena_wire::kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, advance};

use super::*;
use crate::fetch::testing::World;
use crate::topics::Topic;

mod damage;
mod epochs;
mod reading;
mod sessions;
mod waiting;

const MIB: i32 = 1 << 20;

fn at(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition::default().with_partition(partition).with_fetch_offset(offset).with_partition_max_bytes(MIB)
}

fn of(topic: &Topic, partitions: Vec<FetchPartition>) -> FetchTopic {
    // Both ways of naming it; a version takes one of them.
    let name = TopicName(StrBytes::from_string(topic.name.to_string()));
    FetchTopic::default().with_topic(name).with_topic_id(topic.id).with_partitions(partitions)
}

fn request(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest::default().with_max_bytes(50 * MIB).with_min_bytes(1).with_topics(topics)
}

fn waiting(topics: Vec<FetchTopic>, max_wait_ms: i32, min_bytes: i32) -> FetchRequest {
    request(topics).with_max_wait_ms(max_wait_ms).with_min_bytes(min_bytes)
}

async fn send(world: &World, version: i16, request: FetchRequest) -> FetchResponse {
    send_until(world, version, request, pending()).await
}

/// As `send`, by a connection that ends when `ending` resolves.
async fn send_until(
    world: &World,
    version: i16,
    request: FetchRequest,
    ending: impl Future<Output = ()>,
) -> FetchResponse {
    let environment = Environment {
        store: &world.store,
        topics: &world.topics,
        fetches: &world.fetches,
        metrics: &world.metrics,
        request: None,
        threads_can_block: false,
    };
    let asked = Asked::new(version, 5, &request, &world.limits);
    let frame = fetch(&environment, asked, ending).await.unwrap().bytes.concat();
    let (correlation_id, response) =
        decode_response(ApiKey::Fetch, version, frame.split_at(4).1.to_vec().into()).unwrap();
    assert_eq!(correlation_id, 5);
    response
}

/// The only partition of the answer.
async fn one(world: &World, request: FetchRequest) -> PartitionData {
    let response = send(world, 12, request).await;
    assert_eq!(response.error_code, 0);
    assert_eq!((response.responses.len(), response.responses[0].partitions.len()), (1, 1));
    response.responses[0].partitions[0].clone()
}

fn records(data: &PartitionData) -> Vec<Record> {
    read_record_set(data.records.as_ref().unwrap(), 1 << 30).unwrap()
}

fn offsets(data: &PartitionData) -> Vec<i64> {
    records(data).iter().map(|record| record.offset).collect()
}

fn code(error: ResponseError) -> i16 {
    error.code()
}

/// Lets a fetch begin, checks that it sleeps, does `meanwhile`, and says how long the fetch took by the paused clock.
async fn slept<T>(fetch: impl Future<Output = T>, meanwhile: impl Future<Output = ()>) -> (T, Duration) {
    let started = Instant::now();
    let mut fetch = Box::pin(fetch);
    assert!((&mut fetch).now_or_never().is_none(), "the fetch did not wait");
    meanwhile.await;
    (fetch.await, started.elapsed())
}
