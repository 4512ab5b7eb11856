use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use milena_store::Entry;
use milena_store::testing::{TestMessage, batch_of};
use proptest::prelude::*;

use super::*;

/// A node: what it has at each offset.
#[derive(Debug, Clone, Default)]
struct Double(BTreeMap<u64, u128>);

impl Double {
    /// A node that has these offsets, as all others have them.
    fn with(offsets: impl IntoIterator<Item = u64>) -> Self {
        Self(offsets.into_iter().map(|offset| (offset, u128::from(offset))).collect())
    }

    /// What it answers: like the server, from the first offset that it has on, up to the first gap.
    fn said(&self, wanted: &Range<u64>) -> Said {
        let first = self.0.range(wanted.start..).next().map(|(offset, _)| *offset);
        let current_offset = self.0.keys().next_back().copied().unwrap_or(0);
        let mut said = Said { polled: Polled { first, current_offset, ..Polled::default() }, start: None };
        let from = first.unwrap_or(wanted.start);
        let run: Vec<_> = (from..).map_while(|offset| self.0.get(&offset)).collect();
        let most = usize::try_from(wanted.end - wanted.start).unwrap();
        let messages: Vec<_> = run.into_iter().take(most).map(|id| TestMessage::new(*id, &[1; 8])).collect();
        if !messages.is_empty() {
            let batch = batch_of(&messages);
            let entry = Entry { base_offset: from, count: batch.count, append_time_micros: 1, frames: batch.frames };
            said.polled.entries.push(entry);
        }
        if !said.has(wanted.start) {
            said.start = self.0.keys().next().copied();
        }
        said
    }
}

/// What three nodes come to, of which only these answer.
fn verdict(answering: &[&Double], wanted: Range<u64>) -> Verdict {
    judge(answering.iter().map(|node| node.said(&wanted)).collect(), 3, &wanted)
}

fn found(verdict: Verdict) -> (u64, u32) {
    let Verdict::Found(polled) = verdict else { panic!("{verdict:?}") };
    polled.entries.first().map(|entry| (entry.base_offset, entry.count)).unwrap()
}

#[test]
fn what_the_leader_lacks_is_delivered_from_the_node_that_has_most_of_it() {
    let (leader, two) = (Double::with((0..335).chain(361..400)), Double::with(0..350));
    let three = Double::with(0..340);
    assert_eq!(found(verdict(&[&leader, &two, &three], 335..361)), (335, 15));
    assert_eq!(found(verdict(&[&leader, &two, &three], 350 - 10..361)), (340, 10));
}

#[test]
fn nothing_is_delivered_from_elsewhere_that_the_leader_has_itself() {
    let (leader, other) = (Double::with((0..335).chain(361..400)), Double::with(0..400));
    assert_eq!(found(verdict(&[&leader, &other], 335..361)), (335, 26));
}

#[test]
fn nodes_that_have_different_messages_at_one_offset_are_not_believed() {
    let (leader, right) = (Double::with((0..5).chain(9..12)), Double::with(0..12));
    let mut wrong = right.clone();
    wrong.0.insert(7, 1_000);
    assert!(matches!(verdict(&[&leader, &right, &wrong], 5..9), Verdict::Differ));
    assert_eq!(found(verdict(&[&leader, &right, &wrong], 8..9)), (8, 1), "they agree there");
}

#[test]
fn a_partition_begins_where_most_nodes_say_and_not_where_the_leader_does() {
    let (leader, other) = (Double::with(28..40), Double::with(0..40));
    assert_eq!(found(verdict(&[&leader, &other], 0..28)), (0, 28), "a hole at the front is not retention");
    assert!(matches!(verdict(&[&leader], 0..28), Verdict::Unknown));
    let old = Double::with(28..40);
    assert!(matches!(verdict(&[&leader, &old], 0..28), Verdict::Starts(28)));
    assert!(matches!(verdict(&[&leader, &Double::with(20..40)], 0..28), Verdict::Starts(20)));
    assert!(matches!(verdict(&[&leader, &Double::default()], 0..28), Verdict::Unknown), "its disk may be at fault");
}

#[test]
fn messages_are_missing_everywhere_only_when_every_node_says_so() {
    let (leader, two, three) =
        (Double::with((0..5).chain(9..12)), Double::with((0..5).chain(8..12)), Double::with((0..5).chain(11..12)));
    assert!(matches!(verdict(&[&leader, &two, &three], 5..9), Verdict::Nobody { next: 8 }));
    assert!(matches!(verdict(&[&leader, &two], 5..9), Verdict::Unknown), "the third may have them");
    assert!(matches!(verdict(&[], 5..9), Verdict::Unknown));
}

#[test]
fn a_node_that_has_not_come_so_far_says_nothing_of_what_the_leader_lacks() {
    let leader = Double::with((0..5).chain(9..12));
    let (late, later) = (Double::with(0..5), Double::with(0..3));
    assert!(matches!(verdict(&[&leader, &late, &later], 5..9), Verdict::Unknown));
    let there = Double::with((0..5).chain(9..10));
    assert!(matches!(verdict(&[&leader, &there, &later], 5..9), Verdict::Unknown), "the last one may get them yet");
    assert!(matches!(verdict(&[&leader, &there, &there], 5..9), Verdict::Nobody { next: 9 }));
}

#[test]
fn a_message_that_the_limit_does_not_allow_is_there_all_the_same() {
    let cut = Said { polled: Polled { first: Some(5), cut: true, ..Polled::default() }, start: None };
    assert!(matches!(judge(vec![cut], 3, &(5..9)), Verdict::Found(polled) if polled.entries.is_empty() && polled.cut));
    let damaged = Polled { first: Some(5), damage: Some("checksum".to_owned()), ..Polled::default() };
    assert!(!Said { polled: damaged, start: None }.has(5));
}

#[test]
fn missing_messages_are_lost_when_they_are_missing_for_long_and_counted_once() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now), Absence::New);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE / 2), Absence::Waits);
    assert_eq!(gaps.lost(5), None);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE), Absence::Lost { more: 4 });
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE), Absence::Lost { more: 0 });
    assert_eq!(
        (4..10).map(|offset| gaps.lost(offset)).collect::<Vec<_>>(),
        [None, Some(9), Some(9), Some(9), Some(9), None]
    );
}

#[test]
fn that_no_node_had_messages_long_ago_says_nothing_of_now() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    let later = now + limits::LOST_SEEN_AGAIN + Duration::from_secs(1);
    gaps.nobody_has(5..9, limits::LOST_GRACE, now);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, later), Absence::New);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, later + limits::LOST_GRACE), Absence::Lost { more: 4 });
    let much_later = later + limits::LOST_GRACE * 10;
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, much_later), Absence::Lost { more: 0 }, "it is known");
}

#[test]
fn what_the_leader_delivers_again_is_not_lost() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    gaps.nobody_has(5..9, limits::LOST_GRACE, now);
    gaps.delivered(&Double::with(0..5).said(&(0..5)).polled);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now), Absence::Waits, "those before it were always there");
    gaps.delivered(&Double::with(0..12).said(&(0..12)).polled);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE), Absence::New);
}

#[test]
fn that_two_nodes_differ_is_said_once_in_a_while_and_not_by_each_read() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    assert!(gaps.may_tell_difference(now));
    assert!(!gaps.may_tell_difference(now + limits::DIFFER_PAUSE / 2));
    assert!(gaps.may_tell_difference(now + limits::DIFFER_PAUSE));
}

#[test]
fn a_longer_gap_than_the_known_one_is_waited_for_again() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    gaps.nobody_has(7..9, limits::LOST_GRACE, now);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE), Absence::New);
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE * 2), Absence::Lost { more: 4 });
}

#[test]
fn what_is_found_again_is_not_lost() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    gaps.nobody_has(5..9, limits::LOST_GRACE, now);
    assert!(gaps.found(5..9), "it is new");
    assert!(!gaps.found(7..9), "the rest of a known one");
    assert_eq!((gaps.elsewhere(5), gaps.elsewhere(8), gaps.elsewhere(9)), (Some(9), Some(9), None));
    assert_eq!(gaps.nobody_has(5..9, limits::LOST_GRACE, now + limits::LOST_GRACE), Absence::New);
    gaps.not_elsewhere();
    assert_eq!(gaps.elsewhere(5), None);
}

#[test]
fn gaps_that_are_remembered_have_a_bound() {
    let (mut gaps, now) = (Gaps::default(), Instant::now());
    for at in 0..limits::GAPS_MAX as u64 * 2 {
        gaps.nobody_has(at * 10..at * 10 + 5, limits::LOST_GRACE, now);
    }
    assert_eq!(gaps.missing.len(), limits::GAPS_MAX);
}

fn node() -> impl Strategy<Value = Double> {
    proptest::collection::btree_set(0..24u64, 1..24).prop_map(Double::with)
}

/// One that has come as far as all others.
fn whole_node() -> impl Strategy<Value = Double> {
    node().prop_map(|Double(held)| Double::with(held.into_keys().chain([24])))
}

/// Reads `0..end` as a consumer does, from a leader with help of the others, until nothing more comes for longer than
/// anything is waited for.
fn consume(nodes: &[Double; 3], end: u64) -> (Vec<u64>, u64) {
    let (mut gaps, mut now, mut next, mut read) = (Gaps::default(), Instant::now(), 0, Vec::new());
    let mut first_kept = 0;
    for _ in 0..200 {
        if next >= end {
            break;
        }
        let all = next..end;
        let own = nodes[0].said(&all);
        if own.has(next) {
            let count = own.count().min(end - next);
            read.extend(next..next + count);
            next += count;
            continue;
        }
        let gap = next..own.polled.first.unwrap_or(end).min(end);
        match judge(nodes.iter().map(|node| node.said(&gap)).collect(), 3, &gap) {
            Verdict::Found(polled) => {
                let count = polled.entries.iter().map(|entry| u64::from(entry.count)).sum::<u64>();
                assert_eq!(polled.entries[0].base_offset, next);
                read.extend(next..next + count);
                next += count;
            }
            Verdict::Starts(start) => (first_kept, next) = (start, start),
            Verdict::Nobody { next: behind } => match gaps.nobody_has(next..behind, limits::LOST_GRACE, now) {
                Absence::Lost { .. } => next = behind,
                Absence::New | Absence::Waits => now += Duration::from_secs(10),
            },
            // Nobody has anything: there is no partition to read.
            Verdict::Unknown => break,
            Verdict::Differ => panic!("they have the same"),
        }
    }
    (read, first_kept)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_consumer_gets_all_that_any_node_has_once_and_in_order(
        one in whole_node(), two in whole_node(), three in whole_node(),
    ) {
        let nodes = [one, two, three];
        let held: BTreeSet<u64> = nodes.iter().flat_map(|node| node.0.keys().copied()).collect();
        let end = held.last().map_or(0, |last| last + 1);
        let (read, first_kept) = consume(&nodes, end);
        prop_assert_eq!(&read, &held.iter().copied().collect::<Vec<_>>());
        prop_assert!(held.range(..first_kept).next().is_none(), "nothing is taken for expired that a node has");
    }

    #[test]
    fn without_the_answer_of_every_node_nothing_is_lost_and_without_that_of_most_nothing_expired(
        one in node(), two in node(), three in node(), from in 0..23u64, length in 1..24u64,
    ) {
        let wanted = from..from + length;
        for answering in [vec![&one, &two], vec![&two, &three], vec![&one, &three]] {
            let is_nobody = matches!(verdict(&answering, wanted.clone()), Verdict::Nobody { .. });
            prop_assert!(!is_nobody);
        }
        for answering in [&one, &two, &three] {
            prop_assert!(matches!(verdict(&[answering], wanted.clone()), Verdict::Found(_) | Verdict::Unknown));
        }
    }
}
