//! Answers to bytes.

use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::end::End;
use crate::metrics::Counter;

/// Answers up to this size wait for the next one if that is at hand, so that one system call and one packet carry
/// several. Larger ones are not copied.
const SMALL_BYTES: usize = 4096;

/// Answers that wait at most, because the first of them should not wait for the computing of many others.
const HELD_MAX: usize = 16;

/// Writes answers in the order in which it gets them.
pub(super) struct Writer<'a, W> {
    sink: W,
    /// Time in which some part of an answer must be taken.
    stalled_after: Duration,
    bytes_out: &'a Counter,
    held: Vec<u8>,
    answers_held: usize,
}

impl<'a, W: AsyncWrite + Unpin> Writer<'a, W> {
    pub(super) fn new(sink: W, stalled_after: Duration, bytes_out: &'a Counter) -> Self {
        Self { sink, stalled_after, bytes_out, held: Vec::new(), answers_held: 0 }
    }

    /// True when an answer waits for [`Writer::flush`].
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes an answer; it is written now or at the next flush.
    pub(super) async fn answer(&mut self, answer: &[u8]) -> Result<(), End> {
        if answer.len() > SMALL_BYTES {
            self.flush().await?;
            return self.write(answer).await;
        }
        self.held.extend_from_slice(answer);
        self.answers_held += 1;
        if self.answers_held < HELD_MAX { Ok(()) } else { self.flush().await }
    }

    /// Writes what is held, and keeps no memory for it.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        self.answers_held = 0;
        let held = std::mem::take(&mut self.held);
        self.write(&held).await
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            let writing = timeout(self.stalled_after, self.sink.write(bytes));
            let written = writing.await.map_err(|_| End::WriteStalled)??;
            if written == 0 {
                return Err(End::ByClient);
            }
            self.bytes_out.add(written as u64);
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}
