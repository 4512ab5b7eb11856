use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::super::want::{Position, TopicKey};
use super::*;

fn key(partition: i32) -> PartitionKey {
    PartitionKey { topic: TopicKey::Name("orders".into()), partition }
}

fn want(partition: i32, offset: i64) -> Want {
    Want { key: key(partition), position: Position { offset, max_bytes: 1 << 20, leader_epoch: -1, fetched_epoch: -1 } }
}

fn ask(session_id: i32, epoch: i32, wants: Vec<Want>) -> Ask {
    Ask { by_id: false, session_id, epoch, wants, forgotten: Vec::new() }
}

const QUIET: Summary = Summary { failed: false, has_records: false, high_watermark: 5, log_start: 0 };
const DATA: Summary = Summary { has_records: true, ..QUIET };
const FAILED: Summary = Summary { failed: true, high_watermark: -1, log_start: -1, has_records: false };

/// Opens a session of `count` partitions at `now_ms` and answers it with `answer` for each.
fn open(sessions: &Sessions, id: i32, count: i32, now_ms: u64) -> i32 {
    let plan = sessions.begin(ask(0, EPOCH_NEW, (0..count).map(|p| want(p, 0)).collect()), now_ms).unwrap();
    let answers = vec![QUIET; plan.wants.len()];
    sessions.finish(&plan, &answers, now_ms, || id).unwrap().session_id
}

fn order(plan: &Plan) -> Vec<i32> {
    plan.wants.iter().map(|want| want.key.partition).collect()
}

/// One incremental request; answers each partition by `answer`, and says which partitions were told.
fn step(sessions: &Sessions, ask: Ask, answer: impl Fn(i32) -> Summary) -> Result<Vec<i32>, SessionError> {
    let plan = sessions.begin(ask, 0)?;
    let answers: Vec<Summary> = plan.wants.iter().map(|want| answer(want.key.partition)).collect();
    let finished = sessions.finish(&plan, &answers, 0, || 99)?;
    let told = finished.included.unwrap_or_else(|| vec![true; answers.len()]);
    Ok(order(&plan).into_iter().zip(told).filter(|(_, told)| *told).map(|(partition, _)| partition).collect())
}

#[test]
fn a_full_fetch_gets_a_session_and_all_its_partitions() {
    let sessions = Sessions::new(10, 100);
    let plan = sessions.begin(ask(0, EPOCH_NEW, vec![want(0, 3), want(1, 4)]), 0).unwrap();
    assert_eq!(plan.wants, [want(0, 3), want(1, 4)]);
    let finished = sessions.finish(&plan, &[QUIET, QUIET], 0, || 7).unwrap();
    assert_eq!(finished, Finished { session_id: 7, included: None });
    assert_eq!((sessions.len(), sessions.partitions()), (1, 2));
}

#[test]
fn epoch_minus_one_reads_without_a_session_and_closes_the_one_named() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 2, 0);
    let plan = sessions.begin(ask(7, EPOCH_NONE, vec![want(0, 3)]), 0).unwrap();
    assert_eq!(sessions.finish(&plan, &[QUIET], 0, || 8).unwrap(), Finished { session_id: 0, included: None });
    assert!(sessions.is_empty());
}

#[test]
fn a_new_session_replaces_the_one_named() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 2, 0);
    let plan = sessions.begin(ask(7, EPOCH_NEW, vec![want(0, 3)]), 0).unwrap();
    assert_eq!(sessions.finish(&plan, &[QUIET], 0, || 8).unwrap().session_id, 8);
    assert_eq!(sessions.begin(ask(7, 1, Vec::new()), 0).err(), Some(SessionError::NotFound));
    assert_eq!(sessions.len(), 1);
}

#[test]
fn an_unknown_session_is_not_found() {
    let sessions = Sessions::new(10, 100);
    assert_eq!(sessions.begin(ask(5, 1, Vec::new()), 0).err(), Some(SessionError::NotFound));
    assert_eq!(sessions.begin(ask(0, 1, Vec::new()), 0).err(), Some(SessionError::NotFound));
}

#[test]
fn a_repeated_or_skipped_epoch_is_refused_and_changes_nothing() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    for epoch in [2, -2, i32::MAX] {
        assert_eq!(sessions.begin(ask(7, epoch, vec![want(9, 0)]), 0).err(), Some(SessionError::Epoch));
    }
    let plan = sessions.begin(ask(7, 1, Vec::new()), 0).unwrap();
    assert_eq!(order(&plan), [0]);
    assert_eq!(sessions.begin(ask(7, 1, Vec::new()), 0).err(), Some(SessionError::Epoch));
}

#[test]
fn an_answer_that_another_request_overtook_is_refused() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    let slow = sessions.begin(ask(7, 1, Vec::new()), 0).unwrap();
    sessions.begin(ask(7, 2, Vec::new()), 0).unwrap();
    assert_eq!(sessions.finish(&slow, &[DATA], 0, || 8), Err(SessionError::Epoch));
}

#[test]
fn epochs_wrap_to_one() {
    assert_eq!(next_epoch(0), 1);
    assert_eq!(next_epoch(i32::MAX), 1);
}

#[test]
fn a_session_by_name_is_not_continued_by_id() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    let by_id = Ask { by_id: true, ..ask(7, 1, Vec::new()) };
    assert_eq!(sessions.begin(by_id, 0).err(), Some(SessionError::TopicIds));
    assert!(sessions.begin(ask(7, 1, Vec::new()), 0).is_ok());
}

#[test]
fn a_quiet_partition_is_told_only_once() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 3, 0);
    assert_eq!(step(&sessions, ask(7, 1, Vec::new()), |_| QUIET).unwrap(), Vec::<i32>::new());
}

#[test]
fn data_errors_and_moved_bounds_are_told() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 5, 0);
    let answer = |partition| match partition {
        0 => DATA,
        1 => FAILED,
        2 => Summary { high_watermark: 6, ..QUIET },
        3 => Summary { log_start: 1, ..QUIET },
        _ => QUIET,
    };
    assert_eq!(step(&sessions, ask(7, 1, Vec::new()), answer).unwrap(), [0, 1, 2, 3]);
    let later = |partition| match partition {
        2 => Summary { high_watermark: 6, ..QUIET },
        3 => Summary { log_start: 1, ..QUIET },
        _ => QUIET,
    };
    assert_eq!(step(&sessions, ask(7, 2, Vec::new()), later).unwrap(), [1], "the end of an error is news");
}

#[test]
fn a_partition_added_later_is_told_even_when_it_is_empty() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    let empty = Summary { high_watermark: 0, log_start: 0, ..QUIET };
    let answer = |partition| if partition == 4 { empty } else { QUIET };
    assert_eq!(step(&sessions, ask(7, 1, vec![want(4, 0)]), answer).unwrap(), [4]);
}

#[test]
fn a_partition_sent_again_keeps_its_place_and_takes_the_new_position() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 3, 0);
    let plan = sessions.begin(ask(7, 1, vec![want(1, 42)]), 0).unwrap();
    assert_eq!(plan.wants, [want(0, 0), want(1, 42), want(2, 0)]);
}

#[test]
fn forgotten_partitions_are_read_no_more() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 3, 0);
    let forget = Ask { forgotten: vec![key(1), key(8)], ..ask(7, 1, Vec::new()) };
    assert_eq!(order(&sessions.begin(forget, 0).unwrap()), [0, 2]);
    assert_eq!(sessions.partitions(), 2);
}

#[test]
fn a_session_that_forgets_everything_is_closed() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    let forget = Ask { forgotten: vec![key(0)], ..ask(7, 1, Vec::new()) };
    let plan = sessions.begin(forget, 0).unwrap();
    assert_eq!(sessions.finish(&plan, &[], 0, || 8).unwrap().session_id, NO_SESSION);
    assert!(sessions.is_empty());
    assert_eq!(sessions.partitions(), 0);
}

#[test]
fn partitions_with_data_go_behind_those_without() {
    let sessions = Sessions::new(10, 100);
    let plan = sessions.begin(ask(0, EPOCH_NEW, (0..4).map(|p| want(p, 0)).collect()), 0).unwrap();
    sessions.finish(&plan, &[DATA, QUIET, QUIET, QUIET], 0, || 7).unwrap();
    let plan = sessions.begin(ask(7, 1, Vec::new()), 0).unwrap();
    assert_eq!(order(&plan), [1, 2, 3, 0]);
    sessions.finish(&plan, &[DATA, QUIET, DATA, QUIET], 0, || 8).unwrap();
    assert_eq!(order(&sessions.begin(ask(7, 2, Vec::new()), 0).unwrap()), [2, 0, 1, 3]);
}

#[test]
fn a_partition_named_twice_is_read_once_with_its_last_position() {
    let sessions = Sessions::new(10, 100);
    let twice = vec![want(0, 1), want(1, 1), want(0, 2)];
    for epoch in [EPOCH_NEW, EPOCH_NONE] {
        assert_eq!(sessions.begin(ask(0, epoch, twice.clone()), 0).unwrap().wants, [want(0, 2), want(1, 1)]);
    }
}

#[test]
fn at_the_bound_a_fetch_has_no_session() {
    let sessions = Sessions::new(2, 100);
    assert_eq!(open(&sessions, 7, 1, 0), 7);
    assert_eq!(open(&sessions, 8, 1, 0), 8);
    assert_eq!(open(&sessions, 9, 1, 0), NO_SESSION);
    assert!(sessions.begin(ask(7, 1, Vec::new()), 0).is_ok());
}

#[test]
fn no_sessions_at_all_can_be_configured() {
    let sessions = Sessions::new(0, 100);
    assert_eq!(open(&sessions, 7, 1, 0), NO_SESSION);
}

#[test]
fn a_session_that_was_idle_for_long_gives_way() {
    let sessions = Sessions::new(2, 100);
    open(&sessions, 7, 50, 0);
    open(&sessions, 8, 1, 1);
    sessions.begin(ask(8, 1, Vec::new()), EVICTION_MS).unwrap();
    assert_eq!(open(&sessions, 9, 1, EVICTION_MS), NO_SESSION, "exactly two minutes are not enough");
    assert_eq!(open(&sessions, 9, 1, EVICTION_MS + 1), 9);
    assert_eq!(sessions.begin(ask(7, 1, Vec::new()), 0).err(), Some(SessionError::NotFound));
}

#[test]
fn a_larger_session_takes_the_place_of_an_old_smaller_one_in_use() {
    let sessions = Sessions::new(2, 100);
    open(&sessions, 7, 5, 0);
    open(&sessions, 8, 3, 0);
    sessions.begin(ask(7, 1, Vec::new()), EVICTION_MS + 1).unwrap();
    sessions.begin(ask(8, 1, Vec::new()), EVICTION_MS + 1).unwrap();
    assert_eq!(open(&sessions, 9, 3, EVICTION_MS + 2), NO_SESSION, "of the same size is not larger");
    assert_eq!(open(&sessions, 9, 4, EVICTION_MS + 2), 9);
    assert_eq!(sessions.begin(ask(8, 2, Vec::new()), 0).err(), Some(SessionError::NotFound));
    assert!(sessions.begin(ask(7, 2, Vec::new()), 0).is_ok());
}

#[test]
fn the_partitions_of_all_sessions_are_bounded() {
    let sessions = Sessions::new(10, 10);
    assert_eq!(open(&sessions, 7, 6, 0), 7);
    assert_eq!(open(&sessions, 8, 5, 0), NO_SESSION);
    assert_eq!(open(&sessions, 8, 4, 0), 8);
    assert_eq!(open(&sessions, 9, 11, EVICTION_MS * 2), NO_SESSION, "more than all is never possible");
    assert_eq!(sessions.len(), 2);
}

#[test]
fn a_session_that_grows_past_the_bound_is_closed_and_answered_whole() {
    let sessions = Sessions::new(10, 3);
    open(&sessions, 7, 3, 0);
    let plan = sessions.begin(ask(7, 1, vec![want(5, 0)]), 0).unwrap();
    assert_eq!(order(&plan), [0, 1, 2, 5]);
    assert_eq!(sessions.finish(&plan, &[QUIET; 4], 0, || 8).unwrap(), Finished { session_id: 0, included: None });
    assert_eq!(sessions.partitions(), 0);
}

#[test]
fn an_id_in_use_or_not_positive_is_never_given() {
    let sessions = Sessions::new(10, 100);
    open(&sessions, 7, 1, 0);
    let mut draws = [0, -5, 7, i32::MIN, 12].into_iter();
    let plan = sessions.begin(ask(0, EPOCH_NEW, vec![want(0, 0)]), 0).unwrap();
    assert_eq!(sessions.finish(&plan, &[QUIET], 0, || draws.next().unwrap()).unwrap().session_id, 12);
    assert_eq!(open(&sessions, 7, 1, 0), NO_SESSION, "no free id is no session");
}

#[test]
fn topics_with_the_same_partition_numbers_are_apart() {
    let sessions = Sessions::new(10, 100);
    let other = |id| PartitionKey { topic: TopicKey::Id(Uuid::from_u128(id)), partition: 0 };
    let of = |id| Want { key: other(id), ..want(0, 0) };
    let new = Ask { by_id: true, ..ask(0, EPOCH_NEW, vec![of(1), of(2)]) };
    let plan = sessions.begin(new, 0).unwrap();
    sessions.finish(&plan, &[QUIET, QUIET], 0, || 7).unwrap();
    let forget = Ask { by_id: true, forgotten: vec![other(1)], ..ask(7, 1, Vec::new()) };
    assert_eq!(sessions.begin(forget, 0).unwrap().wants, [of(2)]);
}

/// The rules once more, over a plain list.
#[derive(Default)]
struct Model {
    cached: Vec<(i32, i64, i64, i64)>,
}

impl Model {
    fn update(&mut self, wants: &[(i32, i64)], forgotten: &[i32]) {
        for (partition, offset) in wants {
            match self.cached.iter_mut().find(|cached| cached.0 == *partition) {
                Some(cached) => cached.1 = *offset,
                None => self.cached.push((*partition, *offset, -1, -1)),
            }
        }
        self.cached.retain(|cached| !forgotten.contains(&cached.0));
    }

    fn answer(&mut self, answers: &[Summary]) -> Vec<bool> {
        let mut told = Vec::new();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for ((partition, offset, high_watermark, log_start), answer) in self.cached.drain(..).zip(answers) {
            let same = (high_watermark, log_start) == (answer.high_watermark, answer.log_start);
            told.push(answer.failed || answer.has_records || !same);
            let high_watermark = if answer.failed { -1 } else { answer.high_watermark };
            let place = if answer.has_records { &mut back } else { &mut front };
            place.push((partition, offset, high_watermark, answer.log_start));
        }
        self.cached = front;
        self.cached.append(&mut back);
        told
    }
}

fn summaries() -> impl Strategy<Value = Summary> {
    (0..10, 0..4_i64, 0..2_i64).prop_map(|(kind, high_watermark, log_start)| match kind {
        0 => FAILED,
        1..4 => Summary { failed: false, has_records: true, high_watermark, log_start },
        _ => Summary { failed: false, has_records: false, high_watermark, log_start },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_course_of_a_session_is_as_the_plain_list_says(
        first in vec((0..12_i32, 0..9_i64), 1..12),
        steps in vec((vec((0..12_i32, 0..9_i64), 0..5), vec(0..12_i32, 0..4), vec(summaries(), 12)), 0..12),
    ) {
        let sessions = Sessions::new(10, 100);
        let wants = |wants: &[(i32, i64)]| wants.iter().map(|(partition, offset)| want(*partition, *offset)).collect();
        let mut model = Model::default();
        model.update(&first, &[]);
        let plan = sessions.begin(ask(0, EPOCH_NEW, wants(&first)), 0).unwrap();
        let answers = vec![QUIET; plan.wants.len()];
        model.answer(&answers);
        let session = sessions.finish(&plan, &answers, 0, || 7).unwrap().session_id;
        for (epoch, (changed, forgotten, answers)) in (1..).zip(&steps) {
            model.update(changed, forgotten);
            let forget = forgotten.iter().map(|partition| key(*partition)).collect();
            let plan = sessions.begin(Ask { forgotten: forget, ..ask(session, epoch, wants(changed)) }, 0).unwrap();
            let expected: Vec<_> = model.cached.iter().map(|cached| want(cached.0, cached.1)).collect();
            prop_assert_eq!(&plan.wants, &expected);
            let answers = &answers[..plan.wants.len()];
            let finished = sessions.finish(&plan, answers, 0, || 8).unwrap();
            let told = model.answer(answers);
            if expected.is_empty() {
                prop_assert_eq!(finished.session_id, NO_SESSION);
                prop_assert_eq!(sessions.partitions(), 0);
                break;
            }
            prop_assert_eq!(finished.included, Some(told));
            prop_assert_eq!(sessions.partitions(), expected.len());
        }
    }
}

#[test]
fn long_names_count_against_the_bound_on_partitions() {
    let named = |bytes: usize| {
        let topic = TopicKey::Name("x".repeat(bytes).into());
        Want { key: PartitionKey { topic, partition: 0 }, position: want(0, 0).position }
    };
    let opened = |sessions: &Sessions, wants: Vec<Want>| {
        let plan = sessions.begin(ask(0, EPOCH_NEW, wants), 0).unwrap();
        let answers = vec![FAILED; plan.wants.len()];
        sessions.finish(&plan, &answers, 0, || 7).unwrap().session_id
    };
    let sessions = Sessions::new(10, 100);
    // 99 times the memory of a partition in its name, and then a hundred times.
    assert_eq!(opened(&sessions, vec![named(99 * PARTITION_BYTES)]), 7);
    assert_eq!(sessions.partitions(), 100);
    let sessions = Sessions::new(10, 100);
    assert_eq!(opened(&sessions, vec![named(100 * PARTITION_BYTES)]), NO_SESSION);
    // Names that come later count too: the session is closed.
    assert_eq!(opened(&sessions, vec![want(0, 0)]), 7);
    sessions.begin(ask(7, 1, vec![named(100 * PARTITION_BYTES)]), 0).unwrap();
    assert_eq!((sessions.len(), sessions.partitions()), (0, 0));
}
