//! The memory that encoded records lie in until the response is written.
//!
//! All partitions of a response share a few chunks. A chunk is never moved when more is added, and chunks of a usual size
//! are used again by later responses: fresh megabytes from the allocator cost more than encoding into them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Smallest chunk: a mebibyte, which is what most consumers ask of a partition, and its headers.
const CHUNK_BYTES: usize = (1 << 20) + (64 << 10);

/// Chunks kept for later responses.
const POOLED_CHUNKS: usize = 32;

/// Chunks above this size go back to the allocator. An answer of 4 MiB out of one partition, which is what ends an answer, is below.
/// The first ones after a start cost half as much for it; later the allocator has such memory at hand too.
const POOLED_BYTES_MAX: usize = (4 << 20) + (64 << 10);

/// Chunks between two responses.
#[derive(Default)]
pub struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl BufferPool {
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.free.lock();
        // Of the smallest that will do, the one that came back last: it is still in the cache.
        let fitting = free.iter().enumerate().rev().filter(|(_, chunk)| chunk.capacity() >= bytes);
        let found = fitting.min_by_key(|(_, chunk)| chunk.capacity()).map(|(at, _)| at).map(|at| free.remove(at));
        drop(free);
        found.unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    fn give_back(&self, mut chunk: Vec<u8>) {
        if chunk.capacity() < CHUNK_BYTES || chunk.capacity() > POOLED_BYTES_MAX {
            return;
        }
        chunk.clear();
        let mut free = self.free.lock();
        if free.len() < POOLED_CHUNKS {
            free.push(chunk);
        }
    }
}

/// A place in an arena.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    chunk: usize,
    range: Range<usize>,
}

impl Slice {
    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True when it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

/// Chunks of one response.
pub struct Arena {
    pool: Arc<BufferPool>,
    chunks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Arena {
    /// Empty; takes its chunks from `pool` and gives them back when it is dropped.
    #[must_use]
    pub fn new(pool: Arc<BufferPool>) -> Self {
        Self { pool, chunks: Vec::new(), bytes: 0 }
    }

    /// Bytes in all slices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True when nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Lets `write` append at most about `expected` bytes, and says where they are.
    pub fn append<T>(&mut self, expected: usize, write: impl FnOnce(&mut Vec<u8>) -> T) -> (Slice, T) {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < expected) {
            // Small answers (the usual case at the tail) do not need a megabyte; the next chunk is for more.
            let bytes = if self.chunks.is_empty() { expected } else { expected.max(CHUNK_BYTES) };
            self.chunks.push(self.pool.take(bytes));
        }
        let chunk_index = self.chunks.len() - 1;
        let mut outside = Vec::new();
        let chunk = self.chunks.last_mut().unwrap_or(&mut outside);
        let start = chunk.len();
        let written = write(chunk);
        let slice = Slice { chunk: chunk_index, range: start..chunk.len() };
        self.bytes += slice.len();
        (slice, written)
    }

    /// Its slices, to be shared. A chunk goes back to the pool when the last of its slices is dropped.
    #[must_use]
    pub fn freeze(mut self) -> Frozen {
        let pool = &self.pool;
        let shared = |bytes| Bytes::from_owner(Shared { bytes, pool: Arc::clone(pool) });
        Frozen { chunks: self.chunks.drain(..).map(shared).collect() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            self.pool.give_back(chunk);
        }
    }
}

/// What an arena holds when nothing is added any more.
#[derive(Default)]
pub struct Frozen {
    chunks: Vec<Bytes>,
}

impl Frozen {
    /// The bytes of a slice of the arena that this was.
    #[must_use]
    pub fn get(&self, slice: &Slice) -> Bytes {
        let inside = |chunk: &&Bytes| slice.range.end <= chunk.len();
        let chunk = self.chunks.get(slice.chunk).filter(inside);
        chunk.map(|chunk| chunk.slice(slice.range.clone())).unwrap_or_default()
    }
}

/// A chunk on loan.
struct Shared {
    bytes: Vec<u8>,
    pool: Arc<BufferPool>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(arena: &mut Arena, byte: u8, bytes: usize) -> Slice {
        arena.append(bytes, |out| out.extend(std::iter::repeat_n(byte, bytes))).0
    }

    #[test]
    fn slices_are_what_was_written_also_across_chunks() {
        let mut arena = Arena::new(Arc::default());
        let slices: Vec<_> = (0..5).map(|byte| fill(&mut arena, byte, CHUNK_BYTES / 2 + 1)).collect();
        assert_eq!(arena.len(), 5 * (CHUNK_BYTES / 2 + 1));
        let frozen = arena.freeze();
        for (byte, slice) in (0..5).zip(&slices) {
            assert_eq!(frozen.get(slice).len(), CHUNK_BYTES / 2 + 1);
            assert!(frozen.get(slice).iter().all(|one| *one == byte));
        }
        assert!(frozen.get(&Slice::default()).is_empty());
    }

    #[test]
    fn nothing_that_was_written_is_moved_when_more_comes() {
        let mut arena = Arena::new(Arc::default());
        let first = fill(&mut arena, 1, 100);
        let place = arena.chunks[0].as_ptr();
        for _ in 0..10 {
            fill(&mut arena, 2, CHUNK_BYTES / 3);
        }
        assert_eq!(arena.freeze().get(&first).as_ptr(), place);
    }

    #[test]
    fn usual_chunks_are_used_again_and_the_pool_is_bounded() {
        let pool = Arc::new(BufferPool::default());
        let mut many: Vec<_> = (0..=POOLED_CHUNKS).map(|_| Arena::new(Arc::clone(&pool))).collect();
        for arena in &mut many {
            fill(arena, 1, CHUNK_BYTES);
        }
        drop(many);
        assert_eq!(pool.free.lock().len(), POOLED_CHUNKS);
        let mut arena = Arena::new(Arc::clone(&pool));
        let slice = fill(&mut arena, 2, 10);
        let bytes = arena.freeze().get(&slice);
        assert_eq!(bytes[..], [2; 10]);
        assert_eq!(pool.free.lock().len(), POOLED_CHUNKS - 1);
        drop(bytes);
        assert_eq!(pool.free.lock().len(), POOLED_CHUNKS);
    }

    #[test]
    fn a_whole_answer_out_of_one_partition_is_built_in_the_chunk_of_the_one_before() {
        // What ends an answer, and the headers of its batches.
        let bytes = (4 << 20) + 136;
        let pool = Arc::new(BufferPool::default());
        fill(&mut Arena::new(Arc::clone(&pool)), 1, CHUNK_BYTES);
        fill(&mut Arena::new(Arc::clone(&pool)), 1, bytes);
        let places: Vec<_> = pool.free.lock().iter().map(Vec::as_ptr).collect();
        let mut arena = Arena::new(Arc::clone(&pool));
        fill(&mut arena, 2, bytes);
        assert_eq!(arena.chunks[0].as_ptr(), places[1], "the one that is large enough");
        let mut small = Arena::new(pool);
        fill(&mut small, 2, 10);
        assert_eq!(small.chunks[0].as_ptr(), places[0]);
    }

    #[test]
    fn unusual_chunks_go_back_to_the_allocator() {
        let pool = Arc::new(BufferPool::default());
        for bytes in [10, POOLED_BYTES_MAX + 1] {
            fill(&mut Arena::new(Arc::clone(&pool)), 1, bytes);
        }
        assert!(pool.free.lock().is_empty());
    }
}
