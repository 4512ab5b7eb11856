//! What the tests over TCP share: a store in memory, a table with an API that does as it is told, and a
//! client that sends bytes.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use milena_server::config::{ListenerConfig, ServerConfig};
use milena_server::dispatch::{Api, Outcome, Request};
use milena_server::{Server, handlers};
use milena_store::testing::MemoryStore;
use milena_store::{Store, StoreError};
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::{Encodable, Request as KafkaRequest};
use milena_wire::{decode_response, encode_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Wait after which something that must not happen is taken not to.
pub(crate) const NEVER: Duration = Duration::from_millis(150);

/// True when the server closed its store.
pub(crate) async fn is_closed(store: &MemoryStore) -> bool {
    matches!(store.topics().await, Err(StoreError::Closed))
}

/// The table of the tests: what a connection needs, and one API that does as it is told.
pub(crate) static TABLE: &[Api] = &[
    OBEDIENT,
    handlers::find_coordinator::API,
    Api { key: ApiKey::Heartbeat, ..OBEDIENT },
    handlers::api_versions::API,
    handlers::describe_cluster::API,
];

/// Takes the place of Produce, and of Heartbeat. The first byte of the body says what to do; the answer is a body of four bytes with
/// the length of the request's.
const OBEDIENT: Api = Api {
    key: ApiKey::Produce,
    name: "Obedient",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(obey(request)),
};

/// Answers at once.
pub(crate) const ANSWER: u8 = 0;
/// Answers when the gate of the correlation id is opened.
pub(crate) const GATE: u8 = 1;
/// Answers when the connection ends or the server drains.
pub(crate) const PARK: u8 = 2;
/// Does not answer.
pub(crate) const SILENT: u8 = 3;
/// Answers with as many MiB as the second byte says.
pub(crate) const LARGE: u8 = 4;

/// Occupies its thread until the gate of the correlation id is opened.
pub(crate) const OCCUPY: u8 = 5;
/// Panics.
pub(crate) const PANIC: u8 = 6;

/// A gate, and how many requests passed it.
pub(crate) struct Gate {
    open: Semaphore,
    arrived: Semaphore,
    passed: Semaphore,
}

static GATES: LazyLock<Mutex<HashMap<i32, &'static Gate>>> = LazyLock::new(Mutex::default);

/// The gate of a correlation id. Tests of one binary share them, so each uses its own ids.
pub(crate) fn gate(correlation_id: i32) -> &'static Gate {
    let closed = || Semaphore::new(0);
    GATES
        .lock()
        .unwrap()
        .entry(correlation_id)
        .or_insert_with(|| Box::leak(Box::new(Gate { open: closed(), arrived: closed(), passed: closed() })))
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
    /// Waits until a request stands before the gate.
    pub(crate) async fn arrived(&self) {
        timeout(SOON, self.arrived.acquire()).await.expect("no request came to the gate").unwrap().forget();
    }
    /// Waits until a request is through.
    pub(crate) async fn passed(&self) {
        timeout(SOON, self.passed.acquire()).await.expect("no request passed the gate").unwrap().forget();
    }
    pub(crate) fn nobody_passed(&self) -> bool {
        self.passed.available_permits() == 0
    }
}

async fn obey(request: Request) -> Outcome {
    let id = request.correlation_id;
    let mut answer_bytes = 4;
    match request.body.first().copied().unwrap_or(ANSWER) {
        GATE => {
            let gate = gate(id);
            gate.arrived.add_permits(1);
            gate.open.acquire().await.unwrap().forget();
            gate.passed.add_permits(1);
        }
        PARK => {
            gate(id).arrived.add_permits(1);
            request.context.connection.ending().await;
            gate(id).passed.add_permits(1);
        }
        OCCUPY => {
            gate(id).arrived.add_permits(1);
            while gate(id).open.try_acquire().is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        PANIC => panic!("as told"),
        SILENT => return Outcome::Silent,
        LARGE => answer_bytes = usize::from(request.body[1]) << 20,
        _ => {}
    }
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(4 + answer_bytes).unwrap());
    frame.put_i32(id);
    frame.put_u32(u32::try_from(request.body.len()).unwrap());
    frame.put_bytes(0, answer_bytes - 4);
    Outcome::Reply(frame.freeze())
}

/// A request to the obedient API: `command`, then zeros up to `body_bytes`.
pub(crate) fn obedient(correlation_id: i32, command: u8, body_bytes: usize) -> Vec<u8> {
    let mut body = vec![0; body_bytes.max(1)];
    body[0] = command;
    raw_request(0, 0, correlation_id, &body)
}

/// As [`obedient`], under a key whose requests grow when they are decoded.
pub(crate) fn growing(correlation_id: i32, command: u8, body_bytes: usize) -> Vec<u8> {
    let mut request = obedient(correlation_id, command, body_bytes);
    request[5] = 12;
    request
}

/// Any request with header version 1 and the client id `test`.
pub(crate) fn raw_request(api_key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_u32(u32::try_from(14 + body.len()).unwrap());
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    frame.put_u16(4);
    frame.put_slice(b"test");
    frame.put_slice(body);
    frame
}

/// One listener on a free port of the IPv4 loopback.
pub(crate) fn config() -> ServerConfig {
    ServerConfig { listeners: vec![listener("one", "127.0.0.1:0")], ..ServerConfig::default() }
}

pub(crate) fn listener(name: &str, bind: &str) -> ListenerConfig {
    ListenerConfig::new(name, bind.parse().unwrap())
}

/// A server with the table of the tests.
pub(crate) async fn start(config: ServerConfig) -> Server {
    Server::start_with(config, Arc::new(MemoryStore::new()), TABLE).await.unwrap()
}

pub(crate) fn address(server: &Server) -> SocketAddr {
    server.addresses()[0].address
}

/// A client that sends bytes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn connect(server: &Server) -> Self {
        Self::connect_to(address(server)).await
    }

    pub(crate) async fn connect_to(address: SocketAddr) -> Self {
        Self { stream: timeout(SOON, TcpStream::connect(address)).await.unwrap().unwrap() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        timeout(SOON, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    /// The next frame without its length prefix; `None` when the connection is closed.
    pub(crate) async fn receive(&mut self) -> Option<Bytes> {
        timeout(SOON, self.frame()).await.expect("no answer and no end")
    }

    async fn frame(&mut self) -> Option<Bytes> {
        // A server that closes with unread bytes resets the connection; for a client that is an end as well.
        let len = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; len as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// The correlation id of the next answer.
    pub(crate) async fn receive_id(&mut self) -> i32 {
        let frame = self.receive().await.expect("an answer");
        i32::from_be_bytes(*frame.first_chunk().unwrap())
    }

    pub(crate) async fn is_closed(&mut self) -> bool {
        self.receive().await.is_none()
    }

    /// True when neither an answer nor an end comes for a while.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        timeout(NEVER, self.stream.peek(&mut byte)).await.is_err()
    }

    /// Asks and reads the answer.
    pub(crate) async fn ask<Q: KafkaRequest + Encodable>(&mut self, version: i16, request: &Q) -> Q::Response {
        let key = ApiKey::try_from(Q::KEY).unwrap();
        self.send(&encode_request(key, version, 77, "test", request).unwrap()).await;
        let frame = self.receive().await.expect("an answer");
        let (correlation_id, response) = decode_response(key, version, frame).unwrap();
        assert_eq!(correlation_id, 77);
        response
    }
}

/// Waits until `check` holds; for what happens in another task without an event to wait for.
pub(crate) async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let waited = async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(SOON, waited).await.is_ok(), "{what}");
}
