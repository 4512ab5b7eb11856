//! Kafka clients and Iggy clients on one server.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use bytes::Bytes;
use iggy::prelude::*;
use milena_iggy_door::Door;
use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch, read_record_set};
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, FetchResponse, GroupId, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::common::{client_of, config, id};

/// A server with a door, and a client of each kind.
pub(crate) struct Both {
    pub(crate) server: TestServer,
    pub(crate) door: Door,
    pub(crate) kafka: RawClient,
    pub(crate) iggy: TcpClient,
}

impl Both {
    pub(crate) async fn start() -> Self {
        let server = TestServer::builder().in_folder().only("the door is in front of the embedded store").start().await;
        Self::over(server).await
    }

    pub(crate) async fn over(server: TestServer) -> Self {
        let broker = server.server().broker();
        let (store, memory) = (Arc::clone(&broker.store), Arc::clone(&broker.memory));
        let door = Box::pin(Door::open(config(), store, Arc::new(broker.topics.clone()), memory)).await.unwrap();
        let kafka = server.client().await;
        let iggy = client_of(door.address()).await;
        Self { server, door, kafka, iggy }
    }

    pub(crate) async fn restart(self) -> Self {
        self.iggy.disconnect().await.unwrap();
        self.door.shutdown().await;
        Self::over(self.server.restart().await).await
    }

    /// Names and partitions of the topics that Kafka clients see.
    pub(crate) async fn kafka_topics(&mut self) -> Vec<(String, usize)> {
        let answer = self.kafka.request(9, &MetadataRequest::default().with_topics(None)).await;
        let name = |name: Option<TopicName>| name.unwrap().0.to_string();
        answer.topics.into_iter().map(|topic| (name(topic.name), topic.partitions.len())).collect()
    }

    /// Commits an offset of partition 0 for the group `g`, that has no members.
    pub(crate) async fn commit(&mut self, topic: &str, offset: i64) {
        let partition = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let group = GroupId(StrBytes::from_static_str("g"));
        let request = OffsetCommitRequest::default().with_group_id(group).with_generation_id_or_member_epoch(-1);
        let answer = self.kafka.request(8, &request.with_topics(vec![topic])).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    }

    /// What the group `g` committed of partition 0; -1 for nothing.
    pub(crate) async fn committed(&mut self, topic: &str) -> i64 {
        let topic = OffsetFetchRequestTopic::default().with_name(name(topic)).with_partition_indexes(vec![0]);
        let group = GroupId(StrBytes::from_static_str("g"));
        let request = OffsetFetchRequest::default().with_group_id(group).with_topics(Some(vec![topic]));
        self.kafka.request(7, &request).await.topics[0].partitions[0].committed_offset
    }

    pub(crate) async fn create_by_iggy(&self, stream: &str, topic: &str, partitions: u32) {
        if self.iggy.get_stream(&id(stream)).await.unwrap().is_none() {
            self.iggy.create_stream(stream).await.unwrap();
        }
        let options = TopicCreateOptions { partitions_count: Some(partitions), ..TopicCreateOptions::default() };
        self.iggy.create_topic(&id(stream), topic, &options).await.unwrap();
    }

    pub(crate) async fn create_by_kafka(&mut self, topic: &str) {
        let topic = CreatableTopic::default().with_name(name(topic)).with_num_partitions(2).with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        assert_eq!(self.kafka.request(5, &request).await.topics[0].error_code, 0);
    }

    pub(crate) async fn produce(&mut self, topic: &str, records: &[Record]) -> i64 {
        self.produce_as(None, topic, records).await
    }

    pub(crate) async fn produce_as(&mut self, producer: Option<ProducerStamp>, topic: &str, records: &[Record]) -> i64 {
        let batch = build_batch(records, Codec::None, producer);
        let data = PartitionProduceData::default().with_index(0).with_records(Some(Bytes::from(batch)));
        let data = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
        let answer = self.kafka.request(9, &request).await.responses.remove(0).partition_responses.remove(0);
        assert_eq!(answer.error_code, 0);
        answer.base_offset
    }

    pub(crate) async fn fetch(&mut self, topic: &str, offset: i64) -> Vec<Record> {
        let answer = self.kafka.request(12, &fetch(topic, offset, 0)).await;
        records(&answer)
    }

    pub(crate) async fn send(&self, topic: &str, message: IggyMessage) -> u64 {
        let to = Partitioning::partition_id(0);
        let sent = self.iggy.send_messages(&id("kafka"), &id(topic), &to, &mut [message]).await.unwrap();
        sent.confirmations[0].base_offset
    }

    pub(crate) async fn poll(&self, topic: &str) -> Vec<IggyMessage> {
        let consumer = Consumer::new(Identifier::numeric(1).unwrap());
        let strategy = PollingStrategy::first();
        let polled = self.iggy.poll_messages(&id("kafka"), &id(topic), Some(0), &consumer, &strategy, 100, false).await;
        polled.unwrap().messages
    }
}

pub(crate) fn name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn fetch(topic: &str, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition =
        FetchPartition::default().with_partition(0).with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_wait_ms(max_wait_ms).with_min_bytes(1).with_max_bytes(50 << 20);
    request.with_topics(vec![topic])
}

pub(crate) fn records(answer: &FetchResponse) -> Vec<Record> {
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    read_record_set(partition.records.as_ref().unwrap(), 1 << 20).unwrap()
}
