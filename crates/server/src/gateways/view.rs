//! What the log `gateways` says: who is there, and who coordinates. Pure: records in, in log order.
//!
//! The order of the log decides everything, and no clock is part of it: two readers of one log come to one view, however
//! late they read. A number or the lease is taken from another incarnation by naming its last word; if that one said
//! something more in the meantime, the attempt counts for nothing. Whether a holder was silent for long enough that one
//! may *try*, each reader measures with its own clock from when it read that last word, see `machine.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::record::{Beat, Incarnation, LeaseWord};
use crate::groups::Node;

/// Gateways of one store. A further one does not start.
pub const GATEWAYS_MAX: usize = 64;

/// Records after which a gateway that said nothing is forgotten. Counted in records and not in time, so that all readers
/// forget alike: 16 beats of as many gateways as there may be.
pub(super) const FORGET_AFTER: u64 = 16 * GATEWAYS_MAX as u64;

/// Records that are kept at least. A reader that begins at the base does not know who was there before it, until those have
/// been forgotten by everybody; so it is much more than that.
pub(super) const KEEP: u64 = 4 * FORGET_AFTER;

/// A gateway that is known.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) incarnation: Incarnation,
    pub(super) node: Arc<Node>,
    /// Offset of its last beat that counted.
    pub(super) last: u64,
    /// Append time of that beat, by the clock of the log.
    pub(super) log_micros: u64,
    /// When it was read, by the clock of the reader.
    pub(super) read_at: Duration,
}

/// Who holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) instance: u16,
    pub(super) incarnation: Incarnation,
    /// Offset of the claim.
    pub(super) term: u64,
}

/// The lease, as far as the log was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lease {
    pub(super) holder: Option<Holder>,
    /// Offset of the last word about it that counted.
    pub(super) last: Option<u64>,
    /// When that was read, by the clock of the reader.
    pub(super) read_at: Duration,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// The beat counts: its sender is there.
    pub(super) seat: bool,
    /// What it says about the lease counts.
    pub(super) lease: bool,
}

/// What the log says, up to an offset.
#[derive(Debug, Default)]
pub(super) struct View {
    seats: BTreeMap<u16, Seat>,
    lease: Lease,
    /// Newest append time.
    log_micros: u64,
    /// Where a reader may begin.
    base: u64,
    /// A renewal that counted, which becomes the base when it is old enough.
    next_base: Option<u64>,
    /// True before the first record of a reader that begins at a base above 0.
    at_base: bool,
}

impl View {
    /// Of a reader that begins at `base`: 0, or a renewal that counted.
    pub(super) fn from_base(base: u64) -> Self {
        Self { base, at_base: base > 0, ..Self::default() }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn seat(&self, instance: u16) -> Option<&Seat> {
        self.seats.get(&instance)
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values()
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Newest time by the clock of the log, in microseconds.
    pub(super) fn log_micros(&self) -> u64 {
        self.log_micros
    }

    /// The base that the next renewal should name, when `end` is the next offset.
    pub(super) fn wanted_base(&self, end: u64) -> u64 {
        self.next_base.filter(|next| end.saturating_sub(*next) >= KEEP).unwrap_or(self.base)
    }

    /// Takes the beat at `offset`, appended at `log_micros` by the clock of the log and read at `now`.
    pub(super) fn take(&mut self, offset: u64, log_micros: u64, now: Duration, beat: &Beat) -> Counted {
        self.log_micros = self.log_micros.max(log_micros);
        self.seats.retain(|_, seat| offset.saturating_sub(seat.last) <= FORGET_AFTER);
        let at_base = std::mem::take(&mut self.at_base);
        if !at_base && !self.may_sit(beat) {
            return Counted::default();
        }
        let lease = self.take_lease(offset, now, beat, at_base);
        if beat.leaves {
            self.seats.remove(&beat.instance);
        } else {
            self.sit(offset, log_micros, now, beat);
        }
        Counted { seat: true, lease }
    }

    fn may_sit(&self, beat: &Beat) -> bool {
        match self.seats.get(&beat.instance) {
            Some(seat) => seat.incarnation == beat.incarnation || beat.takes == Some(seat.last),
            None => self.seats.len() < GATEWAYS_MAX,
        }
    }

    fn sit(&mut self, offset: u64, log_micros: u64, now: Duration, beat: &Beat) {
        let known = self.seats.get(&beat.instance).filter(|seat| seat.node.endpoints == beat.endpoints);
        let node = known.map_or_else(
            || Arc::new(Node { id: i32::from(beat.instance), endpoints: beat.endpoints.clone() }),
            |seat| Arc::clone(&seat.node),
        );
        let seat = Seat { incarnation: beat.incarnation, node, last: offset, log_micros, read_at: now };
        self.seats.insert(beat.instance, seat);
    }

    fn take_lease(&mut self, offset: u64, now: Duration, beat: &Beat, at_base: bool) -> bool {
        let me = |term| Holder { instance: beat.instance, incarnation: beat.incarnation, term };
        let holds = |term| self.lease.holder == Some(me(term));
        let holder = match beat.lease {
            LeaseWord::Claim { follows } if follows == self.lease.last => Some(me(offset)),
            LeaseWord::Renew { term, base } if at_base || holds(term) => {
                self.renewed(offset, base);
                Some(me(term))
            }
            LeaseWord::Release { term } if holds(term) => None,
            _ => return false,
        };
        self.lease = Lease { holder, last: Some(offset), read_at: now };
        true
    }

    fn renewed(&mut self, offset: u64, base: u64) {
        if base > self.base {
            self.base = base;
            self.next_base = Some(offset);
        } else if base == self.base && self.next_base.is_none_or(|next| next <= base) {
            // The renewal at the base itself names an older one: who begins there waits, as everybody else did, for the
            // first that names this one. Otherwise the base would be its own successor, and never move again.
            self.next_base = Some(offset);
        }
    }
}
