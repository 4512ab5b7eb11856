//! Fewer partitions, other names. An engine that cannot says so, and promises nothing here.

use std::time::Duration;

use super::*;
use crate::error::StoreError;
use crate::types::TopicRef;

fn can<T>(outcome: Result<T, StoreError>) -> Option<T> {
    match outcome {
        Err(StoreError::Unsupported { .. }) => None,
        outcome => Some(outcome.unwrap()),
    }
}

fn not_found<T>(outcome: Result<T, StoreError>) {
    let error = outcome.err();
    assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
}

/// A topic of three partitions with two messages in each.
fn filled(store: &dyn Store) -> TopicRef {
    let topic = create(store, "orders", 3).topic;
    for partition in 0..3 {
        append(store, &topic.partition(partition), &[TestMessage::new(1, b"a"), TestMessage::new(2, b"b")]);
    }
    topic
}

/// The last partitions go with their messages, and the others stay as they are; also after a reopen.
pub fn a_shrunk_topic_lost_its_last_partitions_and_nothing_else(factory: &dyn StoreFactory) {
    let mut store = factory.open();
    let topic = filled(store.as_ref());
    let Some(shrunk) = can(block_on(store.shrink_topic(&topic, 1))) else { return };
    for reopened in [false, true] {
        if reopened && factory.keeps_data() {
            store = factory.reopen(store);
        }
        assert_eq!((shrunk.partitions, &shrunk.topic), (1, &topic));
        assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap().as_ref(), Some(&shrunk));
        assert_eq!(block_on(store.sizes(&topic)).unwrap().len(), 1);
        assert_eq!(payloads(&everything(store.as_ref(), &topic.partition(0))), [b"a", b"b"]);
        for gone in [topic.partition(1), topic.partition(2)] {
            not_found(block_on(store.append(&gone, batch_of(&[TestMessage::new(3, b"c")]))));
            not_found(block_on(store.read(&gone, 0, EVERYTHING)));
            not_found(block_on(store.bounds(&gone)));
        }
    }
}

/// None at all and more than there are is `Refused`, as many is success.
pub fn a_topic_keeps_a_partition_and_never_grows_by_shrinking(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    let Some(same) = can(block_on(store.shrink_topic(&topic, 2))) else { return };
    assert_eq!(same.partitions, 2);
    for partitions in [0, 3] {
        let refused = block_on(store.shrink_topic(&topic, partitions));
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }
    block_on(store.delete_topic(&topic)).unwrap();
    not_found(block_on(store.shrink_topic(&topic, 1)));
}

/// A partition that is added again is empty and goes on where the one of its number ended, whatever came in between.
pub fn a_partition_that_comes_back_gives_no_offset_twice(factory: &dyn StoreFactory) {
    let mut store = factory.open();
    let topic = filled(store.as_ref());
    if can(block_on(store.shrink_topic(&topic, 1))).is_none() {
        return;
    }
    let at = topic.partition(2);
    for (round, end) in (0..3u64).zip([2, 3, 4]) {
        if round != 1 && factory.keeps_data() {
            store = factory.reopen(store);
        }
        block_on(store.grow_topic(&topic, 3)).unwrap();
        assert_eq!(bounds(store.as_ref(), &at), Bounds { start: end, end });
        assert!(read(store.as_ref(), &at, end, EVERYTHING).is_empty());
        let below = block_on(store.read(&at, end - 1, EVERYTHING));
        assert!(matches!(below, Err(StoreError::OutOfRange { .. })), "{below:?}");
        assert_eq!(append(store.as_ref(), &at, &[TestMessage::new(3, b"c")]), end);
        if round != 0 && factory.keeps_data() {
            store = factory.reopen(store);
        }
        assert_eq!(payloads(&everything(store.as_ref(), &at)), [b"c"]);
        block_on(store.shrink_topic(&topic, 2)).unwrap();
    }
    assert_eq!(payloads(&everything(store.as_ref(), &topic.partition(0))), [b"a", b"b"]);
}

/// A renamed topic is found under its new name alone, as the same one with all it has, by old references too.
pub fn a_renamed_topic_is_the_same_under_another_name(factory: &dyn StoreFactory) {
    let mut store = factory.open();
    let settings = TopicSettings { retention: Some(Some(Duration::from_secs(3_600))), ..TopicSettings::default() };
    let old = block_on(store.create_topic(STREAM, "old", 2, &settings)).unwrap();
    append(store.as_ref(), &old.topic.partition(1), &[TestMessage::new(1, b"a")]);
    let Some(renamed) = can(block_on(store.rename_topic(&old.topic, "new"))) else { return };
    assert_eq!((renamed.topic.stream(), renamed.topic.topic()), (STREAM, "new"));
    append(store.as_ref(), &old.topic.partition(1), &[TestMessage::new(2, b"b")]);
    for reopened in [false, true] {
        if reopened && factory.keeps_data() {
            store = factory.reopen(store);
        }
        assert_eq!(block_on(store.topic(STREAM, "old")).unwrap(), None);
        let found = block_on(store.topic(STREAM, "new")).unwrap().unwrap();
        assert_eq!(found.topic.topic(), "new");
        assert_eq!((&found.topic, found.partitions, &found.settings), (&old.topic, 2, &settings));
        assert_eq!(payloads(&everything(store.as_ref(), &found.topic.partition(1))), [b"a", b"b"]);
    }
    let again = create(store.as_ref(), "old", 1);
    assert_ne!(again.topic, old.topic);
    block_on(store.delete_topic(&old.topic)).unwrap();
    assert_eq!(block_on(store.topic(STREAM, "new")).unwrap(), None);
    assert_eq!(block_on(store.topic(STREAM, "old")).unwrap(), Some(again));
}

/// A renamed stream takes all its topics along, and leaves the name to a new one.
pub fn a_renamed_stream_takes_its_topics_along(factory: &dyn StoreFactory) {
    let mut store = factory.open();
    let topics = ["one", "two"].map(|name| create(store.as_ref(), name, 1).topic);
    append(store.as_ref(), &topics[1].partition(0), &[TestMessage::new(1, b"a")]);
    if can(block_on(store.rename_stream(STREAM, "other"))).is_none() {
        return;
    }
    for reopened in [false, true] {
        if reopened && factory.keeps_data() {
            store = factory.reopen(store);
        }
        for topic in &topics {
            assert_eq!(block_on(store.topic(STREAM, topic.topic())).unwrap(), None);
            let found = block_on(store.topic("other", topic.topic())).unwrap().unwrap();
            assert_eq!((found.topic.stream(), &found.topic), ("other", topic));
        }
        assert_eq!(payloads(&everything(store.as_ref(), &topics[1].partition(0))), [b"a"]);
    }
    let again = create(store.as_ref(), "one", 1).topic;
    assert!(again.stream_id() != topics[0].stream_id() && again != topics[0]);
    block_on(store.rename_stream("nowhere", "anywhere")).unwrap();
}

/// A name that another one has is `Exists`, and nothing changes.
pub fn a_name_that_is_taken_is_given_to_nobody_else(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "one", 1).topic;
    create(store.as_ref(), "two", 1);
    let other = block_on(store.create_topic("other", "one", 1, &TopicSettings::default())).unwrap().topic;
    let taken = block_on(store.rename_topic(&topic, "two"));
    if matches!(taken, Err(StoreError::Unsupported { .. })) {
        return;
    }
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    let taken = block_on(store.rename_stream(STREAM, "other"));
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    assert_eq!(block_on(store.topic(STREAM, "one")).unwrap().unwrap().topic, topic);
    // One that lost its topics is not there any more.
    block_on(store.delete_topic(&other)).unwrap();
    block_on(store.rename_stream(STREAM, "other")).unwrap();
    assert_eq!(block_on(store.topic("other", "one")).unwrap().unwrap().topic, topic);
    not_found(block_on(store.rename_topic(&other, "three")));
}
