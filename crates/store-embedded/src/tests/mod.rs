//! Tests of the whole store.

mod backup;
mod basics;
mod concurrency;
mod crash_run;
mod crashes;
mod damage;
mod faults;
mod gone;
mod repair;
mod time_and_space;

/// Deliberate mistakes, for the tests that show that mistakes are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// None: the store as it is.
    None,
    /// Appends are answered without waiting for the flush.
    AnswersBeforeFlush,
    /// A flush covers the active segment only.
    SkipsSealedSegments,
    /// A flush covers no folders.
    SkipsNames,
    /// Recovery flushes what it found without writing it again.
    BelievesTheCache,
    /// Segments are removed before the start of the log is stored.
    RemovesBeforeStart,
    /// A failed flush is forgotten.
    GoesOnAfterFailedFlush,
}
