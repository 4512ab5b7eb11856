//! Listeners whose connections begin with TLS.

use std::sync::Arc;
use std::time::Instant;

use milena_tls::{Failure, TlsError, TlsPort, warn_of};
use tokio::net::TcpStream;

use crate::broker::Broker;
use crate::config::ListenerConfig;
use crate::connection::{self, Transport};
use crate::lifecycle::Phase;
use crate::listener::Held;
use crate::peer::Connection;
use crate::server::StartError;

/// Reads the files of all listeners with TLS, or of none; one entry for each listener.
pub(crate) async fn open_all(listeners: &[ListenerConfig]) -> Result<Vec<Option<Arc<TlsPort>>>, StartError> {
    let mut ports = Vec::with_capacity(listeners.len());
    for listener in listeners {
        ports.push(match listener.tls.clone() {
            Some(files) => {
                let opened = tokio::task::spawn_blocking(move || TlsPort::open(files)).await;
                let failed = |source| StartError::Tls { name: listener.name.clone(), source };
                // A look that panicked is a fault of ours, and no reason to serve in plain text.
                let opened = opened.unwrap_or_else(|_| Err(TlsError::Failed));
                let (port, warnings) = opened.map_err(failed)?;
                warn_of(&listener.name, &warnings);
                Some(Arc::new(port))
            }
            None => None,
        });
    }
    Ok(ports)
}

/// Looks for new certificates until the server drains.
pub(crate) fn keep_fresh(broker: &Arc<Broker>, name: &str, port: &Arc<TlsPort>) {
    let lifecycle = Arc::clone(&broker.lifecycle);
    let stopped = async move { lifecycle.reached(Phase::Draining).await };
    tokio::spawn(Arc::clone(port).keep_fresh(name.to_owned(), broker.config.certificate_check, stopped));
}

/// Serves a connection that begins with a handshake. Whoever has not done it by the deadline, or before the server
/// drains, is not served.
pub(crate) async fn run(
    broker: Arc<Broker>,
    port: Arc<TlsPort>,
    connection: Arc<Connection>,
    stream: TcpStream,
    held: Held,
) {
    // Together with the login that may follow.
    let deadline = connection.authenticates_until(&broker);
    // Boxed, so that a connection does not hold the state of its handshake for ever.
    let accepting = Box::pin(port.accept(stream, deadline));
    let accepted = tokio::select! {
        biased;
        accepted = accepting => accepted,
        () = broker.lifecycle.reached(Phase::Draining) => {
            port.count_stopped();
            broker.metrics.connections.closed_drained.add(1);
            return;
        }
    };
    match accepted {
        Ok(stream) => connection::run(broker, connection, stream, held).await,
        Err((failure, stream)) => {
            note(&broker, &connection, &failure);
            if let Some(stream) = stream {
                Box::pin(stream.part()).await;
            }
        }
    }
}

/// Counts and logs a handshake that failed.
fn note(broker: &Broker, connection: &Connection, failure: &Failure) {
    broker.metrics.connections.closed_handshake.add(1);
    let Connection { id, peer, .. } = connection;
    let listener = &connection.listener.name;
    if !failure.reason.is_worth_a_line() {
        tracing::debug!(connection = id, %peer, listener, reason = %failure, "connection closed");
    } else if let Some(suppressed) = broker.quiet.admit(peer.ip(), Instant::now()) {
        tracing::warn!(connection = id, %peer, listener, reason = %failure, suppressed, "connection closed before TLS was agreed on");
    }
}
