//! Every enforced topic config acts as soon as it was altered, and no longer when it was deleted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{Record, build_batch, read_record_set};
use milena_server::topics::configs::value::Check;
use milena_server::topics::configs::{Class, ConfigKey, Kind, TOPIC_KEYS};
use milena_store::{Bounds, PartitionRef, Store};
use milena_store_embedded::EmbeddedConfig;
use milena_testkit::TestServer;
use milena_testkit::raw::RawClient;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    CreateTopicsRequest, DescribeConfigsRequest, FetchRequest, IncrementalAlterConfigsRequest, ProduceRequest,
    TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

/// How often the store looks after its segments.
const MAINTENANCE: Duration = Duration::from_millis(20);

/// Longest wait for what the store does in its own time.
const SOON: Duration = Duration::from_secs(20);

fn orders() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A server over an embedded store that looks after its segments all the time, with the topic `orders`.
struct Orders {
    server: TestServer,
    client: RawClient,
    store: Arc<dyn Store>,
    at: PartitionRef,
    _folder: tempfile::TempDir,
}

impl Orders {
    async fn new() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let config = EmbeddedConfig {
            dir: Some(folder.path().to_owned()),
            maintenance_every: Some(MAINTENANCE),
            ..EmbeddedConfig::default()
        };
        let opened = tokio::task::spawn_blocking(move || milena_store_embedded::open(&config));
        let store = opened.await.unwrap().unwrap();
        let server = TestServer::builder().store(Arc::clone(&store)).start().await;
        let mut client = server.client().await;
        let new = CreatableTopic::default().with_name(orders()).with_num_partitions(1).with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(20_000);
        assert_eq!(client.request(7, &request).await.topics[0].error_code, 0);
        let at = store.topic("kafka", "orders").await.unwrap().unwrap().topic.partition(0);
        Self { server, client, store, at, _folder: folder }
    }

    async fn edit(&mut self, name: &'static str, op: i8, value: Option<&'static str>) {
        let config = AlterableConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_config_operation(op)
            .with_value(value.map(StrBytes::from_static_str));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_static_str("orders"))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        assert_eq!(self.client.request(1, &request).await.responses[0].error_code, 0, "{name}");
    }

    /// Value and source of a config, as DescribeConfigs shows them.
    async fn shown(&mut self, name: &'static str) -> (String, i8) {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_static_str("orders"))
            .with_configuration_keys(Some(vec![StrBytes::from_static_str(name)]));
        let answer = self.client.request(4, &DescribeConfigsRequest::default().with_resources(vec![resource])).await;
        let config = &answer.results[0].configs[0];
        (config.value.as_ref().unwrap().to_string(), config.config_source)
    }

    async fn set(&mut self, name: &'static str, value: &'static str) {
        self.edit(name, 0, Some(value)).await;
    }

    async fn delete(&mut self, name: &'static str) {
        self.edit(name, 1, None).await;
    }

    /// Error code of one record.
    async fn produce(&mut self, record: Record) -> i16 {
        let batch = Bytes::from(build_batch(&[record], Codec::None, None));
        let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch));
        let data = TopicProduceData::default().with_name(orders()).with_partition_data(vec![partition]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![data]);
        self.client.request(9, &request).await.responses[0].partition_responses[0].error_code
    }

    async fn fetch(&mut self, offset: i64) -> Bytes {
        let partition = FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
        let wanted = FetchTopic::default().with_topic(orders()).with_partitions(vec![partition]);
        let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![wanted]);
        self.client.request(12, &request).await.responses[0].partitions[0].records.clone().unwrap()
    }

    async fn bounds(&self) -> Bounds {
        self.store.bounds(&self.at).await.unwrap()
    }

    /// Waits until the first offset is this one.
    async fn starts_at(&self, start: u64) {
        let waited = async {
            while self.bounds().await.start != start {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(SOON, waited).await.is_ok(), "{:?}, not {start}", self.bounds().await);
    }

    fn flushes(&self) -> u64 {
        self.store.metrics().unwrap().flush_time.snapshot().counts.iter().sum()
    }
}

fn of_bytes(bytes: usize) -> Record {
    Record { timestamp_ms: now_ms(), key: Some("k".into()), value: Some(vec![7; bytes]), ..Record::default() }
}

fn at_time(timestamp_ms: i64) -> Record {
    Record { timestamp_ms, ..of_bytes(1) }
}

/// A valid value that is not the default; `None` when there is no other.
fn another(key: &ConfigKey) -> Option<&'static str> {
    Some(match (key.kind, key.check) {
        (_, Check::NotTrue(_)) => return None,
        (_, Check::OneOf(words) | Check::SubsetOf(words)) => words.iter().find(|word| **word != key.default)?,
        (_, Check::ThrottledReplicas) => "*",
        (Kind::Boolean, _) if key.default == "true" => "false",
        (Kind::Boolean, _) => "true",
        (Kind::Double, _) => "0.25",
        (Kind::Int, _) if key.name.ends_with(".level") => "5",
        _ => "2000000",
    })
}

/// Kept ones too: tools set them and read them back.
#[tokio::test]
async fn every_config_is_set_shown_and_put_back() {
    let mut orders = Orders::new().await;
    for key in TOPIC_KEYS {
        let before = orders.shown(key.name).await;
        assert_ne!(before.1, 1, "{} is set", key.name);
        let Some(value) = another(key) else { continue };
        assert_ne!(before.0, value, "{}", key.name);
        orders.set(key.name, value).await;
        assert_eq!(orders.shown(key.name).await, (value.to_owned(), 1), "{}", key.name);
        orders.delete(key.name).await;
        assert_eq!(orders.shown(key.name).await, before, "{}", key.name);
    }
}

/// That it acts is shown by a test of its own, which names it.
#[test]
fn every_enforced_config_has_a_test_in_this_file() {
    let tests = include_str!("alter_configs.rs");
    let enforced = TOPIC_KEYS.iter().filter(|key| key.class == Class::Enforced);
    let untested: Vec<&str> =
        enforced.map(|key| key.name).filter(|name| !tests.contains(&format!("\"{name}\""))).collect();
    assert!(untested.is_empty(), "{untested:?}");
}

#[tokio::test]
async fn max_message_bytes_bounds_the_next_batch() {
    let mut orders = Orders::new().await;
    orders.set("max.message.bytes", "1000").await;
    assert_eq!(orders.produce(of_bytes(2_000)).await, 10);
    assert_eq!(orders.produce(of_bytes(500)).await, 0);
    orders.delete("max.message.bytes").await;
    assert_eq!(orders.produce(of_bytes(2_000)).await, 0);
    orders.server.shutdown().await;
}

#[tokio::test]
async fn timestamps_outside_of_what_was_set_are_refused() {
    let mut orders = Orders::new().await;
    let hour = 3_600_000;
    orders.set("message.timestamp.before.max.ms", "60000").await;
    assert_eq!(orders.produce(at_time(now_ms() - hour)).await, 32);
    assert_eq!(orders.produce(at_time(now_ms() + hour)).await, 0);
    orders.delete("message.timestamp.before.max.ms").await;
    orders.set("message.timestamp.after.max.ms", "60000").await;
    assert_eq!(orders.produce(at_time(now_ms() + hour)).await, 32);
    assert_eq!(orders.produce(at_time(now_ms() - hour)).await, 0);
}

#[tokio::test]
async fn the_timestamp_type_decides_which_time_consumers_see() {
    let mut orders = Orders::new().await;
    assert_eq!(orders.produce(at_time(1_000)).await, 0);
    orders.set("message.timestamp.type", "LogAppendTime").await;
    let records = read_record_set(&orders.fetch(0).await, 1 << 20).unwrap();
    assert!(records[0].timestamp_ms > 1_000_000_000_000, "{}", records[0].timestamp_ms);
    orders.delete("message.timestamp.type").await;
    assert_eq!(read_record_set(&orders.fetch(0).await, 1 << 20).unwrap()[0].timestamp_ms, 1_000);
}

#[tokio::test]
async fn a_compacted_topic_refuses_records_without_a_key() {
    let mut orders = Orders::new().await;
    let keyless = || Record { key: None, ..of_bytes(1) };
    assert_eq!(orders.produce(keyless()).await, 0);
    orders.set("cleanup.policy", "compact").await;
    assert_eq!(orders.produce(keyless()).await, 87);
    assert_eq!(orders.produce(of_bytes(1)).await, 0);
    orders.set("cleanup.policy", "delete").await;
    assert_eq!(orders.produce(keyless()).await, 0);
}

#[tokio::test]
async fn a_topic_with_a_codec_is_fetched_in_that_codec_also_what_was_stored_before() {
    let mut orders = Orders::new().await;
    let value = vec![7; 4_000];
    assert_eq!(orders.produce(of_bytes(4_000)).await, 0);
    for (codec, number) in [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("producer", 0), ("uncompressed", 0)] {
        orders.set("compression.type", codec).await;
        let fetched = orders.fetch(0).await;
        assert_eq!(fetched[22] & 0b111, number, "{codec}");
        assert_eq!(fetched.len() < 4_000, number != 0, "{codec}: {} bytes", fetched.len());
        let records = read_record_set(&fetched, 1 << 20).unwrap();
        assert_eq!(records[0].value.as_deref(), Some(&value[..]), "{codec}");
    }
}

#[tokio::test]
async fn a_topic_is_fetched_at_the_level_that_its_codec_was_given() {
    let mut orders = Orders::new().await;
    let lines: String = (0..3_000).map(|n| format!("{} user-{} /api/{}\n", n * 7_919, n % 17, n % 5)).collect();
    let record = Record { value: Some(lines.into_bytes()), ..of_bytes(1) };
    assert_eq!(orders.produce(record.clone()).await, 0);
    for (codec, name, low, high) in [
        ("gzip", "compression.gzip.level", "1", "9"),
        ("lz4", "compression.lz4.level", "1", "17"),
        ("zstd", "compression.zstd.level", "-100", "22"),
    ] {
        orders.set("compression.type", codec).await;
        let mut sizes = Vec::new();
        for level in [low, high] {
            orders.set(name, level).await;
            let fetched = orders.fetch(0).await;
            assert_eq!(read_record_set(&fetched, 1 << 20).unwrap()[0].value, record.value, "{codec} {level}");
            sizes.push(fetched.len());
        }
        assert!(sizes[1] * 20 < sizes[0] * 19, "{codec}: {sizes:?}");
    }
}

#[tokio::test]
async fn segments_are_sealed_at_the_size_that_was_set() {
    let mut orders = Orders::new().await;
    orders.set("segment.bytes", "1048576").await;
    for _ in 0..3 {
        assert_eq!(orders.produce(of_bytes(700_000)).await, 0);
    }
    assert!(!orders.store.sealed_segments(&orders.at, 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn old_segments_go_when_a_size_is_set_but_not_from_a_topic_that_keeps_all() {
    let mut orders = Orders::new().await;
    orders.set("segment.bytes", "1048576").await;
    orders.set("cleanup.policy", "compact").await;
    orders.set("retention.bytes", "1").await;
    for _ in 0..4 {
        assert_eq!(orders.produce(of_bytes(1_000_000)).await, 0);
    }
    // A few looks at the segments, which would take them away.
    tokio::time::sleep(MAINTENANCE * 10).await;
    assert_eq!(orders.bounds().await.start, 0);
    orders.set("cleanup.policy", "compact,delete").await;
    orders.starts_at(3).await;
}

#[tokio::test]
async fn segments_are_sealed_and_removed_at_the_ages_that_were_set() {
    let mut orders = Orders::new().await;
    assert_eq!(orders.produce(of_bytes(10)).await, 0);
    orders.set("segment.ms", "1").await;
    let sealed = async {
        while orders.store.sealed_segments(&orders.at, 9).await.unwrap().is_empty() {
            // Nothing new begins without a message, so a sealed segment shows when the next one is there.
            assert_eq!(orders.produce(of_bytes(10)).await, 0);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        orders
    };
    let mut orders = tokio::time::timeout(SOON, sealed).await.expect("a sealed segment");
    orders.set("retention.ms", "1").await;
    let end = orders.bounds().await.end;
    orders.starts_at(end).await;
}

#[tokio::test]
async fn messages_are_flushed_as_often_as_was_set() {
    let mut orders = Orders::new().await;
    orders.set("flush.messages", "1").await;
    for round in 1..4 {
        let before = orders.flushes();
        assert_eq!(orders.produce(of_bytes(10)).await, 0);
        let flushed = async {
            while orders.flushes() == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(SOON, flushed).await.is_ok(), "round {round}");
    }
}

#[tokio::test]
async fn messages_are_flushed_at_the_age_that_was_set() {
    let mut orders = Orders::new().await;
    orders.set("flush.ms", "5").await;
    let before = orders.flushes();
    assert_eq!(orders.produce(of_bytes(10)).await, 0);
    let flushed = async {
        while orders.flushes() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, flushed).await.is_ok());
}
