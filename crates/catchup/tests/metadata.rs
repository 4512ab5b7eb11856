//! The written form of a progress, and what damaged or foreign strings do.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may assert too")]
#![allow(clippy::single_range_in_vec_init, reason = "a set of one range is what is meant")]

mod lives;

use lives::{LOG, Life, Log, World, ranges};
use milena_catchup::{
    Bound, Event, Lag, Lane, LogId, METADATA_BYTES_MAX, NotCounted, Progress, Reset, ResetReason, Resolved, Settings,
    State, USER_METADATA_BYTES_MAX, user_metadata,
};
use proptest::prelude::*;

/// Any progress: small steps mostly, sometimes as far as offsets go.
fn any_progress(ranges: usize) -> impl Strategy<Value = Progress> {
    let step = prop_oneof![8 => 1_i64..300, 1 => 1_i64..1 << 40];
    let pieces = prop::collection::vec((step.clone(), step), 0..ranges);
    let floor = prop_oneof![Just(0), 0_i64..1_000_000, Just(i64::MAX), 0..i64::MAX];
    (any::<u64>(), floor, pieces, any::<bool>()).prop_map(|(log, floor, pieces, at_floor)| {
        let mut progress = Progress::new(LogId(log), floor);
        let mut end = floor;
        for (number, (gap, length)) in pieces.into_iter().enumerate() {
            let start = end.saturating_add(if at_floor && number == 0 { 0 } else { gap });
            end = start.saturating_add(length);
            progress.ahead.insert(start..end);
        }
        progress
    })
}

#[test]
fn the_written_form_is_fixed() {
    let progress = Progress { log: LogId(0x0102_0304_0506_0708), floor: 80, ahead: ranges(&[120..140, 300..301]) };
    let encoded = progress.encode("node-7", METADATA_BYTES_MAX);
    assert_eq!(encoded.metadata, "cu1AQIDBAUGBwhQAigUoAEBDfRRbA node-7");
    assert_eq!(LogId::of("cluster", "orders", 3), LogId(9_450_664_870_103_855_238));
}

#[test]
fn identities_differ_in_each_of_their_parts() {
    let ids = [("c", "t", 0), ("c", "t", 1), ("c", "u", 0), ("d", "t", 0), ("ct", "", 0), ("", "ct", 0)];
    let ids: std::collections::BTreeSet<_> = ids.iter().map(|(c, t, p)| LogId::of(c, t, *p)).collect();
    assert_eq!(ids.len(), 6);
}

proptest! {
    #[test]
    fn b41_any_progress_comes_back(progress in any_progress(300), user in "[ -~äπ]{0,40}") {
        let encoded = progress.encode(&user, usize::MAX);
        prop_assert_eq!((encoded.dropped, &encoded.ahead), (0, &progress.ahead));
        prop_assert_eq!(encoded.metadata.len(), progress.encoded_len(&user));
        prop_assert_eq!(user_metadata(&encoded.metadata), &user);
        if progress.ahead.is_empty() && user.is_empty() {
            prop_assert_eq!(encoded.metadata, "");
        } else {
            let ours = encoded.metadata.len() - if user.is_empty() { 0 } else { user.len() + 1 };
            prop_assert!(encoded.metadata[..ours].is_ascii());
            prop_assert_eq!(Progress::decode(&encoded.metadata), Ok(progress.clone()));
            prop_assert_eq!(Progress::ahead_of(&encoded.metadata, progress.log, progress.floor), Ok(progress.ahead));
        }
    }

    #[test]
    fn b41_four_hundred_live_ranges_fit(
        floor in 0..i64::MAX / 2,
        pieces in prop::collection::vec((1_i64..1 << 14, 1_i64..1 << 14), 400),
    ) {
        let mut progress = Progress::new(LOG, floor);
        let mut end = floor;
        for (gap, length) in pieces {
            progress.ahead.insert(end + gap..end + gap + length);
            end += gap + length;
        }
        prop_assert_eq!(progress.encode("", METADATA_BYTES_MAX).dropped, 0);
    }

    #[test]
    fn b42_a_changed_string_counts_for_nothing(
        progress in any_progress(40).prop_filter("has ranges", |progress| !progress.ahead.is_empty()),
        (at, with) in (any::<prop::sample::Index>(), any::<char>()),
        kind in 0..3,
    ) {
        let whole = progress.encode("", usize::MAX).metadata;
        let at = at.index(whole.len());
        let changed = match kind {
            0 => whole[..at].to_owned(),
            1 => format!("{}{with}{}", &whole[..at], &whole[at + 1..]),
            _ => format!("{}{with}{}", &whole[..at], &whole[at..]),
        };
        // A space would only begin a user's part.
        prop_assume!(changed != whole && !(with == ' ' && at == whole.len()));
        let read = Progress::ahead_of(&changed, progress.log, progress.floor);
        prop_assert!(matches!(read, Err(NotCounted::Foreign | NotCounted::Damaged)), "{read:?}");
    }

    #[test]
    fn b42_one_flipped_bit_is_noticed(progress in any_progress(40), at in any::<prop::sample::Index>(), bit in 0..7) {
        let whole = progress.encode("x", usize::MAX).metadata;
        let ours = whole.len() - 2;
        let mut bytes = whole.clone().into_bytes();
        bytes[at.index(ours)] ^= 1_u8 << bit;
        let changed = String::from_utf8(bytes).unwrap();
        prop_assert!(Progress::ahead_of(&changed, progress.log, progress.floor).is_err(), "{whole} {changed}");
    }

    #[test]
    fn b42_foreign_strings_start_a_partition_without_anything_ahead(
        metadata in prop_oneof![".{0,200}", "cu1[A-Za-z0-9_-]{0,200}", "cu1.{0,60}"],
    ) {
        let mut world = World::new(Log::of(0..120));
        world.acked.extend(0..70);
        world.committed = Some((70, metadata));
        let mut life = Life::start(&mut world, Settings { fork_when: Lag::records(0), ..Settings::default() });
        prop_assert!(life.partition.view().ahead.is_empty());
        life.run_dry(&mut world);
        prop_assert_eq!(life.delivered_by(Lane::Backfill), Vec::from_iter(70..120));
        prop_assert_eq!(life.partition.state(), State::Live);
    }

    #[test]
    fn b43_when_not_all_fits_the_shortest_go_first(progress in any_progress(60), user in "[a-z]{0,12}", max in 0_usize..300) {
        let encoded = progress.encode(&user, max);
        prop_assert!(encoded.metadata.len() <= max);
        prop_assert!(progress.ahead.covers(&encoded.ahead), "nothing is claimed that is not finished");
        prop_assert_eq!(encoded.ahead.len() + encoded.dropped, progress.ahead.len());
        if !encoded.ahead.is_empty() {
            prop_assert_eq!(Progress::decode(&encoded.metadata).unwrap().ahead, encoded.ahead.clone());
        }
        let length = |range: std::ops::Range<i64>| range.end - range.start;
        let gone: Vec<_> = progress.ahead.iter().filter(|range| !encoded.ahead.contains(range.start)).collect();
        let shortest = encoded.ahead.iter().map(length).min().unwrap_or(i64::MAX);
        prop_assert!(gone.iter().cloned().all(|range| length(range) <= shortest));
        // And no more go than must: the longest of them would not have fitted.
        if let Some(longest) = gone.into_iter().max_by_key(|range| (length(range.clone()), -range.start)) {
            let mut more = Progress { ahead: encoded.ahead, ..progress };
            more.ahead.insert(longest);
            prop_assert!(more.encoded_len(&user) > max);
        }
    }
}

#[test]
fn b43_a_user_hears_of_ranges_that_did_not_fit_and_status_counts_them() {
    let mut world = World::new(Log::of(0..400));
    let live = Bound { records: 400, bytes: u64::MAX };
    let settings = Settings { live, metadata_bytes_max: 60, fork_when: Lag::never(), ..Settings::default() };
    let mut life = Life::start(&mut world, settings);
    life.answer_all(&mut world);
    life.fetch_all(&mut world);
    life.hand_out_all(&mut world);
    for offset in (1..100).filter(|offset| offset % 3 > 0) {
        life.ack(&mut world, offset);
    }
    for offset in (101..=199).step_by(2) {
        life.ack(&mut world, offset);
    }
    life.commit(&mut world);
    let kept = Progress::ahead_of(&world.committed.as_ref().unwrap().1, LOG, 0).unwrap();
    assert!(kept.len() > 5 && kept.iter().all(|range| range.end - range.start == 2), "{kept:?}");
    let dropped = 83 - kept.len();
    assert_eq!(life.partition.status().ranges, 83);
    assert_eq!(life.events.last(), Some(&Event::RangesDropped { ranges: dropped }));
    assert_eq!(life.partition.status().ranges_dropped, dropped as u64);
}

#[test]
fn b45_the_users_own_part_survives_commits_and_lives() {
    let mut world = World::new(Log::of(0..10));
    world.committed = Some((0, "node-7".to_owned()));
    let settings = Settings { fork_when: Lag::never(), ..Settings::default() };
    let mut life = Life::start(&mut world, settings.clone());
    life.commit(&mut world);
    assert_eq!(world.committed, Some((0, "node-7".to_owned())), "nothing to add, nothing sent");
    life.fetch_all(&mut world);
    life.hand_out_all(&mut world);
    life.ack(&mut world, 5);
    life.commit(&mut world);
    let (_, metadata) = world.committed.clone().unwrap();
    assert_eq!(user_metadata(&metadata), "node-7");
    assert_eq!(Progress::ahead_of(&metadata, LOG, 0), Ok(ranges(&[5..6])));
    let mut next = Life::start(&mut world, settings);
    next.on(&mut world, milena_catchup::Input::UserMetadata("node-8".to_owned()));
    let long = "x".repeat(USER_METADATA_BYTES_MAX + 1);
    next.on(&mut world, milena_catchup::Input::UserMetadata(long));
    let bytes = USER_METADATA_BYTES_MAX + 1;
    assert_eq!(next.events.last(), Some(&Event::UserMetadataTooLong { bytes }));
    next.run_dry(&mut world);
    next.commit(&mut world);
    let (floor, metadata) = world.committed.clone().unwrap();
    assert_eq!((floor, user_metadata(&metadata)), (10, "node-8"), "with nothing ahead too");
}

#[test]
fn b73_facts_of_another_cluster_topic_or_partition_are_ignored_and_reported() {
    let metadata = lives::metadata(90, &[100..110]);
    let mut world = World::new(Log::of(0..120));
    let mut life = Life::unresolved(&mut world, Settings::default());
    let log = LogId(LOG.0 + 1);
    let committed = Some((90, metadata));
    let resolved = Resolved { committed, checkpoint: None, log, low: 0, high: 120, reset: Reset::Error };
    life.partition.on(life.epoch, milena_catchup::Input::Resolved(resolved)).into_iter().for_each(|output| {
        if let milena_catchup::Output::Event(event) = output {
            life.events.push(event);
        }
    });
    let reset = Event::ProgressReset(ResetReason::Metadata(NotCounted::OtherLog));
    assert_eq!(life.events, [reset, Event::Assigned { floor: 90, end: 120 }]);
    assert!(life.partition.view().ahead.is_empty());
}
