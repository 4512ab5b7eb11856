//! Numbers and texts in few bytes: LEB128, signed numbers in zigzag.

use super::codec::CodecError;

pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Takes a record apart. No declared length or count makes it take more than the bytes that are there.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, CodecError> {
        let (first, rest) = self.rest.split_first().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, CodecError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(CodecError::OutOfRange);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CodecError::OutOfRange)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, CodecError> {
        let raw = self.unsigned()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A count of things that take a byte each at least.
    pub(crate) fn count(&mut self) -> Result<usize, CodecError> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| CodecError::Truncated)?;
        if count > self.rest.len() { Err(CodecError::Truncated) } else { Ok(count) }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, CodecError> {
        let len = self.count()?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(CodecError::Truncated)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| CodecError::NotText)
    }

    pub(crate) fn sixteen(&mut self) -> Result<[u8; 16], CodecError> {
        let (bytes, rest) = self.rest.split_first_chunk::<16>().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_went() {
        for value in [0, 1, -1, 63, 64, -64, -65, 300, i64::from(i32::MAX), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            put_unsigned(&mut out, value.cast_unsigned());
            let mut reader = Reader::new(&out);
            assert_eq!(reader.signed(), Ok(value));
            assert_eq!(reader.unsigned(), Ok(value.cast_unsigned()));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).unsigned(), Err(CodecError::OutOfRange));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).unsigned(),
            Err(CodecError::OutOfRange)
        );
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).unsigned(), Ok(u64::MAX));
    }
}
