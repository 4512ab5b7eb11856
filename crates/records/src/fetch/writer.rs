//! Writes records into batches.

use milena_store::frame::Frame;

use crate::batch::{
    ATTRIBUTE_LOG_APPEND_TIME, BATCH_HEADER_BYTES, BatchHeader, HEADER_ROOM, HeaderFields, finish_batch,
};
use crate::bytes_out::{put_packed, put_short};
use crate::compress::{Codec, compress};
use crate::fetch::direct::{Direct, Field, NO_FIELDS};
use crate::fetch::{Encoded, FetchOptions, OFFSET_DELTA_MAX, TimestampType};
use crate::stored::{StoredRecord, time_ms};
use crate::varint::{self, length_len, pack_short, pack_u31};

/// Lengths of records and batches are signed 32-bit numbers; this leaves room for headers in front.
const BATCH_BYTES_MAX: usize = 0x7fff_0000;
/// Most that key, value and headers of one record may take.
const RECORD_BYTES_MAX: usize = BATCH_BYTES_MAX - 1024;
/// Encoding of a null key or value.
const NULL: u8 = 1;

/// Writes records one by one and keeps count.
pub(super) struct Writer<'o, 'a> {
    options: &'o FetchOptions,
    out: &'o mut Vec<u8>,
    /// Where the output began.
    start: usize,
    /// Bytes of finished batches, before compression.
    closed_bytes: usize,
    max_bytes: usize,
    append_time_only: bool,
    open: Open,
    encoded: Encoded,
    fields: [Field<'a>; NO_FIELDS.len()],
}

/// The batch that is being written; none while `count` is 0.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// Where it begins in the output.
    start: usize,
    base_offset: u64,
    base_timestamp: i64,
    max_timestamp: i64,
    last_delta: u32,
    count: i32,
}

impl<'o, 'a> Writer<'o, 'a> {
    pub(super) fn new(options: &'o FetchOptions, out: &'o mut Vec<u8>) -> Self {
        Self {
            options,
            start: out.len(),
            open: Open { start: out.len(), ..Open::default() },
            out,
            closed_bytes: 0,
            max_bytes: options.max_bytes.min(BATCH_BYTES_MAX),
            append_time_only: options.timestamp_type == TimestampType::LogAppendTime,
            encoded: Encoded { next_offset: options.from, ..Encoded::default() },
            fields: NO_FIELDS,
        }
    }

    /// Writes one message; false when it does not fit any more.
    #[inline]
    pub(super) fn write(&mut self, offset: u64, frame: &Frame<'a>, append_time_micros: u64) -> bool {
        let Some(record) = Direct::read(frame, &mut self.fields) else {
            return self.write_any(offset, frame, append_time_micros);
        };
        let origin = if self.append_time_only { 0 } else { frame.origin_micros };
        if !self.begin(offset, time_ms(origin, append_time_micros), record.encoded_len()) {
            return false;
        }
        put_field(self.out, record.key);
        put_length(self.out, record.value.len());
        self.out.extend_from_slice(record.value);
        // Up to 16 fields: their number takes one byte.
        self.out.push(record.count << 1);
        for field in self.fields.iter().take(record.count.into()) {
            put_field(self.out, Some(field.name));
            put_field(self.out, Some(field.value));
        }
        true
    }

    /// Writes a message of any content.
    #[inline(never)]
    fn write_any(&mut self, offset: u64, frame: &Frame<'a>, append_time_micros: u64) -> bool {
        let mut record = StoredRecord::read(frame);
        let timestamp = if self.append_time_only {
            time_ms(0, append_time_micros)
        } else {
            record.timestamp_ms(frame.origin_micros, append_time_micros)
        };
        let mut len = encoded_len(&record);
        if len > RECORD_BYTES_MAX {
            // No batch can hold such a message, and no engine takes one. Its place is kept, so that reading goes on.
            record = StoredRecord::unreadable();
            len = encoded_len(&record);
        }
        if !self.begin(offset, timestamp, len) {
            return false;
        }
        self.encoded.unmapped += u32::from(record.unmapped);
        self.encoded.enveloped += u32::from(record.enveloped);
        put_field(self.out, record.key);
        put_field(self.out, record.value);
        put_length(self.out, record.header_count as usize);
        for header in record.headers() {
            self.encoded.lossy_names += u32::from(header.is_lossy());
            put_field(self.out, Some(header.name.as_bytes()));
            put_field(self.out, header.value);
        }
        true
    }

    /// Writes everything of a record in front of its key, of which `len` bytes will follow, in the open batch or in a
    /// new one; false when the record does not fit any more.
    #[inline]
    fn begin(&mut self, offset: u64, timestamp: i64, len: usize) -> bool {
        let mut offset_delta = offset.wrapping_sub(self.open.base_offset);
        let mut timestamp_delta = timestamp - self.open.base_timestamp;
        let fresh =
            self.open.count == 0 || offset_delta > OFFSET_DELTA_MAX || (self.append_time_only && timestamp_delta != 0);
        let mut used = self.closed_bytes + (self.out.len() - self.open.start);
        if fresh {
            (offset_delta, timestamp_delta) = (0, 0);
            used += BATCH_HEADER_BYTES;
        }
        let delta = u32::try_from(offset_delta).unwrap_or(u32::MAX);
        let packed_offset = pack_u31(delta);
        let timestamp_len = varint::len_i64(timestamp_delta);
        let body_len = 1 + timestamp_len + packed_offset.len + len;
        let packed_length = pack_u31(u32::try_from(body_len).unwrap_or(u32::MAX));
        let must = self.encoded.records == 0 && self.options.at_least_one;
        if used + packed_length.len + body_len > self.max_bytes && !must {
            return false;
        }
        if fresh {
            self.open_batch(offset, timestamp);
        }
        if let Some(packed_timestamp) = pack_short(timestamp_delta) {
            // Length, attributes (0) and both deltas take 16 bytes at most: one write of fixed size.
            let mut at = packed_length.len + 1;
            let mut head = u128::from(packed_length.bits) | u128::from(packed_timestamp.bits) << (at * 8);
            at += packed_timestamp.len;
            head |= u128::from(packed_offset.bits) << (at * 8);
            put_packed(self.out, head.to_le_bytes(), at + packed_offset.len);
        } else {
            put_packed(self.out, packed_length.bits.to_le_bytes(), packed_length.len + 1);
            varint::write_i64(self.out, timestamp_delta);
            put_packed(self.out, packed_offset.bits.to_le_bytes(), packed_offset.len);
        }
        self.open.max_timestamp = self.open.max_timestamp.max(timestamp);
        self.open.last_delta = delta;
        self.open.count += 1;
        self.encoded.records += 1;
        self.encoded.next_offset = offset.saturating_add(1);
        true
    }

    /// Finishes the last batch.
    pub(super) fn finish(mut self) -> Encoded {
        self.close_batch();
        self.encoded.bytes = self.out.len() - self.start;
        self.encoded
    }

    #[inline(never)]
    fn open_batch(&mut self, base_offset: u64, timestamp: i64) {
        self.close_batch();
        let start = self.out.len();
        self.open =
            Open { start, base_offset, base_timestamp: timestamp, max_timestamp: timestamp, last_delta: 0, count: 0 };
        self.out.extend_from_slice(&HEADER_ROOM);
    }

    fn close_batch(&mut self) {
        let open = std::mem::take(&mut self.open);
        if open.count == 0 {
            return;
        }
        self.closed_bytes += self.out.len() - open.start;
        let mut attributes = self.compress(open.start).id();
        if self.append_time_only {
            attributes |= ATTRIBUTE_LOG_APPEND_TIME;
        }
        let fields = BatchHeader {
            attributes,
            last_offset_delta: open.last_delta.cast_signed(),
            base_timestamp: open.base_timestamp,
            max_timestamp: open.max_timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: open.count,
        };
        let base_offset = open.base_offset.cast_signed();
        let header = HeaderFields { base_offset, leader_epoch: self.options.leader_epoch, fields };
        finish_batch(self.out, open.start, &header);
    }

    /// Compresses the records of the batch at `start` where that makes them smaller.
    fn compress(&mut self, start: usize) -> Codec {
        let records_start = start + BATCH_HEADER_BYTES;
        let compression = self.options.compression;
        let records = self.out.get(records_start..).unwrap_or_default();
        match compress(compression, records) {
            Some(compressed) if compressed.len() < records.len() => {
                self.out.truncate(records_start);
                self.out.extend_from_slice(&compressed);
                compression.codec
            }
            _ => Codec::None,
        }
    }
}

/// Bytes of key, value and headers.
fn encoded_len(record: &StoredRecord<'_>) -> usize {
    let mut len = field_len(record.key) + field_len(record.value) + length_len(record.header_count as usize);
    if record.header_count != 0 {
        for header in record.headers() {
            len += field_len(Some(header.name.as_bytes())) + field_len(header.value);
        }
    }
    len
}

#[inline]
fn field_len(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| length_len(bytes.len()) + bytes.len())
}

#[inline]
fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    if let Some(bytes) = field {
        put_length(out, bytes.len());
        put_short(out, bytes);
    } else {
        out.push(NULL);
    }
}

#[inline]
fn put_length(out: &mut Vec<u8>, len: usize) {
    let packed = pack_u31(u32::try_from(len).unwrap_or(u32::MAX));
    put_packed(out, packed.bits.to_le_bytes(), packed.len);
}
