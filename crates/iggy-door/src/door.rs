//! Start and end of the door, and the loop that accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use milena_server::lifecycle::Phase;
use milena_server::listener::{ACCEPT_PAUSE, PerAddress, Reserved, Share, is_of_the_client, prepare};
use milena_server::memory::Memory;
use milena_server::metrics::Counter;
use milena_server::quiet::QuietLog;
use milena_store::{Store, StoreError};
use milena_tls::{TlsError, TlsPort, warn_of};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant as Time, timeout};

use crate::admin::TopicAdmin;
use crate::config::{DoorConfig, OffsetRules, Secret};
use crate::connection;
#[cfg(feature = "faults")]
use crate::faults::Faults;
use crate::secure;
use crate::service::{DoorMetrics, Service};
use crate::state::State;

/// Time that dropped connections have to notice it.
const DROPPED_WAIT: Duration = Duration::from_secs(1);

/// Why the door did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The socket could not be opened.
    #[error("Iggy clients cannot be listened for on {address}: {source}")]
    Bind {
        /// Address it was to bind.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("iggy_door.tls_{0}")]
    Tls(#[from] TlsError),
    /// The store could not be read or written.
    #[error("the store cannot be used: {0}")]
    Store(#[from] StoreError),
}

/// An open door. Dropping it drops its connections without a word; [`Door::shutdown`] is the polite way.
#[must_use = "a door that is dropped closes"]
pub struct Door {
    service: Arc<Service>,
    address: SocketAddr,
    made_up: Option<Secret>,
    accepting: Option<JoinHandle<()>>,
}

/// A door that is about to open: its port is taken, and what it keeps is loaded. Connections are refused.
#[must_use = "a door that nobody opens serves nobody"]
pub struct ClosedDoor {
    config: DoorConfig,
    reserved: Reserved,
    tls: Option<Arc<TlsPort>>,
    store: Arc<dyn Store>,
    state: State,
}

impl ClosedDoor {
    /// Begins to serve. `memory` is the budget of the bytes in flight, shared with whoever else serves the store.
    ///
    /// # Errors
    /// When the address cannot be listened on or the store cannot be written.
    pub async fn open(self, admin: Arc<dyn TopicAdmin>, memory: Arc<Memory>) -> Result<Door, DoorError> {
        let Self { config, reserved, tls, store, state } = self;
        let failed = |source| DoorError::Bind { address: config.listen, source };
        let socket = reserved.listen().map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let (service, made_up) = Service::open(config, store, state, admin, memory).await?;
        let service = Arc::new(service);
        tracing::info!(%address, tls = tls.is_some(), "listening for Iggy clients");
        if let Some(port) = tls {
            secure::keep_fresh(&service, &port);
            // The service is new.
            let _ = service.metrics.tls.set(port);
        }
        let accepting = tokio::spawn(accept_all(Arc::clone(&service), socket));
        Ok(Door { service, address, made_up, accepting: Some(accepting) })
    }
}

impl Door {
    /// Takes the port, loads what the door keeps and, under [`OffsetRules::Server`], compares consumer offsets with the ends of
    /// their partitions. Needs a tokio runtime, and comes before anybody appends to the store: an offset behind messages that
    /// a crash took is recognised by the end of its partition alone.
    ///
    /// # Errors
    /// When the address cannot be bound or the store cannot be read.
    pub async fn prepare(config: DoorConfig, store: Arc<dyn Store>) -> Result<ClosedDoor, DoorError> {
        let failed = |source| DoorError::Bind { address: config.listen, source };
        // Bound first: a port that is taken should be reported before anything is read or written.
        let reserved = Reserved::new(config.listen, false).map_err(failed)?;
        let tls = match config.tls.clone() {
            Some(files) => {
                // A look that panicked is a fault of ours, and no reason to serve in plain text.
                let opened = tokio::task::spawn_blocking(move || TlsPort::open(files)).await;
                let (port, warnings) = opened.unwrap_or(Err(TlsError::Failed))?;
                warn_of("iggy_door", &warnings);
                Some(Arc::new(port))
            }
            None => None,
        };
        let state = State::open(Arc::clone(&store), config.instance_id).await?;
        if config.offset_rules == OffsetRules::Server {
            state.settle_offsets().await?;
        }
        Ok(ClosedDoor { config, reserved, tls, store, state })
    }

    /// [`Door::prepare`] and [`ClosedDoor::open`] in one, where nobody else uses the store yet.
    ///
    /// # Errors
    /// As these.
    pub async fn open(
        config: DoorConfig,
        store: Arc<dyn Store>,
        admin: Arc<dyn TopicAdmin>,
        memory: Arc<Memory>,
    ) -> Result<Self, DoorError> {
        Self::prepare(config, store).await?.open(admin, memory).await
    }

    /// The address that is listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The password of the user, if it was made up just now. Nobody will know it again: only its digest is stored.
    #[must_use]
    pub fn made_up_password(&self) -> Option<&Secret> {
        self.made_up.as_ref()
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> &DoorMetrics {
        &self.service.metrics
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.service.lifecycle.connections()
    }

    /// A look at the counters for as long as the door is open.
    #[must_use]
    pub fn watch(&self) -> DoorWatch {
        DoorWatch(Arc::downgrade(&self.service))
    }

    /// Faults that requests shall meet.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.service.faults
    }

    /// Closes the door: no connection is accepted any more, idle ones are closed, requests in flight are answered within
    /// the drain time; what is left is dropped. The store stays open.
    pub async fn shutdown(mut self) {
        let lifecycle = &self.service.lifecycle;
        lifecycle.advance(Phase::Draining);
        if let Some(accepting) = self.accepting.take() {
            // An accept loop that panicked has nothing left to stop.
            let _ = accepting.await;
        }
        if timeout(self.service.config.limits.shutdown_drain, lifecycle.empty()).await.is_err() {
            tracing::warn!(connections = lifecycle.connections(), "the drain time is over, dropping Iggy connections");
            lifecycle.advance(Phase::Dropping);
            let _ = timeout(DROPPED_WAIT, lifecycle.empty()).await;
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.service.lifecycle.advance(Phase::Dropping);
    }
}

/// Looks at a door without keeping it open.
#[derive(Clone)]
pub struct DoorWatch(Weak<Service>);

impl DoorWatch {
    /// What `look` makes of the counters and the number of open connections; `None` when the door is gone.
    pub fn look<T>(&self, look: impl FnOnce(&DoorMetrics, usize) -> T) -> Option<T> {
        let service = self.0.upgrade()?;
        Some(look(&service.metrics, service.lifecycle.connections()))
    }
}

async fn accept_all(service: Arc<Service>, socket: TcpListener) {
    let per_address = Arc::new(PerAddress::default());
    let errors = QuietLog::default();
    let draining = service.lifecycle.reached(Phase::Draining);
    tokio::pin!(draining);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut draining => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => admit(&service, &per_address, stream, peer),
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                service.metrics.accept_errors.add(1);
                if let Some(suppressed) = errors.admit((), Instant::now()) {
                    tracing::error!(%error, suppressed, "cannot accept Iggy connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection if there is a place for it; otherwise it is closed, and the client tries again later.
fn admit(service: &Arc<Service>, per_address: &Arc<PerAddress>, stream: TcpStream, peer: SocketAddr) {
    let (limits, metrics) = (&service.config.limits, &service.metrics);
    // An IPv4 client of an IPv6 socket is the same client as over IPv4.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let Some(place) = service.lifecycle.enter(limits.connections_max) else {
        refuse(service, peer, &metrics.refused, "connections_max", limits.connections_max);
        return;
    };
    let Some(share) = Share::take(per_address, peer.ip(), limits.connections_per_address_max) else {
        let limit = limits.connections_per_address_max.unwrap_or_default();
        refuse(service, peer, &metrics.refused_per_address, "connections_per_address_max", limit);
        return;
    };
    metrics.accepted.add(1);
    prepare(&stream);
    let service = Arc::clone(service);
    tokio::spawn(async move {
        serve(service, stream, peer).await;
        drop((share, place));
    });
}

async fn serve(service: Arc<Service>, stream: TcpStream, peer: SocketAddr) {
    let Ok(local) = stream.local_addr() else { return };
    let log_in_until = Time::now() + service.config.limits.login_timeout;
    match service.metrics.tls.get().cloned() {
        None => {
            let (read, write) = stream.into_split();
            connection::run(service, read, write, (local, peer), log_in_until).await;
        }
        // Boxed, so that a connection in plain text does not hold the room of one with TLS.
        Some(port) => Box::pin(secure::run(service, port, stream, (local, peer), log_in_until)).await,
    }
}

fn refuse(service: &Service, peer: SocketAddr, counter: &Counter, bound: &str, limit: usize) {
    counter.add(1);
    if let Some(suppressed) = service.quiet.admit(peer.ip(), Instant::now()) {
        tracing::warn!(%peer, bound, limit, suppressed, "iggy connection refused");
    }
}
