//! Any bytes into any entrance: nothing panics, and what is stored can always be read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use milena_records::client::{Record, build_batch};
use milena_records::{Codec, fuzzing::TARGETS};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Seeds that reach far into each target; the rest is made from them by cutting and changing bytes.
fn corpus() -> Vec<Vec<u8>> {
    let header = |name: &str, value: &[u8]| {
        let mut block = vec![2];
        block.extend_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
        block.extend_from_slice(name.as_bytes());
        block.push(1);
        block.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
        block.extend_from_slice(value);
        block
    };
    let mut seeds = vec![Vec::new(), vec![0; 16], vec![0xff; 80], vec![0; 200]];
    let records = [
        Record { value: Some(b"value".repeat(40)), timestamp_ms: 1_700_000_000_000, ..Record::default() },
        Record { key: Some(Vec::new()), timestamp_ms: -1, ..Record::default() },
        Record {
            key: Some(b"key".to_vec()),
            value: Some(Vec::new()),
            headers: vec![("a".into(), Some(vec![1])), ("b".into(), None), ("a".into(), Some(vec![]))],
            ..Record::default()
        },
    ];
    for codec in Codec::ALL {
        let batch = build_batch(&records, codec, None);
        let mut behind_header = vec![u8::try_from(codec.id()).unwrap(), 3];
        behind_header.extend_from_slice(&batch[61..]);
        seeds.extend([batch, behind_header]);
    }
    let envelope = b"\x03\x01\0\0\0k\x02\0\0\0vv\x01\0\0\0\x01\0\0\0a\x01\x01\0\0\0x";
    let blocks = [
        (&b"payload"[..], [header("kafka.v", &[1]), header("kafka.key", b"k"), header("kafka.h.a", b"1")].concat()),
        (b"\0", [header("kafka.v", &[1]), header("kafka.value", b"null"), header("kafka.ts", &[0; 8])].concat()),
        (envelope, [header("kafka.v", &[1]), header("kafka.envelope", &[1])].concat()),
        (b"p", [header("kafka.key", b"k"), header("kafka.key", b"k"), header("other", b"o")].concat()),
    ];
    for (payload, block) in blocks {
        let mut seed = u16::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        seed.extend_from_slice(payload);
        seed.extend_from_slice(&block);
        seeds.push(seed);
    }
    seeds
}

fn all_targets(data: &[u8]) {
    for (_, target) in TARGETS {
        target(data);
    }
}

#[test]
fn the_corpus_and_every_beginning_of_it_pass() {
    for seed in corpus() {
        for end in 0..=seed.len() {
            all_targets(&seed[..end]);
        }
    }
}

#[test]
fn changed_seeds_pass() {
    let mut rng = StdRng::seed_from_u64(7);
    for seed in corpus() {
        for _ in 0..300 {
            let mut data = seed.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..=data.len());
                match rng.random_range(0..3) {
                    0 if at < data.len() => data[at] = rng.random(),
                    1 if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
                    2 if at < data.len() => drop(data.remove(at)),
                    _ => data.insert(at, rng.random()),
                }
            }
            all_targets(&data);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_pass(data in prop::collection::vec(any::<u8>(), 0..600)) {
        all_targets(&data);
    }
}
