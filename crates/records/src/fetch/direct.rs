//! The messages that nearly all are, read in one go: what Produce writes for a record with a value, with or without a
//! key and a few headers, and what native producers write without headers.

use milena_store::frame::Frame;

use crate::user_headers::{NAME_KEY, PREFIX_HEADER, UserHeaders, VERSION_FIELD};
use crate::varint::length_len;

/// A record header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    /// Name without prefix, UTF-8.
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Room for the headers of one record.
pub(super) const NO_FIELDS: [Field<'static>; 16] = [Field { name: &[], value: &[] }; 16];
/// Longer payloads take the general way, which knows what to do with those that no batch can hold.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// A record whose parts are known; its headers are in the fields that were handed in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Direct<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
    /// Number of headers.
    pub(super) count: u8,
    /// Encoded size of key and headers, without the number of headers.
    sides_len: usize,
}

impl<'a> Direct<'a> {
    /// Reads the message; `None` when it has anything out of the ordinary, and then nothing is said about it.
    #[inline]
    pub(super) fn read(frame: &Frame<'a>, fields: &mut [Field<'a>; NO_FIELDS.len()]) -> Option<Self> {
        if frame.payload.len() > PAYLOAD_BYTES_MAX {
            return None;
        }
        let mut direct = Self { key: None, value: frame.payload, count: 0, sides_len: 1 };
        if frame.headers.is_empty() {
            return Some(direct);
        }
        direct.read_headers(frame.headers.strip_prefix(&VERSION_FIELD)?, fields).then_some(direct)
    }

    #[inline]
    fn read_headers(&mut self, block: &'a [u8], fields: &mut [Field<'a>; NO_FIELDS.len()]) -> bool {
        let mut headers = UserHeaders::new(block);
        let mut next = headers.next();
        if let Some(header) = next
            && header.name == NAME_KEY
        {
            self.key = Some(header.value);
            self.sides_len = length_len(header.value.len()) + header.value.len();
            next = headers.next();
        }
        let mut free = fields.iter_mut();
        while let Some(header) = next {
            let (Some(name), Some(slot)) = (header.name.strip_prefix(PREFIX_HEADER), free.next()) else { return false };
            if !name.is_ascii() {
                return false;
            }
            *slot = Field { name, value: header.value };
            self.count += 1;
            self.sides_len += length_len(name.len()) + name.len() + length_len(header.value.len()) + header.value.len();
            next = headers.next();
        }
        !headers.is_damaged()
    }

    /// Bytes of key, value and headers, with their lengths and number.
    #[inline]
    pub(super) fn encoded_len(&self) -> usize {
        self.sides_len + length_len(self.value.len()) + self.value.len() + 1
    }
}
