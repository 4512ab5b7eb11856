//! Revoke, close and loss; and that any input is answered in any state.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use lives::{LOG, Life, Log, World, metadata};
use milena_catchup::{
    AckOutcome, Bound, Checkpoint, CommitFailure, CommitId, Epoch, Event, Input, Lag, Lane, Order, Output, Partition,
    Progress, Reset, Resolved, Settings, State,
};
use proptest::prelude::*;

fn forking() -> Settings {
    Settings { fork_when: Lag::records(0), ..Settings::default() }
}

/// Catching up: 70 committed, fork at 120, everything up to 140 handed out.
fn catching_up(settings: Settings) -> (World, Life) {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    world.acked.extend(0..70);
    let mut life = Life::start(&mut world, settings);
    world.log.high = 140;
    for _ in 0..20 {
        life.fetch(&mut world, Lane::Live);
        life.fetch(&mut world, Lane::Backfill);
    }
    life.hand_out_all(&mut world);
    (world, life)
}

#[test]
fn b46_a_revoked_partition_drains_and_commits_once_and_the_next_owner_continues_with_the_pieces() {
    let (mut world, mut life) = catching_up(forking());
    life.fetch(&mut world, Lane::Backfill);
    let out = life.on(&mut world, Input::Revoke);
    assert_eq!(out, [Output::StopReader, Output::Event(Event::Draining), Output::DropQueued]);
    // What is queued is not handed out any more, and what still arrives is dropped.
    assert_eq!(life.on(&mut world, Input::HandOut { offset: 90 }), [Output::Drop]);
    assert_eq!(life.on(&mut world, Input::Fetched { lane: Lane::Live, offset: 141, bytes: 1 }), [Output::Drop]);
    for offset in (70..90).chain(120..140) {
        assert!(life.commits.is_empty() && life.partition.state() == State::Draining);
        life.ack(&mut world, offset);
    }
    assert_eq!(life.commits.len(), 1);
    assert!(life.commits[0].last);
    life.answer_all(&mut world);
    assert_eq!(world.committed, Some((90, metadata(90, &[120..140]))));
    assert_eq!((life.partition.state(), life.events.last()), (State::Released, Some(&Event::Revoked)));
    // The second example of the KIP: 190 is the end when the next owner comes.
    world.log.high = 190;
    let mut next = Life::start(&mut world, forking());
    assert!(next.events.contains(&Event::Forked { floor: 90, fork: 190, gap: 80 }));
    next.run_dry(&mut world);
    assert_eq!(next.delivered_by(Lane::Backfill), (90..120).chain(140..190).collect::<Vec<i64>>());
}

#[test]
fn b46_a_partition_with_nothing_new_leaves_without_a_commit() {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    let mut life = Life::start(&mut world, forking());
    life.fetch(&mut world, Lane::Backfill);
    life.on(&mut world, Input::Revoke);
    assert_eq!((life.released, life.commits.len()), (true, 0));
}

#[test]
fn b48_when_the_deadline_passes_what_is_finished_is_committed_and_the_rest_comes_again() {
    let (mut world, mut life) = catching_up(forking());
    for offset in (70..75).chain(125..130) {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::Revoke);
    assert!(life.commits.is_empty());
    life.on(&mut world, Input::DrainDeadline);
    life.answer_all(&mut world);
    assert!(life.released);
    assert_eq!(world.committed, Some((75, metadata(75, &[125..130]))));
    let mut next = Life::start(&mut world, forking());
    next.run_dry(&mut world);
    assert_eq!(next.delivered_by(Lane::Backfill), (75..125).chain(130..140).collect::<Vec<i64>>());
}

#[test]
fn b48_without_an_answer_to_the_last_commit_the_second_deadline_releases() {
    let (mut world, mut life) = catching_up(forking());
    life.ack(&mut world, 70);
    life.on(&mut world, Input::Revoke);
    life.on(&mut world, Input::DrainDeadline);
    assert!(!life.released);
    life.on(&mut world, Input::DrainDeadline);
    assert!(life.released);
    life.answer(&mut world, true, Some(Err(CommitFailure::Retriable(16))));
    assert!(life.commits.is_empty(), "it is too late to repeat it");
}

#[test]
fn the_last_commit_does_not_wait_for_the_answer_to_one_before() {
    let (mut world, mut life) = catching_up(forking());
    life.ack(&mut world, 70);
    life.on(&mut world, Input::CommitDue);
    for offset in (71..90).chain(120..140) {
        life.ack(&mut world, offset);
    }
    life.on(&mut world, Input::Revoke);
    let sent: Vec<_> = life.commits.iter().map(|sent| (sent.floor, sent.last)).collect();
    assert_eq!(sent, [(71, false), (90, true)]);
    // The answer to the first comes late and does not release.
    life.answer(&mut world, true, Some(Ok(())));
    assert!(!life.released);
    life.answer(&mut world, true, Some(Ok(())));
    assert!(life.released);
    assert_eq!(world.committed, Some((90, metadata(90, &[120..140]))));
}

#[test]
fn a_deferred_record_is_not_waited_for_in_a_drain() {
    let (mut world, mut life) = catching_up(forking());
    life.on(&mut world, Input::Revoke);
    for offset in std::mem::take(&mut life.in_hand) {
        life.in_hand.insert(offset);
        if offset == 72 {
            life.defer(&mut world, offset);
        } else {
            life.ack(&mut world, offset);
        }
    }
    life.answer_all(&mut world);
    assert!(life.released);
    assert_eq!(world.committed, Some((72, metadata(72, &[73..90, 120..140]))));
}

#[test]
fn b49_a_revoke_while_resolving_commits_nothing() {
    for failed in [false, true] {
        let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
        let mut life = Life::unresolved(&mut world, forking());
        if failed {
            life.on(&mut world, Input::ResolveFailed);
        }
        life.on(&mut world, Input::CommitDue);
        assert_eq!(life.on(&mut world, Input::Revoke), [Output::Event(Event::Revoked), Output::Released]);
        life.resolve(&mut world);
        assert_eq!((life.partition.state(), life.commits.len()), (State::Released, 0));
    }
}

#[test]
fn b12_nothing_is_delivered_before_the_start_is_known_and_nothing_skipped_after_failures() {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    world.acked.extend(0..70);
    let mut life = Life::unresolved(&mut world, forking());
    assert_eq!(life.on(&mut world, Input::Fetched { lane: Lane::Live, offset: 119, bytes: 1 }), [Output::Drop]);
    for _ in 0..3 {
        life.on(&mut world, Input::ResolveFailed);
    }
    assert_eq!((life.retries.clone(), life.partition.state()), (vec![1, 2, 3], State::Failed));
    life.resolve(&mut world);
    life.run_dry(&mut world);
    assert_eq!(life.delivered_by(Lane::Backfill), Vec::from_iter(70..120));
}

#[test]
fn b50_an_acknowledgement_after_the_release_is_stale() {
    let (mut world, mut life) = catching_up(forking());
    life.on(&mut world, Input::Revoke);
    life.on(&mut world, Input::DrainDeadline);
    life.answer_all(&mut world);
    let before = life.partition.view();
    assert_eq!(life.ack(&mut world, 70), AckOutcome::Stale);
    assert_eq!(life.partition.view(), before);
}

#[test]
fn b40_after_a_loss_nothing_is_committed() {
    let (mut world, mut life) = catching_up(forking());
    life.ack(&mut world, 70);
    life.on(&mut world, Input::CommitDue);
    life.commits.clear();
    let out = life.on(&mut world, Input::Lost);
    assert_eq!(out, [Output::StopReader, Output::DropQueued, Output::Event(Event::Lost), Output::Released]);
    assert_eq!(life.ack(&mut world, 71), AckOutcome::Stale);
    for input in [Input::CommitDue, Input::Revoke, Input::DrainDeadline, Input::Lost] {
        assert_eq!(life.on(&mut world, input), []);
    }
    assert_eq!(life.partition.state(), State::Lost);
}

fn any_offset() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0_i64..60, 1 => Just(i64::MAX), 1 => Just(i64::MAX - 1), 1 => Just(i64::MIN), 1 => any::<i64>()]
}

fn any_lane() -> impl Strategy<Value = Lane> {
    prop_oneof![Just(Lane::Live), Just(Lane::Backfill)]
}

fn any_resolved() -> impl Strategy<Value = Input> {
    let reset = prop_oneof![Just(Reset::Earliest), Just(Reset::Latest), Just(Reset::Error)];
    let metadata = prop_oneof![Just(metadata(10, &[20..30])), Just(String::new()), ".{0,10}"];
    let checkpoint = prop::option::of((any_offset(), any_offset(), any_offset()));
    (prop::option::of((any_offset(), metadata)), checkpoint, any_offset(), any_offset(), reset).prop_map(
        |(committed, checkpoint, low, high, reset)| {
            let checkpoint = checkpoint.map(|(floor, start, end)| {
                let mut progress = Progress::new(LOG, floor);
                progress.ahead.insert(start..end);
                progress
            });
            Input::Resolved(Resolved { committed, checkpoint, log: LOG, low, high, reset })
        },
    )
}

fn any_input() -> impl Strategy<Value = Input> {
    let result = prop_oneof![Just(Ok(())), any::<i16>().prop_map(|code| Err(CommitFailure::from_code(code)))];
    let id = || (0_u64..20).prop_map(CommitId);
    prop_oneof![
        2 => any_resolved(),
        8 => (any_lane(), any_offset(), any::<u64>())
            .prop_map(|(lane, offset, bytes)| Input::Fetched { lane, offset, bytes }),
        2 => (any_lane(), any_offset()).prop_map(|(lane, next)| Input::End { lane, next }),
        1 => any_offset().prop_map(|low| Input::LogStart { low }),
        6 => any_offset().prop_map(|offset| Input::HandOut { offset }),
        6 => any_offset().prop_map(|offset| Input::Ack { offset }),
        2 => any_offset().prop_map(|offset| Input::Defer { offset }),
        1 => ".{0,10}".prop_map(Input::UserMetadata),
        4 => Just(Input::CommitDue),
        3 => (id(), result).prop_map(|(id, result)| Input::Committed { id, result }),
        1 => (any_offset(), ".{0,10}").prop_map(|(floor, metadata)| Input::ReadBack { floor, metadata }),
        2 => (id(), any::<bool>()).prop_map(|(id, ok)| Input::Saved { id, ok }),
        1 => prop_oneof![Just(Input::Revoke), Just(Input::DrainDeadline), Just(Input::Lost), Just(Input::ResolveFailed)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever comes in whichever state: an answer, no panic, one release at most, and nothing sent behind it.
    #[test]
    fn any_input_is_answered_in_any_state(
        first in any_resolved(),
        inputs in prop::collection::vec((any_input(), 0_u64..10), 0..60),
        (ordered, topic, lag, budget) in (any::<bool>(), any::<bool>(), 0_u64..40, 0_usize..100),
    ) {
        let settings = Settings {
            order: if ordered { Order::Offset } else { Order::LiveFirst },
            checkpoint: if topic { Checkpoint::Topic("t".to_owned()) } else { Checkpoint::Metadata },
            fork_when: Lag::records(lag),
            metadata_bytes_max: budget,
            live: Bound { records: 0, bytes: 0 },
            ..Settings::default()
        };
        let mut partition = Partition::new(Epoch(1), settings);
        partition.on(Epoch(1), first);
        let mut released = false;
        for (input, epoch) in inputs {
            let epoch = Epoch(u64::from(epoch > 0));
            let (before, asked) = (partition.view(), input.clone());
            let out = partition.on(epoch, input);
            let acks = out.iter().filter(|output| matches!(output, Output::Ack(_))).count();
            prop_assert_eq!(acks, usize::from(matches!(asked, Input::Ack { .. })));
            if epoch == Epoch(0) || released {
                prop_assert_eq!(partition.view(), before);
                prop_assert!(out.iter().all(|output| matches!(output, Output::Drop | Output::Ack(AckOutcome::Stale))), "{out:?}");
            }
            released |= out.contains(&Output::Released);
            prop_assert_eq!(released, matches!(partition.state(), State::Released | State::Lost));
            let view = partition.view();
            prop_assert!(view.ahead.first().is_none_or(|range| range.start > view.floor));
            let (status, buffers) = (partition.status(), partition.buffers());
            prop_assert!(status.live.in_hand <= status.live.in_flight);
            prop_assert_eq!(buffers.live.delivered.offsets(), status.live.in_hand as u64);
        }
    }
}
