use super::*;
use crate::offsets::testing::{Desk, ID, part, request, topic};
use crate::{OffsetConfig, Ticket};

#[test]
fn a_commit_is_neither_answered_nor_visible_before_it_is_durable() {
    let mut desk = Desk::new();
    let token = desk.send(request("g", vec![topic("t", vec![part(0, 5)])]));
    assert_eq!(desk.answer(token), None);
    assert_eq!(desk.get("g", "t", 0), None);
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), Some(5));
}

#[test]
fn a_commit_that_the_store_did_not_take_changes_nothing_and_is_refused_whole() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 5)])]);
    let token = desk.send(request("g", vec![topic("t", vec![part(0, 6), part(1, 6)])]));
    desk.settle_all(false);
    assert_eq!(desk.committed(token), [Err(GroupError::StoreFailed); 2]);
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1)), (Some(5), None));
}

#[test]
fn answers_and_changes_keep_the_order_of_the_records_whatever_the_order_of_settling() {
    let mut desk = Desk::new();
    let first = desk.send(request("g", vec![topic("t", vec![part(0, 1)])]));
    let second = desk.send(request("g", vec![topic("t", vec![part(0, 2)])]));
    let appends: Vec<_> = desk.out.appends.drain(..).collect();
    let [a, b] = appends.try_into().unwrap();
    desk.settle(b, true);
    assert_eq!(desk.answer(second), None);
    assert_eq!(desk.get("g", "t", 0), None);
    desk.settle(a, true);
    assert_eq!(desk.committed(first), [Ok(())]);
    assert_eq!(desk.committed(second), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), Some(2));
}

#[test]
fn settling_twice_or_what_is_not_under_way_is_harmless() {
    let mut desk = Desk::new();
    let token = desk.send(request("g", vec![topic("t", vec![part(0, 1)])]));
    let append = desk.out.appends.remove(0);
    desk.offsets.settled(Ticket(99), true, &mut desk.out);
    desk.settle(append.clone(), false);
    desk.settle(append, true);
    assert_eq!(desk.committed(token), [Err(GroupError::StoreFailed)]);
    assert_eq!(desk.get("g", "t", 0), None);
}

#[test]
fn one_request_is_one_record() {
    let mut desk = Desk::new();
    desk.send(request("g", vec![topic("t", vec![part(0, 1), part(1, 1)]), topic("u", vec![part(0, 1)])]));
    assert_eq!(desk.out.appends.len(), 1);
}

#[test]
fn an_unknown_topic_or_partition_is_refused_and_the_others_are_stored() {
    let mut desk = Desk::new();
    let unknown = CommitTopic { id: None, ..topic("x", vec![part(0, 1), part(1, 1)]) };
    let no_such = CommitPartition { exists: false, ..part(9, 1) };
    let results = desk.commit("g", vec![unknown, topic("t", vec![no_such, part(0, 1), part(-1, 1)])]);
    let refused = Err(GroupError::UnknownTopicOrPartition);
    assert_eq!(results, [refused, refused, refused, Ok(()), refused]);
    assert_eq!(desk.rows().len(), 1);
}

#[test]
fn foreign_offsets_are_stored_where_they_are_allowed() {
    let mut desk = Desk::with(OffsetConfig { foreign_offsets: true, ..OffsetConfig::default() });
    let unknown = CommitTopic { id: None, ..topic("x", vec![part(0, 1), part(-1, 1)]) };
    let no_such = CommitPartition { exists: false, ..part(9, 2) };
    let results = desk.commit("g", vec![unknown, topic("t", vec![no_such])]);
    assert_eq!(results, [Ok(()), Err(GroupError::UnknownTopicOrPartition), Ok(())]);
    let view = desk.offsets.view("g").unwrap();
    assert_eq!(view.get("x", TopicId::FOREIGN, 0).map(Committed::offset), Some(1));
    assert_eq!(view.get("x", ID, 0), None, "a topic that is created later inherits nothing");
    assert_eq!(desk.get("g", "t", 9), Some(2));
}

#[test]
fn metadata_is_kept_byte_for_byte_up_to_its_bound_in_utf_16_units() {
    let mut desk = Desk::new();
    let with =
        |partition, metadata: &str| CommitPartition { metadata: Some(Box::from(metadata)), ..part(partition, 1) };
    let (fits, long) = ("ä".repeat(4_096), "a".repeat(4_097));
    // Two units each, four bytes each.
    let (pairs_fit, pairs_long) = ("😀".repeat(2_048), "😀".repeat(2_048) + "a");
    let asked = vec![with(0, &fits), with(1, &long), with(2, &pairs_fit), with(3, &pairs_long)];
    let too_large = Err(GroupError::OffsetMetadataTooLarge { max: 4_096 });
    assert_eq!(desk.commit("g", vec![topic("t", asked)]), [Ok(()), too_large, Ok(()), too_large]);
    let view = desk.offsets.view("g").unwrap();
    assert_eq!(view.get("t", ID, 0).unwrap().metadata(), fits);
    assert_eq!(view.get("t", ID, 2).unwrap().metadata(), pairs_fit);
}

#[test]
fn missing_metadata_comes_back_as_an_empty_text() {
    let mut desk = Desk::new();
    let empty = CommitPartition { metadata: Some(Box::from("")), ..part(1, 1) };
    desk.commit("g", vec![topic("t", vec![part(0, 1), empty])]);
    for partition in [0, 1] {
        assert_eq!(desk.offsets.view("g").unwrap().get("t", ID, partition).unwrap().metadata(), "");
    }
}

#[test]
fn the_leader_epoch_is_kept_and_any_negative_one_is_none() {
    let mut desk = Desk::new();
    let with = |partition, leader_epoch| CommitPartition { leader_epoch, ..part(partition, 1) };
    desk.commit("g", vec![topic("t", vec![with(0, 3), with(1, -1), with(2, -9)])]);
    let epoch = |p| desk.offsets.view("g").unwrap().get("t", ID, p).unwrap().leader_epoch();
    assert_eq!((epoch(0), epoch(1), epoch(2)), (3, -1, -1));
}

#[test]
fn any_offset_from_zero_on_is_stored_and_commits_may_go_backwards() {
    let mut desk = Desk::new();
    for offset in [0, i64::MAX, 10, 9, 0] {
        assert_eq!(desk.commit("g", vec![topic("t", vec![part(0, offset)])]), [Ok(())]);
        assert_eq!(desk.get("g", "t", 0), Some(offset));
    }
}

#[test]
fn minus_two_takes_the_offset_away_as_a_reset_to_the_beginning_of_kafkajs_sends_it() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 5), part(1, 6)])]);
    assert_eq!(desk.commit("g", vec![topic("t", vec![part(0, -2), part(2, -2)])]), [Ok(()); 2]);
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1), desk.get("g", "t", 2)), (None, Some(6), None));
    assert_eq!(desk.restarted().get("g", "t", 0), None, "it stays away");
}

#[test]
fn minus_one_takes_the_offset_away_and_those_without_a_meaning_are_refused() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1), part(1, 1)])]);
    let results = desk.commit("g", vec![topic("t", vec![part(0, -1), part(1, -3), part(2, -1), part(3, i64::MIN)])]);
    let refused = Err(GroupError::OffsetOutOfRange);
    assert_eq!(results, [Ok(()), refused, Ok(()), refused]);
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1)), (None, Some(1)));
    assert_eq!(desk.rows().len(), 1, "a fetch of everything does not list it");
}

#[test]
fn a_partition_that_is_named_twice_has_two_answers_and_the_last_one_wins() {
    let mut desk = Desk::new();
    let results = desk.commit("g", vec![topic("t", vec![part(0, 1), part(0, 2)]), topic("t", vec![part(0, 3)])]);
    assert_eq!(results, [Ok(()); 3]);
    assert_eq!(desk.get("g", "t", 0), Some(3));
    assert_eq!(desk.restarted().get("g", "t", 0), Some(3));
}

#[test]
fn a_request_with_nothing_to_store_is_answered_at_once_without_a_record() {
    let mut desk = Desk::new();
    let token = desk.send(request("g", Vec::new()));
    assert_eq!(desk.committed(token), []);
    let token = desk.send(request("g", vec![topic("t", vec![part(0, -7)])]));
    assert_eq!(desk.committed(token), [Err(GroupError::OffsetOutOfRange)]);
    assert!(desk.out.is_empty());
}

#[test]
fn the_empty_group_id_commits_like_any_other() {
    let mut desk = Desk::new();
    desk.commit("", vec![topic("t", vec![part(0, 4)])]);
    assert_eq!(desk.get("", "t", 0), Some(4));
}

#[test]
fn nothing_is_committed_or_read_while_the_table_loads() {
    let mut desk = Desk::new();
    desk.offsets.reset();
    let token = desk.send(request("g", vec![topic("t", vec![part(0, 1), part(1, 1)])]));
    assert_eq!(desk.committed(token), [Err(GroupError::Loading); 2]);
    assert!(desk.offsets.view("g").is_err());
    desk.offsets.loaded(desk.now);
    assert!(desk.offsets.view("g").unwrap().is_empty());
}

#[test]
fn requests_under_way_are_bounded() {
    let mut desk = Desk::with(OffsetConfig { in_flight_max: 2, ..OffsetConfig::default() });
    let one = || request("g", vec![topic("t", vec![part(0, 1)])]);
    let (a, b, c) = (desk.send(one()), desk.send(one()), desk.send(one()));
    assert_eq!(desk.committed(c), [Err(GroupError::TooManyInFlight { max: 2 })]);
    desk.settle_all(true);
    assert_eq!((desk.committed(a), desk.committed(b)), (vec![Ok(())], vec![Ok(())]));
}

#[test]
fn a_record_is_bounded() {
    let mut desk = Desk::with(OffsetConfig { record_bytes_max: 40, ..OffsetConfig::default() });
    assert_eq!(desk.commit("g", vec![topic("t", vec![part(0, 1)])]), [Ok(())]);
    let long = (0..10).map(|p| part(p, 1)).chain([part(0, -5)]).collect();
    let results = desk.commit("g", vec![topic("t", long)]);
    assert!(results[..10].iter().all(|r| matches!(r, Err(GroupError::CommitTooLarge { max: 40, .. }))));
    assert_eq!(results[10], Err(GroupError::OffsetOutOfRange));
}

#[test]
fn stored_offsets_are_bounded_and_old_ones_can_still_be_moved() {
    let mut desk = Desk::with(OffsetConfig { offsets_max: 2, ..OffsetConfig::default() });
    let first = desk.send(request("g", vec![topic("t", vec![part(0, 1), part(1, 1)])]));
    // What is under way counts.
    let second = desk.send(request("h", vec![topic("t", vec![part(0, 1)])]));
    assert_eq!(desk.committed(second), [Err(GroupError::TooManyOffsets { max: 2 })]);
    desk.settle_all(true);
    assert_eq!(desk.committed(first), [Ok(()); 2]);
    let results = desk.commit("g", vec![topic("t", vec![part(0, 2), part(2, 2), part(1, 2)])]);
    assert_eq!(results, [Ok(()), Err(GroupError::TooManyOffsets { max: 2 }), Ok(())]);
    assert_eq!(desk.commit("g", vec![topic("t", vec![part(5, -1)])]), [Ok(())]);
}

#[test]
fn another_incarnation_of_a_topic_inherits_nothing() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 5)])]);
    let view = desk.offsets.view("g").unwrap();
    assert_eq!(view.get("t", TopicId(8), 0), None);
    assert_eq!(view.get("u", ID, 0), None);
}

fn conditional(partition: i32, offset: i64, expected: i64) -> CommitPartition {
    CommitPartition { expected: Some(expected), ..part(partition, offset) }
}

#[test]
fn a_conditional_commit_stores_only_on_what_it_expects_and_tells_what_is_there() {
    let mut desk = Desk::new();
    let mut set = |offset, expected| desk.commit("g", vec![topic("t", vec![conditional(0, offset, expected)])])[0];
    assert_eq!(set(5, 4), Err(GroupError::OffsetMismatch { stored: -1 }));
    assert_eq!(set(5, -1), Ok(()));
    assert_eq!(set(6, -1), Err(GroupError::OffsetMismatch { stored: 5 }));
    assert_eq!(set(6, 5), Ok(()));
    assert_eq!(set(-1, 5), Err(GroupError::OffsetMismatch { stored: 6 }));
    assert_eq!(set(-1, 6), Ok(()));
    assert_eq!(set(7, -1), Ok(()));
    assert_eq!(set(8, -2), Err(GroupError::OffsetMismatch { stored: 7 }));
}

#[test]
fn a_mismatch_stores_nothing_there_and_everything_else() {
    let mut desk = Desk::new();
    let results = desk.commit("g", vec![topic("t", vec![conditional(0, 5, 3), conditional(1, 5, -1), part(2, 5)])]);
    assert_eq!(results, [Err(GroupError::OffsetMismatch { stored: -1 }), Ok(()), Ok(())]);
    assert_eq!(desk.rows().len(), 2);
}

#[test]
fn a_condition_sees_what_its_own_request_said_before() {
    let mut desk = Desk::new();
    let twice =
        vec![conditional(0, 5, -1), conditional(0, 6, 5), conditional(0, 7, 5), part(1, 1), conditional(1, 2, 1)];
    let mismatch = Err(GroupError::OffsetMismatch { stored: 6 });
    assert_eq!(desk.commit("g", vec![topic("t", twice)]), [Ok(()), Ok(()), mismatch, Ok(()), Ok(())]);
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1)), (Some(6), Some(2)));
}

#[test]
fn of_two_conditional_commits_at_once_one_wins() {
    let mut desk = Desk::new();
    let a = desk.send(request("g", vec![topic("t", vec![conditional(0, 1, -1)])]));
    let b = desk.send(request("g", vec![topic("t", vec![conditional(0, 2, -1)])]));
    assert_eq!(desk.out.appends.len(), 1, "the second waits for the first");
    desk.settle_all(true);
    assert_eq!(desk.committed(a), [Ok(())]);
    assert_eq!(desk.committed(b), [Err(GroupError::OffsetMismatch { stored: 1 })]);
}

#[test]
fn a_conditional_commit_does_not_trust_what_the_store_then_refuses() {
    let mut desk = Desk::new();
    let a = desk.send(request("g", vec![topic("t", vec![conditional(0, 1, -1)])]));
    let b = desk.send(request("g", vec![topic("t", vec![conditional(0, 2, -1)])]));
    let append = desk.out.appends.remove(0);
    desk.settle(append, false);
    desk.settle_all(true);
    assert_eq!(desk.committed(a), [Err(GroupError::StoreFailed)]);
    assert_eq!(desk.committed(b), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), Some(2));
}

#[test]
fn what_a_group_commits_behind_a_waiting_request_keeps_its_place() {
    let mut desk = Desk::new();
    desk.send(request("g", vec![topic("t", vec![part(0, 1)])]));
    desk.send(request("g", vec![topic("t", vec![conditional(0, 2, 1)])]));
    let last = desk.send(request("g", vec![topic("t", vec![part(0, 3)])]));
    let other = desk.send(request("h", vec![topic("t", vec![part(0, 9)])]));
    assert_eq!(desk.out.appends.len(), 2, "other groups do not wait");
    desk.settle_all(true);
    assert_eq!(desk.committed(last), [Ok(())]);
    assert_eq!(desk.committed(other), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), Some(3));
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn a_restart_brings_back_every_offset_with_all_that_belongs_to_it() {
    let mut desk = Desk::new();
    let full = CommitPartition { leader_epoch: 4, metadata: Some(Box::from("m")), ..part(0, 5) };
    let token = desk.token();
    let commit = CommitRequest { retention_ms: Some(60_000), ..request("g", vec![topic("t", vec![full, part(1, 6)])]) };
    desk.offsets.commit(token, commit, true, desk.now, &mut desk.out);
    desk.settle_all(true);
    desk.now = desk.now.plus(5);
    desk.commit("h", vec![topic("t", vec![part(0, 7)])]);
    let restarted = desk.restarted();
    assert_eq!(restarted.rows(), desk.rows());
    let value = restarted.offsets.view("g").unwrap().get("t", ID, 0).unwrap().clone();
    assert_eq!((value.offset(), value.leader_epoch(), value.metadata()), (5, 4, "m"));
    assert_eq!((value.commit_time(), value.expires()), (Timestamp(1_000_000), Some(Timestamp(1_060_000))));
}

#[test]
fn a_conditional_commit_waits_for_everything_that_its_group_has_under_way() {
    let mut desk = Desk::new();
    desk.send(request("g", vec![topic("t", vec![part(0, 1)])]));
    desk.send(request("g", vec![topic("t", vec![part(0, 2)])]));
    let token = desk.send(request("g", vec![topic("t", vec![conditional(0, 3, 2)])]));
    let first = desk.out.appends.remove(0);
    desk.settle(first, true);
    assert_eq!(desk.answer(token), None, "the second commit is still under way");
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
}
