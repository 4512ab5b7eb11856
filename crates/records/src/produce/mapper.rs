//! The pass over the records of one batch.

use milena_store::frame::{FRAME_HEADER_BYTES, frame_header};

use crate::batch::{BatchHeader, Refusal};
use crate::bytes_out::put_short;
use crate::envelope;
use crate::message_id::MessageIds;
use crate::produce::names::Names;
use crate::produce::times::{Stored, Times};
use crate::produce::{Mapped, ProduceRules};
use crate::record::{self, RawRecord};
use crate::user_headers::{
    FIELD_BYTES_MAX, KIND_INT64, KIND_RAW, NAME_ENVELOPE, NAME_KEY, NAME_TIMESTAMP, NAME_VALUE, PLACEHOLDER,
    PREFIX_HEADER, VALUE_EMPTY, VALUE_NULL, VERSION, VERSION_AND_KEY, VERSION_FIELD, push_field, push_record_header,
};

/// Bytes of `kafka.v` and `kafka.key` in front of the key itself.
const KEYED_OVERHEAD: u32 = 37;

/// Most records that one refusal names, so that a batch of tiny records has no answer many times its size.
const NAMED_MAX: usize = 1_024;

/// Writes the messages of one batch behind what `out` holds.
pub(super) struct Mapper<'a> {
    rules: &'a ProduceRules,
    ids: MessageIds,
    base_timestamp: i64,
    /// The time of every record, when the batch says that it has only one.
    only_timestamp: Option<i64>,
    times: Times,
    out: &'a mut Vec<u8>,
}

/// Lengths of a message written in plain form.
struct Written {
    payload_len: u32,
    headers_len: u32,
}

impl<'a> Mapper<'a> {
    pub(super) fn new(rules: &'a ProduceRules, ids: MessageIds, header: &BatchHeader, out: &'a mut Vec<u8>) -> Self {
        // Tools that copy batches send the broker's mark along. Such a batch has one time, and its deltas mean nothing.
        let only_timestamp = header.is_log_append_time().then_some(header.max_timestamp);
        Self { rules, ids, base_timestamp: header.base_timestamp, only_timestamp, times: Times::new(rules), out }
    }

    /// Maps `count` records, which must fill `records` exactly, behind byte `start` of the output.
    pub(super) fn map_all(&mut self, records: &[u8], count: u32, start: usize) -> Result<Mapped, Refusal> {
        let mut enveloped = self.map_records(records, count)?;
        if self.times.clamp_needed() {
            self.out.truncate(start);
            enveloped = self.map_records(records, count)?;
        }
        let (origin_min_micros, origin_max_micros, has_untimed) = self.times.origins();
        Ok(Mapped { count, origin_min_micros, origin_max_micros, has_untimed, enveloped })
    }

    fn map_records(&mut self, records: &[u8], count: u32) -> Result<u32, Refusal> {
        let mut rest = records;
        let mut enveloped = 0;
        for index in 0..count {
            let (record, tail) = record::read(rest).map_err(|reason| Refusal::record(reason, index))?;
            rest = tail;
            if record.offset_delta != index.cast_signed() {
                return Err(Refusal::record("offset deltas must count up from 0", index));
            }
            if self.lacks_key(&record) {
                return Err(self.refuse_all(None, index, rest, count));
            }
            let stored = match self.place(&record) {
                Ok(stored) => stored,
                Err(reason) => return Err(self.refuse_all(Some(reason), index, rest, count)),
            };
            if !self.write_simple(&record, stored, index)? {
                enveloped += u32::from(self.write_any(&record, stored, index)?);
            }
        }
        if rest.is_empty() { Ok(enveloped) } else { Err(Refusal::batch("bytes follow the last record of the batch")) }
    }

    #[inline]
    fn lacks_key(&self, record: &RawRecord<'_>) -> bool {
        self.rules.key_required && record.key.is_none()
    }

    #[inline]
    fn place(&mut self, record: &RawRecord<'_>) -> Result<Stored, &'static str> {
        let time = self.only_timestamp.or_else(|| self.base_timestamp.checked_add(record.timestamp_delta));
        self.times.place(time)
    }

    /// The refusal of a batch whose record `first` is the first that the topic does not take, for its time or else its key;
    /// `rest` is what follows it. A client tells the named records from the others, which it may send again, so that all are
    /// looked for, up to where the batch is damaged. As in Kafka, one time decides on the code of all, and be it that of a
    /// record which is not named any more.
    fn refuse_all(&mut self, mut time: Option<&'static str>, first: u32, mut rest: &[u8], count: u32) -> Refusal {
        let mut indexes = vec![first];
        for index in first.saturating_add(1)..count {
            let is_full = indexes.len() >= NAMED_MAX;
            if is_full && time.is_some() {
                break;
            }
            let Ok((record, tail)) = record::read(rest) else { break };
            rest = tail;
            let lacks_key = self.lacks_key(&record);
            let refused = if lacks_key { None } else { self.place(&record).err() };
            time = time.or(refused);
            if !is_full && (lacks_key || refused.is_some()) {
                indexes.push(index);
            }
        }
        match time {
            Some(reason) => Refusal::InvalidTimestamp { reason, indexes },
            None => Refusal::KeyMissing { indexes },
        }
    }

    /// The common shapes, a value with or without a key, whose lengths are known beforehand; false for any other.
    #[inline]
    fn write_simple(&mut self, record: &RawRecord<'_>, stored: Stored, index: u32) -> Result<bool, Refusal> {
        let value = record.value.unwrap_or_default();
        if value.is_empty() || record.headers.count != 0 || stored.marker.is_some() {
            return Ok(false);
        }
        let id = self.ids.id(index);
        let Some(key) = record.key else {
            let payload_len = self.payload_len("a record's value", value.len())?;
            self.out.extend_from_slice(&frame_header(id, stored.origin_micros, payload_len, 0));
            self.out.extend_from_slice(value);
            return Ok(true);
        };
        let Ok(key_len) = u8::try_from(key.len()) else { return Ok(false) };
        let headers_len = KEYED_OVERHEAD + u32::from(key_len);
        if key_len == 0 || headers_len as usize > self.rules.header_bytes_max {
            return Ok(false);
        }
        let payload_len = self.payload_len("a record's value", value.len())?;
        self.out.extend_from_slice(&frame_header(id, stored.origin_micros, payload_len, headers_len));
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(&VERSION_AND_KEY);
        self.out.extend_from_slice(&[key_len, 0, 0, 0]);
        put_short(self.out, key);
        Ok(true)
    }

    /// Any record; true when it went into the envelope.
    fn write_any(&mut self, record: &RawRecord<'_>, stored: Stored, index: u32) -> Result<bool, Refusal> {
        let start = self.out.len();
        // The header is written last, when the lengths are known: one pass over the record's headers is enough.
        self.out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        let plain = self.write_plain(record, stored.marker, index)?;
        let enveloped = plain.is_none();
        let written = match plain {
            Some(written) => written,
            None => {
                self.out.truncate(start + FRAME_HEADER_BYTES);
                self.write_enveloped(record, stored.marker, index)?
            }
        };
        let header = frame_header(self.ids.id(index), stored.origin_micros, written.payload_len, written.headers_len);
        if let Some(slot) = self.out.get_mut(start..start + FRAME_HEADER_BYTES) {
            slot.copy_from_slice(&header);
        }
        Ok(enveloped)
    }

    /// Payload and header block of a plain message; `None`, with the output in between, when it needs the envelope.
    fn write_plain(
        &mut self,
        record: &RawRecord<'_>,
        marker: Option<i64>,
        index: u32,
    ) -> Result<Option<Written>, Refusal> {
        let value = record.value.filter(|value| !value.is_empty());
        let payload = value.unwrap_or(&[PLACEHOLDER]);
        if record.key.is_some_and(|key| !fits_field(key)) {
            return Ok(None);
        }
        self.out.extend_from_slice(payload);
        let block_start = self.out.len();
        let bare = value.is_some() && record.key.is_none() && marker.is_none() && record.headers.count == 0;
        if !bare {
            self.out.extend_from_slice(&VERSION_FIELD);
        }
        if let Some(key) = record.key {
            push_field(self.out, NAME_KEY, KIND_RAW, key);
        }
        match record.value {
            None => push_field(self.out, NAME_VALUE, KIND_RAW, VALUE_NULL),
            Some([]) => push_field(self.out, NAME_VALUE, KIND_RAW, VALUE_EMPTY),
            Some(_) => {}
        }
        if let Some(ms) = marker {
            push_field(self.out, NAME_TIMESTAMP, KIND_INT64, &ms.to_le_bytes());
        }
        if record.headers.count != 0 && !self.write_headers(record, index)? {
            return Ok(None);
        }
        let headers_len = self.out.len() - block_start;
        if headers_len > self.rules.header_bytes_max {
            return Ok(None);
        }
        let payload_len = self.payload_len("a record's value", payload.len())?;
        Ok(Some(Written { payload_len, headers_len: u32::try_from(headers_len).unwrap_or(u32::MAX) }))
    }

    /// The record's own headers; false when one of them needs the envelope.
    fn write_headers(&mut self, record: &RawRecord<'_>, index: u32) -> Result<bool, Refusal> {
        let mut names = Names::new();
        let mut headers = record.headers;
        while let Some((name, value)) = headers.next().map_err(|reason| Refusal::record(reason, index))? {
            let value = value.unwrap_or_default();
            if !fits_field(value) || name.len() > FIELD_BYTES_MAX - PREFIX_HEADER.len() || !names.add(name) {
                return Ok(false);
            }
            if !name.is_ascii() && std::str::from_utf8(name).is_err() {
                return Err(Refusal::record("a header name is not UTF-8", index));
            }
            push_record_header(self.out, name, value);
        }
        Ok(true)
    }

    fn write_enveloped(&mut self, record: &RawRecord<'_>, marker: Option<i64>, index: u32) -> Result<Written, Refusal> {
        let len = envelope::encoded_len(record.key, record.value, record.headers)
            .map_err(|reason| Refusal::record(reason, index))?;
        let payload_len = self.payload_len("a record's envelope", len)?;
        envelope::encode(self.out, record.key, record.value, record.headers);
        let block_start = self.out.len();
        self.out.extend_from_slice(&VERSION_FIELD);
        push_field(self.out, NAME_ENVELOPE, KIND_RAW, &[VERSION]);
        if let Some(ms) = marker {
            push_field(self.out, NAME_TIMESTAMP, KIND_INT64, &ms.to_le_bytes());
        }
        let headers_len = u32::try_from(self.out.len() - block_start).unwrap_or(u32::MAX);
        Ok(Written { payload_len, headers_len })
    }

    #[inline]
    fn payload_len(&self, what: &'static str, len: usize) -> Result<u32, Refusal> {
        match u32::try_from(len) {
            Ok(short) if len <= self.rules.payload_bytes_max => Ok(short),
            _ => Err(Refusal::TooLarge { what, actual: len as u64, limit: self.rules.payload_bytes_max as u64 }),
        }
    }
}

/// True when a key or value can be a user header.
#[inline]
fn fits_field(field: &[u8]) -> bool {
    (1..=FIELD_BYTES_MAX).contains(&field.len())
}
