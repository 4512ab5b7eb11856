//! What requests are made of.

use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{CreateTopicsRequest, GroupId, ProduceRequest, ProduceResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::duo::{Answers, Duo};
use crate::normal::Memory;

/// First version of Produce that names topics by id.
pub const PRODUCE_BY_ID: i16 = 13;

/// A text of a message.
#[must_use]
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The name of a topic.
#[must_use]
pub fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// The name of a group.
#[must_use]
pub fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// A topic to create, with configs.
#[must_use]
pub fn creatable(name: &str, partitions: i32, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let config = |(name, value): &(&str, Option<&str>)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(value.map(text))
    };
    CreatableTopic::default()
        .with_name(topic(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.iter().map(config).collect())
}

/// A request for these topics.
#[must_use]
pub fn creation(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(30_000)
}

/// Creates a topic on both, and waits until it is there.
pub async fn create(duo: &mut Duo, name: &str, partitions: i32, configs: &[(&str, Option<&str>)]) {
    duo.step("a topic for what follows");
    duo.ask(7, |_| creation(vec![creatable(name, partitions, configs)])).await;
    duo.settled(name, usize::try_from(partitions).expect("a count")).await;
}

/// A record with that time, key and value.
#[must_use]
pub fn record(timestamp_ms: i64, key: Option<&str>, value: Option<&str>) -> Record {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Record { offset: 0, timestamp_ms, key: key.map(bytes), value: value.map(bytes), headers: Vec::new() }
}

/// A batch of one record, whose time is `ms` behind the start.
#[must_use]
pub fn plain(memory: &Memory, ms: i64, value: &str) -> Vec<u8> {
    build_batch(&[record(memory.time(ms), None, Some(value))], Codec::None, None)
}

/// A batch of one record of an idempotent producer.
#[must_use]
pub fn stamped(memory: &Memory, producer_id: i64, epoch: i16, base_sequence: i32) -> Vec<u8> {
    let stamp = ProducerStamp { producer_id, epoch, base_sequence };
    build_batch(&[record(memory.time(0), None, Some("stamped"))], Codec::None, Some(stamp))
}

/// A request to write these bytes to these partitions, with acks -1.
#[must_use]
pub fn produce(memory: &Memory, version: i16, to: &str, partitions: Vec<(i32, Option<Vec<u8>>)>) -> ProduceRequest {
    let partition = |(index, records): (i32, Option<Vec<u8>>)| {
        PartitionProduceData::default().with_index(index).with_records(records.map(Into::into))
    };
    let data = TopicProduceData::default().with_partition_data(partitions.into_iter().map(partition).collect());
    let data = match version {
        PRODUCE_BY_ID.. => data.with_topic_id(memory.topic_id(to)),
        _ => data.with_name(topic(to)),
    };
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![data])
}

/// Writes one set of bytes to partition 0, in that version.
pub async fn write(
    duo: &mut Duo,
    version: i16,
    to: &str,
    records: impl Fn(&Memory) -> Vec<u8>,
) -> Answers<ProduceResponse> {
    duo.ask(version, |memory| produce(memory, version, to, vec![(0, Some(records(memory)))])).await
}
