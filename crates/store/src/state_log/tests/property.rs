//! Random appends, snapshots, faults and crashes, against a model.

use std::sync::Arc;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::TOPIC;
use crate::error::StoreError;
use crate::state_log::{StateEvent, StateLog, StateLogOptions};
use crate::testing::{Fault, MemoryStore};
use crate::types::Durability;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Option<Fault>>),
    Snapshot(Vec<Option<Fault>>),
    Crash { late_lands_first: bool, faults: Vec<Option<Fault>> },
}

fn faults() -> impl Strategy<Value = Vec<Option<Fault>>> {
    let fault = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Fault::Full)),
        1 => Just(Some(Fault::Busy)),
        2 => Just(Some(Fault::InDoubtApplied)),
        1 => Just(Some(Fault::InDoubtLost)),
        2 => (0..5u32).prop_map(|appends| Some(Fault::InDoubtLate { appends })),
        1 => any::<bool>().prop_map(|applied| Some(Fault::Hangs { applied })),
        1 => Just(Some(Fault::NoOffset)),
    ];
    proptest::collection::vec(fault, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => faults().prop_map(Step::Append),
        2 => faults().prop_map(Step::Snapshot),
        2 => (any::<bool>(), faults()).prop_map(|(late_lands_first, faults)| Step::Crash { late_lands_first, faults }),
    ]
}

/// The table as it must be, and the records of which one more may turn up after a crash.
#[derive(Default)]
struct Model {
    table: Vec<Vec<u8>>,
    possible: Vec<Vec<u8>>,
}

impl Model {
    fn accepts(&self, loaded: &[Vec<u8>]) -> bool {
        let one_more = self.possible.iter().any(|record| {
            loaded.split_last().is_some_and(|(last, before)| last == record && before == self.table.as_slice())
        });
        loaded == self.table.as_slice() || one_more
    }
}

fn reopened(store: &MemoryStore, options: &StateLogOptions, model: &mut Model) -> Result<StateLog, TestCaseError> {
    let mut table: Vec<Vec<u8>> = Vec::new();
    for _ in 0..10 {
        table.clear();
        let opening = StateLog::open(Arc::new(store.clone()), TOPIC, options.clone(), |event| match event {
            StateEvent::Reset => table.clear(),
            StateEvent::Record(record) => table.push(record.to_vec()),
        });
        // A hanging engine at open is a process that is killed and started again.
        let Some(opened) = opening.now_or_never() else { continue };
        let log = opened.map_err(|error| TestCaseError::fail(format!("open: {error}")))?;
        prop_assert!(model.accepts(&table), "loaded {table:?}, not {:?} (+ {:?})", model.table, model.possible);
        model.table.clone_from(&table);
        return Ok(log);
    }
    Err(TestCaseError::fail("open never ends"))
}

fn run(steps: Vec<Step>, durability: Option<Durability>) -> Result<(), TestCaseError> {
    let store = MemoryStore::new();
    let options = StateLogOptions { durability, chunk_bytes: 12, ..StateLogOptions::default() };
    let mut model = Model::default();
    let mut log = reopened(&store, &options, &mut model)?;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Append(faults) => {
                faults.into_iter().for_each(|fault| store.plan(fault));
                let record = format!("r{number}").into_bytes();
                match log.append(record.clone()).now_or_never() {
                    Some(Ok(())) => {
                        model.table.push(record);
                        model.possible.clear();
                    }
                    Some(Err(StoreError::InDoubt { .. })) | None => model.possible.push(record),
                    Some(Err(_)) => {}
                }
            }
            Step::Snapshot(faults) => {
                faults.into_iter().for_each(|fault| store.plan(fault));
                if let Some(Ok(())) = log.snapshot(model.table.clone()).now_or_never() {
                    model.possible.clear();
                }
            }
            Step::Crash { late_lands_first, faults } => {
                drop(log);
                // Without a claim nothing can be said about what lands later; a store without foreign writers has no such thing.
                if late_lands_first || !faults.is_empty() {
                    store.land_late();
                }
                faults.into_iter().for_each(|fault| store.plan(fault));
                log = reopened(&store, &options, &mut model)?;
            }
        }
        store.forget_faults();
    }
    drop(log);
    store.land_late();
    reopened(&store, &options, &mut model)?;
    let reloaded = model.table.clone();
    model.possible.clear();
    reopened(&store, &options, &mut model)?;
    prop_assert_eq!(reloaded, model.table);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn whatever_fails_and_crashes_the_log_loads_what_was_acknowledged(
        steps in proptest::collection::vec(step(), 1..25),
        flushed in any::<bool>(),
    ) {
        run(steps, if flushed { Some(Durability::Always) } else { None })?;
    }
}
