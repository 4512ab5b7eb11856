use std::sync::Arc;

use milena_wire::encode_response;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::fetch_response::{EpochEndOffset, FetchableTopicResponse, PartitionData};
use milena_wire::kafka_protocol::messages::{ApiKey, FetchResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::arena::{Arena, BufferPool};
use super::super::want::{PartitionKey, Position};
use super::*;

/// Topic number, partition, error, high watermark, log start, size of records.
type Row = (u8, i32, bool, i64, i64, usize);

fn topic(version: i16, number: u8) -> TopicKey {
    if version >= BY_ID {
        TopicKey::Id(Uuid::from_u128(u128::from(number) + 1))
    } else {
        TopicKey::Name("t".repeat(usize::from(number) * 60 + 1).into())
    }
}

fn pieces(head: &Head, rows: &[Row]) -> Vec<Bytes> {
    let mut arena = Arena::new(Arc::new(BufferPool::default()));
    let pairs: Vec<(Want, Answer)> = rows
        .iter()
        .map(|(number, partition, failed, high_watermark, log_start, size)| {
            let (records, ()) = arena.append(*size, |out| out.extend(std::iter::repeat_n(*number, *size)));
            let key = PartitionKey { topic: topic(head.version, *number), partition: *partition };
            let want =
                Want { key, position: Position { offset: 0, max_bytes: 0, leader_epoch: -1, fetched_epoch: -1 } };
            let error = failed.then_some(ResponseError::OffsetOutOfRange);
            let diverging = diverging(*high_watermark);
            (want, Answer { error, high_watermark: *high_watermark, log_start: *log_start, diverging, records })
        })
        .collect();
    let rows: Vec<_> = pairs.iter().map(|(want, answer)| (want, answer)).collect();
    write_frame(head, &rows, &arena.freeze()).unwrap()
}

fn ours(head: &Head, rows: &[Row]) -> Bytes {
    pieces(head, rows).concat().into()
}

/// Some answers diverge.
fn diverging(high_watermark: i64) -> Option<(i32, i64)> {
    (high_watermark % 3 == 1).then_some((i32::MAX, high_watermark))
}

fn by_the_schema_crate(head: &Head, rows: &[Row]) -> Bytes {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    for run in rows.chunk_by(|left, right| left.0 == right.0) {
        let mut response = FetchableTopicResponse::default();
        match topic(head.version, run[0].0) {
            TopicKey::Name(name) => response.topic = StrBytes::from_string(name.to_string()).into(),
            TopicKey::Id(id) => response.topic_id = id,
        }
        for (number, partition, failed, high_watermark, log_start, size) in run {
            let diverging = diverging(*high_watermark).filter(|_| head.version >= DIVERGING);
            let diverging =
                diverging.map(|(epoch, end)| EpochEndOffset::default().with_epoch(epoch).with_end_offset(end));
            let data = PartitionData::default()
                .with_diverging_epoch(diverging.unwrap_or_default())
                .with_partition_index(*partition)
                .with_error_code(i16::from(*failed))
                .with_high_watermark(*high_watermark)
                .with_last_stable_offset(*high_watermark)
                .with_log_start_offset(*log_start)
                .with_aborted_transactions(head.read_committed.then(Vec::new))
                .with_records(Some(Bytes::from(vec![*number; *size])));
            response.partitions.push(data);
        }
        topics.push(response);
    }
    let response = FetchResponse::default()
        .with_error_code(head.error_code)
        .with_session_id(head.session_id)
        .with_responses(topics);
    encode_response(ApiKey::Fetch, head.version, head.correlation_id, &response).unwrap()
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let sizes = prop_oneof![Just(0_usize), 1..300_usize, 16_000..17_000_usize];
    vec((0..4_u8, any::<i32>(), any::<bool>(), any::<i64>(), any::<i64>(), sizes), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_version_is_written_as_the_schema_says(
        rows in rows(),
        correlation_id: i32,
        session_id: i32,
        error_code: i16,
        read_committed: bool,
    ) {
        for version in 4..=17 {
            let session_id = if version >= SESSIONS { session_id } else { 0 };
            let head = Head { version, correlation_id, error_code, session_id, read_committed };
            prop_assert_eq!(ours(&head, &rows), by_the_schema_crate(&head, &rows), "version {}", version);
        }
    }
}

#[test]
fn more_topics_than_one_byte_of_length_holds() {
    let rows: Vec<Row> =
        (0_u16..300).map(|index| (index.to_le_bytes()[0] % 3, i32::from(index), false, 5, 0, 0)).collect();
    for version in 4..=17 {
        let head = Head { version, correlation_id: 1, error_code: 0, session_id: 0, read_committed: false };
        assert_eq!(ours(&head, &rows), by_the_schema_crate(&head, &rows), "version {version}");
    }
}

#[test]
fn small_records_are_copied_once_into_one_piece() {
    let rows: Vec<Row> =
        (0_u16..300).map(|index| (index.to_le_bytes()[0] % 3, i32::from(index), false, 5, 0, 100)).collect();
    for version in [4, 12, 13] {
        let head = Head { version, correlation_id: 1, error_code: 0, session_id: 0, read_committed: false };
        let pieces = pieces(&head, &rows);
        assert_eq!(pieces.len(), 1);
        let frame = Vec::from(pieces[0].clone());
        assert!(frame.capacity() < frame.len() + frame.len() / 3, "{} for {}", frame.capacity(), frame.len());
    }
}

#[test]
fn large_records_are_not_copied() {
    let rows: Vec<Row> = (0..3).map(|index| (0, index, false, 5, 0, 100_000)).collect();
    let head = Head { version: 12, correlation_id: 1, error_code: 0, session_id: 0, read_committed: false };
    let sizes: Vec<usize> = pieces(&head, &rows).iter().map(Bytes::len).collect();
    assert_eq!(sizes.iter().filter(|size| **size == 100_000).count(), 3);
    assert_eq!(sizes.len(), 7);
}
