//! The frame block: messages back to back, each a fixed header, the payload, then the user-header block.
//!
//! All integers are little-endian. Layout of one frame:
//!
//! ```text
//! bytes  0..16  u128  message id
//! bytes 16..24  u64   origin timestamp, microseconds since the Unix epoch, 0 = none
//! bytes 24..28  u32   payload length P
//! bytes 28..32  u32   user-header block length H
//! bytes 32..32+P      payload
//! then H bytes        user-header block, in Iggy's own raw form
//! ```
//!
//! Example: id 1, origin 1,000,000 us, payload `hi`, no headers:
//!
//! ```text
//! 01000000000000000000000000000000 40420f0000000000 02000000 00000000 6869
//! ```

/// Bytes of the fixed header of a frame.
pub const FRAME_HEADER_BYTES: usize = 32;

/// One message, borrowed from a frame block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Message id, chosen by the writer.
    pub id: u128,
    /// Origin timestamp in microseconds since the Unix epoch; 0 is none.
    pub origin_micros: u64,
    /// Payload bytes.
    pub payload: &'a [u8],
    /// Raw user-header block; empty when the message has none.
    pub headers: &'a [u8],
}

impl Frame<'_> {
    /// Bytes this frame takes in a block.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload.len() + self.headers.len()
    }
}

/// The fixed header of a frame. The caller appends payload and header block behind it.
///
/// # Panics
/// Never; lengths above `u32::MAX` do not occur, since engines refuse payloads far below that.
#[must_use]
pub fn frame_header(id: u128, origin_micros: u64, payload_len: u32, headers_len: u32) -> [u8; FRAME_HEADER_BYTES] {
    let mut header = [0u8; FRAME_HEADER_BYTES];
    let (id_part, rest) = header.split_at_mut(16);
    id_part.copy_from_slice(&id.to_le_bytes());
    let (origin_part, rest) = rest.split_at_mut(8);
    origin_part.copy_from_slice(&origin_micros.to_le_bytes());
    let (payload_part, headers_part) = rest.split_at_mut(4);
    payload_part.copy_from_slice(&payload_len.to_le_bytes());
    headers_part.copy_from_slice(&headers_len.to_le_bytes());
    header
}

/// Iterates over the frames of a block; ends early, with [`Frames::is_damaged`] set, at bytes that are no whole frame.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    rest: &'a [u8],
    damaged: bool,
}

impl<'a> Frames<'a> {
    /// Over all of `block`.
    #[must_use]
    pub fn new(block: &'a [u8]) -> Self {
        Self { rest: block, damaged: false }
    }

    /// True when the block ended in bytes that are no whole frame.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Bytes not yet read.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = split_frame(self.rest);
        if let Some((frame, rest)) = parsed {
            self.rest = rest;
            Some(frame)
        } else {
            self.damaged = true;
            self.rest = &[];
            None
        }
    }
}

#[inline]
fn split_frame(block: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (header, rest) = block.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let (id, tail) = header.split_first_chunk::<16>()?;
    let (origin, tail) = tail.split_first_chunk::<8>()?;
    let (payload_len, tail) = tail.split_first_chunk::<4>()?;
    let headers_len = tail.first_chunk::<4>()?;
    let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*payload_len) as usize)?;
    let (headers, rest) = rest.split_at_checked(u32::from_le_bytes(*headers_len) as usize)?;
    let frame = Frame { id: u128::from_le_bytes(*id), origin_micros: u64::from_le_bytes(*origin), payload, headers };
    Some((frame, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_what_is_written() {
        let mut block = frame_header(1, 1_000_000, 2, 0).to_vec();
        block.extend_from_slice(b"hi");
        let hex: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0100000000000000000000000000000040420f000000000002000000000000006869");
        let mut frames = Frames::new(&block);
        assert_eq!(frames.next(), Some(Frame { id: 1, origin_micros: 1_000_000, payload: b"hi", headers: b"" }));
        assert_eq!(frames.next(), None);
        assert!(!frames.is_damaged());
    }

    #[test]
    fn a_block_that_ends_in_half_a_frame_is_damaged() {
        let mut block = frame_header(1, 0, 3, 0).to_vec();
        block.extend_from_slice(b"hi");
        let mut frames = Frames::new(&block);
        assert_eq!(frames.next(), None);
        assert!(frames.is_damaged());
    }
}
