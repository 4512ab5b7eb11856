//! Where answers are written to, whether or not something is kept back on the way.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncWrite, DuplexStream};
use tokio::net::tcp::{OwnedWriteHalf, WriteHalf};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::connection::TlsConnection;

/// A half of a connection that is written to.
pub trait Sink: AsyncWrite + Unpin {
    /// Whether what was written can be kept back.
    const KEEPS_BACK: bool = false;

    /// Sends some of what was written and is not sent yet; true when more of it is left.
    ///
    /// # Errors
    /// What the system says.
    fn poll_push(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        Poll::Ready(Ok(false))
    }
}

impl Sink for WriteHalf<'_> {}

impl Sink for OwnedWriteHalf {}

/// In memory, for tests.
impl Sink for DuplexStream {}

impl Sink for TlsConnection {
    const KEEPS_BACK: bool = true;

    fn poll_push(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        Self::poll_push(self, context)
    }
}

/// Sends all that the sink keeps back, as long as some of it is taken within `stalled_after` each.
///
/// # Errors
/// When nothing was taken for that long; within, what the system says.
pub async fn push<S: Sink>(sink: &mut S, stalled_after: Duration) -> Result<io::Result<()>, Elapsed> {
    if !S::KEEPS_BACK {
        return Ok(Ok(()));
    }
    loop {
        match timeout(stalled_after, poll_fn(|context| sink.poll_push(context))).await? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}
