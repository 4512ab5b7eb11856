//! The sparse index of a segment: where blocks of about 64 KiB end, and the largest times within.
//!
//! It is derived and never evidence. Every record carries its own checksum, seeded with the segment's nonce and its
//! number, so zero bytes and torn writes are no records; what a record says is checked against the entry it points
//! to before it is used. The file is not flushed to the device.
//!
//! File: a header (magic `MilenaIx`, u32 version, u32 nonce, u64 base offset, u32 CRC-32C, u32 zero), then one
//! record per block: u64 end offset, u64 end position, u64 largest time, u64 largest append time, u32 CRC-32C.

use crate::format::{Fields, SEGMENT_HEADER_BYTES, SegmentHeader, crc32c, u32_at, u64_at};

/// A block is closed once it is at least this large.
pub(crate) const BLOCK_BYTES: u64 = 64 * 1024;
/// Bytes of data after which the index is written out, so that recovery has at most this much to verify.
pub(crate) const FLUSH_BYTES: u64 = 1024 * 1024 - 2 * BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"MilenaIx";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const RECORD_BYTES: usize = 36;

/// A run of whole entries. Its start is the end of the block before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Offset behind the last message.
    pub(crate) end_offset: u64,
    /// Position in the file behind the last entry.
    pub(crate) end_position: u64,
    /// Largest time of a message.
    pub(crate) time_max: u64,
    /// Largest append time of an entry.
    pub(crate) append_max: u64,
}

/// A place in a segment where an entry starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset of the entry's first message.
    pub(crate) offset: u64,
    /// Position of the entry in the file.
    pub(crate) position: u64,
}

/// The blocks of a segment, the last one perhaps still open.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    base_offset: u64,
    closed: Vec<Block>,
    open: Option<Block>,
}

impl Index {
    pub(crate) fn new(base_offset: u64) -> Self {
        Self { base_offset, closed: Vec::new(), open: None }
    }

    pub(crate) fn from_blocks(base_offset: u64, closed: Vec<Block>) -> Self {
        Self { base_offset, closed, open: None }
    }

    /// Takes note of an entry that ends there.
    pub(crate) fn push(&mut self, entry: Block) {
        let start = self.closed_end().position;
        let open = self.open.get_or_insert(entry);
        open.end_offset = entry.end_offset;
        open.end_position = entry.end_position;
        open.time_max = open.time_max.max(entry.time_max);
        open.append_max = open.append_max.max(entry.append_max);
        if open.end_position - start >= BLOCK_BYTES {
            self.seal();
        }
    }

    /// Closes the open block.
    pub(crate) fn seal(&mut self) {
        self.closed.extend(self.open.take());
    }

    /// Keeps the first `count` closed blocks only.
    pub(crate) fn keep(&mut self, count: usize) {
        self.open = None;
        self.closed.truncate(count);
    }

    pub(crate) fn closed(&self) -> &[Block] {
        &self.closed
    }

    /// Where the open block starts.
    pub(crate) fn closed_end(&self) -> Place {
        self.start_of(self.closed.len())
    }

    /// Where the last block ends.
    pub(crate) fn end(&self) -> Place {
        match self.open {
            Some(open) => Place { offset: open.end_offset, position: open.end_position },
            None => self.closed_end(),
        }
    }

    /// Where the block of that number starts.
    pub(crate) fn start_of(&self, number: usize) -> Place {
        match number.checked_sub(1).and_then(|before| self.closed.get(before)) {
            Some(before) => Place { offset: before.end_offset, position: before.end_position },
            None => Place { offset: self.base_offset, position: SEGMENT_HEADER_BYTES as u64 },
        }
    }

    /// Start of the block that holds `offset`.
    pub(crate) fn place_before(&self, offset: u64) -> Place {
        self.start_of(self.closed.partition_point(|block| block.end_offset <= offset))
    }

    /// Where the last block ends that ends at or before that position.
    pub(crate) fn block_end_before(&self, position: u64) -> Option<u64> {
        let behind = self.closed.partition_point(|block| block.end_position <= position);
        Some(self.closed.get(behind.checked_sub(1)?)?.end_position)
    }

    /// Every block with its start, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Place, Block)> + '_ {
        let all = self.closed.iter().chain(&self.open);
        all.enumerate().map(|(number, block)| (self.start_of(number), *block))
    }

    /// Largest time and largest append time in the segment; `None` when it is empty.
    pub(crate) fn maxima(&self) -> Option<(u64, u64)> {
        self.blocks()
            .map(|(_, block)| (block.time_max, block.append_max))
            .reduce(|left, right| (left.0.max(right.0), left.1.max(right.1)))
    }
}

/// The header of an index file.
pub(crate) fn encode_header(segment: &SegmentHeader) -> [u8; HEADER_BYTES] {
    let head = Fields::<24>::new()
        .put(&MAGIC)
        .put(&VERSION.to_le_bytes())
        .put(&segment.nonce.to_le_bytes())
        .put(&segment.base_offset.to_le_bytes())
        .done();
    Fields::new().put(&head).put(&crc32c(&[&head]).to_le_bytes()).done()
}

/// The nonce in the header of an index file of that segment, if it is whole.
pub(crate) fn decode_header(bytes: &[u8], base_offset: u64) -> Option<u32> {
    let head = bytes.first_chunk::<HEADER_BYTES>()?;
    let (fields, crc) = head.split_at(24);
    let whole = fields.starts_with(&MAGIC)
        && u32_at(fields, 8) == VERSION
        && u64_at(fields, 16) == base_offset
        && u32_at(crc, 0) == crc32c(&[fields]);
    whole.then(|| u32_at(fields, 12))
}

/// The records of blocks `from..`.
pub(crate) fn encode_records(blocks: &[Block], from: usize, nonce: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks.len().saturating_sub(from) * RECORD_BYTES);
    for (number, block) in blocks.iter().enumerate().skip(from) {
        let fields = Fields::<32>::new()
            .put(&block.end_offset.to_le_bytes())
            .put(&block.end_position.to_le_bytes())
            .put(&block.time_max.to_le_bytes())
            .put(&block.append_max.to_le_bytes())
            .done();
        bytes.extend_from_slice(&fields);
        bytes.extend_from_slice(&record_crc(&fields, number, nonce).to_le_bytes());
    }
    bytes
}

/// The blocks of an index file as far as its records are sound and in order; `None` when it is of another segment.
pub(crate) fn decode(bytes: &[u8], segment: &SegmentHeader) -> Option<Vec<Block>> {
    if decode_header(bytes, segment.base_offset)? != segment.nonce {
        return None;
    }
    let mut blocks = Vec::new();
    let mut end = Place { offset: segment.base_offset, position: SEGMENT_HEADER_BYTES as u64 };
    for (number, record) in bytes.get(HEADER_BYTES..)?.chunks_exact(RECORD_BYTES).enumerate() {
        let (fields, crc) = record.split_at(32);
        let block = Block {
            end_offset: u64_at(fields, 0),
            end_position: u64_at(fields, 8),
            time_max: u64_at(fields, 16),
            append_max: u64_at(fields, 24),
        };
        let sound = u32_at(crc, 0) == record_crc(fields, number, segment.nonce);
        if !sound || block.end_offset <= end.offset || block.end_position <= end.position {
            break;
        }
        end = Place { offset: block.end_offset, position: block.end_position };
        blocks.push(block);
    }
    Some(blocks)
}

fn record_crc(fields: &[u8], number: usize, nonce: u32) -> u32 {
    crc32c(&[&nonce.to_le_bytes(), &(number as u64).to_le_bytes(), fields])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentHeader = SegmentHeader { nonce: 5, base_offset: 100, durable_end: 0 };

    fn index_of(entries: &[(u64, u64)]) -> Index {
        let mut index = Index::new(100);
        let (mut offset, mut position) = (100, 40);
        for (count, bytes) in entries {
            offset += count;
            position += bytes;
            index.push(Block { end_offset: offset, end_position: position, time_max: offset, append_max: 1 });
        }
        index
    }

    fn file_of(index: &Index) -> Vec<u8> {
        let mut bytes = encode_header(&SEGMENT).to_vec();
        bytes.extend(encode_records(index.closed(), 0, SEGMENT.nonce));
        bytes
    }

    #[test]
    fn a_place_before_an_offset_is_the_start_of_its_block() {
        let index = index_of(&[(10, 70_000), (10, 70_000), (5, 100)]);
        assert_eq!(index.place_before(100), Place { offset: 100, position: 40 });
        assert_eq!(index.place_before(109), Place { offset: 100, position: 40 });
        assert_eq!(index.place_before(110), Place { offset: 110, position: 70_040 });
        assert_eq!(index.place_before(124), Place { offset: 120, position: 140_040 });
        assert_eq!(index.end(), Place { offset: 125, position: 140_140 });
    }

    #[test]
    fn records_read_back_and_zero_bytes_are_none() {
        let index = index_of(&[(10, 70_000), (10, 70_000)]);
        let mut bytes = file_of(&index);
        bytes.extend_from_slice(&[0; 3 * RECORD_BYTES]);
        assert_eq!(decode(&bytes, &SEGMENT).unwrap(), index.closed());
    }

    #[test]
    fn records_behind_a_damaged_one_are_not_believed() {
        let index = index_of(&[(10, 70_000), (10, 70_000), (10, 70_000)]);
        let mut bytes = file_of(&index);
        bytes[HEADER_BYTES + RECORD_BYTES + 3] ^= 1;
        assert_eq!(decode(&bytes, &SEGMENT).unwrap(), index.closed()[..1]);
    }

    #[test]
    fn the_index_of_another_segment_is_not_believed() {
        let bytes = file_of(&index_of(&[(10, 70_000)]));
        assert_eq!(decode(&bytes, &SegmentHeader { nonce: 6, ..SEGMENT }), None);
        assert_eq!(decode(&bytes, &SegmentHeader { base_offset: 0, ..SEGMENT }), None);
    }
}
