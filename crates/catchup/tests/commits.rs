//! When commits are sent, and what their answers do.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use std::time::Duration;

use lives::{LOG, Life, Log, World, metadata};
use milena_catchup::partition::TRIES_MAX;
use milena_catchup::{Bound, Commit, CommitFailure, Event, Input, Lag, Lane, Output, Progress, Reset, Settings, State};

fn settings() -> Settings {
    let live = Bound { records: 10_000, bytes: u64::MAX };
    Settings { fork_when: Lag::never(), live, ..Settings::default() }
}

/// A partition with `0..end` handed out, and a committed offset.
fn running(end: i64, settings: Settings) -> (World, Life) {
    let mut world = World::new(Log::of(0..end)).committed_at(0, &[]);
    let mut life = Life::start(&mut world, settings);
    life.fetch_all(&mut world);
    life.hand_out_all(&mut world);
    (world, life)
}

fn commits(out: &[Output]) -> Vec<(i64, u32)> {
    let commit = |output: &Output| match output {
        Output::Commit { floor, attempt, .. } => Some((*floor, *attempt)),
        _ => None,
    };
    out.iter().filter_map(commit).collect()
}

#[test]
fn b25_one_commit_is_in_flight_and_three_views_in_between_become_one() {
    let (mut world, mut life) = running(10, settings());
    life.ack(&mut world, 0);
    assert_eq!(commits(&life.on(&mut world, Input::CommitDue)), [(1, 0)]);
    for offset in 1..4 {
        life.ack(&mut world, offset);
        assert_eq!(life.on(&mut world, Input::CommitDue), []);
    }
    life.answer(&mut world, true, Some(Ok(())));
    assert_eq!(life.commits.iter().map(|sent| sent.floor).collect::<Vec<_>>(), [4]);
    life.answer(&mut world, true, Some(Ok(())));
    assert!(life.commits.is_empty());
}

#[test]
fn b26_an_unchanged_view_sends_nothing() {
    let (mut world, mut life) = running(10, settings());
    assert_eq!(life.on(&mut world, Input::CommitDue), [], "what was found is what there is");
    life.ack(&mut world, 4);
    life.commit(&mut world);
    assert_eq!(world.committed, Some((0, metadata(0, &[4..5]))));
    assert_eq!(life.on(&mut world, Input::CommitDue), []);
}

#[test]
fn without_a_committed_offset_the_first_position_is_committed_at_once() {
    let mut world = World::new(Log::of(0..10));
    world.reset = Some(Reset::Latest);
    world.acked.extend(0..10);
    let life = Life::start(&mut world, settings());
    assert_eq!((life.commits.len(), life.commits[0].floor), (1, 10));
}

#[test]
fn b27_a_refused_commit_is_told_and_not_repeated() {
    for code in [22, 25, 27, 82] {
        let failure = CommitFailure::from_code(code);
        assert_eq!(failure, CommitFailure::Refused(code));
        let (mut world, mut life) = running(10, settings());
        life.ack(&mut world, 0);
        life.on(&mut world, Input::CommitDue);
        life.answer(&mut world, false, Some(Err(failure)));
        assert_eq!(life.events.last(), Some(&Event::CommitFailed(failure)));
        assert_eq!((life.commits.len(), life.partition.state()), (0, State::Live));
        assert_eq!(world.committed, Some((0, String::new())));
    }
}

#[test]
fn b28_a_commit_that_may_succeed_later_is_repeated_with_the_newest_view() {
    for code in [14, 15, 16] {
        let failure = CommitFailure::from_code(code);
        let (mut world, mut life) = running(10, settings());
        life.ack(&mut world, 0);
        life.on(&mut world, Input::CommitDue);
        for attempt in 1..TRIES_MAX {
            life.ack(&mut world, i64::from(attempt));
            life.answer(&mut world, false, Some(Err(failure)));
            assert_eq!((life.commits[0].floor, life.commits[0].attempt), (i64::from(attempt) + 1, attempt));
        }
        life.answer(&mut world, false, Some(Err(failure)));
        assert_eq!(life.events.last(), Some(&Event::CommitFailed(failure)));
        assert!(life.commits.is_empty(), "it is not repeated for ever");
        life.commit(&mut world);
        assert_eq!(world.committed.as_ref().unwrap().0, i64::from(TRIES_MAX), "the next one says all of it");
    }
}

#[test]
fn b29_metadata_that_is_too_large_becomes_smaller_and_then_nothing() {
    let (mut world, mut life) = running(100, settings());
    for offset in (0..100).filter(|offset| offset % 2 == 0) {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::CommitDue);
    let whole = life.commits[0].metadata.len();
    life.answer(&mut world, false, Some(Err(CommitFailure::from_code(12))));
    let half = life.commits[0].metadata.clone();
    assert!(half.len() <= whole / 2 && half.len() > whole / 3, "{} of {whole}", half.len());
    assert!(Progress::decode(&half).unwrap().ahead.len() > 5);
    life.answer(&mut world, false, Some(Err(CommitFailure::from_code(12))));
    assert_eq!((life.commits[0].floor, life.commits[0].metadata.as_str()), (1, ""));
    assert_eq!(life.events.last(), Some(&Event::MetadataNotKept));
    life.answer(&mut world, true, Some(Ok(())));
    // The floor is not stuck, and later commits do not begin the same story again.
    life.ack(&mut world, 1);
    life.on(&mut world, Input::CommitDue);
    assert_eq!((life.commits[0].floor, life.commits[0].metadata.as_str()), (3, ""));
    life.answer(&mut world, true, Some(Err(CommitFailure::MetadataTooLarge)));
    assert_eq!(life.events.last(), Some(&Event::CommitFailed(CommitFailure::MetadataTooLarge)));
}

#[test]
fn b39_a_broker_that_drops_metadata_is_noticed_after_the_first_commit_with_ranges() {
    for kept in [true, false] {
        let (mut world, mut life) = running(10, settings());
        life.ack(&mut world, 0);
        life.commit(&mut world);
        assert_eq!(life.read_backs, 0, "there was nothing to keep");
        life.ack(&mut world, 5);
        life.commit(&mut world);
        assert_eq!(life.read_backs, 1);
        let (floor, metadata) = world.committed.clone().unwrap();
        let metadata = if kept { metadata } else { String::new() };
        life.on(&mut world, Input::ReadBack { floor, metadata });
        assert_eq!(life.events.contains(&Event::MetadataNotKept), !kept);
        life.ack(&mut world, 7);
        life.commit(&mut world);
        assert_eq!(life.read_backs, 1, "once is enough");
    }
}

#[test]
fn b44_the_live_lane_pauses_while_the_ranges_take_too_much_and_resumes_when_they_shrink() {
    let mut world = World::new(Log::of(0..100)).committed_at(0, &[]);
    let bounds = Settings { fork_when: Lag::records(0), metadata_bytes_max: 400, ..settings() };
    let mut life = Life::start(&mut world, bounds);
    world.log.high = 2_000;
    let mut paused_at = None;
    for _ in 0..600 {
        life.fetch(&mut world, Lane::Live);
        if let Some(offset) = life.hand_out(&mut world, Lane::Live).filter(|offset| offset % 2 == 0) {
            life.ack(&mut world, offset);
        }
        if life.paused[&Lane::Live] {
            paused_at = Some(life.partition.status().metadata_bytes);
            break;
        }
    }
    assert!(paused_at.is_some_and(|bytes| bytes > 300 && bytes < 310), "{paused_at:?}");
    assert!(!life.paused[&Lane::Backfill], "it is what makes them shrink");
    for offset in std::mem::take(&mut life.in_hand) {
        let before = life.partition.status().metadata_bytes;
        assert!(life.paused[&Lane::Live], "{before}");
        life.in_hand.insert(offset);
        life.ack(&mut world, offset);
        if !life.paused[&Lane::Live] {
            break;
        }
    }
    assert!(!life.paused[&Lane::Live]);
    assert!(life.partition.status().metadata_bytes <= 200);
}

#[test]
fn b44_ranges_of_an_earlier_life_do_not_stop_the_only_lane() {
    let ahead: Vec<_> = (1..100).map(|at| at * 3..at * 3 + 1).collect();
    let mut world = World::new(Log::of(0..400)).committed_at(0, &ahead);
    world.acked.extend(ahead.into_iter().flatten());
    let mut life = Life::start(&mut world, Settings { metadata_bytes_max: 300, ..settings() });
    assert!(life.partition.status().metadata_bytes > 225 && !life.paused[&Lane::Live]);
    life.run_dry(&mut world);
    assert_eq!(life.partition.view().floor, 400);
}

#[test]
fn b72_a_manual_commit_is_made_when_the_application_says_so_and_not_before() {
    let manual = Settings { commit: Commit::Manual, commit_acks: 1, ..settings() };
    let mut world = World::new(Log::of(0..10));
    let mut life = Life::start(&mut world, manual);
    life.run_dry(&mut world);
    assert!(life.commits.is_empty());
    assert_eq!(commits(&life.on(&mut world, Input::CommitDue)), [(10, 0)]);
}

#[test]
fn enough_acknowledgements_make_a_commit_before_the_interval_is_over() {
    let commit = Commit::Every(Duration::from_secs(5));
    let (mut world, mut life) = running(10, Settings { commit, commit_acks: 3, ..settings() });
    for offset in 0..7 {
        life.ack(&mut world, offset);
        let expected = if offset % 3 == 2 { vec![offset + 1] } else { vec![] };
        assert_eq!(life.commits.iter().map(|sent| sent.floor).collect::<Vec<_>>(), expected);
        life.answer(&mut world, true, Some(Ok(())));
    }
}

#[test]
fn an_answer_to_another_commit_changes_nothing() {
    let (mut world, mut life) = running(10, settings());
    life.ack(&mut world, 0);
    life.on(&mut world, Input::CommitDue);
    let id = milena_catchup::CommitId(life.commits[0].id.0 + 1);
    assert_eq!(life.on(&mut world, Input::Committed { id, result: Ok(()) }), []);
    assert_eq!(life.partition.status().committed, Some(0));
    life.answer(&mut world, true, Some(Ok(())));
    assert_eq!(life.partition.status().committed, Some(1));
    assert_eq!(Progress::ahead_of(&world.committed.as_ref().unwrap().1, LOG, 1).ok(), None);
}
