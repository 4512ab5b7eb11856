//! Any bytes beside a committed offset: the functions of the fuzz target, over a corpus and changes of it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "test code")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

use milena_catchup::fuzzing::{TARGETS, numbers, sealed, text};
use milena_catchup::{LogId, METADATA_BYTES_MAX, NotCounted, Progress};
use proptest::prelude::*;

/// Log, floor and number of ranges, then distances and lengths, as they stand in front of the checksum.
fn plain(floor: &[u8], count: &[u8], rest: &[u8]) -> Vec<u8> {
    [&[1, 2, 3, 4, 5, 6, 7, 8], floor, count, rest].concat()
}

/// Strings of our own, of others, and such that a program with other ideas of the form would write.
fn corpus() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        ["", " ", "cu1", "cu1 ", "cu1AAAA", "cu1=", "cu2AAAA", "node-7", "cu1\u{e4}", "cu1AQ x y"]
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
    let many = (0..400).map(|at| 90 + at * 7..93 + at * 7);
    for ahead in [vec![], vec![120..140], vec![0..1, i64::MAX - 1..i64::MAX], many.collect()] {
        for floor in [0, 80, i64::MAX] {
            let progress = Progress { log: LogId(7), floor, ahead: ahead.iter().cloned().collect() };
            for user in ["", "node-7", "\u{fffd} two  words"] {
                seeds.push(progress.encode(user, METADATA_BYTES_MAX).metadata.into_bytes());
            }
        }
    }
    let largest = [0xff; 9];
    let overlong = [[0x80; 9].as_slice(), &[1]].concat();
    seeds.extend([
        plain(&[80], &[0], &[]),
        plain(&[80], &[1], &[40, 20]),
        // Ranges that touch, that are empty, that end behind the last offset there is; counts that lie.
        plain(&[80], &[3], &[0, 5, 0, 5, 0, 5]),
        plain(&[80], &[1], &[40, 0]),
        plain(&[80], &[1], &[&largest[..], &[0x7f, 1]].concat()),
        plain(&[&largest[..], &[0]].concat(), &[1], &[1, 1]),
        plain(&[80], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[1, 1]),
        plain(&overlong, &overlong, &overlong),
        plain(&[0x80; 12], &[0], &[]),
    ]);
    for of in [[7, 80, 120, 140], [u64::MAX, 0, 0, 1], [0, u64::MAX, u64::MAX, 5], [1, 1 << 62, 1 << 63, u64::MAX >> 1]]
    {
        seeds.push(of.iter().flat_map(|number: &u64| number.to_le_bytes()).collect());
    }
    seeds
}

#[test]
fn the_corpus_passes_whole_and_cut_off_anywhere() {
    for seed in corpus() {
        for end in (0..seed.len().min(64)).chain([seed.len()]) {
            TARGETS.iter().for_each(|(_, target)| target(&seed[..end]));
        }
    }
}

/// That the targets reach what they are for: behind the checksum there is a progress to be read.
#[test]
fn what_is_sealed_is_read_and_not_what_only_looks_so() {
    let read = Progress::decode("cu1AQIDBAUGBwhQAigUoAEBDfRRbA").unwrap();
    assert_eq!((read.floor, read.ahead.len()), (80, 2));
    let body = plain(&[80], &[2], &[40, 20, 0xa0, 1, 1]);
    sealed(&body);
    for wrong in [plain(&[80], &[3], &[40, 20, 0xa0, 1, 1]), plain(&[80], &[2], &[40, 20, 0xa0, 1, 1, 0])] {
        sealed(&wrong);
    }
    text(b"cu1AQIDBAUGBwhQAigUoAEBDfRRbA node-7");
    assert_eq!(Progress::decode("cu1AQIDBAUGBwhQAigUoAEBDfRRbB"), Err(NotCounted::Damaged));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn changed_seeds_pass(
        seed in prop::sample::select(corpus()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..6),
    ) {
        let mut bytes = seed;
        for (at, with, kind) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 if at < bytes.len() => bytes[at] = with,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at, with),
            }
        }
        TARGETS.iter().for_each(|(_, target)| target(&bytes));
    }

    #[test]
    fn any_bytes_pass(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        TARGETS.iter().for_each(|(_, target)| target(&bytes));
    }

    #[test]
    fn small_numbers_pass(of in prop::collection::vec(0_u64..300, 2..30)) {
        numbers(&of.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
        sealed(&of.iter().map(|number| number.to_le_bytes()[0]).collect::<Vec<_>>());
    }
}
