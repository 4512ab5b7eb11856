//! What Fetch writes: limits, batches, offsets, times.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{APPEND_MICROS, entry, fetch, fetch_options, produce, rules};
use milena_records::client::{Record, build_batch, read_record_set};
use milena_records::{Codec, FetchOptions, TimestampType, encode_entries};
use milena_store::Entry;

fn stored(base_offset: u64, values: &[&str]) -> Entry {
    let records: Vec<_> = values
        .iter()
        .map(|value| Record {
            timestamp_ms: 1_700_000_000_000,
            value: Some(value.as_bytes().to_vec()),
            ..Record::default()
        })
        .collect();
    let (mapped, frames) = produce(&build_batch(&records, Codec::None, None), &rules(None)).unwrap();
    entry(base_offset, mapped.count, frames)
}

/// Header fields of every batch: base offset, attributes, last delta, max timestamp, count.
fn batches(bytes: &[u8]) -> Vec<(i64, i16, i32, i64, i32)> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let i64_at = |at: usize| i64::from_be_bytes(rest[at..at + 8].try_into().unwrap());
        let i32_at = |at: usize| i32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let attributes = i16::from_be_bytes(rest[21..23].try_into().unwrap());
        found.push((i64_at(0), attributes, i32_at(23), i64_at(35), i32_at(57)));
        rest = &rest[12 + usize::try_from(i32_at(8)).unwrap()..];
    }
    found
}

fn encode(entries: &[Entry], options: &FetchOptions) -> Vec<u8> {
    let mut out = Vec::new();
    encode_entries(entries, options, &mut out);
    out
}

#[test]
fn many_entries_make_one_batch_with_their_own_offsets() {
    let entries = [stored(10, &["a", "b"]), stored(12, &["c"]), stored(20, &["d"])];
    let bytes = encode(&entries, &fetch_options());
    assert_eq!(batches(&bytes), [(10, 0, 10, 1_700_000_000_000, 4)]);
    let offsets: Vec<_> = read_record_set(&bytes, 0).unwrap().iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [10, 11, 12, 20]);
}

#[test]
fn a_batch_carries_no_producer_and_the_leader_epoch() {
    let bytes = encode(&[stored(0, &["a"])], &FetchOptions { leader_epoch: 5, ..fetch_options() });
    assert_eq!(bytes[12..17], [0, 0, 0, 5, 2]);
    assert_eq!(bytes[43..57], [0xff; 14]);
}

#[test]
fn records_below_the_wanted_offset_are_left_out() {
    let options = FetchOptions { from: 11, ..fetch_options() };
    let (encoded, records) = fetch(&[stored(10, &["a", "b", "c"])], &options);
    assert_eq!((records[0].offset, encoded.records, encoded.next_offset), (11, 2, 13));
    let (encoded, records) = fetch(&[stored(10, &["a"])], &options);
    assert_eq!((records.len(), encoded.bytes, encoded.next_offset), (0, 0, 11));
}

#[test]
fn the_limit_cuts_at_a_record() {
    let entries = [stored(0, &["aaaa", "bbbb"]), stored(2, &["cccc"])];
    let whole = encode(&entries, &fetch_options()).len();
    for (max_bytes, count) in [(whole, 3), (whole - 1, 2), (whole - 11, 2), (whole - 12, 1), (72, 1), (71, 0), (0, 0)] {
        let options = FetchOptions { max_bytes, at_least_one: false, ..fetch_options() };
        let (encoded, records) = fetch(&entries, &options);
        assert_eq!(records.len(), count, "{max_bytes}");
        assert!(encoded.bytes <= max_bytes);
        assert_eq!(encoded.next_offset, count as u64);
    }
}

#[test]
fn what_the_buffer_held_before_does_not_count() {
    let mut out = vec![7; 1000];
    let options = FetchOptions { max_bytes: 72, at_least_one: false, ..fetch_options() };
    let encoded = encode_entries(&[stored(0, &["aaaa", "bbbb"])], &options, &mut out);
    assert_eq!((encoded.records, encoded.bytes, out.len()), (1, 72, 1072));
    assert_eq!(out[..1000], [7; 1000]);
}

#[test]
fn one_record_is_given_however_small_the_limit() {
    let options = FetchOptions { max_bytes: 0, ..fetch_options() };
    let (encoded, records) = fetch(&[stored(0, &["a", "b"])], &options);
    assert_eq!((records.len(), encoded.next_offset), (1, 1));
}

#[test]
fn under_log_append_time_each_append_time_has_its_batch() {
    let mut second = stored(2, &["c"]);
    second.append_time_micros = APPEND_MICROS + 5_000;
    let mut third = stored(3, &["d"]);
    third.append_time_micros = APPEND_MICROS + 5_000;
    let options = FetchOptions { timestamp_type: TimestampType::LogAppendTime, ..fetch_options() };
    let entries = [stored(0, &["a", "b"]), second, third];
    let first_ms = (APPEND_MICROS / 1000).cast_signed();
    let bytes = encode(&entries, &options);
    assert_eq!(batches(&bytes), [(0, 8, 1, first_ms, 2), (2, 8, 1, first_ms + 5, 2)]);
    let times: Vec<_> = read_record_set(&bytes, 0).unwrap().iter().map(|record| record.timestamp_ms).collect();
    assert_eq!(times, [first_ms, first_ms, first_ms + 5, first_ms + 5]);
}

#[test]
fn log_append_time_beats_the_stated_time() {
    let record = Record { timestamp_ms: 0, value: Some(b"v".to_vec()), ..Record::default() };
    let (_, frames) = produce(&build_batch(&[record], Codec::None, None), &rules(None)).unwrap();
    let options = FetchOptions { timestamp_type: TimestampType::LogAppendTime, ..fetch_options() };
    let (_, records) = fetch(&[entry(0, 1, frames)], &options);
    assert_eq!(records[0].timestamp_ms, (APPEND_MICROS / 1000).cast_signed());
}

#[test]
fn a_batch_is_cut_where_the_delta_would_pass_31_bits() {
    let far = u64::from(u32::MAX >> 1);
    let bytes = encode(&[stored(0, &["a"]), stored(far, &["b"]), stored(far + 1, &["c"])], &fetch_options());
    let spans: Vec<_> = batches(&bytes).iter().map(|batch| (batch.0, batch.2)).collect();
    assert_eq!(spans, [(0, i32::MAX), (i64::from(i32::MAX) + 1, 0)]);
}

#[test]
fn every_codec_is_written_and_read_and_named_in_the_attributes() {
    let value = "v".repeat(2000);
    for codec in Codec::ALL {
        let bytes =
            encode(&[stored(0, &[&value, &value])], &FetchOptions { compression: codec.into(), ..fetch_options() });
        assert_eq!(batches(&bytes)[0].1, codec.id());
        assert!(codec == Codec::None || bytes.len() < 1000);
        let records = read_record_set(&bytes, 1 << 20).unwrap();
        assert_eq!((records.len(), records[1].value.as_deref()), (2, Some(value.as_bytes())));
    }
}

#[test]
fn a_batch_that_compression_would_enlarge_stays_as_it_is() {
    let bytes = encode(&[stored(0, &["a"])], &FetchOptions { compression: Codec::Gzip.into(), ..fetch_options() });
    assert_eq!(batches(&bytes)[0].1, 0);
}

#[test]
fn a_damaged_block_costs_only_its_own_end() {
    let mut damaged = stored(0, &["a", "b"]);
    damaged.frames.truncate(damaged.frames.len() - 1);
    let (encoded, records) = fetch(&[damaged, stored(2, &["c"])], &fetch_options());
    let offsets: Vec<_> = records.iter().map(|record| record.offset).collect();
    assert_eq!((offsets, encoded.next_offset), (vec![0, 2], 3));
}

#[test]
fn times_far_apart_in_both_directions_come_back() {
    let times = [1_700_000_000_000, 1, 18_446_744_073_709_551, 5, 1_700_000_000_001];
    let records: Vec<_> = times
        .iter()
        .map(|&timestamp_ms| Record { timestamp_ms, value: Some(b"v".to_vec()), ..Record::default() })
        .collect();
    for span in [None, Some(u64::from(u32::MAX))] {
        let (mapped, frames) = produce(&build_batch(&records, Codec::None, None), &rules(span)).unwrap();
        let (_, read) = fetch(&[entry(0, mapped.count, frames)], &fetch_options());
        assert_eq!(read.iter().map(|record| record.timestamp_ms).collect::<Vec<_>>(), times);
    }
}

#[test]
fn a_client_leaves_out_a_batch_that_is_cut_off() {
    let whole = encode(&[stored(0, &["a", "b"])], &fetch_options());
    let two = [&whole[..], &whole[..]].concat();
    for end in whole.len()..two.len() {
        assert_eq!(read_record_set(&two[..end], 0).unwrap().len(), 2);
    }
    assert_eq!(read_record_set(&two, 0).unwrap().len(), 4);
    assert_eq!(read_record_set(&whole[..whole.len() - 1], 0).unwrap(), []);
}
