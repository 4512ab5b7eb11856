use std::sync::Arc;

use super::*;
use crate::offsets::table::Table;

fn key(name: &str, id: u128) -> TopicKey {
    TopicKey { name: Arc::from(name), id: TopicId(id) }
}

fn value(offset: i64, leader_epoch: i32, metadata: &str, commit_time: i64, expires: Option<i64>) -> Committed {
    let metadata = (!metadata.is_empty()).then(|| Box::from(metadata));
    Committed { offset, leader_epoch, metadata, commit_time: Timestamp(commit_time), expires: expires.map(Timestamp) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// One change of each kind, with every flag, and the bytes that version 1 writes. These bytes are in logs out there:
/// they must be read for ever.
fn fixtures() -> Vec<(Change, &'static str)> {
    let writes = vec![
        Write { partition: 0, value: Some(value(42, -1, "", 1_700_000_000_000, None)) },
        Write { partition: 300, value: Some(value(i64::MAX, 7, "hé", 1_700_000_000_000, Some(1_700_000_060_000))) },
        Write { partition: 1, value: None },
        Write { partition: i32::MAX, value: Some(value(0, 0, "", 1_699_999_999_999, None)) },
    ];
    let store = Store {
        group: Arc::from("orders"),
        by_member: true,
        at: Timestamp(1_700_000_000_000),
        topics: vec![(key("t", 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10), writes), (key("", 0), Vec::new())],
    };
    vec![
        (
            Change::Store(store),
            "0101066f72646572730180a0abfef962020174\
             0102030405060708090a0b0c0d0e0f10\
             04\
             000154\
             d80417feffffffffffffffff010e0368c3a9c0a907\
             0200\
             feffffff0f0b000001\
             000000000000000000000000000000000000",
        ),
        (
            Change::Remove { group: Arc::from("g"), topics: vec![(key("t", 1), vec![0, 1, 200])] },
            "01020167010174000000000000000000000000000000010300029003",
        ),
        (Change::RemoveGroup { group: Arc::from("g") }, "01030167"),
        (Change::RemoveTopic { topic: key("t", 2) }, "0104017400000000000000000000000000000002"),
        (Change::Mark { group: Arc::from(""), mark: Mark::Never }, "01050000"),
        (Change::Mark { group: Arc::from("g"), mark: Mark::Occupied }, "0105016701"),
        (Change::Mark { group: Arc::from("g"), mark: Mark::EmptySince(Timestamp(-1)) }, "010501670201"),
    ]
}

#[test]
fn records_of_version_1_are_these_very_bytes() {
    for (change, bytes) in fixtures() {
        let bytes: String = bytes.split_whitespace().collect();
        assert_eq!(hex(&encode(&change)), bytes, "{change:?}");
        let raw: Vec<u8> =
            (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap()).collect();
        assert_eq!(decode(&raw), Ok(change));
    }
}

#[test]
fn a_record_that_is_cut_off_or_too_long_is_refused() {
    for (change, _) in fixtures() {
        let bytes = encode(&change);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{change:?} cut to {end}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(decode(&longer), Err(CodecError::Trailing));
    }
}

#[test]
fn a_newer_version_and_unknown_kinds_and_flags_are_refused_instead_of_skipped() {
    assert_eq!(decode(&[2, 3, 1, b'g']), Err(CodecError::Version(2)));
    assert_eq!(decode(&[0]), Err(CodecError::Version(0)));
    assert_eq!(decode(&[1, 6, 1, b'g']), Err(CodecError::Kind(6)));
    assert_eq!(decode(&[1, 1, 1, b'g', 2, 0, 0]), Err(CodecError::Flags(2)));
    assert_eq!(decode(&[1, 5, 1, b'g', 3]), Err(CodecError::Flags(3)));
    let write = |flags| {
        let mut record = vec![1, 1, 1, b'g', 0, 0, 1, 0];
        record.extend([0; 16]);
        record.extend([1, 0, flags, 0, 0]);
        decode(&record)
    };
    assert_eq!(write(32 | 1), Err(CodecError::Flags(33)));
    assert_eq!(write(2), Err(CodecError::Flags(2)), "nothing is set, so there is no epoch");
}

#[test]
fn counts_and_lengths_that_lie_are_refused_without_taking_memory() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for head in [vec![1, 1], vec![1, 1, 1, b'g', 0, 0], vec![1, 2, 1, b'g']] {
        assert_eq!(decode(&[head.as_slice(), &huge].concat()), Err(CodecError::Truncated));
    }
    assert_eq!(decode(&[1, 3, 1, 0xff]), Err(CodecError::NotText));
    let partition_too_large = [&[1, 2, 1, b'g', 1, 0][..], &[0; 16], &[1, 0x80, 0x80, 0x80, 0x80, 0x10]].concat();
    assert_eq!(decode(&partition_too_large), Err(CodecError::OutOfRange));
}

#[test]
fn no_change_of_a_byte_makes_reading_panic() {
    let mut table = Table::default();
    for (change, _) in fixtures() {
        let bytes = encode(&change);
        for at in 0..bytes.len() {
            for byte in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = byte;
                if let Ok(change) = decode(&changed) {
                    table.apply(change);
                }
            }
        }
    }
}

#[test]
fn times_at_the_ends_of_their_range_come_back() {
    let writes = vec![Write { partition: 0, value: Some(value(0, -1, "", i64::MAX, Some(i64::MIN))) }];
    let store =
        Store { group: Arc::from("g"), by_member: false, at: Timestamp(i64::MIN), topics: vec![(key("t", 1), writes)] };
    let change = Change::Store(store);
    assert_eq!(decode(&encode(&change)), Ok(change));
}
