//! What a scrape says of requests, connections, data and the engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "test code"
)]

#[path = "../../server/tests/groups_kit/mod.rs"]
mod groups_kit;
mod kit;

use std::time::{Duration, Instant};

use bytes::Bytes;
use groups_kit::{Member, builder, create, join_request, server, text, topic};
use kit::{Scrape, scrape, until, watch};
use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Durability, TopicSettings};
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, InitProducerIdRequest, JoinGroupRequest, ProduceRequest,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

fn produce(name: &str, records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let data = TopicProduceData::default().with_name(topic(name)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![data])
}

async fn produce_one(client: &mut RawClient, name: &str) -> i16 {
    produce_records(client, name, &[Record { value: Some(b"v".to_vec()), timestamp_ms: 1, ..Record::default() }]).await
}

async fn produce_records(client: &mut RawClient, name: &str, records: &[Record]) -> i16 {
    let batch = build_batch(records, Codec::None, None);
    let answer = client.request(9, &produce(name, Bytes::from(batch))).await;
    answer.responses[0].partition_responses[0].error_code
}

fn fetch(name: &str, offset: i64, wait: Duration) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
        .with_current_leader_epoch(-1);
    let topic = FetchTopic::default().with_topic(topic(name)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(i32::try_from(wait.as_millis()).unwrap())
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
}

fn requests(now: &Scrape, api: &str) -> f64 {
    now.value("milena_requests_total", &[("api", api)])
}

fn errors(now: &Scrape, api: &str, error: &str, class: &str) -> f64 {
    let labels = [("api", api), ("error", error), ("class", class)];
    now.find("milena_request_errors_total", &labels).unwrap_or(0.0)
}

#[tokio::test]
async fn every_api_has_its_requests_and_their_times() {
    let server = server().await;
    let monitor = watch(&server).await;
    let before = scrape(&monitor).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    assert_eq!(produce_one(&mut client, "t").await, 0);
    let now = scrape(&monitor).await;
    assert_eq!(now.count("milena_requests_total"), server.server().broker().apis.len());
    for api in ["CreateTopics", "Produce"] {
        assert_eq!(requests(&now, api) - requests(&before, api), 1.0);
        assert_eq!(now.value("milena_request_duration_seconds_count", &[("api", api)]), 1.0, "{api}");
        assert!(now.value("milena_request_duration_seconds_sum", &[("api", api)]) > 0.0);
    }
    for name in ["milena_produce_batches_total", "milena_produce_records_total"] {
        assert_eq!(now.value(name, &[]), 1.0, "{name}");
    }
    assert!(now.value("milena_bytes_in_total", &[]) > now.value("milena_produce_bytes_total", &[]));
    assert!(now.value("milena_bytes_out_total", &[]) > before.value("milena_bytes_out_total", &[]));
    assert_eq!((now.value("milena_topics", &[]), now.value("milena_partitions", &[])), (1.0, 1.0));
}

/// They are the records that Iggy's own clients cannot read as they are.
#[tokio::test]
async fn records_that_no_plain_message_can_hold_are_counted() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let plain = Record { value: Some(b"v".to_vec()), timestamp_ms: 1, ..Record::default() };
    let without_value = Record { headers: vec![("h".to_owned(), None)], ..plain.clone() };
    let twice = ("h".to_owned(), Some(b"1".to_vec()));
    let repeated = Record { headers: vec![twice.clone(), twice], ..plain.clone() };
    assert_eq!(produce_records(&mut client, "t", &[plain, without_value, repeated]).await, 0);
    let now = scrape(&monitor).await;
    let counted = ["milena_produce_records_total", "milena_produce_enveloped_records_total"];
    assert_eq!(counted.map(|name| now.value(name, &[])), [3.0, 2.0]);
}

/// Sends one record as batch number `sequence` of a producer; answers code and offset.
async fn produce_as(client: &mut RawClient, producer_id: i64, sequence: i32) -> (i16, i64) {
    let stamp = ProducerStamp { producer_id, epoch: 0, base_sequence: sequence };
    let record = Record { value: Some(b"v".to_vec()), timestamp_ms: 1, ..Record::default() };
    let batch = Bytes::from(build_batch(&[record], Codec::None, Some(stamp)));
    let answer = client.request(9, &produce("t", batch)).await;
    let partition = &answer.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

#[tokio::test]
async fn copies_gaps_and_producers_are_counted() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let mut ids = [0; 2];
    for id in &mut ids {
        *id = client.request(4, &InitProducerIdRequest::default().with_transactional_id(None)).await.producer_id.0;
    }
    let known = async || scrape(&monitor).await.value("milena_produce_known_producers", &[]);
    assert_eq!(known().await, 0.0);
    assert_eq!(produce_as(&mut client, ids[0], 0).await, (0, 0));
    assert_eq!(known().await, 1.0);
    assert_eq!(produce_as(&mut client, ids[0], 0).await, (0, 0), "the copy has the offset of the first");
    assert_eq!(produce_as(&mut client, ids[0], 5).await.0, 45);
    assert_eq!(produce_as(&mut client, ids[1], 7).await, (0, 1), "a producer in the middle of its batches");
    let now = scrape(&monitor).await;
    for (name, expected) in [
        ("milena_produce_known_producers", 2.0),
        ("milena_produce_batches_total", 2.0),
        ("milena_produce_duplicates_total", 1.0),
        ("milena_produce_out_of_sequence_total", 1.0),
        ("milena_produce_refused_total", 1.0),
        ("milena_produce_unknown_producers_total", 1.0),
    ] {
        assert_eq!(now.value(name, &[]), expected, "{name}");
    }
}

/// A message whose headers are no headers, as some other tool may store it.
#[tokio::test]
async fn what_consumers_get_is_counted_and_so_is_what_they_cannot_see() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let broker = server.server().broker();
    let at = broker.topics.by_name("t").unwrap().store.partition(0);
    let strange = TestMessage { headers: vec![0xff; 40], ..TestMessage::new(1, b"strange") };
    broker.store.append(&at, batch_of(&[strange, TestMessage::new(2, b"sound")])).await.unwrap();
    broker.topics.create_at("elsewhere", "no kafka name", 1, &TopicSettings::default()).await.unwrap();
    broker.topics.refresh().await.unwrap();
    let answer = client.request(12, &fetch("t", 0, Duration::ZERO).with_session_epoch(0)).await;
    assert_ne!(answer.session_id, 0);
    let bytes = answer.responses[0].partitions[0].records.as_ref().unwrap().len();
    let now = scrape(&monitor).await;
    for (name, expected) in [
        ("milena_fetch_records_total", 2.0),
        ("milena_fetch_bytes_total", bytes as f64),
        ("milena_fetch_unmapped_messages_total", 1.0),
        ("milena_fetch_sessions", 1.0),
        ("milena_topics_hidden", 1.0),
        ("milena_topics", 1.0),
    ] {
        assert_eq!(now.value(name, &[]), expected, "{name}");
    }
}

#[tokio::test]
async fn errors_are_counted_by_api_code_and_class() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    assert_eq!(produce_one(&mut client, "nowhere").await, 3);
    create(&mut client, "t", 1).await;
    let damaged = client.request(9, &produce("t", Bytes::from_static(b"no batch"))).await;
    let code = damaged.responses[0].partition_responses[0].error_code;
    assert_ne!(code, 0);
    client.request(12, &fetch("t", 99, Duration::ZERO)).await;
    client.request(12, &fetch("t", 0, Duration::ZERO).with_session_id(7).with_session_epoch(3)).await;
    let mut member = Member::new(&server).await;
    assert_eq!(member.client.request(4, &join_request("", None)).await.error_code, 79);
    assert_eq!(member.heartbeat().await, 25);
    let now = scrape(&monitor).await;
    assert_eq!(errors(&now, "Produce", "UNKNOWN_TOPIC_OR_PARTITION", "retry"), 1.0);
    assert_eq!(now.total("milena_request_errors_total"), 6.0);
    assert_eq!(errors(&now, "Fetch", "OFFSET_OUT_OF_RANGE", "client"), 1.0);
    assert_eq!(errors(&now, "Fetch", "FETCH_SESSION_ID_NOT_FOUND", "retry"), 1.0);
    assert_eq!(errors(&now, "JoinGroup", "MEMBER_ID_REQUIRED", "client"), 1.0);
    assert_eq!(errors(&now, "Heartbeat", "UNKNOWN_MEMBER_ID", "client"), 1.0);
    assert_eq!(now.value("milena_produce_refused_total", &[]), 2.0);
}

#[tokio::test]
async fn a_fetch_that_waits_is_seen_and_its_sleep_is_no_work() {
    const WAIT: Duration = Duration::from_secs(2);
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let begun = Instant::now();
    client.send(12, &fetch("t", 0, WAIT)).await;
    until(&monitor, "a fetch is parked", |now| now.value("milena_fetches_parked", &[]) == 1.0).await;
    client.receive::<FetchRequest>().await;
    assert!(begun.elapsed() >= WAIT, "it was answered early");
    let now = scrape(&monitor).await;
    assert_eq!((now.value("milena_fetches_parked", &[]), now.value("milena_fetches_parked_total", &[])), (0.0, 1.0));
    let took = now.value("milena_request_duration_seconds_sum", &[("api", "Fetch")]);
    assert!(took < WAIT.as_secs_f64() / 2.0, "{took} s");
}

#[tokio::test]
async fn a_join_that_waits_for_others_is_no_work_either() {
    const DELAY: Duration = Duration::from_secs(2);
    let server = builder().config(|config| config.groups.initial_rebalance_delay = DELAY).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    let begun = Instant::now();
    assert_eq!(client.request::<JoinGroupRequest>(3, &join_request("", None)).await.error_code, 0);
    assert!(begun.elapsed() >= DELAY, "it was answered early");
    let took = scrape(&monitor).await.value("milena_request_duration_seconds_sum", &[("api", "JoinGroup")]);
    assert!(took < DELAY.as_secs_f64() / 2.0, "{took} s");
}

#[tokio::test]
async fn clients_are_counted_by_their_software_while_they_are_connected() {
    let server = server().await;
    let monitor = watch(&server).await;
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("odd \"lib\""))
        .with_client_software_version(text("1.0\n"));
    let mut clients = [server.client().await, server.client().await];
    for client in &mut clients {
        client.request(3, &request).await;
        client.request(3, &request).await;
    }
    let labels = [("name", "odd \"lib\""), ("version", "1.0")];
    assert_eq!(scrape(&monitor).await.value("milena_client_connections", &labels), 2.0);
    drop(clients);
    until(&monitor, "they are gone", |now| now.count("milena_client_connections") == 0).await;
}

#[tokio::test]
async fn connections_are_counted_by_how_they_end() {
    let short = |config: &mut milena_server::ServerConfig| {
        config.limits.max_connections_per_address = Some(2);
        config.limits.idle_timeout = Duration::from_millis(300);
    };
    let server = TestServer::builder().config(short).start().await;
    let monitor = watch(&server).await;
    let closed = |now: &Scrape, reason: &str| now.value("milena_connections_closed_total", &[("reason", reason)]);
    // The first one was to see whether the server is up.
    until(&monitor, "it is gone", |now| closed(now, "by_client") == 1.0).await;
    for (bytes, reason) in [
        (&b"\xff\xff\xff\xff"[..], "protocol_error"),
        (b"\x7f\xff\xff\xff", "frame_too_large"),
        (b"\x00\x00\x00\x20\x00", "within_frame"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        until(&monitor, reason, |now| closed(now, reason) == 1.0).await;
    }
    until(&monitor, "none is open", |now| now.value("milena_connections", &[]) == 0.0).await;
    let kept = [server.client().await, server.client().await];
    until(&monitor, "both are open", |now| now.value("milena_connections", &[]) == 2.0).await;
    let _third = TcpStream::connect(server.address()).await.unwrap();
    let refused = [("limit", "max_connections_per_address")];
    until(&monitor, "the third is refused", |now| now.value("milena_connections_refused_total", &refused) == 1.0).await;
    until(&monitor, "both are idle", |now| closed(now, "idle") == 2.0).await;
    drop(kept);
    assert_eq!(scrape(&monitor).await.value("milena_connections_accepted_total", &[]), 6.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_tells_its_appends_and_flushes() {
    let server = TestServer::builder().in_folder().durability(Durability::Always).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let before = scrape(&monitor).await;
    assert_eq!(produce_one(&mut client, "t").await, 0);
    let now = scrape(&monitor).await;
    let grown = |name: &str| now.value(name, &[]) - before.value(name, &[]);
    assert_eq!((grown("milena_store_appends_total"), grown("milena_store_messages_total")), (1.0, 1.0));
    assert!(grown("milena_store_bytes_total") > 0.0);
    assert!(grown("milena_store_flush_duration_seconds_count") >= 1.0);
    assert_eq!(now.value("milena_store_info", &[("engine", "embedded")]), 1.0);
    assert_eq!(now.value("milena_store_flush_failures_total", &[]), 0.0);
}

#[tokio::test]
async fn a_request_that_closes_its_connection_is_counted_all_the_same() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    // Metadata in a version that nobody has.
    client.send_frame(3, 99, 1, &[0xff, 0xff]).await;
    client.expect_close().await;
    until(&monitor, "it is counted", |now| requests(now, "Metadata") == 1.0).await;
}
