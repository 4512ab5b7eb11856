//! The sink that decompressed bytes go into.

use crate::batch::Refusal;
use crate::compress::{Budget, SLOT_BYTES};

/// History that every codec may look back on within its own output: the window of lz4.
const TAIL_BYTES: usize = 64 * 1024;

/// Decompressed bytes, kept as long as they fit what is left of the budget.
///
/// A batch that does not fit is read on without being kept, up to the whole budget: whether it would fit alone decides
/// between a code that the client retries and one that it gives up on.
pub(crate) struct Meter<'a> {
    budget: &'a mut Budget,
    /// Kept bytes; once the batch is known not to fit, only the end of them.
    pub(crate) out: &'a mut Vec<u8>,
    /// Bytes that were dropped from the front of `out`.
    dropped: usize,
    blocks: usize,
    /// Cost at which reading on is useless, or too much work.
    ceiling: usize,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(budget: &'a mut Budget, out: &'a mut Vec<u8>) -> Self {
        let ceiling = budget.total.min(budget.work);
        Self { budget, out, dropped: 0, blocks: 0, ceiling }
    }

    /// Bytes produced so far.
    pub(crate) fn produced(&self) -> usize {
        self.dropped + self.out.len()
    }

    fn cost(&self) -> usize {
        self.produced().max(self.blocks.saturating_mul(SLOT_BYTES))
    }

    /// Counts a block, member or frame.
    pub(crate) fn block(&mut self) -> Result<(), Refusal> {
        self.blocks += 1;
        self.check()
    }

    /// To be called after each step of output; `Err` ends the decompression.
    pub(crate) fn check(&mut self) -> Result<(), Refusal> {
        if self.cost() > self.ceiling {
            return Err(self.verdict(self.cost()));
        }
        if self.out.len() > self.budget.left.max(2 * TAIL_BYTES) {
            let drop = self.out.len() - TAIL_BYTES;
            self.out.copy_within(drop.., 0);
            self.out.truncate(TAIL_BYTES);
            self.dropped += drop;
        }
        Ok(())
    }

    /// Judges a cost that the codec states before it runs.
    pub(crate) fn announce(&self, bytes: usize) -> Result<(), Refusal> {
        self.budget.judge(bytes)
    }

    fn verdict(&self, cost: usize) -> Refusal {
        // Past the work limit without past the budget: not known, so the client shall try again.
        self.budget.judge(cost).err().unwrap_or(Refusal::BudgetSpent)
    }

    /// Makes sure that `out` has room for `bytes` more without letting it double past the budget.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        let len = self.out.len();
        if self.out.capacity() - len < bytes {
            let doubled = self.out.capacity().saturating_mul(2).min(self.budget.left.saturating_add(bytes));
            self.out.reserve_exact(doubled.max(len + bytes) - len);
        }
    }

    /// Appends bytes as they are.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.announce(bytes.len())?;
        self.reserve(bytes.len());
        self.out.extend_from_slice(bytes);
        self.check()
    }

    /// Charges the batch to the budget, or says why it does not fit.
    pub(crate) fn finish(self, outcome: Result<(), Refusal>, records: u32) -> Result<(), Refusal> {
        let cost = self.cost().max((records as usize).saturating_mul(SLOT_BYTES));
        let verdict = outcome.and_then(|()| self.budget.judge(cost));
        self.budget.work = self.budget.work.saturating_sub(self.cost());
        match verdict {
            Ok(()) => self.budget.left -= cost,
            // What did not fit is not handed on, not even by mistake.
            Err(_) => self.out.clear(),
        }
        verdict
    }
}
