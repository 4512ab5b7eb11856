//! One lane: what was fetched through it and is not acknowledged.

use crate::flights::{Flights, Phase};
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

/// Position and flights of one lane. Rule 1 of the ledger is [`LaneState::take`]: a record is in flight from the same
/// step on in which the position moves past it.
#[derive(Debug)]
pub(crate) struct LaneState {
    /// The next offset to fetch: all below came through this lane, or is not in the log, or was finished before.
    pub(crate) position: i64,
    /// The backfill ends here.
    pub(crate) end: i64,
    flights: Flights,
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
        let flights = Flights::default();
        Self { position, end, flights, bytes: 0, in_hand: 0, bound, full: false, paused }
    }

    pub(crate) fn take(&mut self, offset: i64, bytes: u64, phase: Phase) {
        self.position = offset.saturating_add(1);
        self.flights.push(offset, bytes, phase);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Moves a record from one phase to another. `false`, and nothing moves, when it was not in that phase.
    pub(crate) fn shift(&mut self, offset: i64, from: Phase, to: Phase) -> bool {
        if !self.flights.shift(offset, from, to) {
            return false;
        }
        self.in_hand += usize::from(to == Phase::InHand);
        self.in_hand -= usize::from(from == Phase::InHand);
        true
    }

    /// Takes a record that the application has out of flight.
    pub(crate) fn land(&mut self, offset: i64) -> bool {
        let Some(bytes) = self.flights.land(offset, Phase::InHand) else { return false };
        self.in_hand -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }

    /// Lets all records go that were kept back, and names them in order.
    pub(crate) fn release_held(&mut self) -> Vec<i64> {
        self.flights.release()
    }

    /// What the lane takes until it is full: at least one record, since one is what a reader must take to go on.
    pub(crate) fn room(&self) -> Bound {
        let Bound { records, bytes } = self.bound;
        Bound {
            records: records.saturating_sub(self.flights.len()).max(1),
            bytes: bytes.saturating_sub(self.bytes).max(1),
        }
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
        self.flights.iter()
    }

    pub(crate) fn status(&self) -> LaneStatus {
        LaneStatus {
            position: self.position,
            in_flight: self.flights.len(),
            bytes: self.bytes,
            in_hand: self.in_hand,
            oldest: self.flights.first(),
            paused: self.paused,
        }
    }
}
