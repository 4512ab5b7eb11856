//! Record batch v2: header and checks.

use crate::compress::Codec;
use crate::record::RECORD_BYTES_MIN;

/// Bytes of a batch header.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Bytes in front of what the length field counts: base offset and the length itself.
const LENGTH_END: usize = 12;
/// Where the checksum's cover begins: at the attributes.
const CRC_COVER_START: usize = 21;
/// Where the format number lies, in message sets of every format.
const MAGIC_AT: usize = 16;
/// Where the producer id lies.
const PRODUCER_ID_AT: usize = 43;
/// The only format there is since 2017 (KIP-98).
const MAGIC: u8 = 2;

const ATTRIBUTE_CODEC: i16 = 0b0000_0111;
pub(crate) const ATTRIBUTE_LOG_APPEND_TIME: i16 = 0b0000_1000;
const ATTRIBUTE_TRANSACTIONAL: i16 = 0b0001_0000;
const ATTRIBUTE_CONTROL: i16 = 0b0010_0000;

/// Header of a record batch v2 (61 bytes), decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Attributes bit field (codec in bits 0..3, timestamp type bit 3, transactional bit 4, control bit 5).
    pub attributes: i16,
    /// Offset delta of the last record.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, ms.
    pub base_timestamp: i64,
    /// Largest timestamp, ms.
    pub max_timestamp: i64,
    /// Producer id, -1 none.
    pub producer_id: i64,
    /// Producer epoch, -1 none.
    pub producer_epoch: i16,
    /// First sequence, -1 none.
    pub base_sequence: i32,
    /// Declared number of records.
    pub records_count: i32,
}

impl BatchHeader {
    /// True for batches that only brokers write: transaction markers.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & ATTRIBUTE_CONTROL != 0
    }

    /// True for batches written inside a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & ATTRIBUTE_TRANSACTIONAL != 0
    }

    /// True when the batch says that `max_timestamp` is the time of every record in it.
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & ATTRIBUTE_LOG_APPEND_TIME != 0
    }

    /// The codec, or `None` when the number is unknown.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        Codec::from_id(self.attributes & ATTRIBUTE_CODEC)
    }
}

/// Why a batch is refused; the server maps each to one Kafka code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `INVALID_RECORD` (87). `index` is the record within the batch where it applies to one.
    #[error("{reason}")]
    InvalidRecord {
        /// What is wrong, short, without echoing input.
        reason: &'static str,
        /// Index of the offending record within the batch.
        index: Option<u32>,
    },
    /// `INVALID_RECORD` (87): records without a key for a compacted topic.
    #[error("records of a compacted topic need a key")]
    KeyMissing {
        /// Indexes of these records within the batch, ascending; never empty, and at most the first 1,024.
        indexes: Vec<u32>,
    },
    /// `CORRUPT_MESSAGE` (2).
    #[error("the batch does not match its checksum")]
    Corrupt,
    /// `MESSAGE_TOO_LARGE` (10).
    #[error("{what} is {actual} bytes, the limit is {limit}")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// Its size; where the end of a compressed batch was not looked for, a lower bound.
        actual: u64,
        /// The limit.
        limit: u64,
    },
    /// `UNSUPPORTED_VERSION` (35): control or transactional batch.
    #[error("{reason}")]
    Unsupported {
        /// What is not supported.
        reason: &'static str,
    },
    /// `UNSUPPORTED_COMPRESSION_TYPE` (76).
    #[error("compression type is unknown, or needs a newer Produce version")]
    UnsupportedCompression,
    /// `NOT_LEADER_OR_FOLLOWER` (6): earlier entries of the request spent the decompression budget.
    #[error("the request's decompression budget is spent; send this batch again")]
    BudgetSpent,
    /// `INVALID_TIMESTAMP` (32).
    #[error("{reason}")]
    InvalidTimestamp {
        /// What is wrong with the first of them.
        reason: &'static str,
        /// Indexes of the records of such times within the batch, and of those without a key that is needed: ascending, never
        /// empty, and at most the first 1,024.
        indexes: Vec<u32>,
    },
}

impl Refusal {
    /// `INVALID_RECORD` about the batch as a whole.
    pub(crate) fn batch(reason: &'static str) -> Self {
        Self::InvalidRecord { reason, index: None }
    }

    /// `INVALID_RECORD` about record `index`.
    pub(crate) fn record(reason: &'static str, index: u32) -> Self {
        Self::InvalidRecord { reason, index: Some(index) }
    }
}

/// What a batch is checked against before it is decompressed.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// The topic's `max.message.bytes`: bytes of the batch as sent.
    pub max_message_bytes: usize,
    /// False below Produce v7.
    pub zstd_allowed: bool,
}

/// A batch whose header, length and checksum are right.
#[derive(Debug, Clone, Copy)]
pub struct CheckedBatch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Its codec.
    pub codec: Codec,
    /// Bytes behind the header, compressed if `codec` says so.
    pub payload: &'a [u8],
}

/// One whole batch of a record set, its checksum not yet compared.
pub(crate) struct RawBatch<'a> {
    pub(crate) base_offset: i64,
    pub(crate) header: BatchHeader,
    pub(crate) payload: &'a [u8],
    crc: u32,
    covered: &'a [u8],
}

impl RawBatch<'_> {
    /// True when the bytes match the checksum that the batch carries.
    #[inline]
    pub(crate) fn is_intact(&self) -> bool {
        crc_fast::crc32_iscsi(self.covered) == self.crc
    }
}

/// Why no whole batch could be split off a record set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// The bytes end before the batch does.
    CutOff,
    /// A message set of an older format.
    OldFormat,
    /// The length field is smaller than a header.
    BadLength,
}

/// Splits the first batch off `records`, leaving what lies behind it.
pub(crate) fn split_batch(records: &[u8]) -> Result<(RawBatch<'_>, &[u8]), SplitError> {
    // Old formats are told apart first: their headers are shorter, so that any later check would misname them.
    match records.get(MAGIC_AT) {
        Some(&MAGIC) => {}
        Some(_) => return Err(SplitError::OldFormat),
        None => return Err(SplitError::CutOff),
    }
    let (base_offset, rest) = take_i64(records).ok_or(SplitError::CutOff)?;
    let (length, _) = take_i32(rest).ok_or(SplitError::CutOff)?;
    let whole = usize::try_from(length).map_err(|_| SplitError::BadLength)?.saturating_add(LENGTH_END);
    if whole < BATCH_HEADER_BYTES {
        return Err(SplitError::BadLength);
    }
    let (batch, rest) = records.split_at_checked(whole).ok_or(SplitError::CutOff)?;
    let (header, payload) = batch.split_first_chunk::<BATCH_HEADER_BYTES>().ok_or(SplitError::CutOff)?;
    let covered = batch.get(CRC_COVER_START..).ok_or(SplitError::CutOff)?;
    let (crc, header) = decode_header(header).ok_or(SplitError::CutOff)?;
    Ok((RawBatch { base_offset, header, payload, crc, covered }, rest))
}

/// Producer id that the bytes of a batch claim, without a check of anything else; `None` when there is none.
#[must_use]
pub fn peek_producer_id(bytes: &[u8]) -> Option<u64> {
    let (id, _) = bytes.get(PRODUCER_ID_AT..)?.split_first_chunk()?;
    u64::try_from(i64::from_be_bytes(*id)).ok()
}

fn decode_header(bytes: &[u8; BATCH_HEADER_BYTES]) -> Option<(u32, BatchHeader)> {
    let (crc, rest) = take_i32(bytes.get(MAGIC_AT + 1..)?)?;
    let (attributes, rest) = take_i16(rest)?;
    let (last_offset_delta, rest) = take_i32(rest)?;
    let (base_timestamp, rest) = take_i64(rest)?;
    let (max_timestamp, rest) = take_i64(rest)?;
    let (producer_id, rest) = take_i64(rest)?;
    let (producer_epoch, rest) = take_i16(rest)?;
    let (base_sequence, rest) = take_i32(rest)?;
    let (records_count, _) = take_i32(rest)?;
    let header = BatchHeader {
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    };
    Some((crc.cast_unsigned(), header))
}

fn take_i16(bytes: &[u8]) -> Option<(i16, &[u8])> {
    let (field, rest) = bytes.split_first_chunk()?;
    Some((i16::from_be_bytes(*field), rest))
}

fn take_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (field, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*field), rest))
}

fn take_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (field, rest) = bytes.split_first_chunk()?;
    Some((i64::from_be_bytes(*field), rest))
}

/// Checks one partition entry of a Produce request: exactly one batch v2, whole, unspoiled, allowed.
///
/// The order decides which code a client sees when several things are wrong: shape and format, checksum, size,
/// transactions, offset deltas, codec. What lies inside the batch is judged by [`crate::map_batch`].
///
/// # Errors
/// The first check that fails.
pub fn check_batch<'a>(records: &'a [u8], limits: &BatchLimits) -> Result<CheckedBatch<'a>, Refusal> {
    let (batch, rest) = split_batch(records).map_err(|error| {
        Refusal::batch(match error {
            SplitError::CutOff if records.is_empty() => "the entry holds no record batch",
            SplitError::CutOff => "the record batch is cut off",
            SplitError::OldFormat => "only record batches of format v2 are accepted",
            SplitError::BadLength => "the length of the record batch is too small for its header",
        })
    })?;
    if !rest.is_empty() {
        return Err(Refusal::batch("the entry must hold exactly one record batch"));
    }
    let header = batch.header;
    check_count(&header, batch.payload)?;
    if !batch.is_intact() {
        return Err(Refusal::Corrupt);
    }
    if records.len() > limits.max_message_bytes {
        return Err(Refusal::TooLarge {
            what: "the record batch",
            actual: records.len() as u64,
            limit: limits.max_message_bytes as u64,
        });
    }
    if header.is_control() {
        return Err(Refusal::Unsupported { reason: "control batches are written by brokers only" });
    }
    if header.is_transactional() {
        return Err(Refusal::Unsupported { reason: "transactions are not supported" });
    }
    if header.last_offset_delta != header.records_count - 1 {
        return Err(Refusal::batch("the last offset delta does not match the number of records"));
    }
    if header.producer_id >= 0 && (header.producer_epoch < 0 || header.base_sequence < 0) {
        return Err(Refusal::batch("a batch with a producer id needs an epoch and a sequence"));
    }
    let codec = header.codec().ok_or(Refusal::UnsupportedCompression)?;
    if codec == Codec::Zstd && !limits.zstd_allowed {
        return Err(Refusal::UnsupportedCompression);
    }
    Ok(CheckedBatch { header, codec, payload: batch.payload })
}

/// Refuses a number of records that the bytes cannot hold. A compressed batch is judged again when it is open.
fn check_count(header: &BatchHeader, payload: &[u8]) -> Result<(), Refusal> {
    let holds = if header.attributes & ATTRIBUTE_CODEC == 0 {
        payload.len() / RECORD_BYTES_MIN
    } else if payload.is_empty() {
        0
    } else {
        usize::MAX
    };
    match usize::try_from(header.records_count) {
        Ok(0) | Err(_) => Err(Refusal::batch("the record batch declares no records")),
        Ok(count) if count > holds => Err(Refusal::batch("the record batch declares more records than it can hold")),
        Ok(_) => Ok(()),
    }
}

/// Fields of a batch header that a writer chooses; the rest follows from the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderFields {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) fields: BatchHeader,
}

/// Room for a header at the end of `out`, filled in by [`finish_batch`] once the records behind it are known.
pub(crate) const HEADER_ROOM: [u8; BATCH_HEADER_BYTES] = [0; BATCH_HEADER_BYTES];

/// Completes the batch that begins at `start` of `out` and ends where `out` ends: length, fields, checksum.
pub(crate) fn finish_batch(out: &mut [u8], start: usize, header: &HeaderFields) {
    let Some(batch) = out.get_mut(start..) else { return };
    let length = i32::try_from(batch.len().saturating_sub(LENGTH_END)).unwrap_or(i32::MAX);
    let fields = &header.fields;
    put(batch, 0, header.base_offset.to_be_bytes());
    put(batch, 8, length.to_be_bytes());
    put(batch, 12, header.leader_epoch.to_be_bytes());
    put(batch, MAGIC_AT, [MAGIC]);
    put(batch, 21, fields.attributes.to_be_bytes());
    put(batch, 23, fields.last_offset_delta.to_be_bytes());
    put(batch, 27, fields.base_timestamp.to_be_bytes());
    put(batch, 35, fields.max_timestamp.to_be_bytes());
    put(batch, PRODUCER_ID_AT, fields.producer_id.to_be_bytes());
    put(batch, 51, fields.producer_epoch.to_be_bytes());
    put(batch, 53, fields.base_sequence.to_be_bytes());
    put(batch, 57, fields.records_count.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(batch.get(CRC_COVER_START..).unwrap_or_default());
    put(batch, 17, crc.to_be_bytes());
}

fn put<const N: usize>(batch: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(slot) = batch.get_mut(at..at + N) {
        slot.copy_from_slice(&field);
    }
}
