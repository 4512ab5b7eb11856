//! Zstandard (RFC 8878), with any number of frames.

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::batch::Refusal;
use crate::compress::{DAMAGED, Meter};

/// Widest window that is accepted, 2^27 bytes: the limit of the reference decoder, and what `--ultra` stays within.
const WINDOW_LOG_MAX: u32 = 27;
/// Output of one step: a block of the format.
const STEP_OUT: usize = 128 * 1024;
/// See the same bound of gzip.
const WASTE_FACTOR: usize = 4;
/// A block yields nothing before the last of its bytes is there, and may have 128 KiB; the input of a step can run into
/// the one behind it.
const WASTE_SLACK: usize = 128 * 1024 + 2 * STEP_IN;
/// Input of one step.
const STEP_IN: usize = 16 * 1024;

/// The decoder kept in `slot`, made if missing and ready for a new batch; `None` when memory for it cannot be had.
pub(super) fn state<'a>(slot: &'a mut Option<DCtx<'static>>) -> Option<&'a mut DCtx<'static>> {
    if slot.is_none() {
        *slot = DCtx::try_create();
    }
    let state = slot.as_mut()?;
    state.reset(ResetDirective::SessionAndParameters).ok()?;
    state.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
    Some(state)
}

pub(super) fn decompress(state: &mut DCtx<'static>, input: &[u8], meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let mut rest = input;
    let mut frame_open = false;
    while !rest.is_empty() || frame_open {
        if !frame_open {
            meter.block()?;
        }
        meter.reserve(STEP_OUT);
        let (step, _) = rest.split_at(rest.len().min(STEP_IN));
        let mut source = InBuffer::around(step);
        let before = meter.out.len();
        let hint = {
            let mut sink = OutBuffer::around_pos(meter.out, before);
            state.decompress_stream(&mut sink, &mut source).map_err(|_| DAMAGED)?
        };
        let consumed = source.pos();
        rest = rest.get(consumed..).ok_or(DAMAGED)?;
        let stalled = consumed == 0 && meter.out.len() == before;
        meter.check()?;
        frame_open = hint != 0;
        if frame_open && stalled {
            return Err(DAMAGED);
        }
        if input.len() - rest.len() > meter.produced().saturating_mul(WASTE_FACTOR) + WASTE_SLACK {
            return Err(DAMAGED);
        }
    }
    Ok(())
}
