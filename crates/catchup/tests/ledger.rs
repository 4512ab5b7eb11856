//! Start and ledger: what is delivered, and what counts as finished.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use lives::{Life, Log, World, ranges};
use milena_catchup::{
    AckOutcome, Bound, Epoch, Event, Input, Lag, Lane, NotCounted, Order, Output, RangeSet, Reset, ResetReason,
    ResolveFault, Settings, State,
};
use proptest::prelude::*;

fn settings(lag: u64) -> Settings {
    Settings { fork_when: Lag::records(lag), ..Settings::default() }
}

fn offsets(set: &RangeSet) -> Vec<i64> {
    set.iter().flatten().collect()
}

#[test]
fn b01_a_lag_above_the_threshold_forks_at_the_end_of_the_log() {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    world.acked.extend(0..70);
    let life = Life::start(&mut world, settings(49));
    let forked = Event::Forked { floor: 70, fork: 120, gap: 50 };
    assert_eq!(life.events, [Event::Assigned { floor: 70, end: 120 }, forked]);
    assert_eq!((life.member, life.reader), (Some(120), Some(70)));
}

#[test]
fn b02_a_lag_at_the_threshold_is_one_lane_from_the_floor() {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[]);
    let life = Life::start(&mut world, settings(50));
    assert_eq!(life.events, [Event::Assigned { floor: 70, end: 120 }]);
    assert_eq!((life.member, life.reader, life.partition.state()), (Some(70), None, State::Live));
}

#[test]
fn b05_b06_without_a_committed_offset_the_reset_policy_decides() {
    let mut world = World::new(Log::of(5..120));
    world.reset = Some(Reset::Latest);
    let life = Life::start(&mut world, Settings { commit: milena_catchup::Commit::Manual, ..settings(10) });
    assert_eq!((life.member, life.partition.state()), (Some(120), State::Live));
    world.reset = Some(Reset::Earliest);
    let life = Life::start(&mut world, Settings { commit: milena_catchup::Commit::Manual, ..settings(10) });
    assert!(life.events.contains(&Event::Forked { floor: 5, fork: 120, gap: 115 }));
}

#[test]
fn b07_what_retention_removed_is_reported_and_the_floor_moves_up() {
    let mut world = World::new(Log::of(90..150)).committed_at(70, &[75..80]);
    world.acked.extend((0..70).chain(75..80));
    let mut life = Life::start(&mut world, settings(10));
    assert_eq!(life.events[..2], [Event::GapExpired(70..75), Event::GapExpired(80..90)]);
    assert_eq!(life.partition.view().floor, 90);
    life.run_dry(&mut world);
    assert_eq!(life.partition.view().floor, 150);
    assert_eq!(life.delivered_by(Lane::Backfill), Vec::from_iter(90..150));
}

#[test]
fn b07_retention_that_overtakes_a_running_backfill_is_reported_too() {
    let mut world = World::new(Log::of(0..150)).committed_at(0, &[50..60]);
    world.acked.extend(50..60);
    let few = Bound { records: 1, bytes: 1_000 };
    let mut life = Life::start(&mut world, Settings { backfill: few, ..settings(10) });
    life.fetch(&mut world, Lane::Backfill);
    world.log.low = 90;
    life.run_dry(&mut world);
    let expired: Vec<_> = life.events.iter().filter(|event| matches!(event, Event::GapExpired(_))).collect();
    assert_eq!(expired, [&Event::GapExpired(1..50), &Event::GapExpired(60..90)]);
    // The record that was fetched in time is the application's, and is waited for.
    assert_eq!(life.delivered_by(Lane::Backfill), [vec![0], Vec::from_iter(90..150)].concat());
    assert_eq!((life.partition.view().floor, life.partition.state()), (150, State::Live));
}

#[test]
fn b08_a_committed_offset_behind_the_log_drops_the_facts_and_follows_the_reset_policy() {
    let beyond = Event::ProgressReset(ResetReason::BeyondLog { committed: 200, end: 150 });
    for (reset, floor) in [(Reset::Earliest, 3), (Reset::Latest, 150)] {
        let mut world = World::new(Log::of(3..150)).committed_at(200, &[210..220]);
        world.acked.extend(if reset == Reset::Latest { 0..150 } else { 0..0 });
        world.reset = Some(reset);
        let life = Life::start(&mut world, settings(1_000));
        assert_eq!(life.events, [beyond.clone(), Event::Assigned { floor, end: 150 }]);
        assert_eq!((life.member, life.partition.view().ahead), (Some(floor), RangeSet::new()));
    }
    let mut world = World::new(Log::of(3..150)).committed_at(200, &[210..220]);
    world.reset = Some(Reset::Error);
    let mut life = Life::start(&mut world, settings(1_000));
    assert_eq!(life.events, [beyond, Event::ResolveFailed(ResolveFault::NoOffset)]);
    assert_eq!((life.partition.state(), life.retries.clone()), (State::Failed, vec![1]));
    // Somebody commits an offset, and the next try goes on.
    world = world.committed_at(149, &[]);
    life.resolve(&mut world);
    assert_eq!((life.partition.state(), life.member), (State::Live, Some(149)));
}

proptest! {
    #[test]
    fn b09_ahead_is_clipped_to_the_log(
        floor in 0_i64..100,
        pieces in prop::collection::vec((1_i64..20, 1_i64..20), 0..8),
        (low, length) in (0_i64..100, 0_i64..200),
    ) {
        let mut ahead = Vec::new();
        let mut end = floor;
        for (gap, length) in pieces {
            ahead.push(end + gap..end + gap + length);
            end += gap + length;
        }
        let mut world = World::new(Log::of(low..low + length)).committed_at(floor, &ahead);
        world.trusting = true;
        let view = Life::start(&mut world, settings(0)).partition.view();
        prop_assert!(view.floor >= low && view.floor <= low + length);
        prop_assert!(view.ahead.iter().all(|range| range.start > view.floor && range.end <= low + length));
        let known = ranges(&ahead);
        let start = if floor > low + length { low } else { floor.max(low) };
        for offset in start..low + length {
            let expected = floor <= low + length && known.contains(offset);
            prop_assert_eq!(offset < view.floor || view.ahead.contains(offset), expected, "{}", offset);
        }
    }

    /// B18, B19, B20 for every order of acknowledgements, and the view by its definition.
    #[test]
    fn b18_b20_nothing_unacknowledged_is_ever_in_a_view(
        holes in prop::collection::btree_set(0_i64..60, 0..30),
        order in Just(Vec::from_iter(0..60)).prop_shuffle(),
        (lag, ordered, ahead) in (0_u64..120, any::<bool>(), 1_i64..50),
    ) {
        let mut world = World::new(Log::of(0..60).without(holes)).committed_at(0, &[ahead..ahead + 7]);
        world.acked.extend(ahead..ahead + 7);
        let order_of = if ordered { Order::Offset } else { Order::LiveFirst };
        let mut life = Life::start(&mut world, Settings { order: order_of, ..settings(lag) });
        world.log.high = 70;
        life.fetch_all(&mut world);
        life.hand_out_all(&mut world);
        for offset in order.into_iter().chain(60..70) {
            if life.in_hand.contains(&offset) {
                life.ack(&mut world, offset);
            }
            let (view, status, buffers) = (life.partition.view(), life.partition.status(), life.partition.buffers());
            for open in &life.in_hand {
                prop_assert!(view.floor <= *open && !view.ahead.contains(*open));
            }
            let mut defined = ranges(&[0..0, ahead..ahead + 7]);
            for (lane, buffer, from) in [
                (Some(status.live), &buffers.live, status.fork.unwrap_or(0)),
                (status.backfill, &buffers.backfill, 0),
            ] {
                let Some(lane) = lane else { continue };
                let in_flight = buffer.held.iter().chain(buffer.delivered.iter());
                let mut finished = ranges(&[from..lane.position]);
                in_flight.for_each(|range| finished.remove(range));
                defined.extend(finished.iter());
            }
            let mut seen = view.ahead.clone();
            seen.insert(0..view.floor);
            prop_assert_eq!(seen, defined);
        }
        prop_assert!(life.in_hand.is_empty());
        prop_assert_eq!(life.partition.view().floor, 70);
    }
}

#[test]
fn b10_pieces_come_lowest_first_and_what_is_ahead_is_never_delivered() {
    for jump_offsets in [0, 1_000] {
        let mut world = World::new(Log::of(0..120)).committed_at(70, &[80..90, 100..105]);
        world.acked.extend((0..70).chain(80..90).chain(100..105));
        let mut life = Life::start(&mut world, Settings { jump_offsets, ..settings(10) });
        world.log.high = 130;
        life.run_dry(&mut world);
        let backfill: Vec<i64> = (70..80).chain(90..100).chain(105..120).collect();
        assert_eq!(life.delivered_by(Lane::Backfill), backfill);
        assert_eq!(life.delivered_by(Lane::Live), Vec::from_iter(120..130));
        assert_eq!(life.events.last(), Some(&Event::CaughtUp));
    }
}

#[test]
fn b10_one_lane_leaves_out_what_is_ahead_too() {
    let mut world = World::new(Log::of(0..120)).committed_at(70, &[80..90, 100..105]);
    world.acked.extend((0..70).chain(80..90).chain(100..105));
    let mut life = Life::start(&mut world, settings(50));
    life.run_dry(&mut world);
    assert_eq!(life.delivered_by(Lane::Live), (70..80).chain(90..100).chain(105..120).collect::<Vec<i64>>());
}

#[test]
fn b11_a_gap_of_one_record_is_delivered_and_a_gap_of_none_starts_no_reader() {
    for ahead in [vec![], vec![60..119]] {
        let floor = if ahead.is_empty() { 119 } else { 59 };
        let mut world = World::new(Log::of(0..120)).committed_at(floor, &ahead);
        world.acked.extend((0..floor).chain(ahead.into_iter().flatten()));
        let mut life = Life::start(&mut world, settings(0));
        life.run_dry(&mut world);
        assert_eq!(
            life.delivered_by(Lane::Backfill),
            Vec::from_iter((floor..120).filter(|at| *at == 59 || *at == 119))
        );
        assert_eq!(life.partition.state(), State::Live);
    }
    for end in [120, 0] {
        let mut world = World::new(Log::of(0..end)).committed_at(end, &[]);
        world.acked.extend(0..end);
        let life = Life::start(&mut world, settings(0));
        assert_eq!((life.reader, life.partition.state()), (None, State::Live));
    }
}

#[test]
fn b14_the_floor_passes_over_offsets_without_a_record() {
    let holes = [71, 74, 75, 118, 119, 121, 124];
    let mut world = World::new(Log::of(0..120).without(holes)).committed_at(70, &[]);
    world.acked.extend(0..70);
    let mut life = Life::start(&mut world, settings(10));
    world.log.high = 126;
    life.fetch_all(&mut world);
    life.hand_out_all(&mut world);
    for (offset, floor) in [(72, 70), (70, 73), (73, 76)] {
        life.ack(&mut world, offset);
        assert_eq!(life.partition.view().floor, floor);
    }
    for offset in [123, 122, 125] {
        life.ack(&mut world, offset);
    }
    assert_eq!(life.partition.view().ahead, ranges(&[118..120, 121..126]), "120 is still to be acknowledged");
    for offset in (76..118).rev() {
        assert_eq!(life.partition.view().floor, 76);
        life.ack(&mut world, offset);
    }
    assert_eq!((life.partition.view().floor, life.partition.state()), (120, State::Live));
}

#[test]
fn b14_markers_before_the_fork_do_not_keep_the_backfill_open() {
    let mut world = World::new(Log::of(0..120).without(115..120)).committed_at(100, &[]);
    world.acked.extend(0..100);
    let mut life = Life::start(&mut world, settings(10));
    while life.fetch(&mut world, Lane::Backfill) {}
    for offset in life.hand_out_all(&mut world) {
        life.ack(&mut world, offset);
    }
    assert_eq!((life.partition.state(), life.partition.view().floor), (State::CatchingUp, 115));
    life.on(&mut world, Input::End { lane: Lane::Backfill, next: 117 });
    assert_eq!((life.partition.state(), life.partition.view().floor), (State::CatchingUp, 117));
    life.on(&mut world, Input::End { lane: Lane::Backfill, next: 120 });
    assert_eq!((life.partition.state(), life.reader), (State::Live, None));
    assert_eq!(life.events.last(), Some(&Event::CaughtUp));
}

#[test]
fn b14_a_record_behind_the_fork_proves_that_the_backfill_is_through() {
    let mut world = World::new(Log::of(0..120).without(115..120)).committed_at(114, &[]);
    world.acked.extend(0..114);
    let mut life = Life::start(&mut world, settings(0));
    life.fetch(&mut world, Lane::Backfill);
    life.hand_out(&mut world, Lane::Backfill);
    world.log.high = 121;
    let out = life.on(&mut world, Input::Fetched { lane: Lane::Backfill, offset: 120, bytes: 1 });
    assert_eq!(out, [Output::Drop, Output::StopReader]);
    assert_eq!((life.partition.state(), life.partition.view().floor), (State::Merging, 114));
    life.ack(&mut world, 114);
    assert_eq!((life.partition.state(), life.partition.view().floor), (State::Live, 120));
}

#[test]
fn b21_an_acknowledgement_counts_once_and_only_in_its_epoch() {
    let mut world = World::new(Log::of(0..10));
    let mut life = Life::start(&mut world, settings(0));
    life.fetch_all(&mut world);
    let ack = Input::Ack { offset: 3 };
    assert_eq!(life.on(&mut world, ack.clone()), [Output::Ack(AckOutcome::Stale)], "nobody has it yet");
    life.hand_out_all(&mut world);
    let before = life.partition.view();
    for epoch in [Epoch(life.epoch.0 - 1), Epoch(life.epoch.0 + 1)] {
        assert_eq!(life.partition.on(epoch, ack.clone()), [Output::Ack(AckOutcome::Stale)]);
        assert_eq!(life.partition.view(), before);
    }
    assert_eq!(life.ack(&mut world, 3), AckOutcome::Counted);
    let after = life.partition.view();
    assert_eq!(after.ahead, ranges(&[3..4]));
    assert_eq!(life.ack(&mut world, 3), AckOutcome::Duplicate);
    assert_eq!(life.partition.view(), after);
}

#[test]
fn b22_a_record_that_nobody_acknowledges_holds_the_floor_and_status_shows_it() {
    let mut world = World::new(Log::of(0..10));
    let mut life = Life::start(&mut world, settings(100));
    life.fetch_all(&mut world);
    for offset in life.hand_out_all(&mut world) {
        if offset != 2 {
            life.ack(&mut world, offset);
        }
    }
    let status = life.partition.status();
    assert_eq!((status.floor, status.ranges), (2, 1));
    assert_eq!((status.live.oldest, status.live.in_flight, status.live.in_hand), (Some(2), 1, 1));
}

#[test]
fn b23_a_deferred_record_comes_again_in_its_lane_behind_what_was_fetched() {
    for order in [Order::LiveFirst, Order::Offset] {
        let mut world = World::new(Log::of(0..5));
        let mut life = Life::start(&mut world, Settings { order, ..settings(0) });
        life.fetch_all(&mut world);
        assert_eq!(life.hand_out(&mut world, Lane::Backfill), Some(0));
        life.defer(&mut world, 0);
        assert_eq!(life.ack(&mut world, 0), AckOutcome::Stale, "it was given back");
        assert_eq!(life.hand_out_all(&mut world), [1, 2, 3, 4, 0]);
        assert_eq!(life.delivered.last(), Some(&(Lane::Backfill, 0)));
        assert_eq!(life.partition.view().floor, 0);
        assert_eq!(life.ack(&mut world, 0), AckOutcome::Counted);
        assert_eq!(life.partition.view().floor, 1);
    }
}

#[test]
fn a_lane_pauses_at_its_bound_and_resumes_below_three_quarters() {
    for (records, bytes, at) in [(8, 1_000, 8), (1_000, 80, 8), (1_000, 81, 9)] {
        let mut world = World::new(Log::of(0..100));
        let live = Bound { records, bytes };
        let mut life = Life::start(&mut world, Settings { live, ..settings(1_000) });
        life.fetch_all(&mut world);
        assert_eq!(life.partition.status().live.in_flight, at);
        assert!(life.partition.status().live.paused);
        let handed = life.hand_out_all(&mut world);
        for (acks, offset) in (1..=3).zip(handed) {
            life.ack(&mut world, offset);
            assert_eq!(life.paused[&Lane::Live], acks < 3);
        }
    }
}

#[test]
fn b73_facts_of_another_floor_or_log_are_ignored_and_reported() {
    let foreign = lives::metadata(90, &[100..110]);
    let mut world = World::new(Log::of(0..120));
    world.acked.extend((0..90).chain(100..110));
    // MirrorMaker 2: a translated offset with the old string. A tool: an offset that was moved, the string kept.
    for committed in [89, 91, 0] {
        world.committed = Some((committed, foreign.clone()));
        let life = Life::start(&mut world, settings(1_000));
        let reset = Event::ProgressReset(ResetReason::Metadata(NotCounted::OtherFloor(90)));
        assert_eq!(life.events, [reset, Event::Assigned { floor: committed, end: 120 }]);
        assert!(life.partition.view().ahead.is_empty());
    }
    world.committed = Some((90, foreign));
    let life = Life::start(&mut world, settings(1_000));
    assert_eq!(offsets(&life.partition.view().ahead), Vec::from_iter(100..110), "with its own floor it counts");
}
