//! Bytes to requests. An idle connection holds no buffer, and a request is charged as it arrives, not as it is announced.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use iggy_binary_protocol::consensus::HEADER_SIZE;
use milena_server::memory::{Charge, Memory};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, timeout_at};

use crate::frame::{FrameError, Request, body_len};

/// Bytes read at once while no large request is under way.
const HEAD_BYTES: usize = 4096;

/// Bytes of each request that are read without asking the budget, so that small requests get through when it is spent.
const FREE_BYTES: usize = 16 << 10;

/// Bytes by which the charge runs ahead of what has arrived.
const CHARGE_STEP: usize = 64 << 10;

/// Size of the buffer once a request has passed `FREE_BYTES`.
const BUFFER_STEP: usize = 4 << 20;

/// Why no request came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadEnd {
    /// The client closed the connection between two requests.
    #[error("closed by the client")]
    Closed,
    /// The client closed it within a request.
    #[error("closed by the client within a request")]
    WithinRequest,
    /// A request stopped arriving.
    #[error("a request stopped arriving")]
    Stalled,
    /// A request arrives too slowly.
    #[error("a request arrives too slowly")]
    TooSlow,
    /// What came is no request.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The client speaks TLS.
    #[error(
        "the client begins with TLS, and this port speaks plain text; either switch TLS off in the client, or set \
         iggy_door.tls_certificate_file"
    )]
    TlsClient,
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads requests.
pub(crate) struct Reader<R> {
    half: R,
    stalled_after: Duration,
    /// Bytes behind the last request.
    carry: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(half: R, stalled_after: Duration) -> Self {
        Self { half, stalled_after, carry: BytesMut::new() }
    }

    /// Waits, without bound, until something is there to be read. May be dropped and called again.
    pub(crate) async fn ready(&mut self) -> Result<(), ReadEnd> {
        while self.carry.is_empty() {
            if self.fill().await? == 0 {
                return Err(ReadEnd::Closed);
            }
        }
        Ok(())
    }

    /// The request that has begun to arrive, of at most `limit` bytes. Its header, and each 64 KiB behind that, may take
    /// `patience`: a byte now and then must not keep a connection, or the partitions of a member, for ever.
    pub(crate) async fn request(
        &mut self,
        limit: usize,
        patience: Duration,
        memory: &Memory,
    ) -> Result<(Request, Charge), ReadEnd> {
        let until = Instant::now() + patience;
        let header = loop {
            if let Some(header) = self.carry.first_chunk::<HEADER_SIZE>() {
                break *header;
            }
            if milena_tls::is_client_hello(&self.carry) {
                return Err(ReadEnd::TlsClient);
            }
            if in_time(self.stalled_after, until, self.fill()).await?? == 0 {
                return Err(ReadEnd::WithinRequest);
            }
        };
        if milena_tls::is_client_hello(&header) {
            return Err(ReadEnd::TlsClient);
        }
        let len = body_len(&header, limit)?;
        self.carry.advance(HEADER_SIZE);
        if self.carry.len() < len {
            let (body, charge) = Box::pin(self.large(len, patience, memory)).await?;
            return Ok((Request::parse(&header, body)?, charge));
        }
        let body = Bytes::copy_from_slice(self.carry.get(..len).unwrap_or_default());
        self.carry.advance(len);
        if self.carry.is_empty() {
            self.carry = BytesMut::new();
        }
        Ok((Request::parse(&header, body)?, Charge::default()))
    }

    /// A body of which only the beginning is in `carry`.
    async fn large(&mut self, len: usize, patience: Duration, memory: &Memory) -> Result<(Bytes, Charge), ReadEnd> {
        let mut until = Instant::now() + patience;
        let mut charge = Charge::default();
        let mut overdrawn_until = None;
        let mut charged = FREE_BYTES;
        let mut body = Vec::with_capacity(len.min(FREE_BYTES));
        body.extend_from_slice(&self.carry);
        self.carry = BytesMut::new();
        while body.len() < len {
            if body.len() >= charged.min(len) {
                memory.extend(&mut charge, CHARGE_STEP.min(len - charged)).await;
                charged += CHARGE_STEP;
                until = Instant::now() + patience;
            }
            if body.len() == body.capacity() {
                let capacity = len.min(BUFFER_STEP.max(body.capacity() * 2));
                body.reserve_exact(capacity - body.len());
            }
            if charge.is_overdraft() && overdrawn_until.is_none() {
                // Everybody waits for this request, so it may not trickle.
                overdrawn_until = Some(Instant::now() + self.stalled_after);
            }
            let room = (charged.min(len) - body.len()).min(body.capacity() - body.len());
            let mut target = (&mut body).limit(room);
            let read = self.half.read_buf(&mut target);
            let read = match overdrawn_until {
                Some(deadline) => timeout_at(deadline, read).await.map_err(|_| ReadEnd::Stalled)?,
                None => in_time(self.stalled_after, until, read).await?,
            };
            if read? == 0 {
                return Err(ReadEnd::WithinRequest);
            }
        }
        Ok((Bytes::from(body), charge))
    }

    /// Waits for bytes and takes what is there. The buffer lives on the stack of one poll, so a connection that waits holds
    /// none. May be dropped and called again.
    async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|context| {
            let mut head = [0u8; HEAD_BYTES];
            let mut head = ReadBuf::new(&mut head);
            ready!(Pin::new(&mut self.half).poll_read(context, &mut head))?;
            self.carry.extend_from_slice(head.filled());
            Poll::Ready(Ok(head.filled().len()))
        })
        .await
    }
}

/// What `read` answers, if it comes within `stalled_after` and before `until`.
async fn in_time<T>(stalled_after: Duration, until: Instant, read: impl Future<Output = T>) -> Result<T, ReadEnd> {
    let silent = Instant::now() + stalled_after;
    let end = if silent < until { ReadEnd::Stalled } else { ReadEnd::TooSlow };
    timeout_at(silent.min(until), read).await.map_err(|_| end)
}
