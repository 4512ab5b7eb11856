//! The mapping core on one thread: check (with CRC), map, encode (with CRC), buffers reused.
//!
//! Each group holds a `memcpy` of the same bytes, so that a busy machine can be told from a slow change: compare the
//! ratio, not the figure.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "bench code"
)]

mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{BATCH_BYTES, Buffers, SHAPES, batch, encode, map, rules};
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use milena_records::Codec;

fn run(group: &mut BenchmarkGroup<'_, WallTime>, batch: &[u8], parts: bool) {
    let rules = rules();
    let mut buffers = Buffers::default();
    let count = map(batch, &rules, &mut buffers);
    group.throughput(Throughput::ElementsAndBytes { elements: count.into(), bytes: batch.len() as u64 });
    let mut copy = vec![0; batch.len()];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| copy.copy_from_slice(black_box(batch)));
    });
    group.bench_function("check_map_encode", |bencher| {
        bencher.iter(|| {
            let count = map(black_box(batch), &rules, &mut buffers);
            encode(count, &mut buffers, Codec::None)
        });
    });
    if parts {
        group.bench_function("check_map", |bencher| bencher.iter(|| map(black_box(batch), &rules, &mut buffers)));
        group.bench_function("encode", |bencher| bencher.iter(|| encode(count, &mut buffers, Codec::None)));
    }
}

fn tune(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800)).sample_size(20);
}

fn large_batches(criterion: &mut Criterion) {
    for shape in &SHAPES {
        let mut group = criterion.benchmark_group(format!("1MB/{}", shape.name));
        tune(&mut group);
        let one = batch(shape, 1, Codec::None).len() - 61;
        run(&mut group, &batch(shape, BATCH_BYTES / one, Codec::None), true);
        group.finish();
    }
}

fn small_batches(criterion: &mut Criterion) {
    for count in [1, 10] {
        let mut group = criterion.benchmark_group(format!("{count}_records/value_100_key_8"));
        tune(&mut group);
        run(&mut group, &batch(&SHAPES[2], count, Codec::None), false);
        group.finish();
    }
}

fn codecs(criterion: &mut Criterion) {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut group = criterion.benchmark_group(format!("100KB/value_100/{codec:?}"));
        tune(&mut group);
        let compressed = batch(&SHAPES[1], 1000, codec);
        let rules = rules();
        let mut buffers = Buffers::default();
        let count = map(&compressed, &rules, &mut buffers);
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function("check_map", |bencher| {
            bencher.iter(|| map(black_box(&compressed), &rules, &mut buffers));
        });
        group.bench_function("encode", |bencher| bencher.iter(|| encode(count, &mut buffers, codec)));
        group.finish();
    }
}

criterion_group!(benches, large_batches, small_batches, codecs);
criterion_main!(benches);
