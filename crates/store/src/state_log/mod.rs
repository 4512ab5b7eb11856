//! State of our own as a log with snapshots: topic configs, blocks of producer ids, committed offsets.
//!
//! The table itself is in memory and belongs to the caller. On disk it is a topic of the internal stream with one
//! partition, written through the [`crate::Store`] trait, so that one code path serves every engine. The rules:
//!
//! 1. Never answer before it is durable: [`StateLog::append`] returns when the engine has acknowledged.
//! 2. Never answer "none" before the table is loaded: [`StateLog::open`] returns the log only after it replayed all of it,
//!    and a message that cannot be read is an error, not a gap.
//! 3. All of a request or nothing: what belongs together is one record.
//! 4. A snapshot says which log offset it covers, and only what lies below is trimmed. A snapshot that was cut off is
//!    ignored, and the one before it still stands.
//! 5. An append whose outcome is unknown closes the log to new ones until it is known: an old value must never land
//!    behind a newer one. The caller was told an error, so the record is made not to count, whether it lands or not.
//!
//! How rule 5 holds without a clock: every writer *claims* the log under a new term before its first record, and again
//! after an append in doubt. The claim names the term it follows and the record it voids. Messages of an older term that
//! land behind it do not count, nor do claims that follow a term no longer in force. A process that dies while an append is in doubt finds out at the next open: the record counts if it is there.
//!
//! One process writes a log at a time. A second writer is noticed at the latest with the first append behind its claim,
//! which is then refused, and so is everything after it; the fence is no replacement for the lease that elects a writer.
//!
//! Others may read it meanwhile: [`StateLogReader`].
//!
//! The stored form is described in `codec.rs`.

mod codec;
mod log;
mod port;
mod reader;
mod replay;
#[cfg(test)]
mod tests;

pub use log::StateLog;
pub use port::StateLogOptions;
pub use reader::StateLogReader;
pub use replay::StateEvent;
