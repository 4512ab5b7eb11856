//! Who is next to have a password checked.
//!
//! Whoever authenticates again comes first. Strangers come round by address: an address that asks a thousand times
//! is served as often as one that asks once, so guessing from one place does not keep others out. What waits is
//! bounded by the connections there may be.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Bits of an IPv6 address that one client has for itself as a rule.
const HOST_BITS: u32 = 64;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// A client that is let in already.
    Again,
    /// One that is not, of an address.
    Stranger(IpAddr),
}

impl Waits {
    /// A stranger; all addresses of an IPv6 network of 64 bits are one.
    pub(super) fn stranger(address: IpAddr) -> Self {
        Self::Stranger(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS).into(),
            address => address,
        })
    }
}

/// Turns that are given out.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Mutex<State>>);

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn(Turns);

/// Its place in the queue: the round, then the order in which they came. Round 0 is for those who are let in.
type Place = (u64, u64);

#[derive(Debug)]
struct State {
    free: usize,
    /// The round that the last turn was of.
    round: u64,
    came: u64,
    queue: BTreeMap<Place, (Waits, oneshot::Sender<Turn>)>,
    /// Of each address that waits: the round of its last place, and how many places it has.
    addresses: HashMap<IpAddr, (u64, usize)>,
}

impl Turns {
    /// So many turns at a time.
    pub(super) fn new(turns: usize) -> Self {
        let state = State { free: turns, round: 1, came: 0, queue: BTreeMap::new(), addresses: HashMap::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for a turn.
    pub(super) async fn take(&self, who: Waits) -> Turn {
        let (waiting, turn) = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Turn(self.clone());
            }
            let (sender, receiver) = oneshot::channel();
            (Waiting { turns: self, place: state.enter(who, sender) }, receiver)
        };
        let turn = turn.await;
        drop(waiting);
        match turn {
            Ok(turn) => turn,
            // A place goes with a turn, or with who waits for it.
            Err(_) => std::future::pending().await,
        }
    }

    fn give_back(&self) {
        let next = {
            let mut state = self.0.lock();
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // One that has just gone drops the turn, which comes back here.
            let _ = next.send(Turn(self.clone()));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A place in the queue, which is left when this is dropped.
struct Waiting<'a> {
    turns: &'a Turns,
    place: Place,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock();
        if let Some((who, _)) = state.queue.remove(&self.place) {
            state.leave(who);
        }
    }
}

impl State {
    fn enter(&mut self, who: Waits, sender: oneshot::Sender<Turn>) -> Place {
        self.came += 1;
        let round = match who {
            Waits::Again => 0,
            Waits::Stranger(address) => {
                let (last, places) = self.addresses.entry(address).or_insert((self.round, 0));
                *last = (*last).max(self.round) + 1;
                *places += 1;
                *last
            }
        };
        let place = (round, self.came);
        self.queue.insert(place, (who, sender));
        place
    }

    fn leave(&mut self, who: Waits) {
        let Waits::Stranger(address) = who else { return };
        if let Some((_, places)) = self.addresses.get_mut(&address) {
            *places -= 1;
            if *places == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let ((round, _), (who, sender)) = self.queue.pop_first()?;
        self.round = self.round.max(round);
        self.leave(who);
        Some(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Taking<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

    fn stranger(last: u8) -> Waits {
        Waits::stranger(IpAddr::from([10, 0, 0, last]))
    }

    fn taking(turns: &Turns, who: Waits) -> Taking<'_> {
        Box::pin(turns.take(who))
    }

    /// Turns that are free, places, and addresses that have one.
    fn counts(turns: &Turns) -> (usize, usize, usize) {
        let state = turns.0.lock();
        (state.free, state.queue.len(), state.addresses.len())
    }

    fn poll(taking: &mut Taking<'_>) -> Option<Turn> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    /// Waits as each of these behind a turn that is taken, and gives the order in which they get theirs.
    fn order(turns: &Turns, who: &[Waits]) -> Vec<usize> {
        let held = poll(&mut taking(turns, Waits::Again));
        assert!(held.is_some());
        let mut waiting: Vec<(usize, Taking<'_>)> = Vec::new();
        for (number, who) in who.iter().enumerate() {
            let mut one = taking(turns, *who);
            assert!(poll(&mut one).is_none());
            waiting.push((number, one));
        }
        drop(held);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let mut got: Vec<(usize, Turn)> = Vec::new();
            waiting.retain_mut(|(number, taking)| match poll(taking) {
                Some(turn) => {
                    got.push((*number, turn));
                    false
                }
                None => true,
            });
            assert_eq!(got.len(), 1, "one turn at a time");
            order.extend(got.iter().map(|(number, _)| *number));
        }
        order
    }

    #[test]
    fn one_address_does_not_keep_another_out_and_whoever_is_let_in_comes_first() {
        let (turns, guesses) = (Turns::new(1), stranger(1));
        let who = [guesses, guesses, guesses, guesses, stranger(2), stranger(2), Waits::Again];
        assert_eq!(order(&turns, &who), [6, 0, 4, 1, 5, 2, 3]);
        assert_eq!(counts(&turns), (1, 0, 0));
    }

    #[test]
    fn an_address_that_comes_late_is_not_behind_the_rounds_that_are_over_or_to_come() {
        let turns = Turns::new(1);
        let first = order(&turns, &[stranger(1); 5]);
        assert_eq!(first, [0, 1, 2, 3, 4]);
        assert_eq!(order(&turns, &[stranger(1), stranger(1), stranger(3)]), [0, 2, 1]);
    }

    #[test]
    fn whoever_goes_leaves_nothing_behind() {
        let turns = Turns::new(1);
        let held = poll(&mut taking(&turns, stranger(1))).unwrap();
        let mut gone = taking(&turns, stranger(1));
        let mut given = taking(&turns, stranger(2));
        assert!(poll(&mut gone).is_none() && poll(&mut given).is_none());
        drop(gone);
        assert_eq!(counts(&turns), (0, 1, 1));
        // The turn is on its way to who goes as well.
        drop(held);
        assert_eq!(counts(&turns), (0, 0, 0));
        drop(given);
        assert_eq!(counts(&turns), (1, 0, 0));
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |text: &str| Waits::stranger(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), stranger(1));
        assert_ne!(stranger(1), stranger(2));
    }
}
