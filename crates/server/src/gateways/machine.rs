//! What a gateway does about the log `gateways`: when it beats, takes, renews and gives back. Pure: the time is an argument,
//! measured by this gateway's own clock, which must never go backwards.
//!
//! # Why there are never two coordinators
//!
//! The holder counts its time from *before* it sent its last renewal that counted, and stops short of the lease time.
//! Another gateway counts from when it *read* that renewal, and waits for the whole lease time before it claims. Its claim
//! names that renewal, so it counts for nothing when there was a later one. So the holder has stopped by itself before any
//! claim is sent, as long as no clock runs a quarter faster than another. What the clocks say does not matter, neither
//! theirs nor that of the log: that one may be set, or be another one after a fail-over.
//!
//! A machine that is suspended may not count that time, and can take itself for the coordinator for a moment after it wakes
//! up. It stores nothing then: the log of offsets was claimed by its successor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::record::{Beat, Incarnation, LeaseWord};
use super::view::{GATEWAYS_MAX, Seat, View};
use crate::groups::{Endpoint, Node};

/// Beats of our own whose times are remembered. More are never on their way: they are sent one after the other.
const SENT_MAX: usize = 16;

/// Beats of another gateway after which it is taken to be alive. One may have been on its way when it died.
const ALIVE_AFTER: u32 = 2;

/// Who this is, and how it goes about it.
#[derive(Debug, Clone)]
pub(super) struct Me {
    pub(super) instance: u16,
    pub(super) incarnation: Incarnation,
    pub(super) endpoints: Vec<Endpoint>,
    /// Whether it coordinates groups when nobody else does.
    pub(super) coordinates: bool,
    /// Time between beats.
    pub(super) beat: Duration,
    /// Silence after which a gateway is taken to be gone.
    pub(super) lease: Duration,
}

/// Whether this gateway has its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not yet: somebody else had it, and may be alive.
    Waiting,
    /// It has.
    Sits,
    /// Not, and it will not get it: somebody else has it.
    Refused(Arc<Node>),
    /// Not, since there are as many gateways as there may be.
    Crowded,
    /// No longer: somebody else took it, or that cannot be told since the log is lost.
    Displaced,
    /// It has given it back.
    Left,
}

/// A gateway's part.
#[derive(Debug)]
pub(super) struct Machine {
    me: Me,
    view: View,
    standing: Standing,
    /// Sequence numbers and times of the last beats.
    sent: VecDeque<(u64, Duration)>,
    next_seq: u64,
    next_beat: Duration,
    /// Until when the lease may be relied upon.
    holds_until: Duration,
    /// The last beat of whoever has our number, and how many came since we look.
    rival: Option<(u64, u32)>,
    /// Clients may be sent here.
    serves: bool,
    leaving: bool,
}

impl Machine {
    pub(super) fn new(me: Me, view: View, now: Duration) -> Self {
        Self {
            me,
            view,
            standing: Standing::Waiting,
            sent: VecDeque::new(),
            next_seq: 0,
            next_beat: now,
            holds_until: Duration::ZERO,
            rival: None,
            serves: false,
            leaving: false,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Takes a beat from the log, our own ones too.
    pub(super) fn read(&mut self, offset: u64, log_micros: u64, now: Duration, beat: &Beat) {
        let counted = self.view.take(offset, log_micros, now, beat);
        let ours = beat.instance == self.me.instance && beat.incarnation == self.me.incarnation;
        if ours && counted.lease {
            let sent = self.sent.iter().find(|(seq, _)| *seq == beat.seq).map(|(_, at)| *at);
            self.holds_until = match beat.lease {
                LeaseWord::Claim { .. } | LeaseWord::Renew { .. } => {
                    let until = sent.map_or(Duration::ZERO, |at| at + self.me.holds_for());
                    self.holds_until.max(until)
                }
                _ => Duration::ZERO,
            };
        }
        if ours && counted.seat && !beat.leaves && self.standing == Standing::Waiting {
            self.standing = Standing::Sits;
        }
        let rival = self.seat().filter(|seat| seat.incarnation != self.me.incarnation);
        if rival.is_some() && self.standing == Standing::Sits {
            self.standing = Standing::Displaced;
        }
    }

    fn seat(&self) -> Option<&Seat> {
        self.view.seat(self.me.instance)
    }

    /// The term in which groups are coordinated here, and until when that holds without a further renewal.
    pub(super) fn mandate(&self, now: Duration) -> Option<(u64, Duration)> {
        let holder = self.view.lease().holder.filter(|holder| holder.incarnation == self.me.incarnation)?;
        let holds = self.standing == Standing::Sits && !self.leaving && now < self.holds_until;
        holds.then_some((holder.term, self.holds_until))
    }

    /// The gateway that coordinates, when it is another one and was heard of lately.
    pub(super) fn coordinator(&self, now: Duration) -> Option<Arc<Node>> {
        let holder = self.view.lease().holder.filter(|holder| holder.incarnation != self.me.incarnation)?;
        let fresh = !self.is_silent(self.view.lease().read_at, now);
        let seat = self.view.seat(holder.instance).filter(|seat| fresh && seat.incarnation == holder.incarnation)?;
        Some(Arc::clone(&seat.node))
    }

    /// The other gateways that were heard of lately.
    pub(super) fn others(&self, now: Duration) -> Vec<Arc<Node>> {
        let seats = self.view.seats().filter(|seat| seat.incarnation != self.me.incarnation);
        seats.filter(|seat| !self.is_silent(seat.read_at, now)).map(|seat| Arc::clone(&seat.node)).collect()
    }

    fn is_silent(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) >= self.me.lease
    }

    /// Says from now on whether clients may be sent here. Lease and number do not depend on it.
    pub(super) fn serve(&mut self, serves: bool, now: Duration) {
        if self.serves != serves {
            self.serves = serves;
            self.next_beat = now;
        }
    }

    /// From now on groups are no longer coordinated here, and the next beat says farewell.
    pub(super) fn leave(&mut self, now: Duration) {
        self.leaving = true;
        self.next_beat = now;
        if self.standing == Standing::Waiting {
            self.standing = Standing::Left;
        }
    }

    /// From now on it is not known what the log says: somebody else may have the number and the lease.
    pub(super) fn lose_log(&mut self) {
        self.standing = Standing::Displaced;
    }

    /// The beat to send now, if there is one; `end` is the next offset that will be read. Sent one at a time: what was sent
    /// before has been answered or given up, and the log was read since.
    pub(super) fn next(&mut self, now: Duration, end: u64) -> Option<Beat> {
        let takes = match self.standing {
            Standing::Sits => None,
            Standing::Waiting => self.wait_for_number(now)?,
            Standing::Refused(_) | Standing::Crowded | Standing::Displaced | Standing::Left => return None,
        };
        let lease = self.lease_word(now, end);
        let urgent = takes.is_some() || matches!(lease, LeaseWord::Claim { .. });
        if now < self.next_beat && !urgent {
            return None;
        }
        if self.leaving {
            self.standing = Standing::Left;
        }
        self.next_beat = now + self.me.beat;
        self.next_seq += 1;
        self.sent.push_back((self.next_seq, now));
        if self.sent.len() > SENT_MAX {
            self.sent.pop_front();
        }
        Some(Beat {
            instance: self.me.instance,
            incarnation: self.me.incarnation,
            seq: self.next_seq,
            endpoints: if self.serves { self.me.endpoints.clone() } else { Vec::new() },
            takes,
            lease,
            leaves: self.leaving,
        })
    }

    /// What the first beats have to take; `None` when there is none to send. While somebody else may have the number the
    /// beats count for nothing, but tell the time of the log.
    fn wait_for_number(&mut self, now: Duration) -> Option<Option<u64>> {
        let Some(seat) = self.seat() else {
            let crowded = self.view.seats().count() >= GATEWAYS_MAX;
            if crowded {
                self.standing = Standing::Crowded;
            }
            return (!crowded).then_some(None);
        };
        let (last, node) = (seat.last, Arc::clone(&seat.node));
        let by_log = self.view.log_micros().saturating_sub(seat.log_micros);
        let gone = Duration::from_micros(by_log) >= self.me.lease || self.is_silent(seat.read_at, now);
        let (known, beats) = self.rival.unwrap_or((last, 0));
        let beats = beats + u32::from(known != last);
        self.rival = Some((last, beats));
        if beats >= ALIVE_AFTER {
            self.standing = Standing::Refused(node);
            return None;
        }
        Some(gone.then_some(last))
    }

    fn lease_word(&self, now: Duration, end: u64) -> LeaseWord {
        let lease = self.view.lease();
        let ours = lease.holder.filter(|holder| holder.incarnation == self.me.incarnation);
        match ours {
            _ if self.standing != Standing::Sits => LeaseWord::Nothing,
            Some(holder) if self.leaving => LeaseWord::Release { term: holder.term },
            Some(holder) => LeaseWord::Renew { term: holder.term, base: self.view.wanted_base(end) },
            None if self.leaving || !self.me.coordinates => LeaseWord::Nothing,
            None if lease.holder.is_none() || self.is_silent(lease.read_at, now) => {
                LeaseWord::Claim { follows: lease.last }
            }
            None => LeaseWord::Nothing,
        }
    }
}

impl Me {
    /// How long a renewal lets the holder go on: a fifth less than the others wait.
    fn holds_for(&self) -> Duration {
        self.lease - self.lease / 5
    }
}
