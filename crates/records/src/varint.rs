//! Variable-length integers of the record format: little-endian groups of seven bits, signed values zigzag-coded.

/// Longest encoding of a 32-bit value.
const BYTES_MAX_32: usize = 5;
/// Longest encoding of a 64-bit value.
const BYTES_MAX_64: usize = 10;

/// Reads a signed 32-bit value and what lies behind it.
#[inline]
pub(crate) fn read_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    // One byte holds lengths up to 63 and two hold up to 8191: nearly every length and delta there is.
    if first < 0x80 {
        return Some((unzigzag32(u32::from(first)), rest));
    }
    let (&second, rest) = rest.split_first()?;
    if second < 0x80 {
        return Some((unzigzag32(u32::from(first & 0x7f) | (u32::from(second) << 7)), rest));
    }
    let (value, rest) = read_long(bytes, BYTES_MAX_32)?;
    Some((unzigzag32(u32::try_from(value).ok()?), rest))
}

/// Reads a signed 64-bit value and what lies behind it.
#[inline]
pub(crate) fn read_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((unzigzag64(u64::from(first)), rest));
    }
    let (&second, rest) = rest.split_first()?;
    if second < 0x80 {
        return Some((unzigzag64(u64::from(first & 0x7f) | (u64::from(second) << 7)), rest));
    }
    let (value, rest) = read_long(bytes, BYTES_MAX_64)?;
    Some((unzigzag64(value), rest))
}

#[inline(never)]
fn read_long(bytes: &[u8], bytes_max: usize) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut rest = bytes;
    for group in 0..bytes_max {
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        let bits = u64::from(byte & 0x7f);
        let shift = group * 7;
        // The tenth group has room for one bit only.
        if (bits << shift) >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some((value, rest));
        }
    }
    None
}

#[inline]
fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[inline]
fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[inline]
fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// An encoded value in a register: its bytes from the low end, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The bytes, little-endian.
    pub(crate) bits: u64,
    /// How many bytes.
    pub(crate) len: usize,
}

/// Packs a length or delta that is known not to be negative.
#[inline]
pub(crate) fn pack_u31(value: u32) -> Packed {
    pack_unsigned(u64::from(value) << 1)
}

/// Packs a signed value; `None` when it takes more than five bytes.
#[inline]
pub(crate) fn pack_short(value: i64) -> Option<Packed> {
    let raw = zigzag64(value);
    (raw < 1 << 35).then(|| pack_unsigned(raw))
}

/// Packs up to 35 bits.
#[inline]
fn pack_unsigned(raw: u64) -> Packed {
    if raw < 1 << 7 {
        return Packed { bits: raw, len: 1 };
    }
    let spread = (raw & 0x7f) | ((raw & 0x3f80) << 1);
    if raw < 1 << 14 {
        return Packed { bits: spread | 0x80, len: 2 };
    }
    let spread = spread | ((raw & 0x001f_c000) << 2);
    if raw < 1 << 21 {
        return Packed { bits: spread | 0x8080, len: 3 };
    }
    let spread = spread | ((raw & 0x0fe0_0000) << 3);
    if raw < 1 << 28 {
        return Packed { bits: spread | 0x0080_8080, len: 4 };
    }
    Packed { bits: spread | ((raw & 0x0007_f000_0000) << 4) | 0x8080_8080, len: 5 }
}

/// Appends a signed value of any size.
pub(crate) fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut raw = zigzag64(value);
    while raw >= 0x80 {
        out.push(raw.to_le_bytes()[0] | 0x80);
        raw >>= 7;
    }
    out.push(raw.to_le_bytes()[0]);
}

/// Bytes that a signed value takes.
#[inline]
pub(crate) fn len_i64(value: i64) -> usize {
    let bits = 64 - (zigzag64(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Bytes that a length takes.
#[inline]
pub(crate) fn length_len(len: usize) -> usize {
    match len {
        0..64 => 1,
        64..8192 => 2,
        _ => len_i64(i64::try_from(len).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_at_the_edges_of_each_length_round_trip() {
        for bits in 0..64 {
            for value in [1i64 << bits, (1i64 << bits).wrapping_sub(1), -(1i64 << bits.min(62)), i64::MIN] {
                let mut out = Vec::new();
                write_i64(&mut out, value);
                assert_eq!(out.len(), len_i64(value), "{value}");
                assert_eq!(read_i64(&out), Some((value, &[][..])));
                if let Ok(short) = i32::try_from(value) {
                    assert_eq!(read_i32(&out), Some((short, &[][..])));
                } else {
                    assert_eq!(read_i32(&out), None);
                }
            }
        }
    }

    #[test]
    fn an_encoding_that_never_ends_is_refused() {
        assert_eq!(read_i32(&[0x80; 6]), None);
        assert_eq!(read_i64(&[0x80; 11]), None);
        assert_eq!(read_i64(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(read_i32(&[]), None);
        assert_eq!(read_i32(&[0x80]), None);
    }

    proptest! {
        #[test]
        fn packing_writes_what_the_plain_writer_writes(value in -(1i64 << 34)..(1i64 << 34)) {
            let mut plain = Vec::new();
            write_i64(&mut plain, value);
            let packed = pack_short(value).unwrap();
            prop_assert_eq!(&packed.bits.to_le_bytes()[..packed.len], &plain[..]);
        }

        #[test]
        fn lengths_are_packed_as_signed_values(value in 0..i32::MAX) {
            let mut plain = Vec::new();
            write_i64(&mut plain, value.into());
            let packed = pack_u31(value.cast_unsigned());
            prop_assert_eq!(&packed.bits.to_le_bytes()[..packed.len], &plain[..]);
            prop_assert_eq!(length_len(value.cast_unsigned() as usize), plain.len());
        }
    }
}
