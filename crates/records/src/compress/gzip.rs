//! gzip (RFC 1952), with any number of members.

use flate2::{Decompress, FlushDecompress, Status};

use crate::batch::Refusal;
use crate::compress::{DAMAGED, Meter};

/// Output of one step.
const STEP_OUT: usize = 64 * 1024;
/// Input of one step.
const STEP_IN: usize = 16 * 1024;
/// Checksum and length behind a member. They are skipped: the batch's own checksum covers these bytes already.
const TRAILER_BYTES: usize = 8;
/// Members are checked for having more input than output by more than this factor: streams of empty deflate blocks
/// cost time and yield nothing, and no compressor writes them.
const WASTE_FACTOR: usize = 4;

/// A fresh decoder of raw deflate data.
pub(super) fn state() -> Decompress {
    Decompress::new(false)
}

pub(super) fn decompress(inflate: &mut Decompress, input: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let mut rest = input;
    while !rest.is_empty() {
        meter.block()?;
        let body = skip_header(rest).ok_or(DAMAGED)?;
        inflate.reset(false);
        let tail = inflate_member(inflate, body, input.len(), meter)?;
        let (_, next) = tail.split_at_checked(TRAILER_BYTES).ok_or(DAMAGED)?;
        rest = next;
    }
    Ok(())
}

fn inflate_member<'a>(
    inflate: &mut Decompress,
    body: &'a [u8],
    input_len: usize,
    meter: &mut Meter<'_>,
) -> Result<&'a [u8], Refusal> {
    let mut rest = body;
    loop {
        let (step, _) = rest.split_at(rest.len().min(STEP_IN));
        meter.reserve(STEP_OUT);
        let (in_before, out_before) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress_vec(step, meter.out, FlushDecompress::None).map_err(|_| DAMAGED)?;
        let consumed = usize::try_from(inflate.total_in() - in_before).map_err(|_| DAMAGED)?;
        rest = rest.get(consumed..).ok_or(DAMAGED)?;
        meter.check()?;
        if status == Status::StreamEnd {
            return Ok(rest);
        }
        if consumed == 0 && inflate.total_out() == out_before {
            return Err(DAMAGED);
        }
        if input_len - rest.len() > meter.produced().saturating_mul(WASTE_FACTOR) + STEP_IN {
            return Err(DAMAGED);
        }
    }
}

/// The bytes behind a member's header (RFC 1952, section 2.3).
fn skip_header(member: &[u8]) -> Option<&[u8]> {
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const HEADER_CRC: u8 = 2;
    const RESERVED: u8 = 0b1110_0000;
    let (&[magic0, magic1, method, flags, ..], mut rest) = member.split_first_chunk::<10>()?;
    if (magic0, magic1, method) != (0x1f, 0x8b, 8) || flags & RESERVED != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        rest = tail.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & HEADER_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}
