//! Every record comes back exactly: Produce, frames, Fetch, a client's reader.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use common::{entry, expected, fetch, fetch_options, odd_records, produce, rules};
use milena_records::client::build_batch;
use milena_records::{Codec, FetchOptions};
use milena_store::frame::Frames;
use proptest::prelude::*;

fn codecs() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_odd_record_comes_back_exactly(
        records in odd_records(),
        sent in codecs(),
        fetched in codecs(),
        span in prop::option::of(Just(u64::from(u32::MAX))),
    ) {
        let batch = build_batch(&records, sent, None);
        let (mapped, frames) = produce(&batch, &rules(span)).unwrap();
        prop_assert_eq!(mapped.count as usize, records.len());
        let entries = [entry(7, mapped.count, frames)];
        let (encoded, read) = fetch(&entries, &FetchOptions { compression: fetched.into(), ..fetch_options() });
        prop_assert_eq!(encoded.unmapped, 0);
        prop_assert_eq!(encoded.lossy_names, 0);
        prop_assert_eq!(encoded.enveloped, mapped.enveloped);
        prop_assert_eq!(encoded.next_offset, 7 + u64::from(mapped.count));
        prop_assert_eq!(read, expected(&records, 7));
    }

    #[test]
    fn what_the_mapping_says_about_origin_timestamps_is_so(
        records in odd_records(),
        span in prop::option::of(Just(u64::from(u32::MAX))),
    ) {
        let (mapped, frames) = produce(&build_batch(&records, Codec::None, None), &rules(span)).unwrap();
        let origins: Vec<u64> = Frames::new(&frames).map(|frame| frame.origin_micros).collect();
        prop_assert_eq!(origins.len(), records.len());
        prop_assert_eq!(mapped.has_untimed, origins.contains(&0));
        prop_assert_eq!(mapped.origin_max_micros, origins.iter().copied().max().unwrap());
        prop_assert_eq!(mapped.origin_min_micros, origins.iter().copied().filter(|&o| o > 0).min().unwrap_or(0));
        if let Some(span) = span {
            let lowest = origins.iter().copied().min().unwrap();
            prop_assert!(mapped.origin_max_micros - lowest <= span);
        }
        for frame in Frames::new(&frames) {
            prop_assert!(!frame.payload.is_empty());
            prop_assert!(frame.headers.len() <= 100_000);
        }
    }
}
