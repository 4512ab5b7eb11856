//! snappy: the framing of snappy-java ("xerial") that Java clients write, and raw blocks that others write.

use snap::raw::{Decoder, decompress_len};

use crate::batch::Refusal;
use crate::compress::{DAMAGED, Meter};

/// Start of the xerial framing; version and lowest compatible version follow, big-endian.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// A copy element makes 64 bytes of 3: a block that states more than this factor lies.
const EXPANSION_MAX: usize = 22;
const EXPANSION_SLACK: usize = 64;

pub(super) fn decompress(input: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
    if !input.starts_with(&XERIAL_MAGIC) {
        meter.announce(stated_len(input)?)?;
        return decompress_block(input, meter);
    }
    let blocks = input.get(XERIAL_HEADER_BYTES..).ok_or(DAMAGED)?;
    // Blocks state their size, so the sum is charged before any of them runs.
    let mut total = 0usize;
    let mut rest = blocks;
    while !rest.is_empty() {
        let (block, tail) = split_block(rest)?;
        total = total.saturating_add(stated_len(block)?);
        meter.block()?;
        rest = tail;
    }
    meter.announce(total)?;
    let mut rest = blocks;
    while !rest.is_empty() {
        let (block, tail) = split_block(rest)?;
        decompress_block(block, meter)?;
        rest = tail;
    }
    Ok(())
}

fn split_block(bytes: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or(DAMAGED)?;
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| DAMAGED)?;
    rest.split_at_checked(len).ok_or(DAMAGED)
}

fn stated_len(block: &[u8]) -> Result<usize, Refusal> {
    let len = decompress_len(block).map_err(|_| DAMAGED)?;
    if len > block.len().saturating_mul(EXPANSION_MAX) + EXPANSION_SLACK {
        return Err(DAMAGED);
    }
    Ok(len)
}

fn decompress_block(block: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let len = stated_len(block)?;
    let start = meter.out.len();
    meter.reserve(len);
    meter.out.resize(start + len, 0);
    let target = meter.out.get_mut(start..).ok_or(DAMAGED)?;
    let written = Decoder::new().decompress(block, target).map_err(|_| DAMAGED)?;
    if written != len {
        return Err(DAMAGED);
    }
    meter.check()
}
