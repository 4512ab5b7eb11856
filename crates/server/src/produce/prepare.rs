//! From the bytes of a partition entry to a batch for the store: checks and mapping. No waiting, no store.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use milena_records::{
    BatchHeader, BatchLimits, Budget, Codec, MessageIds, ProduceRules, ProducerSequence, Refusal, Scratch,
    TimestampType, check_batch, map_batch,
};
use milena_store::{AppendBatch, Capabilities, ProducerSpan};

use super::append::Prepared;
use super::dedup::Batch;
use super::pool::FramePool;
use super::sequence::Span;
use crate::config::Idempotence;
use crate::topics::{Topic, TopicConfig};

/// A partition entry whose topic and partition exist.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its topic.
    pub topic: Arc<Topic>,
    /// Its partition.
    pub partition: u32,
    /// The record batch as the client sent it.
    pub records: Bytes,
}

/// What does not change from entry to entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapLimits {
    pub(super) idempotence: Idempotence,
    pub(super) timestamp_span_micros: Option<u64>,
    pub(super) payload_bytes_max: usize,
    pub(super) header_bytes_max: usize,
    pub(super) foreign_writers: bool,
}

impl MapLimits {
    pub(super) fn new(idempotence: Idempotence, store: &Capabilities) -> Self {
        Self {
            idempotence,
            timestamp_span_micros: store.timestamp_span_micros,
            payload_bytes_max: store.payload_bytes_max,
            header_bytes_max: store.header_bytes_max,
            foreign_writers: store.foreign_writers,
        }
    }
}

/// One request's mapping.
pub(super) struct Mapper<'a> {
    pub(super) limits: &'a MapLimits,
    pub(super) pool: &'a FramePool,
    pub(super) budget: Budget,
    pub(super) scratch: Scratch,
    /// False below Produce v7.
    pub(super) zstd_allowed: bool,
    /// The wall clock in ms, which bounds of record timestamps are counted from.
    pub(super) now_ms: i64,
    /// Whether a producer id was ever given out.
    pub(super) given_out: &'a dyn Fn(u64) -> bool,
}

impl Mapper<'_> {
    /// Checks and maps one entry.
    pub(super) fn prepare(&mut self, entry: &Entry) -> Result<Prepared, Refusal> {
        let config = &entry.topic.config;
        let limits = BatchLimits { max_message_bytes: config.max_message_bytes, zstd_allowed: self.zstd_allowed };
        let checked = check_batch(&entry.records, &limits)?;
        let sequence = self.sequence(&checked.header)?;
        let ids = message_ids(sequence);
        let rules = ProduceRules {
            timestamp_span_micros: self.limits.timestamp_span_micros,
            payload_bytes_max: self.limits.payload_bytes_max,
            header_bytes_max: self.limits.header_bytes_max,
            key_required: config.compacted,
            timestamps_ms: allowed_timestamps(config, self.now_ms),
        };
        let mut frames = self.pool.take(frame_bytes_guess(&checked.header, checked.codec, checked.payload.len()));
        let mapped = match map_batch(&checked, &rules, ids, &mut self.budget, &mut self.scratch, &mut frames) {
            Ok(mapped) => mapped,
            Err(refusal) => {
                self.pool.give_back(frames);
                return Err(refusal);
            }
        };
        let batch = AppendBatch {
            frames: self.pool.share(frames),
            count: mapped.count,
            origin_min_micros: mapped.origin_min_micros,
            origin_max_micros: mapped.origin_max_micros,
            has_untimed: mapped.has_untimed,
            producer: sequence.map(|batch| ProducerSpan {
                producer_id: batch.producer_id,
                epoch: batch.epoch,
                base_sequence: batch.span.first,
            }),
        };
        let sequence = sequence.map(|batch| Batch { span: Span { count: mapped.count, ..batch.span }, ..batch });
        let tells_append_time = config.timestamp_type == TimestampType::LogAppendTime;
        Ok(Prepared {
            batch,
            first_id: first_id(ids),
            sequence,
            tells_append_time,
            sent_bytes: entry.records.len(),
            enveloped: mapped.enveloped,
        })
    }

    /// Producer section of the batch, when its duplicates are to be found.
    ///
    /// An id that no gateway of this cluster gave out gets no state: if it is given out later, what a stranger wrote
    /// under it must not pass for records of the new producer.
    fn sequence(&self, header: &BatchHeader) -> Result<Option<Batch>, Refusal> {
        if self.limits.idempotence == Idempotence::Allocate || header.producer_id == -1 {
            return Ok(None);
        }
        let section = (
            u64::try_from(header.producer_id),
            u16::try_from(header.producer_epoch),
            u32::try_from(header.base_sequence),
            u32::try_from(header.records_count),
        );
        let (Ok(producer_id), Ok(epoch), Ok(first), Ok(count)) = section else {
            let reason = "the batch has a producer id without a valid epoch and sequence";
            return Err(Refusal::InvalidRecord { reason, index: None });
        };
        let batch = Batch { producer_id, epoch, span: Span { first, count } };
        Ok((self.given_out)(producer_id).then_some(batch))
    }
}

fn message_ids(sequence: Option<Batch>) -> MessageIds {
    match sequence {
        Some(Batch { producer_id, epoch, span }) => {
            MessageIds::Producer(ProducerSequence { producer_id, epoch, sequence: span.first })
        }
        None => MessageIds::Plain { seed: rand::random() },
    }
}

/// Message id of the first record that `ids` numbers.
fn first_id(ids: MessageIds) -> u128 {
    match ids {
        MessageIds::Producer(place) => place.to_message_id(),
        MessageIds::Plain { seed } => seed & (u128::MAX >> 2),
    }
}

/// Record timestamps that the topic takes. With append times the record's own are not looked at, as in Kafka.
fn allowed_timestamps(config: &TopicConfig, now_ms: i64) -> RangeInclusive<i64> {
    match config.timestamp_type {
        TimestampType::LogAppendTime => i64::MIN..=i64::MAX,
        TimestampType::CreateTime => {
            let oldest = match config.timestamp_before_max_ms {
                i64::MAX => i64::MIN,
                before => now_ms.saturating_sub(before),
            };
            oldest..=now_ms.saturating_add(config.timestamp_after_max_ms)
        }
    }
}

/// Room that the frames of a batch will probably need. The declared count is believed only as far as the bytes could
/// hold it: a record has at least 7 bytes.
fn frame_bytes_guess(header: &BatchHeader, codec: Codec, payload_bytes: usize) -> usize {
    let plain_bytes = if codec == Codec::None { payload_bytes } else { payload_bytes.saturating_mul(3) };
    let records = usize::try_from(header.records_count).unwrap_or(0).min(plain_bytes / 7);
    plain_bytes.saturating_add(records.saturating_mul(32))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config() -> TopicConfig {
        TopicConfig {
            max_message_bytes: 1 << 20,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: i64::MAX,
            fetch_compression: milena_records::Compression::NONE,
            compacted: false,
            set: BTreeMap::new(),
        }
    }

    #[test]
    fn unlimited_timestamp_bounds_take_every_timestamp() {
        assert_eq!(allowed_timestamps(&config(), 1_000), i64::MIN..=i64::MAX);
    }

    #[test]
    fn timestamp_bounds_are_counted_from_now() {
        let config = TopicConfig { timestamp_before_max_ms: 100, timestamp_after_max_ms: 10, ..config() };
        assert_eq!(allowed_timestamps(&config, 1_000), 900..=1_010);
    }

    #[test]
    fn a_topic_with_append_times_takes_every_timestamp() {
        let config =
            TopicConfig { timestamp_type: TimestampType::LogAppendTime, timestamp_after_max_ms: 10, ..config() };
        assert_eq!(allowed_timestamps(&config, 1_000), i64::MIN..=i64::MAX);
    }

    #[test]
    fn a_declared_count_reserves_no_more_than_its_bytes_could_hold() {
        let header = BatchHeader {
            attributes: 0,
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: i32::MAX,
        };
        assert!(frame_bytes_guess(&header, Codec::None, 70) < 500);
        assert!(frame_bytes_guess(&header, Codec::Zstd, 70) < 1_500);
    }
}
