//! The listener, and which server it looks at.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use milena_iggy_door::DoorWatch;
use milena_server::Broker;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;

use crate::http;
use crate::limits::CONNECTIONS_MAX;
use crate::scrape::Page;
use crate::settings::MonitorSettings;

/// Wait after a failed accept, such as for lack of descriptors: the connection stays in the backlog.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Speaks HTTP about one server. It is there before the server is, and says so: a long recovery is not a dead process.
/// Dropping it ends it.
#[must_use = "a monitor that is dropped stops"]
pub struct Monitor {
    address: SocketAddr,
    watched: Arc<Watched>,
    accepting: JoinHandle<()>,
}

/// What the paths look at.
pub(crate) struct Watched {
    pub(crate) settings: MonitorSettings,
    /// When this process began, as near as it matters.
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    /// Weak, so that a scrape does not keep a stopped server from being dropped.
    broker: OnceLock<Weak<Broker>>,
    /// The door for Iggy clients, where there is one.
    pub(crate) door: OnceLock<DoorWatch>,
    /// The last page; whoever holds the lock makes the next one.
    pub(crate) page: Mutex<Option<Page>>,
}

/// A server in the eyes of the monitor.
pub(crate) enum Server {
    Starting,
    Running(Arc<Broker>),
    Stopped,
}

impl Monitor {
    /// Listens on `address` and begins to answer. The settings say the rest; their own address is not looked at.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn bind(address: SocketAddr, settings: MonitorSettings) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let watched = Arc::new(Watched {
            settings,
            started: Instant::now(),
            started_at: SystemTime::now(),
            broker: OnceLock::new(),
            door: OnceLock::new(),
            page: Mutex::new(None),
        });
        let accepting = tokio::spawn(accept_all(listener, Arc::clone(&watched)));
        tracing::info!(%address, "metrics and health are served over HTTP");
        Ok(Self { address, watched, accepting })
    }

    /// The server is up; from now on it is asked. A second call changes nothing.
    pub fn watch(&self, broker: &Arc<Broker>) {
        let _ = self.watched.broker.set(Arc::downgrade(broker));
    }

    /// The door for Iggy clients is open; from now on it is asked. A second call changes nothing.
    pub fn watch_door(&self, door: DoorWatch) {
        let _ = self.watched.door.set(door);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Watched {
    pub(crate) fn server(&self) -> Server {
        match self.broker.get() {
            None => Server::Starting,
            Some(broker) => broker.upgrade().map_or(Server::Stopped, Server::Running),
        }
    }
}

/// Accepts for ever. A place is taken before a connection is, so that one too many waits in the backlog and costs nothing.
async fn accept_all(listener: TcpListener, watched: Arc<Watched>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Nobody closes it.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let watched = Arc::clone(&watched);
                tokio::spawn(async move {
                    http::serve(stream, watched).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "no connection for metrics could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
