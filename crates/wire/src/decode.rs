//! Bodies, decoded under the guard.

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request};

use crate::error::WireError;
use crate::guard::{Counts, GuardedBuf};

/// Most primitive fields that a request may have; a varint of two bytes counts twice. A Fetch of 100,000 partitions has
/// 730,000. A truthful frame grows to 160 MB in memory at this bound.
pub const REQUEST_FIELDS_MAX: usize = 1_000_000;

/// Most primitive fields that a response may have. A Metadata answer has many more fields a partition than any request,
/// and the server it comes from was chosen by the user.
pub const RESPONSE_FIELDS_MAX: usize = 10_000_000;

/// Decodes a body under the guard: no declared count reserves memory that the bytes do not back, nothing may be left.
/// Byte fields of the result are slices of `body`. Prefer [`decode_request`] where the type is a request: it knows which
/// versions are flexible and does not have to decode a body with large numbers twice.
///
/// # Errors
/// When the body does not decode, declares more than it holds, or bytes are left.
pub fn decode_body<T: Decodable>(body: Bytes, version: i16) -> Result<T, WireError> {
    decode_counting(body, version, Counts::Either, REQUEST_FIELDS_MAX)
}

/// Decodes the body of a request, as [`decode_body`] does.
///
/// # Errors
/// When the body does not decode, declares more than it holds, or bytes are left.
pub fn decode_request<Q: Request>(body: Bytes, version: i16) -> Result<Q, WireError> {
    // Request header version 2 and flexible bodies came together.
    let counts = if Q::header_version(version) >= 2 { Counts::Varint } else { Counts::Int32 };
    decode_counting(body, version, counts, REQUEST_FIELDS_MAX)
}

/// Reads a response frame (without length prefix): correlation id and body.
///
/// # Errors
/// When the frame does not decode.
pub fn decode_response<T: Decodable>(key: ApiKey, version: i16, frame: Bytes) -> Result<(i32, T), WireError> {
    let mut buf = GuardedBuf::new(frame, Counts::Varint, RESPONSE_FIELDS_MAX);
    let header = ResponseHeader::decode(&mut buf, key.response_header_version(version))
        .map_err(|error| refusal(&mut buf, &error))?;
    let body = decode_counting(buf.into_rest(), version, Counts::Either, RESPONSE_FIELDS_MAX)?;
    Ok((header.correlation_id, body))
}

/// Reads a response frame whose type says which versions are flexible; see [`decode_response`].
///
/// # Errors
/// When the frame does not decode.
pub fn decode_response_to<Q: Request>(version: i16, frame: Bytes) -> Result<(i32, Q::Response), WireError> {
    let header_version = <Q::Response as HeaderVersion>::header_version(version);
    let mut buf = GuardedBuf::new(frame, Counts::Varint, RESPONSE_FIELDS_MAX);
    let header = ResponseHeader::decode(&mut buf, header_version).map_err(|error| refusal(&mut buf, &error))?;
    // The answer to ApiVersions is flexible under a header that is not, so the request's header decides.
    let counts = if Q::header_version(version) >= 2 { Counts::Varint } else { Counts::Int32 };
    let body = decode_counting(buf.into_rest(), version, counts, RESPONSE_FIELDS_MAX)?;
    Ok((header.correlation_id, body))
}

fn decode_counting<T: Decodable>(body: Bytes, version: i16, counts: Counts, fields_max: usize) -> Result<T, WireError> {
    let (value, clamped) = decode_once(body.clone(), version, counts, fields_max)?;
    if !clamped {
        return Ok(value);
    }
    // The large numbers were values and not counts. They were replaced, so what was decoded is wrong.
    drop(value);
    decode_once(body, version, counts.after_clamping(), fields_max).map(|(value, _)| value)
}

fn decode_once<T: Decodable>(
    body: Bytes,
    version: i16,
    counts: Counts,
    fields_max: usize,
) -> Result<(T, bool), WireError> {
    let mut buf = GuardedBuf::new(body, counts, fields_max);
    let value = T::decode(&mut buf, version).map_err(|error| refusal(&mut buf, &error))?;
    match buf.left() {
        0 => Ok((value, buf.clamped())),
        left => Err(WireError::BytesLeft(left)),
    }
}

fn refusal(buf: &mut GuardedBuf, error: &dyn std::fmt::Display) -> WireError {
    buf.refusal().unwrap_or_else(|| WireError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
