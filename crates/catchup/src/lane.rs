//! One lane: what was fetched through it and is not acknowledged.

use std::collections::BTreeMap;

use crate::settings::Bound;
use crate::status::LaneStatus;

/// Which of two readers a record comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// From the fork on; the only lane when there is no fork.
    Live,
    /// The gap below the fork, lowest offset first.
    Backfill,
}

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
    bytes: u64,
    phase: Phase,
}

/// Position and flights of one lane. Rule 1 of the ledger is [`LaneState::take`]: a record is in flight from the same
/// step on in which the position moves past it.
#[derive(Debug)]
pub(crate) struct LaneState {
    /// The next offset to fetch: all below came through this lane, or is not in the log, or was finished before.
    pub(crate) position: i64,
    /// The backfill ends here.
    pub(crate) end: i64,
    flights: BTreeMap<i64, Flight>,
    bytes: u64,
    in_hand: usize,
    bound: Bound,
    full: bool,
    /// What the reader was told last.
    pub(crate) paused: bool,
}

impl LaneState {
    pub(crate) fn new(position: i64, end: i64, bound: Bound, paused: bool) -> Self {
        let bound = Bound { records: bound.records.max(1), bytes: bound.bytes.max(1) };
        let flights = BTreeMap::new();
        Self { position, end, flights, bytes: 0, in_hand: 0, bound, full: false, paused }
    }

    pub(crate) fn take(&mut self, offset: i64, bytes: u64, phase: Phase) {
        self.position = offset.saturating_add(1);
        self.flights.insert(offset, Flight { bytes, phase });
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Moves a record from one phase to another. `false`, and nothing moves, when it was not in that phase.
    pub(crate) fn shift(&mut self, offset: i64, from: Phase, to: Phase) -> bool {
        let Some(flight) = self.flights.get_mut(&offset).filter(|flight| flight.phase == from) else { return false };
        flight.phase = to;
        self.in_hand += usize::from(to == Phase::InHand);
        self.in_hand -= usize::from(from == Phase::InHand);
        true
    }

    /// Takes a record that the application has out of flight.
    pub(crate) fn land(&mut self, offset: i64) -> bool {
        if !self.shift(offset, Phase::InHand, Phase::Queued) {
            return false;
        }
        if let Some(flight) = self.flights.remove(&offset) {
            self.bytes = self.bytes.saturating_sub(flight.bytes);
        }
        true
    }

    /// Lets all records go that were kept back, and names them in order.
    pub(crate) fn release_held(&mut self) -> Vec<i64> {
        let held = self.flights.iter_mut().filter(|(_, flight)| flight.phase == Phase::Held);
        held.map(|(offset, flight)| {
            flight.phase = Phase::Queued;
            *offset
        })
        .collect()
    }

    /// Whether a bound is reached; once it is, until both are below three quarters.
    pub(crate) fn full(&mut self) -> bool {
        let Bound { records, bytes } = self.bound;
        let part = |of: u64, max: u64| u128::from(of) * 4 < u128::from(max) * 3;
        self.full = if self.full {
            !(part(self.flights.len() as u64, records as u64) && part(self.bytes, bytes))
        } else {
            self.flights.len() >= records || self.bytes >= bytes
        };
        self.full
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// All records in flight, lowest first.
    pub(crate) fn flights(&self) -> impl Iterator<Item = (i64, Phase)> {
        self.flights.iter().map(|(&offset, flight)| (offset, flight.phase))
    }

    pub(crate) fn status(&self) -> LaneStatus {
        LaneStatus {
            position: self.position,
            in_flight: self.flights.len(),
            bytes: self.bytes,
            in_hand: self.in_hand,
            oldest: self.flights.keys().next().copied(),
            paused: self.paused,
        }
    }
}
