//! Messages of native writers make no producers.

use std::sync::Arc;

use milena_store::Store;
use milena_store::TopicSettings;
use milena_store::testing::{MemoryStore, TestMessage, batch_of};
use uuid::Builder;

use crate::produce::ids::ProducerIds;
use crate::produce::marks::LogMarks;
use crate::produce::tail::{TailLimit, read_tail};

/// A small generator with a fixed seed, so that a failure can be repeated.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[tokio::test]
async fn a_million_random_uuids_make_no_phantom_producer() {
    let store = MemoryStore::new();
    let topic = store.create_topic("kafka", "native", 1, &TopicSettings::default()).await.unwrap().topic;
    let at = topic.partition(0);
    let mut state = 1;
    for _ in 0..100 {
        let messages: Vec<_> = (0..10_000)
            .map(|_| {
                let bytes = (u128::from(random(&mut state)) << 64 | u128::from(random(&mut state))).to_be_bytes();
                TestMessage::new(Builder::from_random_bytes(bytes).into_uuid().as_u128(), b"v")
            })
            .collect();
        store.append(&at, batch_of(&messages)).await.unwrap();
    }
    // A thousand ids are given out, and a cluster of two more instances has given out many.
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let marks = LogMarks::open(Arc::clone(&shared), 0).await.unwrap();
    for instance in [1, 2] {
        crate::produce::ids::Marks::store(&marks, instance, 1_000_000_000).await.unwrap();
    }
    let ids = ProducerIds::open(0, Box::new(marks)).await.unwrap();
    for _ in 0..1_000 {
        ids.allocate().await.unwrap();
    }
    let limit = TailLimit { messages: u64::MAX, bytes: usize::MAX, age: std::time::Duration::from_secs(1 << 40) };
    let bounds = store.bounds(&at).await.unwrap();
    assert_eq!(bounds.end, 1_000_000);
    let tail = read_tail(&store, &at, bounds, limit, 0).await.unwrap();
    assert!(tail.whole && !tail.pieces.iter().any(|piece| ids.was_given_out(piece.batch.producer_id)));
}
