//! A log that is read while somebody else may write it.

use super::port::Port;
use super::replay::{Replay, StateEvent};
use crate::error::StoreError;

/// Follows a log without claiming it, so that its writer is not disturbed.
///
/// What it tells is what [`super::StateLog::open`] would tell, with one difference: the newest record may be one whose append is
/// in doubt for its writer, who can still make it not count. Then the log grows, and is told anew without that record. So what
/// was told is for looking up, and must not be written back.
#[derive(Clone)]
pub struct StateLogReader {
    port: Port,
    read_to: Option<u64>,
}

impl StateLogReader {
    pub(super) fn new(port: Port) -> Self {
        Self { port, read_to: None }
    }

    /// Tells `apply` all that the log holds, when its end moved since the last call that succeeded; true when it did.
    ///
    /// Costs one look at the bounds when nothing happened, and else a read of the whole log, which snapshots keep short.
    ///
    /// # Errors
    /// Whatever the store answers; [`StoreError::Broken`] when a message cannot be read. What `apply` was told is then not all
    /// of it. A snapshot that trims the log meanwhile is an error too: the next call begins behind it.
    pub async fn follow(&mut self, apply: impl FnMut(StateEvent<'_>)) -> Result<bool, StoreError> {
        let bounds = self.port.bounds().await?;
        if self.read_to == Some(bounds.end) {
            return Ok(false);
        }
        let mut replay = Replay::new(bounds.start, apply);
        self.port.scan(bounds, |offset, message| replay.message(offset, message)).await?;
        replay.finish()?;
        self.read_to = Some(bounds.end);
        Ok(true)
    }

    /// Notes that what lies below `end` is known without having been told, since it was loaded or written by the caller.
    pub fn knows_to(&mut self, end: u64) {
        self.read_to = Some(end);
    }
}
