//! Where a behaviour is shown: a server, a proxy before it if wanted, a gateway, and one topic.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::{
    Client as _, Consumer, Identifier, IggyMessage, MessageClient, Partitioning, PollingStrategy, TcpClient,
};
use iggy_common::{AutoLogin, Credentials, TcpClientConfig, TopicClient, TopicDetails};
use milena_iggy_door::faults::{Fault, On};
use milena_iggy_door::{Door, DoorLimits, OffsetRules};
use milena_server::ServerConfig;
use milena_store::{PartitionRef, Store};
use milena_store_embedded::faults::Saved;
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use milena_testkit::iggy_server::{PASSWORD, USER};
use milena_testkit::{IggyServers, Proxy, RawClient, SOON, TestServer};
use milena_wire::kafka_protocol::messages::CreateTopicsRequest;
use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_wire::kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::{Mutex as Turns, MutexGuard};

use crate::frames::Frames;
use crate::kafka::topic_name;
use crate::on_disk::open_door;

pub(crate) const TOPIC: &str = "orders";

/// Real servers are heavy: one test at a time has some.
static TURN: Turns<()> = Turns::const_new(());

/// Where a behaviour is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Iggy's protocol, served in this process on the embedded engine.
    Door,
    /// A real server.
    OneNode,
    /// Three of them.
    ThreeNodes,
}

/// One test for each place: `shown!(name in door, one_node, three_nodes with setup)`.
macro_rules! shown {
    ($name:ident in $($place:ident),+ with $setup:expr) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $place() {
                    #[allow(unused_imports, reason = "a setup may need none of it")]
                    use super::*;
                    let case = Box::pin($crate::case::Case::start($crate::case::$place(), $setup)).await;
                    if let Some(case) = case {
                        Box::pin(super::$name(case)).await;
                    }
                }
            )+
        }
    };
    ($name:ident in $($place:ident),+) => {
        shown!($name in $($place),+ with $crate::case::Setup::default());
    };
}

pub(crate) const fn door() -> Place {
    Place::Door
}

pub(crate) const fn one_node() -> Place {
    Place::OneNode
}

pub(crate) const fn three_nodes() -> Place {
    Place::ThreeNodes
}

/// What a test wants to be different.
pub(crate) struct Setup {
    /// The gateway reaches the server through a proxy. A cluster names its nodes to clients, so there it cannot.
    pub(crate) proxied: bool,
    /// Of the topic.
    pub(crate) partitions: i32,
    pub(crate) configs: &'static [(&'static str, &'static str)],
    /// Variables of real servers.
    pub(crate) envs: &'static [(&'static str, &'static str)],
    pub(crate) iggy: fn(&mut IggyConfig),
    /// Bounds of the door.
    pub(crate) door: fn(&mut DoorLimits),
    pub(crate) gateway: fn(&mut ServerConfig),
}

impl Default for Setup {
    fn default() -> Self {
        Self { proxied: false, partitions: 1, configs: &[], envs: &[], iggy: |_| {}, door: |_| {}, gateway: |_| {} }
    }
}

/// The other side of the SDK.
pub(crate) enum Servers {
    Door(Box<DoorServer>),
    Real(Mutex<IggyServers>),
}

pub(crate) struct DoorServer {
    door: Mutex<Option<Door>>,
    address: SocketAddr,
    limits: DoorLimits,
    folder: TempDir,
}

impl DoorServer {
    async fn start(limits: DoorLimits) -> Self {
        let folder = TempDir::with_prefix("milena-door-").unwrap();
        let mut server =
            Self { door: Mutex::new(None), address: SocketAddr::from(([127, 0, 0, 1], 0)), limits, folder };
        let door = server.open(PASSWORD).await;
        server.address = door.address();
        *server.door.get_mut() = Some(door);
        server
    }

    async fn open(&self, password: &str) -> Door {
        open_door(password, self.folder.path(), self.address, OffsetRules::Server, self.limits.clone()).await
    }
}

pub(crate) struct Case {
    pub(crate) place: Place,
    pub(crate) config: IggyConfig,
    pub(crate) store: Arc<IggyStore>,
    pub(crate) kafka: TestServer,
    pub(crate) stream: String,
    pub(crate) proxy: Option<Proxy>,
    /// What went through the proxy.
    pub(crate) frames: Arc<Frames>,
    pub(crate) servers: Servers,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Case {
    /// `None` where a real server is wanted and there is none.
    pub(crate) async fn start(place: Place, setup: Setup) -> Option<Self> {
        let mut turn = None;
        let servers = if place == Place::Door {
            let mut limits = DoorLimits::default();
            (setup.door)(&mut limits);
            Servers::Door(Box::new(DoorServer::start(limits).await))
        } else {
            let Some(binary) = IggyServers::binary() else {
                eprintln!("skipped: TEST_IGGY_SERVER names no binary of an Iggy server");
                return None;
            };
            turn = Some(TURN.lock().await);
            let (nodes, envs) = (if place == Place::OneNode { 1 } else { 3 }, setup.envs);
            let start = tokio::task::spawn_blocking(move || IggyServers::start(&binary, nodes, envs));
            Servers::Real(Mutex::new(start.await.unwrap()))
        };
        let addresses = servers.addresses();
        let frames = Arc::<Frames>::default();
        let proxy = match setup.proxied && place != Place::ThreeNodes {
            true => Some(Proxy::observed(addresses[0], Some(frames.observer())).await),
            false => None,
        };
        let first = proxy.as_ref().map_or(addresses[0], Proxy::address);
        let password = SecretString::from(PASSWORD.to_owned());
        // The door keeps state of its own under the usual name.
        let mut config =
            IggyConfig { state_stream: "gateway".to_owned(), ..IggyConfig::new(&first.to_string(), USER, password) };
        config.servers.extend(addresses[1..].iter().map(SocketAddr::to_string));
        (setup.iggy)(&mut config);
        let store = Arc::new(Box::pin(IggyStore::open(config.clone())).await.unwrap());
        let given = Arc::clone(&store);
        let change = setup.gateway;
        let kafka = TestServer::builder().store(given).config(change).start().await;
        let stream = "kafka".to_owned();
        let case = Self { place, config, store, kafka, stream, proxy, frames, servers, _turn: turn };
        case.create(TOPIC, setup.partitions, setup.configs).await;
        Some(case)
    }

    pub(crate) async fn create(&self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let entry = |&(name, value): &(&str, &str)| {
            let (name, value) = (StrBytes::from_string(name.to_owned()), StrBytes::from_string(value.to_owned()));
            CreatableTopicConfig::default().with_name(name).with_value(Some(value))
        };
        let new = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.iter().map(entry).collect());
        let request = CreateTopicsRequest::default().with_timeout_ms(20_000).with_topics(vec![new]);
        let created = self.raw().await.request(5, &request).await.topics[0].clone();
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    }

    pub(crate) async fn raw(&self) -> RawClient {
        self.kafka.client().await
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }

    /// Partition 0 of the topic, as the store knows it.
    pub(crate) async fn at(&self) -> PartitionRef {
        self.store.topic(&self.stream, TOPIC).await.unwrap().unwrap().topic.partition(0)
    }

    /// Plans a fault of the door.
    pub(crate) fn plan(&self, on: On, fault: Fault) {
        let Servers::Door(server) = &self.servers else { panic!("a real server has no planned faults") };
        server.door.lock().as_ref().unwrap().faults().plan(on, fault);
    }

    pub(crate) fn real(&self) -> Option<&Mutex<IggyServers>> {
        match &self.servers {
            Servers::Door(_) => None,
            Servers::Real(servers) => Some(servers),
        }
    }

    /// Takes the server away: the door stops, a real node is killed.
    pub(crate) async fn take_away(&self) {
        match &self.servers {
            Servers::Door(server) => {
                let door = server.door.lock().take();
                door.unwrap().shutdown().await;
            }
            Servers::Real(servers) => servers.lock().kill(0),
        }
    }

    /// Brings it back on its data.
    pub(crate) async fn bring_back(&self) {
        match &self.servers {
            Servers::Door(server) => {
                let door = server.open(PASSWORD).await;
                *server.door.lock() = Some(door);
            }
            Servers::Real(servers) => tokio::task::block_in_place(|| servers.lock().restart(0)),
        }
    }

    /// Brings the door back with another password of its user, as when an operator changed it.
    pub(crate) async fn bring_back_with(&self, password: &str) {
        let Servers::Door(server) = &self.servers else { panic!("the password of a real server is not changed") };
        let door = server.open(password).await;
        *server.door.lock() = Some(door);
    }

    /// What the store behind the door has on its disk of partition 0 of the topic.
    pub(crate) fn save(&self) -> Saved {
        Saved::of(self.folder(), &self.stream, TOPIC, 0).unwrap()
    }

    /// Restarts the door, with that on its disk: what it took later was not written when it died.
    pub(crate) async fn restart_with(&self, saved: &Saved) {
        self.take_away().await;
        // The store lets go of the folder when its last task has ended.
        eventually("the files are put back", async || saved.put_back(self.folder()).is_ok()).await;
        self.bring_back().await;
    }

    fn folder(&self) -> &Path {
        let Servers::Door(server) = &self.servers else { panic!("a real server has a folder of its own") };
        server.folder.path()
    }

    /// Somebody who uses Iggy's SDK without a proxy and knows nothing of Kafka.
    pub(crate) async fn native(&self) -> TcpClient {
        let credentials = Credentials::UsernamePassword(self.config.user.clone(), self.config.password.clone());
        let client = TcpClient::create(Arc::new(TcpClientConfig {
            server_address: self.servers.addresses()[0].to_string(),
            auto_login: AutoLogin::Enabled(credentials),
            ..TcpClientConfig::default()
        }));
        let client = client.unwrap();
        client.connect().await.unwrap();
        client
    }

    pub(crate) async fn native_send(&self, payload: &str) {
        let mut messages = vec![IggyMessage::from(payload)];
        let (stream, topic) = (named(&self.stream), named(TOPIC));
        let partition = Partitioning::partition_id(0);
        self.native().await.send_messages(&stream, &topic, &partition, &mut messages).await.unwrap();
    }

    /// What the server has in partition 0 of the topic.
    pub(crate) async fn native_poll(&self) -> Vec<IggyMessage> {
        let (stream, topic, consumer) = (named(&self.stream), named(TOPIC), Consumer::default());
        let strategy = PollingStrategy::offset(0);
        let native = self.native().await;
        native.poll_messages(&stream, &topic, Some(0), &consumer, &strategy, 10_000, false).await.unwrap().messages
    }

    /// Deletes the topic behind the back of the gateway.
    pub(crate) async fn native_delete(&self) {
        self.native().await.delete_topic(&named(&self.stream), &named(TOPIC)).await.unwrap();
        let gone = async || self.store.topic(&self.stream, TOPIC).await.unwrap().is_none();
        eventually("the gateway sees it", gone).await;
        // It is known to the gateway's directory until that is refreshed.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    pub(crate) async fn native_topic(&self, topic: &str) -> Option<TopicDetails> {
        self.native().await.get_topic(&named(&self.stream), &named(topic)).await.unwrap()
    }
}

impl Servers {
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Door(server) => vec![server.address],
            Self::Real(servers) => servers.lock().addresses(),
        }
    }
}

pub(crate) fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

/// Until it is so, or the test fails.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
