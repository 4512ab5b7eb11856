//! Reused memory of the mapping: frame buffers and decompression scratch.
//!
//! A fresh buffer of a megabyte for every batch makes the allocator give pages back to the system and fetch them
//! again, at several times the cost of the mapping itself.

use std::sync::Arc;

use bytes::Bytes;
use milena_records::Scratch;
use parking_lot::Mutex;

/// Smallest pooled buffer, as a power of two. What is below is cheap to allocate.
const CLASS_MIN: u32 = 14;
/// Largest pooled buffer, as a power of two. What is above is rare, and would hold much memory for nothing.
const CLASS_MAX: u32 = 23;
const CLASSES: usize = (CLASS_MAX - CLASS_MIN + 1) as usize;
/// Scratch memory above this is not kept.
const SCRATCH_BYTES_MAX: usize = 4 << 20;
const SCRATCHES_MAX: usize = 16;

/// A pool of frame buffers. Cloning shares it.
#[derive(Debug, Clone)]
pub struct FramePool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    shelves: Mutex<Shelves>,
    scratches: Mutex<Vec<Scratch>>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shelves {
    buffers: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

impl FramePool {
    /// A pool that keeps up to `bytes_max` bytes of unused buffers.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                shelves: Mutex::new(Shelves::default()),
                scratches: Mutex::new(Vec::new()),
                bytes_max,
            }),
        }
    }

    /// An empty buffer with room for about `bytes`.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let class = class_for_request(bytes);
        let Some(class) = class else { return Vec::with_capacity(bytes) };
        let mut shelves = self.shared.shelves.lock();
        // One size larger is still a fair use of memory; two sizes larger would pin four times what is needed.
        for at in class..=class + 1 {
            if let Some(buffer) = shelves.buffers.get_mut(at).and_then(Vec::pop) {
                shelves.bytes = shelves.bytes.saturating_sub(buffer.capacity());
                return buffer;
            }
        }
        drop(shelves);
        Vec::with_capacity(1 << (class + CLASS_MIN as usize))
    }

    /// The buffer as shared bytes. It comes back to the pool when the last reference is dropped.
    #[must_use]
    pub fn share(&self, buffer: Vec<u8>) -> Bytes {
        if class_of(buffer.capacity()).is_none() {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Pooled { buffer, pool: Arc::clone(&self.shared) })
    }

    /// Puts a buffer back that was not used.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.shared.give_back(buffer);
    }

    /// Scratch memory for one request.
    #[must_use]
    pub fn take_scratch(&self) -> Scratch {
        self.shared.scratches.lock().pop().unwrap_or_default()
    }

    /// Puts scratch memory back.
    pub fn give_back_scratch(&self, mut scratch: Scratch) {
        scratch.trim(SCRATCH_BYTES_MAX);
        let mut scratches = self.shared.scratches.lock();
        if scratches.len() < SCRATCHES_MAX {
            scratches.push(scratch);
        }
    }

    /// Bytes of unused buffers that are kept.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        self.shared.shelves.lock().bytes
    }
}

impl Shared {
    fn give_back(&self, mut buffer: Vec<u8>) {
        let Some(class) = class_of(buffer.capacity()) else { return };
        buffer.clear();
        let mut shelves = self.shelves.lock();
        if shelves.bytes.saturating_add(buffer.capacity()) > self.bytes_max {
            return;
        }
        shelves.bytes += buffer.capacity();
        if let Some(shelf) = shelves.buffers.get_mut(class) {
            shelf.push(buffer);
        }
    }
}

/// Shelf whose buffers all hold `bytes`; `None` when such a buffer is not pooled.
fn class_for_request(bytes: usize) -> Option<usize> {
    let power = bytes.checked_next_power_of_two()?.trailing_zeros();
    if bytes < 1 << CLASS_MIN || power > CLASS_MAX {
        return None;
    }
    Some((power - CLASS_MIN) as usize)
}

/// Shelf of a buffer of that capacity; `None` when it is not pooled.
fn class_of(capacity: usize) -> Option<usize> {
    let power = capacity.checked_ilog2()?;
    if !(CLASS_MIN..=CLASS_MAX).contains(&power) {
        return None;
    }
    Some((power - CLASS_MIN) as usize)
}

#[derive(Debug)]
struct Pooled {
    buffer: Vec<u8>,
    pool: Arc<Shared>,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reference_is_dropped() {
        let pool = FramePool::new(1 << 20);
        let mut buffer = pool.take(100_000);
        buffer.extend_from_slice(b"frames");
        let address = buffer.as_ptr();
        let shared = pool.share(buffer);
        let slice = shared.slice(1..3);
        drop(shared);
        assert_eq!(pool.idle_bytes(), 0);
        assert_eq!(&slice[..], b"ra");
        drop(slice);
        let again = pool.take(70_000);
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let pool = FramePool::new(3 << 16);
        let buffers: Vec<_> = (0..4).map(|_| pool.take(1 << 16)).collect();
        for buffer in buffers {
            pool.give_back(buffer);
        }
        assert_eq!(pool.idle_bytes(), 3 << 16);
    }

    #[test]
    fn a_small_or_a_huge_buffer_is_not_pooled() {
        let pool = FramePool::new(1 << 30);
        drop(pool.share(pool.take(100)));
        drop(pool.share(pool.take(32 << 20)));
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn a_buffer_that_grew_goes_to_the_shelf_of_its_size() {
        let pool = FramePool::new(1 << 30);
        let mut buffer = pool.take(1 << 14);
        buffer.resize(1 << 20, 0);
        let capacity = buffer.capacity();
        drop(pool.share(buffer));
        assert_eq!(pool.take(1 << 20).capacity(), capacity);
    }
}
