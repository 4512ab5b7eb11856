//! The product through librdkafka: the binary runs as a child process, an unmodified client talks to it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use milena_testkit::ChildServer;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::metadata::MetadataTopic;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> ChildServer {
    ChildServer::start(env!("CARGO_BIN_EXE_milena"))
}

fn config(server: &ChildServer) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.bootstrap()).set("broker.address.family", "v4");
    config
}

fn producer(server: &ChildServer, settings: &[(&str, &str)]) -> FutureProducer {
    let mut config = config(server);
    config.set("message.timeout.ms", "20000");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config.create().unwrap()
}

fn consumer(server: &ChildServer, topic: &str, partition: i32, from: Offset) -> BaseConsumer {
    let consumer: BaseConsumer = config(server)
        .set("group.id", "not-joined")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "500")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, partition, from).unwrap();
    consumer.assign(&assignment).unwrap();
    consumer
}

fn read(consumer: &BaseConsumer, count: usize) -> Vec<OwnedMessage> {
    let deadline = Instant::now() + PATIENCE;
    let mut messages = Vec::new();
    while messages.len() < count {
        assert!(Instant::now() < deadline, "only {} of {count} messages arrived", messages.len());
        if let Some(message) = consumer.poll(Duration::from_millis(200)) {
            messages.push(message.unwrap().detach());
        }
    }
    messages
}

async fn create(server: &ChildServer, topic: &str, partitions: i32) {
    let admin: AdminClient<DefaultClientContext> = config(server).create().unwrap();
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let answers = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

async fn send(producer: &FutureProducer, topic: &str, partition: i32, payload: &[u8]) -> Result<i64, KafkaError> {
    let record = FutureRecord::<(), [u8]>::to(topic).partition(partition).payload(payload);
    producer.send(record, PATIENCE).await.map(|delivery| delivery.offset).map_err(|(error, _)| error)
}

/// Produces `count` compressible records at once, so that they travel in batches, and reads them back.
async fn produce_and_read_back(server: &ChildServer, topic: &str, settings: &[(&str, &str)], count: usize) {
    create(server, topic, 1).await;
    let mut with_linger = vec![("linger.ms", "50")];
    with_linger.extend_from_slice(settings);
    let producer = producer(server, &with_linger);
    let payload = |index: usize| format!("{index:06} {}", "compressible ".repeat(20));
    let sends = (0..count).map(|index| {
        let producer = producer.clone();
        let topic = topic.to_owned();
        async move { send(&producer, &topic, 0, payload(index).as_bytes()).await }
    });
    let offsets = futures_util::future::join_all(sends).await;
    for (index, offset) in offsets.into_iter().enumerate() {
        assert_eq!(offset.unwrap(), i64::try_from(index).unwrap());
    }
    let messages = read(&consumer(server, topic, 0, Offset::Beginning), count);
    for (index, message) in messages.iter().enumerate() {
        assert_eq!(message.offset(), i64::try_from(index).unwrap());
        assert_eq!(message.payload().unwrap(), payload(index).as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_codec_is_accepted_and_read_back() {
    let server = server();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        produce_and_read_back(&server, &format!("codec-{codec}"), &[("compression.type", codec)], 500).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_producer_works_untouched() {
    let server = server();
    produce_and_read_back(&server, "idempotent", &[("enable.idempotence", "true")], 2_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_one_and_all_answer_offsets() {
    let server = server();
    for acks in ["1", "all"] {
        produce_and_read_back(&server, &format!("acks-{acks}"), &[("acks", acks)], 100).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_zero_stores_and_keeps_the_connection_in_step() {
    let server = server();
    create(&server, "acks-0", 1).await;
    let producer = producer(&server, &[("acks", "0")]);
    for index in 0..50 {
        send(&producer, "acks-0", 0, format!("{index}").as_bytes()).await.unwrap();
    }
    let messages = read(&consumer(&server, "acks-0", 0, Offset::Beginning), 50);
    assert_eq!(messages[49].payload().unwrap(), b"49");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_message_passes_and_one_over_the_limit_is_refused_by_code_10() {
    let server = server();
    create(&server, "large", 1).await;
    let producer = producer(&server, &[("message.max.bytes", "4000000")]);
    let large = vec![7_u8; 1_000_000];
    assert_eq!(send(&producer, "large", 0, &large).await.unwrap(), 0);
    let too_large = vec![7_u8; 1_100_000];
    let refused = send(&producer, "large", 0, &too_large).await.unwrap_err();
    assert_eq!(refused.rdkafka_error_code(), Some(Code::MessageSizeTooLarge));
    let messages = read(&consumer(&server, "large", 0, Offset::Beginning), 1);
    assert_eq!(messages[0].payload().unwrap(), large);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_partitions_are_written_and_read_by_one_consumer() {
    let server = server();
    let partitions = 64;
    create(&server, "many", partitions).await;
    let producer = producer(&server, &[]);
    let sends = (0..partitions * 10).map(|index| {
        let producer = producer.clone();
        async move { send(&producer, "many", index % partitions, format!("{index}").as_bytes()).await.unwrap() }
    });
    futures_util::future::join_all(sends).await;
    let consumer: BaseConsumer =
        config(&server).set("group.id", "g").set("enable.auto.commit", "false").create().unwrap();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset("many", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let mut per_partition: HashMap<i32, Vec<i64>> = HashMap::new();
    for message in read(&consumer, usize::try_from(partitions).unwrap() * 10) {
        per_partition.entry(message.partition()).or_default().push(message.offset());
    }
    assert_eq!(per_partition.len(), 64);
    assert!(per_partition.values().all(|offsets| offsets.iter().copied().eq(0..10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_headers_tombstones_and_timestamps_come_back() {
    let server = server();
    create(&server, "shapes", 1).await;
    let producer = producer(&server, &[]);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "repeated", value: Some("first") })
        .insert(Header { key: "other", value: None::<&str> })
        .insert(Header { key: "repeated", value: Some("second") });
    let record = FutureRecord::to("shapes")
        .partition(0)
        .key("the key")
        .payload("value")
        .headers(headers)
        .timestamp(1_700_000_000_123);
    producer.send(record, PATIENCE).await.unwrap();
    let tombstone = FutureRecord::<str, str>::to("shapes").partition(0).key("the key");
    producer.send(tombstone, PATIENCE).await.unwrap();
    let empty = FutureRecord::<str, str>::to("shapes").partition(0).key("").payload("");
    producer.send(empty, PATIENCE).await.unwrap();

    let messages = read(&consumer(&server, "shapes", 0, Offset::Beginning), 3);
    assert_eq!(messages[0].key(), Some(b"the key".as_slice()));
    assert_eq!(messages[0].timestamp().to_millis(), Some(1_700_000_000_123));
    let headers = messages[0].headers().unwrap();
    let seen: Vec<_> = headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect();
    assert_eq!(
        seen,
        [
            ("repeated".to_owned(), Some(b"first".to_vec())),
            ("other".to_owned(), None),
            ("repeated".to_owned(), Some(b"second".to_vec())),
        ]
    );
    assert_eq!((messages[1].key(), messages[1].payload()), (Some(b"the key".as_slice()), None));
    // librdkafka reads a zero-length key or value back as an empty slice.
    assert_eq!((messages[2].key(), messages[2].payload()), (Some(b"".as_slice()), Some(b"".as_slice())));
}

#[tokio::test(flavor = "multi_thread")]
async fn seek_by_time_finds_the_first_record_at_or_after_it() {
    let server = server();
    create(&server, "times", 1).await;
    let producer = producer(&server, &[]);
    // Out of order on purpose: the first offset whose time is at or after the target counts, not the nearest time.
    for time in [1_000_000, 3_000_000, 2_000_000, 4_000_000] {
        let record = FutureRecord::<(), str>::to("times").partition(0).payload("x").timestamp(time);
        producer.send(record, PATIENCE).await.unwrap();
    }
    let consumer = consumer(&server, "times", 0, Offset::Beginning);
    let at = |time: i64| {
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset("times", 0, Offset::Offset(time)).unwrap();
        let found = consumer.offsets_for_times(wanted, PATIENCE).unwrap();
        found.elements()[0].offset()
    };
    assert_eq!(at(500_000), Offset::Offset(0));
    assert_eq!(at(1_500_000), Offset::Offset(1));
    assert_eq!(at(3_000_001), Offset::Offset(3));
    assert_eq!(at(5_000_000), Offset::End);
    assert_eq!(consumer.fetch_watermarks("times", 0, PATIENCE).unwrap(), (0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_consumer_gets_a_new_record_at_once() {
    let server = server();
    create(&server, "tail", 1).await;
    let producer = producer(&server, &[("linger.ms", "0")]);
    send(&producer, "tail", 0, b"before").await.unwrap();
    let consumer: BaseConsumer = config(&server)
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "10000")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("tail", 0, Offset::Beginning).unwrap();
    consumer.assign(&assignment).unwrap();
    assert_eq!(read(&consumer, 1)[0].payload(), Some(b"before".as_slice()));
    let sent = Instant::now();
    send(&producer, "tail", 0, b"after").await.unwrap();
    assert_eq!(read(&consumer, 1)[0].payload(), Some(b"after".as_slice()));
    assert!(sent.elapsed() < Duration::from_secs(5), "the append did not wake the parked fetch");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_outside_the_log_is_reported_so_that_the_reset_policy_works() {
    let server = server();
    create(&server, "reset", 1).await;
    let producer = producer(&server, &[]);
    send(&producer, "reset", 0, b"only").await.unwrap();
    let consumer: BaseConsumer = config(&server)
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("reset", 0, Offset::Offset(1_000)).unwrap();
    consumer.assign(&assignment).unwrap();
    assert_eq!(read(&consumer, 1)[0].offset(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_create_describe_grow_and_delete() {
    let server = server();
    let admin: AdminClient<DefaultClientContext> = config(&server).create().unwrap();
    let options = AdminOptions::new();
    let topic = NewTopic::new("admin", 2, TopicReplication::Fixed(1))
        .set("retention.ms", "3600000")
        .set("cleanup.policy", "compact");
    assert!(admin.create_topics([&topic], &options).await.unwrap()[0].is_ok());
    let again = admin.create_topics([&topic], &options).await.unwrap();
    assert_eq!(again[0], Err(("admin".to_owned(), Code::TopicAlreadyExists)));
    let bad = NewTopic::new("bad", 1, TopicReplication::Fixed(1)).set("no.such.config", "1");
    let refused = admin.create_topics([&bad], &options).await.unwrap();
    assert_eq!(refused[0], Err(("bad".to_owned(), Code::InvalidConfig)));

    let described = admin.describe_configs([&ResourceSpecifier::Topic("admin")], &options).await.unwrap();
    let resource = described[0].as_ref().unwrap();
    let value = |name: &str| resource.get(name).and_then(|entry| entry.value.clone());
    assert_eq!(value("retention.ms").as_deref(), Some("3600000"));
    assert_eq!(value("cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(value("max.message.bytes").as_deref(), Some("1048588"));
    let broker = admin.describe_configs([&ResourceSpecifier::Broker(0)], &options).await.unwrap();
    assert!(broker[0].as_ref().unwrap().get("default.replication.factor").is_some());

    let grown = admin.create_partitions([&NewPartitions::new("admin", 5)], &options).await.unwrap();
    assert!(grown[0].is_ok());
    let shrunk = admin.create_partitions([&NewPartitions::new("admin", 3)], &options).await.unwrap();
    assert_eq!(shrunk[0], Err(("admin".to_owned(), Code::InvalidPartitions)));
    let consumer: BaseConsumer = config(&server).create().unwrap();
    let metadata = consumer.fetch_metadata(Some("admin"), PATIENCE).unwrap();
    assert_eq!(metadata.topics()[0].partitions().len(), 5);
    assert!(metadata.topics()[0].partitions().iter().all(|partition| partition.leader() == 0));
    let all = consumer.fetch_metadata(None, PATIENCE).unwrap();
    assert_eq!(all.topics().iter().map(MetadataTopic::name).collect::<Vec<_>>(), ["admin"]);

    assert!(admin.delete_topics(&["admin"], &options).await.unwrap()[0].is_ok());
    let gone = admin.delete_topics(&["admin"], &options).await.unwrap();
    assert_eq!(gone[0], Err(("admin".to_owned(), RDKafkaErrorCode::UnknownTopicOrPartition)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_by_the_first_produce_to_it() {
    let server = server();
    let producer = producer(&server, &[]);
    let record = FutureRecord::<(), str>::to("made-on-demand").payload("x");
    producer.send(record, PATIENCE).await.unwrap();
    assert_eq!(read(&consumer(&server, "made-on-demand", 0, Offset::Beginning), 1).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_kill_and_restart_and_the_producer_goes_on() {
    let mut server = server();
    create(&server, "durable", 1).await;
    let producer = producer(&server, &[("enable.idempotence", "true")]);
    for index in 0..20 {
        send(&producer, "durable", 0, format!("{index}").as_bytes()).await.unwrap();
    }
    server.kill();
    server.restart();
    for index in 20..40 {
        send(&producer, "durable", 0, format!("{index}").as_bytes()).await.unwrap();
    }
    let messages = read(&consumer(&server, "durable", 0, Offset::Beginning), 40);
    for (index, message) in messages.iter().enumerate() {
        assert_eq!(message.payload().unwrap(), format!("{index}").as_bytes());
    }
}
