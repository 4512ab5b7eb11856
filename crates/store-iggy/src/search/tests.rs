use super::*;

fn stretch(next: u64, offset: u64, time_micros: u64) -> Stretch {
    Stretch { next, latest: Found { offset, time_micros } }
}

#[test]
fn a_stretch_answers_for_the_offsets_within_it() {
    let mut known = Stretches::default();
    known.remember(10, stretch(20, 12, 500));
    assert_eq!(known.at(9), None);
    assert_eq!(known.at(10).map(|(first, _)| first), Some(10));
    assert_eq!(known.at(19).map(|(first, _)| first), Some(10));
    assert_eq!(known.at(20), None);
}

#[test]
fn a_stretch_that_overlaps_a_known_one_is_not_noted() {
    let mut known = Stretches::default();
    known.remember(10, stretch(20, 12, 500));
    known.remember(15, stretch(25, 16, 900));
    known.remember(5, stretch(11, 6, 900));
    known.remember(5, stretch(10, 6, 900));
    assert_eq!(known.by_first.keys().copied().collect::<Vec<_>>(), [5, 10]);
}

#[test]
fn neighbours_are_joined_when_there_are_too_many_and_keep_their_latest_time() {
    let mut known = Stretches::default();
    let count = limits::SEARCHED_STRETCHES_MAX as u64 + 1;
    for number in 0..count {
        known.remember(number * 10, stretch(number * 10 + 10, number * 10 + 3, number % 7));
    }
    assert!(known.by_first.len() <= limits::SEARCHED_STRETCHES_MAX / 2 + 1);
    let (first, joined) = known.at(10).unwrap();
    assert_eq!((first, joined), (0, stretch(20, 13, 1)));
    assert_eq!(known.at(count * 10 - 1).map(|(_, last)| last.next), Some(count * 10));
}

#[test]
fn stretches_with_a_gap_between_them_are_not_joined() {
    let mut known = Stretches::default();
    known.remember(0, stretch(10, 1, 1));
    known.remember(20, stretch(30, 21, 2));
    known.join();
    assert_eq!(known.by_first.len(), 2);
    assert_eq!(known.at(15), None);
}

#[test]
fn the_partition_that_was_searched_longest_ago_is_forgotten_first() {
    let mut searches = Searches::default();
    let at = |number: u32| TopicRef::new("s", "t", 1, number, 1).partition(0);
    for number in 0..=u32::try_from(limits::SEARCHED_PARTITIONS_MAX).unwrap() {
        searches.of(&at(number));
        searches.of(&at(0));
    }
    assert_eq!(searches.partitions.len(), limits::SEARCHED_PARTITIONS_MAX);
    assert!(searches.partitions.contains_key(&at(0)) && !searches.partitions.contains_key(&at(1)));
    searches.forget(&at(0).topic);
    assert!(!searches.partitions.contains_key(&at(0)));
}

#[test]
fn what_was_read_before_a_topic_was_forgotten_is_not_remembered() {
    let mut searches = Searches::default();
    let at = TopicRef::new("s", "t", 1, 2, 3).partition(0);
    let before = searches.forgets();
    searches.remember(before, &at, 0, stretch(10, 3, 500));
    searches.forget(&at.topic);
    searches.remember(before, &at, 0, stretch(10, 3, 500));
    assert_eq!(searches.of(&at).at(5), None);
    let now = searches.forgets();
    searches.remember(now, &at, 0, stretch(10, 3, 500));
    assert!(searches.of(&at).at(5).is_some());
}
