//! The byte budget of requests in flight.
//!
//! A frame is charged as its bytes arrive, never by its declared length: a client that announces 100 MiB and sends
//! nothing holds nothing. When the budget is spent, reading pauses everywhere, except for one frame at a time, which
//! holds the *overdraft* and needs no further charge until it is answered. So a request larger than the whole budget
//! still gets through alone, and frames that are each half read cannot wait for one another for ever.
//!
//! A charge is complete before its request is handed to a handler; a handler never waits for the budget. Without that
//! rule a request could wait for the overdraft that the next request of its own connection holds.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::metrics::Counter;

/// Most bytes that one request is charged for being decoded: the guard in front of the decoders bounds the number of
/// primitive reads, which bounds the decoded form.
const DECODED_BYTES_MAX: usize = 160 << 20;

/// Decoded bytes per frame byte that a request other than Produce is charged for. Measured growth is 16 to 116 times.
const INFLATION: usize = 16;

/// Frames below this size are not charged for their decoded form, which the cost of a connection covers.
const INFLATION_FROM: usize = 16 << 10;

/// The budget of all clients that are not let in yet: some tokens of the largest size at a time. Passed: reading of further
/// strangers pauses, unless what they send is below 16 KiB.
pub(crate) const STRANGERS_BYTES: usize = 16 << 20;

/// Frames above this size are decoded one at a time, because the guard may decode them twice.
const TURN_FROM: usize = 1 << 20;

/// The budget.
#[derive(Debug)]
pub struct Memory {
    budget: Arc<Semaphore>,
    total: usize,
    overdraft: Arc<Semaphore>,
    decode: Semaphore,
    waits: Counter,
}

/// What a request holds of the budget; given back when dropped.
#[derive(Debug, Default)]
pub struct Charge {
    permits: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// True when this request is the one that may exceed the budget.
    #[must_use]
    pub fn is_overdraft(&self) -> bool {
        self.overdraft.is_some()
    }

    /// Bytes charged so far, the overdraft not counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

impl Memory {
    /// A budget of `total` bytes, clamped to what a semaphore can count.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS);
        Self {
            budget: Arc::new(Semaphore::new(total)),
            total,
            overdraft: Arc::new(Semaphore::new(1)),
            decode: Semaphore::new(1),
            waits: Counter::default(),
        }
    }

    /// Adds `bytes` to a charge; waits while the budget is spent and another request holds the overdraft.
    pub async fn extend(&self, charge: &mut Charge, bytes: usize) {
        if charge.is_overdraft() || bytes == 0 {
            return;
        }
        let permits = u32::try_from(bytes.min(self.total)).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&self.budget).try_acquire_many_owned(permits) {
            charge.merge(permit);
            return;
        }
        self.waits.add(1);
        tokio::select! {
            biased;
            Ok(permit) = Arc::clone(&self.budget).acquire_many_owned(permits) => charge.merge(permit),
            Ok(overdraft) = Arc::clone(&self.overdraft).acquire_owned() => charge.overdraft = Some(overdraft),
            // Neither semaphore is ever closed.
            else => {}
        }
    }

    /// Waits for the turn to decode a body of that size; small bodies have no turns.
    pub async fn decode_turn(&self, body_bytes: usize) -> Option<SemaphorePermit<'_>> {
        if body_bytes < TURN_FROM { None } else { self.decode.acquire().await.ok() }
    }

    /// Bytes of the budget that are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.budget.available_permits()
    }

    /// How often reading paused because the budget was spent.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.get()
    }
}

impl Charge {
    fn merge(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permits {
            Some(held) => held.merge(permit),
            None => self.permits = Some(permit),
        }
    }
}

/// Bytes that a frame is charged for its decoded form. Record batches are not decoded by the schema decoders, so a
/// Produce does not grow.
#[must_use]
pub fn decoded_bytes(is_produce: bool, frame_bytes: usize) -> usize {
    if is_produce || frame_bytes < INFLATION_FROM {
        0
    } else {
        frame_bytes.saturating_mul(INFLATION).min(DECODED_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn within<F: Future>(future: F) -> Option<F::Output> {
        tokio::time::timeout(Duration::from_millis(50), future).await.ok()
    }

    #[tokio::test]
    async fn a_charge_is_given_back_when_it_is_dropped() {
        let memory = Memory::new(100);
        let mut charge = Charge::default();
        memory.extend(&mut charge, 60).await;
        memory.extend(&mut charge, 30).await;
        assert_eq!((charge.bytes(), memory.available()), (90, 10));
        drop(charge);
        assert_eq!(memory.available(), 100);
    }

    #[tokio::test]
    async fn one_request_at_a_time_exceeds_the_budget() {
        let memory = Memory::new(100);
        let mut first = Charge::default();
        memory.extend(&mut first, 100).await;
        let mut second = Charge::default();
        memory.extend(&mut second, 1).await;
        assert!(second.is_overdraft());
        let mut third = Charge::default();
        assert!(within(memory.extend(&mut third, 1)).await.is_none(), "the overdraft is taken");
        drop(first);
        assert!(within(memory.extend(&mut third, 1)).await.is_some());
        assert!(!third.is_overdraft());
        assert_eq!(memory.waits(), 2);
    }

    #[tokio::test]
    async fn a_request_larger_than_the_budget_gets_through_alone() {
        let memory = Memory::new(100);
        let mut charge = Charge::default();
        assert!(within(memory.extend(&mut charge, 1_000)).await.is_some());
        assert!(within(memory.extend(&mut charge, 1_000)).await.is_some());
        assert!(charge.is_overdraft());
    }

    #[test]
    fn a_total_beyond_the_semaphore_maximum_is_clamped() {
        assert_eq!(Memory::new(usize::MAX).available(), Semaphore::MAX_PERMITS);
    }

    #[test]
    fn only_large_frames_that_are_no_produce_are_charged_for_growth() {
        assert_eq!(decoded_bytes(true, 50 << 20), 0);
        assert_eq!(decoded_bytes(false, INFLATION_FROM - 1), 0);
        assert_eq!(decoded_bytes(false, INFLATION_FROM), INFLATION_FROM * INFLATION);
        assert_eq!(decoded_bytes(false, 100 << 20), DECODED_BYTES_MAX);
    }
}
