//! Iggy's protocol, served in the test process.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use parking_lot::Mutex;

use crate::common::{RUNTIME, open};

pub const USER: &str = "iggy";
pub const PASSWORD: &str = "secret";

/// Iggy's protocol in this process, on a store in memory of its own.
pub struct TestServer {
    pub door: Mutex<Option<Door>>,
    pub memory: MemoryStore,
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
        let server = Self { door: Mutex::new(None), memory, address, rules };
        server.start();
        server
    }

    /// Another one with what this one has now, as a replica that gets nothing more.
    pub fn replica(&self) -> Self {
        let address = Mutex::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = Self { door: Mutex::new(None), memory: self.memory.copy(), address, rules: self.rules };
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
            limits: DoorLimits::default(),
        };
        let store: Arc<dyn Store> = Arc::new(self.memory.again());
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
}
