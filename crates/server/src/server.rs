//! Start and end of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use milena_store::{Store, StoreError};
use milena_tls::TlsError;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use crate::authentication::{self, FileError};
use crate::broker::Broker;
use crate::config::{ConfigError, ServerConfig};
use crate::dispatch::{APIS, Api};
use crate::gateways::{Gateways, JoinError};
use crate::groups::StorageError;
use crate::lifecycle::Phase;
use crate::listener::{self, Bound};
use crate::secure;
use crate::topics::OpenError;

/// Time that dropped connections have to notice it. They do at their next wait, so this covers a handler that is
/// computing.
const DROPPED_WAIT: Duration = Duration::from_secs(1);

/// Time that the last committed offsets have to reach the store. Nobody waits for their answers any more.
const CLOSING_WAIT: Duration = Duration::from_secs(5);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket could not be opened.
    #[error("listener `{name}` cannot listen on {address}: {source}")]
    Bind {
        /// Name of the listener.
        name: String,
        /// Address it was to bind.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Certificate or key of a listener cannot be used.
    #[error("listener `{name}`: tls.{source}")]
    Tls {
        /// Name of the listener.
        name: String,
        /// What is wrong with them.
        source: TlsError,
    },
    /// The server could not join the other gateways of its store.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The store could not be read or written.
    #[error("the store cannot be used: {0}")]
    Store(#[from] StoreError),
    /// A file that clients are checked against cannot be used.
    #[error(transparent)]
    Authentication(#[from] FileError),
    /// Committed offsets cannot be kept as configured.
    #[error(transparent)]
    OffsetStorage(#[from] StorageError),
    /// The topics could not be loaded, or what is configured for them is refused.
    #[error(transparent)]
    Topics(#[from] OpenError),
}

/// A running server. Dropping it drops its connections without a word; [`Server::shutdown`] is the polite way.
#[must_use = "a server that is dropped stops"]
pub struct Server {
    broker: Arc<Broker>,
    addresses: Vec<Bound>,
    accepting: Vec<JoinHandle<()>>,
    gateways: Option<Gateways>,
}

impl Server {
    /// Binds the listeners, assembles the broker and begins to serve. Needs a tokio runtime; a multi-thread one lets
    /// large requests be decoded without delaying other connections.
    ///
    /// # Errors
    /// When the configuration contradicts itself, an address cannot be bound, or the store cannot be read.
    pub async fn start(config: ServerConfig, store: Arc<dyn Store>) -> Result<Self, StartError> {
        Self::start_with(config, store, APIS).await
    }

    /// As [`Server::start`], with a dispatch table of the caller's.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(
        mut config: ServerConfig,
        store: Arc<dyn Store>,
        apis: &'static [Api],
    ) -> Result<Self, StartError> {
        config.validate()?;
        let ports = secure::open_all(&config.listeners).await?;
        // Bound first: a port that is taken should be reported before anything is read or written.
        let listeners = listener::bind_all(&config.listeners)?;
        let bounds: Vec<Bound> = listeners.iter().map(|(bound, _)| bound.clone()).collect();
        let gateways = match &config.cluster {
            // Before anything is written: the state logs are kept apart by instance numbers.
            Some(cluster) => Some(Box::pin(Gateways::join(cluster, &config, &bounds, Arc::clone(&store))).await?),
            None => None,
        };
        if let Some(gateways) = &gateways {
            config.coordinators = gateways.coordinators();
        }
        // Boxed: opening happens once, and its state would make every caller's future large.
        let broker = match Box::pin(Broker::open_with(config, store, apis)).await {
            Ok(broker) => broker,
            Err(error) => {
                leave(gateways).await;
                return Err(error);
            }
        };
        if let Some(gateways) = &gateways {
            tokio::spawn(stop_when_displaced(gateways.displaced(), Arc::clone(&broker)));
            // The listeners are bound: who comes before they are served waits for that moment.
            tokio::spawn(gateways.named_while_serving(Arc::clone(&broker.lifecycle)));
            gateways.heard_of().await;
        }
        let mut addresses = Vec::with_capacity(listeners.len());
        let mut accepting = Vec::with_capacity(listeners.len());
        let secured =
            listeners.iter().zip(&ports).filter_map(|((bound, _), port)| Some((bound.name.clone(), port.clone()?)));
        let secured: Vec<_> = secured.collect();
        for (name, port) in &secured {
            secure::keep_fresh(&broker, name, port);
        }
        // A broker is served once.
        let _ = broker.tls.set(secured);
        for ((bound, socket), port) in listeners.into_iter().zip(ports) {
            tracing::info!(
                listener = bound.name,
                address = %bound.address,
                advertised = %format_args!("{}:{}", bound.advertised_host, bound.advertised_port),
                tls = port.is_some(),
                "listening"
            );
            if port.is_none() {
                authentication::warn_of_clear_text(&bound.name, bound.address, &bound.sasl);
            }
            addresses.push(bound.clone());
            accepting.push(tokio::spawn(listener::accept_all(Arc::clone(&broker), bound, socket, port)));
        }
        tokio::spawn(authentication::keep_current(Arc::clone(&broker)));
        tracing::info!(cluster = broker.cluster_id, node = broker.node_id(), "serving");
        Ok(Self { broker, addresses, accepting, gateways })
    }

    /// Resolves when the server stopped serving by itself, because another gateway has its instance number, or may have it
    /// since this one was away for too long to tell. What is left to do is [`Server::shutdown`].
    pub async fn displaced(&self) {
        match &self.gateways {
            Some(gateways) => gateways.displaced().await,
            None => std::future::pending().await,
        }
    }

    /// The listeners as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Bound] {
        &self.addresses
    }

    /// What the handlers share.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Ends the server: no connection is accepted any more, idle ones are closed, requests in flight are answered
    /// within the drain time, parked ones at once; what is left is dropped. Then the store is closed.
    ///
    /// # Errors
    /// When the store could not flush what it holds.
    pub async fn shutdown(mut self) -> Result<(), StoreError> {
        let lifecycle = &self.broker.lifecycle;
        tracing::info!(connections = lifecycle.connections(), "shutting down");
        lifecycle.advance(Phase::Draining);
        for accepting in self.accepting.drain(..) {
            // An accept loop that panicked has nothing left to stop.
            let _ = accepting.await;
        }
        if timeout(self.broker.config.limits.shutdown_drain, lifecycle.empty()).await.is_err() {
            tracing::warn!(connections = lifecycle.connections(), "the drain time is over, dropping connections");
            lifecycle.advance(Phase::Dropping);
            let _ = timeout(DROPPED_WAIT, lifecycle.empty()).await;
        }
        self.broker.groups.close(CLOSING_WAIT).await;
        // After the last commit: the next coordinator loads what is there then.
        leave(self.gateways.take()).await;
        let closed = self.broker.store.close().await;
        match &closed {
            Ok(()) => tracing::info!("stopped"),
            Err(error) => tracing::error!(%error, "stopped, but the store did not close cleanly"),
        }
        closed
    }
}

/// Two gateways of one number would give clients two addresses for one broker, and take each other's producer ids.
async fn stop_when_displaced(displaced: impl Future<Output = ()>, broker: Arc<Broker>) {
    let lifecycle = Arc::clone(&broker.lifecycle);
    let node = broker.node_id();
    drop(broker);
    tokio::select! {
        () = displaced => {}
        () = lifecycle.reached(Phase::Draining) => return,
    }
    tracing::error!(
        instance = node,
        "another gateway has the instance number of this one, or may have it, as was said above; this one stops serving"
    );
    lifecycle.advance(Phase::Draining);
}

async fn leave(gateways: Option<Gateways>) {
    if let Some(gateways) = gateways {
        gateways.leave(CLOSING_WAIT).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.broker.lifecycle.advance(Phase::Dropping);
    }
}
