//! Random work with crashes at random places, against a model that only knows what was acknowledged.

use milena_store::Durability;
use proptest::prelude::*;

use super::Mutant;
use super::crash_run::{INTERVAL, run};

/// Runs per property; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    // A seed has no smaller neighbour that would fail in the same way.
    ProptestConfig {
        cases: asked.unwrap_or(60),
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_acknowledged_is_lost_when_every_append_is_flushed(seed in any::<u64>()) {
        run(seed, Durability::Always, Mutant::None).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn at_most_the_interval_is_lost_when_appends_are_flushed_now_and_then(seed in any::<u64>()) {
        run(seed, INTERVAL, Mutant::None).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn only_the_death_of_the_machine_loses_anything_without_flushes(seed in any::<u64>()) {
        run(seed, Durability::Os, Mutant::None).map_err(TestCaseError::fail)?;
    }
}

/// The property above must not hold for a store that makes a mistake, and hold for the store that does not.
fn is_caught(mutant: Mutant, durability: Durability) {
    let caught = (0..100).any(|seed| {
        run(seed, durability, Mutant::None).unwrap();
        run(seed, durability, mutant).is_err()
    });
    assert!(caught, "{mutant:?} is not noticed");
}

#[test]
fn an_answer_before_the_flush_is_noticed() {
    is_caught(Mutant::AnswersBeforeFlush, Durability::Always);
}

#[test]
fn a_sealed_segment_that_is_not_flushed_is_noticed() {
    is_caught(Mutant::SkipsSealedSegments, INTERVAL);
}

#[test]
fn names_that_are_not_flushed_are_noticed() {
    is_caught(Mutant::SkipsNames, Durability::Always);
}

#[test]
fn a_tail_that_is_believed_after_a_failed_flush_is_noticed() {
    is_caught(Mutant::BelievesTheCache, Durability::Always);
}

#[test]
fn segments_that_go_before_the_start_is_stored_are_noticed() {
    is_caught(Mutant::RemovesBeforeStart, Durability::Always);
}

#[test]
fn writes_after_a_failed_flush_are_noticed() {
    is_caught(Mutant::GoesOnAfterFailedFlush, Durability::Always);
}
