//! The client against a server over memory, and against things that are no server.

use std::collections::BTreeMap;
use std::time::Duration;

use milena_records::Codec;
use milena_records::client::Record;
use milena_testkit::{ReservedPort, TestServer};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::MetadataRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn client(server: &TestServer) -> Client {
    let bootstrap = Address::parse_list(&server.bootstrap()).unwrap();
    Client::connect(&bootstrap, Settings::default()).await.unwrap()
}

async fn with_topic(server: &TestServer, name: &str, partitions: i32) -> Client {
    let mut client = client(server).await;
    let new = NewTopic { name: name.to_owned(), partitions: Some(partitions), ..NewTopic::default() };
    client.create_topic(&new).await.unwrap();
    client
}

fn record(value: &str, timestamp_ms: i64) -> Record {
    Record { timestamp_ms, value: Some(value.as_bytes().to_vec()), ..Record::default() }
}

async fn produce(client: &mut Client, topic: &str, partition: i32, records: Vec<Record>) -> Vec<Acknowledged> {
    let mut producer = client.producer(topic, ProducerSettings::default()).await.unwrap();
    for record in records {
        producer.send(record, Some(partition)).await.unwrap();
    }
    producer.flush().await.unwrap()
}

/// Reads partitions from their begin to their end.
async fn read_all(client: &mut Client, topic: &str) -> BTreeMap<i32, Vec<Record>> {
    let starts = client.list_offsets(topic, &[], At::Earliest).await.unwrap();
    let positions = starts.iter().map(|(&partition, listed)| (partition, listed.offset.unwrap())).collect();
    let mut fetcher = client.fetcher(topic, positions, FetchSettings::default()).await.unwrap();
    let mut found: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
    while !fetcher.positions().is_empty() {
        for fetched in fetcher.poll().await.unwrap() {
            found.entry(fetched.partition).or_default().extend(fetched.records);
            if fetcher.positions()[&fetched.partition] >= fetched.end {
                fetcher.finish(fetched.partition);
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_listed_grown_and_deleted() {
    let server = TestServer::start().await;
    let mut client = client(&server).await;
    let new = NewTopic {
        name: "orders".to_owned(),
        partitions: Some(2),
        configs: BTreeMap::from([("retention.ms".to_owned(), "1000".to_owned())]),
    };
    let created = client.create_topic(&new).await.unwrap();
    assert_eq!(created.partitions, Some(2));
    let again = client.create_topic(&new).await.unwrap_err();
    assert_eq!(again.code(), Some(ResponseError::TopicAlreadyExists));

    client.grow_topic("orders", 3).await.unwrap();
    let topics = client.topics().await.unwrap();
    assert_eq!(
        topics.iter().map(|topic| (topic.name.as_str(), topic.partitions.len())).collect::<Vec<_>>(),
        [("orders", 3)]
    );
    assert_eq!(Some(topics[0].id), created.id);
    assert_eq!(client.topic("orders").await.unwrap(), &topics[0]);

    let configs = client.topic_configs("orders").await.unwrap();
    let retention = configs.iter().find(|config| config.name == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.is_set), (Some("1000"), true));

    client.delete_topic("orders").await.unwrap();
    assert!(matches!(client.topic("orders").await, Err(ClientError::NoTopic { .. })));
    assert!(matches!(client.delete_topic("orders").await, Err(ClientError::NoTopic { .. })));
    assert!(matches!(client.topic_configs("orders").await, Err(ClientError::NoTopic { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_looked_up_is_not_created() {
    let server = TestServer::start().await;
    let mut client = client(&server).await;
    let error = client.producer("missing", ProducerSettings::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("there is no topic `missing`;"), "{error}");
    assert_eq!(client.topics().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_back_as_they_were_produced_with_every_codec() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 1).await;
    let odd = Record {
        offset: 0,
        timestamp_ms: 1_700_000_000_123,
        key: Some(Vec::new()),
        value: None,
        headers: vec![("a".to_owned(), None), ("a".to_owned(), Some(b"2".to_vec()))],
    };
    let mut expected = Vec::new();
    for codec in Codec::ALL {
        let settings = ProducerSettings { codec, ..ProducerSettings::default() };
        let mut producer = client.producer("t", settings).await.unwrap();
        for record in [odd.clone(), record(&"value ".repeat(50), 5)] {
            expected.push(Record { offset: i64::try_from(expected.len()).unwrap(), ..record.clone() });
            producer.send(record, Some(0)).await.unwrap();
        }
        let first = i64::try_from(expected.len()).unwrap() - 2;
        let acknowledged = producer.flush().await.unwrap();
        assert_eq!(acknowledged, [Acknowledged { partition: 0, base_offset: Some(first), records: 2 }], "{codec:?}");
    }
    assert_eq!(read_all(&mut client, "t").await[&0], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_decide_the_partition_and_full_batches_are_sent() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 4).await;
    let settings = ProducerSettings { batch_bytes: 1000, ..ProducerSettings::default() };
    let mut producer = client.producer("t", settings).await.unwrap();
    let mut sent = 0;
    for number in 0..200 {
        let keyed = Record { key: Some(format!("key {}", number % 10).into_bytes()), ..record("v", number) };
        sent += producer.send(keyed, None).await.unwrap().iter().map(|batch| batch.records).sum::<usize>();
    }
    assert!(sent > 0, "nothing was sent before the end");
    sent += producer.flush().await.unwrap().iter().map(|batch| batch.records).sum::<usize>();
    assert_eq!(sent, 200);
    let found = read_all(&mut client, "t").await;
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 200);
    assert!(found.values().filter(|records| !records.is_empty()).count() > 1, "all keys went to one partition");
    for number in 0..10 {
        let key = Some(format!("key {number}").into_bytes());
        let homes = found.values().filter(|records| records.iter().any(|record| record.key == key)).count();
        assert_eq!(homes, 1, "key {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_goes_on_after_the_server_was_restarted() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 1).await;
    let mut producer = client.producer("t", ProducerSettings::default()).await.unwrap();
    producer.send(record("before", 1), None).await.unwrap();
    producer.flush().await.unwrap();
    let server = server.restart().await;
    producer.send(record("after", 2), None).await.unwrap();
    let acknowledged = producer.flush().await.unwrap();
    assert_eq!(acknowledged, [Acknowledged { partition: 0, base_offset: Some(1), records: 1 }]);
    let values: Vec<_> =
        read_all(&mut client, "t").await[&0].iter().map(|record| record.value.clone().unwrap()).collect();
    assert_eq!(values, [b"before".to_vec(), b"after".to_vec()]);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_zero_waits_for_nothing_and_the_connection_stays_in_step() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 1).await;
    let settings = ProducerSettings { acks: 0, ..ProducerSettings::default() };
    let mut producer = client.producer("t", settings).await.unwrap();
    producer.send(record("v", 1), None).await.unwrap();
    assert_eq!(producer.flush().await.unwrap(), [Acknowledged { partition: 0, base_offset: None, records: 1 }]);
    // Requests of one connection are handled in order.
    assert_eq!(read_all(&mut client, "t").await[&0].len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_listed_by_position_and_by_time() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 2).await;
    produce(&mut client, "t", 1, vec![record("a", 1_000), record("b", 3_000), record("c", 2_000)]).await;
    let mut offset = async |at| client.list_offsets("t", &[1], at).await.unwrap()[&1];
    assert_eq!(offset(At::Earliest).await.offset, Some(0));
    assert_eq!(offset(At::Latest).await.offset, Some(3));
    assert_eq!(offset(At::Time(1_500)).await, Listed { offset: Some(1), timestamp_ms: Some(3_000) });
    assert_eq!(offset(At::Time(9_000)).await, Listed { offset: None, timestamp_ms: None });
    assert_eq!(offset(At::MaxTimestamp).await.offset, Some(1));
    let all = client.list_offsets("t", &[], At::Latest).await.unwrap();
    assert_eq!(all.values().map(|listed| listed.offset).collect::<Vec<_>>(), [Some(0), Some(3)]);
    let error = client.list_offsets("t", &[2], At::Latest).await.unwrap_err();
    assert_eq!(error.to_string(), "topic `t` has the partitions 0 to 1, and no partition 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_outside_of_the_log_is_told_with_its_bounds() {
    let server = TestServer::start().await;
    let mut client = with_topic(&server, "t", 1).await;
    produce(&mut client, "t", 0, vec![record("a", 1), record("b", 2)]).await;
    let mut fetcher = client.fetcher("t", BTreeMap::from([(0, 77)]), FetchSettings::default()).await.unwrap();
    let error = fetcher.poll().await.unwrap_err();
    assert!(matches!(error, ClientError::OutOfRange { offset: 77, start: 0, end: 2, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_waits_for_records_that_come() {
    let server = TestServer::start().await;
    let mut reader = with_topic(&server, "t", 1).await;
    let mut writer = client(&server).await;
    let settings = FetchSettings { max_wait: Duration::from_secs(20), ..FetchSettings::default() };
    let mut fetcher = reader.fetcher("t", BTreeMap::from([(0, 0)]), settings).await.unwrap();
    let (fetched, _) = tokio::join!(fetcher.poll(), produce(&mut writer, "t", 0, vec![record("late", 1)]));
    assert_eq!(fetched.unwrap()[0].records.len(), 1);
    assert_eq!(fetcher.positions()[&0], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetcher_goes_on_after_the_server_was_restarted() {
    let server = TestServer::start().await;
    let mut reader = with_topic(&server, "t", 1).await;
    produce(&mut reader, "t", 0, vec![record("a", 1)]).await;
    let mut fetcher = reader.fetcher("t", BTreeMap::from([(0, 0)]), FetchSettings::default()).await.unwrap();
    assert_eq!(fetcher.poll().await.unwrap()[0].records.len(), 1);
    let server = server.restart().await;
    let mut writer = client(&server).await;
    produce(&mut writer, "t", 0, vec![record("b", 2)]).await;
    assert_eq!(fetcher.poll().await.unwrap()[0].records[0].offset, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_broker_can_be_asked_anything() {
    let server = TestServer::start().await;
    let mut client = client(&server).await;
    let brokers: Vec<_> = client.brokers().map(|broker| (broker.id, broker.address.to_string())).collect();
    assert_eq!(brokers, [(0, server.bootstrap())]);
    let metadata = client.at(0, &MetadataRequest::default()).await.unwrap();
    assert_eq!(metadata.cluster_id.as_deref(), client.cluster_id());
    assert!(client.version_at::<MetadataRequest>(0).await.unwrap() >= 12);
}

#[tokio::test]
async fn nobody_listening_is_a_sentence_that_asks_whether_a_server_runs() {
    let port = ReservedPort::take();
    let address = Address { host: "127.0.0.1".to_owned(), port: port.number() };
    let error = Client::connect(std::slice::from_ref(&address), Settings::default()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot connect to {address}: ")), "{error}");
    assert!(error.to_string().ends_with("is a server running, and is this its address?"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_address_is_tried_when_the_first_does_not_answer() {
    let server = TestServer::start().await;
    let nobody = ReservedPort::take();
    let list = format!("127.0.0.1:{},{}", nobody.number(), server.bootstrap());
    let mut client = Client::connect(&Address::parse_list(&list).unwrap(), Settings::default()).await.unwrap();
    assert_eq!(client.topics().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advertised_address_that_does_not_work_is_told_as_that() {
    let nobody = ReservedPort::take();
    let port = nobody.number();
    let advertise = |config: &mut milena_server::ServerConfig| {
        config.listeners[0].advertised_host = Some("127.0.0.1".to_owned());
        config.listeners[0].advertised_port = Some(port);
    };
    let server = TestServer::builder().config(advertise).start().await;
    let mut client = client(&server).await;
    let error = client.controller(&MetadataRequest::default()).await.unwrap_err();
    assert!(matches!(&error, ClientError::Advertised { address, .. } if address.port == port), "{error}");
}

/// A listener that hands its first connection to `serve`.
async fn pretender<F: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> Address {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    Address { host: "127.0.0.1".to_owned(), port }
}

async fn refused_by(address: Address, settings: Settings) -> ClientError {
    Client::connect(&[address], settings).await.unwrap_err()
}

#[tokio::test]
async fn a_service_that_is_not_kafka_is_told_as_that() {
    let address = pretender(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    })
    .await;
    let error = refused_by(address, Settings::default()).await;
    assert!(matches!(error, ClientError::NotKafka { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_closes_is_told_with_what_it_was_asked_for() {
    let address = pretender(|stream| async move { drop(stream) }).await;
    let error = refused_by(address, Settings::default()).await;
    assert!(matches!(error, ClientError::Closed { api: "ApiVersions", .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_silent_is_given_up() {
    let address = pretender(|mut stream| async move { while stream.read_u8().await.is_ok() {} }).await;
    let settings = Settings { request_timeout: Duration::from_millis(50), ..Settings::default() };
    let error = refused_by(address, settings).await;
    assert!(matches!(error, ClientError::TimedOut { api: "ApiVersions", .. }), "{error}");
}

#[tokio::test]
async fn an_old_server_is_asked_again_in_version_zero() {
    async fn request(stream: &mut TcpStream) -> (i16, [u8; 4]) {
        let mut frame = vec![0; stream.read_u32().await.unwrap() as usize];
        stream.read_exact(&mut frame).await.unwrap();
        (i16::from_be_bytes([frame[2], frame[3]]), *frame[4..].first_chunk().unwrap())
    }
    let (asked, answer) = tokio::sync::oneshot::channel();
    let address = pretender(|mut stream| async move {
        let (first, id) = request(&mut stream).await;
        stream.write_all(&[&[0, 0, 0, 16][..], &id, &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 0]].concat()).await.unwrap();
        let (second, id) = request(&mut stream).await;
        stream.write_all(&[&[0, 0, 0, 16][..], &id, &[0, 0, 0, 0, 0, 1, 0, 18, 0, 0, 0, 0]].concat()).await.unwrap();
        asked.send((first, second)).unwrap();
    })
    .await;
    let error = refused_by(address, Settings::default()).await;
    assert_eq!(answer.await.unwrap(), (3, 0));
    assert!(matches!(error, ClientError::Unsupported { api: "Metadata", .. }), "{error}");
}
