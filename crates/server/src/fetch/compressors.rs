//! Places of those that compress much.

use std::num::NonZeroUsize;

use milena_records::{Codec, Compression};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Compressing more than this at once is announced to the runtime, which moves other tasks to another thread.
const INLINE_BYTES: usize = 64 << 10;

/// The same at a level that takes longer: the highest of zstd compresses a megabyte per second.
const HARD_INLINE_BYTES: usize = 4 << 10;

/// As many compress much at a time as there are processors: more would not be faster, and at the highest level of zstd
/// each takes some 80 MB of memory.
///
/// Those at a level that takes longer leave one place to the others, which would otherwise wait seconds for what takes them
/// milliseconds. With a single processor they have one place of their own.
#[derive(Debug)]
pub struct Compressors {
    places: Semaphore,
    /// Taken first by those at a level that takes longer.
    hard: Semaphore,
    /// False where a hard one takes no other place.
    shared: bool,
}

/// A place, free again once dropped.
#[derive(Debug)]
pub struct Place<'a> {
    _hard: Option<SemaphorePermit<'a>>,
    _place: Option<SemaphorePermit<'a>>,
}

impl Compressors {
    /// A place for each processor.
    #[must_use]
    pub fn new() -> Self {
        Self::of(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    fn of(processors: usize) -> Self {
        let hard = processors.saturating_sub(1).max(1);
        Self { places: Semaphore::new(processors), hard: Semaphore::new(hard), shared: processors > 1 }
    }

    /// A place, when one is free, for compressing `bytes`; `None` when they are too few to need one.
    pub async fn place(&self, compression: Compression, bytes: usize) -> Option<Place<'_>> {
        let is_hard = !compression.is_usual();
        let inline = if is_hard { HARD_INLINE_BYTES } else { INLINE_BYTES };
        if compression.codec == Codec::None || bytes <= inline {
            return None;
        }
        let hard = if is_hard { self.hard.acquire().await.ok() } else { None };
        let place = if !is_hard || self.shared { self.places.acquire().await.ok() } else { None };
        Some(Place { _hard: hard, _place: place })
    }
}

impl Default for Compressors {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn zstd(level: i32) -> Compression {
        Compression { codec: Codec::Zstd, level: Some(level) }
    }

    /// Takes places until there is none.
    fn take_all(compressors: &Compressors, level: i32) -> Vec<Place<'_>> {
        let take = || compressors.place(zstd(level), 1 << 20).now_or_never().map(Option::unwrap);
        std::iter::from_fn(take).take(100).collect()
    }

    #[tokio::test]
    async fn little_work_needs_no_place() {
        let compressors = Compressors::new();
        for (compression, bytes) in [(Compression::NONE, usize::MAX), (zstd(3), 64 << 10), (zstd(22), 4 << 10)] {
            assert!(compressors.place(compression, bytes).await.is_none(), "{compression:?} {bytes}");
        }
        for (compression, bytes) in [(zstd(3), (64 << 10) + 1), (zstd(22), (4 << 10) + 1)] {
            assert!(compressors.place(compression, bytes).await.is_some(), "{compression:?} {bytes}");
        }
    }

    #[test]
    fn no_more_compress_much_at_a_time_than_there_are_processors() {
        let compressors = Compressors::new();
        let mut places = take_all(&compressors, 3);
        assert_eq!(places.len(), std::thread::available_parallelism().unwrap().get());
        assert!(take_all(&compressors, 22).is_empty() || places.len() == 1);
        places.pop();
        assert_eq!(take_all(&compressors, 3).len(), 1);
    }

    #[test]
    fn hard_levels_leave_a_place_to_the_others() {
        for (processors, hard, usual) in [(1, 1, 1), (2, 1, 1), (4, 3, 1)] {
            let compressors = Compressors::of(processors);
            let held = take_all(&compressors, 22);
            assert_eq!(held.len(), hard, "{processors}");
            let others = take_all(&compressors, 3);
            assert_eq!(others.len(), usual, "{processors}");
            drop(held);
            assert_eq!(take_all(&compressors, 22).len(), hard, "{processors}");
        }
    }
}
