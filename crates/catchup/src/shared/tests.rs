#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use rdkafka::Timestamp;

use super::*;
use crate::partition::Covering;
use crate::{Checkpoint, Commit, CommitFailure, CommitId, LogId, Progress, Reset, Resolved};

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// With a partition that has committed 0 and ends at `high`.
fn shared(settings: Settings, high: i64) -> (Shared, Epoch) {
    let shared = Shared::new(settings, Arc::new(Wake::default()));
    let epoch = shared.assigned(&partition());
    begin(&shared, epoch, high);
    (shared, epoch)
}

fn begin(shared: &Shared, epoch: Epoch, high: i64) {
    let committed = Some((0, String::new()));
    let resolved = Resolved { committed, checkpoint: None, log: LogId(1), low: 0, high, reset: Reset::Error };
    shared.step_in(epoch, Input::Resolved(resolved));
}

fn batch(offsets: std::ops::Range<i64>) -> Batch {
    let mut batch = Batch::default();
    for offset in offsets {
        batch.push_parts(offset, Timestamp::NotAvailable, None, Some(&[0; 10]), None);
    }
    batch
}

/// Offset of the record that is there.
fn recv(shared: &Shared) -> Option<i64> {
    let recv = std::pin::pin!(shared.recv());
    match recv.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(given) => Some(given.unwrap().unwrap().offset),
        Poll::Pending => None,
    }
}

#[test]
fn a_batch_fills_a_lane_up_to_the_nearer_of_its_bounds() {
    for (live, fill) in [(Bound { records: 5, bytes: 1_000 }, 5), (Bound { records: 1_000, bytes: 45 }, 5)] {
        let (shared, epoch) = shared(Settings { live, ..Settings::default() }, 0);
        while shared.task().is_some() {}
        assert_eq!(shared.room(&partition(), Lane::Live), live);
        assert!(!shared.fetched(&partition(), Lane::Live, &mut batch(0..fill - 1)));
        let Bound { records, bytes } = shared.room(&partition(), Lane::Live);
        assert!(records == 1 || bytes == 5, "{records} records, {bytes} bytes");
        let mut last = batch(fill - 1..fill);
        assert!(shared.fetched(&partition(), Lane::Live, &mut last), "a pause");
        assert!(last.is_empty());
        assert_eq!(shared.task().map(|task| task.what), Some(Output::Pause(Lane::Live)));
        // Whoever asks nevertheless gets room for one.
        let Bound { records, bytes } = shared.room(&partition(), Lane::Live);
        assert!(records.min(usize::try_from(bytes).unwrap()) == 1);
        for offset in 0..2 {
            assert_eq!(recv(&shared), Some(offset));
            assert_eq!(shared.ack(epoch, offset), AckOutcome::Counted);
        }
        assert_eq!(shared.task().map(|task| task.what), Some(Output::Resume(Lane::Live)));
    }
}

#[test]
fn records_and_acknowledgements_of_an_assignment_that_is_over_are_nothing() {
    let (shared, before) = shared(Settings::default(), 0);
    shared.fetched(&partition(), Lane::Live, &mut batch(0..3));
    assert_eq!(recv(&shared), Some(0));
    let after = shared.assigned(&partition());
    assert_ne!(before, after);
    assert_eq!(recv(&shared), None);
    assert_eq!(shared.ack(before, 0), AckOutcome::Stale);
    begin(&shared, after, 0);
    shared.fetched(&partition(), Lane::Live, &mut batch(0..1));
    assert_eq!(recv(&shared), Some(0));
    assert_eq!(shared.ack(before, 0), AckOutcome::Stale);
    assert_eq!(shared.ack(after, 0), AckOutcome::Counted);
    // And of a partition that nobody has.
    shared.step_in(after, Input::Lost);
    assert!(shared.status().is_empty());
    let mut late = batch(1..3);
    shared.fetched(&partition(), Lane::Live, &mut late);
    assert!(late.is_empty());
    assert_eq!(recv(&shared), None);
}

#[test]
fn records_that_were_kept_back_follow_the_last_old_one() {
    let settings = Settings { order: Order::Offset, fork_when: crate::Lag::records(0), ..Settings::default() };
    let (shared, _) = shared(settings, 3);
    shared.fetched(&partition(), Lane::Live, &mut batch(3..6));
    assert_eq!(recv(&shared), None);
    shared.fetched(&partition(), Lane::Backfill, &mut batch(0..4));
    let given: Vec<_> = std::iter::from_fn(|| recv(&shared)).collect();
    assert_eq!(given, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_record_that_is_given_back_comes_again_behind_the_others() {
    let (shared, epoch) = shared(Settings::default(), 0);
    shared.fetched(&partition(), Lane::Live, &mut batch(0..2));
    let recv = std::pin::pin!(shared.recv());
    let Poll::Ready(Ok(Some(given))) = recv.poll(&mut Context::from_waker(Waker::noop())) else { panic!("no record") };
    shared.defer(epoch, given.record.into_message(&given.partition));
    assert_eq!((self::recv(&shared), self::recv(&shared), self::recv(&shared)), (Some(1), Some(0), None));
}

/// What the partition asks for, with nothing else in between.
fn asked(shared: &Shared) -> Vec<Output> {
    let tasks = std::iter::from_fn(|| shared.task().map(|task| task.what));
    tasks.filter(|what| matches!(what, Output::Commit { .. } | Output::Save { .. } | Output::Clear { .. })).collect()
}

fn commit_at(shared: &Shared, wanted: i64) -> CommitId {
    match asked(shared)[..] {
        [Output::Commit { id, floor, .. }] if floor == wanted => id,
        ref other => panic!("{other:?} in place of a commit of {wanted}"),
    }
}

/// Finishes the next record.
fn finish_next(shared: &Shared, epoch: Epoch) {
    let offset = recv(shared).unwrap();
    assert_eq!(shared.ack(epoch, offset), AckOutcome::Counted);
}

/// With every acknowledgement a commit becomes due, so that one is always under way.
#[test]
fn a_flush_is_over_when_its_own_acknowledgements_are_answered_whatever_is_under_way() {
    let (shared, epoch) = shared(Settings { commit_acks: 1, ..Settings::default() }, 0);
    shared.fetched(&partition(), Lane::Live, &mut batch(0..5));
    let covered = |by: &mut Covering| shared.standing(epoch, by) == Some(Standing::Answered { saved: true });
    finish_next(&shared, epoch);
    let first = commit_at(&shared, 1);
    finish_next(&shared, epoch);
    let [(of, _, mut by)] = shared.flush()[..] else { panic!("one partition") };
    assert_eq!(of, epoch);
    finish_next(&shared, epoch);
    assert!(!covered(&mut by));
    shared.step_in(epoch, Input::Committed { id: first, result: Ok(()) });
    assert!(!covered(&mut by), "the first commit was made before");
    let second = commit_at(&shared, 3);
    finish_next(&shared, epoch);
    assert!(!covered(&mut by));
    // Tried again: it is not answered yet.
    let late = Err(CommitFailure::Retriable(15));
    shared.step_in(epoch, Input::Committed { id: second, result: late });
    assert!(!covered(&mut by));
    let again = commit_at(&shared, 4);
    finish_next(&shared, epoch);
    shared.step_in(epoch, Input::Committed { id: again, result: Ok(()) });
    commit_at(&shared, 5);
    assert!(covered(&mut by), "a later commit is under way, and the flush has its own");
    let [(_, _, mut by)] = shared.flush()[..] else { panic!("one partition") };
    assert!(!covered(&mut by), "that one covers it");
    shared.step_in(epoch, Input::Lost);
    assert_eq!(shared.standing(epoch, &mut by), None);
    let [ref over] = shared.over()[..] else { panic!("one that is over") };
    assert_eq!(over.epoch, epoch);
    assert_eq!(over.standing(&mut by), Standing::Open, "nobody answers any more");
}

#[test]
fn a_flush_with_a_checkpoint_topic_is_over_when_the_checkpoint_of_its_own_acknowledgements_is_answered() {
    let topic = Checkpoint::Topic("progress".to_owned());
    let (shared, epoch) = shared(Settings { checkpoint: topic, commit: Commit::Manual, ..Settings::default() }, 0);
    shared.fetched(&partition(), Lane::Live, &mut batch(0..10));
    let covered = |by: &mut Covering| shared.standing(epoch, by) == Some(Standing::Answered { saved: true });
    let held = recv(&shared).unwrap();
    finish_next(&shared, epoch);
    // Nothing to commit: the checkpoint is all.
    let [(_, _, mut first)] = shared.flush()[..] else { panic!("one partition") };
    let [Output::Save { id: save, .. }] = asked(&shared)[..] else { panic!("a checkpoint") };
    finish_next(&shared, epoch);
    // Another flush while that checkpoint is under way.
    let [(_, _, mut second)] = shared.flush()[..] else { panic!("one partition") };
    assert!(!covered(&mut first) && !covered(&mut second));
    shared.step_in(epoch, Input::Saved { id: save, ok: true });
    assert!(covered(&mut first));
    assert!(!covered(&mut second), "what was finished since is not stored");
    let [Output::Save { id, ref checkpoint, .. }] = asked(&shared)[..] else { panic!("the checkpoint behind it") };
    assert_eq!(checkpoint.ahead.iter().collect::<Vec<_>>(), [1..3]);
    // A commit, and its checkpoint with it, while that one is under way.
    assert_eq!(shared.ack(epoch, held), AckOutcome::Counted);
    finish_next(&shared, epoch);
    let [(_, _, mut third)] = shared.flush()[..] else { panic!("one partition") };
    let commit = commit_at(&shared, 4);
    shared.step_in(epoch, Input::Saved { id, ok: true });
    assert!(covered(&mut second) && !covered(&mut third));
    shared.step_in(epoch, Input::Committed { id: commit, result: Ok(()) });
    assert!(!covered(&mut third), "its checkpoint is to be removed");
    let [Output::Clear { id, .. }] = asked(&shared)[..] else { panic!("a checkpoint that goes") };
    shared.step_in(epoch, Input::Saved { id, ok: true });
    assert!(covered(&mut third));
}

proptest! {
    /// A batch is taken in one step: the same comes out as of its records one by one, in whichever pieces they come.
    #[test]
    fn a_batch_is_what_its_records_are_one_by_one(
        finished in prop::collection::vec((0_i64..60, 1_i64..12), 0..4),
        ordered in any::<bool>(),
        jump in 1_u64..20,
        fetches in prop::collection::vec((any::<bool>(), prop::collection::vec(1_i64..4, 1..30)), 1..8),
        bound in 1_usize..40,
    ) {
        let order = if ordered { Order::Offset } else { Order::LiveFirst };
        let bound = Bound { records: bound, bytes: u64::MAX };
        let fork_when = crate::Lag::records(0);
        let settings =
            Settings { order, fork_when, jump_offsets: jump, live: bound, backfill: bound, ..Settings::default() };
        let log = LogId(1);
        let ahead = finished.iter().map(|(start, length)| *start..start + length).collect();
        let mut progress = Progress { log, floor: 0, ahead };
        progress.clip(0..60);
        let metadata = Progress { log, floor: progress.floor, ahead: progress.ahead.clone() }.encode("", 4_096).metadata;
        let found = |shared: &Shared| {
            let epoch = shared.assigned(&partition());
            let committed = Some((progress.floor, metadata.clone()));
            let resolved = Resolved { committed, checkpoint: None, log, low: 0, high: 60, reset: Reset::Error };
            shared.step_in(epoch, Input::Resolved(resolved));
        };
        let (whole, single) = (Shared::new(settings.clone(), Arc::default()), Shared::new(settings, Arc::default()));
        [&whole, &single].into_iter().for_each(found);
        let seen = |shared: &Shared| {
            let mut status = shared.status().remove(0).1;
            if let Some(backfill) = &mut status.backfill {
                // Of what is finished it may have jumped over less; and where nothing is left to read there is nothing to pause.
                backfill.position = 0;
                backfill.paused &= status.state == crate::State::CatchingUp;
            }
            status
        };
        let mut next = [progress.floor, 60];
        for (live, steps) in fetches {
            let lane = if live { Lane::Live } else { Lane::Backfill };
            let next = &mut next[usize::from(live)];
            let offsets: Vec<_> = steps.iter().map(|step| { *next += step; *next - 1 }).collect();
            let batch = |offsets: &[i64]| {
                let mut batch = Batch::default();
                for offset in offsets {
                    batch.push_parts(*offset, Timestamp::NotAvailable, None, Some(&[0; 10]), None);
                }
                batch
            };
            whole.fetched(&partition(), lane, &mut batch(&offsets));
            offsets.iter().for_each(|offset| { single.fetched(&partition(), lane, &mut batch(&[*offset])); });
            prop_assert_eq!(seen(&whole), seen(&single));
            prop_assert_eq!(whole.buffers(&partition()), single.buffers(&partition()));
        }
        let given = |shared: &Shared| std::iter::from_fn(|| recv(shared)).collect::<Vec<_>>();
        prop_assert_eq!(given(&whole), given(&single));
    }
}
