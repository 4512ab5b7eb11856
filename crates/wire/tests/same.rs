//! The guard changes no value: what decodes without it decodes to the same with it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::fmt::Debug;

use bytes::Bytes;
use common::{Invented, Numbers, invent};
use milena_wire::decode::decode_response_to;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::{Decodable, HeaderVersion, Message, Request};
use milena_wire::{WireError, decode_body, decode_request, fuzzing};
use proptest::prelude::*;

fn unguarded<T: Decodable>(body: &[u8], version: i16) -> Option<T> {
    let mut body = Bytes::copy_from_slice(body);
    T::decode(&mut body, version).ok().filter(|_| body.is_empty())
}

type Guarded<T> = fn(Bytes, i16) -> Result<T, WireError>;

/// Compares the guarded ways of decoding `T` with the unguarded one.
struct Compare<T> {
    version: i16,
    numbers: Numbers,
    guarded: [Guarded<T>; 2],
}

impl<T: Decodable + PartialEq + Debug> Compare<T> {
    fn all(&mut self, frame: &Invented) {
        self.is_same(&frame.body);
        for _ in 0..4 {
            self.with_a_large_value(frame);
            self.with_random_bytes(frame);
        }
    }

    fn is_same(&self, body: &[u8]) {
        let expected = unguarded::<T>(body, self.version);
        assert!(expected.is_some());
        for decode in &self.guarded {
            let value = decode(Bytes::copy_from_slice(body), self.version);
            assert_eq!(value.as_ref().ok(), expected.as_ref(), "{value:?} in version {}: {body:?}", self.version);
        }
    }

    /// An `i32` that can be changed without moving what follows is a value, and may be anything.
    fn with_a_large_value(&mut self, frame: &Invented) {
        if frame.int32s.is_empty() {
            return;
        }
        let at = frame.int32s[self.numbers.below(frame.int32s.len())];
        let with = |value: i32| {
            let mut body = frame.body.clone();
            body[at..at + 4].copy_from_slice(&value.to_be_bytes());
            body
        };
        if [-7, 5, 77, 1_234].iter().all(|&small| unguarded::<T>(&with(small), self.version).is_some()) {
            let large = i32::try_from(self.numbers.next() >> 33).unwrap();
            self.is_same(&with(large));
            self.is_same(&with(i32::MAX));
        }
    }

    /// Where the guard accepts, every count was backed by bytes, and the decoder alone is safe to try.
    fn with_random_bytes(&mut self, frame: &Invented) {
        let mut body = frame.body.clone();
        for _ in 0..=self.numbers.below(3) {
            if !body.is_empty() {
                let at = self.numbers.below(body.len());
                body[at] = self.numbers.next().to_be_bytes()[0];
            }
        }
        for decode in &self.guarded {
            if let Ok(value) = decode(Bytes::copy_from_slice(&body), self.version) {
                let expected = unguarded::<T>(&body, self.version);
                // As text, because one field in all messages can be NaN.
                let (value, expected) = (format!("{:?}", Some(value)), format!("{expected:?}"));
                assert_eq!(value, expected, "version {}: {body:?}", self.version);
            }
        }
    }
}

struct Same {
    seed: u64,
    compared: usize,
}

#[allow(clippy::needless_pass_by_value, reason = "called as the decoders of requests are")]
fn response<Q: Request>(body: Bytes, version: i16) -> Result<Q::Response, WireError> {
    let tags: &[u8] = if Q::Response::header_version(version) > 0 { &[0] } else { &[] };
    decode_response_to::<Q>(version, [&[0, 0, 0, 1], tags, &body].concat().into()).map(|(_, response)| response)
}

impl fuzzing::Visit for Same {
    fn visit<Q>(&mut self, _key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + Debug,
        Q::Response: Default + Clone + PartialEq + Debug,
    {
        for version in Q::VERSIONS.min..=Q::VERSIONS.max {
            let numbers = Numbers(self.seed);
            let guarded: [Guarded<_>; 2] = [decode_request::<Q>, decode_body::<Q>];
            if let Some(frame) = invent::<Q>(version, self.seed) {
                Compare { version, numbers, guarded }.all(&frame);
                self.compared += 1;
            }
        }
        for version in Q::Response::VERSIONS.min..=Q::Response::VERSIONS.max {
            let numbers = Numbers(self.seed);
            let guarded: [Guarded<_>; 2] = [response::<Q>, decode_body::<Q::Response>];
            if let Some(frame) = invent::<Q::Response>(version, self.seed) {
                Compare { version, numbers, guarded }.all(&frame);
                self.compared += 1;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_decode_to_the_same_value_with_and_without_the_guard(seed in any::<u64>()) {
        let mut same = Same { seed, compared: 0 };
        fuzzing::visit_all(&mut same);
        prop_assert!(same.compared > 400, "only {} messages were compared", same.compared);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(data in prop::collection::vec(any::<u8>(), 0..200), long in any::<bool>()) {
        for key in ApiKey::iter() {
            for version in key.valid_versions().min..=key.valid_versions().max {
                let [k0, k1] = (key as i16).to_be_bytes();
                let [v0, v1] = version.to_be_bytes();
                let mut frame = vec![k0, k1, v0, v1];
                frame.extend_from_slice(&data);
                let _ = fuzzing::response_frame(&frame);
                // A header that is read, so that the bytes reach the body.
                frame.splice(4..4, [0, 0, 0, 1, 0xff, 0xff, 0]);
                if long {
                    frame.resize(frame.len() + 70_000, 0);
                }
                let _ = fuzzing::request_frame(&frame);
            }
        }
        let _ = fuzzing::request_frame(&data);
    }
}
