//! kill -9 of the server under load, again and again: every acknowledged record is there afterwards, once and in order.
//!
//! Each idempotent producer has a partition of its own and shares another one with all the others; it retries the batch that was
//! in flight at the kill with the same sequence numbers, as real clients do. A plain producer gives its batch up instead and goes on
//! with the next one, so that only what was acknowledged counts. `TEST_KILL_CYCLES` sets the number of kills (default 8),
//! `TEST_BINARY` another binary to kill. `TEST_STORE` and `TEST_IGGY` choose the store of the server that is killed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "test code"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{ProducerStamp, Record, build_batch, read_record_set};
use milena_testkit::ChildServer;
#[cfg(feature = "iggy")]
use milena_testkit::DoorChild;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, CreateTopicsResponse, FetchRequest, FetchResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProduceRequest, ProduceResponse, TopicName,
};
use milena_wire::kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

const TOPIC: &str = "crash";
const IDEMPOTENT: i32 = 3;
/// Partition 0 is shared by all idempotent producers, 1..=IDEMPOTENT are their own, the last one is the plain producer's.
const PARTITIONS: i32 = IDEMPOTENT + 2;
const BATCH: u64 = 20;

struct Wire {
    stream: TcpStream,
    correlation: i32,
}

impl Wire {
    fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, correlation: 0 })
    }

    /// Connects again and again until the server is back; gives up after a bounded number of tries.
    fn reconnect(address: &str) -> Self {
        for _ in 0..2_000 {
            if let Ok(wire) = Self::connect(address) {
                return wire;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server at {address} did not come back");
    }

    fn call<Q: Encodable, R: Decodable>(&mut self, key: ApiKey, version: i16, request: &Q) -> std::io::Result<R> {
        self.correlation += 1;
        let frame = milena_wire::encode_request(key, version, self.correlation, "kill9", request).unwrap();
        self.stream.write_all(&frame)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut body)?;
        let (correlation, response) = milena_wire::decode_response(key, version, Bytes::from(body)).unwrap();
        assert_eq!(correlation, self.correlation);
        Ok(response)
    }
}

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

fn records(producer: i32, first: u64) -> Vec<Record> {
    let record = |number| Record {
        timestamp_ms: 1_700_000_000_000,
        value: Some(format!("{producer} {number} {}", "x".repeat(100)).into_bytes()),
        ..Record::default()
    };
    (first..first + BATCH).map(record).collect()
}

fn produce(wire: &mut Wire, partition: i32, batch: &[u8]) -> std::io::Result<i16> {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(Bytes::copy_from_slice(batch)));
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![TopicProduceData::default().with_name(topic()).with_partition_data(vec![data])]);
    let response: ProduceResponse = wire.call(ApiKey::Produce, 9, &request)?;
    Ok(response.responses[0].partition_responses[0].error_code)
}

/// Sends batches to its own and to the shared partition until told to stop; every batch is retried until it is acknowledged.
/// Answers how many records were acknowledged on each of the two.
fn idempotent_producer(address: &str, producer: i32, stop: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    let mut wire = Wire::reconnect(address);
    let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
    let ids: InitProducerIdResponse = loop {
        match wire.call(ApiKey::InitProducerId, 4, &request) {
            Ok(ids) => break ids,
            // The first kill came before this producer did anything.
            Err(_) => wire = Wire::reconnect(address),
        }
    };
    assert_eq!(ids.error_code, 0);
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let stamp = ProducerStamp {
            producer_id: ids.producer_id.0,
            epoch: ids.producer_epoch,
            base_sequence: i32::try_from(next).unwrap(),
        };
        let batch = build_batch(&records(producer, next), Codec::None, Some(stamp));
        for partition in [producer, 0] {
            let mut tries = 0;
            loop {
                tries += 1;
                assert!(tries < 1_000, "producer {producer} never got through");
                match produce(&mut wire, partition, &batch) {
                    Ok(0) => break,
                    Ok(code @ (3 | 5 | 6 | 7)) => {
                        assert!(tries < 900, "code {code} again and again");
                        thread::sleep(Duration::from_millis(10));
                    }
                    Ok(code) => panic!("producer {producer}, partition {partition}, sequence {next}: code {code}"),
                    Err(_) => wire = Wire::reconnect(address),
                }
            }
            acknowledged.fetch_add(BATCH, Ordering::Relaxed);
        }
        next += BATCH;
    }
    next
}

/// Sends batches without a producer id; one whose answer was lost is given up. Answers the first numbers of all acknowledged batches.
fn plain_producer(address: &str, stop: &AtomicBool, acknowledged: &AtomicU64) -> Vec<u64> {
    let mut wire = Wire::reconnect(address);
    let mut landed = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let batch = build_batch(&records(PARTITIONS - 1, next), Codec::None, None);
        match produce(&mut wire, PARTITIONS - 1, &batch) {
            Ok(0) => {
                landed.push(next);
                acknowledged.fetch_add(BATCH, Ordering::Relaxed);
            }
            Ok(code) => assert!([3, 5, 6, 7].contains(&code), "code {code}"),
            Err(_) => wire = Wire::reconnect(address),
        }
        next += BATCH;
    }
    landed
}

/// Reads a partition from the start to its end: (producer, number) of each record, in offset order, offsets checked to be dense.
fn read_all(wire: &mut Wire, partition: i32) -> Vec<(i32, u64)> {
    let mut seen = Vec::new();
    loop {
        let from = i64::try_from(seen.len()).unwrap();
        let wanted = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(from)
            .with_partition_max_bytes(4 << 20);
        let request = FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(0)
            .with_max_bytes(4 << 20)
            .with_topics(vec![FetchTopic::default().with_topic(topic()).with_partitions(vec![wanted])]);
        let response: FetchResponse = wire.call(ApiKey::Fetch, 11, &request).unwrap();
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, 0);
        let records = data.records.clone().unwrap_or_default();
        let records = read_record_set(&records, 64 << 20).unwrap();
        if records.is_empty() {
            assert_eq!(data.high_watermark, from, "the log ends before its high watermark");
            return seen;
        }
        for record in records {
            assert_eq!(record.offset, i64::try_from(seen.len()).unwrap(), "offsets are not dense");
            let value = String::from_utf8(record.value.unwrap()).unwrap();
            let mut words = value.split(' ');
            seen.push((words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap()));
        }
    }
}

fn numbers_of(seen: &[(i32, u64)], producer: i32) -> Vec<u64> {
    seen.iter().filter(|(from, _)| *from == producer).map(|(_, number)| *number).collect()
}

fn binary() -> String {
    std::env::var("TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_milena").to_owned())
}

fn cycles() -> u64 {
    std::env::var("TEST_KILL_CYCLES").map_or(8, |cycles| cycles.parse().unwrap())
}

/// Produces through the server at that address while `kill` kills something and starts it again, that many times, and compares what
/// was acknowledged with what is there.
fn produce_while(address: &str, cycles: u64, mut kill: impl FnMut()) {
    let create = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![
        CreatableTopic::default().with_name(topic()).with_num_partitions(PARTITIONS).with_replication_factor(1),
    ]);
    let created: CreateTopicsResponse = Wire::reconnect(address).call(ApiKey::CreateTopics, 5, &create).unwrap();
    assert_eq!(created.topics[0].error_code, 0);

    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let idempotent: Vec<_> = (1..=IDEMPOTENT)
        .map(|producer| {
            let (address, stop, acknowledged) = (address.to_owned(), Arc::clone(&stop), Arc::clone(&acknowledged));
            thread::spawn(move || idempotent_producer(&address, producer, &stop, &acknowledged))
        })
        .collect();
    let plain = {
        let (address, stop, acknowledged) = (address.to_owned(), Arc::clone(&stop), Arc::clone(&acknowledged));
        thread::spawn(move || plain_producer(&address, &stop, &acknowledged))
    };
    for cycle in 0..cycles {
        // A kill counts only when something was acknowledged since the last one; the moment within a request varies by itself.
        let before = acknowledged.load(Ordering::Relaxed);
        let mut waited = 0;
        while acknowledged.load(Ordering::Relaxed) < before + 20 * BATCH {
            thread::sleep(Duration::from_millis(1));
            waited += 1;
            assert!(waited < 60_000, "no progress before kill {cycle}");
        }
        thread::sleep(Duration::from_micros(cycle * 137 % 5_000));
        kill();
    }
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<u64> = idempotent.into_iter().map(|thread| thread.join().unwrap()).collect();
    compare(address, &sent, &plain.join().unwrap());
    println!("{cycles} kills, {} records acknowledged, none lost or doubled", acknowledged.load(Ordering::Relaxed));
}

/// Compares what is there with how many records each idempotent producer sent, and which batches of the plain one landed.
fn compare(address: &str, sent: &[u64], landed: &[u64]) {
    let mut wire = Wire::reconnect(address);
    let shared = read_all(&mut wire, 0);
    for (producer, sent) in (1..=IDEMPOTENT).zip(sent) {
        let wanted: Vec<u64> = (0..*sent).collect();
        assert_eq!(
            numbers_of(&read_all(&mut wire, producer), producer),
            wanted,
            "own partition of producer {producer}"
        );
        assert_eq!(numbers_of(&shared, producer), wanted, "shared partition, producer {producer}");
    }
    let plain = numbers_of(&read_all(&mut wire, PARTITIONS - 1), PARTITIONS - 1);
    assert!(plain.windows(2).all(|pair| pair[0] < pair[1]), "the plain producer's records are out of order or doubled");
    for first in landed {
        assert!((*first..first + BATCH).all(|number| plain.binary_search(&number).is_ok()), "batch {first} is lost");
    }
}

#[test]
fn every_acknowledged_record_is_there_once_and_in_order_after_kill_9_under_load() {
    let mut server = ChildServer::builder(binary()).alone().start();
    let address = server.bootstrap().to_owned();
    produce_while(&address, cycles(), || {
        server.kill();
        server.restart();
    });
}

#[cfg(feature = "iggy")]
#[test]
fn every_acknowledged_record_is_there_once_and_in_order_after_kill_9_of_the_iggy_server_behind() {
    let mut iggy = DoorChild::start(binary());
    let server = ChildServer::builder(binary()).alone().over(&iggy).start();
    // What is in doubt takes its time, and each of these kills puts something in doubt.
    produce_while(server.bootstrap(), cycles().div_ceil(3), || {
        iggy.kill();
        iggy.restart();
    });
}
