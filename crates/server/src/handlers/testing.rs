//! Handlers over a store in memory, asked through the bytes of their requests and answers.

use std::net::SocketAddr;
use std::sync::Arc;

use milena_auth::Mechanism;
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_wire::kafka_protocol::messages::{ApiKey, TopicName};
use milena_wire::kafka_protocol::protocol::{Request as KafkaRequest, StrBytes};
use milena_wire::{decode_response, encode_request, parse_request};

use crate::broker::Broker;
use crate::config::ServerConfig;
use crate::dispatch::{APIS, Connection, Context, Outcome, Request, find};
use crate::listener::Bound;

/// A broker, and a connection to it through a listener advertised as `kafka.example:19092`.
pub(crate) struct Bench {
    pub(crate) broker: Arc<Broker>,
    connection: Arc<Connection>,
}

impl Bench {
    /// A broker with the default configuration over an empty store.
    pub(crate) async fn new() -> Self {
        Self::with(ServerConfig::default()).await
    }

    /// A broker over an empty store.
    pub(crate) async fn with(config: ServerConfig) -> Self {
        Self::over(config, Arc::new(MemoryStore::new())).await
    }

    /// A broker over a store.
    pub(crate) async fn over(config: ServerConfig, store: Arc<dyn Store>) -> Self {
        let broker = Box::pin(Broker::open(config, store)).await.unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
        let listener = Arc::new(Bound::advertising("kafka.example", 19_092));
        let connection = Connection::new(1, peer, listener, Arc::clone(&broker.lifecycle));
        Self { broker, connection: Arc::new(connection) }
    }

    /// The same broker, and a connection of a client that has said who it is.
    pub(crate) fn known_as(self, name: &str) -> Self {
        let peer = SocketAddr::from(([127, 0, 0, 1], 50_001));
        let mut listener = Bound::advertising("kafka.example", 19_092);
        listener.sasl = vec![Mechanism::Plain];
        let connection = Connection::new(2, peer, Arc::new(listener), Arc::clone(&self.broker.lifecycle));
        let session = connection.session().unwrap();
        let _ = session.accept(Mechanism::Plain, name, None, std::time::Instant::now());
        Self { connection: Arc::new(connection), ..self }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask<Q: KafkaRequest>(&self, version: i16, request: &Q) -> Q::Response {
        self.ask_sized(version, request).await.0
    }

    /// As [`Self::ask`], with the bytes of the request and of the answer.
    pub(crate) async fn ask_sized<Q: KafkaRequest>(&self, version: i16, request: &Q) -> (Q::Response, usize, usize) {
        let key = ApiKey::try_from(Q::KEY).unwrap();
        let sent = encode_request(key, version, 7, "test", request).unwrap();
        let frame = parse_request(sent.slice(4..)).unwrap();
        let context = Context {
            broker: Arc::clone(&self.broker),
            connection: Arc::clone(&self.connection),
            client_id: frame.client_id,
            version,
        };
        let api = find(APIS, Q::KEY).unwrap();
        let outcome = (api.handle)(Request { context, correlation_id: 7, version, body: frame.body }).await;
        let Outcome::Reply(answer) = outcome else { panic!("no answer but {outcome:?}") };
        let (correlation_id, response) = decode_response(key, version, answer.slice(4..)).unwrap();
        assert_eq!(correlation_id, 7);
        (response, sent.len(), answer.len())
    }

    /// Creates a topic past the handlers.
    pub(crate) async fn topic(&self, name: &str, partitions: u32) -> Arc<crate::topics::Topic> {
        self.broker.topics.create(name, partitions, std::collections::BTreeMap::new()).await.unwrap()
    }
}

/// A topic name of the protocol.
pub(crate) fn name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A string of the protocol.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
