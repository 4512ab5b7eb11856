//! No frame reserves memory that its bytes do not back.
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
use common::{Invented, invent};
use milena_wire::decode::decode_response_to;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::{HeaderVersion, Message, Request};
use milena_wire::{WireError, decode_body, decode_request, fuzzing};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Most that any small frame may reserve, in bytes.
const RESERVED_MAX: usize = 9_000_000;

fn reserved(work: impl FnOnce()) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    work();
    ALLOCATOR.peak_usage() - before
}

struct Worst {
    bytes: usize,
    message: String,
    frames: usize,
    padding: usize,
}

impl Worst {
    fn try_all<T>(&mut self, name: &str, frame: &Invented, ways: &[&dyn Fn(Bytes) -> Result<T, WireError>]) {
        for body in lies(frame) {
            let mut body = body;
            body.resize(body.len() + self.padding, 1);
            let body = Bytes::from(body);
            for decode in ways {
                let bytes = reserved(|| drop(decode(body.clone())));
                self.frames += 1;
                if bytes > self.bytes {
                    self.bytes = bytes;
                    self.message = format!("{name}: {:?}", &body[..body.len().min(200)]);
                }
            }
        }
    }
}

/// The frame with each of its numbers in turn made far too large, whole and cut off behind it.
fn lies(frame: &Invented) -> Vec<Vec<u8>> {
    let mut lies = Vec::new();
    let mut lie = |at: usize, width: usize, with: &[u8]| {
        let whole = [&frame.body[..at], with, &frame.body[at + width..]].concat();
        lies.push(whole[..at + with.len()].to_vec());
        lies.push(whole);
    };
    for &at in frame.int32s.iter().step_by(1 + frame.int32s.len() / 40) {
        for count in [i32::MAX, 1_000_000, 65_537, 32_769, 32_768] {
            lie(at, 4, &count.to_be_bytes());
        }
    }
    for &at in frame.bytes.iter().step_by(1 + frame.bytes.len() / 40) {
        lie(at, 1, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        lie(at, 1, &[0xff, 0xff, 0xff, 0xff, 0xff]);
        lie(at, 1, &[0xff, 0xff, 0xff, 0x7f]);
        lie(at, 1, &[0x80, 0x80, 0x80, 0xf0, 0x00]);
        lie(at, 1, &[0xff, 0xff, 0x03]);
        lie(at, 1, &[0x80, 0x80, 0x02]);
    }
    lies
}

impl fuzzing::Visit for Worst {
    fn visit<Q>(&mut self, key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + Debug,
        Q::Response: Default + Clone + PartialEq + Debug,
    {
        for version in Q::VERSIONS.min..=Q::VERSIONS.max {
            let Some(frame) = invent::<Q>(version, 1) else { continue };
            let name = format!("request {key:?} version {version}");
            let typed = |body| decode_request::<Q>(body, version);
            let untyped = |body| decode_body::<Q>(body, version);
            self.try_all::<Q>(&name, &frame, &[&typed, &untyped]);
        }
        for version in Q::Response::VERSIONS.min..=Q::Response::VERSIONS.max {
            let Some(frame) = invent::<Q::Response>(version, 1) else { continue };
            let tags: &[u8] = if Q::Response::header_version(version) > 0 { &[0] } else { &[] };
            let typed = |body: Bytes| {
                let frame = [&[0, 0, 0, 1], tags, &body].concat();
                decode_response_to::<Q>(version, frame.into()).map(|(_, response)| response)
            };
            let name = format!("response {key:?} version {version}");
            self.try_all::<Q::Response>(&name, &frame, &[&typed]);
        }
    }
}

/// One test, because the peak is that of the whole process.
#[test]
fn no_declared_count_reserves_memory_that_the_frame_does_not_back() {
    let mut worst = Worst { bytes: 0, message: String::new(), frames: 0, padding: 0 };
    fuzzing::visit_all(&mut worst);
    assert!(worst.frames > 10_000, "only {} frames were tried", worst.frames);
    assert!(worst.bytes < RESERVED_MAX, "{} bytes for {}", worst.bytes, worst.message);

    // The count is backed by bytes now, but not by the number of fields that a request may have.
    let mut body = vec![1; 64 << 20];
    body[..4].copy_from_slice(&60_000_000_i32.to_be_bytes());
    let body = Bytes::from(body);
    let bytes = reserved(|| {
        let request = decode_body::<milena_wire::kafka_protocol::messages::MetadataRequest>(body, 0);
        assert!(request.is_err());
    });
    assert!(bytes < 256 << 20, "{bytes} bytes");
}
