//! Listening sockets and the loop that accepts connections.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use milena_auth::Mechanism;
use milena_tls::TlsPort;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::broker::Broker;
use crate::config::ListenerConfig;
use crate::connection;
use crate::lifecycle::{Phase, Place};
use crate::metrics::Counter;
use crate::peer::Connection;
use crate::quiet::QuietLog;
use crate::secure;
use crate::server::StartError;

/// Connections that the system holds until they are accepted. A fleet that reconnects at once after a restart
/// overflows the usual 128, and its clients then wait for SYN retries of seconds.
const BACKLOG: i32 = 4096;

/// Silence after which the system probes whether the other side of a connection still exists.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Wait after a failed accept. The connection that could not be taken stays in the backlog, so without a wait the
/// loop would spin until a descriptor is free.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

static CONNECTION_IDS: AtomicU64 = AtomicU64::new(1);

/// A listener as it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its name in the configuration.
    pub name: String,
    /// Address it listens on, with the port that the system chose if none was given.
    pub address: SocketAddr,
    /// Host that its clients are told.
    pub advertised_host: String,
    /// Port that its clients are told.
    pub advertised_port: u16,
    /// True when its connections begin with TLS.
    pub tls: bool,
    /// Mechanisms by which its clients authenticate; empty where they need not.
    pub sasl: Vec<Mechanism>,
}

impl Bound {
    /// What clients set as `security.protocol`.
    #[must_use]
    pub fn security_protocol(&self) -> &'static str {
        match (self.tls, self.sasl.is_empty()) {
            (false, true) => "PLAINTEXT",
            (true, true) => "SSL",
            (false, false) => "SASL_PLAINTEXT",
            (true, false) => "SASL_SSL",
        }
    }
}

#[cfg(test)]
impl Bound {
    /// A listener that tells its clients so.
    pub(crate) fn advertising(host: &str, port: u16) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            name: "test".to_owned(),
            address,
            advertised_host: host.to_owned(),
            advertised_port: port,
            tls: false,
            sasl: Vec::new(),
        }
    }
}

/// Binds all listeners or none.
pub(crate) fn bind_all(configs: &[ListenerConfig]) -> Result<Vec<(Bound, TcpListener)>, StartError> {
    configs.iter().map(|config| bind(config, configs)).collect()
}

fn bind(config: &ListenerConfig, all: &[ListenerConfig]) -> Result<(Bound, TcpListener), StartError> {
    // `[::]` takes IPv4 clients too, unless another listener is there for them.
    let only_v6 = all.iter().any(|other| other.bind.is_ipv4() && other.bind.port() == config.bind.port());
    let failed = |source| StartError::Bind { name: config.name.clone(), address: config.bind, source };
    let socket = listen(config.bind, only_v6).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    let bound = Bound {
        name: config.name.clone(),
        address,
        advertised_host: config.host_for_clients(),
        advertised_port: config.advertised_port.unwrap_or(address.port()),
        tls: config.tls.is_some(),
        sasl: config.sasl.clone(),
    };
    Ok((bound, socket))
}

/// A socket that listens on `address`, ready for a restart and for many clients at once.
///
/// # Errors
/// What the system says.
fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    Reserved::new(address, only_v6)?.listen()
}

/// An address that is taken, where nobody listens yet: connections are refused, so that clients try again.
#[derive(Debug)]
pub struct Reserved(Socket);

impl Reserved {
    /// Takes the address.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(address: SocketAddr, only_v6: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(only_v6)?;
        }
        // A restart must not wait for the connections of the last run to leave TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(Self(socket))
    }

    /// The socket, listening.
    ///
    /// # Errors
    /// What the system says; also when another process took the address without listening, and was faster.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?;
        TcpListener::from_std(self.0.into())
    }
}

/// Accepts until the server drains.
pub(crate) async fn accept_all(broker: Arc<Broker>, bound: Bound, socket: TcpListener, tls: Option<Arc<TlsPort>>) {
    let bound = Arc::new(bound);
    let per_address = Arc::new(PerAddress::default());
    let errors = QuietLog::default();
    let draining = broker.lifecycle.reached(Phase::Draining);
    tokio::pin!(draining);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut draining => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some((connection, held)) = admit(&broker, &bound, &per_address, &stream, peer) {
                    let broker = Arc::clone(&broker);
                    match &tls {
                        None => tokio::spawn(connection::run(broker, connection, stream, held)),
                        Some(port) => tokio::spawn(secure::run(broker, Arc::clone(port), connection, stream, held)),
                    };
                }
            }
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                broker.metrics.connections.accept_errors.add(1);
                if let Some(suppressed) = errors.admit((), Instant::now()) {
                    tracing::error!(listener = bound.name, %error, suppressed, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// True when a connection was gone before it was accepted.
#[must_use]
pub fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A place for a connection if the bounds allow it; otherwise it is closed, and the client tries again later.
fn admit(
    broker: &Arc<Broker>,
    bound: &Arc<Bound>,
    per_address: &Arc<PerAddress>,
    stream: &TcpStream,
    peer: SocketAddr,
) -> Option<(Arc<Connection>, Held)> {
    let limits = &broker.config.limits;
    let metrics = &broker.metrics.connections;
    // An IPv4 client of an IPv6 socket is the same client as over IPv4.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let Some(place) = broker.lifecycle.enter(limits.max_connections) else {
        refuse(broker, peer, &metrics.refused_total, "max_connections", limits.max_connections);
        return None;
    };
    let Some(share) = Share::take(per_address, peer.ip(), limits.max_connections_per_address) else {
        let limit = limits.max_connections_per_address.unwrap_or_default();
        refuse(broker, peer, &metrics.refused_per_address, "max_connections_per_address", limit);
        return None;
    };
    metrics.accepted.add(1);
    prepare(stream);
    let connection = Arc::new(Connection::new(
        CONNECTION_IDS.fetch_add(1, Ordering::Relaxed),
        peer,
        Arc::clone(bound),
        Arc::clone(&broker.lifecycle),
    ));
    tracing::debug!(connection = connection.id, %peer, listener = bound.name, "connection accepted");
    Some((connection, Held { _place: place, _share: share }))
}

fn refuse(broker: &Broker, peer: SocketAddr, counter: &Counter, bound: &str, limit: usize) {
    counter.add(1);
    if let Some(suppressed) = broker.quiet_accept.admit(peer.ip(), Instant::now()) {
        tracing::warn!(%peer, bound, limit, suppressed, "connection refused");
    }
}

/// Answers are written whole, so nothing is gained by waiting for more bytes; and a peer that vanished is noticed.
pub fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    // A socket that refuses an option still works.
    let _ = socket.set_tcp_nodelay(true).and(socket.set_tcp_keepalive(&keepalive));
}

/// What a connection holds of the bounds, until it is dropped.
pub(crate) struct Held {
    _place: Place,
    _share: Share,
}

/// Connections by client address; kept only while a limit is set.
#[derive(Debug, Default)]
pub struct PerAddress {
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A place among the connections of one address, until it is dropped.
#[derive(Debug)]
pub struct Share(Option<(Arc<PerAddress>, IpAddr)>);

impl Share {
    /// A place, unless the address has `limit` connections already.
    #[must_use]
    pub fn take(all: &Arc<PerAddress>, address: IpAddr, limit: Option<usize>) -> Option<Self> {
        let Some(limit) = limit else {
            return Some(Self(None));
        };
        let mut open = all.open.lock();
        let count = open.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Self(Some((Arc::clone(all), address))))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((all, address)) = self.0.take() else {
            return;
        };
        let mut open = all.open.lock();
        if let Some(count) = open.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&address);
            }
        }
    }
}
