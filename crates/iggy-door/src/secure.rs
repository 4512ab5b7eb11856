//! Connections that begin with TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use milena_server::lifecycle::Phase;
use milena_tls::{Failure, TlsPort};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connection;
use crate::service::Service;

/// Longest time in which the end of a connection is told to a client that does not read.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// Looks for new certificates until the door closes.
pub(crate) fn keep_fresh(service: &Arc<Service>, port: &Arc<TlsPort>) {
    let lifecycle = Arc::clone(&service.lifecycle);
    let stopped = async move { lifecycle.reached(Phase::Draining).await };
    tokio::spawn(Arc::clone(port).keep_fresh("iggy_door".to_owned(), milena_tls::CHECK_INTERVAL, stopped));
}

/// Serves a connection whose client has to do its handshake, and log in, until `log_in_until`.
pub(crate) async fn run(
    service: Arc<Service>,
    port: Arc<TlsPort>,
    stream: TcpStream,
    ends: (SocketAddr, SocketAddr),
    log_in_until: Instant,
) {
    let accepting = Box::pin(port.accept(stream, log_in_until));
    let accepted = tokio::select! {
        biased;
        accepted = accepting => accepted,
        () = service.lifecycle.reached(Phase::Draining) => return port.count_stopped(),
    };
    match accepted {
        Ok(mut stream) => {
            connection::run(service, stream.clone(), stream.clone(), ends, log_in_until).await;
            stream.leave(PARTING_MAX).await;
        }
        Err((failure, _)) => note(&service, ends.1, &failure),
    }
}

/// Counts and logs a handshake that failed.
fn note(service: &Service, peer: SocketAddr, failure: &Failure) {
    service.metrics.closed_handshake.add(1);
    if !failure.reason.is_worth_a_line() {
        tracing::debug!(%peer, reason = %failure, "iggy connection closed");
    } else if let Some(suppressed) = service.quiet.admit(peer.ip(), Clock::now()) {
        tracing::warn!(%peer, reason = %failure, suppressed, "iggy connection closed before TLS was agreed on");
    }
}
