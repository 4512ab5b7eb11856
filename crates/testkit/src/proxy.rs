//! A proxy that copies bytes, and can cut, hold or lose them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are copied.
    #[default]
    Pass,
    /// Requests are copied, and what the server answers waits.
    HoldReplies,
    /// Requests are copied, and what the server answers is lost.
    LoseReplies,
    /// Requests are lost.
    LoseRequests,
}

/// Sees every stretch of bytes on its way to the server.
pub type Observer = Arc<dyn Fn(u64, &[u8]) + Send + Sync>;

#[derive(Clone, Copy, Default)]
struct Wanted {
    mode: Mode,
    /// Raised to close all connections of an earlier number.
    cuts: u64,
}

struct Shared {
    wanted: watch::Sender<Wanted>,
    to_client: AtomicU64,
    to_server: AtomicU64,
    connections: AtomicU64,
    observer: Option<Observer>,
}

/// A proxy in front of one address. Dropping it closes everything.
#[must_use = "a proxy that is dropped stops"]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// A proxy on a port of its own.
    pub async fn start(target: SocketAddr) -> Self {
        Self::observed(target, None).await
    }

    /// As [`Proxy::start`], with somebody who sees what goes to the server, by number of the connection.
    pub async fn observed(target: SocketAddr, observer: Option<Observer>) -> Self {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            wanted: watch::channel(Wanted::default()).0,
            to_client: AtomicU64::new(0),
            to_server: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            observer,
        });
        let accepting = tokio::spawn(accept(listener, target, Arc::clone(&shared)));
        Self { address, shared, accepting }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on bytes go that way.
    pub fn set(&self, mode: Mode) {
        self.shared.wanted.send_modify(|wanted| wanted.mode = mode);
    }

    /// Closes all connections there are.
    pub fn cut(&self) {
        self.shared.wanted.send_modify(|wanted| wanted.cuts += 1);
    }

    /// Bytes that clients got so far.
    #[must_use]
    pub fn to_client(&self) -> u64 {
        self.shared.to_client.load(Ordering::Relaxed)
    }

    /// Bytes that the server got so far.
    #[must_use]
    pub fn to_server(&self) -> u64 {
        self.shared.to_server.load(Ordering::Relaxed)
    }

    /// Connections that were made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        // Before the server is dialed, so that a cut in between counts.
        let wanted = shared.wanted.subscribe();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else { return };
            let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
            let cuts = wanted.borrow().cuts;
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let mut cut = wanted.clone();
            tokio::select! {
                () = requests(from_client, to_server, &shared, wanted.clone(), number) => {}
                () = replies(from_server, to_client, &shared, wanted) => {}
                _ = cut.wait_for(|wanted| wanted.cuts > cuts) => {}
            }
        });
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    wanted: watch::Receiver<Wanted>,
    number: u64,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..length).unwrap_or_default();
        if wanted.borrow().mode == Mode::LoseRequests {
            continue;
        }
        shared.to_server.fetch_add(length as u64, Ordering::Relaxed);
        if let Some(observer) = &shared.observer {
            observer(number, bytes);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    mut wanted: watch::Receiver<Wanted>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..length).unwrap_or_default();
        let Ok(now) = wanted.wait_for(|wanted| wanted.mode != Mode::HoldReplies).await.map(|now| *now) else { return };
        if now.mode == Mode::LoseReplies {
            continue;
        }
        shared.to_client.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
