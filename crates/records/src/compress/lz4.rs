//! lz4 frames (lz4 frame format 1.6).
//!
//! The frame is walked here and only its blocks are left to the library: that way the number of blocks is bounded and
//! output goes straight to its place. Checksums of the frame are skipped, since the batch's own covers these bytes.

use lz4_flex::block::decompress_into_with_dict;

use crate::batch::Refusal;
use crate::compress::{DAMAGED, Meter};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const RESERVED_AND_DICTIONARY: u8 = 0b0000_0011;
/// Blocks that are stored as they are carry this bit in their length.
const STORED: u32 = 1 << 31;
/// How far a block may look back into earlier ones.
const WINDOW: usize = 64 * 1024;
/// A byte of a block makes 255 bytes at most.
const EXPANSION_MAX: usize = 255;

struct Frame {
    block_bytes_max: usize,
    block_checksums: bool,
    content_checksum: bool,
}

pub(super) fn decompress(input: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let mut rest = input;
    while !rest.is_empty() {
        meter.block()?;
        let (frame, blocks) = read_header(rest, meter)?;
        rest = decompress_blocks(&frame, blocks, meter)?;
    }
    Ok(())
}

fn read_header<'a>(bytes: &'a [u8], meter: &Meter<'_>) -> Result<(Frame, &'a [u8]), Refusal> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(DAMAGED)?;
    let (&[flags, size], mut rest) = rest.split_first_chunk::<2>().ok_or(DAMAGED)?;
    if flags & VERSION_MASK != VERSION || flags & RESERVED_AND_DICTIONARY != 0 {
        return Err(DAMAGED);
    }
    if flags & CONTENT_SIZE != 0 {
        let (content, tail) = rest.split_first_chunk::<8>().ok_or(DAMAGED)?;
        meter.announce(usize::try_from(u64::from_le_bytes(*content)).unwrap_or(usize::MAX))?;
        rest = tail;
    }
    let (_header_checksum, rest) = rest.split_first().ok_or(DAMAGED)?;
    let block_bytes_max = match size >> 4 {
        4 => 64 << 10,
        5 => 256 << 10,
        6 => 1 << 20,
        7 => 4 << 20,
        _ => return Err(DAMAGED),
    };
    let frame = Frame {
        block_bytes_max,
        block_checksums: flags & BLOCK_CHECKSUM != 0,
        content_checksum: flags & CONTENT_CHECKSUM != 0,
    };
    Ok((frame, rest))
}

fn decompress_blocks<'a>(frame: &Frame, blocks: &'a [u8], meter: &mut Meter<'_>) -> Result<&'a [u8], Refusal> {
    let mut rest = blocks;
    let frame_start = meter.produced();
    loop {
        let (length, tail) = rest.split_first_chunk::<4>().ok_or(DAMAGED)?;
        let length = u32::from_le_bytes(*length);
        if length == 0 {
            let trailer = if frame.content_checksum { 4 } else { 0 };
            return tail.get(trailer..).ok_or(DAMAGED);
        }
        meter.block()?;
        let (block, tail) = tail.split_at_checked((length & !STORED) as usize).ok_or(DAMAGED)?;
        rest = tail.get(if frame.block_checksums { 4 } else { 0 }..).ok_or(DAMAGED)?;
        if block.len() > frame.block_bytes_max {
            return Err(DAMAGED);
        }
        if length & STORED != 0 {
            meter.reserve(block.len());
            meter.out.extend_from_slice(block);
        } else {
            // History begins with the frame; what lies before it in the output belongs to another one.
            let history = meter.produced() - frame_start;
            decompress_block(frame, block, history, meter)?;
        }
        meter.check()?;
    }
}

fn decompress_block(frame: &Frame, block: &[u8], history: usize, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let room = frame.block_bytes_max.min(block.len().saturating_mul(EXPANSION_MAX));
    let start = meter.out.len();
    meter.reserve(room);
    meter.out.resize(start + room, 0);
    let (before, target) = meter.out.split_at_mut_checked(start).ok_or(DAMAGED)?;
    let window = before.get(start - history.min(WINDOW).min(start)..).ok_or(DAMAGED)?;
    let written = decompress_into_with_dict(block, target, window).map_err(|_| DAMAGED)?;
    meter.out.truncate(start + written);
    Ok(())
}
