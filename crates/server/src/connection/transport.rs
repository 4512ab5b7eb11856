//! What a connection is carried by: TCP as it is, or TLS over it.
//!
//! A connection is compiled for each, so that plain TCP pays nothing for the other.

use std::io;
use std::time::Duration;

use milena_tls::{Sink, TlsConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

/// Longest time in which a client that still sends is listened to after the last answer.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// Longest time between the answer to a client that is not let in and the end of its connection.
const REFUSED_MAX: Duration = Duration::from_secs(1);

/// Bytes that such a client may still send in it.
const REFUSED_BYTES_MAX: u64 = 16 << 10;

/// Reads after which throwing away lets other tasks run.
const DISCARDED_READS_MAX: usize = 16;

/// A stream that has a reading and a writing half, both polled by one task.
pub(crate) trait Transport: Send {
    /// The half that requests are read from.
    type Read<'a>: AsyncRead + Unpin + Send
    where
        Self: 'a;
    /// The half that answers are written to.
    type Write<'a>: Sink + Send
    where
        Self: 'a;

    /// Both halves.
    fn split(&mut self) -> (Self::Read<'_>, Self::Write<'_>);

    /// Closes a connection on which the client may still be sending. To close with unread bytes resets it, and a reset can
    /// overtake answers that the client has not read yet; so what was still sent is read and thrown away for a moment.
    fn part(self) -> impl Future<Output = ()> + Send;

    /// Closes a connection on which nothing is under way.
    fn leave(self) -> impl Future<Output = ()> + Send;
}

impl Transport for TcpStream {
    type Read<'a> = ReadHalf<'a>;
    type Write<'a> = WriteHalf<'a>;

    fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        TcpStream::split(self)
    }

    async fn part(mut self) {
        if self.shutdown().await.is_ok() {
            drain(|| self.readable(), |room| self.try_read(room)).await;
        }
    }

    async fn leave(self) {}
}

impl Transport for TlsConnection {
    type Read<'a> = Self;
    type Write<'a> = Self;

    fn split(&mut self) -> (Self, Self) {
        (self.clone(), self.clone())
    }

    async fn part(mut self) {
        if TlsConnection::leave(&mut self, PARTING_MAX).await {
            drain(|| self.readable(), |room| self.try_discard(room)).await;
        }
    }

    /// Clients take an end without a word for an attack or a fault, and some log it.
    async fn leave(mut self) {
        TlsConnection::leave(&mut self, PARTING_MAX).await;
    }
}

/// Lets a client that is not let in read why. Some that find the answer and the end of the connection behind it take the end
/// alone (kafka-python 3.0 over TLS), and tell their user nothing of a wrong password. Most close by themselves, which
/// ends this.
pub(super) async fn until_it_goes(read: impl AsyncRead + Unpin) {
    let mut rest = read.take(REFUSED_BYTES_MAX);
    let gone = async {
        let mut bytes = [0; 1024];
        while rest.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    let _ = timeout(REFUSED_MAX, gone).await;
}

/// Throws away what a client still sends, for a moment. Nothing is waited for when nothing has arrived yet.
async fn drain<F: Future<Output = io::Result<()>>>(
    readable: impl Fn() -> F,
    try_read: impl Fn(&mut [u8]) -> io::Result<usize>,
) {
    if !discard(&try_read) {
        return;
    }
    let rest = async {
        while readable().await.is_ok() && discard(&try_read) {
            tokio::task::yield_now().await;
        }
    };
    let _ = timeout(PARTING_MAX, rest).await;
}

/// Throws away some of what has arrived. False when nothing had, or nothing will.
fn discard(try_read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
    let mut bytes = [0; 4096];
    for reads in 0..DISCARDED_READS_MAX {
        match try_read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return reads > 0 && error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_not_let_in_has_a_second_unless_it_goes_or_goes_on_sending() {
        let started = Instant::now();
        let (mut client, server) = tokio::io::duplex(64 << 10);
        client.write_all(&[0; 100]).await.unwrap();
        until_it_goes(server).await;
        assert_eq!(started.elapsed(), REFUSED_MAX, "it stays and says no more");

        let started = Instant::now();
        let (mut client, server) = tokio::io::duplex(64 << 10);
        client.write_all(&[0; 100]).await.unwrap();
        drop(client);
        until_it_goes(server).await;
        assert_eq!(started.elapsed(), Duration::ZERO, "it goes");

        let (mut client, server) = tokio::io::duplex(64 << 10);
        client.write_all(&[0; 32 << 10]).await.unwrap();
        until_it_goes(server).await;
        assert_eq!(started.elapsed(), Duration::ZERO, "it sends more than it may");
    }
}
