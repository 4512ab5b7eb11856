//! What the guard costs on the requests of the data path.
#![allow(missing_docs, clippy::unwrap_used, reason = "benchmark")]

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, criterion_group, criterion_main};
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{FetchRequest, ProduceRequest, TopicName};
use milena_wire::kafka_protocol::protocol::{Request, StrBytes};
use milena_wire::{decode_body, decode_request};

fn topic() -> TopicName {
    StrBytes::from_static_str("a-topic-of-usual-length").into()
}

fn produce(partitions: i32) -> ProduceRequest {
    let data = |index| PartitionProduceData::default().with_index(index).with_records(Some(vec![1; 1000].into()));
    let topic = TopicProduceData::default().with_name(topic()).with_partition_data((0..partitions).map(data).collect());
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

fn fetch(partitions: i32) -> FetchRequest {
    let of = |index| FetchPartition::default().with_partition(index).with_partition_max_bytes(1_048_576);
    let topic = FetchTopic::default().with_topic(topic()).with_partitions((0..partitions).map(of).collect());
    FetchRequest::default().with_max_bytes(52_428_800).with_max_wait_ms(500).with_topics(vec![topic])
}

fn compare<Q: Request>(criterion: &mut Criterion, name: &str, request: &Q, version: i16) {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).unwrap();
    let body = body.freeze();
    let mut group = criterion.benchmark_group(name);
    group.bench_function("unguarded", |b| {
        b.iter(|| {
            let mut body: Bytes = black_box(&body).clone();
            Q::decode(&mut body, version).unwrap()
        });
    });
    group.bench_function("request", |b| {
        b.iter(|| decode_request::<Q>(black_box(&body).clone(), version).unwrap());
    });
    group.bench_function("body", |b| {
        b.iter(|| decode_body::<Q>(black_box(&body).clone(), version).unwrap());
    });
    group.finish();
}

fn guard(criterion: &mut Criterion) {
    for (version, partitions) in [(7, 1), (9, 1), (9, 100)] {
        let name = format!("produce v{version} x{partitions}");
        compare(criterion, &name, &produce(partitions), version);
    }
    for (version, partitions) in [(11, 1), (12, 1), (12, 100)] {
        let name = format!("fetch v{version} x{partitions}");
        compare(criterion, &name, &fetch(partitions), version);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(std::time::Duration::from_millis(200)).measurement_time(std::time::Duration::from_millis(600)).without_plots();
    targets = guard
}
criterion_main!(benches);
