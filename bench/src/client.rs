//! A connection with pipelined requests.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use milena_wire::decode::decode_response_to;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::Request;
use milena_wire::{encode_request, frame_len};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::{Error, Result};

/// Largest answer that is read, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Bytes that one read has room for, at least.
const READ_BYTES: usize = 16 << 10;

/// Time after which an answer does not come any more. Brokers under load take long to create ten thousand partitions.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// Client id of all requests.
const CLIENT_ID: &str = "milena-bench";

/// A connection. Answers come in the order of the requests.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: BytesMut,
    next_id: i32,
    sent: VecDeque<(i32, i16, Instant)>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens at `address`.
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: BytesMut::new(), next_id: 0, sent: VecDeque::new() })
    }

    /// Requests without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// When the connection ends, or the answer cannot be read.
    pub async fn call<Q: Request>(&mut self, version: i16, request: &Q) -> Result<Q::Response> {
        self.send(version, request).await?;
        let answer = timeout(ANSWER_WAIT, self.receive::<Q>());
        let (answer, _) = answer.await.map_err(|_| format!("API {}: no answer", Q::KEY))??;
        Ok(answer)
    }

    /// Asks; [`Connection::receive`] gives the answers.
    ///
    /// # Errors
    /// When the connection ends.
    pub async fn send<Q: Request>(&mut self, version: i16, request: &Q) -> Result<()> {
        let key = ApiKey::try_from(Q::KEY).map_err(|()| format!("API {} is not known", Q::KEY))?;
        self.next_id = self.next_id.wrapping_add(1);
        let frame = encode_request(key, version, self.next_id, CLIENT_ID, request)?;
        self.sent.push_back((self.next_id, version, Instant::now()));
        self.stream.write_all(&frame).await?;
        Ok(())
    }

    /// The answer to the oldest request without one, which must be a `Q`, and how long it took. Nothing is lost when the
    /// future is dropped before it is ready.
    ///
    /// # Errors
    /// When the connection ends, or the answer cannot be read.
    pub async fn receive<Q: Request>(&mut self) -> Result<(Q::Response, Duration)> {
        loop {
            if let Some(answer) = self.buffered::<Q>()? {
                return Ok(answer);
            }
            self.read.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err("the server closed a connection".into());
            }
        }
    }

    /// As [`Connection::receive`], of what was read already.
    fn buffered<Q: Request>(&mut self) -> Result<Option<(Q::Response, Duration)>> {
        let Some((prefix, rest)) = self.read.split_first_chunk() else { return Ok(None) };
        let len = frame_len(*prefix, FRAME_BYTES_MAX)?;
        let prefix_len = prefix.len();
        if rest.len() < len {
            return Ok(None);
        }
        let _prefix = self.read.split_to(prefix_len);
        let frame = self.read.split_to(len).freeze();
        let (expected, version, sent) = self.sent.pop_front().ok_or("an answer that nobody asked for")?;
        let (id, answer) = decode_response_to::<Q>(version, frame)?;
        if id != expected {
            return Err(format!("answer {id} where {expected} was next").into());
        }
        Ok(Some((answer, sent.elapsed())))
    }
}

/// What a server refused, as an error with Kafka's name of the code.
#[must_use]
pub fn refused(what: &str, code: i16) -> Error {
    let name = ResponseError::try_from_code(code).map_or_else(|| code.to_string(), |error| format!("{error:?}"));
    format!("{what}: the server answers {name} ({code})").into()
}

/// `Ok` for code 0.
///
/// # Errors
/// [`refused`].
pub fn accepted(what: &str, code: i16) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(refused(what, code)) }
}
