//! What Produce and Fetch do beside the mapping of records, which `cargo bench -p milena-records` measures: a batch prepared
//! for the store, stored frames walked through, an answer of several partitions read and put together. One thread, an
//! engine in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "bench code"
)]

use std::collections::BTreeMap;
use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_server::fetch::reader::resolve;
use milena_server::fetch::response::{Head, write_frame};
use milena_server::fetch::serve::{Patience, Source, serve};
use milena_server::fetch::want::{PartitionKey, Position, TopicKey, Want};
use milena_server::metrics::FetchMetrics;
use milena_server::produce::Entry;
use milena_server::topics::Topic;
use milena_server::{Broker, ServerConfig};
use milena_store::frame::Frames;
use milena_store::testing::MemoryStore;
use tokio::runtime::Runtime;
use tokio::time::Instant;

const BATCH_BYTES: usize = 64 << 10;
const PARTITIONS: i32 = 8;
const BATCHES: usize = 8;
const VALUES: [usize; 2] = [1024, 100];

fn batch(value: usize) -> Bytes {
    let record = Record { timestamp_ms: 1_700_000_000_000, value: Some(vec![b'v'; value]), ..Record::default() };
    build_batch(&vec![record; BATCH_BYTES / (value + 8)], Codec::None, None).into()
}

fn world() -> (Runtime, Arc<Broker>, Arc<Topic>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (broker, topic) = runtime.block_on(async {
        let broker = Broker::open(ServerConfig::default(), Arc::new(MemoryStore::new())).await.unwrap();
        let partitions = PARTITIONS.unsigned_abs();
        broker.topics.create("orders", partitions, BTreeMap::new()).await.unwrap();
        let topic = broker.topics.by_name("orders").unwrap();
        (broker, topic)
    });
    (runtime, broker, topic)
}

fn prepare(criterion: &mut Criterion) {
    let (_runtime, broker, topic) = world();
    let mut group = criterion.benchmark_group("produce_prepare");
    for value in VALUES {
        let entries = [Entry { topic: Arc::clone(&topic), partition: 0, records: batch(value) }];
        group.throughput(Throughput::Bytes(entries[0].records.len() as u64));
        group.bench_function(value.to_string(), |bencher| {
            bencher.iter(|| broker.produce.prepare(black_box(&entries), true));
        });
    }
}

fn walk(criterion: &mut Criterion) {
    let (_runtime, broker, topic) = world();
    let mut group = criterion.benchmark_group("frame_walk");
    for value in VALUES {
        let entry = Entry { topic: Arc::clone(&topic), partition: 0, records: batch(value) };
        let prepared = broker.produce.prepare(&[entry], true).pop().unwrap().unwrap();
        let frames = prepared.batch.frames;
        group.throughput(Throughput::Elements(prepared.batch.count.into()));
        group.bench_function(value.to_string(), |bencher| {
            bencher.iter(|| Frames::new(black_box(&frames)).map(|frame| frame.payload.len()).sum::<usize>());
        });
    }
}

fn answer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fetch_answer");
    for value in VALUES {
        let (runtime, broker, topic) = world();
        for partition in (0..PARTITIONS.unsigned_abs()).flat_map(|partition| [partition; BATCHES]) {
            let entry = Entry { topic: Arc::clone(&topic), partition, records: batch(value) };
            let prepared = broker.produce.prepare(&[entry], true).pop().unwrap().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            runtime.block_on(broker.produce.append(&topic.store.partition(partition), prepared, deadline)).unwrap();
        }
        let want = |partition| Want {
            key: PartitionKey { topic: TopicKey::Name(Arc::clone(&topic.name)), partition },
            position: Position { offset: 0, max_bytes: 1 << 20, leader_epoch: -1, fetched_epoch: -1 },
        };
        let wants: Vec<Want> = (0..PARTITIONS).map(want).collect();
        let metrics = FetchMetrics::default();
        let frame = || runtime.block_on(fetched(&broker, &metrics, &wants));
        group.throughput(Throughput::Bytes(frame().iter().map(|piece| piece.len() as u64).sum()));
        group.bench_function(value.to_string(), |bencher| bencher.iter(frame));
    }
}

async fn fetched(broker: &Broker, metrics: &FetchMetrics, wants: &[Want]) -> Vec<Bytes> {
    let source = Source {
        store: broker.store.as_ref(),
        first: 0,
        purgatory: &broker.fetches.purgatory,
        buffers: &broker.fetches.buffers,
        room: &broker.fetches.room,
        compressors: &broker.fetches.compressors,
        metrics,
        threads_can_block: false,
    };
    let patience = Patience { wait: Duration::ZERO, bytes_min: 1, bytes_max: 4 << 20, ends_early: true };
    let targets = resolve(&broker.topics, wants);
    let pass = serve(&source, wants, &targets, patience, pending()).await;
    let head = Head { version: 12, correlation_id: 1, error_code: 0, session_id: 0, read_committed: false };
    let rows: Vec<_> = wants.iter().zip(&pass.answers).collect();
    write_frame(&head, &rows, &pass.arena.freeze()).unwrap()
}

fn quick() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(20)
}

criterion_group! { name = benches; config = quick(); targets = prepare, walk, answer }
criterion_main!(benches);
