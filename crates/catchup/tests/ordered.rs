//! Strict order, and the look into both buffers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use lives::{Life, Log, World, ranges};
use milena_catchup::{Bound, Buffer, Buffers, Event, Input, Lag, Lane, Order, Output, RangeSet, Settings, State};
use proptest::prelude::*;

fn settings(order: Order) -> Settings {
    Settings { order, fork_when: Lag::records(0), ..Settings::default() }
}

proptest! {
    /// What is fetched when does not matter: the application sees one sequence.
    #[test]
    fn b67_offsets_strictly_increase_over_both_lanes(
        holes in prop::collection::btree_set(0_i64..40, 0..20),
        steps in prop::collection::vec((0..4, any::<bool>()), 0..300),
        live in 1_usize..12,
    ) {
        let mut world = World::new(Log::of(0..30).without(holes));
        let live = Bound { records: live, bytes: 1_000 };
        let mut life = Life::start(&mut world, Settings { live, ..settings(Order::Offset) });
        world.log.high = 40;
        for (what, of_live) in steps {
            let lane = if of_live { Lane::Live } else { Lane::Backfill };
            match what {
                0 if !life.paused[&lane] => drop(life.fetch(&mut world, lane)),
                1 => drop(life.hand_out(&mut world, lane)),
                2 if let Some(offset) = life.in_hand.last().copied() => drop(life.ack(&mut world, offset)),
                _ => life.end(&mut world, lane),
            }
            let held = life.partition.buffers().live.held.offsets();
            prop_assert!(held <= live.records as u64);
        }
        life.run_dry(&mut world);
        let offsets: Vec<i64> = life.delivered.iter().map(|(_, offset)| *offset).collect();
        let all: Vec<i64> = world.log.records(0..40).collect();
        prop_assert_eq!(offsets, all);
    }

    #[test]
    fn b69_no_offset_is_shown_twice(
        holes in prop::collection::btree_set(0_i64..40, 0..20),
        steps in prop::collection::vec((0..6, any::<bool>(), any::<prop::sample::Index>()), 0..300),
        ordered in any::<bool>(),
    ) {
        let mut world = World::new(Log::of(0..30).without(holes)).committed_at(3, &[10..14]);
        world.acked.extend((0..3).chain(10..14));
        let mut life = Life::start(&mut world, settings(if ordered { Order::Offset } else { Order::LiveFirst }));
        world.log.high = 40;
        for (what, of_live, index) in steps {
            let lane = if of_live { Lane::Live } else { Lane::Backfill };
            match what {
                0 | 1 => drop(life.fetch(&mut world, lane)),
                2 => drop(life.hand_out(&mut world, lane)),
                3 if !life.in_hand.is_empty() => {
                    let offset = *index.get(&Vec::from_iter(life.in_hand.iter().copied()));
                    life.ack(&mut world, offset);
                }
                4 => drop(life.on(&mut world, Input::CommitDue)),
                _ => life.answer(&mut world, true, Some(Ok(()))),
            }
            let Buffers { live, backfill } = life.partition.buffers();
            let sets: Vec<RangeSet> = [live, backfill]
                .into_iter()
                .flat_map(|Buffer { held, delivered, acknowledged }| [held, delivered, acknowledged])
                .collect();
            let all: RangeSet = sets.iter().flat_map(RangeSet::iter).collect();
            prop_assert_eq!(all.offsets(), sets.iter().map(RangeSet::offsets).sum::<u64>(), "{:?}", sets);
            let delivered: RangeSet = life.in_hand.iter().map(|offset| *offset..offset + 1).collect();
            let shown: RangeSet = sets[1].iter().chain(sets[4].iter()).collect();
            prop_assert_eq!(shown, delivered);
        }
    }
}

#[test]
fn b67_the_first_live_record_follows_the_last_backfill_record() {
    let mut world = World::new(Log::of(0..5));
    let mut life = Life::start(&mut world, settings(Order::Offset));
    world.log.high = 8;
    while life.fetch(&mut world, Lane::Live) {}
    assert!(life.hand_out_all(&mut world).is_empty());
    assert_eq!(life.partition.buffers().live.held, ranges(&[5..8]));
    for _ in 0..5 {
        life.fetch(&mut world, Lane::Backfill);
    }
    // Nothing is acknowledged, and still all of it may go out: order is what was promised.
    assert_eq!(life.hand_out_all(&mut world), Vec::from_iter(0..8));
    assert_eq!(life.partition.state(), State::Merging);
    world.log.high = 9;
    life.fetch(&mut world, Lane::Live);
    assert_eq!(life.hand_out_all(&mut world), [8]);
}

#[test]
fn b68_the_live_buffer_is_bounded_in_records_and_bytes() {
    for live in [Bound { records: 4, bytes: 1_000 }, Bound { records: 1_000, bytes: 40 }] {
        let mut world = World::new(Log::of(0..100));
        let mut life = Life::start(&mut world, Settings { live, ..settings(Order::Offset) });
        world.log.high = 200;
        while !life.paused[&Lane::Live] {
            life.fetch(&mut world, Lane::Live);
        }
        assert_eq!(life.partition.buffers().live.held, ranges(&[100..104]));
        life.run_dry(&mut world);
        assert_eq!(life.delivered.len(), 200);
        assert_eq!(life.events.last(), Some(&Event::CaughtUp));
    }
}

#[test]
fn b69_buffers_show_what_is_held_delivered_and_acknowledged() {
    let mut world = World::new(Log::of(0..6)).committed_at(0, &[]);
    let mut life = Life::start(&mut world, settings(Order::Offset));
    world.log.high = 9;
    for lane in [Lane::Live, Lane::Live, Lane::Backfill, Lane::Backfill, Lane::Backfill] {
        life.fetch(&mut world, lane);
    }
    life.hand_out(&mut world, Lane::Backfill);
    life.hand_out(&mut world, Lane::Backfill);
    life.ack(&mut world, 0);
    let live = Buffer { held: ranges(&[6..8]), ..Buffer::default() };
    let backfill = Buffer { held: ranges(&[2..3]), delivered: ranges(&[1..2]), acknowledged: ranges(&[0..1]) };
    assert_eq!(life.partition.buffers(), Buffers { live: live.clone(), backfill: backfill.clone() });
    // What a commit covers has left the buffer.
    life.commit(&mut world);
    let backfill = Buffer { acknowledged: RangeSet::new(), ..backfill };
    assert_eq!(life.partition.buffers(), Buffers { live, backfill });
}

#[test]
fn o3_with_two_lanes_live_records_do_not_wait() {
    let mut world = World::new(Log::of(0..5));
    let mut life = Life::start(&mut world, settings(Order::LiveFirst));
    world.log.high = 6;
    let out = life.on(&mut world, Input::Fetched { lane: Lane::Live, offset: 5, bytes: 1 });
    assert_eq!(out, [Output::Deliver { lane: Lane::Live, offset: 5 }]);
}
