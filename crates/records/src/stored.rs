//! What a stored message is to a Kafka consumer. Total: there is an answer for any bytes.

use std::borrow::Cow;

use milena_store::frame::Frame;

use crate::envelope::{self, Envelope, EnvelopeHeaders};
use crate::user_headers::{
    NAME_ENVELOPE, NAME_KEY, NAME_TIMESTAMP, NAME_VALUE, NAME_VERSION, PLACEHOLDER, PREFIX_HEADER, UserHeaders,
    VALUE_EMPTY, VALUE_NULL, VERSION,
};

/// A stored message as a Kafka record, borrowed.
#[derive(Debug, Clone)]
pub(crate) struct StoredRecord<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// The time that `kafka.ts` states, ms; -1 is the append time.
    pub(crate) stated_ms: Option<i64>,
    /// Number of record headers.
    pub(crate) header_count: u32,
    /// True when a marker or the header block was malformed, so that the message is delivered as it is stored.
    pub(crate) unmapped: bool,
    /// True when key, value and headers come from an envelope.
    pub(crate) enveloped: bool,
    envelope: Option<Envelope<'a>>,
    block: &'a [u8],
}

/// Markers found in a header block.
#[derive(Default)]
struct Markers<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    timestamp: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    envelope: Option<&'a [u8]>,
}

/// What a user header is to the mapping.
enum Role<'n> {
    Marker,
    Header(&'n [u8]),
}

impl<'a> StoredRecord<'a> {
    /// Reads a message.
    #[inline]
    pub(crate) fn read(frame: &Frame<'a>) -> Self {
        if frame.headers.is_empty() {
            return Self::bare(frame);
        }
        Self::read_any(frame)
    }

    #[inline]
    fn bare(frame: &Frame<'a>) -> Self {
        Self {
            key: None,
            value: Some(frame.payload),
            stated_ms: None,
            header_count: 0,
            unmapped: false,
            enveloped: false,
            envelope: None,
            block: &[],
        }
    }

    /// A record that only keeps the place of a message too large for any batch.
    pub(crate) fn unreadable() -> Self {
        Self {
            key: None,
            value: None,
            stated_ms: None,
            header_count: 0,
            unmapped: true,
            enveloped: false,
            envelope: None,
            block: &[],
        }
    }

    fn read_any(frame: &Frame<'a>) -> Self {
        let mut all = 0u32;
        let mut plain = 0u32;
        let mut repeated = false;
        let mut markers = Markers::default();
        let mut headers = UserHeaders::new(frame.headers);
        for header in headers.by_ref() {
            all += 1;
            match markers.slot(header.name) {
                Some(slot) => repeated |= slot.replace(header.value).is_some(),
                None => plain += 1,
            }
        }
        if headers.is_damaged() {
            return Self { unmapped: true, ..Self::bare(frame) };
        }
        let mapped = if repeated { None } else { markers.apply(frame, plain) };
        mapped.unwrap_or(Self { header_count: all, unmapped: true, block: frame.headers, ..Self::bare(frame) })
    }

    /// The record headers in order, with their names as Kafka sees them.
    #[inline]
    pub(crate) fn headers(&self) -> RecordHeaders<'a> {
        RecordHeaders {
            envelope: self.envelope.map(|envelope| envelope.headers()),
            user: UserHeaders::new(self.block),
            unmapped: self.unmapped,
        }
    }

    /// The record's time in ms, never negative.
    #[inline]
    pub(crate) fn timestamp_ms(&self, origin_micros: u64, append_time_micros: u64) -> i64 {
        match self.stated_ms {
            Some(ms) if ms >= 0 => ms,
            Some(_) => time_ms(0, append_time_micros),
            None => time_ms(origin_micros, append_time_micros),
        }
    }
}

/// The time of a message without `kafka.ts`: its origin timestamp, or the append time where that is 0.
#[inline]
pub(crate) fn time_ms(origin_micros: u64, append_time_micros: u64) -> i64 {
    let micros = if origin_micros == 0 { append_time_micros } else { origin_micros };
    // The quotient is below 2^63.
    (micros / 1000).cast_signed()
}

impl<'a> Markers<'a> {
    #[inline]
    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        match name {
            NAME_KEY => Some(&mut self.key),
            NAME_VERSION => Some(&mut self.version),
            NAME_VALUE => Some(&mut self.value),
            NAME_TIMESTAMP => Some(&mut self.timestamp),
            NAME_ENVELOPE => Some(&mut self.envelope),
            _ => None,
        }
    }

    /// The record that the markers describe; `None` when one of them is malformed.
    fn apply(&self, frame: &Frame<'a>, plain: u32) -> Option<StoredRecord<'a>> {
        if self.version.is_some_and(|version| version != [VERSION]) {
            return None;
        }
        let stated_ms = match self.timestamp {
            None => None,
            Some(bytes) => {
                let ms = i64::from_le_bytes(bytes.try_into().ok()?);
                // Below -1 is no time that Produce accepts, and consumers stop at negative times.
                (ms >= -1).then_some(Some(ms))?
            }
        };
        let base = StoredRecord { stated_ms, header_count: plain, block: frame.headers, ..StoredRecord::bare(frame) };
        if let Some(layout) = self.envelope {
            if layout != [VERSION] || self.key.is_some() || self.value.is_some() {
                return None;
            }
            let envelope = envelope::decode(frame.payload)?;
            return Some(StoredRecord {
                key: envelope.key,
                value: envelope.value,
                header_count: plain.checked_add(envelope.header_count)?,
                enveloped: true,
                envelope: Some(envelope),
                ..base
            });
        }
        let value = match self.value {
            None => Some(frame.payload),
            Some(_) if frame.payload != [PLACEHOLDER] => return None,
            Some(VALUE_NULL) => None,
            Some(VALUE_EMPTY) => Some(&[][..]),
            Some(_) => return None,
        };
        Some(StoredRecord { key: self.key, value, ..base })
    }
}

#[inline]
fn role(name: &[u8]) -> Role<'_> {
    if let Some(own) = name.strip_prefix(PREFIX_HEADER) {
        return Role::Header(own);
    }
    match name {
        NAME_KEY | NAME_VERSION | NAME_VALUE | NAME_TIMESTAMP | NAME_ENVELOPE => Role::Marker,
        other => Role::Header(other),
    }
}

/// A record header: its name, made UTF-8 if it was not, and its value.
pub(crate) struct RecordHeader<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) value: Option<&'a [u8]>,
}

impl RecordHeader<'_> {
    /// True when the name had to be changed.
    #[inline]
    pub(crate) fn is_lossy(&self) -> bool {
        matches!(self.name, Cow::Owned(_))
    }
}

/// Iterates over the headers of a [`StoredRecord`].
pub(crate) struct RecordHeaders<'a> {
    envelope: Option<EnvelopeHeaders<'a>>,
    user: UserHeaders<'a>,
    unmapped: bool,
}

impl<'a> Iterator for RecordHeaders<'a> {
    type Item = RecordHeader<'a>;

    #[inline]
    fn next(&mut self) -> Option<RecordHeader<'a>> {
        if let Some((name, value)) = self.envelope.as_mut().and_then(Iterator::next) {
            return Some(RecordHeader { name: String::from_utf8_lossy(name), value });
        }
        loop {
            let header = self.user.next()?;
            let name = match role(header.name) {
                _ if self.unmapped => header.name,
                Role::Header(name) => name,
                Role::Marker => continue,
            };
            return Some(RecordHeader { name: String::from_utf8_lossy(name), value: Some(header.value) });
        }
    }
}
