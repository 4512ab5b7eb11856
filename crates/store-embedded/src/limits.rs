//! Bounds of the engine.

/// Largest payload of a message, as in Iggy, so that every stored message can be moved there.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64_000_000;
/// Largest user-header block of a message, as in Iggy.
pub(crate) const HEADER_BYTES_MAX: usize = 100_000;
/// Most partitions of a topic.
pub(crate) const PARTITIONS_MAX: u32 = 100_000;
/// Most appends that wait for one partition, and most bytes of theirs; beyond it the answer is busy.
pub(crate) const QUEUE_APPENDS_MAX: usize = 65_536;
/// As [`QUEUE_APPENDS_MAX`].
pub(crate) const QUEUE_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Longest name of a stream or topic in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// How often a backup begins again with a partition whose segments are removed while it copies them.
pub(crate) const BACKUP_ROUNDS_MAX: usize = 100;
