//! The raw user-header block of a stored message, and the `kafka.*` names in it.
//!
//! The block is the engine's own form, a sequence of fields without a count:
//!
//! ```text
//! per header:  u8 key kind (2 = string)   u32le key length (1..255)    key
//!              u8 value kind              u32le value length (1..255)  value
//! ```
//!
//! Example, a message with the key `k`: `kafka.v` and `kafka.key`, the form of nearly every message with headers:
//!
//! ```text
//! 02 07000000 6b61666b612e76     01 01000000 01
//! 02 09000000 6b61666b612e6b6579 01 01000000 6b
//! ```
//!
//! A header costs 10 + key + value bytes. Header order, repeated keys and any kind of value survive in this form; the
//! engine's map view of it keeps neither order nor repeats.

use crate::bytes_out::put_short;

/// Value kind of raw bytes.
pub const KIND_RAW: u8 = 1;
/// Key kind of strings.
pub const KIND_STRING: u8 = 2;
/// Value kind of 64-bit integers, little-endian.
pub const KIND_INT64: u8 = 7;
/// Longest key and longest value of a user header.
pub const FIELD_BYTES_MAX: usize = 255;
/// What a header costs on top of its key and value.
pub const FIELD_OVERHEAD: usize = 10;

/// Version of the mapping, one byte [`VERSION`]; on every message that carries any other `kafka.*` header.
pub const NAME_VERSION: &[u8] = b"kafka.v";
/// The record key.
pub const NAME_KEY: &[u8] = b"kafka.key";
/// [`VALUE_NULL`] or [`VALUE_EMPTY`], when the payload is the placeholder byte [`PLACEHOLDER`].
pub const NAME_VALUE: &[u8] = b"kafka.value";
/// The record timestamp in ms, Int64, where the origin timestamp cannot say it; -1 is the append time.
pub const NAME_TIMESTAMP: &[u8] = b"kafka.ts";
/// Layout version of the envelope, one byte [`VERSION`].
pub const NAME_ENVELOPE: &[u8] = b"kafka.envelope";
/// Prefix of the record headers.
pub const PREFIX_HEADER: &[u8] = b"kafka.h.";

/// The version of mapping and envelope.
pub const VERSION: u8 = 1;
/// Content of [`NAME_VALUE`] for a null value (a tombstone).
pub const VALUE_NULL: &[u8] = b"null";
/// Content of [`NAME_VALUE`] for a value of zero bytes.
pub const VALUE_EMPTY: &[u8] = b"empty";
/// The payload of a message whose record has a null or empty value: the engine refuses empty payloads.
pub const PLACEHOLDER: u8 = 0;

/// The whole `kafka.v` header.
pub(crate) const VERSION_FIELD: [u8; 18] = *b"\x02\x07\0\0\0kafka.v\x01\x01\0\0\0\x01";
/// `kafka.v` and then `kafka.key` up to the kind of its value: length and key follow.
pub(crate) const VERSION_AND_KEY: [u8; 33] = *b"\x02\x07\0\0\0kafka.v\x01\x01\0\0\0\x01\x02\x09\0\0\0kafka.key\x01";
/// The upper three bytes of a field length: always zero, since lengths end at 255.
pub(crate) const LENGTH_HIGH: [u8; 3] = [0; 3];

/// Appends a header of a constant name. `value` must be 1 to 255 bytes long, which the caller has checked.
#[inline]
pub(crate) fn push_field(out: &mut Vec<u8>, name: &[u8], kind: u8, value: &[u8]) {
    out.extend_from_slice(&field_head(KIND_STRING, name.len()));
    put_short(out, name);
    out.extend_from_slice(&field_head(kind, value.len()));
    put_short(out, value);
}

/// Appends `kafka.h.<name>`. Name (with prefix) and value must be within 255 bytes, the value not empty.
#[inline]
pub(crate) fn push_record_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let [kind, length @ ..] = field_head(KIND_STRING, PREFIX_HEADER.len() + name.len());
    let [l0, l1, l2, l3] = length;
    let head = [kind, l0, l1, l2, l3, b'k', b'a', b'f', b'k', b'a', b'.', b'h', b'.'];
    out.extend_from_slice(&head);
    put_short(out, name);
    out.extend_from_slice(&field_head(KIND_RAW, value.len()));
    put_short(out, value);
}

#[inline]
fn field_head(kind: u8, len: usize) -> [u8; 5] {
    let [low, ..] = len.to_le_bytes();
    [kind, low, 0, 0, 0]
}

/// One field pair of a block, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserHeader<'a> {
    /// Key bytes; UTF-8 only if the writer kept to it.
    pub name: &'a [u8],
    /// Value kind as the engine numbers them; not checked.
    pub kind: u8,
    /// Value bytes.
    pub value: &'a [u8],
}

/// Iterates over a block; ends early, with [`UserHeaders::is_damaged`] set, at bytes that are no whole header.
#[derive(Debug, Clone)]
pub struct UserHeaders<'a> {
    rest: &'a [u8],
    damaged: bool,
}

impl<'a> UserHeaders<'a> {
    /// Over all of `block`.
    #[must_use]
    #[inline]
    pub fn new(block: &'a [u8]) -> Self {
        Self { rest: block, damaged: false }
    }

    /// True when the block ended in bytes that are no header: cut off, or a length outside 1 to 255.
    #[must_use]
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }
}

impl<'a> Iterator for UserHeaders<'a> {
    type Item = UserHeader<'a>;

    #[inline]
    fn next(&mut self) -> Option<UserHeader<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = split_header(self.rest);
        if let Some((header, rest)) = parsed {
            self.rest = rest;
            Some(header)
        } else {
            self.damaged = true;
            self.rest = &[];
            None
        }
    }
}

#[inline]
fn split_header(bytes: &[u8]) -> Option<(UserHeader<'_>, &[u8])> {
    let (_, name, rest) = split_field(bytes)?;
    let (kind, value, rest) = split_field(rest)?;
    Some((UserHeader { name, kind, value }, rest))
}

#[inline]
fn split_field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, low, a, b, c], rest) = bytes.split_first_chunk::<5>()?;
    // Lengths are 1 to 255; anything else is refused by the engine's own reader too.
    if low == 0 || [a, b, c] != LENGTH_HIGH {
        return None;
    }
    let (field, rest) = rest.split_at_checked(usize::from(low))?;
    Some((kind, field, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_fields_are_what_the_writer_writes() {
        let mut out = Vec::new();
        push_field(&mut out, NAME_VERSION, KIND_RAW, &[VERSION]);
        assert_eq!(out, VERSION_FIELD);
        push_field(&mut out, NAME_KEY, KIND_RAW, b"abc");
        let mut fast = VERSION_AND_KEY.to_vec();
        fast.push(3);
        fast.extend_from_slice(&LENGTH_HIGH);
        fast.extend_from_slice(b"abc");
        assert_eq!(out, fast);
        let mut out = Vec::new();
        push_field(&mut out, b"kafka.h.x", KIND_RAW, b"1");
        let mut fast = Vec::new();
        push_record_header(&mut fast, b"x", b"1");
        assert_eq!(out, fast);
    }

    #[test]
    fn lengths_of_255_are_read_and_zero_and_256_are_damage() {
        let mut block = Vec::new();
        push_field(&mut block, &[b'n'; 255], KIND_STRING, &[7; 255]);
        let mut headers = UserHeaders::new(&block);
        let header = headers.next().unwrap();
        assert_eq!((header.name.len(), header.kind, header.value), (255, KIND_STRING, &[7u8; 255][..]));
        assert_eq!(headers.next(), None);
        assert!(!headers.is_damaged());
        for damaged in [&b"\x02\0\0\0\0"[..], b"\x02\0\x01\0\0", b"\x02", b"\x02\x01\0\0\0a\x01\x02\0\0\0x"] {
            let mut headers = UserHeaders::new(damaged);
            assert_eq!(headers.next(), None);
            assert!(headers.is_damaged());
        }
    }
}
