//! Close, reopen, crash.

use super::topics::full_settings;
use super::*;
use crate::epochs::Epochs;
use crate::error::StoreError;
use crate::types::TopicRef;

fn filled(store: &dyn Store) -> TopicRef {
    let topic = create(store, "orders", 3).topic;
    for partition in 0..2 {
        let at = topic.partition(partition);
        append_each(store, &at, (0..50u8).map(|number| vec![number; 1 + usize::from(number) * 40]));
        append(store, &at, &[TestMessage::new(7, b"timed").at(1_000_000)]);
    }
    topic
}

fn contents(store: &dyn Store, topic: &TopicRef) -> Vec<Vec<(u64, TestMessage)>> {
    (0..3).map(|partition| everything(store, &topic.partition(partition))).collect()
}

/// Topics, identities, messages and append times are the same after a reopen.
pub fn a_reopened_store_has_everything(factory: &dyn StoreFactory) {
    if !factory.keeps_data() {
        return;
    }
    let store = factory.open();
    let topic = filled(store.as_ref());
    let before = contents(store.as_ref(), &topic);
    let info = block_on(store.topic(STREAM, "orders")).unwrap();
    let times = |store: &dyn Store| -> Vec<u64> {
        let entries = read(store, &topic.partition(0), 0, EVERYTHING);
        entries.iter().map(|entry| entry.append_time_micros).collect()
    };
    let times_before = times(store.as_ref());
    let mut store = store;
    for _ in 0..2 {
        store = factory.reopen(store);
        assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), info);
        assert_eq!(contents(store.as_ref(), &topic), before);
        assert_eq!(times(store.as_ref()), times_before);
    }
}

/// Appends after a reopen go on behind what is there, and no offset is given twice.
pub fn a_reopened_store_goes_on_at_the_same_offsets(factory: &dyn StoreFactory) {
    if !factory.keeps_data() {
        return;
    }
    let mut store = factory.open();
    let at = single(store.as_ref());
    for round in 0..4u8 {
        let end = bounds(store.as_ref(), &at).end;
        assert_eq!(append(store.as_ref(), &at, &[TestMessage::new(1, &[round]), TestMessage::new(1, &[round])]), end);
        assert_eq!(end, u64::from(round) * 2);
        store = factory.reopen(store);
    }
    let expected: Vec<Vec<u8>> = [0, 0, 1, 1, 2, 2, 3, 3].iter().map(|round| vec![*round]).collect();
    assert_eq!(payloads(&everything(store.as_ref(), &at)), expected);
}

/// The epoch of a partition rises only when its end moves back: not by appends, trims, growth of the topic or a reopen.
pub fn no_epoch_ends_while_nothing_is_lost(factory: &dyn StoreFactory) {
    let mut store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    let at = topic.partition(0);
    append(store.as_ref(), &at, &[TestMessage::new(1, b"a"), TestMessage::new(2, b"b")]);
    if store.capabilities().trims {
        block_on(store.trim(&at, 2)).unwrap();
    }
    block_on(store.grow_topic(&topic, 2)).unwrap();
    if factory.keeps_data() {
        store = factory.reopen(store);
    }
    append(store.as_ref(), &at, &[TestMessage::new(3, b"c")]);
    for partition in 0..2 {
        bounds(store.as_ref(), &topic.partition(partition));
        assert_eq!(store.epochs(&topic.partition(partition)), Epochs::default());
    }
}

/// A topic that was deleted stays deleted.
pub fn a_deletion_survives_a_reopen(factory: &dyn StoreFactory) {
    if !factory.keeps_data() {
        return;
    }
    let store = factory.open();
    let topic = filled(store.as_ref());
    create(store.as_ref(), "kept", 1);
    block_on(store.delete_topic(&topic)).unwrap();
    let store = factory.reopen(store);
    assert_eq!(block_on(store.topic(STREAM, "orders")).unwrap(), None);
    assert!(block_on(store.topic(STREAM, "kept")).unwrap().is_some());
    let error = block_on(store.bounds(&topic.partition(0))).err();
    assert!(matches!(error, Some(StoreError::NotFound { .. })), "{error:?}");
}

/// Identities are not given twice, although the engine was closed between deletion and creation.
pub fn a_topic_created_again_after_a_reopen_is_another(factory: &dyn StoreFactory) {
    if !factory.keeps_data() {
        return;
    }
    let store = factory.open();
    let old = filled(store.as_ref());
    block_on(store.delete_topic(&old)).unwrap();
    let store = factory.reopen(store);
    let new = create(store.as_ref(), "orders", 3).topic;
    assert_ne!(old, new);
    assert_eq!(bounds(store.as_ref(), &new.partition(0)), Bounds { start: 0, end: 0 });
}

/// Partitions that were added and settings that were changed are durable.
pub fn growth_and_settings_survive_a_reopen(factory: &dyn StoreFactory) {
    if !factory.keeps_data() {
        return;
    }
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    block_on(store.grow_topic(&topic, 4)).unwrap();
    block_on(store.update_settings(&topic, &full_settings())).unwrap();
    let store = factory.reopen(store);
    let info = block_on(store.topic(STREAM, "orders")).unwrap().unwrap();
    assert_eq!((info.partitions, info.settings), (4, full_settings()));
    assert_eq!(append(store.as_ref(), &topic.partition(3), &[TestMessage::new(1, b"a")]), 0);
}

/// After `close` every call is `Closed`, and closing again is no harm.
pub fn a_closed_store_refuses(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    append(store.as_ref(), &at, &[TestMessage::new(1, b"a")]);
    block_on(store.close()).unwrap();
    let closed = |error: Option<StoreError>| assert_eq!(error, Some(StoreError::Closed));
    closed(block_on(store.append(&at, batch_of(&[TestMessage::new(2, b"b")]))).err());
    closed(block_on(store.read(&at, 0, EVERYTHING)).err());
    closed(block_on(store.create_topic(STREAM, "late", 1, &TopicSettings::default())).err());
    let _ = block_on(store.close());
}

/// Every acknowledged append, creation, trim and deletion is there after a crash, and nothing is there twice.
pub fn what_was_acknowledged_survives_a_crash(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = filled(store.as_ref());
    let gone = create(store.as_ref(), "gone", 1).topic;
    block_on(store.delete_topic(&gone)).unwrap();
    let trims = store.capabilities().trims;
    if trims {
        block_on(store.trim(&topic.partition(1), 7)).unwrap();
    }
    let before = contents(store.as_ref(), &topic);
    let Some(store) = factory.crash(store) else { return };
    assert_eq!(contents(store.as_ref(), &topic), before);
    assert_eq!(bounds(store.as_ref(), &topic.partition(1)).start, if trims { 7 } else { 0 });
    assert_eq!(block_on(store.topic(STREAM, "gone")).unwrap(), None);
    let end = bounds(store.as_ref(), &topic.partition(0)).end;
    assert_eq!(append(store.as_ref(), &topic.partition(0), &[TestMessage::new(1, b"after")]), end);
}
