//! Read buffers that are used again.
//!
//! A fresh buffer per read costs page faults for every byte; one that was just used is still in the cache.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Smallest and largest buffer that is kept. Smaller ones are cheap to make, larger ones too expensive to hold.
const KEPT_BYTES_MIN: usize = 16 * 1024;
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that are kept in all.
const KEPT_BYTES_TOTAL: usize = 16 * 1024 * 1024;

/// Buffers waiting to be used again, of power-of-two sizes.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    classes: [Vec<Vec<u8>>; 9],
    bytes: usize,
}

fn class_of(size: usize) -> usize {
    (size / KEPT_BYTES_MIN).trailing_zeros() as usize
}

impl Pool {
    /// A buffer of at least `bytes` bytes; what it holds is left over from before.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        if bytes > KEPT_BYTES_MAX {
            return Buffer { data: vec![0; bytes], pool: Weak::new() };
        }
        if bytes <= KEPT_BYTES_MIN / 4 {
            return Buffer { data: vec![0; bytes], pool: Weak::new() };
        }
        let size = bytes.next_power_of_two().max(KEPT_BYTES_MIN);
        let mut kept = self.kept.lock();
        let found = kept.classes.get_mut(class_of(size)).and_then(Vec::pop);
        if found.is_some() {
            kept.bytes -= size;
        }
        drop(kept);
        Buffer { data: found.unwrap_or_else(|| vec![0; size]), pool: Arc::downgrade(self) }
    }

    fn give_back(&self, data: Vec<u8>) {
        let mut kept = self.kept.lock();
        if kept.bytes + data.len() > KEPT_BYTES_TOTAL {
            return;
        }
        let size = data.len();
        if let Some(class) = kept.classes.get_mut(class_of(size)) {
            class.push(data);
            kept.bytes += size;
        }
    }
}

/// A buffer on loan.
pub(crate) struct Buffer {
    data: Vec<u8>,
    pool: Weak<Pool>,
}

impl Buffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Shares the buffer; it goes back to the pool when the last slice of it is dropped.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give_back(std::mem::take(&mut self.data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_dropped() {
        let pool = Arc::new(Pool::default());
        let mut buffer = pool.take(100_000);
        buffer.as_mut()[0] = 7;
        let shared = buffer.freeze();
        let slice = shared.slice(..1);
        drop(shared);
        assert_eq!(pool.kept.lock().bytes, 0);
        drop(slice);
        assert_eq!(pool.kept.lock().bytes, 131_072);
        assert_eq!(pool.take(70_000).as_ref()[0], 7);
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let pool = Arc::new(Pool::default());
        let lent: Vec<Buffer> = (0..10).map(|_| pool.take(KEPT_BYTES_MAX)).collect();
        drop(lent);
        assert_eq!(pool.kept.lock().bytes, KEPT_BYTES_TOTAL);
        drop(pool.take(KEPT_BYTES_MAX + 1));
        assert_eq!(pool.kept.lock().bytes, KEPT_BYTES_TOTAL);
    }
}
