//! Consumer offsets, for engines that offer them to who is no member of a group.

use super::*;
use crate::error::StoreError;
use crate::offsets::OffsetStore;

fn offsets(store: &dyn Store) -> &dyn OffsetStore {
    store.offset_store().expect("an engine with consumer offsets")
}

fn stored(store: &dyn Store, at: &PartitionRef, group: &str) -> Option<u64> {
    block_on(offsets(store).load(at, group)).unwrap()
}

fn keep(store: &dyn Store, at: &PartitionRef, group: &str, offset: u64) {
    block_on(offsets(store).create_group(&at.topic, group)).unwrap();
    block_on(offsets(store).store(at, group, offset)).unwrap();
}

/// The number stored is the number read: 0 on an empty partition, the end, far behind it, and smaller ones after that.
pub fn any_offset_is_kept_as_it_is(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    block_on(offsets(store.as_ref()).create_group(&at.topic, "readers")).unwrap();
    assert_eq!(stored(store.as_ref(), &at, "readers"), None);
    for offset in [0, 1, i64::MAX as u64, 7, 0] {
        block_on(offsets(store.as_ref()).store(&at, "readers", offset)).unwrap();
        assert_eq!(stored(store.as_ref(), &at, "readers"), Some(offset));
    }
}

/// Groups, partitions and topics have offsets of their own, also groups whose names are alike to a short digest.
pub fn offsets_of_groups_and_partitions_are_apart(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    let other = create(store.as_ref(), "bills", 1).topic;
    // Iggy hashes names of consumers to 32 bits, and these two to the same.
    let groups = ["group-79597", "group-238340", "7", "a/b %."];
    let ats = [topic.partition(0), topic.partition(1), other.partition(0)];
    for (number, (group, at)) in groups.iter().flat_map(|group| ats.iter().map(move |at| (group, at))).enumerate() {
        keep(store.as_ref(), at, group, number as u64);
    }
    for (number, (group, at)) in groups.iter().flat_map(|group| ats.iter().map(move |at| (group, at))).enumerate() {
        assert_eq!(stored(store.as_ref(), at, group), Some(number as u64), "{group} {at:?}");
    }
}

/// An offset that was taken away is gone, others stay; taking away what is not there is success.
pub fn an_offset_is_taken_away_alone(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 2).topic;
    keep(store.as_ref(), &topic.partition(0), "readers", 3);
    keep(store.as_ref(), &topic.partition(1), "readers", 4);
    for _ in 0..2 {
        block_on(offsets(store.as_ref()).forget(&topic.partition(0), "readers")).unwrap();
    }
    block_on(offsets(store.as_ref()).forget(&topic.partition(0), "nobody")).unwrap();
    assert_eq!(stored(store.as_ref(), &topic.partition(0), "readers"), None);
    assert_eq!(stored(store.as_ref(), &topic.partition(1), "readers"), Some(4));
}

/// Groups are created, listed and deleted; what is there is created, and what is not there deleted, with success.
pub fn groups_come_and_go(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    let offsets = offsets(store.as_ref());
    for group in ["readers", "readers", "writers"] {
        block_on(offsets.create_group(&topic, group)).unwrap();
    }
    let mut groups = block_on(offsets.groups(&topic)).unwrap();
    groups.sort();
    assert_eq!(groups, ["readers", "writers"]);
    assert_eq!(block_on(offsets.has_group(&topic, "readers")), Ok(true));
    for _ in 0..2 {
        block_on(offsets.delete_group(&topic, "readers")).unwrap();
    }
    assert_eq!(block_on(offsets.has_group(&topic, "readers")), Ok(false));
    assert_eq!(block_on(offsets.groups(&topic)).unwrap(), ["writers"]);
}

/// A group that was deleted and created again has no offsets.
pub fn a_group_created_again_has_no_offsets(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    keep(store.as_ref(), &at, "readers", 3);
    block_on(offsets(store.as_ref()).delete_group(&at.topic, "readers")).unwrap();
    assert_eq!(stored(store.as_ref(), &at, "readers"), None);
    block_on(offsets(store.as_ref()).create_group(&at.topic, "readers")).unwrap();
    assert_eq!(stored(store.as_ref(), &at, "readers"), None);
}

/// A topic that was deleted and created again has neither groups nor offsets, and what is said of the old one does not
/// reach the new one.
pub fn a_topic_created_again_inherits_no_offsets(factory: &dyn StoreFactory) {
    let store = factory.open();
    let old = single(store.as_ref());
    keep(store.as_ref(), &old, "readers", 3);
    block_on(store.delete_topic(&old.topic)).unwrap();
    let new = single(store.as_ref());
    assert!(block_on(offsets(store.as_ref()).groups(&new.topic)).unwrap().is_empty());
    let offsets = offsets(store.as_ref());
    let results = [
        block_on(offsets.store(&old, "readers", 4)),
        block_on(offsets.create_group(&old.topic, "readers")),
        block_on(offsets.load(&old, "readers")).map(|_| ()),
    ];
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::NotFound { .. }))), "{results:?}");
    block_on(offsets.forget(&old, "readers")).unwrap();
    assert_eq!(stored(store.as_ref(), &new, "readers"), None);
}

/// A partition that is not there has no offset to store.
pub fn an_offset_of_a_missing_partition_is_not_found(factory: &dyn StoreFactory) {
    let store = factory.open();
    let topic = create(store.as_ref(), "orders", 1).topic;
    let offsets = offsets(store.as_ref());
    block_on(offsets.create_group(&topic, "readers")).unwrap();
    let result = block_on(offsets.store(&topic.partition(1), "readers", 0));
    assert!(matches!(result, Err(StoreError::NotFound { .. })), "{result:?}");
}

/// The longest name of a group works, and one byte more is refused.
pub fn names_of_groups_have_a_longest(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    let longest = "g".repeat(offsets(store.as_ref()).group_bytes_max());
    keep(store.as_ref(), &at, &longest, 1);
    assert_eq!(stored(store.as_ref(), &at, &longest), Some(1));
    let longer = block_on(offsets(store.as_ref()).create_group(&at.topic, &format!("{longest}g")));
    assert!(matches!(longer, Err(StoreError::Refused { .. })), "{longer:?}");
}

/// Groups and offsets are there again after a reopen.
pub fn offsets_survive_a_reopen(factory: &dyn StoreFactory) {
    let store = factory.open();
    let at = single(store.as_ref());
    keep(store.as_ref(), &at, "readers", 3);
    if !factory.keeps_data() {
        return;
    }
    let store = factory.reopen(store);
    assert_eq!(stored(store.as_ref(), &at, "readers"), Some(3));
    assert_eq!(block_on(offsets(store.as_ref()).groups(&at.topic)).unwrap(), ["readers"]);
}
