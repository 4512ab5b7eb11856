//! The bytes of a segment file: one segment header, then entries back to back.
//!
//! All integers are little-endian. The segment header:
//!
//! ```text
//! bytes  0..8   magic `MilenaSg`
//! bytes  8..12  u32   format version, 1
//! bytes 12..16  u32   nonce of the segment
//! bytes 16..24  u64   base offset, also the file's name
//! bytes 24..32  u64   durable end when the segment was created
//! bytes 32..36        zero
//! bytes 36..40  u32   CRC-32C of bytes 0..36
//! ```
//!
//! An entry holds one append, as a header and the frames as they came:
//!
//! ```text
//! bytes  0..4   magic `MEnt`
//! bytes  4..8   u32   nonce of the segment
//! bytes  8..12  u32   CRC-32C of all bytes from 12 on, frames included
//! bytes 12..16  u32   bytes of frames L
//! bytes 16..20  u32   number of frames
//! byte  20      u8    codec, 0 = frames as they are, 255 = a hole: no frames, its messages were cut out by a repair
//! bytes 21..24        zero
//! bytes 24..32  u64   offset of the first frame
//! bytes 32..40  u64   append time, microseconds since the Unix epoch
//! bytes 40..48  u64   smallest time of a frame: origin timestamp, or the append time where that is 0
//! bytes 48..56  u64   largest time of a frame
//! bytes 56..64  u64   durable end when the entry was written
//! then L bytes        frames
//! ```
//!
//! The nonce is a random number that never leaves the disk. A client can put the image of an entry into a payload,
//! and a crash can leave old blocks of another file behind; neither has the right nonce, so a search for the next
//! whole entry behind damage cannot be led astray.
//!
//! The durable end says that everything below that offset had reached the device when these bytes were written. It
//! is how recovery tells a torn tail (cut it) from damage to acknowledged data (never cut it), with no other file to
//! consult.
//!
//! Example: nonce 0x01020304, one frame (id 1, origin 1,000,000 us, payload `hi`), offset 7, append time 2,000,000
//! us, durable end 5:
//!
//! ```text
//! 4d456e74 04030201 b4a847de 22000000 01000000 00000000 0700000000000000 80841e0000000000
//! 40420f0000000000 40420f0000000000 0500000000000000
//! 01000000000000000000000000000000 40420f0000000000 02000000 00000000 6869
//! ```

use crc_fast::{CrcAlgorithm, Digest};

/// Version of the segment format that this code writes and reads.
pub(crate) const SEGMENT_VERSION: u32 = 1;
/// Bytes of the segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
/// Bytes of an entry header.
pub(crate) const ENTRY_HEADER_BYTES: usize = 64;
/// Most bytes of frames in one entry.
pub(crate) const ENTRY_FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

const SEGMENT_MAGIC: [u8; 8] = *b"MilenaSg";
const ENTRY_MAGIC: [u8; 4] = *b"MEnt";
/// Codec of an entry that stands for messages which a repair cut out; it has no frames.
pub(crate) const HOLE: u8 = 255;
/// First byte that the checksum of an entry covers.
const ENTRY_CRC_FROM: usize = 12;

/// CRC-32C of several parts, as if they were one.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).unwrap_or(0)
}

/// Little-endian integers from a fixed place of a slice; 0 where the slice is too short, which callers rule out.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// As [`u32_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// Collects the fields of a header in their order.
pub(crate) struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    pub(crate) fn put(mut self, field: &[u8]) -> Self {
        if let Some(target) = self.bytes.get_mut(self.at..self.at + field.len()) {
            target.copy_from_slice(field);
        }
        self.at += field.len();
        self
    }

    pub(crate) fn done(self) -> [u8; N] {
        self.bytes
    }
}

/// What the head of a segment file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random number that marks the entries of this segment.
    pub(crate) nonce: u32,
    /// Offset of the first message.
    pub(crate) base_offset: u64,
    /// Everything below was on the device when the segment was created.
    pub(crate) durable_end: u64,
}

/// Why the head of a file is not a segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The bytes are damaged, or were never written.
    Damaged,
    /// It is whole, and of a format that this code does not know.
    Version(u32),
}

impl SegmentHeader {
    /// Of a segment none of whose entries can be found any more.
    pub(crate) fn unmarked(base_offset: u64) -> Self {
        Self { nonce: 0, base_offset, durable_end: 0 }
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let head = Fields::<36>::new()
            .put(&SEGMENT_MAGIC)
            .put(&SEGMENT_VERSION.to_le_bytes())
            .put(&self.nonce.to_le_bytes())
            .put(&self.base_offset.to_le_bytes())
            .put(&self.durable_end.to_le_bytes())
            .done();
        Fields::new().put(&head).put(&crc32c(&[&head]).to_le_bytes()).done()
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, HeaderError> {
        let (head, crc) = bytes.split_at(36);
        if !head.starts_with(&SEGMENT_MAGIC) || crc32c(&[head]) != u32_at(crc, 0) {
            return Err(HeaderError::Damaged);
        }
        match u32_at(head, 8) {
            SEGMENT_VERSION => {
                Ok(Self { nonce: u32_at(head, 12), base_offset: u64_at(head, 16), durable_end: u64_at(head, 24) })
            }
            other => Err(HeaderError::Version(other)),
        }
    }
}

/// The fixed part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// Nonce of the segment.
    pub(crate) nonce: u32,
    /// Bytes of frames behind the header.
    pub(crate) frame_bytes: u32,
    /// Number of frames.
    pub(crate) count: u32,
    /// How the frames are stored; 0 is as they are.
    pub(crate) codec: u8,
    /// Offset of the first frame.
    pub(crate) base_offset: u64,
    /// Append time in microseconds.
    pub(crate) append_micros: u64,
    /// Smallest time of a frame in microseconds.
    pub(crate) time_min: u64,
    /// Largest time of a frame in microseconds.
    pub(crate) time_max: u64,
    /// Everything below was on the device when the entry was written.
    pub(crate) durable_end: u64,
}

impl EntryHeader {
    /// The header of these frames, with the checksum over both.
    pub(crate) fn encode(&self, frames: &[u8]) -> [u8; ENTRY_HEADER_BYTES] {
        let body = Fields::<{ ENTRY_HEADER_BYTES - ENTRY_CRC_FROM }>::new()
            .put(&self.frame_bytes.to_le_bytes())
            .put(&self.count.to_le_bytes())
            .put(&[self.codec, 0, 0, 0])
            .put(&self.base_offset.to_le_bytes())
            .put(&self.append_micros.to_le_bytes())
            .put(&self.time_min.to_le_bytes())
            .put(&self.time_max.to_le_bytes())
            .put(&self.durable_end.to_le_bytes())
            .done();
        let crc = crc32c(&[&body, frames]);
        Fields::new().put(&ENTRY_MAGIC).put(&self.nonce.to_le_bytes()).put(&crc.to_le_bytes()).put(&body).done()
    }

    /// An entry for `count` messages that are no longer there. Its times are the smallest, so that no search by time
    /// stops at it.
    pub(crate) fn hole(nonce: u32, base_offset: u64, count: u32) -> Self {
        Self {
            nonce,
            frame_bytes: 0,
            count,
            codec: HOLE,
            base_offset,
            append_micros: 0,
            time_min: 0,
            time_max: 0,
            durable_end: 0,
        }
    }

    /// True for an entry that stands for messages which were cut out.
    pub(crate) fn is_hole(&self) -> bool {
        self.codec == HOLE && self.frame_bytes == 0
    }

    /// The header as it stands; the checksum is not looked at. `None` when the bytes do not start an entry of that
    /// nonce.
    pub(crate) fn peek(bytes: &[u8], nonce: u32) -> Option<Self> {
        let head = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
        if !head.starts_with(&marker(nonce)) {
            return None;
        }
        let header = Self {
            nonce,
            frame_bytes: u32_at(head, 12),
            count: u32_at(head, 16),
            codec: head.get(20).copied()?,
            base_offset: u64_at(head, 24),
            append_micros: u64_at(head, 32),
            time_min: u64_at(head, 40),
            time_max: u64_at(head, 48),
            durable_end: u64_at(head, 56),
        };
        let plausible = header.count > 0
            && header.frame_bytes as usize <= ENTRY_FRAME_BYTES_MAX
            && header.base_offset.checked_add(u64::from(header.count)).is_some();
        plausible.then_some(header)
    }

    /// Bytes of header and frames.
    pub(crate) fn entry_bytes(&self) -> usize {
        ENTRY_HEADER_BYTES + self.frame_bytes as usize
    }

    /// Offset behind the last frame.
    pub(crate) fn end_offset(&self) -> u64 {
        self.base_offset.saturating_add(u64::from(self.count))
    }
}

/// The eight bytes that every entry of a segment starts with.
pub(crate) fn marker(nonce: u32) -> [u8; 8] {
    Fields::new().put(&ENTRY_MAGIC).put(&nonce.to_le_bytes()).done()
}

/// True when the checksum of the whole entry (header and frames) is right.
pub(crate) fn entry_is_sound(entry: &[u8]) -> bool {
    entry.get(ENTRY_CRC_FROM..).is_some_and(|body| crc32c(&[body]) == u32_at(entry, 8))
}

/// The nonce that the bytes at the start of an entry claim, if they claim to be an entry.
pub(crate) fn claimed_nonce(bytes: &[u8]) -> Option<u32> {
    (bytes.len() >= ENTRY_HEADER_BYTES && bytes.starts_with(&ENTRY_MAGIC)).then(|| u32_at(bytes, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn example() -> (EntryHeader, Vec<u8>) {
        let mut frames = milena_store::frame::frame_header(1, 1_000_000, 2, 0).to_vec();
        frames.extend_from_slice(b"hi");
        let header = EntryHeader {
            nonce: 0x0102_0304,
            frame_bytes: 34,
            count: 1,
            codec: 0,
            base_offset: 7,
            append_micros: 2_000_000,
            time_min: 1_000_000,
            time_max: 1_000_000,
            durable_end: 5,
        };
        (header, frames)
    }

    #[test]
    fn the_example_of_the_documentation_is_what_is_written() {
        let (header, frames) = example();
        let documented = concat!(
            "4d456e7404030201b4a847de2200000001000000000000000700000000000000",
            "80841e000000000040420f000000000040420f00000000000500000000000000",
            "0100000000000000000000000000000040420f000000000002000000000000006869",
        );
        let mut entry = header.encode(&frames).to_vec();
        entry.extend_from_slice(&frames);
        assert_eq!(hex(&entry), documented);
        assert_eq!(EntryHeader::peek(&entry, header.nonce), Some(header));
        assert!(entry_is_sound(&entry));
    }

    #[test]
    fn every_changed_bit_of_an_entry_is_noticed() {
        let (header, frames) = example();
        let mut entry = header.encode(&frames).to_vec();
        entry.extend_from_slice(&frames);
        for bit in 0..entry.len() * 8 {
            let mut changed = entry.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let accepted = EntryHeader::peek(&changed, header.nonce).is_some() && entry_is_sound(&changed);
            assert!(!accepted, "bit {bit}");
        }
    }

    #[test]
    fn a_segment_header_reads_back_and_another_version_is_named() {
        let header = SegmentHeader { nonce: 9, base_offset: 1 << 40, durable_end: 77 };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        let mut newer = bytes;
        newer[8] = 2;
        let crc = crc32c(&[&newer[..36]]);
        newer[36..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&newer), Err(HeaderError::Version(2)));
        let mut damaged = bytes;
        damaged[20] ^= 1;
        assert_eq!(SegmentHeader::decode(&damaged), Err(HeaderError::Damaged));
    }
}
