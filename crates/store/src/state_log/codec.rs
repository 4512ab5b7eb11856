//! The stored form of the log's messages.
//!
//! One internal-topic message holds one of these as its payload, without user headers. Integers are little-endian:
//!
//! ```text
//! byte   0      u8    format version, 1
//! byte   1      u8    kind: 1 record, 2 snapshot chunk, 3 claim
//! bytes  2..10  u64   term: which claim the writer wrote under
//! bytes 10..18  u64   sequence, rising within a term
//! then the body, by kind:
//!   record          the caller's bytes
//!   snapshot chunk  u64 covered offset, u32 chunk index, u8 last (0 or 1), then (u32 length, bytes) per record
//!   claim           u64 writer, u64 term it follows, u64 voided term, u64 voided sequence (both 0: nothing is voided)
//! last 4        u32   CRC-32C over everything before it
//! ```
//!
//! Example, the record `hi` of term 1 with sequence 2:
//!
//! ```text
//! 01 01 0100000000000000 0200000000000000 6869 e4c068aa
//! ```
//!
//! The message id is `term << 64 | sequence`, so that a message can be recognised in the engine's own tools too.

use bytes::Bytes;

use crate::error::StoreError;

/// Version of the format that is written. A reader refuses any other, because guessing would lose state.
pub(super) const VERSION: u8 = 1;

const KIND_RECORD: u8 = 1;
const KIND_CHUNK: u8 = 2;
const KIND_CLAIM: u8 = 3;
const CRC_BYTES: usize = 4;

/// Bytes that the format adds to a record.
pub(super) const OVERHEAD_BYTES: usize = 1 + 1 + 8 + 8 + CRC_BYTES;

/// Bytes that a snapshot chunk adds to its records, beside [`OVERHEAD_BYTES`].
pub(super) const CHUNK_HEADER_BYTES: usize = 8 + 4 + 1;

/// Who wrote a message, and when in that writer's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) term: u64,
    pub(super) seq: u64,
}

impl Stamp {
    pub(super) fn message_id(self) -> u128 {
        u128::from(self.term) << 64 | u128::from(self.seq)
    }
}

/// A decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) stamp: Stamp,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Record(Bytes),
    Chunk { covers: u64, index: u32, last: bool, records: Vec<Bytes> },
    Claim { writer: u64, follows: u64, voids: Option<Stamp> },
}

/// The stored form of a message.
pub(super) fn encode(stamp: Stamp, body: &Body) -> Vec<u8> {
    let mut out = Vec::with_capacity(OVERHEAD_BYTES + body_len(body));
    out.push(VERSION);
    out.push(match body {
        Body::Record(_) => KIND_RECORD,
        Body::Chunk { .. } => KIND_CHUNK,
        Body::Claim { .. } => KIND_CLAIM,
    });
    out.extend_from_slice(&stamp.term.to_le_bytes());
    out.extend_from_slice(&stamp.seq.to_le_bytes());
    match body {
        Body::Record(payload) => out.extend_from_slice(payload),
        Body::Chunk { covers, index, last, records } => {
            out.extend_from_slice(&covers.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
            out.push(u8::from(*last));
            for record in records {
                let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(record);
            }
        }
        Body::Claim { writer, follows, voids } => {
            let voids = voids.unwrap_or(Stamp { term: 0, seq: 0 });
            out.extend_from_slice(&writer.to_le_bytes());
            out.extend_from_slice(&follows.to_le_bytes());
            out.extend_from_slice(&voids.term.to_le_bytes());
            out.extend_from_slice(&voids.seq.to_le_bytes());
        }
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn body_len(body: &Body) -> usize {
    match body {
        Body::Record(payload) => payload.len(),
        Body::Chunk { records, .. } => {
            CHUNK_HEADER_BYTES + records.iter().map(|record| 4 + record.len()).sum::<usize>()
        }
        Body::Claim { .. } => 32,
    }
}

/// Decodes the message at `offset`.
///
/// A message that cannot be read is an error and never skipped: what it said may be the newest word on something.
pub(super) fn decode(offset: u64, stored: &Bytes) -> Result<Message, StoreError> {
    match stored.first() {
        Some(&VERSION) => {}
        Some(other) => {
            return Err(damaged(offset, &format!("has format version {other}, this program reads {VERSION}")));
        }
        None => return Err(damaged(offset, "is empty")),
    }
    let Some(content) = stored.len().checked_sub(CRC_BYTES).map(|end| stored.slice(..end)) else {
        return Err(damaged(offset, "is cut short"));
    };
    let expected = stored.last_chunk::<CRC_BYTES>().map(|crc| u32::from_le_bytes(*crc));
    if expected != Some(crc32c(&content)) {
        return Err(damaged(offset, "has a wrong checksum"));
    }
    parse(content).ok_or_else(|| damaged(offset, "is malformed"))
}

fn parse(content: Bytes) -> Option<Message> {
    let mut rest = Cursor(content);
    let _version = rest.u8()?;
    let kind = rest.u8()?;
    let stamp = Stamp { term: rest.u64()?, seq: rest.u64()? };
    let body = match kind {
        KIND_RECORD => Body::Record(rest.0),
        KIND_CHUNK => {
            let covers = rest.u64()?;
            let index = rest.u32()?;
            let last = match rest.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let mut records = Vec::new();
            while !rest.0.is_empty() {
                let length = usize::try_from(rest.u32()?).ok()?;
                records.push(rest.take(length)?);
            }
            Body::Chunk { covers, index, last, records }
        }
        KIND_CLAIM => {
            let (writer, follows) = (rest.u64()?, rest.u64()?);
            let voids = Stamp { term: rest.u64()?, seq: rest.u64()? };
            let voids = (voids.term != 0).then_some(voids);
            if !rest.0.is_empty() {
                return None;
            }
            Body::Claim { writer, follows, voids }
        }
        _ => return None,
    };
    Some(Message { stamp, body })
}

struct Cursor(Bytes);

impl Cursor {
    fn take(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The error for a message of the log that cannot be believed.
pub(super) fn damaged(offset: u64, how: &str) -> StoreError {
    StoreError::Broken { context: format!("state log message at offset {offset} {how}") }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// One message of each kind with the bytes that version 1 stores for it. Released versions stay here for ever.
    fn fixtures_of_version_1() -> Vec<(Message, &'static str)> {
        let stamp = Stamp { term: 1, seq: 2 };
        vec![
            (
                Message { stamp, body: Body::Record(Bytes::from_static(b"hi")) },
                "0101010000000000000002000000000000006869e4c068aa",
            ),
            (
                Message {
                    stamp: Stamp { term: 3, seq: 4 },
                    body: Body::Chunk {
                        covers: 5,
                        index: 1,
                        last: true,
                        records: vec![Bytes::from_static(b"a"), Bytes::new()],
                    },
                },
                "01020300000000000000040000000000000005000000000000000100000001010000006100000000252e3701",
            ),
            (
                Message {
                    stamp: Stamp { term: 7, seq: 0 },
                    body: Body::Claim { writer: 9, follows: 6, voids: Some(stamp) },
                },
                "0103070000000000000000000000000000000900000000000000060000000000000001000000000000000200000000000000255f8341",
            ),
        ]
    }

    #[test]
    fn the_bytes_of_version_1_are_written_as_they_always_were() {
        for (message, bytes) in fixtures_of_version_1() {
            assert_eq!(hex(&encode(message.stamp, &message.body)), bytes);
        }
    }

    #[test]
    fn the_bytes_of_version_1_are_read() {
        for (message, bytes) in fixtures_of_version_1() {
            let stored: Vec<u8> =
                (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap()).collect();
            assert_eq!(decode(0, &Bytes::from(stored)).unwrap(), message);
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let error = decode(17, &Bytes::from_static(&[2, 1, 0, 0])).unwrap_err();
        assert!(error.to_string().contains("offset 17 has format version 2"), "{error}");
    }

    #[test]
    fn a_flipped_bit_anywhere_is_damage() {
        let stored = encode(Stamp { term: 1, seq: 1 }, &Body::Record(Bytes::from_static(b"abc")));
        for bit in 0..stored.len() * 8 {
            let mut bent = stored.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(0, &Bytes::from(bent)).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(0, &Bytes::from(bytes.clone()));
            let mut with_version = vec![VERSION];
            with_version.extend_from_slice(&bytes);
            let crc = crc32c(&with_version);
            with_version.extend_from_slice(&crc.to_le_bytes());
            let _ = decode(0, &Bytes::from(with_version));
        }
    }
}
