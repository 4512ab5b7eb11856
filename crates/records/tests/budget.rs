//! Decompression stays within its budget, in memory and in work.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::{limits, rules};
use milena_records::client::{Record, build_batch};
use milena_records::compress::compress;
use milena_records::{Budget, Codec, MessageIds, Refusal, Scratch, check_batch, map_batch};
use proptest::prelude::*;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// A batch of one record of `len` equal bytes.
fn uniform(len: usize, codec: Codec) -> Vec<u8> {
    build_batch(&[Record { value: Some(vec![b'x'; len]), ..Record::default() }], codec, None)
}

/// A batch whose compressed part is `payload`.
fn around(payload: &[u8], codec: Codec) -> Vec<u8> {
    let mut batch = uniform(1, Codec::None);
    batch.truncate(61);
    batch.extend_from_slice(payload);
    batch[21..23].copy_from_slice(&codec.id().to_be_bytes());
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn map(batch: &[u8], budget: &mut Budget, scratch: &mut Scratch) -> Result<Vec<u8>, Refusal> {
    let checked = check_batch(batch, &limits()).unwrap();
    let mut out = Vec::new();
    map_batch(&checked, &rules(None), MessageIds::Plain { seed: 1 }, budget, scratch, &mut out)?;
    Ok(out)
}

fn is_too_large(result: &Result<Vec<u8>, Refusal>) -> bool {
    matches!(result, Err(Refusal::TooLarge { .. }))
}

fn is_damaged(result: &Result<Vec<u8>, Refusal>) -> bool {
    matches!(result, Err(Refusal::InvalidRecord { .. }))
}

/// Bytes behind the header of a batch of this record, before compression.
fn plain_len(len: usize) -> usize {
    uniform(len, Codec::None).len() - 61
}

#[test]
fn a_batch_may_fill_the_budget_and_not_pass_it() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for len in [1000, 70_000, 300_000] {
            let batch = uniform(len, codec);
            let mut scratch = Scratch::default();
            let mut budget = Budget::new(plain_len(len));
            assert!(map(&batch, &mut budget, &mut scratch).is_ok(), "{codec:?} {len}");
            assert_eq!(budget.left, 0);
            let mut budget = Budget::new(plain_len(len) - 1);
            assert!(is_too_large(&map(&batch, &mut budget, &mut scratch)), "{codec:?} {len}");
            assert_eq!(budget.left, budget.total);
        }
    }
}

#[test]
fn a_bomb_is_refused_within_the_memory_of_the_budget() {
    let total = 1 << 18;
    for codec in CODECS {
        let mut scratch = Scratch::default();
        let bomb = uniform(6 << 20, codec);
        assert!(is_too_large(&map(&bomb, &mut Budget::new(total), &mut scratch)), "{codec:?}");
        // Output is kept up to the budget and one block.
        assert!(scratch.plain.capacity() <= 2 * total + (256 << 10), "{codec:?} {}", scratch.plain.capacity());
    }
}

#[test]
fn what_earlier_batches_spent_is_told_from_what_never_fits() {
    for codec in CODECS {
        let (half, bomb) = (uniform(600_000, codec), uniform(2_000_000, codec));
        let mut scratch = Scratch::default();
        let mut budget = Budget::new(1_000_000);
        assert!(map(&half, &mut budget, &mut scratch).is_ok());
        let left = budget.left;
        assert_eq!(map(&half, &mut budget, &mut scratch), Err(Refusal::BudgetSpent), "{codec:?}");
        assert!(is_too_large(&map(&bomb, &mut budget, &mut scratch)), "{codec:?}");
        assert_eq!(budget.left, left);
        assert!(map(&uniform(300_000, codec), &mut budget, &mut scratch).is_ok(), "{codec:?}");
        assert!(map(&half, &mut Budget::new(1_000_000), &mut scratch).is_ok());
    }
}

#[test]
fn many_bombs_in_one_request_cost_no_more_work_than_three() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let bomb = uniform(2 << 20, codec);
        let mut scratch = Scratch::default();
        let mut budget = Budget::new(1 << 20);
        assert!(is_too_large(&map(&bomb, &mut budget, &mut scratch)));
        assert!(is_too_large(&map(&bomb, &mut budget, &mut scratch)));
        let _ = map(&bomb, &mut budget, &mut scratch);
        // Further ones are hardly begun: they shall come again, in a request of their own.
        for _ in 0..100 {
            assert_eq!(map(&bomb, &mut budget, &mut scratch), Err(Refusal::BudgetSpent), "{codec:?}");
        }
    }
}

#[test]
fn records_cost_64_bytes_of_the_budget_each() {
    let records: Vec<_> = (0..100).map(|_| Record { value: Some(vec![1]), ..Record::default() }).collect();
    for codec in CODECS {
        let batch = build_batch(&records, codec, None);
        let mut scratch = Scratch::default();
        assert!(map(&batch, &mut Budget::new(6400), &mut scratch).is_ok());
        assert!(is_too_large(&map(&batch, &mut Budget::new(6399), &mut scratch)));
    }
}

/// An lz4 frame of blocks that hold nothing, or a byte.
fn lz4_blocks(count: usize, block: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0b0110_0000, 0x70, 0];
    for _ in 0..count {
        frame.extend_from_slice(&u32::try_from(block.len()).unwrap().to_le_bytes());
        frame.extend_from_slice(block);
    }
    frame.extend_from_slice(&[0; 4]);
    frame
}

#[test]
fn a_flood_of_tiny_parts_is_refused_quickly() {
    let empty_gzip = compress(Codec::Gzip, b"").unwrap();
    let empty_zstd = compress(Codec::Zstd, b"").unwrap();
    let mut xerial = compress(Codec::Snappy, b"").unwrap();
    xerial.extend([0, 0, 0, 1, 0].repeat(200_000));
    let mut empty_deflate = empty_gzip[..10].to_vec();
    // Stored blocks of no bytes.
    empty_deflate.extend([0, 0, 0, 0xff, 0xff].repeat(200_000));
    let floods = [
        (Codec::Gzip, empty_gzip.repeat(20_000)),
        (Codec::Gzip, empty_deflate),
        (Codec::Zstd, empty_zstd.repeat(100_000)),
        (Codec::Snappy, xerial),
        (Codec::Lz4, lz4_blocks(200_000, &[0x10, b'x'])),
        (Codec::Lz4, lz4_blocks(0, &[]).repeat(90_000)),
    ];
    for (codec, flood) in floods {
        let started = Instant::now();
        let mut scratch = Scratch::default();
        let result = map(&around(&flood, codec), &mut Budget::new(1 << 20), &mut scratch);
        assert!(is_too_large(&result) || is_damaged(&result), "{codec:?} {result:?}");
        assert!(scratch.plain.capacity() <= 8 << 20, "{codec:?}");
        // Far above what it takes; the peers took seconds.
        assert!(started.elapsed() < Duration::from_secs(2), "{codec:?}");
    }
}

#[test]
fn sizes_that_are_stated_and_wrong_are_refused_before_anything_is_reserved() {
    // snappy: a varint of 2^32-1 bytes.
    let snappy = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let mut lz4 = vec![0x04, 0x22, 0x4d, 0x18, 0b0110_1000, 0x70];
    lz4.extend_from_slice(&u64::MAX.to_le_bytes());
    lz4.extend_from_slice(&[0; 5]);
    for (codec, payload) in [(Codec::Snappy, &snappy[..]), (Codec::Lz4, &lz4)] {
        let mut scratch = Scratch::default();
        let result = map(&around(payload, codec), &mut Budget::new(64 << 20), &mut scratch);
        assert!(is_too_large(&result) || is_damaged(&result));
        assert_eq!(scratch.plain.capacity(), 0);
    }
}

/// The one record of [`uniform`] as it lies behind the batch header.
fn body(len: usize) -> Vec<u8> {
    uniform(len, Codec::None)[61..].to_vec()
}

#[test]
fn raw_snappy_is_read_like_the_framed_one() {
    let raw = snap::raw::Encoder::new().compress_vec(&body(100_000)).unwrap();
    assert!(map(&around(&raw, Codec::Snappy), &mut Budget::new(1 << 20), &mut Scratch::default()).is_ok());
}

#[test]
fn gzip_members_and_zstd_frames_and_lz4_frames_are_joined() {
    let body = body(100_000);
    let (front, back) = body.split_at(40_000);
    for codec in [Codec::Gzip, Codec::Zstd, Codec::Lz4] {
        let joined = [compress(codec, front).unwrap(), compress(codec, back).unwrap()].concat();
        let result = map(&around(&joined, codec), &mut Budget::new(1 << 20), &mut Scratch::default());
        assert!(result.is_ok(), "{codec:?} {result:?}");
    }
}

#[test]
fn gzip_headers_may_carry_every_field() {
    let mut encoder = flate2::GzBuilder::new()
        .extra(vec![1, 2, 3])
        .filename("name")
        .comment("comment")
        .write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&body(5_000)).unwrap();
    let payload = encoder.finish().unwrap();
    assert!(map(&around(&payload, Codec::Gzip), &mut Budget::new(1 << 20), &mut Scratch::default()).is_ok());
}

#[test]
fn lz4_blocks_may_refer_to_earlier_ones_and_carry_every_checksum() {
    let text: Vec<u8> = (0..300_000u32).flat_map(|n| (n % 5_000).to_le_bytes()).collect();
    let record = Record { value: Some(text), ..Record::default() };
    let body = build_batch(&[record], Codec::None, None)[61..].to_vec();
    for linked in [lz4_flex::frame::BlockMode::Linked, lz4_flex::frame::BlockMode::Independent] {
        let info = lz4_flex::frame::FrameInfo::new()
            .block_mode(linked)
            .block_size(lz4_flex::frame::BlockSize::Max64KB)
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(body.len() as u64));
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&body).unwrap();
        let payload = encoder.finish().unwrap();
        let batch = around(&payload, Codec::Lz4);
        assert!(map(&batch, &mut Budget::new(2 << 20), &mut Scratch::default()).is_ok());
        // With a budget that it passes it is read to its end without being kept.
        let mut budget = Budget::new(2 << 20);
        budget.left = 1 << 20;
        assert_eq!(map(&batch, &mut budget, &mut Scratch::default()), Err(Refusal::BudgetSpent));
    }
}

#[test]
fn large_blocks_that_hardly_compress_are_read_with_every_codec() {
    // Seven bits of noise a byte: every codec compresses it, and zstd to blocks that are nearly as large as their output.
    let mut noise = 1u32;
    let bytes = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(noise >> 25).unwrap()
    });
    let value: Vec<u8> = bytes.take(3 << 20).collect();
    let batch = |codec| build_batch(&[Record { value: Some(value.clone()), ..Record::default() }], codec, None);
    let plain = map(&batch(Codec::None), &mut Budget::new(4 << 20), &mut Scratch::default()).unwrap();
    for codec in CODECS {
        let mapped = map(&batch(codec), &mut Budget::new(4 << 20), &mut Scratch::default());
        assert!(mapped.as_ref() == Ok(&plain), "{codec:?} {:?}", mapped.map(|frames| frames.len()));
    }
}

#[test]
fn a_zstd_window_above_the_limit_is_refused() {
    // A frame header with a window descriptor of 2^28 bytes, then one stored block.
    let frame = |exponent: u8| [&[0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3][..], &[0x09, 0, 0, b'x']].concat();
    let map = |frame: &[u8]| map(&around(frame, Codec::Zstd), &mut Budget::new(1 << 20), &mut Scratch::default());
    // Both fail in the end, since one byte is no record; the first not for its compression.
    let Err(Refusal::InvalidRecord { reason, .. }) = map(&frame(17)) else { panic!() };
    assert!(!reason.contains("damaged"));
    let Err(Refusal::InvalidRecord { reason, .. }) = map(&frame(18)) else { panic!() };
    assert!(reason.contains("damaged"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn damaged_compressed_bytes_never_panic_and_never_pass_the_budget(
        len in 1usize..60_000,
        codec in prop::sample::select(CODECS.to_vec()),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let value: Vec<u8> = (0..len).map(|index| u8::try_from(index * index % 251).unwrap()).collect();
        let batch = build_batch(&[Record { value: Some(value), ..Record::default() }], codec, None);
        let mut payload = batch[61..].to_vec();
        let at = at.index(payload.len());
        if cut { payload.truncate(at) } else { payload[at] = byte }
        if !payload.is_empty() {
            let mut scratch = Scratch::default();
            let _ = map(&around(&payload, codec), &mut Budget::new(30_000), &mut scratch);
            prop_assert!(scratch.plain.capacity() <= 512 * 1024);
        }
    }
}
