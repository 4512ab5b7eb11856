//! Where partitions begin and end, and which offset belongs to a time; records before an offset are deleted here too.

use std::collections::BTreeMap;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, ListOffsetsRequest};

use super::cluster::topic_name;
use super::topics::CHANGE_MS;
use super::{Client, ClientError, Result};

/// Stands for the end of a partition in DeleteRecords.
const END: i64 = -1;

/// Which offset is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The first that is there.
    Earliest,
    /// The one that the next record gets.
    Latest,
    /// That of the record with the largest timestamp.
    MaxTimestamp,
    /// The first of a record at or after that time, in ms since 1970.
    Time(i64),
}

impl At {
    /// As ListOffsets says it.
    fn timestamp(self) -> i64 {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::MaxTimestamp => -3,
            Self::Time(ms) => ms.max(0),
        }
    }
}

/// Answer for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The offset; `None` when no record is that late.
    pub offset: Option<i64>,
    /// Timestamp of that record in ms, where the answer is about a record.
    pub timestamp_ms: Option<i64>,
}

impl Client {
    /// Offsets of partitions of one topic, by partition. An empty slice asks for all partitions.
    ///
    /// # Errors
    /// When there is no such topic or partition, or a leader refuses.
    pub async fn list_offsets(&mut self, topic: &str, partitions: &[i32], at: At) -> Result<BTreeMap<i32, Listed>> {
        let mut by_leader: BTreeMap<i32, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for partition in self.partitions_or_all(topic, partitions).await? {
            let leader = self.leader(topic, partition).await?;
            let wanted = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(at.timestamp());
            by_leader.entry(leader).or_default().push(wanted);
        }
        let requests: Vec<_> = by_leader
            .into_iter()
            .map(|(leader, partitions)| {
                let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(partitions);
                (leader, ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]))
            })
            .collect();
        let mut listed = BTreeMap::new();
        for answer in self.at_all(&requests).await? {
            for found in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                if let Some(code) = ResponseError::try_from_code(found.error_code) {
                    self.forget(topic);
                    let what = format!("the offsets of `{topic}`-{} were not read", found.partition_index);
                    return Err(ClientError::refused(what, code, None));
                }
                let known = |number: i64| Some(number).filter(|&number| number >= 0);
                let entry = Listed { offset: known(found.offset), timestamp_ms: known(found.timestamp) };
                listed.insert(found.partition_index, entry);
            }
        }
        Ok(listed)
    }

    /// Deletes the records of partitions of one topic before an offset, or all that are there where none is given. An empty
    /// slice means all partitions. Answers where each begins then.
    ///
    /// # Errors
    /// When there is no such topic or partition, or a leader refuses, as it does for an offset behind the end. Other
    /// partitions may have lost their records then.
    pub async fn delete_records(
        &mut self,
        topic: &str,
        partitions: &[i32],
        before: Option<i64>,
    ) -> Result<BTreeMap<i32, i64>> {
        let mut by_leader: BTreeMap<i32, Vec<DeleteRecordsPartition>> = BTreeMap::new();
        for partition in self.partitions_or_all(topic, partitions).await? {
            let leader = self.leader(topic, partition).await?;
            let deleted =
                DeleteRecordsPartition::default().with_partition_index(partition).with_offset(before.unwrap_or(END));
            by_leader.entry(leader).or_default().push(deleted);
        }
        let requests: Vec<_> = by_leader
            .into_iter()
            .map(|(leader, partitions)| {
                let topic = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(partitions);
                (leader, DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(CHANGE_MS))
            })
            .collect();
        let mut starts = BTreeMap::new();
        for answer in self.at_all(&requests).await? {
            for result in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                if let Some(code) = ResponseError::try_from_code(result.error_code) {
                    self.forget(topic);
                    let what = format!("the records of `{topic}`-{} were not deleted", result.partition_index);
                    return Err(ClientError::refused(what, code, None));
                }
                starts.insert(result.partition_index, result.low_watermark);
            }
        }
        Ok(starts)
    }

    /// The partitions given, checked, or all of the topic if none is given.
    pub(crate) async fn partitions_or_all(&mut self, topic: &str, partitions: &[i32]) -> Result<Vec<i32>> {
        let known = self.topic(topic).await?;
        let all: Vec<i32> = known.partitions.iter().map(|partition| partition.index).collect();
        match partitions.iter().find(|partition| !all.contains(partition)) {
            Some(&partition) => Err(ClientError::NoPartition { topic: topic.to_owned(), partition, count: all.len() }),
            None if partitions.is_empty() => Ok(all),
            None => Ok(partitions.to_vec()),
        }
    }
}
