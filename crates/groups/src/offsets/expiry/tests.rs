use super::*;
use crate::offsets::testing::{Desk, part, request, topic, topics};
use crate::{CommitRequest, OffsetConfig};

const DAY: i64 = 86_400_000;

fn reading(topics: &[&str]) -> Readers {
    Readers::Settled(Some(topics.iter().map(|t| (*t).to_owned()).collect()))
}

impl Desk {
    fn by_member(&mut self, group: &str, topic_name: &str) {
        let token = self.token();
        let request = request(group, vec![topic(topic_name, vec![part(0, 1)])]);
        self.offsets.commit(token, request, true, self.now, &mut self.out);
        self.settle_all(true);
    }

    fn mark(&mut self, occupied: bool) {
        self.offsets.mark("g", occupied, self.now, &mut self.out);
        self.settle_all(true);
    }

    fn pass(&mut self, millis: i64) {
        self.now = self.now.plus(millis);
    }

    fn expire(&mut self, readers: &Readers) {
        self.look(readers);
        self.settle_all(true);
    }

    /// As [`Desk::expire`], but nothing is settled yet.
    fn look(&mut self, readers: &Readers) {
        for group in self.offsets.groups().cloned().collect::<Vec<_>>() {
            self.offsets.expire(&group, readers, self.now, &mut self.out);
        }
        self.offsets.drop_unused_names();
    }
}

#[test]
fn offsets_of_a_group_that_never_had_members_expire_one_by_one_after_their_commit() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    desk.pass(DAY);
    desk.commit("g", vec![topic("t", vec![part(1, 1)])]);
    desk.pass(6 * DAY - 1);
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 2);
    desk.pass(1);
    desk.expire(&Readers::Nobody);
    assert_eq!((desk.get("g", "t", 0), desk.get("g", "t", 1)), (None, Some(1)));
    desk.pass(DAY);
    desk.expire(&Readers::Nobody);
    assert!(!desk.offsets.has_rows("g"));
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn offsets_of_a_group_that_lost_its_members_expire_after_that_however_old_they_are() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.pass(30 * DAY);
    desk.mark(false);
    desk.pass(7 * DAY - 1);
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 1);
    desk.pass(1);
    desk.expire(&Readers::Nobody);
    assert!(desk.offsets.is_empty());
}

#[test]
fn a_later_commit_of_a_tool_does_not_prolong_what_an_empty_group_has_left() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.mark(false);
    desk.pass(6 * DAY);
    desk.commit("g", vec![topic("t", vec![part(0, 9)])]);
    desk.pass(DAY);
    desk.expire(&Readers::Nobody);
    assert!(desk.offsets.is_empty());
}

#[test]
fn a_stable_consumer_group_loses_only_old_offsets_of_topics_that_nobody_reads() {
    let mut desk = Desk::new();
    desk.by_member("g", "read");
    desk.by_member("g", "left");
    desk.pass(7 * DAY - 1);
    desk.expire(&reading(&["read"]));
    assert_eq!(desk.offsets.len(), 2);
    desk.pass(1);
    desk.expire(&reading(&["read"]));
    assert_eq!((desk.get("g", "read", 0), desk.get("g", "left", 0)), (Some(1), None));
    desk.pass(1_000 * DAY);
    desk.expire(&reading(&["read"]));
    assert_eq!(desk.get("g", "read", 0), Some(1), "a live member never loses what it reads");
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn nothing_expires_between_generations_or_when_it_is_not_known_what_is_read() {
    let nothing = HashSet::new();
    for readers in
        [Readers::Unsettled(Some(nothing)), Readers::Unsettled(None), Readers::Settled(None), Readers::Others]
    {
        let mut desk = Desk::new();
        desk.by_member("g", "t");
        desk.pass(1_000 * DAY);
        desk.expire(&readers);
        assert_eq!(desk.offsets.len(), 1, "{readers:?}");
    }
}

#[test]
fn a_retention_that_came_with_the_commit_wins_in_both_directions() {
    let mut desk = Desk::new();
    for (group, retention_ms) in [("short", Some(1_000)), ("long", Some(30 * DAY)), ("default", Some(-1))] {
        desk.send(CommitRequest { retention_ms, ..request(group, vec![topic("t", vec![part(0, 1)])]) });
        desk.settle_all(true);
    }
    let left = |desk: &Desk| ["short", "long", "default"].map(|group| desk.offsets.has_rows(group));
    desk.pass(999);
    desk.expire(&Readers::Nobody);
    assert_eq!(left(&desk), [true, true, true]);
    desk.pass(1);
    desk.expire(&Readers::Nobody);
    assert_eq!(left(&desk), [false, true, true]);
    desk.pass(7 * DAY);
    desk.expire(&Readers::Nobody);
    assert_eq!(left(&desk), [false, true, false]);
    desk.pass(23 * DAY);
    desk.expire(&Readers::Nobody);
    assert_eq!(left(&desk), [false, false, false]);
}

#[test]
fn age_and_emptiness_survive_a_restart() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.commit("simple", vec![topic("t", vec![part(0, 1)])]);
    desk.mark(false);
    desk.pass(7 * DAY);
    let mut desk = desk.restarted();
    desk.expire(&Readers::Nobody);
    assert!(desk.offsets.is_empty());
}

#[test]
fn after_a_restart_nothing_expires_until_every_member_could_have_come_back() {
    let mut desk = Desk::with(OffsetConfig { restart_grace_ms: 1_000, ..OffsetConfig::default() });
    desk.by_member("g", "t");
    desk.send(CommitRequest { retention_ms: Some(1), ..request("own", vec![topic("t", vec![part(0, 1)])]) });
    desk.settle_all(true);
    desk.mark(false);
    desk.pass(8 * DAY);
    let mut desk = desk.restarted();
    desk.pass(999);
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 2);
    desk.pass(1);
    desk.expire(&Readers::Nobody);
    assert!(desk.offsets.is_empty());
}

#[test]
fn a_group_that_had_members_when_the_process_died_counts_as_empty_from_after_the_restart() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.pass(100 * DAY);
    let mut desk = desk.restarted();
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 1, "its members were there until the process died");
    desk.pass(7 * DAY - 1);
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 1);
    desk.pass(1);
    desk.expire(&Readers::Nobody);
    assert!(desk.offsets.is_empty());
}

#[test]
fn members_that_come_back_undo_the_emptiness_even_if_they_commit_nothing() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.mark(false);
    desk.pass(6 * DAY);
    desk.mark(true);
    desk.pass(30 * DAY);
    let mut desk = desk.restarted();
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 1);
}

#[test]
fn a_lost_record_of_members_coming_back_is_made_good() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.mark(false);
    desk.offsets.mark("g", true, desk.now, &mut desk.out);
    desk.settle_all(false);
    desk.pass(30 * DAY);
    desk.expire(&reading(&["t"]));
    desk.pass(30 * DAY);
    let mut desk = desk.restarted();
    desk.expire(&Readers::Nobody);
    assert_eq!(desk.offsets.len(), 1);
}

#[test]
fn nothing_is_recorded_of_groups_without_offsets_or_twice() {
    let mut desk = Desk::new();
    desk.offsets.mark("nobody", true, desk.now, &mut desk.out);
    desk.offsets.mark("nobody", false, desk.now, &mut desk.out);
    assert!(desk.out.is_empty());
    desk.by_member("g", "t");
    desk.offsets.mark("g", true, desk.now, &mut desk.out);
    assert!(desk.out.appends.is_empty(), "the commit of a member said so already");
}

#[test]
fn while_too_much_is_under_way_nothing_is_added_and_the_next_round_makes_up_for_it() {
    let mut desk = Desk::with(OffsetConfig { in_flight_max: 1, restart_grace_ms: 0, ..OffsetConfig::default() });
    desk.by_member("g", "t");
    desk.send(request("other", vec![topic("t", vec![part(0, 1)])]));
    desk.offsets.mark("g", false, desk.now, &mut desk.out);
    desk.look(&Readers::Nobody);
    assert_eq!(desk.out.appends.len(), 1);
    desk.settle_all(true);
    desk.expire(&Readers::Nobody);
    desk.pass(7 * DAY);
    desk.expire(&Readers::Nobody);
    assert!(!desk.offsets.has_rows("g"));
}

#[test]
fn a_group_that_commits_in_this_moment_is_left_alone() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    desk.pass(8 * DAY);
    let token = desk.send(request("g", vec![topic("t", vec![part(0, 2)])]));
    desk.look(&Readers::Nobody);
    desk.settle_all(true);
    assert_eq!(desk.committed(token), [Ok(())]);
    assert_eq!(desk.get("g", "t", 0), Some(2));
}

#[test]
fn an_expired_offset_is_gone_before_the_record_of_it_is_durable_and_a_new_commit_stays() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    desk.pass(8 * DAY);
    desk.look(&Readers::Nobody);
    assert_eq!(desk.get("g", "t", 0), None);
    desk.send(request("g", vec![topic("t", vec![part(0, 2)])]));
    desk.settle_all(true);
    assert_eq!(desk.get("g", "t", 0), Some(2));
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn names_that_no_offset_uses_are_forgotten() {
    let mut desk = Desk::new();
    desk.commit("g", vec![topic("t", vec![part(0, 1)])]);
    desk.pass(8 * DAY);
    desk.expire(&Readers::Nobody);
    desk.expire(&Readers::Nobody);
    assert!(topics(&desk.offsets).is_empty());
}

#[test]
fn a_group_that_flaps_while_the_store_is_slow_has_one_record_under_way_and_the_last_word_counts() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    for _ in 0..1_000 {
        desk.offsets.mark("g", false, desk.now, &mut desk.out);
        desk.pass(1);
        desk.offsets.mark("g", true, desk.now, &mut desk.out);
    }
    desk.pass(1);
    desk.offsets.mark("g", false, desk.now, &mut desk.out);
    assert_eq!(desk.out.appends.len(), 1);
    let before = desk.log.len();
    desk.settle_all(true);
    assert_eq!(desk.log.len(), before + 2);
    assert_eq!(desk.offsets.table.mark("g"), Mark::EmptySince(desk.now));
    assert_eq!(desk.rows(), desk.restarted().rows());
}

#[test]
fn what_was_to_be_recorded_next_is_recorded_although_the_record_before_it_failed() {
    let mut desk = Desk::new();
    desk.by_member("g", "t");
    desk.offsets.mark("g", false, desk.now, &mut desk.out);
    desk.offsets.mark("g", true, desk.now, &mut desk.out);
    desk.pass(1);
    desk.offsets.mark("g", false, desk.now, &mut desk.out);
    let first = desk.out.appends.remove(0);
    desk.settle(first, false);
    desk.settle_all(true);
    assert_eq!(desk.offsets.table.mark("g"), Mark::EmptySince(desk.now));
}

#[test]
fn groups_that_come_and_go_leave_half_of_the_room_to_commits() {
    let mut desk = Desk::with(OffsetConfig { in_flight_max: 4, restart_grace_ms: 0, ..OffsetConfig::default() });
    for group in ["a", "b", "c", "d"] {
        desk.by_member(group, "t");
    }
    for group in ["a", "b", "c", "d"] {
        desk.offsets.mark(group, false, desk.now, &mut desk.out);
    }
    assert_eq!(desk.out.appends.len(), 2);
    let tokens = [1, 2, 3].map(|offset| desk.send(request("e", vec![topic("t", vec![part(0, offset)])])));
    assert_eq!(desk.committed(tokens[2]), [Err(crate::GroupError::TooManyInFlight { max: 4 })]);
    desk.settle_all(true);
    assert_eq!((desk.committed(tokens[0]), desk.committed(tokens[1])), (vec![Ok(())], vec![Ok(())]));
}
