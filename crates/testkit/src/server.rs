//! A server in this process, over memory or a folder, which can be restarted on its data.
//!
//! Over memory or a folder of its own, that is: [`ChosenStore`] puts it over Iggy instead, unless the test needs what it asks for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_server::{ListenerConfig, Server, ServerConfig};
use milena_store::testing::MemoryStore;
use milena_store::{Durability, Store};
use milena_store_embedded::EmbeddedConfig;
use milena_wire::kafka_protocol::messages::ApiVersionsRequest;
use tempfile::TempDir;

use crate::{ChosenStore, RawClient, ReservedPort, SOON};

/// Where the data of a test server is.
enum Data {
    Memory(MemoryStore),
    /// Beyond Iggy's protocol.
    #[cfg(feature = "iggy")]
    Iggy(Box<crate::iggy::IggySide>),
    Folder(TempDir),
    /// The test's own engine, which cannot be opened a second time.
    Given,
}

/// How a test server is started.
pub struct Builder {
    config: ServerConfig,
    data: Data,
    store: Option<Arc<dyn Store>>,
    durability: Durability,
    port: ReservedPort,
    /// Why it cannot be over another store than this.
    only: Option<&'static str>,
}

impl Builder {
    /// Changes the configuration.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Keeps the data with the embedded engine in a temporary folder instead of memory.
    #[must_use]
    pub fn in_folder(mut self) -> Self {
        self.data = Data::Folder(TempDir::with_prefix("milena-").expect("a temporary folder"));
        self
    }

    /// Durability of the embedded engine where a topic does not say.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Keeps the data in an engine of the test's own, for instance one with faults.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.data = Data::Given;
        self.store = Some(store);
        self.only("the test brings a store of its own")
    }

    /// Keeps the data on an Iggy server of the test's own.
    #[cfg(feature = "iggy")]
    #[must_use]
    pub fn over(mut self, store: milena_store_iggy::IggyStore) -> Self {
        self.data = Data::Given;
        self.store = Some(Arc::new(store));
        self
    }

    /// Keeps the data in that memory, which the test can plan faults for.
    #[must_use]
    pub fn memory(mut self, memory: MemoryStore) -> Self {
        self.data = Data::Memory(memory);
        self.only("the test plans faults in the store, or sets its clock")
    }

    /// Keeps the data in what was asked for, also where the environment chooses another store; `reason` says why.
    #[must_use]
    pub fn only(mut self, reason: &'static str) -> Self {
        self.only = Some(reason);
        self
    }

    /// Starts the server and waits until it answers.
    pub async fn start(self) -> TestServer {
        let Self { config, data, store, durability, port, only } = self;
        let chosen = match data {
            Data::Given if only.is_none() => ChosenStore::Embedded,
            _ => ChosenStore::unless(only),
        };
        let (config, data) = Box::pin(over(chosen, config, data)).await;
        Box::pin(TestServer::open(config, data, store, durability, port)).await
    }
}

/// The data of a server, and what its configuration has to say of them.
async fn over(chosen: ChosenStore, config: ServerConfig, data: Data) -> (ServerConfig, Data) {
    #[cfg(feature = "iggy")]
    return match chosen {
        ChosenStore::Embedded => (config, data),
        ChosenStore::Door => {
            let folder = if let Data::Folder(folder) = data { Some(folder) } else { None };
            (config, Data::Iggy(Box::new(crate::iggy::IggySide::door(folder).await)))
        }
        ChosenStore::Server(url) => {
            let side = crate::iggy::IggySide::server(&url);
            (with_topics_in(config, side.topics_stream()), Data::Iggy(Box::new(side)))
        }
    };
    #[cfg(not(feature = "iggy"))]
    {
        assert_eq!(chosen, ChosenStore::Embedded, "servers over Iggy need the feature `iggy` of milena-testkit");
        (config, data)
    }
}

/// On a server that tests share, the topics of one test must not be those of another.
#[cfg(feature = "iggy")]
fn with_topics_in(mut config: ServerConfig, stream: Option<String>) -> ServerConfig {
    if let Some(stream) = stream
        && config.topic_mapping.default_stream == ServerConfig::default().topic_mapping.default_stream
    {
        config.topic_mapping.default_stream = stream;
    }
    config
}

/// A running server on a port that stays its own, also while it restarts.
#[must_use = "a server that is dropped stops"]
pub struct TestServer {
    server: Server,
    config: ServerConfig,
    data: Data,
    durability: Durability,
    port: ReservedPort,
}

impl TestServer {
    /// A server over memory with the default configuration.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// The default configuration on a loopback port of its own, over memory.
    pub fn builder() -> Builder {
        let port = ReservedPort::take();
        let listener = ListenerConfig::new("test", SocketAddr::from(([127, 0, 0, 1], port.number())));
        Builder {
            config: ServerConfig { listeners: vec![listener], ..ServerConfig::default() },
            data: Data::Memory(MemoryStore::new()),
            store: None,
            durability: Durability::Os,
            port,
            only: None,
        }
    }

    async fn open(
        config: ServerConfig,
        data: Data,
        given: Option<Arc<dyn Store>>,
        durability: Durability,
        port: ReservedPort,
    ) -> Self {
        let store = match (given, &data) {
            (Some(store), _) => store,
            (None, Data::Memory(memory)) => Arc::new(memory.again()),
            #[cfg(feature = "iggy")]
            (None, Data::Iggy(side)) => side.open().await,
            (None, Data::Folder(folder)) => open_embedded(Some(folder.path().to_owned()), durability).await,
            (None, Data::Given) => panic!("an engine that the test gave cannot be opened again"),
        };
        // On the heap, so that the futures of tests stay small.
        let server = Box::pin(Server::start(config.clone(), store)).await.expect("a server");
        let server = Self { server, config, data, durability, port };
        let answer = server.client().await.request(0, &ApiVersionsRequest::default()).await;
        assert_eq!(answer.error_code, 0, "the server is not ready");
        server
    }

    /// Address of the first listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.addresses().first().expect("a listener").address
    }

    /// Address of the first listener, as clients are configured with it.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// A new connection to the first listener.
    pub async fn client(&self) -> RawClient {
        RawClient::connect(self.address()).await
    }

    /// A new connection to another of its addresses.
    pub async fn client_at(&self, address: SocketAddr) -> RawClient {
        RawClient::connect(address).await
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Folder of the data, when it is in one of this machine.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.data {
            Data::Folder(folder) => Some(folder.path()),
            Data::Memory(_) | Data::Given => None,
            #[cfg(feature = "iggy")]
            Data::Iggy(side) => side.folder(),
        }
    }

    /// Stops politely; the data goes with it.
    pub async fn shutdown(self) {
        self.server.shutdown().await.expect("a store that closes cleanly");
    }

    /// Stops without a word, as a process that was killed does, and starts again on the same data and the same port.
    pub async fn kill_and_start(self) -> Self {
        let address = self.address();
        let Self { server, config, data, durability, port } = self;
        drop(server);
        // Its tasks end a moment later, and the last of them lets go of the port.
        let start = Instant::now();
        while RawClient::try_connect(address).await.is_ok() {
            assert!(start.elapsed() < SOON, "the old server still accepts");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Box::pin(Self::open(config, data, None, durability, port)).await
    }

    /// Stops politely and starts again on the same data and the same port.
    pub async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    /// As [`TestServer::restart`], with a changed configuration.
    pub async fn restart_with(self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let address = self.address();
        let Self { server, mut config, data, durability, port } = self;
        server.shutdown().await.expect("a store that closes cleanly");
        if let Some(listener) = config.listeners.first_mut() {
            listener.bind = address;
        }
        change(&mut config);
        Box::pin(Self::open(config, data, None, durability, port)).await
    }
}

/// The embedded store in a folder, or in memory.
pub(crate) async fn open_embedded(dir: Option<PathBuf>, durability: Durability) -> Arc<dyn Store> {
    let config =
        EmbeddedConfig { dir, durability, segment_bytes: 16 << 20, open_files_max: 256, ..EmbeddedConfig::default() };
    // Opening recovers the log, which blocks.
    let opened = tokio::task::spawn_blocking(move || milena_store_embedded::open(&config));
    opened.await.expect("no panic").expect("the embedded store")
}
