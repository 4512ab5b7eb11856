//! Gateways over one log, in a world where whatever can go wrong does: appends that come late, twice as late as anybody
//! waits, or never; answers that are lost; processes that stand still, die and come back; clocks that run at different
//! speeds, and a clock of the log that jumps.

use std::collections::BTreeSet;
use std::time::Duration;

use super::machine::{Machine, Me, Standing};
use super::record::{Beat, Incarnation};
use super::view::{KEEP, View};

const BEAT: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(10);
const POLL: u64 = 1_000;
const PATIENCE: u64 = 3_000;
/// Time from one look at everything to the next, in milliseconds.
const STEP: u64 = 20;
/// When the world becomes a kind one.
const CHAOS_ENDS: u64 = 150_000;
/// By when somebody has to coordinate then: the silence of a dead one, whoever waits for its number, and an append.
const SOMEBODY_LEADS: u64 = CHAOS_ENDS + 35_000;

/// Numbers that only depend on the seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Mostly short, sometimes longer than anybody waits.
    fn delay(&mut self, kind: bool) -> u64 {
        match self.below(10) {
            _ if kind => self.below(50),
            0 => self.below(25_000),
            1 | 2 => self.below(4_000),
            _ => self.below(200),
        }
    }
}

fn me(instance: u16, incarnation: u128) -> Me {
    Me {
        instance,
        incarnation: Incarnation(incarnation),
        endpoints: Vec::new(),
        coordinates: true,
        beat: BEAT,
        lease: LEASE,
    }
}

/// What a gateway is doing.
enum Doing {
    /// Nothing until then.
    Rests(u64),
    /// Reads what was in the log up to `end`, and has it at `done`; `None` when the read fails.
    Reads { done: u64, end: Option<usize> },
    /// Waits for the answer to an append.
    Appends { done: u64 },
}

struct Gateway {
    instance: u16,
    /// Percent of true time.
    speed: u64,
    machine: Option<Machine>,
    next: usize,
    doing: Doing,
    /// Stands still until then.
    frozen: u64,
    cut_off: u64,
    /// A dead one comes back then.
    returns: u64,
}

impl Gateway {
    fn clock(&self, true_time: u64) -> Duration {
        Duration::from_millis(true_time * self.speed / 100)
    }

    fn leads(&self, true_time: u64) -> bool {
        let now = self.clock(true_time);
        self.machine.as_ref().is_some_and(|machine| machine.mandate(now).is_some())
    }
}

struct World {
    dice: Dice,
    now: u64,
    log: Vec<(u64, Beat)>,
    /// Appends on their way, and when they land.
    in_flight: Vec<(u64, Beat)>,
    log_clock: u64,
    gateways: Vec<Gateway>,
    incarnations: u128,
    led: BTreeSet<u128>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut gateways = Vec::new();
        for instance in 0..4 {
            // The last one has the number of the first.
            let instance = if instance == 3 { 0 } else { instance };
            let (speed, returns) = (90 + dice.below(21), dice.below(8_000));
            let doing = Doing::Rests(0);
            gateways.push(Gateway { instance, speed, machine: None, next: 0, doing, frozen: 0, cut_off: 0, returns });
        }
        let log_clock = dice.below(1 << 40);
        let (log, in_flight, led) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { dice, now: 0, log, in_flight, log_clock, gateways, incarnations: 0, led }
    }

    fn is_kind(&self) -> bool {
        self.now >= CHAOS_ENDS
    }

    fn step(&mut self) {
        self.now += STEP;
        self.log_clock += STEP;
        if !self.is_kind() && self.dice.one_in(2_000) {
            self.log_clock = self.dice.below(1 << 40);
        }
        let (now, clock) = (self.now, self.log_clock * 1_000);
        let (landed, flying) = std::mem::take(&mut self.in_flight).into_iter().partition(|(at, _)| *at <= now);
        self.in_flight = flying;
        let landed: Vec<(u64, Beat)> = landed;
        self.log.extend(landed.into_iter().map(|(_, beat)| (clock, beat)));
        for index in 0..self.gateways.len() {
            self.disturb(index);
            self.act(index);
        }
    }

    fn disturb(&mut self, index: usize) {
        let (kind, now, dice) = (self.is_kind(), self.now, &mut self.dice);
        let Some(gateway) = self.gateways.get_mut(index) else { return };
        if kind {
            gateway.frozen = gateway.frozen.min(CHAOS_ENDS);
            gateway.cut_off = gateway.cut_off.min(CHAOS_ENDS);
            gateway.returns = gateway.returns.min(CHAOS_ENDS + 1_000);
            return;
        }
        if dice.one_in(1_500) {
            gateway.frozen = now + dice.below(25_000);
        }
        if dice.one_in(1_500) {
            gateway.cut_off = now + dice.below(30_000);
        }
        if dice.one_in(2_500) {
            gateway.machine = None;
            gateway.returns = now + dice.below(20_000);
        }
        let time = gateway.clock(now);
        if let Some(machine) = gateway.machine.as_mut().filter(|_| dice.one_in(4_000)) {
            machine.leave(time);
            gateway.returns = now + dice.below(20_000);
        }
    }

    fn act(&mut self, index: usize) {
        let (kind, now) = (self.is_kind(), self.now);
        let Some(gateway) = self.gateways.get_mut(index) else { return };
        let time = gateway.clock(now);
        let Some(machine) = &mut gateway.machine else {
            if now >= gateway.returns {
                self.incarnations += 1;
                gateway.machine = Some(Machine::new(me(gateway.instance, self.incarnations), View::default(), time));
                (gateway.next, gateway.doing) = (0, Doing::Rests(now));
            }
            return;
        };
        if now < gateway.frozen {
            return;
        }
        match gateway.doing {
            Doing::Rests(until) | Doing::Appends { done: until } if now >= until => {
                let delay = self.dice.delay(kind);
                let fails = delay > PATIENCE || now < gateway.cut_off;
                let end = (!fails).then_some(self.log.len());
                gateway.doing = Doing::Reads { done: now + delay.min(PATIENCE), end };
            }
            Doing::Reads { done, end: None } if now >= done => gateway.doing = Doing::Rests(now + POLL),
            Doing::Reads { done, end: Some(end) } if now >= done => {
                for (offset, (clock, beat)) in self.log.iter().enumerate().take(end).skip(gateway.next) {
                    machine.read(offset as u64, *clock, time, beat);
                }
                gateway.next = gateway.next.max(end);
                gateway.doing = Doing::Rests(now + POLL);
                if let Some(beat) = machine.next(time, gateway.next as u64) {
                    let delay = self.dice.delay(kind);
                    let lost = !kind && (self.dice.one_in(10) || (now < gateway.cut_off && self.dice.one_in(2)));
                    if !lost {
                        self.in_flight.push((now + delay, beat));
                    }
                    let answer_lost = lost || (!kind && self.dice.one_in(10));
                    let answer = if answer_lost { PATIENCE } else { delay.min(PATIENCE) };
                    gateway.doing = Doing::Appends { done: now + answer };
                }
                let gone = !matches!(machine.standing(), Standing::Waiting | Standing::Sits);
                if gone {
                    gateway.machine = None;
                    gateway.returns = gateway.returns.max(now + 500);
                }
            }
            _ => {}
        }
    }

    fn leaders(&mut self) -> usize {
        let now = self.now;
        let leading = self.gateways.iter().filter(|gateway| gateway.leads(now));
        let mut count = 0;
        for gateway in leading {
            count += 1;
            let term = gateway.machine.as_ref().and_then(|machine| machine.mandate(gateway.clock(now)));
            self.led.extend(term.map(|(term, _)| u128::from(term)));
        }
        count
    }
}

#[test]
fn there_are_never_two_coordinators_and_soon_there_is_one() {
    let mut terms = 0;
    for seed in 0..150 {
        let mut world = World::new(seed);
        while world.now < SOMEBODY_LEADS {
            world.step();
            let leaders = world.leaders();
            assert!(leaders <= 1, "seed {seed}: {leaders} coordinators at {} ms", world.now);
        }
        assert_eq!(world.leaders(), 1, "seed {seed}: nobody coordinates");
        terms += world.led.len();
    }
    assert!(terms > 150 * 3, "too little happens: {terms} terms");
}

/// Without the machine's caution two coordinators are what happens, so the world above is hard enough.
#[test]
fn a_clock_that_runs_twice_as_fast_is_too_much() {
    let broken = (0..150).any(|seed| {
        let mut world = World::new(seed);
        for (gateway, speed) in world.gateways.iter_mut().zip([50, 200, 100, 200]) {
            gateway.speed = speed;
        }
        (0..CHAOS_ENDS / STEP).any(|_| {
            world.step();
            world.leaders() > 1
        })
    });
    assert!(broken);
}

/// Gateways that beat in turn, over a log that loses nothing.
struct Quiet {
    log: Vec<Beat>,
    machines: Vec<(usize, Machine)>,
    now: Duration,
}

impl Quiet {
    fn round(&mut self) {
        self.now += Duration::from_secs(1);
        for (next, machine) in &mut self.machines {
            for (offset, beat) in self.log.iter().enumerate().skip(*next) {
                machine.read(offset as u64, 0, self.now, beat);
            }
            *next = self.log.len();
            self.log.extend(machine.next(self.now, *next as u64));
        }
    }
}

#[test]
fn a_reader_that_begins_at_the_base_comes_to_the_same_view_and_the_base_follows_the_end() {
    let machines = (0..3).map(|instance| {
        let me = me(instance, u128::from(instance));
        (0, Machine::new(me, View::default(), Duration::ZERO))
    });
    let mut quiet = Quiet { log: Vec::new(), machines: machines.collect(), now: Duration::ZERO };
    let (mut bases, mut holders) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..20_000_u64 {
        quiet.round();
        // Whoever coordinates goes without a word now and then, and comes back.
        if round % 3_000 == 2_999 {
            quiet.machines.rotate_left(1);
            let gone = quiet.machines.pop().expect("three");
            for _ in 0..40 {
                quiet.round();
            }
            quiet.machines.push(gone);
        }
        if round % 500 != 0 {
            continue;
        }
        for _ in 0..2 {
            quiet.round();
        }
        let (next, machine) = quiet.machines.first().expect("one");
        let (full, base) = (machine.view(), machine.view().base());
        let mut late = View::from_base(base);
        for (offset, beat) in quiet.log.iter().enumerate().take(*next).skip(usize::try_from(base).unwrap()) {
            late.take(offset as u64, 0, quiet.now, beat);
        }
        assert_eq!((late.lease().holder, late.lease().last), (full.lease().holder, full.lease().last), "{round}");
        assert_eq!(late.base(), base);
        let seats = |view: &View| view.seats().map(|seat| (seat.incarnation, seat.last)).collect::<Vec<_>>();
        assert_eq!(seats(&late), seats(full));
        assert!(quiet.log.len() as u64 - base < 3 * KEEP, "{round}: {base}");
        bases.insert(base);
        holders.extend(full.lease().holder.map(|holder| holder.instance));
    }
    assert!(bases.len() > 3 && holders.len() > 1, "{bases:?} {holders:?}");
}

#[test]
fn the_base_goes_on_under_a_holder_that_began_at_one() {
    let start = |instance: u16, view| Machine::new(me(instance, u128::from(instance)), view, Duration::ZERO);
    let mut quiet = Quiet { log: Vec::new(), machines: vec![(0, start(0, View::default()))], now: Duration::ZERO };
    while quiet.machines[0].1.view().base() == 0 {
        quiet.round();
    }
    let base = quiet.machines[0].1.view().base();
    quiet.machines = vec![(usize::try_from(base).unwrap(), start(1, View::from_base(base)))];
    let (mut all, mut read) = (View::default(), 0);
    let until = quiet.log.len() as u64 + 3 * KEEP;
    while (quiet.log.len() as u64) < until {
        quiet.round();
        let (next, machine) = &quiet.machines[0];
        for (offset, beat) in quiet.log.iter().enumerate().take(*next).skip(read) {
            all.take(offset as u64, 0, quiet.now, beat);
        }
        read = *next;
        assert_eq!(machine.view().base(), all.base(), "as for who read everything");
        assert!(read as u64 - machine.view().base() < 3 * KEEP, "{read}");
    }
    let (_, machine) = &quiet.machines[0];
    assert_eq!(machine.view().lease().holder.map(|holder| holder.instance), Some(1));
    assert!(machine.view().base() > base + KEEP);
}
