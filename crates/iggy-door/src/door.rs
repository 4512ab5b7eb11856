//! Start and end of the door, and the loop that accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use milena_server::lifecycle::Phase;
use milena_server::listener::{ACCEPT_PAUSE, is_of_the_client, listen, prepare};
use milena_server::memory::Memory;
use milena_server::quiet::QuietLog;
use milena_store::{Store, StoreError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin::TopicAdmin;
use crate::config::{DoorConfig, Secret};
use crate::connection;
#[cfg(feature = "faults")]
use crate::faults::Faults;
use crate::service::{DoorMetrics, Service};

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

impl Door {
    /// Listens, and begins to serve. `memory` is the budget of the bytes in flight, shared with whoever else serves the
    /// store. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound or the store cannot be read.
    pub async fn open(
        config: DoorConfig,
        store: Arc<dyn Store>,
        admin: Arc<dyn TopicAdmin>,
        memory: Arc<Memory>,
    ) -> Result<Self, DoorError> {
        let failed = |source| DoorError::Bind { address: config.listen, source };
        // Bound first: a port that is taken should be reported before anything is read or written.
        let socket = listen(config.listen, false).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let (service, made_up) = Service::open(config, store, admin, memory).await?;
        let service = Arc::new(service);
        tracing::info!(%address, "listening for Iggy clients");
        let accepting = tokio::spawn(accept_all(Arc::clone(&service), socket));
        Ok(Self { service, address, made_up, accepting: Some(accepting) })
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
            Ok((stream, peer)) => admit(&service, stream, peer),
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
fn admit(service: &Arc<Service>, stream: TcpStream, peer: SocketAddr) {
    let limit = service.config.limits.connections_max;
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let Some(place) = service.lifecycle.enter(limit) else {
        service.metrics.refused.add(1);
        if let Some(suppressed) = service.quiet.admit(peer.ip(), Instant::now()) {
            tracing::warn!(%peer, limit, suppressed, "iggy connection refused");
        }
        return;
    };
    service.metrics.accepted.add(1);
    prepare(&stream);
    let service = Arc::clone(service);
    tokio::spawn(async move {
        connection::run(service, stream, peer).await;
        drop(place);
    });
}
