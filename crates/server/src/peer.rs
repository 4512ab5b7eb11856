//! A connection as handlers see it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::authentication::session::{Principal, Session};
use crate::lifecycle::{Lifecycle, Phase};
use crate::listener::Bound;
use crate::memory::Charge;
use crate::metrics::{ClientMetrics, Entered, Software};

/// Longest piece of a client's own words that is kept for logs, in characters.
const NAME_CHARS_MAX: usize = 64;

/// A connection as handlers see it.
#[derive(Debug)]
pub struct Connection {
    /// Number of the connection in this process.
    pub id: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// The listener that it came in on, with what its clients are told.
    pub listener: Arc<Bound>,
    /// How far the client is with saying who it is; `None` where nobody asks.
    session: Option<Box<Session>>,
    accepted_at: tokio::time::Instant,
    lifecycle: Arc<Lifecycle>,
    client_id: OnceLock<Box<str>>,
    software: OnceLock<(Box<str>, Entered)>,
    /// Nanoseconds that the request being answered was parked.
    parked: AtomicU64,
    ended: AtomicBool,
    ending: Notify,
    /// What the request that is being answered holds of the memory budget.
    charge: Mutex<Charge>,
}

impl Connection {
    /// A connection that lives as long as `lifecycle` lets it.
    #[must_use]
    pub fn new(id: u64, peer: SocketAddr, listener: Arc<Bound>, lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            id,
            peer,
            session: (!listener.sasl.is_empty()).then(|| Box::new(Session::new())),
            listener,
            accepted_at: tokio::time::Instant::now(),
            lifecycle,
            client_id: OnceLock::new(),
            software: OnceLock::new(),
            parked: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            ending: Notify::new(),
            charge: Mutex::default(),
        }
    }

    /// Resolves when nobody should wait for this client any more: it is gone, or the server shuts down. A request
    /// that is parked answers then with what it has.
    pub async fn ending(&self) {
        let notified = self.ending.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        tokio::select! {
            () = notified => {}
            () = self.lifecycle.reached(Phase::Draining) => {}
        }
    }

    /// When the client has to be let in.
    pub(crate) fn authenticates_until(&self, broker: &crate::broker::Broker) -> tokio::time::Instant {
        self.accepted_at + broker.config.limits.authentication_timeout
    }

    /// How far the client is with saying who it is; `None` where nobody asks.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Who the client is, where it was asked and has said so.
    #[must_use]
    pub fn principal(&self) -> Option<&Principal> {
        self.session().and_then(Session::principal)
    }

    /// A request begins, which holds that much.
    pub(crate) fn hold(&self, charge: Charge) {
        *self.charge.lock() = charge;
    }

    /// The request that is being answered is gone from memory. A handler that parks says so as soon as it let go of the
    /// request: where it waits for other clients, they could not send what it waits for while the budget is spent.
    pub fn release(&self) {
        drop(std::mem::take(&mut *self.charge.lock()));
    }

    /// The request that is being answered was parked for so long: it waited for what others do, as its client asked for.
    /// That is no work of ours, and does not count as such.
    pub(crate) fn was_parked(&self, time: Duration) {
        self.parked.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long the request that was answered was parked.
    pub(crate) fn take_parked(&self) -> Duration {
        // Most requests never are; a load is cheaper than a swap.
        if self.parked.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.parked.swap(0, Ordering::Relaxed))
    }

    /// The client is gone.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ending.notify_waiters();
    }

    /// Keeps the client id of the first request, for logs.
    pub(crate) fn introduce(&self, client_id: Option<&str>) {
        if let Some(client_id) = client_id.filter(|_| self.client_id.get().is_none()) {
            let _ = self.client_id.set(printable(client_id));
        }
    }

    /// Keeps what the client says it is (KIP-511), for logs, and counts it among `clients` while the connection is there.
    /// Later words of the same connection change nothing.
    pub fn name_software(&self, clients: &Arc<ClientMetrics>, name: &str, version: &str) {
        if !name.is_empty() {
            self.software.get_or_init(|| {
                let software = Software { name: printable(name), version: printable(version) };
                (printable(&format!("{name} {version}")), clients.enter(software))
            });
        }
    }

    /// The client in its own words, shortened and printable.
    #[must_use]
    pub fn client(&self) -> Client<'_> {
        Client {
            id: self.client_id.get().map(|id| &**id),
            software: self.software.get().map(|(text, _)| &**text),
            user: self.principal().map(|principal| principal.name.as_str()),
        }
    }
}

fn printable(text: &str) -> Box<str> {
    text.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect::<String>().into_boxed_str()
}

/// The client in its own words; displays as `name (software version)`, with ` as user` behind it once it has proved that.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a> {
    id: Option<&'a str>,
    software: Option<&'a str>,
    user: Option<&'a str>,
}

impl fmt::Display for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.unwrap_or("unnamed"))?;
        self.software.map_or(Ok(()), |software| write!(f, " ({software})"))?;
        self.user.map_or(Ok(()), |user| write!(f, " as {user}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(lifecycle: &Arc<Lifecycle>) -> Connection {
        let peer = SocketAddr::from(([127, 0, 0, 1], 4));
        Connection::new(1, peer, Arc::new(Bound::advertising("localhost", 9092)), Arc::clone(lifecycle))
    }

    #[tokio::test]
    async fn a_parked_request_is_told_when_its_client_goes() {
        let connection = connection(&Arc::default());
        tokio::join!(connection.ending(), async { connection.end() });
        connection.ending().await;
    }

    #[tokio::test]
    async fn a_parked_request_is_told_when_the_server_drains() {
        let lifecycle = Arc::default();
        let connection = connection(&lifecycle);
        tokio::join!(connection.ending(), async { lifecycle.advance(Phase::Draining) });
    }

    #[test]
    fn what_a_client_calls_itself_is_shortened_and_printable() {
        let connection = connection(&Arc::default());
        assert_eq!(connection.client().to_string(), "unnamed");
        connection.introduce(Some(&format!("a\n{}", "b".repeat(500))));
        connection.name_software(&Arc::default(), "lib", "1.0\u{1b}[31m");
        assert_eq!(connection.client().to_string(), format!("a{} (lib 1.0[31m)", "b".repeat(63)));
    }
}
