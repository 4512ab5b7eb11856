use std::collections::HashSet;

use super::*;
use crate::offsets::testing::{Desk, ID, part, topic, topics};
use crate::{OffsetConfig, TopicId};

fn delete(desk: &mut Desk, topic: &str, partitions: &[i32], readers: &Readers) -> Answer {
    let token = desk.token();
    let topics = vec![DeletePartitions { name: Arc::from(topic), partitions: partitions.to_vec() }];
    let request = DeleteRequest { group: Arc::from("g"), topics };
    desk.offsets.delete_offsets(token, &request, readers, &mut desk.out);
    desk.settle_all(true);
    desk.answer(token).unwrap()
}

fn filled() -> Desk {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1), part(1, 1)]), topic("u", vec![part(0, 1)])]);
    desk.commit("h", vec![topic("t", vec![part(0, 1)])]);
    desk
}

fn reading(topics: &[&str]) -> Option<HashSet<String>> {
    Some(topics.iter().map(|t| (*t).to_owned()).collect())
}

#[test]
fn offsets_that_nobody_reads_are_deleted_and_absent_ones_count_as_deleted() {
    let mut desk = filled();
    let answer = delete(&mut desk, "t", &[1, 5], &Readers::Nobody);
    assert_eq!(answer, Answer::DeleteOffsets(Ok(vec![Ok(()), Ok(())])));
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1), desk.get("h", "t", 0)), (Some(1), None, Some(1)));
    let answer = delete(&mut desk, "nothing", &[0], &Readers::Nobody);
    assert_eq!(answer, Answer::DeleteOffsets(Ok(vec![Ok(())])));
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn offsets_of_a_topic_that_a_member_reads_are_kept() {
    for readers in [Readers::Settled(reading(&["t"])), Readers::Unsettled(reading(&["t"])), Readers::Settled(None)] {
        let mut desk = filled();
        let answer = delete(&mut desk, "t", &[0, 1], &readers);
        assert_eq!(answer, Answer::DeleteOffsets(Ok(vec![Err(GroupError::SubscribedToTopic); 2])));
        assert_eq!(desk.get("g", "t", 0), Some(1));
    }
    let mut desk = filled();
    let answer = delete(&mut desk, "u", &[0], &Readers::Settled(reading(&["t"])));
    assert_eq!(answer, Answer::DeleteOffsets(Ok(vec![Ok(())])));
    assert_eq!(desk.get("g", "u", 0), None);
}

#[test]
fn offsets_of_a_group_whose_members_are_no_consumers_are_kept() {
    let mut desk = filled();
    let answer = delete(&mut desk, "t", &[0], &Readers::Others);
    assert_eq!(answer, Answer::DeleteOffsets(Err(GroupError::NonEmptyGroup)));
}

#[test]
fn a_deletion_that_does_not_fit_into_one_record_is_refused() {
    let answered = |record_bytes_max| {
        let mut desk = Desk::with(OffsetConfig { record_bytes_max, ..OffsetConfig::default() });
        desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
        let answer = delete(&mut desk, "t", &(0..50).collect::<Vec<_>>(), &Readers::Nobody);
        (answer, desk.get("g", "t", 0))
    };
    // Version, kind, group, topics, name and id of the topic, partitions, and a byte for each of them.
    let bytes = 1 + 1 + 2 + 1 + 2 + 16 + 1 + 50;
    assert_eq!(answered(bytes), (Answer::DeleteOffsets(Ok(vec![Ok(()); 50])), None));
    let error = GroupError::CommitTooLarge { bytes, max: bytes - 1 };
    assert_eq!(answered(bytes - 1), (Answer::DeleteOffsets(Err(error)), Some(1)));
}

#[test]
fn a_deletion_comes_behind_the_commits_before_it() {
    let mut desk = Desk::new();
    desk.send(crate::offsets::testing::request("g", vec![topic("t", vec![part(0, 1)])]));
    delete(&mut desk, "t", &[0], &Readers::Nobody);
    assert_eq!(desk.get("g", "t", 0), None);
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn a_group_is_deleted_with_all_its_offsets_once_that_is_durable() {
    let mut desk = filled();
    let token = desk.token();
    desk.offsets.delete_group(token, "g", &mut desk.out);
    assert_eq!(desk.answer(token), None);
    assert_eq!(desk.get("g", "t", 0), Some(1));
    desk.settle_all(true);
    assert_eq!(desk.answer(token), Some(Answer::DeleteGroup(Ok(()))));
    assert!(!desk.offsets.has_rows("g"));
    assert_eq!((desk.offsets.len(), desk.restarted().offsets.len()), (1, 1));
}

#[test]
fn a_deletion_that_the_store_did_not_take_deletes_nothing() {
    let mut desk = filled();
    let token = desk.token();
    desk.offsets.delete_group(token, "g", &mut desk.out);
    desk.settle_all(false);
    assert_eq!(desk.answer(token), Some(Answer::DeleteGroup(Err(GroupError::StoreFailed))));
    assert!(desk.offsets.has_rows("g"));
}

#[test]
fn deletions_wait_for_loading_and_are_bounded() {
    let mut desk = Desk::with(OffsetConfig { in_flight_max: 0, ..OffsetConfig::default() });
    let token = desk.token();
    desk.offsets.delete_group(token, "g", &mut desk.out);
    let full = GroupError::TooManyInFlight { max: 0 };
    assert_eq!(desk.answer(token), Some(Answer::DeleteGroup(Err(full))));
    assert_eq!(delete(&mut desk, "t", &[0], &Readers::Nobody), Answer::DeleteOffsets(Err(full)));
    desk.offsets.reset();
    assert_eq!(delete(&mut desk, "t", &[0], &Readers::Nobody), Answer::DeleteOffsets(Err(GroupError::Loading)));
}

#[test]
fn the_offsets_of_a_deleted_topic_are_gone_at_once_and_after_a_restart() {
    let mut desk = filled();
    let key = TopicKey { name: Arc::from("t"), id: ID };
    desk.offsets.topic_deleted(&key, &mut desk.out);
    assert_eq!((desk.get("g", "t", 0), desk.get("h", "t", 0), desk.get("g", "u", 0)), (None, None, Some(1)));
    assert!(!desk.offsets.has_rows("h"), "nothing else was in there");
    desk.settle_all(true);
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn a_commit_under_way_does_not_bring_a_deleted_topic_back() {
    let mut desk = Desk::new();
    let token = desk.send(crate::offsets::testing::request("g", vec![topic("t", vec![part(0, 1)])]));
    desk.offsets.topic_deleted(&TopicKey { name: Arc::from("t"), id: ID }, &mut desk.out);
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), None);
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn the_topics_that_offsets_are_of_can_be_compared_with_those_that_exist() {
    let desk = filled();
    let names: Vec<_> = topics(&desk.offsets).iter().map(|key| (key.name.to_string(), key.id)).collect();
    assert_eq!(names, [("t".to_owned(), TopicId(7)), ("u".to_owned(), TopicId(7))]);
}

fn key(name: &str) -> TopicKey {
    TopicKey { name: Arc::from(name), id: ID }
}

/// A desk with room for one record, which a commit of `u` takes.
fn full() -> (Desk, Token) {
    let mut desk = Desk::with(OffsetConfig { restart_grace_ms: 0, in_flight_max: 1, ..OffsetConfig::default() });
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    let token = desk.send(crate::offsets::testing::request("h", vec![topic("u", vec![part(0, 2)])]));
    (desk, token)
}

#[test]
fn a_topic_that_is_deleted_while_too_much_is_under_way_does_not_come_back_with_a_restart() {
    let (mut desk, _) = full();
    desk.offsets.topic_deleted(&key("t"), &mut desk.out);
    assert_eq!((desk.get("g", "t", 0), desk.out.appends.len()), (None, 1), "gone at once, and there was no room");
    desk.settle_all(true);
    assert_eq!((desk.restarted().get("g", "t", 0), desk.restarted().get("h", "u", 0)), (None, Some(2)));
}

#[test]
fn a_commit_under_way_of_a_topic_that_is_deleted_when_there_is_no_room_goes_with_it() {
    let (mut desk, token) = full();
    desk.offsets.topic_deleted(&key("u"), &mut desk.out);
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
    assert_eq!((desk.get("h", "u", 0), desk.restarted().get("h", "u", 0)), (None, None));
}

#[test]
fn what_is_committed_under_a_name_that_is_in_use_again_stays() {
    let (mut desk, _) = full();
    desk.offsets.topic_deleted(&key("t"), &mut desk.out);
    // The room comes back from a log that takes nothing.
    desk.settle_all(false);
    assert!(desk.out.appends.is_empty(), "a log that fails is not asked for more");
    assert_eq!(desk.restarted().get("g", "t", 0), Some(1), "the removal is owed still");
    desk.commit("i", vec![topic("t", vec![part(0, 9)])]);
    let held = |desk: &Desk| (desk.get("g", "t", 0), desk.get("i", "t", 0));
    assert_eq!((held(&desk), held(&desk.restarted())), ((None, Some(9)), (None, Some(9))));
}

#[test]
fn a_removal_that_the_log_did_not_take_is_written_once_it_takes_something_again() {
    let mut desk = filled();
    desk.offsets.topic_deleted(&key("t"), &mut desk.out);
    desk.settle_all(false);
    assert!(desk.out.appends.is_empty(), "a log that fails is not asked for more");
    desk.commit("g", vec![topic("u", vec![part(0, 5)])]);
    let restarted = desk.restarted();
    assert_eq!(
        (restarted.get("g", "t", 0), restarted.get("h", "t", 0), restarted.get("g", "u", 0)),
        (None, None, Some(5))
    );
}

#[test]
fn a_removal_that_failed_takes_nothing_that_was_committed_behind_it() {
    let mut desk = filled();
    desk.offsets.topic_deleted(&key("t"), &mut desk.out);
    let removal = desk.out.appends.remove(0);
    let token = desk.send(crate::offsets::testing::request("g", vec![topic("t", vec![part(0, 7)])]));
    desk.settle(removal, false);
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
    desk.commit("g", vec![topic("u", vec![part(0, 5)])]);
    assert_eq!((desk.get("g", "t", 0), desk.restarted().get("g", "t", 0)), (Some(7), Some(7)));
}

#[test]
fn topics_that_are_deleted_while_offsets_are_loaded_are_taken_away_from_what_was_loaded() {
    let mut desk = filled();
    let mut loading = Offsets::new(OffsetConfig::default());
    loading.topic_deleted(&key("t"), &mut desk.out);
    assert!(desk.out.appends.is_empty());
    let mut restarted = desk.restarted();
    restarted.offsets.catch_up(&mut loading);
    let seen = |desk: &Desk| (desk.get("g", "t", 0), desk.get("h", "t", 0), desk.get("g", "u", 0), desk.offsets.len());
    assert_eq!(seen(&restarted), (None, None, Some(1), 1), "from the first answer on");
    assert!(restarted.offsets.pay(&mut restarted.out));
    assert!(!restarted.offsets.pay(&mut restarted.out), "nothing else is owed");
    restarted.settle_all(true);
    for desk in [&restarted, &restarted.restarted()] {
        assert_eq!((desk.get("g", "t", 0), desk.get("g", "u", 0)), (None, Some(1)));
    }
}

#[test]
fn a_commit_under_way_of_a_topic_that_is_deleted_is_never_seen() {
    for (in_flight_max, is_owed) in [(100, false), (1, true)] {
        let mut desk = Desk::with(OffsetConfig { restart_grace_ms: 0, in_flight_max, ..OffsetConfig::default() });
        let topics = vec![topic("t", vec![part(0, 3)]), topic("u", vec![part(0, 4)])];
        let token = desk.send(crate::offsets::testing::request("g", topics));
        desk.offsets.topic_deleted(&key("t"), &mut desk.out);
        assert_eq!(desk.offsets.owed.is_empty(), !is_owed);
        let append = desk.out.appends.remove(0);
        desk.settle(append, true);
        assert_eq!(
            (desk.get("g", "t", 0), desk.get("g", "u", 0)),
            (None, Some(4)),
            "also before the removal is stored"
        );
        desk.settle_all(true);
        assert_eq!(desk.committed(token), [Ok(()), Ok(())]);
        assert_eq!(desk.rows(), desk.restarted().rows());
        desk.commit("g", vec![topic("t", vec![part(0, 5)])]);
        assert_eq!((desk.get("g", "t", 0), desk.restarted().get("g", "t", 0)), (Some(5), Some(5)), "the name is back");
    }
}

#[test]
fn which_topics_have_offsets_is_known_whatever_came_and_went() {
    let mut desk = Desk::new();
    for step in 0..600u64 {
        let name = ["t", "u", "v"][usize::try_from(step * 5 % 3).unwrap()];
        let group = ["g", "h", "i", "j"][usize::try_from(step * 7 % 11 % 4).unwrap()];
        let offset = if step % 4 == 1 { -1 } else { 1 };
        match step * 13 % 17 {
            0 => desk.offsets.topic_deleted(&key(name), &mut desk.out),
            1 => drop(delete(&mut desk, name, &[0, 1], &Readers::Nobody)),
            2 => {
                let token = desk.token();
                desk.offsets.delete_group(token, group, &mut desk.out);
            }
            _ => drop(desk.commit(group, vec![topic(name, vec![part(i32::try_from(step % 2).unwrap(), offset)])])),
        }
        desk.settle_all(true);
        for name in ["t", "u", "v"] {
            let is_held = desk.rows().iter().any(|(_, _, topic, _, _)| *topic == key(name));
            assert_eq!(desk.offsets.table.holds(&key(name)), is_held, "{name} after step {step}");
        }
    }
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn what_is_committed_before_a_removal_that_is_owed_was_written_does_not_go_with_it() {
    let mut desk = filled();
    let mut loading = Offsets::new(OffsetConfig::default());
    loading.topic_deleted(&key("t"), &mut desk.out);
    let mut restarted = desk.restarted();
    restarted.offsets.catch_up(&mut loading);
    restarted.commit("i", vec![topic("t", vec![part(0, 9)])]);
    assert!(!restarted.offsets.pay(&mut restarted.out), "nothing is owed any more");
    for desk in [&restarted, &restarted.restarted()] {
        assert_eq!((desk.get("g", "t", 0), desk.get("h", "t", 0), desk.get("i", "t", 0)), (None, None, Some(9)));
    }
}

#[test]
fn removals_that_are_owed_are_written_one_by_one() {
    let (mut desk, _) = full();
    for name in ["t", "u", "v"] {
        desk.offsets.topic_deleted(&key(name), &mut desk.out);
    }
    for left in [3, 2, 1, 0] {
        assert_eq!((desk.offsets.owed.len(), desk.out.appends.len()), (left, 1));
        let append = desk.out.appends.remove(0);
        desk.settle(append, true);
    }
    assert!(desk.out.appends.is_empty() && desk.restarted().rows().is_empty());
}

#[test]
fn removals_leave_half_of_the_room_to_commits() {
    let mut desk = Desk::with(OffsetConfig { restart_grace_ms: 0, in_flight_max: 4, ..OffsetConfig::default() });
    for name in ["a", "b", "c", "d", "e"] {
        desk.offsets.topic_deleted(&key(name), &mut desk.out);
    }
    assert_eq!((desk.offsets.owed.len(), desk.out.appends.len()), (3, 2));
    let send =
        |desk: &mut Desk, group| desk.send(crate::offsets::testing::request(group, vec![topic("t", vec![part(0, 1)])]));
    let mut tokens = vec![send(&mut desk, "g"), send(&mut desk, "h")];
    // What is settled makes room for a commit, not for one more removal.
    for (group, left) in [("i", 3), ("j", 3)] {
        let append = desk.out.appends.remove(0);
        desk.settle(append, true);
        tokens.push(send(&mut desk, group));
        assert_eq!((desk.offsets.owed.len(), desk.out.appends.len()), (left, 4), "{group}");
    }
    desk.settle_all(true);
    for token in tokens {
        assert_eq!(desk.committed(token), [Ok(())]);
    }
    assert!(desk.offsets.owed.is_empty() && desk.offsets.in_flight.len() == 0, "and the rest is written then");
    assert_eq!(desk.log.len(), 9);
}

#[test]
fn the_removals_that_are_owed_are_bounded() {
    let mut loading = Offsets::new(OffsetConfig::default());
    for at in 0..=OWED_REMOVALS_MAX {
        loading.topic_deleted(&key(&at.to_string()), &mut Outputs::default());
    }
    assert_eq!(loading.owed.len(), OWED_REMOVALS_MAX);
}
