//! A Produce request as a plan: what is refused at once, what is written where, and the answer that grows with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use milena_records::Refusal;
use milena_store::PartitionRef;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::produce_request::TopicProduceData;
use milena_wire::kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use milena_wire::kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{AppendError, Entry, Prepared, Produce, Stored};
use crate::codes;
use crate::handlers::init_producer_id::is_transactional;
use crate::topics::Topic;

/// Partitions of one request that are written at a time.
const CONCURRENT_PARTITIONS: usize = 512;
/// Compressed bytes of a request that are decompressed on an async thread.
const INLINE_COMPRESSED_BYTES: usize = 2 << 10;
/// Bounds of the client's timeout. Some clients send 0 or a few ms: they mean replication, which does not happen here.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(120);

/// Finds a topic; the error is the code of all its partitions.
pub type Lookup<'a> = dyn Fn(&TopicProduceData) -> Result<Arc<Topic>, ResponseError> + 'a;

/// A request whose batches were checked and mapped.
#[derive(Debug)]
pub struct Plan {
    acks: i16,
    timeout: Duration,
    partitions: usize,
    unknown: bool,
    topics: Vec<TopicProduceResponse>,
    jobs: Vec<Job>,
    /// Room for the frames, given back when all are written.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// What came of mapping a request.
#[derive(Debug)]
pub enum Mapped {
    /// All of it was mapped.
    Whole(Plan),
    /// Nothing was: these producers are not known here, and may be those of another gateway.
    Strangers {
        /// Their ids.
        ids: Vec<u64>,
        /// The request.
        request: Box<ProduceRequest>,
    },
}

impl Mapped {
    /// The plan, when all of the request was mapped.
    #[must_use]
    pub fn into_plan(self) -> Option<Plan> {
        match self {
            Self::Whole(plan) => Some(plan),
            Self::Strangers { .. } => None,
        }
    }
}

/// A batch to be written, and where its answer goes.
#[derive(Debug)]
struct Job {
    slot: Slot,
    at: PartitionRef,
    prepared: Prepared,
}

/// Index of the topic in the answer, and of the partition within it.
type Slot = (usize, usize);

impl Plan {
    /// Checks and maps what the request holds. Runs for as long as its bytes take, and must not run on an async thread
    /// when they are many.
    #[must_use]
    pub fn new(produce: &Produce, lookup: &Lookup<'_>, request: ProduceRequest, version: i16) -> Self {
        let mut builder = Builder {
            version,
            text_bytes: produce.settings().error_text_bytes,
            refused: 0,
            unknown: false,
            entries: Vec::new(),
        };
        let refused = match request.acks {
            -1..=1 if is_transactional(request.transactional_id.as_ref()) => Some(ResponseError::UnsupportedVersion),
            -1..=1 => None,
            _ => Some(ResponseError::InvalidRequiredAcks),
        };
        let topics = request.topic_data.into_iter().enumerate();
        let mut topics: Vec<_> = topics.map(|(index, topic)| builder.topic(lookup, refused, index, topic)).collect();
        let (slots, entries): (Vec<_>, Vec<_>) = std::mem::take(&mut builder.entries).into_iter().unzip();
        let mut jobs = Vec::with_capacity(entries.len());
        let prepared = produce.prepare(&entries, version >= 7);
        for ((slot, entry), prepared) in slots.into_iter().zip(entries).zip(prepared) {
            match prepared {
                Ok(prepared) => {
                    jobs.push(Job { slot, at: entry.topic.store.partition(entry.partition), prepared });
                }
                Err(refusal) => builder.refuse(&mut topics, slot, &refusal),
            }
        }
        produce.metrics().refused.add(builder.refused);
        let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        Self {
            acks: request.acks,
            timeout: timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX),
            partitions: topics.iter().map(|topic| topic.partition_responses.len()).sum(),
            unknown: builder.unknown,
            topics,
            jobs,
            room: None,
        }
    }

    /// True when the client expects no answer, not even an error.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.acks == 0
    }

    /// True when it names a topic or a partition that is not known.
    #[must_use]
    pub fn names_unknown(&self) -> bool {
        self.unknown
    }

    /// Number of partition entries of the request.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Bytes of mapped frames.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.jobs.iter().map(|job| job.prepared.batch.frames.len()).sum()
    }

    /// Writes the batches and completes the answer.
    pub async fn run(mut self, produce: &Produce) -> ProduceResponse {
        let deadline = Instant::now() + self.timeout;
        let jobs = std::mem::take(&mut self.jobs);
        if jobs.len() <= 1 {
            for written in write_in_turn(produce, jobs, deadline).await {
                self.note(&written);
            }
            return ProduceResponse::default().with_responses(self.topics);
        }
        let mut writes = stream::iter(by_partition(jobs))
            .map(|jobs| write_in_turn(produce, jobs, deadline))
            .buffer_unordered(CONCURRENT_PARTITIONS);
        while let Some(results) = writes.next().await {
            for result in results {
                self.note(&result);
            }
        }
        drop(writes);
        ProduceResponse::default().with_responses(self.topics)
    }

    fn note(&mut self, written: &Written) {
        let slot = self.topics.get_mut(written.slot.0);
        let Some(answer) = slot.and_then(|topic| topic.partition_responses.get_mut(written.slot.1)) else { return };
        match &written.result {
            Ok(stored) => {
                answer.error_code = 0;
                answer.base_offset = stored.base_offset.map_or(-1, kafka_offset);
                answer.log_start_offset = stored.log_start.map_or(-1, kafka_offset);
                let append_time = stored.append_time_micros.filter(|_| written.tells_append_time);
                answer.log_append_time_ms = append_time.map_or(-1, |micros| kafka_offset(micros / 1_000));
            }
            Err(error) => answer.error_code = codes::of_append(error).code(),
        }
    }
}

struct Written {
    slot: Slot,
    tells_append_time: bool,
    result: Result<Stored, AppendError>,
}

/// The jobs of each partition together, in the request's order: a partition that is named twice is written in that
/// order.
fn by_partition(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut index = HashMap::with_capacity(jobs.len());
    let mut groups: Vec<Vec<Job>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let at = *index.entry(job.at.clone()).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups
}

async fn write_in_turn(produce: &Produce, jobs: Vec<Job>, deadline: Instant) -> Vec<Written> {
    let mut results = Vec::with_capacity(jobs.len());
    for Job { slot, at, prepared } in jobs {
        let tells_append_time = prepared.tells_append_time;
        let result = produce.append(&at, prepared, deadline).await;
        if let Err(error) = &result {
            produce.metrics().refused.add(1);
            produce.note_trouble(&at, error);
        }
        results.push(Written { slot, tells_append_time, result });
    }
    results
}

struct Builder {
    version: i16,
    /// Bytes of words that the answer may still hold.
    text_bytes: usize,
    refused: u64,
    unknown: bool,
    entries: Vec<(Slot, Entry)>,
}

impl Builder {
    fn topic(
        &mut self,
        lookup: &Lookup<'_>,
        refused: Option<ResponseError>,
        index: usize,
        topic: TopicProduceData,
    ) -> TopicProduceResponse {
        let found = refused.map_or_else(|| lookup(&topic), Err);
        let mut answers = Vec::with_capacity(topic.partition_data.len());
        for (at, data) in topic.partition_data.into_iter().enumerate() {
            let entry = match &found {
                Ok(topic) => match u32::try_from(data.index).ok().filter(|index| *index < topic.partitions) {
                    Some(partition) => match data.records {
                        Some(records) => Ok(Entry { topic: Arc::clone(topic), partition, records }),
                        None => Err(ResponseError::InvalidRecord),
                    },
                    None => Err(ResponseError::UnknownTopicOrPartition),
                },
                Err(error) => Err(*error),
            };
            let mut answer = unwritten(data.index);
            match entry {
                Ok(entry) => self.entries.push(((index, at), entry)),
                Err(error) => {
                    answer.error_code = error.code();
                    self.refused += 1;
                    self.unknown |= is_unknown(error);
                }
            }
            answers.push(answer);
        }
        TopicProduceResponse::default()
            .with_name(topic.name)
            .with_topic_id(topic.topic_id)
            .with_partition_responses(answers)
    }

    fn refuse(&mut self, topics: &mut [TopicProduceResponse], slot: Slot, refusal: &Refusal) {
        let topic = topics.get_mut(slot.0);
        let Some(answer) = topic.and_then(|topic| topic.partition_responses.get_mut(slot.1)) else { return };
        answer.error_code = codes::of_refusal(refusal).code();
        self.refused += 1;
        // Older versions have no place for words.
        if self.version < 8 {
            return;
        }
        let message = StrBytes::from_string(refusal.to_string());
        let Some(left) = self.text_bytes.checked_sub(message.len()) else { return };
        self.text_bytes = left;
        for &index in refused_records(refusal) {
            let Some(left) = self.text_bytes.checked_sub(message.len()) else { break };
            self.text_bytes = left;
            let record = BatchIndexAndErrorMessage::default()
                .with_batch_index(index.cast_signed())
                .with_batch_index_error_message(Some(message.clone()));
            answer.record_errors.push(record);
        }
        answer.error_message = Some(message);
    }
}

/// Indexes of the records that a batch is refused for. Clients fail these with the code of the batch, and the others of
/// the batch with an error that says they were sent along with such ones.
fn refused_records(refusal: &Refusal) -> &[u32] {
    match refusal {
        Refusal::InvalidRecord { index, .. } => index.as_slice(),
        Refusal::KeyMissing { indexes } | Refusal::InvalidTimestamp { indexes, .. } => indexes,
        _ => &[],
    }
}

/// True for the answers of topics and partitions that another gateway may know.
fn is_unknown(error: ResponseError) -> bool {
    matches!(error, ResponseError::UnknownTopicOrPartition | ResponseError::UnknownTopicId)
}

/// The answer for a partition as long as nothing is written.
fn unwritten(index: i32) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(ResponseError::UnknownServerError.code())
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1)
}

fn kafka_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// True when the compressed batches of a request need a thread of their own: a few bytes of zstd can stand for hundreds
/// of megabytes. The other codecs expand a thousandfold at most, so a small batch costs less than the way to a thread.
#[must_use]
pub fn is_heavy(request: &ProduceRequest) -> bool {
    // Low byte of the attributes of a record batch v2; its lowest three bits are the codec.
    const ATTRIBUTES: usize = 22;
    const CODEC: u8 = 0b111;
    const ZSTD: u8 = 4;
    let mut compressed_bytes = 0;
    for partition in request.topic_data.iter().flat_map(|topic| &topic.partition_data) {
        let records = partition.records.as_deref().unwrap_or_default();
        match records.get(ATTRIBUTES).map_or(0, |attributes| attributes & CODEC) {
            0 => {}
            ZSTD => return true,
            _ => compressed_bytes += records.len(),
        }
    }
    compressed_bytes > INLINE_COMPRESSED_BYTES
}
