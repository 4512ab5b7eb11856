//! The checks that tests over a broker have in common do notice what they are for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::single_range_in_vec_init,
    missing_docs,
    reason = "test code"
)]

mod support;

use milena_catchup::RangeSet;
use support::churn::Book;
use support::order::{Delivered, Order};

/// Lane, offset and fork of deliveries in one assignment.
fn deliver(order: &mut Order, epoch: u64, all: &[(bool, i64, Option<i64>)]) {
    for &(live, offset, fork) in all {
        order.check(&Delivered { topic: "t", partition: 0, epoch, live, offset, fork });
    }
}

#[test]
fn what_is_promised_passes() {
    let mut order = Order::default();
    let fork = Some(10);
    deliver(&mut order, 1, &[(true, 10, fork), (false, 5, fork), (true, 12, fork), (false, 9, fork)]);
    order.caught_up("t", 0, 1);
    deliver(&mut order, 1, &[(true, 13, fork)]);
    // O5: another assignment may begin lower.
    deliver(&mut order, 2, &[(false, 5, Some(20)), (true, 20, Some(20))]);
    deliver(&mut order, 3, &[(true, 0, None), (true, 1, None)]);
}

#[test]
#[should_panic(expected = "O1")]
fn o1_an_offset_that_falls_in_its_lane_is_noticed() {
    deliver(&mut Order::default(), 1, &[(true, 11, Some(10)), (false, 5, Some(10)), (true, 11, Some(10))]);
}

#[test]
#[should_panic(expected = "O2")]
fn o2_backfill_at_the_fork_is_noticed() {
    deliver(&mut Order::default(), 1, &[(false, 10, Some(10))]);
}

#[test]
#[should_panic(expected = "O2")]
fn o2_a_live_record_below_the_fork_is_noticed() {
    deliver(&mut Order::default(), 1, &[(true, 9, Some(10))]);
}

#[test]
#[should_panic(expected = "O3")]
fn o3_a_second_fork_of_an_assignment_is_noticed() {
    deliver(&mut Order::default(), 1, &[(true, 10, Some(10)), (true, 12, Some(11))]);
}

#[test]
#[should_panic(expected = "O4")]
fn o4_backfill_after_the_end_of_the_gap_is_noticed() {
    let mut order = Order::default();
    deliver(&mut order, 1, &[(true, 10, Some(10)), (false, 5, Some(10))]);
    order.caught_up("t", 0, 1);
    deliver(&mut order, 1, &[(false, 6, Some(10))]);
}

/// Members 0 and 1; both records of the one partition were acknowledged by member 0.
fn book() -> Book {
    let book = Book::default();
    for offset in 0..2 {
        book.delivered(0, (0, offset));
        book.acked(0, (0, offset));
    }
    book
}

/// Committed: nothing, but the record at offset 1.
fn second_is_stored() -> Vec<(i64, RangeSet)> {
    vec![(0, RangeSet::from_iter([1..2]))]
}

#[test]
#[should_panic(expected = "nobody acknowledged [2]")]
fn a_record_that_nobody_acknowledged_is_noticed() {
    book().judge(&[3]);
}

#[test]
#[should_panic(expected = "came again")]
fn a_record_that_comes_again_without_a_reason_is_noticed() {
    let book = book();
    book.delivered(1, (0, 1));
    book.judge(&[2]);
}

#[test]
#[should_panic(expected = "came again")]
fn a_record_that_was_committed_before_its_member_was_killed_has_no_reason_to_come_again() {
    let book = book();
    book.killed(0, second_is_stored());
    book.delivered(1, (0, 1));
    book.judge(&[2]);
}

#[test]
fn what_was_not_committed_or_came_too_late_may_come_again() {
    let killed = book();
    killed.killed(0, second_is_stored());
    killed.delivered(1, (0, 0));
    assert_eq!(killed.judge(&[2]), (3, 1));
    for reason in [
        "t/0, epoch 1: Lost",
        "t/0, epoch 1: CommitFailed(Refused(27))",
        "t 0 1: too late, it will come again",
        "t 0 1: not open",
    ] {
        let book = book();
        book.heard(0, "t", reason);
        book.delivered(1, (0, 1));
        assert_eq!(book.judge(&[2]), (3, 1), "{reason}");
    }
    // One that has lost the partition and does not know it yet gets what another one has finished.
    let behind = book();
    behind.delivered(1, (0, 1));
    behind.heard(1, "t", "t/0, epoch 1: Lost");
    assert_eq!(behind.judge(&[2]), (3, 1));
    let restarted = book();
    restarted.restarted(second_is_stored());
    restarted.delivered(1, (0, 0));
    assert_eq!(restarted.judge(&[2]), (3, 1));
}

/// Member 1 has the second record again; these members were assigned the partition before, and those after. Member 1 was killed and said
/// nothing more.
fn killed_with_it(before: &[usize], after: &[usize]) -> (u64, usize) {
    let book = book();
    let assigned =
        |members: &[usize]| members.iter().for_each(|member| book.heard(*member, "t", "t/0, epoch 1: Assigned"));
    assigned(before);
    book.delivered(1, (0, 1));
    assigned(after);
    book.killed(1, second_is_stored());
    book.judge(&[2])
}

#[test]
fn one_that_was_killed_before_it_knew_of_its_loss_may_have_what_another_one_finished() {
    assert_eq!(killed_with_it(&[1, 0], &[]), (3, 1));
    // Whoever gets it later says nothing of that.
    assert_eq!(killed_with_it(&[1, 0], &[1]), (3, 1));
}

#[test]
#[should_panic(expected = "came again")]
fn one_that_was_killed_and_had_the_partition_last_has_no_reason_even_if_it_went_back_afterwards() {
    killed_with_it(&[0, 1], &[0]);
}

#[test]
#[should_panic(expected = "came again")]
fn one_that_was_killed_and_never_said_that_it_had_the_partition_has_no_reason() {
    killed_with_it(&[0], &[]);
}
