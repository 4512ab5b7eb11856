//! A look into both lanes (the `ConsumerBuffer` of KIP-333).

use crate::RangeSet;

/// The offsets of one lane that are not yet covered by a commit. No offset is in two of the sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Buffer {
    /// Fetched; the application does not have it yet.
    pub held: RangeSet,
    /// The application has it and did not acknowledge it.
    pub delivered: RangeSet,
    /// Finished in this assignment and not covered by a commit that the broker took. Offsets that the log skips
    /// (markers of transactions, compacted records) are among them: nothing is waited for there.
    pub acknowledged: RangeSet,
}

/// Both lanes of one partition. No offset is in both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Buffers {
    /// From the fork on; all offsets, without a fork.
    pub live: Buffer,
    /// Below the fork.
    pub backfill: Buffer,
}
