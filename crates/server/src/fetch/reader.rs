//! One pass over the wanted partitions.
//!
//! Partitions are read one after the other, under one byte budget: what an earlier one used is not there for a later one.
//! A partition at its end costs no read, only a look at its bounds.

use std::sync::Arc;
use std::time::Duration;

use milena_records::{Encoded, FetchOptions, encode_empty, encode_entries};
use milena_store::{Bounds, Entry, Epochs, PartitionRef, ReadLimit, Store, StoreError};
use milena_wire::kafka_protocol::ResponseError;

use super::arena::{Arena, BufferPool, Slice};
use super::compressors::Compressors;
use super::leader_epoch::{self, NO_EPOCH, kafka_epoch};
use super::room::{Held, Room};
use super::want::{PartitionKey, Position, TopicKey, Want};
use crate::codes;
use crate::topics::{Topic, TopicDirectory};

/// Below it not even one record fits into a batch, so nothing is read for it.
const SMALLEST_BATCH_BYTES: usize = 61 + 7;

/// A rest of the response's budget that is not worth reading a whole stored entry for.
const SMALLEST_REST_BYTES: usize = 1024;

/// Partitions looked at before other tasks get a turn.
const PARTITIONS_PER_TURN: usize = 512;

/// Reads that may pass over unreadable messages in one request.
const UNREADABLE_READS_MAX: usize = 64;

/// Bytes encoded before other tasks get a turn.
const BYTES_PER_TURN: usize = 2 << 20;

/// What a fetch needs to know of topics.
pub trait Topics: Sync {
    /// The topic of that key, from memory.
    fn topic(&self, key: &TopicKey) -> Option<Arc<Topic>>;

    /// Somebody was told that there is no such topic or partition, and will come again.
    fn look_soon(&self);
}

impl Topics for TopicDirectory {
    fn topic(&self, key: &TopicKey) -> Option<Arc<Topic>> {
        match key {
            TopicKey::Name(name) => self.by_name(name),
            TopicKey::Id(id) => self.by_id(*id),
        }
    }

    fn look_soon(&self) {
        self.look_soon();
    }
}

/// A wanted partition that exists.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its topic.
    pub topic: Arc<Topic>,
    /// Where the store has it.
    pub at: PartitionRef,
}

/// Finds the topics of `wants`; the error is the answer of a partition that does not exist.
pub fn resolve(topics: &impl Topics, wants: &[Want]) -> Vec<Result<Target, ResponseError>> {
    let mut last: Option<(&TopicKey, Option<Arc<Topic>>)> = None;
    let mut targets = Vec::with_capacity(wants.len());
    for Want { key, .. } in wants {
        let known = match &last {
            Some((topic_key, topic)) if **topic_key == key.topic => topic.clone(),
            _ => topics.topic(&key.topic),
        };
        targets.push(target(key, known.clone()));
        last = Some((&key.topic, known));
    }
    targets
}

/// The partition of `topic` that `key` names.
///
/// # Errors
/// What a client is told when there is none.
pub fn target(key: &PartitionKey, topic: Option<Arc<Topic>>) -> Result<Target, ResponseError> {
    let topic = topic.ok_or_else(|| unknown_topic(&key.topic))?;
    let partition = u32::try_from(key.partition).ok().filter(|partition| *partition < topic.partitions);
    let partition = partition.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let at = topic.store.partition(partition);
    Ok(Target { topic, at })
}

/// A client that asked by id looks the topic up again on 100, and would take 3 for a name it never sent.
fn unknown_topic(key: &TopicKey) -> ResponseError {
    match key {
        TopicKey::Name(_) => ResponseError::UnknownTopicOrPartition,
        TopicKey::Id(_) => ResponseError::UnknownTopicId,
    }
}

/// The answer for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Error code, if it failed.
    pub error: Option<ResponseError>,
    /// Next offset to be written, -1 unknown.
    pub high_watermark: i64,
    /// First retained offset, -1 unknown.
    pub log_start: i64,
    /// Epoch and end offset of what the reader holds, when its position lies behind that.
    pub diverging: Option<(i32, i64)>,
    /// Where its records are.
    pub records: Slice,
}

impl Answer {
    fn failed(error: ResponseError) -> Self {
        Self { error: Some(error), high_watermark: -1, log_start: -1, diverging: None, records: Slice::default() }
    }

    fn with_bounds(bounds: &Bounds, error: Option<ResponseError>) -> Self {
        Self {
            error,
            high_watermark: kafka_offset(bounds.end),
            log_start: kafka_offset(bounds.start),
            diverging: None,
            records: Slice::default(),
        }
    }

    /// True when the client must hear of it at once, whether or not there are records.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.error.is_some() || self.diverging.is_some()
    }
}

/// An offset as Kafka writes it; offsets never come near the end of either range.
#[must_use]
pub fn kafka_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// The result of one pass.
pub struct Pass {
    /// One answer per want.
    pub answers: Vec<Answer>,
    /// The records of all answers.
    pub arena: Arena,
    /// Room that the records take.
    pub held: Held,
    /// What was written.
    pub counts: Counts,
    /// Answers that are errors.
    pub errors: usize,
    /// True when an answer must not wait for records: an error, or a position that diverges.
    pub has_news: bool,
    /// Time that the fetch slept, waiting for data.
    pub slept: Duration,
}

/// What a pass wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records.
    pub records: u64,
    /// Messages delivered as they are stored, because a marker or their header block is malformed.
    pub unmapped: u64,
    /// Header names in which bytes that are not UTF-8 were replaced.
    pub lossy_names: u64,
}

impl Counts {
    fn add(&mut self, encoded: &Encoded) {
        self.records += u64::from(encoded.records);
        self.unmapped += u64::from(encoded.unmapped);
        self.lossy_names += u64::from(encoded.lossy_names);
    }
}

/// Bounds of a pass.
#[derive(Debug, Clone, Copy)]
pub struct PassLimits {
    /// The partition that is read first, counted round and round; those in front of it are read last.
    pub first: usize,
    /// Bytes of records in all, but for the first one.
    pub bytes: usize,
    /// True on a multi-thread runtime, where a thread may say that it is busy.
    pub threads_can_block: bool,
}

/// Where a pass puts its records.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// Buffers to write into.
    pub pool: &'a Arc<BufferPool>,
    /// Room for them.
    pub room: &'a Room,
    /// Places of those that compress much.
    pub compressors: &'a Compressors,
}

/// Reads the wanted partitions.
pub async fn read(
    store: &dyn Store,
    wants: &[Want],
    targets: &[Result<Target, ResponseError>],
    limits: PassLimits,
    memory: Memory<'_>,
) -> Pass {
    let arena = Arena::new(Arc::clone(memory.pool));
    let (held, counts) = (Held::default(), Counts::default());
    let mut reader = Reader { store, limits, memory, arena, held, counts };
    let mut answers = Vec::with_capacity(wants.len());
    let mut turn_ends_at = BYTES_PER_TURN;
    let first = limits.first.checked_rem(wants.len()).unwrap_or(0);
    let in_turn = wants.iter().zip(targets).cycle().skip(first).take(wants.len());
    for (index, (want, target)) in in_turn.enumerate() {
        if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1 || reader.arena.len() >= turn_ends_at {
            tokio::task::yield_now().await;
            turn_ends_at = reader.arena.len() + BYTES_PER_TURN;
        }
        answers.push(match target {
            Ok(target) => reader.partition(want, target).await,
            Err(error) => Answer::failed(*error),
        });
    }
    answers.rotate_right(first);
    let errors = answers.iter().filter(|answer| answer.error.is_some()).count();
    let has_news = answers.iter().any(Answer::is_news);
    let (arena, held, counts) = (reader.arena, reader.held, reader.counts);
    Pass { answers, arena, held, counts, errors, has_news, slept: Duration::ZERO }
}

/// True when a partition is no longer as the pass saw it: it grew, was trimmed, or cannot be asked.
pub async fn moved(store: &dyn Store, targets: &[Result<Target, ResponseError>], pass: &Pass) -> bool {
    for (index, (target, answer)) in targets.iter().zip(&pass.answers).enumerate() {
        if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        let Ok(target) = target else { continue };
        match store.bounds(&target.at).await {
            Ok(Bounds { start, end })
                if kafka_offset(end) == answer.high_watermark && kafka_offset(start) == answer.log_start => {}
            _ => return true,
        }
    }
    false
}

struct Reader<'a> {
    store: &'a dyn Store,
    limits: PassLimits,
    memory: Memory<'a>,
    arena: Arena,
    held: Held,
    counts: Counts,
}

impl Reader<'_> {
    async fn partition(&mut self, want: &Want, target: &Target) -> Answer {
        let bounds = match self.store.bounds(&target.at).await {
            Ok(bounds) => bounds,
            Err(error) => return refused(want, target, &error),
        };
        let epochs = self.store.epochs(&target.at);
        if let Err(error) = leader_epoch::check(want.position.leader_epoch, &epochs) {
            return Answer::with_bounds(&bounds, Some(error));
        }
        if want.position.fetched_epoch != NO_EPOCH
            && let Some(answer) = diverging(want.position, &epochs, &bounds)
        {
            return answer;
        }
        let inside = |offset: &u64| (bounds.start..=bounds.end).contains(offset);
        let Some(from) = u64::try_from(want.position.offset).ok().filter(inside) else {
            return Answer::with_bounds(&bounds, Some(ResponseError::OffsetOutOfRange));
        };
        let mut answer = Answer::with_bounds(&bounds, None);
        let Some(limit) = self.limit(want.position) else { return answer };
        if from == bounds.end {
            return answer;
        }
        let mut taken = self.memory.room.take(limit);
        if taken.bytes() < limit && !self.arena.is_empty() && taken.bytes() < SMALLEST_REST_BYTES {
            // Too little room is left: the client asks again for what it did not get.
            return answer;
        }
        let before = self.arena.len();
        if let Err(error) = self.records(target, from, limit.min(taken.bytes()), &epochs, &mut answer).await {
            answer = refused(want, target, &error);
        }
        taken.shrink(self.arena.len() - before);
        self.held.merge(taken);
        answer
    }

    /// Reads and encodes records from `from` on.
    ///
    /// An entry of which nothing can be read there (its frames are damaged below a valid checksum, or were cut out) is passed
    /// over: an empty answer would hold the consumer at that offset for ever. Where no record follows, a batch without any is
    /// the answer, so that a consumer that reads up to the end gets there.
    async fn records(
        &mut self,
        target: &Target,
        mut from: u64,
        limit: usize,
        epochs: &Epochs,
        answer: &mut Answer,
    ) -> Result<(), StoreError> {
        // A stored entry is read whole: its checksum covers all of it, and the cut at a record comes later.
        let limits = ReadLimit { bytes: limit, at_least_one: true };
        let position = from;
        let mut epoch = 0;
        for _ in 0..UNREADABLE_READS_MAX {
            let entries = self.store.read(&target.at, from, limits).await?;
            let (of_all, entries) = of_one_epoch(&entries, from, epochs);
            epoch = of_all;
            let Some(last) = entries.last() else { break };
            let behind = last.base_offset.saturating_add(u64::from(last.count));
            let may_be_cut = !self.arena.is_empty();
            let options = FetchOptions {
                from,
                max_bytes: limit,
                at_least_one: self.arena.is_empty(),
                timestamp_type: target.topic.config.timestamp_type,
                compression: target.topic.config.fetch_compression,
                leader_epoch: kafka_epoch(epoch),
            };
            if self.encode(entries, &options, answer).await || may_be_cut {
                return Ok(());
            }
            if entries.iter().any(|entry| !entry.frames.is_empty()) {
                tracing::error!(partition = ?target.at, from, behind, "stored messages cannot be read and are passed over");
            }
            let is_last = behind <= from || kafka_offset(behind) >= answer.high_watermark;
            from = from.max(behind);
            if is_last {
                break;
            }
        }
        if from > position {
            self.pass_over(position, from, epoch, answer);
        }
        Ok(())
    }

    /// Answers the offsets from `from` up to `behind` with a batch that has no records.
    fn pass_over(&mut self, from: u64, behind: u64, epoch: u32, answer: &mut Answer) {
        let write = |out: &mut Vec<u8>| encode_empty(from, behind, kafka_epoch(epoch), out);
        let (records, encoded) = self.arena.append(SMALLEST_BATCH_BYTES, write);
        answer.high_watermark = answer.high_watermark.max(kafka_offset(encoded.next_offset));
        answer.records = records;
    }

    /// Bytes that this partition may have; `None` when there is no use in reading it.
    fn limit(&self, position: Position) -> Option<usize> {
        let wanted = usize::try_from(position.max_bytes).unwrap_or(0);
        if self.arena.is_empty() {
            return Some(wanted.min(self.limits.bytes));
        }
        let rest = self.limits.bytes.saturating_sub(self.arena.len());
        let limit = wanted.min(rest);
        (limit >= SMALLEST_BATCH_BYTES && rest >= SMALLEST_REST_BYTES).then_some(limit)
    }

    /// True when at least one record was written.
    async fn encode(&mut self, entries: &[Entry], options: &FetchOptions, answer: &mut Answer) -> bool {
        let stored: usize = entries.iter().map(|entry| entry.frames.len()).sum();
        let place = self.memory.compressors.place(options.compression, stored).await;
        let expected = stored.min(options.max_bytes.max(SMALLEST_REST_BYTES)) + 2 * SMALLEST_BATCH_BYTES;
        let arena = &mut self.arena;
        let mut append = || arena.append(expected, |out| encode_entries(entries, options, out));
        let may_block = place.is_some() && self.limits.threads_can_block;
        let (records, encoded) = if may_block { tokio::task::block_in_place(append) } else { append() };
        drop(place);
        self.counts.add(&encoded);
        if encoded.records == 0 {
            return false;
        }
        // What was appended since the look at the bounds may be among the records: no record lies above the watermark.
        answer.high_watermark = answer.high_watermark.max(kafka_offset(encoded.next_offset));
        answer.records = records;
        true
    }
}

/// The answer to a replica whose log and ours went different ways (KIP-595); `None` when they did not.
fn diverging(position: Position, epochs: &Epochs, bounds: &Bounds) -> Option<Answer> {
    let Some((epoch, end)) = leader_epoch::end_of(position.fetched_epoch, epochs, bounds.end) else {
        return Some(Answer::with_bounds(bounds, Some(ResponseError::OffsetOutOfRange)));
    };
    let diverges = epoch < position.fetched_epoch || end < position.offset;
    diverges.then(|| Answer { diverging: Some((epoch, end)), ..Answer::with_bounds(bounds, None) })
}

/// The epoch of the message at `from`, and those of the entries that are of it: one batch tells one epoch, by which a
/// consumer knows later whether what it read is still there.
fn of_one_epoch<'a>(entries: &'a [Entry], from: u64, epochs: &Epochs) -> (u32, &'a [Entry]) {
    let (epoch, next) = epochs.at(from);
    let count = next.map_or(entries.len(), |next| entries.partition_point(|entry| entry.base_offset < next));
    (epoch, entries.get(..count).unwrap_or(entries))
}

fn refused(want: &Want, target: &Target, error: &StoreError) -> Answer {
    match error {
        // The topic went away while it was being read.
        StoreError::NotFound { .. } => Answer::failed(unknown_topic(&want.key.topic)),
        StoreError::OutOfRange { bounds } => Answer::with_bounds(bounds, Some(codes::of_store(error))),
        StoreError::Broken { context } => {
            tracing::error!(partition = ?target.at, offset = want.position.offset, context, "cannot read");
            Answer::failed(codes::of_store(error))
        }
        _ => Answer::failed(codes::of_store(error)),
    }
}
