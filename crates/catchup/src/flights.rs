//! The records of one lane that are in flight, by offset.

use std::collections::VecDeque;

/// Where a record in flight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Kept back until the backfill is through.
    Held,
    /// On its way to the application.
    Queued,
    /// The application has it.
    InHand,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    offset: i64,
    bytes: u64,
    /// `None` when it has landed and only keeps its place.
    phase: Option<Phase>,
}

/// Records come in rising order and mostly leave in it, so they stand in a row: where the log has no holes, a record's place is its
/// distance from the first. One that leaves from the middle keeps its place until it is the first, or until such places are more
/// than half of all. So every step costs constant time where the log has no holes, and the logarithm of their number elsewhere; the
/// clearing out is paid by those that left.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// The first is in flight.
    row: VecDeque<Flight>,
    landed: usize,
}

impl Flights {
    /// Adds a record above all that are there.
    pub(crate) fn push(&mut self, offset: i64, bytes: u64, phase: Phase) {
        debug_assert!(self.row.back().is_none_or(|last| last.offset < offset), "{offset} is not above all others");
        self.row.push_back(Flight { offset, bytes, phase: Some(phase) });
    }

    /// Moves a record from one phase to another. `false`, and nothing moves, when it was not in that phase.
    pub(crate) fn shift(&mut self, offset: i64, from: Phase, to: Phase) -> bool {
        let flight = self.place(offset).and_then(|at| self.row.get_mut(at));
        let Some(flight) = flight.filter(|flight| flight.phase == Some(from)) else { return false };
        flight.phase = Some(to);
        true
    }

    /// Takes out a record in that phase, and answers with its bytes.
    pub(crate) fn land(&mut self, offset: i64, from: Phase) -> Option<u64> {
        let at = self.place(offset)?;
        let flight = self.row.get_mut(at).filter(|flight| flight.phase == Some(from))?;
        flight.phase = None;
        let bytes = flight.bytes;
        self.landed += 1;
        while self.row.front().is_some_and(|first| first.phase.is_none()) {
            self.row.pop_front();
            self.landed -= 1;
        }
        if self.landed > self.row.len() / 2 {
            self.row.retain(|flight| flight.phase.is_some());
            self.landed = 0;
        }
        Some(bytes)
    }

    /// Queues all records that are held, and names them in order.
    pub(crate) fn release(&mut self) -> Vec<i64> {
        let held = self.row.iter_mut().filter(|flight| flight.phase == Some(Phase::Held));
        held.map(|flight| {
            flight.phase = Some(Phase::Queued);
            flight.offset
        })
        .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.row.len() - self.landed
    }

    /// The lowest offset.
    pub(crate) fn first(&self) -> Option<i64> {
        self.row.front().map(|flight| flight.offset)
    }

    /// All of them, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, Phase)> {
        self.row.iter().filter_map(|flight| Some((flight.offset, flight.phase?)))
    }

    /// Where an offset stands in the row.
    fn place(&self, offset: i64) -> Option<usize> {
        let distance = usize::try_from(offset.checked_sub(self.first()?)?).ok()?;
        match self.row.get(distance) {
            Some(flight) if flight.offset == offset => Some(distance),
            _ => self.row.binary_search_by_key(&offset, |flight| flight.offset).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PHASES: [Phase; 3] = [Phase::Held, Phase::Queued, Phase::InHand];

    fn phase() -> impl Strategy<Value = Phase> {
        prop::sample::select(PHASES.to_vec())
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// So far above the last.
        Push(i64, Phase),
        Shift(i64, Phase, Phase),
        Land(i64, Phase),
        Release,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_i64..4, phase()).prop_map(|(above, phase)| Step::Push(above, phase)),
            3 => (0_i64..200, phase(), phase()).prop_map(|(offset, from, to)| Step::Shift(offset, from, to)),
            6 => (0_i64..200, phase()).prop_map(|(offset, from)| Step::Land(offset, from)),
            1 => Just(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn flights_are_what_a_map_of_them_is(steps in prop::collection::vec(step(), 0..200)) {
            let (mut flights, mut model) = (Flights::default(), BTreeMap::new());
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Push(above, phase) => {
                        next += above;
                        flights.push(next, next.unsigned_abs(), phase);
                        model.insert(next, phase);
                    }
                    Step::Shift(offset, from, to) => {
                        let there = model.get(&offset) == Some(&from);
                        prop_assert_eq!(flights.shift(offset, from, to), there);
                        if there {
                            model.insert(offset, to);
                        }
                    }
                    Step::Land(offset, from) => {
                        let there = model.get(&offset) == Some(&from);
                        prop_assert_eq!(flights.land(offset, from), there.then_some(offset.unsigned_abs()));
                        if there {
                            model.remove(&offset);
                        }
                    }
                    Step::Release => {
                        let held = model.iter_mut().filter(|(_, phase)| **phase == Phase::Held);
                        let held: Vec<_> = held.map(|(&offset, phase)| {
                            *phase = Phase::Queued;
                            offset
                        }).collect();
                        prop_assert_eq!(flights.release(), held);
                    }
                }
                prop_assert_eq!(flights.len(), model.len());
                prop_assert_eq!(flights.first(), model.keys().next().copied());
                prop_assert!(flights.iter().eq(model.iter().map(|(&offset, &phase)| (offset, phase))));
            }
        }
    }

    #[test]
    fn a_record_that_is_never_finished_does_not_keep_the_places_of_those_after_it() {
        let mut flights = Flights::default();
        for offset in 0..100_000 {
            flights.push(offset, 1, Phase::InHand);
            if offset > 0 {
                assert_eq!(flights.land(offset, Phase::InHand), Some(1));
            }
            assert!(flights.row.len() <= 3, "{} places for {} records", flights.row.len(), flights.len());
        }
        assert_eq!((flights.len(), flights.first()), (1, Some(0)));
    }
}
