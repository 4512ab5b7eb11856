//! One record of a batch, borrowed from the (decompressed) bytes behind the batch header.

use crate::varint;

/// Smallest record: length, attributes, two deltas, null key, null value, no headers; one byte each.
pub(crate) const RECORD_BYTES_MIN: usize = 7;
/// Smallest record header: an empty name and a null value, one length byte each.
const HEADER_BYTES_MIN: usize = 2;

/// A record as it lies in the batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    /// Milliseconds after the batch's base timestamp.
    pub(crate) timestamp_delta: i64,
    /// Offset after the batch's base offset.
    pub(crate) offset_delta: i32,
    /// Key; `None` is null.
    pub(crate) key: Option<&'a [u8]>,
    /// Value; `None` is null.
    pub(crate) value: Option<&'a [u8]>,
    /// Headers, not yet parsed.
    pub(crate) headers: RawHeaders<'a>,
}

/// The headers of a record: as many as declared, in exactly these bytes, which iterating checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawHeaders<'a> {
    /// How many are declared; never more than the bytes can hold.
    pub(crate) count: u32,
    bytes: &'a [u8],
}

/// A header: name (not yet checked to be UTF-8) and value.
pub(crate) type RawHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// Reads the record at the start of `bytes` and returns it with what lies behind.
///
/// # Errors
/// A sentence about what is wrong with it.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Result<(RawRecord<'_>, &[u8]), &'static str> {
    let Some((length, rest)) = varint::read_i32(bytes) else {
        return Err("a record's length is cut off");
    };
    let Ok(length) = usize::try_from(length) else {
        return Err("a record's length is negative");
    };
    let Some((body, rest)) = rest.split_at_checked(length) else {
        return Err("a record is longer than its batch");
    };
    match read_body(body) {
        Some(record) => Ok((record, rest)),
        None => Err("a record's fields do not fill its length"),
    }
}

#[inline]
fn read_body(body: &[u8]) -> Option<RawRecord<'_>> {
    // Attributes of records are unused in format v2.
    let (_attributes, rest) = body.split_first()?;
    let (timestamp_delta, rest) = varint::read_i64(rest)?;
    let (offset_delta, rest) = varint::read_i32(rest)?;
    let (key, rest) = read_nullable(rest)?;
    let (value, rest) = read_nullable(rest)?;
    let (count, bytes) = varint::read_i32(rest)?;
    let count = u32::try_from(count).ok()?;
    // Without headers nothing may follow; with them each takes two bytes at least. A declared count is never trusted
    // with memory, so this is the only place that has to doubt it.
    let fits = if count == 0 { bytes.is_empty() } else { count as usize <= bytes.len() / HEADER_BYTES_MIN };
    fits.then_some(RawRecord { timestamp_delta, offset_delta, key, value, headers: RawHeaders { count, bytes } })
}

/// Bytes behind a length; length -1 is null.
#[inline]
fn read_nullable(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = varint::read_i32(bytes)?;
    if length == -1 {
        return Some((None, rest));
    }
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((Some(value), rest))
}

impl<'a> RawHeaders<'a> {
    /// The next header; `Ok(None)` behind the last one.
    ///
    /// # Errors
    /// A sentence, when the headers do not fill their bytes exactly.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<RawHeader<'a>>, &'static str> {
        if self.count == 0 {
            return if self.bytes.is_empty() { Ok(None) } else { Err("bytes follow the last header of a record") };
        }
        let Some((header, rest)) = read_header(self.bytes) else {
            return Err("a record's headers are cut off");
        };
        self.count -= 1;
        self.bytes = rest;
        Ok(Some(header))
    }
}

#[inline]
fn read_header(bytes: &[u8]) -> Option<(RawHeader<'_>, &[u8])> {
    let (name_len, rest) = varint::read_i32(bytes)?;
    let (name, rest) = rest.split_at_checked(usize::try_from(name_len).ok()?)?;
    let (value, rest) = read_nullable(rest)?;
    Some(((name, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_record_is_read() {
        let (record, rest) = read(&[12, 0, 0, 0, 1, 1, 0]).unwrap();
        assert!(rest.is_empty());
        assert_eq!((record.key, record.value, record.headers.count), (None, None, 0));
    }

    #[test]
    fn a_record_with_bytes_left_over_is_refused() {
        assert!(read(&[14, 0, 0, 0, 1, 1, 0, 0]).is_err());
    }

    #[test]
    fn more_headers_than_bytes_are_refused_before_any_is_read() {
        let declared = [0xfe, 0xff, 0xff, 0xff, 0x0f];
        let mut record = vec![22, 0, 0, 0, 1, 1];
        record.extend_from_slice(&declared);
        record.push(0);
        assert!(read(&record).is_err());
    }

    #[test]
    fn a_header_without_a_name_length_is_refused() {
        let (record, _) = read(&[16, 0, 0, 0, 1, 1, 2, 1, 0]).unwrap();
        let mut headers = record.headers;
        assert!(headers.next().is_err());
    }
}
