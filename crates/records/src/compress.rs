//! Codecs under a budget.
//!
//! One [`Budget`] bounds what all batches of a request may decompress to. Output goes into a sink that refuses to pass
//! it, so that the peak is bounded and not only the sum. Work is bounded too: blocks, members and frames, which a
//! sender can make as small as he likes, and records each cost 64 bytes of the budget at least.

use std::fmt;

use crate::batch::Refusal;

mod encode;
mod gzip;
mod lz4;
mod lz4_high;
mod meter;
mod snappy;
mod zstandard;

pub use encode::{Compression, compress};
pub(crate) use meter::Meter;

/// What a record, a block, a member or a frame costs of the budget when it holds less than that.
pub const SLOT_BYTES: usize = 64;

/// Compression codec of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Not compressed.
    None,
    /// gzip (1)
    Gzip,
    /// snappy (2), xerial-framed or raw.
    Snappy,
    /// lz4 frame (3)
    Lz4,
    /// zstd (4)
    Zstd,
}

impl Codec {
    /// Every codec, in the order of its number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of this number in a batch's attributes.
    #[must_use]
    pub fn from_id(id: i16) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its number in a batch's attributes.
    #[must_use]
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The codec of this name in configurations (`compression.type`): `none`, `uncompressed`, `gzip`, `snappy`, `lz4`
    /// or `zstd`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" | "uncompressed" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// What all batches of one request may decompress to, and how much is left.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Bytes in all.
    pub total: usize,
    /// Bytes left.
    pub left: usize,
    /// Bytes that may still be decompressed, kept or not: batches that do not fit cost work as well. Three times the
    /// total leaves honest requests room to be answered exactly; behind that every compressed batch is told to come
    /// again, and is answered exactly when it is the first of its request.
    work: usize,
}

impl Budget {
    /// A fresh budget of `total` bytes.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self { total, left: total, work: total.saturating_mul(3) }
    }

    /// Takes what a batch of `bytes` with `slots` records or blocks costs.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] when it passes the whole budget, [`Refusal::BudgetSpent`] when it would fit alone.
    pub(crate) fn charge(&mut self, bytes: usize, slots: usize) -> Result<(), Refusal> {
        let cost = bytes.max(slots.saturating_mul(SLOT_BYTES));
        self.judge(cost)?;
        self.left -= cost;
        Ok(())
    }

    /// The verdict on a batch of `cost`, which is not charged.
    pub(crate) fn judge(&self, cost: usize) -> Result<(), Refusal> {
        if cost <= self.left {
            Ok(())
        } else if cost <= self.total {
            Err(Refusal::BudgetSpent)
        } else {
            Err(Refusal::TooLarge { what: "the decompressed batch", actual: cost as u64, limit: self.total as u64 })
        }
    }
}

/// State of the codecs that is worth keeping from batch to batch.
#[derive(Default)]
pub(crate) struct Decoders {
    inflate: Option<flate2::Decompress>,
    zstd: Option<zstd::zstd_safe::DCtx<'static>>,
}

impl fmt::Debug for Decoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoders").finish_non_exhaustive()
    }
}

/// Refusal of compressed bytes that are not what their codec says.
pub(crate) const DAMAGED: Refusal =
    Refusal::InvalidRecord { reason: "the compressed records are damaged", index: None };

impl Decoders {
    /// Replaces the content of `out` by the decompressed records, of which `count` are declared, and charges them.
    pub(crate) fn decompress(
        &mut self,
        codec: Codec,
        input: &[u8],
        count: u32,
        budget: &mut Budget,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        out.clear();
        // A count that the budget cannot hold is refused before anything runs.
        budget.judge((count as usize).saturating_mul(SLOT_BYTES))?;
        let mut meter = Meter::new(budget, out);
        let outcome = match codec {
            Codec::None => meter.append(input),
            Codec::Gzip => gzip::decompress(self.inflate.get_or_insert_with(gzip::state), input, &mut meter),
            Codec::Snappy => snappy::decompress(input, &mut meter),
            Codec::Lz4 => lz4::decompress(input, &mut meter),
            Codec::Zstd => match zstandard::state(&mut self.zstd) {
                Some(state) => zstandard::decompress(state, input, &mut meter),
                None => Err(DAMAGED),
            },
        };
        meter.finish(outcome, count)
    }
}
