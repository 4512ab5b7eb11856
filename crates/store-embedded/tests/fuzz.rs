//! Damaged files into recovery: nothing panics, and what lies in front of the damage comes through.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use milena_store_embedded::fuzzing::{TARGETS, any_files, damaged_log};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Logs of a few segments with one change of each kind in each of their files, for each way to open them.
fn corpus() -> Vec<Vec<u8>> {
    let mut seeds = vec![Vec::new(), vec![0xff; 80]];
    for origin in 0..3 {
        for kind in 0..4 {
            let log = [vec![origin, kind, 9], vec![200; 9]].concat();
            seeds.push(log.clone());
            for file in 0..7 {
                for change in 0..6 {
                    let place = u16::from(change) * 97;
                    let mut seed = [log.clone(), vec![1, file, change | 0x60]].concat();
                    seed.extend_from_slice(&place.to_le_bytes());
                    seed.extend_from_slice(&[40, 9, 200, 1, 5, 6, 7, 8]);
                    seeds.push(seed);
                }
            }
        }
    }
    seeds
}

#[test]
fn every_kind_of_change_to_every_file_leaves_what_lies_in_front_of_it() {
    corpus().iter().for_each(|seed| damaged_log(seed));
}

/// Found by the fuzzer: the length of an entry grew over the end of a block of the index, and a read of it never ended.
#[test]
fn a_length_that_grew_over_the_end_of_a_block_ends_no_reader() {
    damaged_log(&[
        0x28, 0xff, 0x2b, 0xff, 0xf8, 0xfe, 0xff, 0x3f, 0x7a, 0xb5, 0xff, 0x8c, 0xbf, 0xff, 0xff, 0xff, 0xff, 0xf9,
        0x00, 0xfe, 0xf9, 0xf9, 0xf8, 0xff, 0x78, 0xff, 0xff, 0x3d, 0xff, 0xfa, 0x58,
    ]);
}

#[test]
fn every_beginning_of_a_seed_passes_as_files() {
    for seed in corpus().iter().step_by(29) {
        for end in 0..=seed.len() {
            any_files(&seed[..end]);
        }
    }
}

#[test]
fn an_entry_of_every_length_and_place_passes() {
    // The marker of an entry of the nonce that the header gets, with lengths and counts up to the largest.
    for origin in 0..3 {
        for length in [0u32, 1, 34, 1 << 20, 1 << 28, (1 << 28) + 1, u32::MAX] {
            for count in [0u32, 1, u32::MAX] {
                let mut data = vec![origin, 1, 0, 0];
                data.extend_from_slice(b"MEnt\x07\0\0\0\0\0\0\0");
                data.extend_from_slice(&length.to_le_bytes());
                data.extend_from_slice(&count.to_le_bytes());
                data.resize(data.len() + 300, 0);
                any_files(&data);
            }
        }
    }
}

#[test]
fn changed_seeds_pass() {
    let mut rng = StdRng::seed_from_u64(7);
    for seed in corpus().iter().step_by(5) {
        for _ in 0..2 {
            let mut data = seed.clone();
            data.extend((0..rng.random_range(0..40)).map(|_| rng.random::<u8>()));
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..=data.len());
                match rng.random_range(0..3) {
                    0 if at < data.len() => data[at] = rng.random(),
                    1 if at < data.len() => drop(data.remove(at)),
                    _ => data.insert(at, rng.random()),
                }
            }
            TARGETS.iter().for_each(|(_, target)| target(&data));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_pass(data in prop::collection::vec(any::<u8>(), 0..200)) {
        TARGETS.iter().for_each(|(_, target)| target(&data));
    }
}
