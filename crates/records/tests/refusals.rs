//! What Produce refuses, in which order, and that it takes no memory for it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{BUDGET, limits, produce, rules};
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_records::{
    BatchLimits, Budget, Codec, MessageIds, ProduceRules, ProducerSequence, Refusal, Scratch, check_batch, map_batch,
};
use milena_store::frame::Frames;

fn record(value: &[u8]) -> Record {
    Record { timestamp_ms: 1_700_000_000_000, value: Some(value.to_vec()), ..Record::default() }
}

fn batch() -> Vec<u8> {
    build_batch(&[record(b"a"), record(b"b")], Codec::None, None)
}

/// Sets bytes of a batch and makes its checksum right again.
fn with(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    seal(batch)
}

/// Makes length and checksum of a batch right.
fn seal(mut batch: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn is_invalid(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::InvalidRecord { .. })
}

fn refusal(batch: &[u8]) -> Refusal {
    produce(batch, &rules(None)).unwrap_err()
}

#[test]
fn only_exactly_one_whole_batch_is_taken() {
    let good = batch();
    assert!(check_batch(&good, &limits()).is_ok());
    for end in 0..good.len() {
        assert!(is_invalid(&check_batch(&good[..end], &limits()).unwrap_err()), "{end}");
    }
    assert!(is_invalid(&refusal(&[&good[..], b"\0"].concat())));
    assert!(is_invalid(&refusal(&[&good[..], &good[..]].concat())));
    assert!(is_invalid(&refusal(&with(good.clone(), 57, &0i32.to_be_bytes()))));
    assert!(is_invalid(&refusal(&with(good, 57, &(-1i32).to_be_bytes()))));
}

#[test]
fn old_formats_are_refused_as_such() {
    for magic in [0, 1, 3] {
        let old = with(batch(), 16, &[magic]);
        let Refusal::InvalidRecord { reason, .. } = refusal(&old) else { panic!() };
        assert!(reason.contains("format v2"));
    }
    // A message set of format 0 with one short message is shorter than the header of a batch.
    let mut short = vec![0u8; 26];
    short[11] = 14;
    assert!(is_invalid(&refusal(&short)));
}

#[test]
fn a_changed_byte_is_a_checksum_error() {
    let good = batch();
    for at in 23..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        // The number of records is judged before the checksum.
        if !(57..61).contains(&at) {
            assert_eq!(refusal(&changed), Refusal::Corrupt, "{at}");
        }
    }
}

#[test]
fn checks_come_in_their_order() {
    // Each batch is wrong in one more way than the one before, and the first wrong thing is named.
    let txn = 0b1_0000i16;
    let unknown_codec = 7i16;
    let limits = BatchLimits { max_message_bytes: 10, zstd_allowed: false };
    let check = |batch: &[u8], limits: &BatchLimits| check_batch(batch, limits).unwrap_err();
    let roomy = BatchLimits { max_message_bytes: 10_000, ..limits };

    let codec = with(batch(), 21, &unknown_codec.to_be_bytes());
    assert_eq!(check(&codec, &roomy), Refusal::UnsupportedCompression);
    let delta = with(codec, 23, &5i32.to_be_bytes());
    assert!(is_invalid(&check(&delta, &roomy)));
    let transactional = with(delta, 21, &(unknown_codec | txn).to_be_bytes());
    assert!(matches!(check(&transactional, &roomy), Refusal::Unsupported { .. }));
    assert!(matches!(check(&transactional, &limits), Refusal::TooLarge { actual: 77, limit: 10, .. }));
    let mut spoiled = transactional;
    spoiled[17] ^= 1;
    assert_eq!(check(&spoiled, &limits), Refusal::Corrupt);
    spoiled[57..61].fill(0);
    assert!(is_invalid(&check(&spoiled, &limits)));
}

#[test]
fn control_batches_and_transactional_batches_are_not_supported() {
    for attributes in [0b1_0000i16, 0b10_0000, 0b11_0000] {
        let batch = with(batch(), 21, &attributes.to_be_bytes());
        assert!(matches!(refusal(&batch), Refusal::Unsupported { .. }));
    }
}

#[test]
fn zstd_needs_its_produce_version() {
    let batch = build_batch(&[record(b"a")], Codec::Zstd, None);
    assert!(check_batch(&batch, &limits()).is_ok());
    let old = BatchLimits { zstd_allowed: false, ..limits() };
    assert_eq!(check_batch(&batch, &old).unwrap_err(), Refusal::UnsupportedCompression);
}

#[test]
fn the_size_limit_is_exact() {
    let good = batch();
    let at = |max_message_bytes| check_batch(&good, &BatchLimits { max_message_bytes, zstd_allowed: true });
    assert!(at(good.len()).is_ok());
    assert!(matches!(at(good.len() - 1), Err(Refusal::TooLarge { .. })));
}

#[test]
fn offset_deltas_must_count_up_from_zero() {
    let good = batch();
    // The second record's offset delta: behind its length, attributes and timestamp delta.
    let second = 61 + 8 + 3;
    assert_eq!(good[second], 2);
    let Refusal::InvalidRecord { index, .. } = refusal(&with(good, second, &[4])) else { panic!() };
    assert_eq!(index, Some(1));
}

#[test]
fn a_producer_without_sequence_or_epoch_is_refused() {
    for (epoch, base_sequence) in [(-1, 0), (0, -1)] {
        let stamp = ProducerStamp { producer_id: 1, epoch, base_sequence };
        assert!(is_invalid(&refusal(&build_batch(&[record(b"a")], Codec::None, Some(stamp)))));
    }
}

#[test]
fn a_batch_marked_as_log_append_time_has_its_largest_time_on_every_record() {
    let batch = with(with(batch(), 21, &8i16.to_be_bytes()), 35, &5_000i64.to_be_bytes());
    let (mapped, frames) = produce(&batch, &rules(None)).unwrap();
    let origins: Vec<_> = Frames::new(&frames).map(|frame| frame.origin_micros).collect();
    assert_eq!((mapped.origin_max_micros, origins), (5_000_000, vec![5_000_000; 2]));
    let untimed = with(batch, 35, &(-1i64).to_be_bytes());
    assert!(produce(&untimed, &rules(None)).unwrap().0.has_untimed);
}

#[test]
fn timestamps_that_cannot_be_are_refused() {
    for timestamp_ms in [-2, i64::MIN, i64::MAX, 18_446_744_073_709_552] {
        let batch = build_batch(&[record(b"a"), Record { timestamp_ms, ..record(b"b") }], Codec::None, None);
        assert!(
            matches!(refusal(&batch), Refusal::InvalidTimestamp { indexes, .. } if indexes == [1]),
            "{timestamp_ms}"
        );
    }
    // A delta that overflows.
    let first = with(batch(), 27, &i64::MAX.to_be_bytes());
    assert!(matches!(refusal(&first), Refusal::InvalidTimestamp { indexes, .. } if indexes == [0, 1]));
}

#[test]
fn the_topics_rules_bind() {
    let keyed = Record { key: Some(b"k".to_vec()), ..record(b"a") };
    let batch = build_batch(&[keyed, record(b"b")], Codec::None, None);
    let compacted = ProduceRules { key_required: true, ..rules(None) };
    assert!(matches!(produce(&batch, &compacted), Err(Refusal::KeyMissing { indexes }) if indexes == [1]));
    let late = ProduceRules { timestamps_ms: 1_700_000_000_001..=i64::MAX, ..rules(None) };
    assert!(matches!(produce(&batch, &late), Err(Refusal::InvalidTimestamp { indexes, .. }) if indexes == [0, 1]));
}

#[test]
fn a_refusal_names_every_record_that_the_topic_does_not_take_and_one_time_decides_on_the_code() {
    let keyed = |timestamp_ms| Record { key: Some(b"k".to_vec()), timestamp_ms, ..record(b"a") };
    let bare = |timestamp_ms| Record { timestamp_ms, ..record(b"a") };
    let named = |records: &[Record]| {
        let batch = build_batch(records, Codec::None, None);
        match produce(&batch, &ProduceRules { key_required: true, timestamps_ms: 10..=20, ..rules(None) }) {
            Err(Refusal::InvalidTimestamp { indexes, .. }) => (32, indexes),
            Err(Refusal::KeyMissing { indexes }) => (87, indexes),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(&[keyed(10), keyed(9), keyed(20), keyed(21), keyed(15)]), (32, vec![1, 3]));
    assert_eq!(named(&[keyed(10), bare(10), keyed(20), bare(20)]), (87, vec![1, 3]));
    assert_eq!(named(&[bare(10), keyed(21), keyed(20), bare(9)]), (32, vec![0, 1, 3]));
    assert_eq!(named(&[keyed(21), bare(10)]), (32, vec![0, 1]));
}

#[test]
fn a_refusal_names_the_first_1024_records_and_no_more() {
    for count in [1_023, 1_024, 1_025, 3_000] {
        let mut records = vec![record(b"a"); count];
        records.insert(0, Record { key: Some(b"k".to_vec()), ..record(b"a") });
        let batch = build_batch(&records, Codec::None, None);
        let expected: Vec<u32> = (1..=1_024.min(u32::try_from(count).unwrap())).collect();
        let compacted = ProduceRules { key_required: true, ..rules(None) };
        assert!(matches!(produce(&batch, &compacted), Err(Refusal::KeyMissing { indexes }) if indexes == expected));
        let keyed = vec![Record { timestamp_ms: 9, ..record(b"a") }; count];
        let batch = build_batch(&keyed, Codec::None, None);
        let expected: Vec<u32> = (0..1_024.min(u32::try_from(count).unwrap())).collect();
        let timed = ProduceRules { timestamps_ms: 10..=20, ..rules(None) };
        assert!(
            matches!(produce(&batch, &timed), Err(Refusal::InvalidTimestamp { indexes, .. }) if indexes == expected)
        );
        // A time that is refused behind all those decides on the code nevertheless.
        records.push(Record { key: Some(b"k".to_vec()), timestamp_ms: 9, ..record(b"a") });
        let batch = build_batch(&records, Codec::None, None);
        let both = ProduceRules { key_required: true, timestamps_ms: 10..=i64::MAX, ..rules(None) };
        let expected: Vec<u32> = (1..).take(1_024.min(count + 1)).collect();
        let refused = produce(&batch, &both);
        assert!(
            matches!(&refused, Err(Refusal::InvalidTimestamp { indexes, .. }) if *indexes == expected),
            "{count}: {refused:?}"
        );
    }
}

#[test]
fn a_payload_may_fill_the_limit_and_not_pass_it() {
    let at = |len: usize, headers: Vec<(String, Option<Vec<u8>>)>| {
        let rules = ProduceRules { payload_bytes_max: 100, ..rules(None) };
        produce(&build_batch(&[Record { headers, ..record(&vec![1; len]) }], Codec::None, None), &rules)
    };
    assert!(at(100, vec![]).is_ok());
    assert!(matches!(at(101, vec![]), Err(Refusal::TooLarge { actual: 101, limit: 100, .. })));
    let one = || vec![("h".to_owned(), Some(b"v".to_vec()))];
    assert!(at(100, one()).is_ok());
    assert!(matches!(at(101, one()), Err(Refusal::TooLarge { actual: 101, limit: 100, .. })));
    // An envelope of a value and one header without value: 13 + 9 + 1 bytes besides the value.
    let envelope = || vec![("h".to_owned(), None)];
    assert!(at(77, envelope()).is_ok());
    assert!(matches!(at(78, envelope()), Err(Refusal::TooLarge { actual: 101, limit: 100, .. })));
}

#[test]
fn the_header_limit_counts_the_markers_and_the_settled_time() {
    // kafka.v 18, kafka.h.h with 100 bytes 119, kafka.ts 26.
    let mapped = |timestamp_ms, limit| {
        let records = [
            record(b"first"),
            Record { timestamp_ms, headers: vec![("h".into(), Some(vec![1; 100]))], ..record(b"v") },
        ];
        let rules = ProduceRules { header_bytes_max: limit, ..rules(Some(5_000)) };
        produce(&build_batch(&records, Codec::None, None), &rules).unwrap().0.enveloped
    };
    let near = 1_700_000_000_001;
    let far = 1_700_000_000_100;
    assert_eq!((mapped(near, 137), mapped(near, 136)), (0, 1));
    assert_eq!((mapped(far, 163), mapped(far, 162)), (0, 1));
}

#[test]
fn a_header_name_must_be_utf8_in_either_form() {
    for headers in [vec![("é".to_owned(), Some(vec![1]))], vec![("é".to_owned(), None)]] {
        let batch = build_batch(&[record(b"a"), Record { headers, ..record(b"b") }], Codec::None, None);
        let at = batch.windows(2).rposition(|pair| pair == "é".as_bytes()).unwrap();
        let batch = with(batch, at, &[0xff]);
        assert!(matches!(refusal(&batch), Refusal::InvalidRecord { index: Some(1), .. }));
    }
}

#[test]
fn a_refused_batch_leaves_the_output_as_it_was() {
    let records = [record(b"a"), Record { timestamp_ms: -5, ..record(b"b") }];
    let batch = build_batch(&records, Codec::None, None);
    let checked = check_batch(&batch, &limits()).unwrap();
    let mut out = b"before".to_vec();
    let ids = MessageIds::Plain { seed: 1 };
    let mut budget = Budget::new(BUDGET);
    assert!(map_batch(&checked, &rules(None), ids, &mut budget, &mut Scratch::default(), &mut out).is_err());
    assert_eq!(out, b"before");
}

#[test]
fn ids_carry_the_producers_sequence() {
    let batch = build_batch(&[record(b"a"), record(b"b")], Codec::None, None);
    let checked = check_batch(&batch, &limits()).unwrap();
    let first = ProducerSequence { producer_id: 77, epoch: 3, sequence: 0x7fff_ffff };
    let mut out = Vec::new();
    let ids = MessageIds::Producer(first);
    map_batch(&checked, &rules(None), ids, &mut Budget::new(BUDGET), &mut Scratch::default(), &mut out).unwrap();
    let places: Vec<_> = Frames::new(&out).map(|frame| ProducerSequence::from_message_id(frame.id).unwrap()).collect();
    assert_eq!(places, [first, ProducerSequence { sequence: 0, ..first }]);
}

#[test]
fn a_batch_of_61_bytes_that_declares_two_billion_records_costs_nothing() {
    for attributes in 0..5i16 {
        let mut bare = with(batch(), 21, &attributes.to_be_bytes());
        bare.truncate(61);
        bare[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        bare[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(is_invalid(&refusal(&seal(bare))));
    }
}

#[test]
fn a_compressed_batch_that_declares_too_many_records_costs_nothing() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for count in [3, 100, i32::MAX] {
            let declared = with(build_batch(&[record(b"a"), record(b"b")], codec, None), 57, &count.to_be_bytes());
            let declared = with(declared, 23, &(count - 1).to_be_bytes());
            let checked = check_batch(&declared, &limits()).unwrap();
            let (mut out, mut scratch) = (Vec::new(), Scratch::default());
            let ids = MessageIds::Plain { seed: 1 };
            let result = map_batch(&checked, &rules(None), ids, &mut Budget::new(BUDGET), &mut scratch, &mut out);
            assert!(result.is_err());
            assert!(out.capacity() < 1000 && scratch.plain.capacity() <= 1 << 20, "{codec:?} {count}");
        }
    }
}

#[test]
fn a_batch_of_72_bytes_whose_record_declares_two_billion_headers_costs_nothing() {
    let mut record = vec![0, 0, 0, 1, 1];
    record.extend_from_slice(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    let mut bytes = build_batch(&[], Codec::None, None);
    bytes.push(20);
    bytes.extend_from_slice(&record);
    assert_eq!(bytes.len(), 72);
    bytes[23..27].copy_from_slice(&0i32.to_be_bytes());
    bytes[57..61].copy_from_slice(&1i32.to_be_bytes());
    let bytes = seal(bytes);
    let Refusal::InvalidRecord { index, .. } = refusal(&bytes) else { panic!() };
    assert_eq!(index, Some(0));
}
