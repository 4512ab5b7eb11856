//! What clients and users tripped over elsewhere, from one end of the wire to the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{Record, build_batch, read_record_set};
use milena_testkit::TestServer;
use milena_testkit::raw::RawClient;
use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    CreateTopicsRequest, DescribeConfigsRequest, FetchRequest, InitProducerIdRequest, ListOffsetsRequest,
    MetadataRequest, ProduceRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str("orders"))
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

async fn create(client: &mut RawClient, configs: &[(&'static str, &'static str)]) {
    let configs = configs
        .iter()
        .map(|&(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))));
    let new = CreatableTopic::default()
        .with_name(topic())
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(5_000);
    assert_eq!(client.request(7, &request).await.topics[0].error_code, 0);
}

/// Error code and base offset.
async fn produce(client: &mut RawClient, records: &[Record]) -> (i16, i64) {
    let batch = Bytes::from(build_batch(records, Codec::None, None));
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let data = TopicProduceData::default().with_name(topic()).with_partition_data(vec![partition]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![data]);
    let answer = client.request(9, &request).await.responses[0].partition_responses[0].clone();
    (answer.error_code, answer.base_offset)
}

async fn fetch(client: &mut RawClient) -> Vec<Record> {
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default().with_topic(topic()).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![wanted]);
    let answer = client.request(12, &request).await;
    read_record_set(answer.responses[0].partitions[0].records.as_ref().unwrap(), 1 << 20).unwrap()
}

#[tokio::test]
async fn a_record_without_a_time_gets_the_servers_and_never_a_negative_one() {
    // The engine with a clock of its own: that in memory is set by tests.
    let server = TestServer::builder().in_folder().start().await;
    let mut client = server.client().await;
    create(&mut client, &[]).await;
    let untimed = Record { timestamp_ms: -1, value: Some(b"v".to_vec()), ..Record::default() };
    let before = now_ms();
    assert_eq!(produce(&mut client, &[untimed.clone(), untimed]).await, (0, 0));
    for record in fetch(&mut client).await {
        assert!((before..=now_ms()).contains(&record.timestamp_ms), "{}", record.timestamp_ms);
    }
}

#[tokio::test]
async fn every_odd_record_survives_a_produce_a_restart_and_a_fetch() {
    type Part = Option<Vec<u8>>;
    type Shape = (i64, Part, Part, Vec<(String, Part)>);
    let server = TestServer::builder().in_folder().start().await;
    let mut client = server.client().await;
    create(&mut client, &[]).await;
    let some = |text: &str| Some(text.as_bytes().to_vec());
    let header = |name: &str, value: Option<Vec<u8>>| (name.to_owned(), value);
    let now = now_ms();
    let shapes: Vec<Shape> = vec![
        (now, None, some("value"), vec![]),
        (now, some(""), some(""), vec![]),
        (now, some("key"), None, vec![]),
        (now, None, None, vec![]),
        (now, some("k"), some("v"), vec![header("z", some("1")), header("a", some("2")), header("z", some("3"))]),
        (now, some("k"), some("v"), vec![header("null", None), header("empty", some("")), header("", some("x"))]),
        (now, Some(vec![1; 255]), some("v"), vec![header("h", Some(vec![2; 255]))]),
        (now, Some(vec![1; 256]), some("v"), vec![header("h", Some(vec![2; 256]))]),
        (now, None, some("v"), vec![header(&"n".repeat(300), some("x")), header("big", Some(vec![3; 120_000]))]),
        (0, None, some("the epoch itself"), vec![]),
        (1, None, some("long ago"), vec![]),
        (now + 86_400_000, None, some("tomorrow"), vec![]),
    ];
    let records: Vec<Record> = (0..)
        .zip(shapes)
        .map(|(offset, (timestamp_ms, key, value, headers))| Record { offset, timestamp_ms, key, value, headers })
        .collect();
    assert_eq!(produce(&mut client, &records).await, (0, 0));
    assert_eq!(fetch(&mut client).await, records);
    let server = server.restart().await;
    assert_eq!(fetch(&mut server.client().await).await, records);
}

#[tokio::test]
async fn a_changelog_topic_of_kafka_streams_is_created_shown_and_written() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let configs = [
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "CreateTime"),
        ("segment.bytes", "52428800"),
        ("retention.ms", "-1"),
    ];
    create(&mut client, &configs).await;
    let resource = DescribeConfigsResource::default().with_resource_type(2).with_resource_name(topic().0);
    let shown = client.request(4, &DescribeConfigsRequest::default().with_resources(vec![resource])).await;
    for (name, value) in configs {
        let shown = shown.results[0].configs.iter().find(|config| config.name.as_str() == name).unwrap();
        assert_eq!(shown.value.as_deref(), Some(value), "{name}");
    }
    let keyed = Record { timestamp_ms: 1, key: Some(b"k".to_vec()), value: Some(b"v".to_vec()), ..Record::default() };
    let tombstone = Record { value: None, offset: 1, ..keyed.clone() };
    assert_eq!(produce(&mut client, &[keyed.clone(), tombstone.clone()]).await, (0, 0));
    assert_eq!(produce(&mut client, &[Record { key: None, ..keyed.clone() }]).await, (87, -1));
    assert_eq!(fetch(&mut client).await, [keyed, tombstone]);
}

#[tokio::test]
async fn the_earliest_offset_of_a_log_that_lost_its_beginning_is_not_0() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    create(&mut client, &[]).await;
    for timestamp_ms in 1..=5 {
        produce(&mut client, &[Record { timestamp_ms, value: Some(b"v".to_vec()), ..Record::default() }]).await;
    }
    let broker = server.server().broker();
    let at = broker.topics.by_name("orders").unwrap().store.partition(0);
    broker.store.trim(&at, 3).await.unwrap();
    let partitions = [-2, -4, 0].map(|timestamp| ListOffsetsPartition::default().with_timestamp(timestamp));
    let mut offsets = Vec::new();
    for partition in partitions {
        let wanted = ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let answer = client.request(8, &ListOffsetsRequest::default().with_topics(vec![wanted])).await;
        offsets.push(answer.topics[0].partitions[0].offset);
    }
    assert_eq!(offsets, [3, 3, 3]);
}

#[tokio::test]
async fn no_id_of_a_producer_is_given_out_twice_over_restarts() {
    let mut server = TestServer::builder().in_folder().start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        for _ in 0..3 {
            let answer = client.request(4, &InitProducerIdRequest::default().with_transactional_id(None)).await;
            assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
            ids.push(answer.producer_id.0);
        }
        server = server.restart().await;
    }
    let given = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), given);
}

/// Bytes that look random and are the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Bodies that are wrong in many ways, the first of them good for some version of some key.
fn bad_bodies(noise: &mut Noise) -> Vec<Vec<u8>> {
    let mut bodies = vec![
        vec![],
        vec![0],
        vec![0; 40],
        vec![0xff; 4],
        vec![0xff; 40],
        vec![0x7f, 0xff, 0xff, 0xff],
        [0xff, 0xff, 0xff, 0xff, 0x0f].repeat(8),
        [0x7f, 0xff, 0xff, 0xff].repeat(10),
        vec![0x80; 40],
    ];
    bodies.extend((1..8).map(|n| (0..n * 7).map(|_| noise.next().to_le_bytes()[0]).collect()));
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn no_bytes_under_any_key_and_version_hurt_the_server_or_another_client() {
    let server = TestServer::start().await;
    let mut innocent = server.client().await;
    create(&mut innocent, &[]).await;
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    for key in -1..=80 {
        let api = milena_server::dispatch::find(milena_server::dispatch::APIS, key);
        let (lowest, highest) = api.map_or((0, 0), |api| api.advertised);
        for version in lowest - 1..=highest + 1 {
            for body in bad_bodies(&mut noise) {
                let mut client = server.client().await;
                let is_flexible = api.is_some_and(|api| api.key.request_header_version(version) >= 2);
                let tagged_fields = if is_flexible { &[0][..] } else { &[] };
                client.send_frame(key, version, 1, &[tagged_fields, &body].concat()).await;
                drop(client);
            }
        }
        let asked = MetadataRequestTopic::default().with_name(Some(topic()));
        let answer = innocent.request(12, &MetadataRequest::default().with_topics(Some(vec![asked]))).await;
        assert_eq!(answer.topics[0].error_code, 0, "key {key}");
    }
    let record = Record { timestamp_ms: 1, value: Some(b"v".to_vec()), ..Record::default() };
    assert_eq!(produce(&mut innocent, std::slice::from_ref(&record)).await, (0, 0));
    assert_eq!(fetch(&mut innocent).await, [record]);
    let connections = || server.server().broker().lifecycle.connections();
    let left = async {
        while connections() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), left).await.is_ok(), "{} are left", connections());
}
