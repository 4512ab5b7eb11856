//! A producer that batches, and retries without doubling.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::produce_response::PartitionProduceResponse;
use milena_wire::kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest};
use tokio::time::{Instant, sleep};

use super::cluster::topic_name;
use super::{Client, ClientError, Result};

/// Bytes that a record takes in a batch beside key, value and headers; each header takes about as much as well.
const RECORD_OVERHEAD: usize = 24;
/// Bytes of all batches together that are held before they are sent.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Time that a leader is given to store a batch, in ms.
const STORE_MS: i32 = 30_000;
/// First and longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How records are produced.
#[derive(Debug, Clone)]
pub struct ProducerSettings {
    /// When a batch counts as stored: -1 as the cluster promises, 1 by its leader, 0 without an answer.
    pub acks: i16,
    /// Compression of batches.
    pub codec: Codec,
    /// Size at which a batch is sent, in bytes before compression. Kafka's topics take 1 MiB unless configured otherwise.
    pub batch_bytes: usize,
    /// Gives each batch a sequence number, so that a retry is stored once. Without it, a lost connection is an error,
    /// because the batch may be stored or not.
    pub idempotent: bool,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self { acks: -1, codec: Codec::None, batch_bytes: 1_000_000, idempotent: true }
    }
}

/// Records that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Partition.
    pub partition: i32,
    /// Offset of the first; `None` with acks 0, and where an earlier try was stored and the server does not say where.
    pub base_offset: Option<i64>,
    /// How many.
    pub records: usize,
}

/// Records of one partition on their way into a batch.
#[derive(Debug, Default)]
struct Gathering {
    records: Vec<Record>,
    bytes: usize,
}

/// A batch that is built, and is sent until it is acknowledged. Its bytes stay the same, which is what makes a retry
/// recognizable.
#[derive(Debug)]
struct Sealed {
    batch: Bytes,
    records: usize,
}

/// Produces to one topic. Call [`Producer::flush`] at the end: what is not flushed is not stored.
#[derive(Debug)]
pub struct Producer<'c> {
    client: &'c mut Client,
    topic: String,
    settings: ProducerSettings,
    identity: Option<(i64, i16)>,
    sequences: BTreeMap<i32, i32>,
    gathering: BTreeMap<i32, Gathering>,
    held_bytes: usize,
    partitions: Vec<i32>,
    keyless: usize,
}

impl Client {
    /// A producer to a topic that exists.
    ///
    /// # Errors
    /// When there is no such topic, or the cluster does not answer.
    pub async fn producer(&mut self, topic: &str, settings: ProducerSettings) -> Result<Producer<'_>> {
        let partitions = self.partitions_or_all(topic, &[]).await?;
        let identity = if settings.idempotent && settings.acks == -1 { self.producer_id().await? } else { None };
        Ok(Producer {
            client: self,
            topic: topic.to_owned(),
            settings,
            identity,
            sequences: BTreeMap::new(),
            gathering: BTreeMap::new(),
            held_bytes: 0,
            partitions,
            keyless: 0,
        })
    }

    /// A producer id; none where the cluster does not give any.
    async fn producer_id(&mut self) -> Result<Option<(i64, i16)>> {
        let request =
            InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(i32::MAX);
        let answer = match self.any(&request).await {
            Ok(answer) => answer,
            Err(ClientError::Unsupported { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok(Some((answer.producer_id.0, answer.producer_epoch))),
            Some(code) => Err(ClientError::refused("no producer id was given", code, None)),
        }
    }
}

impl Producer<'_> {
    /// Adds a record, and sends what has become a full batch. Without a partition the key decides, as it does in Kafka's
    /// Java client; records without a key go to one partition after the other, a batch at a time.
    ///
    /// # Errors
    /// When there is no such partition, or a batch could not be stored.
    pub async fn send(&mut self, record: Record, partition: Option<i32>) -> Result<Vec<Acknowledged>> {
        let partition = self.choose(&record, partition)?;
        let bytes = size_of(&record);
        let gathered = self.gathering.get(&partition).map_or(0, |gathering| gathering.bytes);
        let full = gathered > 0 && gathered.saturating_add(bytes) > self.settings.batch_bytes;
        let acknowledged = if full || self.held_bytes > HELD_BYTES_MAX { self.flush().await? } else { Vec::new() };
        let gathering = self.gathering.entry(partition).or_default();
        gathering.records.push(record);
        gathering.bytes += bytes;
        self.held_bytes += bytes;
        Ok(acknowledged)
    }

    /// Sends everything, and returns when it is stored.
    ///
    /// # Errors
    /// When a batch was refused, or could not be stored in time; batches of other partitions may be stored or not.
    pub async fn flush(&mut self) -> Result<Vec<Acknowledged>> {
        if !self.gathering.is_empty() {
            self.keyless = self.keyless.wrapping_add(1);
        }
        self.held_bytes = 0;
        let gathering = std::mem::take(&mut self.gathering);
        let mut sealed: BTreeMap<i32, Sealed> = BTreeMap::new();
        for (partition, gathering) in gathering {
            let records = gathering.records.len();
            let stamp = self.stamp(partition, records);
            let batch = Bytes::from(build_batch(&gathering.records, self.settings.codec, stamp));
            sealed.insert(partition, Sealed { batch, records });
        }
        let mut acknowledged = Vec::with_capacity(sealed.len());
        let deadline = Instant::now() + self.client.settings().retry_timeout;
        let mut pause = PAUSES.0;
        while let Err(error) = self.deliver(&mut sealed, &mut acknowledged).await {
            if !self.may_retry(&error) || Instant::now() + pause > deadline {
                return Err(error);
            }
            self.client.forget(&self.topic);
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        Ok(acknowledged)
    }

    /// A refusal with a retriable code stored nothing. After a lost connection nobody knows, and only a sequence number
    /// keeps the next try from doubling.
    fn may_retry(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Refused { code: ResponseError::RequestTimedOut, .. }
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. } => self.identity.is_some(),
            error => error.is_retriable(),
        }
    }

    /// One try for all batches that are left; moves those that are stored from `sealed` to `acknowledged`.
    async fn deliver(
        &mut self,
        sealed: &mut BTreeMap<i32, Sealed>,
        acknowledged: &mut Vec<Acknowledged>,
    ) -> Result<()> {
        let mut by_leader: BTreeMap<i32, Vec<PartitionProduceData>> = BTreeMap::new();
        for (&partition, batch) in &*sealed {
            let leader = self.client.leader(&self.topic, partition).await?;
            let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.batch.clone()));
            by_leader.entry(leader).or_default().push(data);
        }
        let requests: Vec<_> = by_leader.into_iter().map(|(leader, data)| (leader, self.request(data))).collect();
        if self.settings.acks == 0 {
            for (leader, request) in &requests {
                self.client.silently_at(*leader, request).await?;
            }
            let sent = std::mem::take(sealed).into_iter();
            acknowledged.extend(sent.map(|(partition, batch)| Acknowledged {
                partition,
                base_offset: None,
                records: batch.records,
            }));
            return Ok(());
        }
        let answers = self.client.at_all(&requests).await?;
        let mut failed = None;
        for result in answers.iter().flat_map(|answer| &answer.responses).flat_map(|topic| &topic.partition_responses) {
            match self.stored(result) {
                Ok(base_offset) => {
                    if let Some(batch) = sealed.remove(&result.index) {
                        let records = batch.records;
                        acknowledged.push(Acknowledged { partition: result.index, base_offset, records });
                    }
                }
                // One that cannot be retried is reported before one that can.
                Err(error) if failed.as_ref().is_none_or(|failed| self.may_retry(failed)) => failed = Some(error),
                Err(_) => {}
            }
        }
        match failed {
            Some(error) => Err(error),
            None if sealed.is_empty() => Ok(()),
            None => {
                let what = format!("nothing was said about a batch for topic `{}`", self.topic);
                Err(ClientError::refused(what, ResponseError::UnknownServerError, None))
            }
        }
    }

    fn request(&self, data: Vec<PartitionProduceData>) -> ProduceRequest {
        let topic = TopicProduceData::default().with_name(topic_name(&self.topic)).with_partition_data(data);
        ProduceRequest::default()
            .with_transactional_id(None)
            .with_acks(self.settings.acks)
            .with_timeout_ms(STORE_MS)
            .with_topic_data(vec![topic])
    }

    /// The first offset of a stored batch.
    fn stored(&self, result: &PartitionProduceResponse) -> Result<Option<i64>> {
        match ResponseError::try_from_code(result.error_code) {
            None => Ok(Some(result.base_offset).filter(|&offset| offset >= 0)),
            // An earlier try was stored, too long ago for the server to remember its offset.
            Some(ResponseError::DuplicateSequenceNumber) => Ok(None),
            Some(code) => {
                let what = format!("a batch for `{}`-{} was not stored", self.topic, result.index);
                let detail = result.record_errors.iter().find_map(|error| error.batch_index_error_message.as_deref());
                Err(ClientError::refused(what, code, result.error_message.as_deref().or(detail)))
            }
        }
    }

    fn stamp(&mut self, partition: i32, records: usize) -> Option<ProducerStamp> {
        let (producer_id, epoch) = self.identity?;
        let sequence = self.sequences.entry(partition).or_insert(0);
        let base_sequence = *sequence;
        // 0 follows the largest number.
        *sequence = base_sequence.wrapping_add(i32::try_from(records).unwrap_or(0)) & i32::MAX;
        Some(ProducerStamp { producer_id, epoch, base_sequence })
    }

    fn choose(&self, record: &Record, partition: Option<i32>) -> Result<i32> {
        let count = self.partitions.len();
        if let Some(partition) = partition {
            let known = self.partitions.contains(&partition);
            return known.then_some(partition).ok_or_else(|| ClientError::NoPartition {
                topic: self.topic.clone(),
                partition,
                count,
            });
        }
        let place = match &record.key {
            Some(key) => partition_hash(key) as usize,
            None => self.keyless,
        };
        let chosen = place.checked_rem(count).and_then(|place| self.partitions.get(place));
        chosen.copied().ok_or_else(|| ClientError::NoTopic { topic: self.topic.clone() })
    }
}

fn size_of(record: &Record) -> usize {
    let part = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + part(value) + RECORD_OVERHEAD).sum();
    part(&record.key) + part(&record.value) + headers + RECORD_OVERHEAD
}

/// What Kafka's Java client makes of a key: murmur2 (32 bits, its seed) without the sign.
fn partition_hash(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut hash = 0x9747_b28c ^ len;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (&byte, shift) in rest.iter().zip([0, 8, 16]) {
            hash ^= u32::from(byte) << shift;
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    hash & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_in_kafkas_java_client() {
        // Values of that client's own tests, without the sign.
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("abc", 479_470_107),
        ] {
            assert_eq!(partition_hash(key.as_bytes()), hash.cast_unsigned() & 0x7fff_ffff, "{key}");
        }
    }
}
