//! The fastest of many rounds, beside the fastest `memcpy` and the fastest checksum of the same bytes: the figure that a busy machine disturbs
//! least, where means and medians tell how many others were running.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "bench code"
)]

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{BATCH_BYTES, Buffers, SHAPES, batch, encode, map, rules};
use milena_records::Codec;

/// Seconds that the fastest of many rounds takes.
fn fastest<T>(rounds: usize, mut round: impl FnMut() -> T) -> f64 {
    let time = |_| {
        let start = Instant::now();
        black_box(round());
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::MAX, f64::min)
}

fn main() {
    let rules = rules();
    for shape in &SHAPES {
        let one = batch(shape, 1, Codec::None).len() - 61;
        let batch = batch(shape, BATCH_BYTES / one, Codec::None);
        let mut buffers = Buffers::default();
        let count = map(&batch, &rules, &mut buffers);
        let mut target = vec![0; batch.len()];
        let copied = fastest(400, || black_box(&mut target).copy_from_slice(black_box(&batch)));
        // The checksum of a batch, which Produce and Fetch each need once.
        let checked = fastest(400, || crc_fast::crc32_iscsi(black_box(&batch)));
        let mapped = fastest(400, || map(black_box(&batch), &rules, &mut buffers));
        let encoded = fastest(400, || encode(count, &mut buffers, Codec::None));
        let both = fastest(400, || {
            let count = map(black_box(&batch), &rules, &mut buffers);
            encode(count, &mut buffers, Codec::None)
        });
        let (records, gigabytes) = (f64::from(count), 1e-9 * f64::from(u32::try_from(batch.len()).unwrap()));
        println!(
            "{:26} {:5.2} GB/s {:5.1} M records/s, {:.3} of memcpy ({:.1} GB/s), {:.3} of CRC-32C ({:.1} GB/s); check+map {:.1} ns, encode {:.1} ns",
            shape.name,
            gigabytes / both,
            records / both / 1e6,
            copied / both,
            gigabytes / copied,
            checked / both,
            gigabytes / checked,
            mapped / records * 1e9,
            encoded / records * 1e9,
        );
    }
    for count in [1u32, 10] {
        let batch = batch(&SHAPES[2], usize::try_from(count).unwrap(), Codec::None);
        let mut buffers = Buffers::default();
        let mapped = fastest(2_000, || map(black_box(&batch), &rules, &mut buffers));
        let encoded = fastest(2_000, || encode(count, &mut buffers, Codec::None));
        println!("batch of {count:2}: check+map {:.0} ns, encode {:.0} ns", mapped * 1e9, encoded * 1e9);
    }
}
