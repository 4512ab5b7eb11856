//! Batches without records.

use crate::batch::{BatchHeader, HEADER_ROOM, HeaderFields, finish_batch};
use crate::fetch::{Encoded, OFFSET_DELTA_MAX};

/// Kafka's mark of a time that is not there.
const NO_TIMESTAMP: i64 = -1;

/// Writes a batch without records for the offsets from `from` up to `behind`, as a compacted log keeps one in place of what it
/// dropped: a consumer goes on behind it. One batch covers 2^31 offsets at most; `next_offset` says where it ends.
pub fn encode_empty(from: u64, behind: u64, leader_epoch: i32, out: &mut Vec<u8>) -> Encoded {
    let start = out.len();
    let last_delta = behind.saturating_sub(from).saturating_sub(1).min(OFFSET_DELTA_MAX);
    out.extend_from_slice(&HEADER_ROOM);
    let fields = BatchHeader {
        attributes: 0,
        last_offset_delta: i32::try_from(last_delta).unwrap_or(i32::MAX),
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: 0,
    };
    finish_batch(out, start, &HeaderFields { base_offset: from.cast_signed(), leader_epoch, fields });
    Encoded { bytes: out.len() - start, next_offset: from.saturating_add(last_delta + 1), ..Encoded::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BATCH_HEADER_BYTES;
    use crate::client::read_record_set;

    #[test]
    fn a_batch_without_records_is_sound_and_says_where_it_ends() {
        for (behind, next) in [(8, 8), (1_000, 1_000), (u64::MAX, 7 + (1 << 31))] {
            let mut out = b"before".to_vec();
            let encoded = encode_empty(7, behind, 3, &mut out);
            let batch = &out[6..];
            assert_eq!((encoded.bytes, encoded.next_offset, encoded.records), (BATCH_HEADER_BYTES, next, 0));
            assert_eq!(read_record_set(batch, 1), Ok(Vec::new()));
            assert_eq!(batch[..8], 7_u64.to_be_bytes());
            let last = u32::from_be_bytes(*batch[23..].first_chunk().unwrap());
            assert_eq!(7 + u64::from(last) + 1, next);
        }
    }
}
