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
#[derive(Debug)]
pub struct Compressors {
    places: Semaphore,
}

impl Compressors {
    /// A place for each processor.
    #[must_use]
    pub fn new() -> Self {
        Self { places: Semaphore::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get)) }
    }

    /// A place, when one is free, for compressing `bytes`; `None` when they are too few to need one.
    pub async fn place(&self, compression: Compression, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let inline = if compression.is_usual() { INLINE_BYTES } else { HARD_INLINE_BYTES };
        if compression.codec == Codec::None || bytes <= inline {
            return None;
        }
        self.places.acquire().await.ok()
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

    #[tokio::test]
    async fn no_more_compress_much_at_a_time_than_there_are_processors() {
        let compressors = Compressors::new();
        let mut places = Vec::new();
        while let Some(place) = compressors.place(zstd(22), 1 << 20).now_or_never() {
            places.push(place.unwrap());
        }
        assert_eq!(places.len(), std::thread::available_parallelism().unwrap().get());
        places.pop();
        assert!(compressors.place(zstd(22), 1 << 20).now_or_never().is_some());
    }
}
