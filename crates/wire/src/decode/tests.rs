use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, JoinGroupRequest, MetadataRequest, OffsetCommitRequest, ProduceRequest,
};
use kafka_protocol::protocol::Encodable;

use super::*;

fn encoded(message: &impl Encodable, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).unwrap();
    out.freeze()
}

fn produce(records: Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_records(Some(records));
    let topic =
        TopicProduceData::default().with_name("t".to_owned().into_bytes_name()).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(1).with_topic_data(vec![topic])
}

trait IntoName {
    fn into_bytes_name(self) -> kafka_protocol::messages::TopicName;
}

impl IntoName for String {
    fn into_bytes_name(self) -> kafka_protocol::messages::TopicName {
        kafka_protocol::protocol::StrBytes::from_string(self).into()
    }
}

fn both_ways<Q: Request + PartialEq + std::fmt::Debug>(body: &Bytes, version: i16) -> Result<Q, WireError> {
    let typed = decode_request::<Q>(body.clone(), version);
    assert_eq!(decode_body::<Q>(body.clone(), version), typed);
    typed
}

#[test]
fn a_metadata_body_of_four_bytes_that_declares_the_largest_count_is_refused() {
    let body = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]);
    assert!(both_ways::<MetadataRequest>(&body, 0).is_err());
}

#[test]
fn a_create_topics_body_that_declares_a_huge_array_is_refused() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let error = both_ways::<CreateTopicsRequest>(&body, 5).unwrap_err();
    assert_eq!(error, WireError::Overdeclared { declared: 0xffff_ffff, left: 20 });
}

#[test]
fn a_produce_body_with_an_overlong_varint_is_refused() {
    // Null transactional id, acks 1, timeout 0, then five bytes that all ask for one more.
    let body = Bytes::from_static(&[0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(matches!(both_ways::<ProduceRequest>(&body, 9), Err(WireError::Overdeclared { .. })));
}

#[test]
fn a_varint_of_five_bytes_is_read_as_the_decoder_reads_it() {
    // 0 in five bytes: the decoder takes all five, and so a null array of topics follows.
    let body = Bytes::from_static(&[0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0]);
    let request = both_ways::<MetadataRequest>(&body, 9).unwrap();
    assert_eq!(request.topics, None);
}

#[test]
fn a_boolean_in_front_of_a_varint_does_not_hide_it() {
    // allow_auto_topic_creation 0x80; seen together with it, the five bytes that follow would overflow to zero.
    let mut buf = GuardedBuf::new(Bytes::from_static(&[0x80, 0x80, 0x80, 0x80, 0xf0, 0]), Counts::Varint, 100);
    assert_eq!(bytes::Buf::try_get_u8(&mut buf), Ok(0x80));
    assert!(bytes::Buf::try_get_u8(&mut buf).is_err());
}

#[test]
fn bytes_left_behind_a_body_are_an_error() {
    for version in [0, 9] {
        let mut body = BytesMut::from(&*encoded(&MetadataRequest::default().with_topics(Some(vec![])), version));
        body.put_u8(0);
        assert_eq!(both_ways::<MetadataRequest>(&body.freeze(), version), Err(WireError::BytesLeft(1)));
    }
}

#[test]
fn large_values_are_not_taken_for_counts() {
    let fetch = FetchRequest::default().with_max_wait_ms(i32::MAX).with_max_bytes(i32::MAX - 1).with_topics(vec![
        FetchTopic::default().with_partitions(vec![FetchPartition::default().with_partition_max_bytes(i32::MAX)]),
    ]);
    for version in 4..=16 {
        assert_eq!(both_ways(&encoded(&fetch, version), version), Ok(fetch.clone()), "version {version}");
    }
    let join = JoinGroupRequest::default().with_session_timeout_ms(i32::MAX).with_rebalance_timeout_ms(300_000);
    for version in 1..=9 {
        assert_eq!(both_ways(&encoded(&join, version), version), Ok(join.clone()), "version {version}");
    }
}

#[test]
fn a_large_value_at_the_very_end_is_not_taken_for_a_count() {
    let mut buf = GuardedBuf::new(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]), Counts::Int32, 100);
    assert_ne!(bytes::Buf::try_get_i32(&mut buf), Ok(i32::MAX));
    assert!(buf.clamped());
}

#[test]
fn records_larger_than_any_count_are_a_slice_of_the_frame() {
    for version in 3..=12 {
        for len in [REQUEST_FIELDS_MAX - 20, REQUEST_FIELDS_MAX + 1, 3_000_000] {
            let request = produce(Bytes::from(vec![7; len]));
            let body = encoded(&request, version);
            let range = body.as_ptr_range();
            let decoded = both_ways::<ProduceRequest>(&body, version).unwrap();
            assert_eq!(decoded, request);
            let records = decoded.topic_data[0].partition_data[0].records.as_ref().unwrap();
            assert!(range.contains(&records.as_ptr()), "version {version}, {len} bytes were copied");
        }
    }
}

#[test]
fn records_that_end_before_their_length_are_refused() {
    for version in [8, 9] {
        let body = encoded(&produce(Bytes::from(vec![7; 2_000_000])), version);
        assert!(both_ways::<ProduceRequest>(&body.slice(..1_500_000), version).is_err());
    }
}

#[test]
fn unknown_tagged_fields_survive_however_large_they_are() {
    let request = OffsetCommitRequest::default()
        .with_unknown_tagged_field(10_000, Bytes::from_static(b"kept"))
        .with_unknown_tagged_field(10_001, Bytes::from(vec![1; 2_000_000]));
    for version in [8, 9] {
        let body = encoded(&request, version);
        let decoded = both_ways::<OffsetCommitRequest>(&body, version).unwrap();
        assert_eq!(decoded, request);
        assert_eq!(encoded(&decoded, version), body);
    }
}

#[test]
fn a_consumer_of_100_000_partitions_can_fetch() {
    let partitions = (0..100_000).map(|index| FetchPartition::default().with_partition(index)).collect();
    let topic = FetchTopic::default().with_partitions(partitions);
    let request = FetchRequest::default().with_topics(vec![topic]);
    for version in [4, 11, 12, 16] {
        assert_eq!(both_ways(&encoded(&request, version), version), Ok(request.clone()), "version {version}");
    }
}

#[test]
fn more_fields_than_the_bound_are_refused() {
    let names = |count: usize| {
        let topic = kafka_protocol::messages::metadata_request::MetadataRequestTopic::default();
        MetadataRequest::default().with_topics(Some(vec![topic.with_name(Some(Default::default())); count]))
    };
    // In version 0 each topic is a length and a slice, behind one count.
    assert!(both_ways::<MetadataRequest>(&encoded(&names(499_999), 0), 0).is_ok());
    let error = both_ways::<MetadataRequest>(&encoded(&names(500_000), 0), 0).unwrap_err();
    assert_eq!(error, WireError::TooManyFields(REQUEST_FIELDS_MAX));
}

#[test]
fn a_large_frame_cannot_declare_more_elements_than_fields_are_allowed() {
    // All bytes are there, so the count is not more than what is left.
    let mut body = BytesMut::from(&[0x01, 0x31, 0x2d, 0x00][..]);
    body.resize(20_000_000, 0);
    assert!(both_ways::<MetadataRequest>(&body.clone().freeze(), 0).is_err());
    // 9,999,999 topics as a varint.
    let body = [&[0x80, 0xad, 0xe2, 0x04][..], &body].concat();
    assert!(matches!(both_ways::<MetadataRequest>(&body.into(), 9), Err(WireError::Overdeclared { .. })));
}
