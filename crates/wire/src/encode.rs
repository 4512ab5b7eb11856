//! Whole frames, written into buffers of exactly the right size.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Encodable, StrBytes};

use crate::error::WireError;

/// A whole response frame: length prefix, header, body. The header of an ApiVersions response is version 0 whatever the
/// body is: the client cannot know yet which version it is answered in (KIP-511).
///
/// # Errors
/// When the message cannot be encoded in that version.
pub fn encode_response<T: Encodable>(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &T,
) -> Result<Bytes, WireError> {
    let header_version = if key == ApiKey::ApiVersions { 0 } else { key.response_header_version(version) };
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    encode_frame(&header, header_version, body, version)
}

/// A whole request frame: length prefix, header, body. The client's side.
///
/// # Errors
/// When the message cannot be encoded in that version.
pub fn encode_request<T: Encodable>(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: &str,
    body: &T,
) -> Result<Bytes, WireError> {
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    encode_frame(&header, key.request_header_version(version), body, version)
}

/// Sizes first, so that the buffer is reserved once: a Fetch answer of many megabytes that grows by doubling is copied
/// several times and keeps twice its size.
fn encode_frame<H: Encodable, T: Encodable>(
    header: &H,
    header_version: i16,
    body: &T,
    version: i16,
) -> Result<Bytes, WireError> {
    let len =
        header.compute_size(header_version).map_err(unencodable)? + body.compute_size(version).map_err(unencodable)?;
    let prefix = i32::try_from(len).map_err(|_| WireError::Encode("a frame over 2 GiB".to_owned()))?;
    let mut out = BytesMut::with_capacity(len.saturating_add(4));
    out.put_i32(prefix);
    header.encode(&mut out, header_version).map_err(unencodable)?;
    body.encode(&mut out, version).map_err(unencodable)?;
    // The prefix was written from the computed size; a peer would lose its place in the stream if it were wrong.
    if out.len() - 4 == len {
        Ok(out.freeze())
    } else {
        Err(WireError::Encode(format!("{} bytes were written where {len} were computed", out.len() - 4)))
    }
}

fn unencodable(error: impl std::fmt::Display) -> WireError {
    WireError::Encode(error.to_string())
}
