//! Iggy's protocol, served in the test process.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iggy::prelude::{Client, TcpClient};
use iggy_common::{AutoLogin, Credentials, TcpClientConfig};
use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::testing::{Layer, Layered, MemoryStore};
use milena_store::{Entry, PartitionRef, ReadLimit, Store, StoreFuture};
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use parking_lot::Mutex;

use crate::common::{RUNTIME, open};

pub const USER: &str = "iggy";
pub const PASSWORD: &str = "secret";

/// Stream, topic, and offsets of messages that are passed over without a word, as by a server whose files have holes.
pub type Hole = (String, String, Range<u64>);

struct Holed {
    memory: MemoryStore,
    hole: Arc<Mutex<Option<Hole>>>,
}

impl Layer for Holed {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let hole = self.hole.lock().clone();
            let of_this = |(stream, topic, _): &Hole| stream == at.topic.stream() && topic == at.topic.topic();
            let Some((_, _, hole)) = hole.filter(of_this) else { return self.memory.read(at, from, limit).await };
            let from = if hole.contains(&from) { hole.end } else { from };
            if from >= self.memory.bounds(at).await?.end {
                return Ok(Vec::new());
            }
            let mut entries = self.memory.read(at, from, limit).await?;
            // What state is kept in comes one message an entry.
            entries.retain(|entry| !hole.contains(&entry.base_offset));
            Ok(entries)
        })
    }
}

/// Iggy's protocol in this process, on a store in memory of its own.
pub struct TestServer {
    pub door: Mutex<Option<Door>>,
    pub memory: MemoryStore,
    /// Messages that the server lists and does not deliver.
    pub hole: Arc<Mutex<Option<Hole>>>,
    address: Mutex<SocketAddr>,
    rules: OffsetRules,
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(OffsetRules::Server)
    }

    /// With other rules for consumer offsets than those of Iggy's server.
    pub fn with(rules: OffsetRules) -> Self {
        let memory = MemoryStore::new();
        let address = Mutex::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = Self { door: Mutex::new(None), memory, hole: Arc::default(), address, rules };
        server.start();
        server
    }

    /// Another one with what this one has now, as a replica that gets nothing more.
    pub fn replica(&self) -> Self {
        let address = Mutex::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (memory, hole) = (self.memory.copy(), Arc::default());
        let server = Self { door: Mutex::new(None), memory, hole, address, rules: self.rules };
        server.start();
        server
    }

    /// Starts it, again on the port that it had.
    pub fn start(&self) {
        let config = DoorConfig {
            listen: *self.address.lock(),
            advertised: None,
            username: USER.to_owned(),
            password: Some(Secret::new(PASSWORD)),
            offset_rules: self.rules,
            instance_id: 0,
            tls: None,
            limits: DoorLimits::default(),
        };
        let store: Arc<dyn Store> =
            Arc::new(Layered(Holed { memory: self.memory.again(), hole: Arc::clone(&self.hole) }));
        let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
        let budget = Arc::new(Memory::new(256 << 20));
        let door = RUNTIME.block_on(Box::pin(Door::open(config, store, admin, budget))).unwrap();
        *self.address.lock() = door.address();
        *self.door.lock() = Some(door);
    }

    /// Stops it; its data stays.
    pub fn stop(&self) {
        if let Some(door) = self.door.lock().take() {
            RUNTIME.block_on(door.shutdown());
        }
    }

    pub fn address(&self) -> SocketAddr {
        *self.address.lock()
    }

    pub fn config(&self) -> IggyConfig {
        IggyConfig {
            append_connections: 3,
            read_connections: 2,
            // The server of these tests keeps state of its own under the usual name.
            state_stream: "gateway".to_owned(),
            call_timeout: Duration::from_secs(10),
            ..IggyConfig::new(&self.address().to_string(), USER, SecretString::from(PASSWORD.to_owned()))
        }
    }

    pub fn open(&self) -> Arc<IggyStore> {
        open(self.config())
    }

    /// Somebody who uses the SDK directly.
    pub fn native(&self) -> TcpClient {
        let credentials = Credentials::UsernamePassword(USER.to_owned(), SecretString::from(PASSWORD.to_owned()));
        let config = TcpClientConfig {
            server_address: self.address().to_string(),
            auto_login: AutoLogin::Enabled(credentials),
            ..TcpClientConfig::default()
        };
        let client = TcpClient::create(Arc::new(config)).unwrap();
        RUNTIME.block_on(Client::connect(&client)).unwrap();
        client
    }
}
