//! A door over memory, and SDK clients that go through it.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod raw;

use std::net::SocketAddr;
use std::sync::Arc;

use iggy::prelude::*;
use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store::testing::MemoryStore;

pub(crate) const USER: &str = "iggy";
pub(crate) const PASSWORD: &str = "secret";

/// An open door and its store.
pub(crate) struct TestDoor {
    pub(crate) door: Door,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) memory: MemoryStore,
    /// Bytes that requests may hold.
    pub(crate) budget: Arc<Memory>,
    pub(crate) config: DoorConfig,
}

pub(crate) fn config() -> DoorConfig {
    DoorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertised: None,
        username: USER.to_owned(),
        password: Some(Secret::new(PASSWORD)),
        offset_rules: OffsetRules::Server,
        instance_id: 0,
        tls: None,
        limits: DoorLimits::default(),
    }
}

impl TestDoor {
    pub(crate) async fn open() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut DoorConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        Self::on(MemoryStore::new(), config).await
    }

    pub(crate) async fn on(memory: MemoryStore, config: DoorConfig) -> Self {
        Self::within(256 << 20, memory, config).await
    }

    /// A door whose requests may hold `bytes` in all.
    pub(crate) async fn within(bytes: usize, memory: MemoryStore, config: DoorConfig) -> Self {
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
        let budget = Arc::new(Memory::new(bytes));
        let door = Box::pin(Door::open(config.clone(), Arc::clone(&store), admin, Arc::clone(&budget))).await.unwrap();
        Self { door, store, memory, budget, config }
    }

    /// The same data behind a new door on the same port.
    pub(crate) async fn reopen(self) -> Self {
        let mut config = self.config;
        config.listen = self.door.address();
        self.door.shutdown().await;
        Self::on(self.memory.again(), config).await
    }

    /// A client of the SDK that has logged in, without reconnection: a test wants to see what breaks.
    pub(crate) async fn client(&self) -> TcpClient {
        let client = self.anonymous().await;
        client.login_user(USER, PASSWORD).await.unwrap();
        client
    }

    pub(crate) async fn anonymous(&self) -> TcpClient {
        anonymous(self.door.address()).await
    }
}

async fn anonymous(address: SocketAddr) -> TcpClient {
    let config = TcpClientConfig {
        server_address: address.to_string(),
        reconnection: TcpClientReconnectionConfig { enabled: false, ..TcpClientReconnectionConfig::default() },
        ..TcpClientConfig::default()
    };
    let client = TcpClient::create(Arc::new(config)).unwrap();
    Client::connect(&client).await.unwrap();
    client
}

/// A client that has logged in at a door anywhere.
pub(crate) async fn client_of(address: SocketAddr) -> TcpClient {
    let client = anonymous(address).await;
    client.login_user(USER, PASSWORD).await.unwrap();
    client
}

pub(crate) fn id(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

/// Creates stream `s` with topic `t`.
pub(crate) async fn topic(client: &TcpClient, partitions: u32) {
    client.create_stream("s").await.unwrap();
    let options = TopicCreateOptions { partitions_count: Some(partitions), ..TopicCreateOptions::default() };
    client.create_topic(&id("s"), "t", &options).await.unwrap();
}

pub(crate) fn message(payload: &str) -> IggyMessage {
    IggyMessage::from(payload)
}

pub(crate) async fn send(
    client: &TcpClient,
    partition: u32,
    payloads: &[&str],
) -> Result<SendMessagesResponse, IggyError> {
    let mut messages: Vec<_> = payloads.iter().map(|payload| message(payload)).collect();
    client.send_messages(&id("s"), &id("t"), &Partitioning::partition_id(partition), &mut messages).await
}

pub(crate) async fn poll(
    client: &TcpClient,
    strategy: PollingStrategy,
    count: u32,
) -> Result<PolledMessages, IggyError> {
    let consumer = Consumer::new(Identifier::numeric(1).unwrap());
    client.poll_messages(&id("s"), &id("t"), Some(0), &consumer, &strategy, count, false).await
}

/// Offsets and payloads.
pub(crate) fn seen(polled: &PolledMessages) -> Vec<(u64, String)> {
    polled
        .messages
        .iter()
        .map(|message| (message.header.offset, String::from_utf8(message.payload.to_vec()).unwrap()))
        .collect()
}
