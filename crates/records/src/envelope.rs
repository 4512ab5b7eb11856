//! The envelope: payload of a record that a plain message cannot hold.
//!
//! All integers little-endian, layout version 1:
//!
//! ```text
//! u8   flags           bit 0 key present, bit 1 value present, other bits 0
//! u32  key_len         0 when the key is absent
//! ..   key
//! u32  value_len       0 when the value is absent
//! ..   value
//! u32  header_count
//!      header_count times:
//!        u32  name_len
//!        ..   name      (UTF-8)
//!        u8   value_present (0 or 1)
//!        u32  value_len     0 when the header value is absent
//!        ..   value
//! ```
//!
//! 13 bytes fixed, 9 per header. Header order and repeated names are kept.

use crate::record::RawHeaders;

/// Bytes of an envelope without key, value and headers.
pub const FIXED_BYTES: usize = 13;
/// What a header costs on top of its name and value.
pub const HEADER_OVERHEAD: usize = 9;

const KEY_PRESENT: u8 = 0b01;
const VALUE_PRESENT: u8 = 0b10;

/// An opened envelope, borrowed from the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Record key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Record value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// Number of headers.
    pub header_count: u32,
    headers: &'a [u8],
}

/// Opens an envelope; `None` when `payload` is not exactly one. Takes no memory, whatever is declared.
#[must_use]
pub fn decode(payload: &[u8]) -> Option<Envelope<'_>> {
    let (&flags, rest) = payload.split_first()?;
    if flags & !(KEY_PRESENT | VALUE_PRESENT) != 0 {
        return None;
    }
    let (key, rest) = take_optional(rest, flags & KEY_PRESENT != 0)?;
    let (value, rest) = take_optional(rest, flags & VALUE_PRESENT != 0)?;
    let (count, headers) = rest.split_first_chunk::<4>()?;
    let header_count = u32::from_le_bytes(*count);
    // Charged before the first is read, so that a declared count costs nothing.
    if u64::from(header_count) * HEADER_OVERHEAD as u64 > headers.len() as u64 {
        return None;
    }
    let mut all = EnvelopeHeaders { rest: headers };
    for _ in 0..header_count {
        let (name, _) = all.next()?;
        std::str::from_utf8(name).ok()?;
    }
    all.rest.is_empty().then_some(Envelope { key, value, header_count, headers })
}

impl<'a> Envelope<'a> {
    /// The headers in order.
    #[must_use]
    pub fn headers(&self) -> EnvelopeHeaders<'a> {
        EnvelopeHeaders { rest: self.headers }
    }
}

/// Iterates over the headers of an [`Envelope`].
#[derive(Debug, Clone)]
pub struct EnvelopeHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EnvelopeHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = take(self.rest)?;
        let (&present, rest) = rest.split_first()?;
        if present > 1 {
            return None;
        }
        let (value, rest) = take_optional(rest, present == 1)?;
        self.rest = rest;
        Some((name, value))
    }
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

fn take_optional(bytes: &[u8], present: bool) -> Option<(Option<&[u8]>, &[u8])> {
    let (field, rest) = take(bytes)?;
    match present {
        true => Some((Some(field), rest)),
        false => field.is_empty().then_some((None, rest)),
    }
}

/// Bytes that the envelope of this record takes.
///
/// # Errors
/// A sentence, when the headers are damaged or a name is not UTF-8.
pub(crate) fn encoded_len(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    mut headers: RawHeaders<'_>,
) -> Result<usize, &'static str> {
    let mut len = FIXED_BYTES + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
    while let Some((name, value)) = headers.next()? {
        if std::str::from_utf8(name).is_err() {
            return Err("a header name is not UTF-8");
        }
        len += HEADER_OVERHEAD + name.len() + value.map_or(0, <[u8]>::len);
    }
    Ok(len)
}

/// Appends the envelope of a record that [`encoded_len`] has passed.
pub(crate) fn encode(out: &mut Vec<u8>, key: Option<&[u8]>, value: Option<&[u8]>, headers: RawHeaders<'_>) {
    let flags = if key.is_some() { KEY_PRESENT } else { 0 } | if value.is_some() { VALUE_PRESENT } else { 0 };
    out.push(flags);
    put(out, key.unwrap_or_default());
    put(out, value.unwrap_or_default());
    out.extend_from_slice(&headers.count.to_le_bytes());
    let mut rest = headers;
    while let Ok(Some((name, value))) = rest.next() {
        put(out, name);
        out.push(u8::from(value.is_some()));
        put(out, value.unwrap_or_default());
    }
}

fn put(out: &mut Vec<u8>, field: &[u8]) {
    // Fields come out of a batch, whose length is a signed 32-bit number.
    let len = u32::try_from(field.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &[u8] = b"\x03\x01\0\0\0k\x02\0\0\0vv\x02\0\0\0\x01\0\0\0a\x00\0\0\0\0\x01\0\0\0a\x01\x01\0\0\0x";

    #[test]
    fn a_full_envelope_is_opened() {
        let envelope = decode(FULL).unwrap();
        assert_eq!((envelope.key, envelope.value), (Some(&b"k"[..]), Some(&b"vv"[..])));
        let headers: Vec<_> = envelope.headers().collect();
        assert_eq!(headers, [(&b"a"[..], None), (&b"a"[..], Some(&b"x"[..]))]);
    }

    #[test]
    fn every_prefix_and_every_extension_is_refused() {
        for end in 0..FULL.len() {
            assert_eq!(decode(&FULL[..end]), None, "{end}");
        }
        assert_eq!(decode(&[FULL, b"\0"].concat()), None);
    }

    #[test]
    fn unknown_flags_and_lengths_of_absent_fields_are_refused() {
        assert!(decode(b"\0\0\0\0\0\0\0\0\0\0\0\0\0").is_some());
        assert_eq!(decode(b"\x04\0\0\0\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(decode(b"\0\x01\0\0\0k\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_refused() {
        assert_eq!(decode(b"\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\xff\0\0\0\0\0"), None);
    }

    #[test]
    fn a_declared_count_beyond_the_bytes_is_refused_at_once() {
        assert_eq!(decode(b"\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"), None);
    }
}
