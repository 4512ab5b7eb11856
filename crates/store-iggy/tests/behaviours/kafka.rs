//! Kafka requests as these tests make them.

use std::time::{Duration, Instant};

use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch, read_record_set};
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::fetch_response::PartitionData;
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::produce_response::PartitionProduceResponse;
use milena_wire::kafka_protocol::messages::{
    FetchRequest, InitProducerIdRequest, ListOffsetsRequest, ProduceRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::case::TOPIC;

/// Codes of what passes by itself, which every client asks again for.
const PASSING: [i16; 2] = [5, 6];

pub(crate) const LATEST: i64 = -1;
pub(crate) const EARLIEST: i64 = -2;

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn record(value: &str) -> Record {
    Record { timestamp_ms: 1_700_000_000_000, value: Some(value.as_bytes().to_vec()), ..Record::default() }
}

/// A producer that chooses its sequences itself.
pub(crate) struct Stamps {
    producer_id: i64,
    epoch: i16,
}

impl Stamps {
    pub(crate) async fn new(client: &mut RawClient) -> Self {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        let given = client.request(4, &request).await;
        assert_eq!(given.error_code, 0);
        Self { producer_id: given.producer_id.0, epoch: given.producer_epoch }
    }

    /// A batch of one record with that sequence.
    pub(crate) fn batch(&self, sequence: i32, value: &str) -> Vec<u8> {
        let (producer_id, epoch) = (self.producer_id, self.epoch);
        let stamp = ProducerStamp { producer_id, epoch, base_sequence: sequence };
        build_batch(&[record(value)], Codec::None, Some(stamp))
    }
}

pub(crate) fn plain(records: &[Record]) -> Vec<u8> {
    build_batch(records, Codec::None, None)
}

/// A Produce of one batch to a partition.
pub(crate) fn produce_request(topic: &str, partition: i32, batch: Vec<u8>, timeout_ms: i32) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.into()));
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(timeout_ms).with_topic_data(vec![topic])
}

pub(crate) async fn produce(client: &mut RawClient, batch: Vec<u8>) -> PartitionProduceResponse {
    produce_to(client, TOPIC, 0, batch).await
}

pub(crate) async fn produce_to(
    client: &mut RawClient,
    topic: &str,
    partition: i32,
    batch: Vec<u8>,
) -> PartitionProduceResponse {
    let answer = client.request(9, &produce_request(topic, partition, batch, 20_000)).await;
    answer.responses[0].partition_responses[0].clone()
}

/// Produces one record and expects that offset, again and again while the code is one that clients retry.
pub(crate) async fn produce_until_stored(client: &mut RawClient, batch: &[u8]) -> i64 {
    let started = Instant::now();
    loop {
        let answer = produce(client, batch.to_vec()).await;
        match answer.error_code {
            0 => return answer.base_offset,
            3 | 5 | 6 | 7 => assert!(started.elapsed() < milena_testkit::SOON * 2, "code {}", answer.error_code),
            code => panic!("code {code}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn fetch_request(topic: &str, partition: i32, offset: i64, wait_ms: i32, bytes: i32) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_current_leader_epoch(-1)
        .with_partition_max_bytes(bytes);
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(bytes)
        .with_topics(vec![FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![wanted])])
}

/// A Fetch from partition 0 of the topic, which waits at most that long.
pub(crate) async fn fetch(client: &mut RawClient, offset: i64, wait_ms: i32) -> PartitionData {
    fetch_partition(client, 0, offset, wait_ms).await
}

pub(crate) async fn fetch_partition(
    client: &mut RawClient,
    partition: i32,
    offset: i64,
    wait_ms: i32,
) -> PartitionData {
    let request = fetch_request(TOPIC, partition, offset, wait_ms, 4 << 20);
    let started = Instant::now();
    loop {
        let data = client.request(11, &request).await.responses[0].partitions[0].clone();
        if !PASSING.contains(&data.error_code) || started.elapsed() > milena_testkit::SOON {
            return data;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn records_of(data: &PartitionData) -> Vec<Record> {
    read_record_set(&data.records.clone().unwrap_or_default(), 256 << 20).unwrap()
}

pub(crate) fn values_of(data: &PartitionData) -> Vec<String> {
    records_of(data).into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

/// All records of partition 0 from its beginning to its end.
pub(crate) async fn read_all(client: &mut RawClient) -> Vec<Record> {
    read_partition(client, 0).await
}

pub(crate) async fn read_partition(client: &mut RawClient, partition: i32) -> Vec<Record> {
    let mut next = list(client, TOPIC, partition, EARLIEST).await.offset;
    let end = list(client, TOPIC, partition, LATEST).await.offset;
    let (mut all, started) = (Vec::new(), Instant::now());
    while next < end {
        assert!(started.elapsed() < milena_testkit::SOON, "{next} of {end} were read");
        let data = fetch_partition(client, partition, next, 500).await;
        let bounds = (data.log_start_offset, data.high_watermark);
        assert_eq!(data.error_code, 0, "partition {partition} at {next} of {end}, which has {bounds:?}");
        let records = records_of(&data);
        next = records.last().map_or(next, |last| last.offset + 1);
        all.extend(records);
    }
    all
}

pub(crate) async fn list(
    client: &mut RawClient,
    topic: &str,
    partition: i32,
    time: i64,
) -> ListOffsetsPartitionResponse {
    let wanted = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(time);
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![wanted]);
    let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let started = Instant::now();
    loop {
        let listed = client.request(5, &request).await.topics[0].partitions[0].clone();
        if !PASSING.contains(&listed.error_code) || started.elapsed() > milena_testkit::SOON {
            return listed;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// That offset of partition 0.
pub(crate) async fn offset(client: &mut RawClient, time: i64) -> i64 {
    let listed = list(client, TOPIC, 0, time).await;
    assert_eq!(listed.error_code, 0);
    listed.offset
}
