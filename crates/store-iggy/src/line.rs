//! One connection, its queue, and what becomes of it when it fails.
//!
//! The SDK carries one request at a time over a connection. So does a [`Line`], but it knows for each call whether
//! its request was sent: a call that gave up in the queue is certainly not carried out, one that gave up behind that
//! is in doubt. Calls go in the order in which they came.
//!
//! A node of a cluster that begins to lead answers what the one before it had not answered, and sends these replies to the
//! connections of its own that happen to have the same numbers. The SDK takes such a reply for the one to its request,
//! and every later one for that to the request after it: a confirmation of another append, messages of another partition.
//! So after each call to a node the server is asked for the name of the connection. What comes back is that name, or the
//! outcome of the call says nothing and the connection is replaced.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iggy::prelude::TcpClient;
use iggy_common::{Client, IggyError, SystemClient};
use milena_store::{PartitionRef, StoreError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dialer::{Dialed, Dialer};
use crate::error::{Op, breaks_connection, store_error};
use crate::limits;
use crate::name::{Name, Nameless};
use crate::pause::Pause;
use crate::roster::Node;

/// Why a call has no answer.
#[derive(Debug, Clone)]
pub(crate) enum CallError {
    /// Its request was not sent.
    Unsent(String),
    /// It was sent, and no reply came in time.
    Late(Duration),
    /// What came was no reply to this call.
    Astray,
    /// Something came, and then nothing more that would show what it was.
    Unproven,
    /// Another node answered than the one that was asked, and it is not known which.
    Moved,
    /// The SDK says so.
    Said(IggyError),
}

impl CallError {
    /// True when the connection was lost, and the same call may have an answer over another one.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            Self::Said(error) => breaks_connection(error),
            Self::Astray | Self::Unproven => true,
            Self::Unsent(_) | Self::Late(_) | Self::Moved => false,
        }
    }

    /// True when the request was sent, or may have been, and no reply came: it may have been too large to come.
    pub(crate) fn lost_the_reply(&self) -> bool {
        matches!(self, Self::Late(_)) || self.is_loss()
    }

    /// As the store's error, for an operation of kind `op` on `what`.
    pub(crate) fn of(&self, op: Op, what: &str) -> StoreError {
        let reason = match self {
            Self::Unsent(reason) => return StoreError::Busy { reason: reason.clone() },
            Self::Said(error) => return store_error(op, error, what),
            Self::Late(waited) => format!("the Iggy server did not answer within {waited:?} about {what}"),
            Self::Astray => format!("the Iggy server sent another reply than that about {what}"),
            Self::Unproven => format!("the Iggy server fell silent behind its reply about {what}"),
            Self::Moved => format!("another node of the Iggy cluster answered about {what}"),
        };
        if op == Op::Change { StoreError::InDoubt { reason } } else { StoreError::Busy { reason } }
    }
}

/// A connection that is made when it is needed, and made again after it broke.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
    state: Mutex<State>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// One for a single server, one for each node of a cluster that was needed.
    seats: Vec<Seat>,
    pause: Pause,
}

/// A connection to one node.
struct Seat {
    client: Arc<TcpClient>,
    /// `None` for a single server, and for a node of a cluster that was found by a configured address.
    node: Option<Node>,
    /// As a node of a cluster calls it; `None` for a single server.
    name: Option<Name>,
    /// How many events the SDK had counted when this was made: it connects again when it changes nodes.
    events: usize,
    /// How many connections had broken when this one was last known to be alive.
    breaks: usize,
}

impl Seat {
    /// `None` when a node does not say how it calls the connection.
    async fn new(dialed: Dialed, of_cluster: bool, breaks: usize, patience: Duration) -> Option<Self> {
        let name = match of_cluster {
            true => Some(Name::of(&dialed.client, patience).await.ok()?),
            false => None,
        };
        let events = Client::subscribe_events(&*dialed.client).await.len();
        Some(Self { client: dialed.client, node: dialed.node, name, events, breaks })
    }

    /// Whether the last reply was the one to the last request, or else why that is not known. Where the SDK went to another
    /// node, the connection has another name.
    async fn in_step(&self, moved: bool, patience: Duration) -> Result<(), Nameless> {
        let Some(name) = &self.name else { return Ok(()) };
        let said = Name::of(&self.client, patience).await?;
        if moved || said == *name { Ok(()) } else { Err(Nameless::Another) }
    }

    /// True when the SDK went to another node, because this one does not lead the partition it was asked about.
    async fn has_moved(&self) -> bool {
        self.name.is_some() && Client::subscribe_events(&*self.client).await.len() != self.events
    }
}

/// Which node of a cluster a call is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For<'a> {
    /// The one that leads the cluster, or any other.
    Any,
    /// The one that leads the cluster and no other, to read what may not be out of date.
    Leader,
    /// The one that leads a partition, to read.
    Reading(&'a PartitionRef),
    /// The one that is known to lead a partition and no other, to hear what it says of it.
    Led(&'a PartitionRef),
    /// The one that leads a partition, to write: its answer shows whether it does.
    Writing(&'a PartitionRef),
    /// As `Writing`, for what is to stand behind an append in doubt. The answer of a node that was not asked is
    /// [`CallError::Moved`], and the doubt is over when what was answered has been taken in.
    Proving(&'a PartitionRef),
}

impl For<'_> {
    fn partition(&self) -> Option<&PartitionRef> {
        match self {
            Self::Any | Self::Leader => None,
            Self::Reading(at) | Self::Led(at) | Self::Writing(at) | Self::Proving(at) => Some(at),
        }
    }
}

/// Counts a call that waits, for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, state: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// Calls that wait for this line or are on it.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sends what `request` sends, and hands its outcome to `settle` before the next call may begin: whoever keeps
    /// account of what was sent sees replies in the order of the requests.
    pub(crate) async fn call<T, R, F>(
        &self,
        target: For<'_>,
        request: impl FnOnce(Arc<TcpClient>) -> F,
        settle: impl FnOnce(Result<T, CallError>) -> R,
    ) -> R
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        let deadline = Instant::now() + self.dialer.config().call_timeout;
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if waiting >= limits::WAITING_MAX {
            return settle(Err(CallError::Unsent("too many calls wait for the Iggy server".to_owned())));
        }
        let Ok(mut state) = timeout_at(deadline, self.state.lock()).await else {
            return settle(Err(CallError::Unsent(
                "the Iggy server is slow, the calls before took too long".to_owned(),
            )));
        };
        let seat = match timeout_at(deadline, self.seat(&mut state, target, deadline)).await {
            Ok(Ok(seat)) => seat,
            Ok(Err(reason)) => return settle(Err(CallError::Unsent(reason))),
            Err(_) => {
                state.pause.failed(limits::RECONNECT_PAUSE_MAX, now());
                return settle(Err(CallError::Unsent("no node of the Iggy server answered in time".to_owned())));
            }
        };
        if let For::Led(at) = target
            && self.dialer.roster.leader(at) != seat.node
        {
            state.seats.push(seat);
            return settle(Err(CallError::Unsent(format!("the node that leads {at:?} is not reached"))));
        }
        let (waited, asked) = (self.dialer.config().call_timeout, now());
        let outcome = match timeout(waited, request(Arc::clone(&seat.client))).await {
            Ok(outcome) => outcome.map_err(CallError::Said),
            Err(_) => Err(CallError::Late(waited)),
        };
        let is_broken = |outcome: &Result<T, CallError>| {
            outcome.as_ref().is_err_and(|error| matches!(error, CallError::Late(_)) || error.is_loss())
        };
        let moved = seat.has_moved().await;
        let outcome = if is_broken(&outcome) { outcome } else { self.proven(&seat, moved).await.and(outcome) };
        let outcome =
            if moved && matches!(target, For::Proving(_)) { outcome.and(Err(CallError::Moved)) } else { outcome };
        let (broken, went_through) = (is_broken(&outcome), outcome.is_ok());
        // What an append shows of the end is known before the doubt about it is over.
        let settled = settle(outcome);
        self.learn(target, &seat, moved, went_through.then_some(asked));
        if broken {
            // The reply to this call may still come; the next call must not take it for its own.
            self.dialer.note_break();
        } else if !moved {
            state.seats.push(seat);
        }
        settled
    }

    /// Makes sure that the last reply was to the last request.
    async fn proven(&self, seat: &Seat, moved: bool) -> Result<(), CallError> {
        match seat.in_step(moved, self.dialer.config().connect_timeout).await {
            Ok(()) => Ok(()),
            Err(Nameless::Another) => {
                self.dialer.metrics.stray_replies.add(1);
                tracing::warn!(node = ?seat.node, "a reply of the Iggy cluster was to another request; what was asked is asked again");
                Err(CallError::Astray)
            }
            Err(Nameless::Lost) => Err(CallError::Unproven),
            Err(Nameless::Late) => {
                if let Some(node) = &seat.node {
                    self.dialer.roster.unreachable(node, now());
                }
                Err(CallError::Unproven)
            }
        }
    }

    /// What an answer shows about who leads a partition; `asked` is when what went through was sent.
    fn learn(&self, target: For<'_>, seat: &Seat, moved: bool, asked: Option<std::time::Instant>) {
        let (For::Writing(at) | For::Proving(at), Some(node)) = (target, &seat.node) else { return };
        if moved {
            self.dialer.roster.refused(at, node, now());
        } else if let Some(asked) = asked {
            self.dialer.roster.found(at, node);
            if matches!(target, For::Writing(_)) {
                self.dialer.roster.settled(at, asked, now());
            }
        }
    }

    /// Takes out the connection to use; who keeps it puts it back. One that has to be made is given up at the deadline.
    async fn seat(&self, state: &mut State, target: For<'_>, deadline: Instant) -> Result<Seat, String> {
        match target {
            For::Leader => self.leader_seat(state, deadline).await,
            target => self.any_seat(state, target, deadline).await,
        }
    }

    /// As [`Self::seat`]. A node that no longer leads answers from what it had then, so it is asked first.
    async fn leader_seat(&self, state: &mut State, deadline: Instant) -> Result<Seat, String> {
        for _ in 0..limits::LEADER_TURNS {
            let seat = self.any_seat(state, For::Any, deadline).await?;
            let leads = match &seat.node {
                // A single server; or of a cluster whose nodes moved, the one that the SDK was led to just now.
                None => Some(true),
                Some(node) => self.dialer.leads(&seat.client, node).await,
            };
            match leads {
                Some(true) => return Ok(seat),
                Some(false) => state.seats.push(seat),
                None => self.dialer.note_break(),
            }
        }
        Err("no node of the Iggy cluster says that it leads".to_owned())
    }

    async fn any_seat(&self, state: &mut State, target: For<'_>, deadline: Instant) -> Result<Seat, String> {
        let breaks = self.dialer.breaks();
        let patience = self.dialer.config().connect_timeout;
        loop {
            let wanted = self.dialer.roster.home(target.partition(), now());
            let found = state.seats.iter().position(|seat| wanted.is_none() || seat.node == wanted);
            let Some(seat) = found.map(|found| state.seats.swap_remove(found)) else { break };
            if let Some(seat) = self.living(seat, breaks).await {
                return Ok(seat);
            }
        }
        if state.pause.holds(now()) {
            return Err("the Iggy server cannot be reached, the next attempt is due in a moment".to_owned());
        }
        // A call that waited long for its turn would find that nobody can be reached in no time, and say so to the others.
        let least = patience.min(self.dialer.config().call_timeout / 2);
        if deadline.saturating_duration_since(Instant::now()) < least {
            return Err("the Iggy server is slow, the calls before left no time to reach it".to_owned());
        }
        match self.dialer.dial_to(target.partition(), deadline.into_std()).await {
            Ok(dialed) => {
                state.pause.succeeded();
                // Of one node there is one connection.
                state.seats.retain(|seat| seat.node != dialed.node);
                let seat = Seat::new(dialed, self.dialer.roster.is_cluster(), breaks, patience).await;
                seat.ok_or_else(|| "a node of the Iggy cluster does not answer what a new connection is".to_owned())
            }
            Err(error) => {
                state.pause.failed(limits::RECONNECT_PAUSE_MAX, now());
                Err(format!("the Iggy server cannot be reached: {error}"))
            }
        }
    }

    /// The connection, if it can be used. When another one broke since this one was used, it is asked for a sign of
    /// life first: the SDK notices a closed connection only by a request that fails, and an append must not be that
    /// request, since it would be in doubt.
    async fn living(&self, seat: Seat, breaks: usize) -> Option<Seat> {
        if seat.breaks == breaks {
            return Some(seat);
        }
        match timeout(self.dialer.config().connect_timeout, seat.client.ping()).await {
            Ok(Ok(())) => Some(Seat { breaks, ..seat }),
            Ok(Err(_)) => None,
            Err(_) => {
                // Another connection to it would have to wait as long.
                if let Some(node) = &seat.node {
                    self.dialer.roster.unreachable(node, now());
                }
                None
            }
        }
    }

    /// The connections there are; for saying goodbye.
    pub(crate) async fn take(&self) -> Vec<Arc<TcpClient>> {
        self.state.lock().await.seats.drain(..).map(|seat| seat.client).collect()
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_that_was_sent_is_in_doubt() {
        let unsent = CallError::Unsent("queue".to_owned());
        assert!(matches!(unsent.of(Op::Change, "it"), StoreError::Busy { .. }));
        let late = CallError::Late(Duration::from_secs(1));
        assert!(matches!(late.of(Op::Change, "it"), StoreError::InDoubt { .. }));
        assert!(matches!(late.of(Op::Read, "it"), StoreError::Busy { .. }));
        assert!(matches!(CallError::Astray.of(Op::Change, "it"), StoreError::InDoubt { .. }));
        assert!(matches!(CallError::Astray.of(Op::Read, "it"), StoreError::Busy { .. }));
        assert!(matches!(CallError::Unproven.of(Op::Change, "it"), StoreError::InDoubt { .. }));
        assert!(matches!(CallError::Unproven.of(Op::Read, "it"), StoreError::Busy { .. }));
        assert!(matches!(CallError::Moved.of(Op::Read, "it"), StoreError::Busy { .. }) && !CallError::Moved.is_loss());
        assert!(
            CallError::Unproven.is_loss() && CallError::Astray.is_loss(),
            "the call is repeated where it may be, over another connection"
        );
    }
}
