//! A client that sends what it is told, right or wrong, and reads frames in order.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use milena_wire::decode::decode_response_to;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::Request;
use milena_wire::{encode_request, frame_len};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

use crate::SOON;

/// Largest frame that is read, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A connection. Requests can be pipelined with [`RawClient::send`] and [`RawClient::receive`]; answers have to come in
/// the order of the requests, with their correlation ids.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    client_id: String,
    next_id: i32,
    waiting: VecDeque<(ApiKey, i16, i32)>,
}

impl RawClient {
    /// Connects.
    pub async fn connect(address: impl ToSocketAddrs) -> Self {
        Self::try_connect(address).await.expect("a connection")
    }

    /// Connects, if somebody listens.
    ///
    /// # Errors
    /// What the system says.
    pub async fn try_connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = timeout(SOON, TcpStream::connect(address)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, client_id: "testkit".to_owned(), next_id: 1, waiting: VecDeque::new() })
    }

    /// The same connection with another client id in the requests to come.
    #[must_use]
    pub fn with_client_id(mut self, client_id: &str) -> Self {
        client_id.clone_into(&mut self.client_id);
        self
    }

    /// Sends a request and reads its answer.
    pub async fn request<Q: Request>(&mut self, version: i16, request: &Q) -> Q::Response {
        self.send(version, request).await;
        self.receive::<Q>().await
    }

    /// Sends a request without waiting for the answer; returns its correlation id.
    pub async fn send<Q: Request>(&mut self, version: i16, request: &Q) -> i32 {
        let id = self.send_silent(version, request).await;
        self.waiting.push_back((key_of::<Q>(), version, id));
        id
    }

    /// Sends a request that gets no answer, such as a Produce with acks 0; returns its correlation id.
    pub async fn send_silent<Q: Request>(&mut self, version: i16, request: &Q) -> i32 {
        let id = self.next_id;
        self.next_id += 1;
        let frame = encode_request(key_of::<Q>(), version, id, &self.client_id, request).expect("an encodable request");
        self.send_bytes(&frame).await;
        id
    }

    /// Reads the answer to the oldest request that was sent and not answered, which must be a `Q`.
    pub async fn receive<Q: Request>(&mut self) -> Q::Response {
        let (key, version, id) = self.waiting.pop_front().expect("no request is waiting for an answer");
        assert_eq!(key, key_of::<Q>(), "the oldest unanswered request is another one");
        let frame =
            self.read_frame().await.unwrap_or_else(|| panic!("closed instead of an answer to {key:?} {version}"));
        let (correlation_id, response) = decode_response_to::<Q>(version, frame.clone())
            .unwrap_or_else(|error| panic!("the answer to {key:?} version {version}: {error}: {frame:?}"));
        assert_eq!(correlation_id, id, "correlation id of the answer to {key:?} version {version}");
        response
    }

    /// Sends bytes as they are. They may be refused by a connection that was closed; the next read tells.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let sent = timeout(SOON, self.stream.write_all(bytes)).await.expect("the server does not read");
        drop(sent);
    }

    /// Sends a request frame made of the parts given, with the length prefix that belongs to them. The client id is
    /// null; a flexible header needs its tagged fields at the start of `rest`.
    pub async fn send_frame(&mut self, api_key: i16, version: i16, correlation_id: i32, rest: &[u8]) {
        let header = [&api_key.to_be_bytes()[..], &version.to_be_bytes(), &correlation_id.to_be_bytes(), &[0xff; 2]];
        let frame = [&header.concat(), rest].concat();
        let prefix = u32::try_from(frame.len()).expect("a frame").to_be_bytes();
        self.send_bytes(&[&prefix[..], &frame].concat()).await;
    }

    /// The next frame without its length prefix; `None` when the connection is closed.
    pub async fn read_frame(&mut self) -> Option<Bytes> {
        timeout(SOON, self.frame()).await.expect("neither an answer nor an end")
    }

    async fn frame(&mut self) -> Option<Bytes> {
        // A server that closes with unread bytes resets the connection; for a client that is an end as well.
        let prefix = self.stream.read_u32().await.ok()?;
        let len = frame_len(prefix.to_be_bytes(), FRAME_BYTES_MAX).expect("a length prefix");
        let mut frame = vec![0; len];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// Waits for the server to close the connection without another answer.
    pub async fn expect_close(&mut self) {
        if let Some(frame) = self.read_frame().await {
            panic!("an answer instead of an end: {frame:?}");
        }
    }

    /// True when neither an answer nor an end comes for that long.
    pub async fn is_quiet_for(&mut self, time: Duration) -> bool {
        timeout(time, self.stream.peek(&mut [0])).await.is_err()
    }

    /// The socket, for tests of half-closed or slow connections.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

fn key_of<Q: Request>() -> ApiKey {
    ApiKey::try_from(Q::KEY).expect("a key of the schemas")
}
