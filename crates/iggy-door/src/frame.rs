//! Requests and answers as bytes: a header of 256 bytes, then the body.

use bytemuck::bytes_of;
use bytes::{BufMut, Bytes, BytesMut};
use iggy_binary_protocol::consensus::{
    Command, ConsensusHeader, EvictionHeader, EvictionReason, HEADER_SIZE, Operation, ReplyHeader, RequestHeader,
};
use iggy_binary_protocol::version::{IGGY_PROTOCOL_VERSION, IGGY_PROTOCOL_VERSION_MIN};
use iggy_binary_protocol::{WireEncode, read_size_field};
use tokio::sync::OwnedSemaphorePermit;
use xxhash_rust::xxh3::xxh3_64;

use crate::codes::{Code, Refusal};

/// Why bytes are no request. All of these end the connection: where the next request begins is not known, or the client
/// speaks something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The size in the header is smaller than the header.
    #[error("a request of {0} bytes is smaller than its header")]
    TooSmall(u32),
    /// The size in the header is above the bound.
    #[error("a request of {size} bytes is above the limit of {limit}")]
    TooLarge {
        /// Bytes declared.
        size: u32,
        /// The bound.
        limit: usize,
    },
    /// The header is none that this protocol has.
    #[error("the header is no request")]
    NotARequest,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its header.
    pub header: RequestHeader,
    /// What follows the header.
    pub body: Bytes,
}

/// Bytes of the body that a header announces.
///
/// # Errors
/// When the size is below that of a header or above `limit`, which counts the header.
pub fn body_len(header: &[u8; HEADER_SIZE], limit: usize) -> Result<usize, FrameError> {
    let size = read_size_field(header).unwrap_or(0);
    let bytes = size as usize;
    if bytes > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    bytes.checked_sub(HEADER_SIZE).ok_or(FrameError::TooSmall(size))
}

impl Request {
    /// Reads a header and takes the body that belongs to it.
    ///
    /// # Errors
    /// [`FrameError::NotARequest`].
    pub fn parse(header: &[u8; HEADER_SIZE], body: Bytes) -> Result<Self, FrameError> {
        let header: RequestHeader =
            bytemuck::checked::try_pod_read_unaligned(header).map_err(|_| FrameError::NotARequest)?;
        header.validate().map_err(|_| FrameError::NotARequest)?;
        Ok(Self { header, body })
    }

    /// The command of a request that is not an operation of its own.
    #[must_use]
    pub fn code(&self) -> u32 {
        self.header.reserved.first_chunk::<4>().map_or(0, |code| u32::from_le_bytes(*code))
    }

    /// True unless the client sent a checksum that the body does not have.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let stamped = self.header.request_checksum;
        stamped == 0 || stamped == u128::from(xxh3_64(&self.body))
    }
}

/// The body of an answer under construction, with room for what stands before it.
#[derive(Debug)]
pub struct Reply {
    bytes: BytesMut,
    framed: bool,
    /// Room that the answer takes until it is written.
    pub hold: Option<OwnedSemaphorePermit>,
}

impl Reply {
    /// An answer to `operation`, for a body of about `capacity` bytes.
    #[must_use]
    pub fn new(operation: Operation, capacity: usize) -> Self {
        let framed = operation.is_result_framed() || operation == Operation::Register;
        let mut bytes = BytesMut::with_capacity(HEADER_SIZE + 4 + capacity);
        bytes.put_bytes(0, HEADER_SIZE + if framed { 4 } else { 0 });
        Self { bytes, framed, hold: None }
    }

    /// An answer without a body of its own.
    #[must_use]
    pub fn empty(operation: Operation) -> Self {
        Self::new(operation, 0)
    }

    /// An answer with a body that a test made.
    #[cfg(feature = "faults")]
    pub(crate) fn raw(operation: Operation, body: &[u8]) -> Self {
        let mut reply = Self::new(operation, body.len());
        reply.bytes.extend_from_slice(body);
        reply
    }

    /// An answer that is one message of the protocol.
    #[must_use]
    pub fn of(operation: Operation, message: &impl WireEncode) -> Self {
        let mut reply = Self::new(operation, message.encoded_size());
        message.encode(&mut reply.bytes);
        reply
    }

    /// The answer to a refusal; `None` when there can be none.
    #[must_use]
    pub fn refusal(operation: Operation, refusal: Refusal) -> Option<(Self, u32)> {
        let mut reply = Self { bytes: BytesMut::with_capacity(HEADER_SIZE + 12), framed: false, hold: None };
        reply.bytes.put_bytes(0, HEADER_SIZE);
        match refusal {
            Refusal::InDoubt => None,
            Refusal::Rejected(code) if operation.is_metadata() => {
                // One entry: the first and only event of the request, and its code.
                reply.bytes.put_u32_le(1);
                reply.bytes.put_u32_le(0);
                reply.bytes.put_u32_le(code.number());
                Some((reply, 0))
            }
            Refusal::Rejected(code) | Refusal::Denied(code) => Some((reply, code.number())),
        }
    }

    /// Where the body is written.
    pub fn body(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Bytes of the body so far, without what stands before it.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.bytes.len() - HEADER_SIZE - if self.framed { 4 } else { 0 }
    }

    /// The whole answer. `commit` never falls within one process: clients keep the highest that they saw.
    #[must_use]
    pub fn finish(mut self, request: &RequestHeader, status: u32, commit: u64) -> Bytes {
        let header = ReplyHeader {
            size: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
            command: Command::Reply,
            request_checksum: request.request_checksum,
            client: request.client,
            op: commit,
            commit,
            timestamp: request.timestamp,
            request: request.request,
            operation: request.operation,
            status,
            ..ReplyHeader::default()
        };
        if let Some(place) = self.bytes.get_mut(..HEADER_SIZE) {
            place.copy_from_slice(bytes_of(&header));
        }
        self.bytes.freeze()
    }
}

/// The frame that ends a session. `client` is the client's own number, never 0 in a valid request.
#[must_use]
pub fn eviction(client: u128, reason: EvictionReason) -> Bytes {
    let header = match reason {
        EvictionReason::IncompatibleProtocol => {
            EvictionHeader::incompatible_protocol(0, 0, 0, client, IGGY_PROTOCOL_VERSION, IGGY_PROTOCOL_VERSION_MIN)
        }
        other => EvictionHeader::new(0, 0, 0, client, other),
    };
    Bytes::copy_from_slice(bytes_of(&header))
}

/// A refusal for a body that does not decode.
pub(crate) fn malformed<E>(_: E) -> Refusal {
    Refusal::Denied(Code::INVALID_COMMAND)
}

#[cfg(test)]
mod tests {
    use iggy_binary_protocol::consensus::{result_code, result_section_len};

    use super::*;

    fn header(operation: Operation) -> RequestHeader {
        let size = u32::try_from(HEADER_SIZE).unwrap();
        RequestHeader {
            command: Command::Request,
            client: 7,
            request: 3,
            session: 5,
            operation,
            size,
            ..Default::default()
        }
    }

    fn parse(header: &RequestHeader) -> Result<Request, FrameError> {
        Request::parse(bytes_of(header).try_into().unwrap(), Bytes::new())
    }

    #[test]
    fn a_size_is_taken_from_that_of_a_header_up_to_the_limit() {
        let mut bytes = [0; HEADER_SIZE];
        for (size, expected) in [
            (255u32, Err(FrameError::TooSmall(255))),
            (256, Ok(0)),
            (1_000, Ok(744)),
            (1_001, Err(FrameError::TooLarge { size: 1_001, limit: 1_000 })),
        ] {
            bytes[48..52].copy_from_slice(&size.to_le_bytes());
            assert_eq!(body_len(&bytes, 1_000), expected);
        }
    }

    #[test]
    fn a_header_without_a_client_or_of_another_kind_is_no_request() {
        assert!(parse(&header(Operation::SendMessages)).is_ok());
        assert!(parse(&RequestHeader { client: 0, ..header(Operation::SendMessages) }).is_err());
        assert!(parse(&RequestHeader { command: Command::Prepare, ..header(Operation::SendMessages) }).is_err());
        assert!(parse(&RequestHeader { session: 1, ..header(Operation::Register) }).is_err());
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(bytes_of(&header(Operation::SendMessages)));
        bytes[std::mem::offset_of!(RequestHeader, operation)] = 255;
        assert!(Request::parse(&bytes, Bytes::new()).is_err());
    }

    #[test]
    fn a_rejection_of_a_metadata_operation_stands_in_its_result_section() {
        let refusal = Refusal::Rejected(Code::STREAM_EXISTS);
        let (reply, status) = Reply::refusal(Operation::CreateStream, refusal).unwrap();
        let bytes = reply.finish(&header(Operation::CreateStream), status, 9);
        assert_eq!((status, result_code(&bytes[HEADER_SIZE..])), (0, Some(1012)));
        let (reply, status) = Reply::refusal(Operation::SendMessages, refusal).unwrap();
        assert_eq!((reply.body_len(), status), (0, 1012));
        assert!(Reply::refusal(Operation::SendMessages, Refusal::InDoubt).is_none());
    }

    #[test]
    fn success_of_a_metadata_operation_begins_with_an_empty_result_section() {
        let reply = Reply::of(Operation::CreateStream, &iggy_binary_protocol::WireName::new("s").unwrap());
        let bytes = reply.finish(&header(Operation::CreateStream), 0, 9);
        let body = &bytes[HEADER_SIZE..];
        assert_eq!((result_code(body), result_section_len(body), &body[4..]), (Some(0), Some(4), &b"\x01s"[..]));
    }

    #[test]
    fn a_body_that_its_checksum_was_not_made_of_is_noticed() {
        let body = Bytes::from_static(b"body");
        let stamped =
            RequestHeader { request_checksum: u128::from(xxh3_64(b"body")), ..header(Operation::CreateStream) };
        assert!(Request { header: stamped, body: body.clone() }.is_intact());
        assert!(!Request { header: stamped, body: Bytes::from_static(b"bodi") }.is_intact());
        assert!(Request { header: header(Operation::CreateStream), body }.is_intact());
    }
}
