//! Whole requests: what each partition entry is answered with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_records::{Codec, TimestampType};
use milena_store::Store;
use milena_store::testing::Fault;
use milena_testkit::Logged;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::produce_response::PartitionProduceResponse;
use milena_wire::kafka_protocol::messages::{ProduceRequest, TopicName, TransactionalId};
use milena_wire::kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::config::Idempotence;
use crate::produce::request::{Plan, is_heavy};
use crate::produce::testing::{TestServer, in_mode, settings};
use crate::produce::{Produce, ProduceSettings};
use crate::topics::{Topic, TopicConfig};

mod named;

const NOW_MS: i64 = 1_800_000_000_000;

fn config() -> TopicConfig {
    TopicConfig {
        max_message_bytes: 1 << 20,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        fetch_compression: milena_records::Compression::NONE,
        compacted: false,
        set: BTreeMap::new(),
    }
}

fn topic(server: &TestServer, config: TopicConfig) -> Arc<Topic> {
    let store = server.at.topic.clone();
    Arc::new(Topic { name: "orders".into(), id: Uuid::from_u128(1), store, partitions: 3, internal: false, config })
}

fn record(value: &str) -> Record {
    Record { timestamp_ms: NOW_MS, value: Some(value.into()), ..Record::default() }
}

fn plain_batch() -> Vec<u8> {
    build_batch(&[record("one"), record("two")], Codec::None, None)
}

fn stamped(producer_id: u64, base_sequence: i32) -> Vec<u8> {
    let producer = ProducerStamp { producer_id: producer_id.cast_signed(), epoch: 0, base_sequence };
    build_batch(&[record("one"), record("two")], Codec::None, Some(producer))
}

fn request(entries: Vec<(i32, Option<Vec<u8>>)>) -> ProduceRequest {
    let data = entries.into_iter().map(|(index, records)| {
        PartitionProduceData::default().with_index(index).with_records(records.map(Bytes::from))
    });
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str("orders")))
        .with_partition_data(data.collect());
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

struct Client {
    server: TestServer,
    topic: Arc<Topic>,
    version: i16,
}

impl Client {
    async fn new(config: TopicConfig) -> Self {
        Self::with(settings(), config).await
    }

    async fn with(settings: ProduceSettings, config: TopicConfig) -> Self {
        let server = TestServer::with(settings).await;
        let topic = topic(&server, config);
        Self { server, topic, version: 12 }
    }

    async fn run(&self, request: ProduceRequest) -> Vec<PartitionProduceResponse> {
        let produce: &Produce = &self.server.produce;
        let lookup = |_: &TopicProduceData| Ok(Arc::clone(&self.topic));
        let response = Plan::new(produce, &lookup, request, self.version).run(produce).await;
        response.responses.into_iter().flat_map(|topic| topic.partition_responses).collect()
    }

    async fn one(&self, records: Vec<u8>) -> PartitionProduceResponse {
        self.run(request(vec![(0, Some(records))])).await.remove(0)
    }

    async fn code(&self, records: Vec<u8>) -> i16 {
        self.one(records).await.error_code
    }
}

fn codes(answers: &[PartitionProduceResponse]) -> Vec<i16> {
    answers.iter().map(|answer| answer.error_code).collect()
}

/// Writes the checksum of a batch that was changed.
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc_of(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// CRC-32C, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

#[tokio::test]
async fn a_written_batch_is_answered_with_its_offset_and_the_log_start() {
    let client = Client::new(config()).await;
    client.one(plain_batch()).await;
    client.server.store.trim(&client.server.at, 1).await.unwrap();
    let answer = client.one(plain_batch()).await;
    assert_eq!((answer.error_code, answer.base_offset, answer.log_start_offset), (0, 2, 1));
    assert_eq!(answer.log_append_time_ms, -1);
    assert_eq!((answer.record_errors.len(), answer.error_message), (0, None));
}

#[tokio::test]
async fn the_append_time_is_told_where_the_topic_stamps_records_with_it() {
    let client = Client::new(TopicConfig { timestamp_type: TimestampType::LogAppendTime, ..config() }).await;
    assert!(client.one(plain_batch()).await.log_append_time_ms > 0);
}

#[tokio::test]
async fn every_codec_is_taken() {
    let client = Client::new(config()).await;
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    for (offset, codec) in (0..).zip(codecs) {
        let answer = client.one(build_batch(&[record("value")], codec, None)).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, offset), "{codec:?}");
    }
}

#[tokio::test]
async fn zstd_is_refused_below_version_7() {
    let client = Client { version: 6, ..Client::new(config()).await };
    assert_eq!(client.code(build_batch(&[record("value")], Codec::Zstd, None)).await, 76);
    assert_eq!(client.code(build_batch(&[record("value")], Codec::Lz4, None)).await, 0);
}

#[tokio::test]
async fn each_flaw_of_a_batch_has_its_code_and_nothing_is_written() {
    let client = Client::new(TopicConfig { max_message_bytes: 1_000, ..config() }).await;
    let with = |at: usize, value: u8| {
        let mut batch = plain_batch();
        batch[at] = value;
        sealed(batch)
    };
    let twice = [plain_batch(), plain_batch()].concat();
    let mut spoiled = plain_batch();
    *spoiled.last_mut().unwrap() ^= 1;
    let cases = [
        ("no batch", Vec::new(), 87),
        ("a second batch", twice, 87),
        ("magic 1", with(16, 1), 87),
        ("a spoiled byte", spoiled, 2),
        ("too large", build_batch(&[record(&"v".repeat(1_000))], Codec::None, None), 10),
        ("a control batch", with(22, 0x20), 35),
        ("a transactional batch", with(22, 0x10), 35),
        ("an unknown codec", with(22, 5), 76),
        ("a timestamp below -1", build_batch(&[Record { timestamp_ms: -2, ..record("v") }], Codec::None, None), 32),
    ];
    for (flaw, batch, code) in cases {
        assert_eq!(client.code(batch).await, code, "{flaw}");
    }
    assert_eq!(client.run(request(vec![(0, None)])).await[0].error_code, 87);
    assert!(client.server.ids().await.is_empty());
}

#[tokio::test]
async fn timestamps_outside_of_the_topics_bounds_are_refused() {
    let client = Client::new(TopicConfig { timestamp_after_max_ms: 3_600_000, ..config() }).await;
    let far = Record { timestamp_ms: i64::from(u32::MAX) * 1_000 * 1_000, ..record("value") };
    assert_eq!(client.code(build_batch(&[far], Codec::None, None)).await, 32);
    let missing = Record { timestamp_ms: -1, ..record("value") };
    assert_eq!(client.code(build_batch(&[missing], Codec::None, None)).await, 0);
}

#[tokio::test]
async fn one_budget_serves_all_batches_of_a_request() {
    let client = Client::with(ProduceSettings { budget_bytes: 20_000, ..settings() }, config()).await;
    let batch = |bytes: usize| Some(build_batch(&[record(&"v".repeat(bytes))], Codec::Gzip, None));
    let answers = client.run(request(vec![(0, batch(12_000)), (1, batch(12_000)), (2, batch(30_000))])).await;
    assert_eq!(codes(&answers), [0, 6, 10], "the second fits alone and is sent again, the third never will");
}

#[tokio::test]
async fn acks_that_do_not_exist_are_refused_for_every_partition() {
    let client = Client::new(config()).await;
    let entries = || request(vec![(0, Some(plain_batch())), (1, None), (9, Some(plain_batch()))]);
    for acks in [2, -2, i16::MAX] {
        assert_eq!(codes(&client.run(entries().with_acks(acks)).await), [21, 21, 21]);
    }
    assert!(client.server.ids().await.is_empty());
}

#[tokio::test]
async fn acks_0_is_silent_also_when_it_fails() {
    let client = Client::new(config()).await;
    let lookup = |_: &TopicProduceData| Err(ResponseError::UnknownTopicOrPartition);
    for acks in [0, 1, -1] {
        let request = request(vec![(0, Some(plain_batch()))]).with_acks(acks);
        assert_eq!(Plan::new(&client.server.produce, &lookup, request, 9).is_silent(), acks == 0);
    }
}

#[tokio::test]
async fn a_transactional_id_is_refused_for_every_partition_and_an_empty_one_is_none() {
    let client = Client::new(config()).await;
    let entries = |id| {
        let id = TransactionalId(StrBytes::from_static_str(id));
        request(vec![(0, Some(plain_batch())), (1, Some(plain_batch()))]).with_transactional_id(Some(id))
    };
    assert_eq!(codes(&client.run(entries("t")).await), [35, 35]);
    assert_eq!(codes(&client.run(entries("")).await), [0, 0]);
}

#[tokio::test]
async fn a_partition_that_does_not_exist_is_unknown_and_the_others_are_written() {
    let client = Client::new(config()).await;
    let entries = [3, -1, 2, i32::MAX].map(|index| (index, Some(plain_batch()))).to_vec();
    let answers = client.run(request(entries)).await;
    assert_eq!(codes(&answers), [3, 3, 0, 3]);
    assert_eq!(answers.iter().map(|answer| answer.index).collect::<Vec<_>>(), [3, -1, 2, i32::MAX]);
}

#[tokio::test]
async fn a_partition_that_is_named_twice_is_written_in_the_requests_order() {
    let client = Client::new(config()).await;
    let id = client.server.producer().await;
    let entries = [(0, 0), (1, 0), (0, 2), (0, 2), (0, 4)];
    let entries = entries.map(|(partition, first)| (partition, Some(stamped(id, first)))).to_vec();
    let answers = client.run(request(entries)).await;
    let offsets: Vec<_> = answers.iter().map(|answer| (answer.error_code, answer.base_offset)).collect();
    assert_eq!(offsets, [(0, 0), (0, 0), (0, 2), (0, 2), (0, 4)]);
}

#[tokio::test(start_paused = true)]
async fn store_errors_of_one_partition_leave_the_others_alone() {
    let client = Client::new(config()).await;
    client.server.store.plan(Fault::Full);
    client.server.store.plan(Fault::Busy);
    let entries = [0, 1, 2].map(|index| (index, Some(plain_batch()))).to_vec();
    assert_eq!(codes(&client.run(request(entries)).await), [56, 6, 0]);
}

#[tokio::test]
async fn a_full_device_is_told_to_the_operator_but_not_for_each_batch() {
    let errors = Logged::at(tracing::Level::ERROR);
    let client = Client::new(config()).await;
    for _ in 0..5 {
        client.server.store.plan(Fault::Full);
        assert_eq!(client.code(plain_batch()).await, 56);
        client.server.store.plan(Fault::Busy);
        assert_eq!(client.code(plain_batch()).await, 6);
    }
    assert_eq!(errors.count(), 1);
}

#[tokio::test]
async fn sequences_answer_with_the_codes_that_producers_expect() {
    let client = Client::new(config()).await;
    let id = client.server.producer().await;
    assert_eq!(client.code(stamped(id, 0)).await, 0);
    assert_eq!(client.code(stamped(id, 4)).await, 45);
    let epoch = |epoch, base_sequence| {
        let producer = ProducerStamp { producer_id: id.cast_signed(), epoch, base_sequence };
        build_batch(&[record("one")], Codec::None, Some(producer))
    };
    assert_eq!(client.code(epoch(1, 0)).await, 0);
    assert_eq!(client.code(epoch(0, 2)).await, 47);
    assert_eq!(client.code(epoch(2, 1)).await, 45);
}

#[tokio::test]
async fn a_producer_id_without_epoch_or_sequence_is_invalid() {
    let client = Client::new(config()).await;
    for (producer_id, epoch, base_sequence) in [(1, -1, 0), (1, 0, -1), (-2, 0, 0)] {
        let producer = ProducerStamp { producer_id, epoch, base_sequence };
        let batch = build_batch(&[record("one")], Codec::None, Some(producer));
        assert_eq!(client.code(batch).await, 87);
    }
}

#[tokio::test]
async fn allocate_ignores_sequences_and_writes_every_copy() {
    let client = Client::with(in_mode(Idempotence::Allocate), config()).await;
    let id = client.server.producer().await;
    for (offset, first) in [(0, 0), (2, 0), (4, 9), (6, 3)] {
        let answer = client.one(stamped(id, first)).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
    assert!(client.server.log().await.is_empty(), "its message ids tell of no producer");
}

#[tokio::test]
async fn a_producer_id_that_nobody_gave_out_leaves_no_state_behind() {
    let client = Client::new(config()).await;
    for offset in [0, 2] {
        let answer = client.one(stamped(0, 0)).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
    assert!(client.server.log().await.is_empty());
    let id = client.server.producer().await;
    assert_eq!(id, 0, "the id that the stranger used");
    assert_eq!(client.one(stamped(id, 0)).await.base_offset, 4, "its first batch is no copy");
    assert_eq!(client.server.sequences(id).await, [0, 1]);
}

#[tokio::test]
async fn an_answer_for_very_many_partitions_is_no_larger_than_their_codes() {
    let client = Client::new(config()).await;
    let entries: Vec<_> = (0..65_535).map(|index| (index % 3, Some(b"no batch".to_vec()))).collect();
    let answers = client.run(request(entries)).await;
    assert_eq!(answers.len(), 65_535);
    assert!(answers.iter().all(|answer| answer.error_code == 87));
    let text = |answer: &PartitionProduceResponse| answer.error_message.as_ref().map_or(0, |text| text.len());
    let words: usize = answers.iter().map(text).sum();
    assert!(words > 0 && words <= settings().error_text_bytes, "{words}");
}

#[tokio::test]
async fn a_batch_in_doubt_is_answered_within_the_bounds_of_the_clients_timeout() {
    tokio::time::pause();
    let client = Client::new(config()).await;
    for (timeout_ms, seconds) in [(0, 1), (-1, 1), (i32::MAX, 2)] {
        client.server.store.plan(Fault::InDoubtLost);
        let begun = tokio::time::Instant::now();
        let request = request(vec![(0, Some(plain_batch()))]).with_timeout_ms(timeout_ms);
        client.run(request).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{timeout_ms}");
        assert!(begun.elapsed() < Duration::from_secs(seconds + 1));
    }
}

#[test]
fn small_compressed_batches_are_light_unless_they_are_zstd() {
    let batch = |codec, bytes: usize| {
        // Bytes that no codec makes shorter.
        let value = (0..bytes).map(|index| (index * index * 7 + index / 3 + index / 251).to_le_bytes()[0]).collect();
        Some(build_batch(&[Record { value: Some(value), ..record("v") }], codec, None))
    };
    assert!(!is_heavy(&request(vec![(0, batch(Codec::None, 100_000)), (1, None), (2, Some(Vec::new()))])));
    assert!(!is_heavy(&request(vec![(0, batch(Codec::Gzip, 500)), (1, batch(Codec::Lz4, 500))])));
    assert!(is_heavy(&request(vec![(0, batch(Codec::Gzip, 1_500)), (1, batch(Codec::Lz4, 1_500))])));
    assert!(is_heavy(&request(vec![(0, None), (1, batch(Codec::Zstd, 1))])));
}
