//! Length prefix and request header.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;

use crate::error::WireError;

/// A request frame whose header was read; the body is not decoded yet.
#[derive(Debug, Clone)]
pub struct RequestFrame {
    /// Api key number.
    pub api_key: i16,
    /// Version asked for.
    pub api_version: i16,
    /// Correlation id.
    pub correlation_id: i32,
    /// Client id; a slice of the frame, so copy it to keep it beyond the request.
    pub client_id: Option<StrBytes>,
    /// Bytes behind the header.
    pub body: Bytes,
}

/// The length of a frame from its prefix, in bytes.
///
/// # Errors
/// When it is negative or above `max`.
pub fn frame_len(prefix: [u8; 4], max: usize) -> Result<usize, WireError> {
    let bytes = i32::from_be_bytes(prefix);
    match usize::try_from(bytes) {
        Ok(len) if len <= max => Ok(len),
        _ => Err(WireError::FrameLength { bytes, max }),
    }
}

/// Reads the header of a request frame (without its length prefix). The header's layout follows key and version.
///
/// For a key or version out of `kafka-protocol`'s range the fixed part is read, and the client id if it is readable, so
/// that an ApiVersions request from the future can be answered and a refusal can name its client; what cannot be read
/// is left out.
///
/// # Errors
/// When the frame ends inside the fixed part, or the header of a known key and version is malformed.
pub fn parse_request(mut frame: Bytes) -> Result<RequestFrame, WireError> {
    let Some(&[k0, k1, v0, v1, c0, c1, c2, c3]) = frame.first_chunk::<8>() else {
        return Err(WireError::ShortHeader);
    };
    frame.advance(8);
    let api_key = i16::from_be_bytes([k0, k1]);
    let api_version = i16::from_be_bytes([v0, v1]);
    let correlation_id = i32::from_be_bytes([c0, c1, c2, c3]);
    let key = ApiKey::try_from(api_key).ok();
    let tagged = key.is_some_and(|key| key.request_header_version(api_version) >= 2);
    let known = key.is_some_and(|key| (key.valid_versions().min..=key.valid_versions().max).contains(&api_version));
    let (client_id, body) = match read_rest(frame, tagged) {
        Ok(rest) => rest,
        Err(error) if known => return Err(error),
        Err(_) => (None, Bytes::new()),
    };
    Ok(RequestFrame { api_key, api_version, correlation_id, client_id, body })
}

/// Client id (nullable and never compact, in every header version) and tagged fields.
fn read_rest(mut frame: Bytes, tagged: bool) -> Result<(Option<StrBytes>, Bytes), WireError> {
    let len = frame.try_get_i16().map_err(|_| WireError::ShortHeader)?;
    let client_id = match usize::try_from(len) {
        Ok(len) if len <= frame.len() => {
            let id = StrBytes::from_utf8(frame.split_to(len))
                .map_err(|_| WireError::Malformed("the client id is not UTF-8".to_owned()))?;
            Some(id)
        }
        Ok(_) => return Err(WireError::ShortHeader),
        Err(_) if len == -1 => None,
        Err(_) => return Err(WireError::Malformed(format!("a client id of {len} bytes"))),
    };
    if tagged {
        skip_tagged_fields(&mut frame)?;
    }
    Ok((client_id, frame))
}

/// No tagged field of a request header has a meaning here. Each takes two bytes at least, which bounds the loop.
fn skip_tagged_fields(frame: &mut Bytes) -> Result<(), WireError> {
    for _ in 0..read_varint(frame)? {
        let _tag = read_varint(frame)?;
        let size = usize::try_from(read_varint(frame)?).unwrap_or(usize::MAX);
        if size > frame.len() {
            return Err(WireError::ShortHeader);
        }
        frame.advance(size);
    }
    Ok(())
}

fn read_varint(frame: &mut Bytes) -> Result<u32, WireError> {
    let mut value = 0_u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = frame.try_get_u8().map_err(|_| WireError::ShortHeader)?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(WireError::Malformed("a varint of more than five bytes".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode_request;
    use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};

    fn frame(bytes: &[u8]) -> Result<RequestFrame, WireError> {
        parse_request(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_frame_shorter_than_the_fixed_part_is_refused_at_every_length() {
        for len in 0..8 {
            assert_eq!(frame(&[0; 8][..len]).unwrap_err(), WireError::ShortHeader);
        }
    }

    #[test]
    fn a_header_gives_client_id_and_leaves_the_body() {
        for version in [0, 9, 13] {
            let bytes = encode_request(
                ApiKey::Metadata,
                version,
                7,
                "kcat",
                &MetadataRequest::default().with_topics(Some(vec![])),
            )
            .unwrap();
            let parsed = parse_request(bytes.slice(4..)).unwrap();
            assert_eq!((parsed.api_key, parsed.api_version, parsed.correlation_id), (3, version, 7));
            assert_eq!(parsed.client_id.as_deref(), Some("kcat"));
            assert!(crate::decode_request::<MetadataRequest>(parsed.body, version).is_ok());
        }
    }

    #[test]
    fn a_null_client_id_is_none() {
        let parsed = frame(&[0, 3, 0, 0, 0, 0, 0, 9, 0xff, 0xff, 1, 2]).unwrap();
        assert_eq!(parsed.client_id, None);
        assert_eq!(parsed.body.as_ref(), [1, 2]);
    }

    #[test]
    fn an_api_versions_request_from_the_future_still_names_its_client() {
        let parsed = frame(&[0, 18, 0, 99, 0, 0, 0, 5, 0, 2, b'm', b'e', 0, 3, b'x', b'y']).unwrap();
        assert_eq!((parsed.api_version, parsed.correlation_id), (99, 5));
        assert_eq!(parsed.client_id.as_deref(), Some("me"));
    }

    #[test]
    fn an_api_versions_request_from_the_future_with_another_header_still_gives_its_correlation_id() {
        let parsed = frame(&[0, 18, 0x7f, 0xff, 0, 0, 0, 5, 0x7f, 0xff, 0xff]).unwrap();
        assert_eq!((parsed.correlation_id, parsed.client_id), (5, None));
        assert!(parsed.body.is_empty());
    }

    #[test]
    fn an_unknown_key_or_a_negative_version_is_parsed_as_far_as_it_goes() {
        let parsed = frame(&[0x13, 0x37, 0xff, 0xff, 0, 0, 0, 5, 0, 1, b'c', 9]).unwrap();
        assert_eq!((parsed.api_key, parsed.api_version), (0x1337, -1));
        assert_eq!(parsed.client_id.as_deref(), Some("c"));
        assert_eq!(parsed.body.as_ref(), [9]);
        assert_eq!(frame(&[0, 3, 0x80, 0, 0, 0, 0, 5]).unwrap().client_id, None);
    }

    #[test]
    fn a_malformed_client_id_of_a_known_version_is_refused() {
        let head = [0, 3, 0, 1, 0, 0, 0, 5];
        for rest in [&[][..], &[0], &[0, 2, b'a'], &[0xff, 0xfe], &[0, 1, 0xff]] {
            assert!(frame(&[&head[..], rest].concat()).is_err(), "{rest:?}");
        }
    }

    #[test]
    fn tagged_fields_of_a_header_are_skipped_and_cannot_run_past_the_frame() {
        let head = [0, 3, 0, 9, 0, 0, 0, 5, 0, 1, b'c'];
        let good = frame(&[&head[..], &[1, 0x90, 0x4e, 2, 7, 7, 42]].concat()).unwrap();
        assert_eq!(good.body.as_ref(), [42]);
        for rest in [&[1, 0, 9, 7][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f], &[]] {
            assert!(frame(&[&head[..], rest].concat()).is_err(), "{rest:?}");
        }
    }

    #[test]
    fn a_length_prefix_is_bounded_at_the_bound_and_never_negative() {
        assert_eq!(frame_len([0, 0, 1, 0], 256), Ok(256));
        assert_eq!(frame_len([0, 0, 1, 1], 256), Err(WireError::FrameLength { bytes: 257, max: 256 }));
        assert_eq!(frame_len([0xff; 4], 256), Err(WireError::FrameLength { bytes: -1, max: 256 }));
    }

    #[test]
    fn the_software_name_of_a_client_is_in_the_body() {
        let request = ApiVersionsRequest::default().with_client_software_name("milena".into());
        let bytes = encode_request(ApiKey::ApiVersions, 3, 1, "c", &request).unwrap();
        let parsed = parse_request(bytes.slice(4..)).unwrap();
        assert_eq!(crate::decode_request::<ApiVersionsRequest>(parsed.body, 3).unwrap(), request);
    }
}
