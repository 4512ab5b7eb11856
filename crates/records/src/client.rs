//! The client's side: build a batch to produce, read batches that were fetched. For the command line tools and tests.

use crate::batch::{BatchHeader, HEADER_ROOM, HeaderFields, RawBatch, Refusal, SplitError, finish_batch, split_batch};
use crate::compress::{Budget, Codec, Decoders, compress};
use crate::record::{self, RECORD_BYTES_MIN};
use crate::varint;

/// A record, owned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Offset; ignored when building.
    pub offset: i64,
    /// Timestamp in ms, -1 none.
    pub timestamp_ms: i64,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Headers in order; names may repeat.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Producer section of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Producer id.
    pub producer_id: i64,
    /// Epoch.
    pub epoch: i16,
    /// First sequence.
    pub base_sequence: i32,
}

/// Builds one record batch v2.
///
/// The caller keeps a batch far below 2 GiB; brokers take about 1 MiB by default.
#[must_use]
pub fn build_batch(records: &[Record], codec: Codec, producer: Option<ProducerStamp>) -> Vec<u8> {
    let base_timestamp = records.first().map_or(-1, |record| record.timestamp_ms);
    let mut body = Vec::new();
    let mut buffer = Vec::new();
    for (delta, record) in (0i64..).zip(records) {
        buffer.clear();
        put_record(&mut buffer, record, record.timestamp_ms.wrapping_sub(base_timestamp), delta);
        put_length(&mut body, buffer.len());
        body.extend_from_slice(&buffer);
    }
    let compressed = compress(codec, &body);
    let codec = if compressed.is_some() { codec } else { Codec::None };
    let mut out = HEADER_ROOM.to_vec();
    out.extend_from_slice(&compressed.unwrap_or(body));
    let producer = producer.unwrap_or(ProducerStamp { producer_id: -1, epoch: -1, base_sequence: -1 });
    let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
    let fields = BatchHeader {
        attributes: codec.id(),
        last_offset_delta: count - 1,
        base_timestamp,
        max_timestamp: records.iter().map(|record| record.timestamp_ms).max().unwrap_or(-1),
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch,
        base_sequence: producer.base_sequence,
        records_count: count,
    };
    finish_batch(&mut out, 0, &HeaderFields { base_offset: 0, leader_epoch: -1, fields });
    out
}

fn put_record(out: &mut Vec<u8>, record: &Record, timestamp_delta: i64, offset_delta: i64) {
    out.push(0);
    varint::write_i64(out, timestamp_delta);
    varint::write_i64(out, offset_delta);
    put_nullable(out, record.key.as_deref());
    put_nullable(out, record.value.as_deref());
    put_length(out, record.headers.len());
    for (name, value) in &record.headers {
        put_nullable(out, Some(name.as_bytes()));
        put_nullable(out, value.as_deref());
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::write_i64(out, -1),
        Some(bytes) => {
            put_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

fn put_length(out: &mut Vec<u8>, len: usize) {
    varint::write_i64(out, i64::try_from(len).unwrap_or(i64::MAX));
}

/// Reads all batches of a fetched record set; a batch cut off at the end is left out, as the protocol allows.
///
/// Control batches (transaction markers of a broker) hold no records of a producer and are passed over. Compressed
/// batches may decompress to `budget_bytes` in all.
///
/// # Errors
/// The first batch that is damaged.
pub fn read_record_set(bytes: &[u8], budget_bytes: usize) -> Result<Vec<Record>, Refusal> {
    let mut budget = Budget::new(budget_bytes);
    let mut decoders = Decoders::default();
    let mut plain = Vec::new();
    let mut records = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (batch, tail) = match split_batch(rest) {
            Ok(split) => split,
            Err(SplitError::CutOff) => break,
            Err(SplitError::OldFormat) => return Err(Refusal::batch("only record batches of format v2 are read")),
            Err(SplitError::BadLength) => return Err(Refusal::batch("the length of a record batch is too small")),
        };
        rest = tail;
        if !batch.is_intact() {
            return Err(Refusal::Corrupt);
        }
        if batch.header.is_control() {
            continue;
        }
        let codec = batch.header.codec().ok_or(Refusal::UnsupportedCompression)?;
        let count = u32::try_from(batch.header.records_count)
            .map_err(|_| Refusal::batch("a record batch declares a negative number of records"))?;
        let body = if codec == Codec::None {
            batch.payload
        } else {
            decoders.decompress(codec, batch.payload, count, &mut budget, &mut plain)?;
            &plain
        };
        read_batch(&batch, count, body, &mut records)?;
    }
    Ok(records)
}

fn read_batch(batch: &RawBatch<'_>, count: u32, body: &[u8], records: &mut Vec<Record>) -> Result<(), Refusal> {
    if count as usize > body.len() / RECORD_BYTES_MIN {
        return Err(Refusal::batch("a record batch declares more records than it can hold"));
    }
    let mut rest = body;
    for index in 0..count {
        let (raw, tail) = record::read(rest).map_err(|reason| Refusal::record(reason, index))?;
        rest = tail;
        let timestamp_ms = if batch.header.is_log_append_time() {
            batch.header.max_timestamp
        } else {
            batch.header.base_timestamp.wrapping_add(raw.timestamp_delta)
        };
        let mut headers = Vec::new();
        let mut raw_headers = raw.headers;
        while let Some((name, value)) = raw_headers.next().map_err(|reason| Refusal::record(reason, index))? {
            let Ok(name) = std::str::from_utf8(name) else {
                return Err(Refusal::record("a header name is not UTF-8", index));
            };
            headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        }
        records.push(Record {
            offset: batch.base_offset.wrapping_add(raw.offset_delta.into()),
            timestamp_ms,
            key: raw.key.map(<[u8]>::to_vec),
            value: raw.value.map(<[u8]>::to_vec),
            headers,
        });
    }
    if rest.is_empty() { Ok(()) } else { Err(Refusal::batch("bytes follow the last record of a batch")) }
}
