//! Every message of every version survives encoding and decoding, in frames of exactly the computed size.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::fmt::Debug;

use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsResponse};
use milena_wire::kafka_protocol::protocol::{Message, Request};
use milena_wire::{decode_request, encode_request, encode_response, frame_len, fuzzing, parse_request};

struct RoundTrip {
    messages: usize,
}

impl fuzzing::Visit for RoundTrip {
    fn visit<Q>(&mut self, key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + Debug,
        Q::Response: Default + Clone + PartialEq + Debug,
    {
        assert_eq!(Q::KEY, key as i16);
        for version in Q::VERSIONS.min..=Q::VERSIONS.max {
            let frame = encode_request(key, version, 42, "a client", &Q::default()).unwrap();
            assert_eq!(frame_len(*frame.first_chunk().unwrap(), 10_000), Ok(frame.len() - 4));
            let parsed = parse_request(frame.slice(4..)).unwrap();
            assert_eq!((parsed.api_key, parsed.api_version, parsed.correlation_id), (key as i16, version, 42));
            assert_eq!(parsed.client_id.as_deref(), Some("a client"));
            assert_eq!(decode_request::<Q>(parsed.body, version).unwrap(), Q::default(), "{key:?} version {version}");
            self.messages += 1;
        }
        for version in Q::Response::VERSIONS.min..=Q::Response::VERSIONS.max {
            let frame = encode_response(key, version, 42, &Q::Response::default()).unwrap();
            assert_eq!(frame_len(*frame.first_chunk().unwrap(), 10_000), Ok(frame.len() - 4));
            let (correlation_id, response) =
                milena_wire::decode::decode_response_to::<Q>(version, frame.slice(4..)).unwrap();
            assert_eq!((correlation_id, response), (42, Q::Response::default()), "{key:?} version {version}");
            let (_, untyped) = milena_wire::decode_response::<Q::Response>(key, version, frame.slice(4..)).unwrap();
            assert_eq!(untyped, Q::Response::default());
        }
    }
}

#[test]
fn the_default_request_and_response_of_every_version_come_back() {
    let mut visitor = RoundTrip { messages: 0 };
    fuzzing::visit_all(&mut visitor);
    assert!(visitor.messages > 200, "only {} messages were tried", visitor.messages);
}

#[test]
fn an_api_versions_response_has_header_version_zero_and_no_tagged_field() {
    for version in 0..=4 {
        let frame = encode_response(ApiKey::ApiVersions, version, 7, &ApiVersionsResponse::default()).unwrap();
        let empty: &[u8] = match version {
            0 => &[0, 0, 0, 0, 0, 0],
            1 | 2 => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => &[0, 0, 1, 0, 0, 0, 0, 0],
        };
        assert_eq!(&frame[4..], [&[0, 0, 0, 7][..], empty].concat(), "version {version}");
    }
}

#[test]
fn frames_are_not_larger_than_their_buffers() {
    let response = ApiVersionsResponse::default().with_api_keys(vec![Default::default(); 1000]);
    let frame = encode_response(ApiKey::ApiVersions, 4, 7, &response).unwrap();
    // Reserved once and exactly: what could be added without growing is nothing.
    let buffer = frame.try_into_mut().unwrap();
    assert_eq!(buffer.capacity(), buffer.len());
}
