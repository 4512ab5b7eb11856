//! Appending short runs of bytes to a vector.
//!
//! Records are made of many fields of a few bytes. A copy whose size is known when this is compiled is a load and a
//! store; one of any other size is a call. So short fields are written by one or two overlapping copies of fixed size.

/// Appends the first `len` bytes of `bytes`.
#[inline]
pub(crate) fn put_packed<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// Appends `bytes`, quickest when there are 4 to 32 of them.
#[inline]
pub(crate) fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        4..=8 => put_twice::<4>(out, bytes),
        9..=16 => put_twice::<8>(out, bytes),
        17..=32 => put_twice::<16>(out, bytes),
        _ => out.extend_from_slice(bytes),
    }
}

/// Appends `N` to `2 * N` bytes: the first `N`, then the last `N` over their end.
#[inline]
fn put_twice<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        out.extend_from_slice(first);
        out.truncate(start + bytes.len() - N);
        out.extend_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_length_is_appended_whole() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=40 {
            let mut out = vec![0];
            put_short(&mut out, &bytes[..len]);
            assert_eq!(out, [&[0], &bytes[..len]].concat());
        }
    }

    #[test]
    fn a_packed_array_is_cut_to_its_length() {
        let mut out = vec![9];
        put_packed(&mut out, [1, 2, 3, 4], 3);
        put_packed(&mut out, [5, 6, 7, 8], 0);
        assert_eq!(out, [9, 1, 2, 3]);
    }
}
