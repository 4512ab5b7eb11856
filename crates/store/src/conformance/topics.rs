//! Topics: create, describe, delete, grow, settings.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::error::StoreError;
use crate::types::Durability;

/// A topic that was created is in the answers to `topic` and `topics`, as created.
pub fn a_created_topic_is_described_and_listed(factory: &dyn StoreFactory) {
    let store = factory.open();
    let created = create(store.as_ref(), "orders", 3);
    assert_eq!((created.topic.stream(), created.topic.topic(), created.partitions), (STREAM, "orders", 3));
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), Some(created.clone()));
    assert!(block_on(store.topics()).unwrap().contains(&created));
    for partition in 0..3 {
        assert_eq!(bounds(store.as_ref(), &created.topic.partition(partition)), Bounds { start: 0, end: 0 });
    }
}

/// Creating what exists is `Exists`, and changes nothing.
pub fn a_topic_that_exists_is_not_created_again(factory: &dyn StoreFactory) {
    let store = factory.open();
    let created = create(store.as_ref(), "orders", 1);
    let again = block_on(store.create_topic(STREAM, "orders", 5, &TopicSettings::default()));
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), Some(created));
}

/// Of several creates of one name at once exactly one succeeds; the others get `Exists`.
pub fn of_concurrent_creates_exactly_one_succeeds(factory: &dyn StoreFactory) {
    const THREADS: usize = 6;
    let store = factory.open();
    for round in 0..5 {
        let (barrier, name) = (Barrier::new(THREADS), format!("raced-{round}"));
        let results: Vec<_> = std::thread::scope(|scope| {
            let create = || {
                barrier.wait();
                block_on(store.create_topic(STREAM, &name, 1, &TopicSettings::default()))
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let others = results.iter().filter(|result| matches!(result, Err(StoreError::Exists { .. }))).count();
        assert_eq!(others, THREADS - 1, "{results:?}");
    }
}

/// A topic that is not there is `None`, in a stream that is there and in one that is not.
pub fn a_missing_topic_is_none(factory: &dyn StoreFactory) {
    let store = factory.open();
    assert_eq!(block_on(store.topic("nowhere", "nothing")).unwrap(), None);
    create(store.as_ref(), "orders", 1);
    assert_eq!(block_on(store.topic(STREAM, "nothing")).unwrap(), None);
}

/// The same topic name in another stream is another topic.
pub fn one_name_in_two_streams_is_two_topics(factory: &dyn StoreFactory) {
    let store = factory.open();
    let first = create(store.as_ref(), "orders", 1).topic;
    let second = block_on(store.create_topic("other", "orders", 1, &TopicSettings::default())).unwrap().topic;
    assert_ne!(first, second);
    append(store.as_ref(), &first.partition(0), &[TestMessage::new(1, b"first")]);
    assert_eq!(bounds(store.as_ref(), &second.partition(0)).end, 0);
}

/// Names are never taken for numbers.
pub fn a_name_of_digits_is_a_name(factory: &dyn StoreFactory) {
    let store = factory.open();
    let orders = create(store.as_ref(), "orders", 1).topic;
    let number = orders.topic_id().to_string();
    assert_eq!(block_on(store.topic(STREAM, &number)).unwrap(), None);
    let digits = create(store.as_ref(), &number, 1).topic;
    assert_ne!(digits, orders);
    assert_eq!(digits.topic(), number);
}

/// More partitions than the engine has room for are `Refused`, and no topic is created.
pub fn too_many_partitions_are_refused(factory: &dyn StoreFactory) {
    let store = factory.open();
    let Some(too_many) = store.capabilities().partitions_max.checked_add(1) else { return };
    let refused = block_on(store.create_topic(STREAM, "wide", too_many, &TopicSettings::default()));
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    assert_eq!(block_on(store.topic(STREAM, "wide")).unwrap(), None);
}

/// Every call with the identity of a deleted topic is `NotFound`.
pub fn a_deleted_topic_is_gone(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    let at = topic.partition(0);
    append(store.as_ref(), &at, &[TestMessage::new(1, b"a")]);
    block_on(store.delete_topic(&topic)).unwrap();
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), None);
    assert!(block_on(store.topics()).unwrap().iter().all(|info| info.topic != topic));
    let not_found =
        |error: Option<StoreError>| assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
    not_found(block_on(store.append(&at, batch_of(&[TestMessage::new(2, b"b")]))).err());
    not_found(block_on(store.read(&at, 0, EVERYTHING)).err());
    not_found(block_on(store.bounds(&at)).err());
    not_found(block_on(store.delete_topic(&topic)).err());
    not_found(block_on(store.grow_topic(&topic, 2)).err());
    not_found(block_on(store.update_settings(&topic, &TopicSettings::default())).err());
}

/// Deleted and created again, a topic is empty and has another identity; the old one does not reach it.
pub fn a_topic_created_again_is_another_and_empty(factory: &dyn StoreFactory) {
    let store = factory.open();
    let old = create(store.as_ref(), "orders", 1).topic;
    append(store.as_ref(), &old.partition(0), &[TestMessage::new(1, b"a")]);
    block_on(store.delete_topic(&old)).unwrap();
    let new = create(store.as_ref(), "orders", 1).topic;
    assert_ne!(old, new);
    assert_eq!(bounds(store.as_ref(), &new.partition(0)), Bounds { start: 0, end: 0 });
    let stale = block_on(store.append(&old.partition(0), batch_of(&[TestMessage::new(2, b"b")])));
    assert!(matches!(stale, Err(StoreError::NotFound { .. })), "{stale:?}");
    let stale = block_on(store.delete_topic(&old));
    assert!(matches!(stale, Err(StoreError::NotFound { .. })), "{stale:?}");
    assert!(block_on(store.topic(STREAM, "orders")).unwrap().is_some());
}

/// Growing keeps what is there and adds empty partitions; growing to what it has is success.
pub fn growing_adds_empty_partitions(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    append(store.as_ref(), &topic.partition(0), &[TestMessage::new(1, b"a")]);
    let grown = block_on(store.grow_topic(&topic, 3)).unwrap();
    assert_eq!((grown.partitions, &grown.topic), (3, &topic));
    assert_eq!(block_on(store.grow_topic(&topic, 3)).unwrap(), grown);
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), Some(grown));
    assert_eq!(payloads(&everything(store.as_ref(), &topic.partition(0))), [b"a"]);
    assert_eq!(append(store.as_ref(), &topic.partition(2), &[TestMessage::new(2, b"b")]), 0);
}

/// Fewer partitions than there are is `Refused`.
pub fn shrinking_is_refused(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 3).topic;
    let refused = block_on(store.grow_topic(&topic, 2));
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap().unwrap().partitions, 3);
}

/// Settings are kept as given at creation, and replaced as a whole.
pub fn settings_are_replaced(factory: &dyn StoreFactory) {
    let store = factory.open();
    let first = full_settings();
    let created = block_on(store.create_topic(STREAM, "orders", 1, &first)).unwrap();
    assert_eq!(created.settings, first);
    let second = TopicSettings { retention: Some(Some(Duration::from_secs(60))), ..TopicSettings::default() };
    let updated = block_on(store.update_settings(&created.topic, &second)).unwrap();
    assert_eq!(updated.settings, second);
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), Some(updated));
}

pub(super) fn full_settings() -> TopicSettings {
    TopicSettings {
        retention: Some(None),
        retention_bytes: Some(Some(1 << 30)),
        segment_bytes: Some(1 << 20),
        segment_age: Some(Duration::from_secs(3_600)),
        keep_forever: true,
        durability: Some(Durability::Interval { every: Duration::from_millis(250), bytes: 1 << 20 }),
        flush_messages: Some(1_000),
        flush_every: Some(Duration::from_secs(5)),
    }
}

/// A partition number behind the last one is `NotFound`.
pub fn a_missing_partition_is_not_found(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    for partition in [2, u32::MAX] {
        let at = topic.partition(partition);
        let error = block_on(store.append(&at, batch_of(&[TestMessage::new(1, b"a")]))).err();
        assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
        let error = block_on(store.bounds(&at)).err();
        assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
        let error = block_on(store.read(&at, 0, EVERYTHING)).err();
        assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
    }
}
