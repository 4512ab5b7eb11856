//! The one error enum of the engine boundary.

use crate::types::Bounds;

/// Why an engine did not do what it was asked.
///
/// Every variant says whether the operation may have been applied: only [`StoreError::InDoubt`] leaves that open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The stream, topic or partition does not exist. Not applied.
    #[error("{what} does not exist")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The topic exists already. Not applied.
    #[error("{what} exists already")]
    Exists {
        /// What was to be created.
        what: String,
    },
    /// The offset lies outside the partition. Nothing was read.
    #[error("offset outside of {}..{}", bounds.start, bounds.end)]
    OutOfRange {
        /// What the partition holds.
        bounds: Bounds,
    },
    /// The engine cannot do it now; the same call may succeed later. Not applied.
    #[error("the store is busy: {reason}")]
    Busy {
        /// Why, for the log.
        reason: String,
    },
    /// The device is full. Not applied, nothing half-written is visible.
    #[error("no space left on the device: {context}")]
    Full {
        /// What was being written.
        context: String,
    },
    /// The outcome is unknown: it may have been applied, may still be applied, or not.
    #[error("outcome unknown: {reason}")]
    InDoubt {
        /// Why, for the log.
        reason: String,
    },
    /// Refused because a limit was passed. Not applied, and it never will be.
    #[error("{what} is {actual}, the limit is {limit}")]
    Refused {
        /// What was measured.
        what: &'static str,
        /// Its size.
        actual: u64,
        /// The limit.
        limit: u64,
    },
    /// Stored bytes are damaged, or the device failed. Not applied.
    #[error("storage is damaged: {context}")]
    Broken {
        /// Where and how.
        context: String,
    },
    /// This engine cannot do that at all.
    #[error("not supported by this store: {what}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The store was closed. Not applied.
    #[error("the store is closed")]
    Closed,
}
