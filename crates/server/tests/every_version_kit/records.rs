//! Requests about records and the offsets of a partition.

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_wire::kafka_protocol::messages::*;

use super::Walk;
use crate::groups_kit::topic;

impl Walk {
    pub(super) async fn produce(&mut self, version: i16) {
        use produce_request::{PartitionProduceData, TopicProduceData};
        let record = Record { timestamp_ms: 1_000, value: Some("v".into()), ..Record::default() };
        let batch = Bytes::from(build_batch(&[record], Codec::None, None));
        let data = TopicProduceData::default()
            .with_partition_data(vec![PartitionProduceData::default().with_records(Some(batch))]);
        let data = if version >= 13 { data.with_topic_id(self.id) } else { data.with_name(topic("orders")) };
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![data]);
        assert_eq!(self.ask(version, &request).await.responses[0].partition_responses.len(), 1);
    }

    pub(super) async fn records(&mut self, key: ApiKey, version: i16) -> bool {
        match key {
            ApiKey::Produce => self.produce(version).await,
            ApiKey::Fetch => {
                use fetch_request::{FetchPartition, FetchTopic};
                let wanted = FetchTopic::default()
                    .with_partitions(vec![FetchPartition::default().with_partition_max_bytes(1 << 20)]);
                let wanted =
                    if version >= 13 { wanted.with_topic_id(self.id) } else { wanted.with_topic(topic("orders")) };
                let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![wanted]);
                let answer = self.ask(version, &request).await;
                assert!(answer.responses[0].partitions[0].records.as_ref().is_some_and(|records| !records.is_empty()));
            }
            ApiKey::ListOffsets => {
                use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
                let wanted = ListOffsetsTopic::default()
                    .with_name(topic("orders"))
                    .with_partitions(vec![ListOffsetsPartition::default().with_timestamp(-1)]);
                let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![wanted]);
                assert!(self.ask(version, &request).await.topics[0].partitions[0].offset > 0);
            }
            ApiKey::DeleteRecords => {
                use delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
                let wanted = DeleteRecordsTopic::default()
                    .with_name(topic("orders"))
                    .with_partitions(vec![DeleteRecordsPartition::default().with_offset(1)]);
                let request = DeleteRecordsRequest::default().with_topics(vec![wanted]).with_timeout_ms(5_000);
                assert_eq!(self.ask(version, &request).await.topics[0].partitions[0].low_watermark, 1);
            }
            ApiKey::InitProducerId => {
                self.ask(version, &InitProducerIdRequest::default().with_transactional_id(None)).await;
            }
            ApiKey::OffsetForLeaderEpoch => {
                use offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
                let wanted = OffsetForLeaderTopic::default()
                    .with_topic(topic("orders"))
                    .with_partitions(vec![OffsetForLeaderPartition::default()]);
                let request = OffsetForLeaderEpochRequest::default().with_topics(vec![wanted]);
                assert_eq!(self.ask(version, &request).await.topics[0].partitions.len(), 1);
            }
            ApiKey::DescribeProducers => {
                use describe_producers_request::TopicRequest;
                let wanted = TopicRequest::default().with_name(topic("orders")).with_partition_indexes(vec![0]);
                let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
                assert_eq!(self.ask(version, &request).await.topics[0].partitions.len(), 1);
            }
            _ => return false,
        }
        true
    }
}
