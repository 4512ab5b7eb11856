//! Room for answers that their clients have not read yet.
//!
//! A request of a hundred bytes may ask for 64 MiB, and a client that does not read them holds them until the write
//! times out: a few hundred such clients would take all memory. So the records of all answers share one budget. It is
//! taken partition by partition just before records are read, what is not used is given back at once, and what is used
//! is held until the frame is written. A fetch never waits for room: when there is none left it gets a shorter answer,
//! but always one record, so every consumer goes on, and a client that reads is never stopped by those that do not.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budget of all answers. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Room {
    free: Arc<Semaphore>,
}

/// What one answer holds of it; given back when dropped.
#[derive(Debug, Default)]
pub struct Held {
    permits: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Room for `bytes` of records.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))) }
    }

    /// Bytes that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Takes up to `wanted` bytes, as many as are free.
    #[must_use]
    pub fn take(&self, wanted: usize) -> Held {
        let mut wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        // Another fetch may be faster each time, but what is wanted only shrinks, and half of it is a fair share.
        loop {
            wanted = wanted.min(u32::try_from(self.free()).unwrap_or(u32::MAX));
            if wanted == 0 {
                return Held::default();
            }
            match Arc::clone(&self.free).try_acquire_many_owned(wanted) {
                Ok(permits) => return Held { permits: Some(permits) },
                Err(_) => wanted /= 2,
            }
        }
    }
}

impl Held {
    /// Bytes that are held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let excess = self.bytes().saturating_sub(bytes);
        drop(self.permits.as_mut().and_then(|permits| permits.split(excess)));
    }

    /// Takes over what `other` holds.
    pub fn merge(&mut self, other: Self) {
        match (&mut self.permits, other.permits) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            (ours @ None, theirs) => *ours = theirs,
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_as_is_free_is_given_and_never_more() {
        let room = Room::new(100);
        let first = room.take(70);
        let second = room.take(70);
        assert_eq!((first.bytes(), second.bytes(), room.take(1).bytes()), (70, 30, 0));
        drop(first);
        assert_eq!(room.free(), 70);
    }

    #[test]
    fn what_is_not_used_comes_back_and_what_is_used_is_held() {
        let room = Room::new(100);
        let mut held = room.take(60);
        held.shrink(10);
        assert_eq!(room.free(), 90);
        held.merge(room.take(20));
        held.merge(Held::default());
        assert_eq!((held.bytes(), room.free()), (30, 70));
        drop(held);
        assert_eq!(room.free(), 100);
    }

    #[test]
    fn room_beyond_what_can_be_counted_is_clamped() {
        assert_eq!(Room::new(usize::MAX).free(), Semaphore::MAX_PERMITS);
        assert_eq!(Room::new(usize::MAX).take(usize::MAX).bytes(), u32::MAX as usize);
    }
}
