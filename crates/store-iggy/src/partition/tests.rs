use proptest::prelude::*;

use super::*;

fn described(current_offset: u64, messages: u64) -> Described {
    Described { current_offset, messages, bytes: messages * 100 }
}

/// A partition of which the server said that it holds `0..end`.
fn known(end: u64) -> Partition {
    let mut partition = Partition::default();
    partition.observe(described(end.saturating_sub(1), end), floor(0), limits::FALL_GRACE, Instant::now());
    partition
}

/// What is known before a question while nothing fell.
fn floor(end: u64) -> Floor {
    Floor { end, falls: 0 }
}

fn later(by: Duration) -> Instant {
    Instant::now() + by
}

#[test]
fn the_end_is_one_behind_the_last_offset_and_the_start_counts_back_from_it() {
    assert_eq!(described(9, 10).bounds(0), Bounds { start: 0, end: 10 });
    assert_eq!(described(9, 3).bounds(0), Bounds { start: 7, end: 10 });
    assert_eq!(described(9, 0).bounds(0), Bounds { start: 10, end: 10 });
    assert_eq!(described(0, 1).bounds(0), Bounds { start: 0, end: 1 });
}

#[test]
fn a_single_message_that_expired_does_not_reset_the_end() {
    let mut partition = known(1);
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 1 });
    let floor = partition.floor();
    partition.observe(described(0, 0), floor, limits::FALL_GRACE, Instant::now());
    assert_eq!(partition.bounds(), Bounds { start: 1, end: 1 });
    assert_eq!(described(0, 0).bounds(0), Bounds { start: 0, end: 0 }, "an untouched partition");
}

#[test]
fn a_first_message_is_not_taken_for_expired_by_an_answer_from_before_it() {
    let mut partition = known(0);
    let (asked, floor) = (partition.floor(), partition.begin());
    partition.confirmed(floor, 0, 1, 10);
    partition.observe(described(0, 0), asked, limits::FALL_GRACE, later(Duration::ZERO));
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 1 });
}

#[test]
fn what_was_there_at_the_first_look_is_no_growth() {
    let mut partition = Partition::default();
    assert_eq!(partition.observe(described(9, 10), floor(0), limits::FALL_GRACE, Instant::now()), Seen::default());
    let seen = partition.observe(described(11, 12), floor(10), limits::FALL_GRACE, Instant::now());
    assert_eq!(seen.growth, Some(Growth { end: 12, bytes: 200 }));
}

#[test]
fn an_answer_that_was_overtaken_by_a_confirmation_moves_nothing_back() {
    let mut partition = known(10);
    let floor = partition.floor();
    let began = partition.begin();
    assert_eq!(partition.confirmed(began, 10, 2, 80).growth, Some(Growth { end: 12, bytes: 80 }));
    assert_eq!(partition.observe(described(9, 10), floor, limits::FALL_GRACE, Instant::now()), Seen::default());
    assert_eq!(partition.bounds().end, 12);
    assert!(!partition.is_falling());
}

#[test]
fn growth_is_announced_once_although_a_look_and_a_confirmation_both_see_it() {
    let mut partition = known(0);
    let began = partition.begin();
    assert_eq!(
        partition.observe(described(1, 2), floor(0), limits::FALL_GRACE, Instant::now()).growth,
        None,
        "ours may be in there"
    );
    assert_eq!(partition.bounds().end, 2, "but it can be read");
    assert_eq!(partition.confirmed(began, 0, 2, 90).growth, Some(Growth { end: 2, bytes: 90 }));
    assert_eq!(partition.observe(described(1, 2), floor(2), limits::FALL_GRACE, Instant::now()).growth, None);
}

#[test]
fn what_others_wrote_before_our_append_is_announced_with_it() {
    let mut partition = known(10);
    let began = partition.begin();
    let growth = partition.confirmed(began, 13, 1, 50).growth.unwrap();
    assert_eq!(growth.end, 14);
    assert!(growth.bytes > 50, "three messages of others and one of ours");
}

#[test]
fn an_append_that_failed_leaves_growth_to_the_next_look() {
    let mut partition = known(10);
    partition.begin();
    partition.ended();
    let seen = partition.observe(described(10, 11), floor(10), limits::FALL_GRACE, Instant::now());
    assert_eq!(seen.growth.map(|growth| growth.end), Some(11));
}

#[test]
fn a_lower_end_is_believed_when_it_lasts() {
    let mut partition = known(10);
    assert_eq!(partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, Instant::now()), Seen::default());
    assert!(partition.is_falling());
    assert_eq!(partition.bounds().end, 10);
    let seen = partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, later(limits::FALL_GRACE));
    assert_eq!(seen.fell, Some((10, 5)));
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 5 });
}

#[test]
fn a_lower_end_of_a_node_that_lags_is_forgotten() {
    let mut partition = known(10);
    partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, Instant::now());
    partition.observe(described(9, 10), floor(10), limits::FALL_GRACE, Instant::now());
    assert!(!partition.is_falling());
    let seen = partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, later(limits::FALL_GRACE));
    assert_eq!(seen, Seen::default(), "its time counts from the beginning again");
}

#[test]
fn a_confirmation_at_the_end_or_behind_it_forgets_that_a_lower_end_was_seen() {
    let mut partition = known(10);
    partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, Instant::now());
    let began = partition.begin();
    partition.confirmed(began, 10, 1, 50);
    assert!(!partition.is_falling());
    let seen = partition.observe(described(4, 5), floor(11), limits::FALL_GRACE, later(limits::FALL_GRACE));
    assert_eq!((seen, partition.bounds().end), (Seen::default(), 11));
}

#[test]
fn what_the_leader_says_behind_a_doubt_moves_the_end_and_a_lower_end_leaves_the_doubt_until_it_is_believed() {
    let second = Duration::from_secs(1);
    let mut partition = known(5);
    let floor = partition.floor();
    let (seen, settled) = partition.led_to(&described(6, 7), floor, second, later(Duration::ZERO));
    assert_eq!((seen.growth.map(|growth| growth.end), settled), (Some(7), true));
    assert_eq!(partition.led_to(&described(6, 7), partition.floor(), second, later(second)), (Seen::default(), true));
    // The question was asked before that; the answer is no lower end.
    assert_eq!(partition.led_to(&described(5, 6), floor, second, later(second)), (Seen::default(), true));
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 7 });
    let floor = partition.floor();
    assert_eq!(partition.led_to(&described(4, 5), floor, second, later(second)), (Seen::default(), false));
    assert_eq!(partition.bounds().end, 7);
    let (seen, settled) = partition.led_to(&described(4, 5), floor, second, later(2 * second));
    assert_eq!((seen.fell, settled), (Some((7, 5)), true));
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 5 });
    assert_eq!(
        partition.led_to(&described(4, 5), floor, second, later(3 * second)),
        (Seen::default(), false),
        "it was asked before the fall, and proves nothing of what came behind it"
    );
}

#[test]
fn what_another_node_shows_counts_while_nothing_is_in_doubt_and_its_rise_where_the_leader_was_heard() {
    let mut partition = known(5);
    let hearsay =
        |end: u64, in_doubt, is_heard| partition.is_hearsay(&described(end - 1, end), floor(5), in_doubt, is_heard);
    assert_eq!([4, 5, 6].map(|end| hearsay(end, false, true)), [false, false, false]);
    assert_eq!([4, 5, 6].map(|end| hearsay(end, true, true)), [false, true, true]);
    assert_eq!([4, 5, 6].map(|end| hearsay(end, false, false)), [false, false, true]);
    partition.pass_over();
    assert!(partition.is_passed_over());
    partition.observe(described(5, 6), floor(5), limits::FALL_GRACE, Instant::now());
    assert!(!partition.is_passed_over(), "the next one was taken in");
}

#[test]
fn a_lower_end_that_was_seen_long_ago_does_not_count() {
    let mut partition = known(10);
    partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, Instant::now());
    let minutes = Duration::from_secs(180);
    assert_eq!(partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, later(minutes)), Seen::default());
    let seen =
        partition.observe(described(4, 5), floor(10), limits::FALL_GRACE, later(minutes + limits::FALL_GRACE * 2));
    assert_eq!(seen.fell, Some((10, 5)), "its time counts from the later sight");
}

#[test]
fn an_offset_given_twice_proves_at_once_that_the_end_fell() {
    let mut partition = known(10);
    let began = partition.begin();
    let seen = partition.confirmed(began, 4, 1, 50);
    assert_eq!(seen.fell, Some((10, 4)));
    assert_eq!(seen.growth, Some(Growth { end: 5, bytes: 50 }));
    assert_eq!(partition.bounds().end, 5);
}

#[test]
fn a_base_below_what_was_learned_meanwhile_is_no_fall() {
    let mut partition = known(10);
    let began = partition.begin();
    partition.observe(described(20, 21), floor(10), limits::FALL_GRACE, Instant::now());
    let seen = partition.confirmed(began, 10, 1, 50);
    assert_eq!(seen.fell, None);
    assert_eq!(partition.bounds().end, 21);
}

#[test]
fn a_trim_hides_and_never_moves_back() {
    let mut partition = known(10);
    partition.trim(4);
    partition.trim(2);
    assert_eq!(partition.bounds(), Bounds { start: 4, end: 10 });
    assert_eq!(partition.server_start(), 0);
}

#[test]
fn a_trim_of_messages_that_a_purge_took_away_is_void() {
    let mut partition = known(10);
    partition.trim(8);
    let began = partition.begin();
    partition.confirmed(began, 0, 1, 50);
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 1 });
    let began = partition.begin();
    partition.confirmed(began, 1, 20, 50);
    assert_eq!(partition.bounds(), Bounds { start: 0, end: 21 }, "the end passed it and nothing is hidden");
}

#[test]
fn a_fall_that_leaves_the_trim_point_below_the_end_keeps_it() {
    let mut partition = known(10);
    partition.trim(3);
    let began = partition.begin();
    partition.confirmed(began, 5, 1, 50);
    assert_eq!(partition.bounds(), Bounds { start: 3, end: 6 });
}

#[test]
fn a_partition_that_reads_as_empty_is_not_believed_as_soon() {
    let mut partition = known(10);
    for seconds in 0..limits::FALL_GRACE_EMPTY.as_secs() {
        let seen =
            partition.observe(described(0, 0), floor(10), limits::FALL_GRACE, later(Duration::from_secs(seconds)));
        assert_eq!(seen, Seen::default(), "after {seconds} s");
    }
    let seen = partition.observe(described(0, 0), floor(10), limits::FALL_GRACE, later(limits::FALL_GRACE_EMPTY));
    assert_eq!(seen.fell, Some((10, 0)));
}

#[test]
fn what_was_known_before_a_fall_is_not_held_against_what_comes_after() {
    let mut partition = known(10);
    let (asked, began, late) = (partition.floor(), partition.begin(), partition.begin());
    assert_eq!(partition.confirmed(began, 4, 1, 50).fell, Some((10, 4)));
    assert_eq!(partition.confirmed(late, 5, 1, 50).fell, None);
    assert_eq!(partition.observe(described(5, 6), asked, limits::FALL_GRACE, later(limits::FALL_GRACE)).fell, None);
    assert_eq!(partition.bounds().end, 6);
}

/// Marks of the journal: epochs as they begin, an end, a trim point.
fn marks(begins: &[(u32, u64)], end: u64, trim: u64) -> Marks {
    let mut epochs = Epochs::default();
    begins.iter().for_each(|(epoch, start)| epochs.begin(*epoch, *start, 64));
    Marks { trim, epochs, end }
}

/// A partition of a journal, of which the server said that it holds `0..end`.
fn marked(end: u64) -> Partition {
    let mut partition = known(end);
    partition.learn(&marks(&[], 0, 0));
    partition
}

#[test]
fn a_fall_waits_for_its_record_in_the_journal() {
    let mut partition = marked(10);
    assert_eq!(partition.unsaved_end(), Some((0, 10)));
    let began = partition.begin();
    partition.confirmed(began, 4, 1, 50);
    assert_eq!((partition.raise_wanted(), partition.unsaved_end()), (Some((1, 4)), None));
    assert_eq!(partition.learn(&marks(&[(1, 4)], 4, 0)), Seen::default(), "it was told before");
    assert_eq!((partition.is_raising(), partition.epochs().current(), partition.bounds().end), (false, 1, 5));
    assert_eq!(partition.unsaved_end(), Some((1, 5)));
}

#[test]
fn of_two_falls_before_the_record_the_lower_end_counts() {
    let mut partition = marked(10);
    for base in [6, 3] {
        let began = partition.begin();
        partition.confirmed(began, base, 1, 50);
    }
    assert_eq!(partition.raise_wanted(), Some((1, 3)));
}

#[test]
fn a_record_of_another_gateway_explains_the_same_fall_and_not_one_behind_it() {
    let mut partition = marked(10);
    let began = partition.begin();
    partition.confirmed(began, 6, 1, 50);
    let seen = partition.learn(&marks(&[(1, 5)], 5, 0));
    assert_eq!(seen.fell, Some((6, 5)), "it had fallen farther than was seen here");
    assert_eq!((partition.is_raising(), partition.bounds().end), (false, 7));
    let mut again = marked(10);
    let began = again.begin();
    again.confirmed(began, 3, 1, 50);
    again.learn(&marks(&[(1, 5)], 5, 0));
    assert_eq!(again.raise_wanted(), Some((2, 3)), "it fell once more");
}

#[test]
fn a_fall_that_another_gateway_saw_is_taken_over() {
    let mut partition = marked(10);
    let (asked, began) = (partition.floor(), partition.begin());
    assert_eq!(partition.learn(&marks(&[(1, 5)], 6, 0)).fell, Some((10, 5)), "what is at 5 now is another message");
    assert_eq!((partition.is_raising(), partition.bounds()), (false, Bounds { start: 0, end: 6 }));
    assert_eq!(partition.confirmed(began, 7, 1, 50).fell, None);
    assert_eq!(partition.observe(described(7, 8), asked, limits::FALL_GRACE, later(limits::FALL_GRACE)).fell, None);
}

#[test]
fn of_two_epochs_that_others_began_the_lower_start_counts() {
    let mut partition = marked(10);
    assert_eq!(partition.learn(&marks(&[(1, 4), (2, 6)], 8, 0)).fell, Some((10, 4)));
    assert_eq!(partition.bounds().end, 8);
    assert_eq!(partition.learn(&marks(&[(1, 4), (2, 6), (3, 7)], 9, 0)).fell, Some((8, 7)));
}

#[test]
fn the_lowest_end_that_was_seen_is_where_it_fell_to_although_others_wrote_behind_it() {
    let mut partition = known(10);
    partition.observe(described(7, 8), floor(10), limits::FALL_GRACE, Instant::now());
    let seen = partition.observe(described(8, 9), floor(10), limits::FALL_GRACE, later(limits::FALL_GRACE));
    assert_eq!(seen.fell, Some((10, 8)));
    assert_eq!(seen.growth.map(|growth| growth.end), Some(9));
    assert_eq!(partition.bounds().end, 9);

    let mut partition = known(10);
    partition.led_to(&described(7, 8), floor(10), limits::FALL_GRACE, Instant::now());
    let began = partition.begin();
    let seen = partition.confirmed(began, 9, 1, 50);
    assert_eq!((seen.fell, seen.growth.map(|growth| growth.end)), (Some((10, 8)), Some(10)));
}

#[test]
fn a_lower_end_that_nobody_bears_out_and_one_of_a_partition_that_seems_empty_do_not_count_as_the_lowest() {
    for (lower, grace) in [(described(3, 4), Duration::MAX), (described(0, 0), limits::FALL_GRACE)] {
        let mut partition = known(10);
        partition.observe(lower, floor(10), grace, Instant::now());
        partition.observe(described(7, 8), floor(10), limits::FALL_GRACE, Instant::now());
        let seen = partition.observe(described(7, 8), floor(10), limits::FALL_GRACE, later(limits::FALL_GRACE));
        assert_eq!(seen.fell, Some((10, 8)), "{lower:?}");
    }
}

#[test]
fn an_end_of_an_earlier_run_makes_a_lower_one_a_fall() {
    let mut partition = Partition::default();
    partition.learn(&marks(&[], 10, 0));
    let asked = partition.floor();
    assert_eq!(partition.observe(described(4, 5), asked, limits::FALL_GRACE, Instant::now()), Seen::default());
    assert!(partition.is_falling());
    assert_eq!(
        partition.observe(described(4, 5), asked, limits::FALL_GRACE, later(limits::FALL_GRACE)).fell,
        Some((10, 5))
    );
    assert_eq!(partition.raise_wanted(), Some((1, 5)));
}

#[test]
fn a_node_that_lags_at_the_first_look_does_not_make_a_trim_point_void() {
    let mut partition = Partition::default();
    partition.learn(&marks(&[], 0, 1_000));
    let asked = partition.floor();
    partition.observe(described(499, 500), asked, limits::FALL_GRACE, Instant::now());
    partition.observe(described(1_499, 1_500), asked, limits::FALL_GRACE, Instant::now());
    assert_eq!(partition.bounds(), Bounds { start: 1_000, end: 1_500 });
    let mut purged = Partition::default();
    purged.learn(&marks(&[], 0, 1_000));
    purged.observe(described(499, 500), asked, limits::FALL_GRACE, Instant::now());
    purged.observe(described(499, 500), asked, limits::FALL_GRACE, later(limits::FALL_GRACE));
    assert_eq!(purged.bounds(), Bounds { start: 0, end: 500 }, "but a lower end that lasts does");
}

#[test]
fn a_single_message_that_expired_is_told_from_none_after_a_restart() {
    let mut partition = Partition::default();
    partition.learn(&marks(&[], 1, 0));
    let asked = partition.floor();
    partition.observe(described(0, 0), asked, limits::FALL_GRACE, Instant::now());
    assert_eq!(partition.bounds(), Bounds { start: 1, end: 1 });
}

#[test]
fn a_poll_asks_for_few_messages_when_they_are_large_or_their_size_is_not_known() {
    assert_eq!(poll_count(1 << 20, None, 1_000_000), limits::POLL_COUNT_FIRST);
    assert_eq!(poll_count(1 << 20, Some(1 << 30), 1_000_000), 1);
    assert_eq!(poll_count(1 << 20, Some(1 << 10), 1_000_000), 1 << 10);
    assert_eq!(poll_count(usize::MAX, Some(1), u64::MAX), limits::POLL_COUNT_MAX);
    assert_eq!(poll_count(0, Some(0), 0), 1);
}

#[test]
fn a_poll_asks_for_at_most_twice_as_many_as_came() {
    let mut partition = known(1_000_000);
    let counts = [64, 128, 256, 512, 1_024];
    for expected in counts {
        let count = partition.poll_count(1 << 20, 1_000_000);
        assert_eq!(count, expected);
        partition.met(u64::from(count), u64::from(count) * 100, 100);
    }
    partition.met(1, 100, 100);
    assert_eq!(partition.poll_count(1 << 20, 1_000_000), 2_048, "a small poll between does not begin again");
}

#[test]
fn a_poll_counts_with_the_largest_message_of_late_and_not_with_the_average() {
    let mut partition = known(1_000_000);
    partition.met(64, 64 * 2_000, 1 << 17);
    assert_eq!(partition.poll_count(1 << 20, 1_000_000), 8);
    for _ in 0..100 {
        partition.met(8, 800, 100);
    }
    assert_eq!(partition.poll_count(1 << 20, 1_000_000), 128, "it is forgotten by and by");
}

#[test]
fn polls_without_an_answer_ask_for_half_as_many_down_to_one() {
    let mut partition = known(1_000_000);
    let mut counts = Vec::new();
    for _ in 0..8 {
        let count = partition.poll_count(1 << 20, 1_000_000);
        counts.push(count);
        partition.poll_lost(count);
    }
    assert_eq!(counts, [64, 32, 16, 8, 4, 2, 1, 1]);
    partition.met(1, 100, 100);
    assert_eq!(partition.poll_count(1 << 20, 1_000_000), 2, "and grow again with what comes");
}

#[test]
fn pauses_between_looks_grow_while_nothing_happens_and_with_the_number_of_topics() {
    let longest = Duration::from_millis(250);
    let mut pause = probe_pause(Duration::ZERO, true, longest, 1);
    assert_eq!(pause, limits::PROBE_INTERVAL_MIN);
    for _ in 0..20 {
        pause = probe_pause(pause, false, longest, 1);
    }
    assert_eq!(pause, longest);
    assert_eq!(probe_pause(pause, true, longest, 1), limits::PROBE_INTERVAL_MIN);
    assert_eq!(probe_pause(pause, true, longest, 5_000), Duration::from_secs(10));
}

/// What can happen to a partition of a server that loses nothing.
#[derive(Debug, Clone)]
enum Event {
    Others(u64),
    Ours(u64),
    Expire(u64),
    Look,
    LookBeforeOurs(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (1..5u64).prop_map(Event::Others),
        (1..5u64).prop_map(Event::Ours),
        (0..8u64).prop_map(Event::Expire),
        Just(Event::Look),
        (1..5u64).prop_map(Event::LookBeforeOurs),
    ];
    proptest::collection::vec(event, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn ends_never_fall_and_every_end_is_announced(events in events()) {
        // From two messages on, since the server does not tell one that expired from none.
        let (mut start, mut end) = (0u64, 2u64);
        let say = |start: u64, end: u64| described(end.saturating_sub(1), end - start);
        let mut partition = Partition::default();
        partition.observe(say(0, 2), floor(0), limits::FALL_GRACE, Instant::now());
        let mut announced = 2;
        for event in events {
            let before = partition.bounds();
            let mut seen = Vec::new();
            match event {
                Event::Others(count) => end += count,
                Event::Expire(count) => start = (start + count).min(end),
                Event::Look => {
                    let floor = partition.floor();
                    seen.push(partition.observe(say(start, end), floor, limits::FALL_GRACE, Instant::now()));
                }
                Event::Ours(count) => {
                    let floor = partition.begin();
                    seen.push(partition.confirmed(floor, end, count, 10));
                    end += count;
                }
                Event::LookBeforeOurs(count) => {
                    let (asked, answer) = (partition.floor(), say(start, end));
                    let floor = partition.begin();
                    seen.push(partition.confirmed(floor, end, count, 10));
                    end += count;
                    seen.push(partition.observe(answer, asked, limits::FALL_GRACE, Instant::now()));
                }
            }
            for seen in seen {
                prop_assert_eq!(seen.fell, None);
                if let Some(growth) = seen.growth {
                    prop_assert!(growth.end > announced && growth.bytes > 0);
                    announced = growth.end;
                }
            }
            let now = partition.bounds();
            prop_assert!(now.end >= before.end && now.start >= before.start && now.start <= now.end);
            prop_assert!(now.end <= end);
        }
        let floor = partition.floor();
        let last = partition.observe(say(start, end), floor, limits::FALL_GRACE, Instant::now());
        announced = last.growth.map_or(announced, |growth| growth.end);
        prop_assert_eq!(announced, end);
        prop_assert_eq!(partition.bounds(), Bounds { start, end });
    }
}
