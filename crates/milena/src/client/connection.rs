//! One socket to one broker.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use milena_wire::decode::decode_response_to;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
use milena_wire::kafka_protocol::protocol::{Request, StrBytes};
use milena_wire::{encode_request, frame_len};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::login::Login;
use super::versions::{Offer, name_of};
use super::{Address, ClientError, Result, Settings};

/// Largest answer that is read, in bytes. What is no Kafka server mostly answers with text, whose first four bytes are a
/// larger number than this.
const FRAME_BYTES_MAX: usize = 512 << 20;

/// Bytes of an answer that are reserved before they arrive.
const FRAME_BYTES_TRUSTED: usize = 1 << 20;

/// Kafka's software name and version fields take only such characters.
const SOFTWARE_NAME: &str = "milena";

/// The end of a wait for a connection.
fn late<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

/// What a connection is carried by: TCP, or TLS over it.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug> Stream for T {}

/// A connection whose versions are known. After an error it is of no use: answers would be taken for one another.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    address: Address,
    client_id: String,
    wait: Duration,
    offer: Offer,
    next_id: i32,
    waiting: VecDeque<(i32, i16)>,
    login: Option<Login>,
    /// When the client has to say again who it is.
    again_at: Option<Instant>,
}

impl Connection {
    /// Connects and asks what the server offers.
    pub(crate) async fn open(address: &Address, settings: &Settings) -> Result<Self> {
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let connected = timeout(settings.connect_timeout, connecting).await;
        let stream = connected
            .unwrap_or_else(|_| late())
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|source| ClientError::Connect { address: address.clone(), source })?;
        let stream: Box<dyn Stream> = match &settings.tls {
            None => Box::new(stream),
            Some(connector) => {
                let agreeing = timeout(settings.connect_timeout, connector.connect(&address.host, stream)).await;
                let agreed = agreeing.unwrap_or_else(|_| late());
                Box::new(agreed.map_err(|source| ClientError::Tls { address: address.clone(), source })?)
            }
        };
        let mut connection = Self {
            stream,
            address: address.clone(),
            client_id: settings.client_id.clone(),
            wait: settings.request_timeout,
            offer: Offer::default(),
            next_id: 0,
            waiting: VecDeque::new(),
            login: settings.login.clone(),
            again_at: None,
        };
        connection.negotiate().await?;
        connection.log_in().await?;
        Ok(connection)
    }

    /// A server that does not know the version answers in version 0 with error 35, and the connection stays (KIP-511).
    async fn negotiate(&mut self) -> Result<()> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(SOFTWARE_NAME))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        self.send_version(3, &request).await?;
        let frame = self.read_frame("ApiVersions").await?;
        self.waiting.clear();
        let unknown_version = ResponseError::UnsupportedVersion.code().to_be_bytes();
        let response = if frame.get(4..6) == Some(&unknown_version) {
            self.send_version(0, &ApiVersionsRequest::default()).await?;
            self.receive::<ApiVersionsRequest>().await?
        } else {
            decode_response_to::<ApiVersionsRequest>(3, frame).map_err(|reason| self.not_kafka(reason))?.1
        };
        if let Some(code) = ResponseError::try_from_code(response.error_code) {
            return Err(ClientError::refused(format!("{} was not asked for anything", self.address), code, None));
        }
        self.offer = Offer::new(&response);
        Ok(())
    }

    /// Says who the client is, where it is somebody.
    async fn log_in(&mut self) -> Result<()> {
        self.again_at = None;
        let Some(login) = self.login.clone() else { return Ok(()) };
        // Boxed, as it asks as every other request does, and those come here.
        let lifetime = Box::pin(login.at(self)).await?;
        self.again_at = lifetime.map(|lifetime| Instant::now() + lifetime);
        Ok(())
    }

    /// True when the server offers `Q` in a version that is understood here.
    pub(super) fn offers<Q: Request>(&self) -> bool {
        self.offer.version_of::<Q>().is_some()
    }

    /// The version of `Q` that is spoken here.
    pub(crate) fn version_of<Q: Request>(&self) -> Result<i16> {
        self.offer
            .version_of::<Q>()
            .ok_or_else(|| ClientError::Unsupported { address: self.address.clone(), api: name_of::<Q>() })
    }

    /// Asks and waits for the answer.
    pub(crate) async fn request<Q: Request>(&mut self, request: &Q) -> Result<Q::Response> {
        self.send(request).await?;
        self.receive::<Q>().await
    }

    /// Asks; [`Connection::receive`] has to be called for each answer, in order.
    pub(crate) async fn send<Q: Request>(&mut self, request: &Q) -> Result<()> {
        // Tokens may not come between a request and its answer.
        if self.waiting.is_empty() && self.again_at.is_some_and(|again_at| again_at <= Instant::now()) {
            self.log_in().await?;
        }
        let version = self.version_of::<Q>()?;
        self.send_version(version, request).await
    }

    /// Asks for what gets no answer.
    pub(crate) async fn send_silent<Q: Request>(&mut self, request: &Q) -> Result<()> {
        self.send(request).await?;
        self.waiting.pop_back();
        Ok(())
    }

    async fn send_version<Q: Request>(&mut self, version: i16, request: &Q) -> Result<()> {
        let api = name_of::<Q>();
        let key =
            ApiKey::try_from(Q::KEY).map_err(|()| ClientError::Unsupported { address: self.address.clone(), api })?;
        self.next_id = self.next_id.wrapping_add(1);
        let frame = encode_request(key, version, self.next_id, &self.client_id, request)
            .map_err(|reason| ClientError::TooOld { address: self.address.clone(), api, version, reason })?;
        let writing = async {
            self.stream.write_all(&frame).await?;
            // Encrypted bytes may still wait.
            self.stream.flush().await
        };
        match timeout(self.wait, writing).await {
            Ok(Ok(())) => {
                self.waiting.push_back((self.next_id, version));
                Ok(())
            }
            Ok(Err(_)) => Err(self.closed(api)),
            Err(_) => Err(self.timed_out(api)),
        }
    }

    /// The answer to the oldest request without one, which was a `Q`.
    pub(crate) async fn receive<Q: Request>(&mut self) -> Result<Q::Response> {
        let Some((id, version)) = self.waiting.pop_front() else { return Err(self.incomplete::<Q>()) };
        let frame = self.read_frame(name_of::<Q>()).await?;
        let (correlation_id, response) =
            decode_response_to::<Q>(version, frame).map_err(|reason| self.not_kafka(reason))?;
        if correlation_id == id { Ok(response) } else { Err(self.incomplete::<Q>()) }
    }

    async fn read_frame(&mut self, api: &'static str) -> Result<Bytes> {
        let reading = async {
            let prefix = self.stream.read_u32().await?.to_be_bytes();
            let len = match frame_len(prefix, FRAME_BYTES_MAX) {
                Ok(len) => len,
                Err(reason) => return Ok(Err(reason)),
            };
            // Reserved as it arrives, so that a wrong prefix costs nothing.
            let mut frame = BytesMut::with_capacity(len.min(FRAME_BYTES_TRUSTED));
            let mut rest = (&mut self.stream).take(len as u64);
            while frame.len() < len {
                if frame.len() == frame.capacity() {
                    frame.reserve(frame.len().min(len - frame.len()));
                }
                if rest.read_buf(&mut frame).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
            }
            Ok(Ok(frame.freeze()))
        };
        match timeout(self.wait, reading).await {
            Ok(Ok(Ok(frame))) => Ok(frame),
            Ok(Ok(Err(reason))) => Err(self.not_kafka(reason)),
            Ok(Err(_)) => Err(self.closed(api)),
            Err(_) => Err(self.timed_out(api)),
        }
    }

    /// The answer lacks what was asked for.
    pub(crate) fn incomplete<Q: Request>(&self) -> ClientError {
        ClientError::Incomplete { address: self.address.clone(), api: name_of::<Q>() }
    }

    fn closed(&self, api: &'static str) -> ClientError {
        ClientError::Closed { address: self.address.clone(), api }
    }

    fn timed_out(&self, api: &'static str) -> ClientError {
        ClientError::TimedOut { address: self.address.clone(), api, after: self.wait }
    }

    fn not_kafka(&self, reason: milena_wire::WireError) -> ClientError {
        ClientError::NotKafka { address: self.address.clone(), reason }
    }
}
