//! The checkpoint topic: when what is there counts, and what is written when.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use lives::{LOG, Life, Log, World, ranges};
use milena_catchup::partition::TRIES_MAX;
use milena_catchup::{
    CHECKPOINT_BYTES_MAX, Checkpoint, Event, Input, Lag, Lane, LogId, Output, Progress, RangeSet, ResetReason,
    Settings, State,
};

fn settings() -> Settings {
    Settings { checkpoint: Checkpoint::Topic("progress".to_owned()), fork_when: Lag::records(0), ..Settings::default() }
}

fn checkpoint(base: i64, ahead: &[std::ops::Range<i64>]) -> Progress {
    Progress { log: LOG, floor: base, ahead: ranges(ahead) }
}

/// 70 committed, 120 the end, `acked` handed out and acknowledged.
fn run(world: &mut World, acked: impl IntoIterator<Item = i64>) -> Life {
    let mut life = Life::start(world, settings());
    world.log.high += 20;
    life.fetch_all(world);
    life.hand_out_all(world);
    for offset in acked {
        life.ack(world, offset);
    }
    life
}

fn world() -> World {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    world.acked.extend(0..70);
    world
}

#[test]
fn c04_ranges_go_to_the_topic_and_the_next_life_uses_them() {
    let mut world = world();
    let mut life = run(&mut world, (70..80).chain(120..140));
    life.commit(&mut world);
    assert_eq!(world.committed, Some((80, String::new())), "the offset is plain");
    assert_eq!(world.checkpoint, Some(checkpoint(80, &[120..140])));
    let mut next = Life::start(&mut world, settings());
    next.run_dry(&mut world);
    assert_eq!(next.delivered_by(Lane::Backfill), Vec::from_iter(80..120));
    assert!(!next.events.iter().any(|event| matches!(event, Event::ProgressReset(_))));
}

#[test]
fn b61_a_checkpoint_above_the_committed_offset_is_ignored_and_overwritten_at_once() {
    let mut world = world();
    world.checkpoint = Some(checkpoint(71, &[100..110]));
    let life = Life::start(&mut world, settings());
    assert_eq!(life.events[0], Event::ProgressReset(ResetReason::Checkpoint));
    assert_eq!(life.partition.view().ahead, ranges(&[]));
    assert_eq!(life.saves.iter().map(|(_, saved)| saved.clone()).collect::<Vec<_>>(), [Some(checkpoint(70, &[]))]);
}

#[test]
fn b61_so_is_one_of_another_log_and_one_beside_no_committed_offset() {
    for (log, committed) in [(LogId(LOG.0 + 1), Some((70, String::new()))), (LOG, None)] {
        let mut world = world();
        world.committed = committed;
        world.checkpoint = Some(Progress { log, ..checkpoint(70, &[100..110]) });
        let mut life = Life::start(&mut world, settings());
        assert_eq!(life.events[0], Event::ProgressReset(ResetReason::Checkpoint));
        assert_eq!(life.partition.view().ahead, ranges(&[]));
        life.answer_save(&mut world, true, Some(true));
        assert_eq!(world.checkpoint.as_ref().unwrap().ahead, ranges(&[]));
    }
}

#[test]
fn b62_after_an_operators_rewind_all_is_replayed_also_past_the_old_base() {
    let mut world = world();
    world.checkpoint = Some(checkpoint(70, &[100..110]));
    world.committed = Some((0, String::new()));
    let mut life = Life::start(&mut world, settings());
    life.fetch_all(&mut world);
    life.hand_out_all(&mut world);
    // The overwriting has not been answered. Up to the old base commits are harmless, from there on they wait.
    for offset in 0..69 {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::CommitDue);
    assert_eq!(life.commits.iter().map(|sent| sent.floor).collect::<Vec<_>>(), [69]);
    life.answer(&mut world, true, Some(Ok(())));
    for offset in 69..80 {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::CommitDue);
    assert!(life.commits.is_empty(), "the old checkpoint would count again beside 80");
    life.answer_save(&mut world, true, Some(true));
    assert_eq!(life.commits.iter().map(|sent| sent.floor).collect::<Vec<_>>(), [80]);
    life.answer(&mut world, true, Some(Ok(())));
    // A crash here: the next owner replays the old ranges as well.
    let mut next = Life::start(&mut world, settings());
    next.run_dry(&mut world);
    assert_eq!(next.delivered_by(Lane::Backfill), Vec::from_iter(80..120));
}

#[test]
fn b63_a_crash_between_checkpoint_and_commit_loses_nothing_in_either_order() {
    for (commit_stored, save_stored, start) in [(true, false, 80), (false, true, 70)] {
        let mut world = world();
        let mut life = run(&mut world, 120..130);
        life.commit(&mut world);
        assert_eq!(world.checkpoint, Some(checkpoint(70, &[120..130])));
        for offset in (70..80).chain(130..140) {
            life.ack(&mut world, offset);
        }
        life.on(&mut world, Input::CommitDue);
        if commit_stored {
            life.answer(&mut world, true, Some(Ok(())));
            life.answer_save(&mut world, save_stored, None);
        } else {
            // The commit is lost on its way, the checkpoint of the next round is stored.
            life.answer(&mut world, false, Some(Err(milena_catchup::CommitFailure::Refused(22))));
            world.checkpoint = Some(checkpoint(70, &[70..80, 120..140]));
        }
        let mut next = Life::start(&mut world, settings());
        next.run_dry(&mut world);
        let expected: Vec<i64> = if start == 80 { (80..120).chain(130..140).collect() } else { (80..120).collect() };
        assert_eq!(next.delivered_by(Lane::Backfill), expected);
        assert_eq!(next.partition.view().floor, 140);
    }
}

#[test]
fn b64_the_checkpoint_is_removed_only_after_the_commit_that_covers_it() {
    let mut world = world();
    let mut life = run(&mut world, 120..140);
    life.commit(&mut world);
    for offset in 70..120 {
        life.ack(&mut world, offset);
    }
    assert_eq!(life.partition.state(), State::Live);
    life.on(&mut world, Input::CommitDue);
    assert_eq!((life.commits[0].floor, life.saves.len()), (140, 0));
    // The commit fails: the ranges are still needed.
    life.answer(&mut world, false, Some(Err(milena_catchup::CommitFailure::Refused(25))));
    assert!(life.saves.is_empty());
    life.on(&mut world, Input::CommitDue);
    life.answer(&mut world, true, Some(Ok(())));
    assert_eq!(life.saves.iter().map(|(_, saved)| saved.clone()).collect::<Vec<_>>(), [None]);
    life.answer_save(&mut world, true, Some(true));
    assert_eq!(world.checkpoint, None);
}

#[test]
fn the_base_of_a_checkpoint_is_the_floor_that_the_broker_took() {
    let mut world = world();
    let mut life = run(&mut world, (70..80).chain(120..130));
    life.on(&mut world, Input::CommitDue);
    for offset in 80..85 {
        life.ack(&mut world, offset);
    }
    life.answer(&mut world, true, Some(Ok(())));
    // The next commit may never arrive, and then a checkpoint above 80 would be of no use.
    assert_eq!(life.saves[0].1, Some(checkpoint(80, &[80..85, 120..130])));
}

#[test]
fn a_drain_waits_for_commit_and_checkpoint() {
    let mut world = world();
    let mut life = run(&mut world, 120..140);
    life.on(&mut world, Input::Revoke);
    life.on(&mut world, Input::DrainDeadline);
    assert_eq!((life.commits.len(), life.saves.len()), (0, 1), "the offset has not moved");
    life.answer_save(&mut world, true, Some(true));
    assert!(life.released);
    assert_eq!(world.checkpoint, Some(checkpoint(70, &[120..140])));
}

#[test]
fn a_drain_stores_what_was_acknowledged_while_an_earlier_checkpoint_was_under_way() {
    let mut world = world();
    let mut life = run(&mut world, 120..130);
    life.on(&mut world, Input::CommitDue);
    assert_eq!(life.saves.len(), 1);
    for offset in 130..140 {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::Revoke);
    life.on(&mut world, Input::DrainDeadline);
    life.answer_save(&mut world, true, Some(true));
    assert!(!life.released);
    life.answer_save(&mut world, true, Some(true));
    assert!(life.released);
    assert_eq!(world.checkpoint, Some(checkpoint(70, &[120..140])));
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_tried_again_and_then_told() {
    let mut world = world();
    let mut life = run(&mut world, 120..140);
    life.on(&mut world, Input::CommitDue);
    for _ in 0..TRIES_MAX {
        assert_eq!(life.saves.len(), 1);
        life.answer_save(&mut world, false, Some(false));
    }
    assert_eq!((life.saves.len(), life.events.last()), (0, Some(&Event::CheckpointFailed)));
    let out = life.on(&mut world, Input::CommitDue);
    assert!(matches!(out[..], [Output::Save { attempt: 0, .. }]));
}

#[test]
fn ranges_that_do_not_fit_into_a_record_are_told_and_the_shortest_go() {
    // 220,000 ranges of one offset, and behind them ten of two: more than half a megabyte of numbers.
    let short = (0..220_000).map(|at| 100 + 2 * at..101 + 2 * at);
    let long = (0..10).map(|at| 440_200 + 3 * at..440_202 + 3 * at);
    let ahead: RangeSet = short.chain(long).collect();
    let count = ahead.len();
    let mut world = World::new(Log::of(0..450_000)).committed_at(70, &[]);
    world.trusting = true;
    world.checkpoint = Some(Progress { log: LOG, floor: 70, ahead });
    let mut life = Life::start(&mut world, settings());
    life.fetch(&mut world, Lane::Backfill);
    life.hand_out(&mut world, Lane::Backfill);
    life.ack(&mut world, 70);
    life.commit(&mut world);
    let stored = world.checkpoint.clone().unwrap();
    let dropped = count - stored.ahead.len();
    assert!(dropped > 10_000, "{dropped} of {count}");
    assert_eq!(stored.floor, 71);
    assert!(stored.encode("", usize::MAX).metadata.len() <= CHECKPOINT_BYTES_MAX);
    assert!((0..10).all(|at| stored.ahead.at(440_200 + 3 * at) == Some(440_200 + 3 * at..440_202 + 3 * at)));
    assert_eq!(life.events.last(), Some(&Event::RangesDropped { ranges: dropped }));
    assert_eq!(life.partition.status().ranges_dropped, dropped as u64);
    // Nothing new is nothing to store, and nothing to tell.
    assert_eq!(life.on(&mut world, Input::CommitDue), []);
}
