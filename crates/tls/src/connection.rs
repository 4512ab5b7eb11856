//! A connection after its handshake.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// A connection after its handshake. A clone is the same connection, so that one task can have a reading and a writing
/// half of it; the lock between them is never waited for then.
///
/// An end without a `close_notify` reads as an end like any other: most clients of Kafka and Iggy just close, and their
/// frames say how long they are, so that nobody can shorten what they said unnoticed.
#[derive(Debug, Clone)]
pub struct TlsConnection(Arc<Mutex<TlsStream<TcpStream>>>);

impl TlsConnection {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    /// Hands some of what was written, and could not be sent yet, to the system. True when more of it is left.
    ///
    /// Writing resolves when bytes are encrypted; up to 64 KiB of them then wait here. Flushing sends all of that, with no
    /// word about progress in between; this is for whoever bounds the time without progress.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_push(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut stream = self.0.lock();
        let (socket, session) = stream.get_mut();
        while session.wants_write() {
            match session.write_tls(&mut Socket(socket)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => return Poll::Ready(Ok(session.wants_write())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(socket.poll_write_ready(context))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(false))
    }

    /// Says `close_notify` and that nothing follows. May wait for the client, as long as it does not read.
    ///
    /// # Errors
    /// What the system says.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        AsyncWriteExt::shutdown(self).await
    }

    /// As [`TlsConnection::shutdown`], for as long as that. False when the client is gone, or does not read.
    pub async fn leave(&mut self, within: Duration) -> bool {
        matches!(timeout(within, self.shutdown()).await, Ok(Ok(())))
    }

    /// Throws encrypted bytes away that have arrived, as [`TcpStream::try_read`] would read them.
    ///
    /// # Errors
    /// What the system says; nothing is there is `WouldBlock`.
    pub fn try_discard(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.lock().get_ref().0.try_read(room)
    }

    /// Resolves when bytes have arrived, or the end.
    ///
    /// # Errors
    /// What the system says.
    pub async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.0.lock().get_ref().0.poll_read_ready(context)).await
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut stream = self.0.lock();
        let read = Pin::new(&mut *stream).poll_read(context, buffer);
        // What TLS itself has to say to what came, such as that there is no renegotiation: nobody may be about to write.
        let (socket, session) = stream.get_mut();
        while session.wants_write() && session.write_tls(&mut Socket(socket)).is_ok_and(|written| written > 0) {}
        match ready!(read) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(context)
    }
}

/// The socket as rustls writes to it.
struct Socket<'a>(&'a TcpStream);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
