//! Reading partitions of one topic from positions. Records of transactions are read whether committed or not.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use milena_records::Refusal;
use milena_records::client::{Record, read_record_set};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::fetch_response::PartitionData;
use milena_wire::kafka_protocol::messages::{BrokerId, FetchRequest};
use tokio::time::{Instant, sleep};

use super::cluster::topic_name;
use super::{At, Client, ClientError, Result};

/// Bytes that one batch may decompress to.
const BATCH_BYTES_MAX: usize = 512 << 20;
/// Bytes of batches after which the rest of an answer is left for the next poll.
const DECODED_BYTES_MAX: usize = 64 << 20;
/// Pause before a leader is asked again that could not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// Where fields of a record batch lie (format 2).
const BASE_OFFSET_AT: usize = 0;
const LENGTH_AT: usize = 8;
const LENGTH_END: usize = 12;
const LAST_OFFSET_DELTA_AT: usize = 23;

/// How partitions are read.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Longest time that a poll waits for records.
    pub max_wait: Duration,
    /// Bytes that a poll takes of each partition, and four times as much in all.
    pub partition_bytes: i32,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self { max_wait: Duration::from_millis(500), partition_bytes: 4 << 20 }
    }
}

/// What a poll found in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Partition.
    pub partition: i32,
    /// Records in offset order; there may be none.
    pub records: Vec<Record>,
    /// Offset behind the last record that may be read now.
    pub end: i64,
}

/// Reads partitions of one topic. A partition whose position has reached its end waits for more.
#[derive(Debug)]
pub struct Fetcher<'c> {
    client: &'c mut Client,
    topic: String,
    settings: FetchSettings,
    positions: BTreeMap<i32, i64>,
    partition_bytes: i32,
}

impl Client {
    /// Reads partitions of a topic from these positions on (partition to offset).
    ///
    /// # Errors
    /// When there is no such topic or partition.
    pub async fn fetcher(
        &mut self,
        topic: &str,
        positions: BTreeMap<i32, i64>,
        settings: FetchSettings,
    ) -> Result<Fetcher<'_>> {
        let partitions: Vec<i32> = positions.keys().copied().collect();
        self.partitions_or_all(topic, &partitions).await?;
        let partition_bytes = settings.partition_bytes;
        Ok(Fetcher { client: self, topic: topic.to_owned(), settings, positions, partition_bytes })
    }
}

impl Fetcher<'_> {
    /// Offset of the next record of each partition.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<i32, i64> {
        &self.positions
    }

    /// Does not read that partition any more.
    pub fn finish(&mut self, partition: i32) {
        self.positions.remove(&partition);
    }

    /// Waits for records, at most the time that the settings say; leaders that move are followed. Positions move behind
    /// what is returned. Partitions with nothing new are in the answer too, with their ends.
    ///
    /// # Errors
    /// When a position is not in the log, a batch is damaged, or leaders cannot be reached for long.
    pub async fn poll(&mut self) -> Result<Vec<Fetched>> {
        let deadline = Instant::now() + self.client.settings().retry_timeout;
        loop {
            match self.poll_once().await {
                Err(error) if error.is_retriable() && Instant::now() < deadline => {
                    self.client.forget(&self.topic);
                    sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn poll_once(&mut self) -> Result<Vec<Fetched>> {
        let mut by_leader: BTreeMap<i32, Vec<FetchPartition>> = BTreeMap::new();
        for (&partition, &offset) in &self.positions {
            let leader = self.client.leader(&self.topic, partition).await?;
            let wanted = FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(self.partition_bytes);
            by_leader.entry(leader).or_default().push(wanted);
        }
        let requests: Vec<_> = by_leader.into_iter().map(|(leader, wanted)| (leader, self.request(wanted))).collect();
        let answers = self.client.at_all(&requests).await?;
        let mut fetched = Vec::new();
        for answer in answers {
            if let Some(code) = ResponseError::try_from_code(answer.error_code) {
                return Err(ClientError::refused(format!("topic `{}` was not read", self.topic), code, None));
            }
            for data in answer.responses.into_iter().flat_map(|topic| topic.partitions) {
                fetched.push(data);
            }
        }
        self.take(fetched).await
    }

    fn request(&self, partitions: Vec<FetchPartition>) -> FetchRequest {
        let topic = FetchTopic::default().with_topic(topic_name(&self.topic)).with_partitions(partitions);
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(i32::try_from(self.settings.max_wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(1)
            .with_max_bytes(self.partition_bytes.saturating_mul(4))
            // No session: the positions are here, and a session would have to be kept per leader.
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(vec![topic])
    }

    /// Turns answers into records. What was read well is returned before an error of another partition is; the next poll
    /// meets that again.
    async fn take(&mut self, answers: Vec<PartitionData>) -> Result<Vec<Fetched>> {
        let mut fetched = Vec::new();
        let mut failed = None;
        let mut found_records = false;
        for data in answers {
            let partition = data.partition_index;
            let Some(&position) = self.positions.get(&partition) else { continue };
            let outcome = match ResponseError::try_from_code(data.error_code) {
                None => self.decode(partition, position, &data),
                Some(ResponseError::OffsetOutOfRange) => Err(self.out_of_range(partition, position).await?),
                Some(code) => {
                    let what = format!("`{}`-{partition} was not read", self.topic);
                    Err(ClientError::refused(what, code, None))
                }
            };
            match outcome {
                Ok(found) => {
                    found_records |= !found.records.is_empty();
                    fetched.push(found);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !found_records => Err(error),
            _ => Ok(fetched),
        }
    }

    fn decode(&mut self, partition: i32, position: i64, data: &PartitionData) -> Result<Fetched> {
        let set = data.records.clone().unwrap_or_default();
        let decoded = decode_from(position, &set).map_err(|(offset, reason)| ClientError::Damaged {
            topic: self.topic.clone(),
            partition,
            offset,
            reason,
        })?;
        if decoded.is_cut_off {
            // A server that does not return a first batch whole (KIP-74) is asked for more.
            self.partition_bytes = self.partition_bytes.saturating_mul(2);
        }
        self.positions.insert(partition, decoded.next);
        Ok(Fetched { partition, records: decoded.records, end: data.high_watermark })
    }

    async fn out_of_range(&mut self, partition: i32, offset: i64) -> Result<ClientError> {
        let topic = self.topic.clone();
        let mut ask = async |at| -> Result<i64> {
            let listed = self.client.list_offsets(&topic, &[partition], at).await?;
            Ok(listed.get(&partition).and_then(|listed| listed.offset).unwrap_or(-1))
        };
        let start = ask(At::Earliest).await?;
        let end = ask(At::Latest).await?;
        Ok(ClientError::OutOfRange { topic, partition, offset, start, end })
    }
}

/// Records of a set, from a position on.
#[derive(Debug)]
struct Decoded {
    records: Vec<Record>,
    /// Position behind the batches that were decoded, which may hold no record at their ends: a compacted log keeps the
    /// offsets of what it dropped.
    next: i64,
    /// True when there are bytes, and not even the first batch is whole.
    is_cut_off: bool,
}

/// Decodes batch by batch, so that a damaged batch does not hide those in front of it. The error has the offset of the
/// batch.
fn decode_from(position: i64, set: &Bytes) -> std::result::Result<Decoded, (i64, Refusal)> {
    let mut decoded = Decoded { records: Vec::new(), next: position, is_cut_off: false };
    let mut rest: &[u8] = set;
    let mut taken = 0_usize;
    while !rest.is_empty() && taken < DECODED_BYTES_MAX {
        let Some((whole, tail)) = extent(rest).and_then(|bytes| rest.split_at_checked(bytes)) else {
            decoded.is_cut_off = taken == 0;
            break;
        };
        let base = read_i64(whole, BASE_OFFSET_AT).unwrap_or(position);
        match read_record_set(whole, BATCH_BYTES_MAX) {
            Ok(records) => {
                let size = |record: &Record| record.value.as_ref().map_or(0, Vec::len) + 100;
                taken += records.iter().map(size).sum::<usize>() + 1;
                // A batch may begin in front of the position.
                decoded.records.extend(records.into_iter().filter(|record| record.offset >= position));
            }
            Err(reason) if decoded.next == position => return Err((base, reason)),
            Err(_) => break,
        }
        let last = i64::from(read_i32(whole, LAST_OFFSET_DELTA_AT).unwrap_or(0));
        decoded.next = decoded.next.max(base.saturating_add(last).saturating_add(1));
        rest = tail;
    }
    Ok(decoded)
}

/// Bytes that the first batch takes, if its length is there. A negative length is left to the reader of batches, which
/// refuses it.
fn extent(set: &[u8]) -> Option<usize> {
    let length = read_i32(set, LENGTH_AT)?;
    Some(usize::try_from(length).map_or(set.len(), |length| length.saturating_add(LENGTH_END)))
}

fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().copied().map(i32::from_be_bytes)
}

fn read_i64(bytes: &[u8], at: usize) -> Option<i64> {
    bytes.get(at..)?.first_chunk().copied().map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use milena_records::Codec;
    use milena_records::client::build_batch;

    use super::*;

    fn batch(base_offset: i64, records: usize) -> Vec<u8> {
        let record = Record { timestamp_ms: 1, value: Some(b"v".to_vec()), ..Record::default() };
        let mut batch = build_batch(&vec![record; records], Codec::None, None);
        // The base offset is not under the checksum, because brokers write it.
        batch[..8].copy_from_slice(&base_offset.to_be_bytes());
        batch
    }

    fn offsets(decoded: &Decoded) -> Vec<i64> {
        decoded.records.iter().map(|record| record.offset).collect()
    }

    #[test]
    fn a_batch_that_begins_in_front_of_the_position_is_read_from_the_position_on() {
        let decoded = decode_from(12, &[batch(10, 4), batch(20, 2)].concat().into()).unwrap();
        assert_eq!(offsets(&decoded), [12, 13, 20, 21]);
        assert_eq!(decoded.next, 22);
    }

    #[test]
    fn a_batch_that_is_cut_off_is_left_for_later() {
        let set = [batch(0, 3), batch(3, 3)].concat();
        for len in [set.len() - 1, set.len() / 2 + 1, set.len() / 2 + 11] {
            let decoded = decode_from(0, &Bytes::copy_from_slice(&set[..len])).unwrap();
            assert_eq!((offsets(&decoded), decoded.next, decoded.is_cut_off), (vec![0, 1, 2], 3, false), "{len}");
        }
        let decoded = decode_from(0, &Bytes::copy_from_slice(&set[..30])).unwrap();
        assert_eq!((decoded.next, decoded.is_cut_off), (0, true));
    }

    #[test]
    fn a_damaged_batch_is_an_error_after_those_in_front_of_it() {
        let mut set = [batch(0, 3), batch(3, 3)].concat();
        *set.last_mut().unwrap() ^= 1;
        let decoded = decode_from(0, &Bytes::from(set.clone())).unwrap();
        assert_eq!((offsets(&decoded), decoded.next), (vec![0, 1, 2], 3));
        let second = set.split_off(set.len() / 2);
        let error = decode_from(3, &Bytes::from(second)).unwrap_err();
        assert_eq!(error, (3, Refusal::Corrupt));
    }

    #[test]
    fn nothing_is_nothing() {
        let decoded = decode_from(7, &Bytes::new()).unwrap();
        assert_eq!((decoded.next, decoded.is_cut_off, decoded.records.len()), (7, false, 0));
    }
}
