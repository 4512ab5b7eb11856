use crate::offsets::CommitPartition;
use crate::offsets::testing::{Desk, ID, part, request, rows, snapshot, topic};
use crate::walk::{GROUPS_PER_SLICE, Walk};
use crate::{CommitRequest, CommitTopic, OffsetConfig, Offsets, Readers, TopicId, TopicKey};

fn loaded_from(records: impl IntoIterator<Item = Vec<u8>>) -> Offsets {
    let mut offsets = Offsets::new(OffsetConfig::default());
    for record in records {
        offsets.replay(&record).unwrap();
    }
    offsets.loaded(crate::Timestamp(0));
    offsets
}

#[test]
fn a_snapshot_makes_an_empty_table_the_same_again() {
    let mut desk = Desk::with(OffsetConfig { foreign_offsets: true, ..OffsetConfig::default() });
    for group in ["a", "b", "c"] {
        let long = CommitPartition { leader_epoch: 2, metadata: Some("m".repeat(4_000).into()), ..part(3, 8) };
        let foreign = CommitTopic { id: None, ..topic("t", vec![part(0, 2)]) };
        let other = CommitTopic { id: Some(TopicId(9)), ..topic("t", vec![part(0, 3)]) };
        let topics = vec![topic("t", vec![part(0, 1), long]), foreign, other, topic("u", vec![part(7, 1)])];
        let token = desk.token();
        let commit = CommitRequest { retention_ms: (group == "a").then_some(5), ..request(group, topics) };
        desk.offsets.commit(token, commit, group == "b", desk.now, &mut desk.out);
        desk.settle_all(true);
        desk.now = desk.now.plus(1_234);
    }
    desk.commit("c", vec![topic("t", vec![part(0, 5)])]);
    desk.offsets.mark("c", false, desk.now, &mut desk.out);
    desk.settle_all(true);
    let again = loaded_from(snapshot(&desk.offsets));
    assert_eq!(rows(&again), desk.rows());
    assert_eq!(again.len(), 15);
}

#[test]
fn a_large_group_is_split_into_records_of_a_bounded_size() {
    let mut desk = Desk::new();
    let metadata: Box<str> = "m".repeat(4_096).into();
    let long = |partition| CommitPartition { metadata: Some(metadata.clone()), ..part(partition, 1) };
    desk.commit(
        "g",
        vec![topic("a", (0..5_000).map(|p| part(p, 1)).collect()), topic("b", (0..200).map(long).collect())],
    );
    let records = snapshot(&desk.offsets);
    assert!(records.len() > 3);
    assert!(records.iter().all(|record| record.len() < 300 << 10));
    assert_eq!(rows(&loaded_from(records)), desk.rows());
}

#[test]
fn a_frozen_table_does_not_change_with_the_live_one() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    let before = desk.rows();
    let frozen = desk.offsets.freeze(&mut Walk::default());
    desk.commit("g", vec![topic("t", vec![part(0, 2), part(1, 2)]), topic("u", vec![part(0, 2)])]);
    assert_eq!(rows(&loaded_from(frozen.records())), before);
    assert_eq!(desk.get("g", "t", 0), Some(2));
}

#[test]
fn what_is_under_way_is_not_in_a_snapshot_but_behind_it() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    desk.send(request("g", vec![topic("t", vec![part(0, 2)])]));
    let mut records = snapshot(&desk.offsets);
    assert_eq!(rows(&loaded_from(records.clone())), desk.rows());
    records.push(desk.out.appends[0].record.clone());
    desk.settle_all(true);
    assert_eq!(rows(&loaded_from(records)), desk.rows());
}

#[test]
fn an_empty_table_needs_no_records() {
    assert!(snapshot(&Desk::new().offsets).is_empty());
}

#[test]
fn what_expires_or_goes_with_its_topic_between_two_slices_stays_gone() {
    let mut desk = Desk::new();
    let groups = 2 * GROUPS_PER_SLICE + 10;
    for n in 0..groups {
        desk.commit(&format!("{n:05}"), vec![topic("kept", vec![part(0, 1)]), topic("deleted", vec![part(0, 1)])]);
    }
    let (mut walk, mut records) = (Walk::default(), Vec::new());
    while !walk.is_over() {
        let before = records.len();
        records.extend(desk.offsets.freeze(&mut walk).records());
        assert!(records.len() - before <= GROUPS_PER_SLICE);
        if before > 0 {
            continue;
        }
        // One group of each slice expires, behind and ahead of where the walk is.
        let late = desk.now.plus(i64::MAX);
        for n in [0, GROUPS_PER_SLICE, groups - 1] {
            desk.offsets.expire(&format!("{n:05}").into(), &Readers::Nobody, late, &mut desk.out);
        }
        desk.offsets.topic_deleted(&TopicKey { name: "deleted".into(), id: ID }, &mut desk.out);
    }
    records.extend(desk.out.appends.iter().map(|append| append.record.clone()));
    desk.settle_all(true);
    assert_eq!(rows(&loaded_from(records)), desk.rows());
    assert_eq!(desk.offsets.len(), groups - 3);
}
