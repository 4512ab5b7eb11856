use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn topic() -> TopicRef {
    TopicRef::new("kafka", "orders", 1, 2, 3)
}

fn at() -> PartitionRef {
    topic().partition(1)
}

fn table(records: &[Record]) -> Table {
    let mut table = Table::default();
    records.iter().for_each(|record| table.apply(record, 1));
    table
}

#[test]
fn a_trim_never_moves_back_until_it_is_forgotten() {
    let (mut table, at) = (Table::default(), at());
    for (before, expected) in [(5, 5), (3, 5), (9, 9), (0, 0), (2, 2)] {
        table.apply(&Record::trim(&at, before, 0), 1);
        assert_eq!(table.marks(&at).trim, expected);
    }
    table.apply(&Record::gone(&at.topic), 1);
    assert_eq!(table.marks(&at), Marks::default());
}

#[test]
fn an_end_that_moved_back_makes_a_trim_point_behind_it_void() {
    let table = table(&[Record::trim(&at(), 9, 0), Record::epoch(&at(), 1, 5)]);
    let marks = table.marks(&at());
    assert_eq!((marks.trim, marks.end, marks.epochs.current()), (0, 5, 1));
}

#[test]
fn what_belongs_to_an_epoch_that_is_over_says_nothing() {
    let ends = |epoch, end| Record::ends(&topic(), vec![(1, epoch, end)]);
    let late = [ends(0, 100), Record::epoch(&at(), 1, 50), ends(0, 120), Record::trim(&at(), 90, 0), ends(1, 60)];
    let marks = table(&late).marks(&at());
    assert_eq!((marks.trim, marks.end), (0, 60));
}

#[test]
fn the_first_claim_counts_until_it_is_over() {
    let life = micros(limits::CLAIM_LIFE);
    let mut table = Table::default();
    for (by, at_micros, holder) in [(1, 10, 1), (2, 11, 1), (1, 12, 1), (2, 12 + life, 1), (2, 13 + life, 2)] {
        table.apply(&Record::claim(&at(), by), at_micros);
        assert_eq!(table.holder(&at()), Some(holder), "{by} at {at_micros}");
    }
}

#[test]
fn a_snapshot_forgets_topics_that_are_gone_and_no_others() {
    let age = micros(limits::TOPIC_SETTLED);
    let young = TopicRef::new("kafka", "young", 1, 3, age);
    let mut table = table(&[Record::ends(&topic(), vec![(0, 0, 7)]), Record::ends(&young, vec![(0, 0, 8)])]);
    let claim = Record::claim(&young.partition(0), 1);
    table.apply(&claim, age * 2 - 1);
    let of = |records: &[Record]| -> Vec<Record> {
        records.iter().filter(|record| matches!(record, Record::Ends { .. })).cloned().collect()
    };
    let nobody = HashSet::new();
    assert_eq!(of(&table.records(&nobody)), [Record::ends(&young, vec![(0, 0, 8)])], "a node may not have seen it yet");
    let living = HashSet::from([Incarnation::from(&topic())]);
    assert_eq!(of(&table.records(&living)).len(), 2);
}

fn records() -> impl Strategy<Value = Vec<(Record, u64)>> {
    let at = (0..2_u32, 0..3_u32).prop_map(|(id, partition)| TopicRef::new("s", "t", 1, id, 3).partition(partition));
    let record = (at, 0..6_u8, 0..20_u64, 0..4_u32).prop_map(|(at, kind, number, epoch)| match kind {
        0 => Record::trim(&at, number, epoch),
        1 | 2 => Record::epoch(&at, epoch, number),
        3 => Record::ends(&at.topic, vec![(at.partition, epoch, number)]),
        4 => Record::claim(&at, number % 3),
        _ if number == 0 => Record::gone(&at.topic),
        _ => {
            let retention = Some(Some(Duration::from_secs(number)));
            Record::settings(&at.topic, &TopicSettings { retention, ..TopicSettings::default() })
        }
    });
    prop::collection::vec((record, 0..400_000_000_u64), 0..40)
}

proptest! {
    /// What is read from a snapshot on is what is read from the beginning, although the records that follow are applied
    /// to a table that may have some of them already.
    #[test]
    fn a_table_made_from_its_own_records_goes_on_as_the_table_itself(before in records(), after in records()) {
        let mut whole = Table::default();
        before.iter().for_each(|(record, at_micros)| whole.apply(record, *at_micros));
        let living: HashSet<_> = (0..2).map(|id| Incarnation::from(&TopicRef::new("s", "t", 1, id, 3))).collect();
        let mut short = Table::default();
        whole.records(&living).iter().for_each(|record| short.apply(record, 0));
        for (record, at_micros) in &after {
            whole.apply(record, *at_micros);
            short.apply(record, *at_micros);
        }
        for at in (0..2).flat_map(|id| (0..3).map(move |number| TopicRef::new("s", "t", 1, id, 3).partition(number))) {
            prop_assert_eq!(whole.marks(&at), short.marks(&at));
            prop_assert_eq!(whole.holder(&at), short.holder(&at));
            prop_assert_eq!(whole.settings(&at.topic), short.settings(&at.topic));
        }
    }
}
