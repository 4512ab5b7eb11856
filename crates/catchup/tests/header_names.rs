//! A record with a header whose name is not UTF-8, which Kafka's brokers take, and over which rust-rdkafka panics. No client of
//! librdkafka's in Rust can produce one, and Milena refuses it, so it goes as bytes into librdkafka's mock cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use milena_catchup::{Lag, Lane};
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{ProduceRequest, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;
use rdkafka::message::{Headers, Message};
use support::mock::{GROUP, TOPIC, cluster};
use support::{Watched, commit, committed, patient, produce};

/// Where the record's batch has the byte that is none of UTF-8 afterwards.
const MARK: &[u8] = b"na?me";

/// A batch of one record with two headers, the first of them with such a name.
fn batch(value: &str) -> Vec<u8> {
    let named = |name: &[u8], value: &[u8]| (String::from_utf8(name.to_vec()).unwrap(), Some(value.to_vec()));
    let headers = vec![named(MARK, b"one"), named(b"plain", b"two")];
    let record = Record { timestamp_ms: 1_700_000_000_000, value: Some(value.into()), headers, ..Record::default() };
    let mut batch = build_batch(&[record], Codec::None, None);
    let at = batch.windows(MARK.len()).position(|bytes| bytes == MARK).unwrap();
    batch[at + 2] = 0xff;
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

async fn produce_raw(bootstrap: &str, value: &str) {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch(value).into()));
    let name = TopicName(StrBytes::from_static_str(TOPIC));
    let data = TopicProduceData::default().with_name(name).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
    let answer = RawClient::connect(bootstrap).await.request(7, &request).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

async fn goes_on(fork_when: Lag) {
    let (_mock, bootstrap) = cluster(1);
    produce(&bootstrap, TOPIC, 0, 0..20);
    produce_raw(&bootstrap, "20").await;
    produce(&bootstrap, TOPIC, 0, 21..40);
    commit(&bootstrap, GROUP, TOPIC, 0, 0, "");
    let builder = Watched::with(patient(&bootstrap, GROUP)).fork_when(fork_when);
    let mut consumer = Watched::start(builder, &[TOPIC]);
    for offset in 0..40 {
        let delivery = consumer.next().await;
        assert_eq!(delivery.record().offset(), offset);
        assert_eq!(delivery.lane(), if fork_when == Lag::never() { Lane::Live } else { Lane::Backfill });
        let headers = delivery.record().headers();
        assert_eq!(headers.map_or(0, Headers::count), if offset == 20 { 2 } else { 0 });
        if offset == 20 {
            let headers = headers.unwrap();
            assert_eq!(headers.get(1).value, Some(&b"two"[..]));
            assert!(
                catch_unwind(AssertUnwindSafe(|| headers.get(0).key.len())).is_err(),
                "its name is UTF-8 after all"
            );
        }
        consumer.ack(delivery);
    }
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_header_name_that_is_not_utf8_is_delivered_by_either_lane_and_those_behind_it_too() {
    goes_on(Lag::records(10)).await;
    goes_on(Lag::never()).await;
}
