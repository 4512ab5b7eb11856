//! Several gateways in one process over one store, each with a connection to it that can be cut.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use milena_server::gateways::ClusterSettings;
use milena_server::{ListenerConfig, Server, ServerConfig, StartError};
use milena_store::testing::{Layer, Layered};
use milena_store::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, GrowthWatcher, PartitionRef, ReadLimit, Store, StoreFuture,
    TopicInfo, TopicRef,
};
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::groups_kit::{Member, text};

/// Time between beats.
pub(crate) const BEAT: Duration = Duration::from_millis(200);
/// Silence after which a gateway is gone. Long, because test machines are busy.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Time between looks at what other gateways do to topics.
pub(crate) const REFRESH: Duration = Duration::from_millis(200);
/// By when another gateway has to serve groups: the share of these settings in the 15 s of the real ones.
pub(crate) const TAKEN_OVER: Duration = Duration::from_secs(10);

/// The way to the store, which can be cut: then nothing is answered, and nothing gets there.
pub(crate) struct Cuttable {
    store: Arc<dyn Store>,
    cut: watch::Sender<bool>,
    watcher: Mutex<Option<Arc<dyn GrowthWatcher>>>,
    known: Mutex<HashSet<TopicRef>>,
}

pub(crate) type Line = Layered<Cuttable>;

impl Cuttable {
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    /// The store has one watcher, and here are several gateways: each is told of deletions when it could find out by itself, as
    /// behind an engine that others reach too.
    fn tell(&self, gone: &TopicRef) {
        if let Some(watcher) = &*self.watcher.lock() {
            watcher.deleted(gone);
        }
    }

    fn through<'a, T: Send + 'a>(&'a self, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            self.cut.subscribe().wait_for(|cut| !*cut).await.unwrap();
            call.await
        })
    }
}

impl Layer for Cuttable {
    fn below(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { foreign_writers: true, ..self.store.capabilities() }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        Box::pin(async {
            let infos = self.through(self.store.topics()).await?;
            let now: HashSet<_> = infos.iter().map(|info| info.topic.clone()).collect();
            let before = std::mem::replace(&mut *self.known.lock(), now.clone());
            before.difference(&now).for_each(|gone| self.tell(gone));
            Ok(infos)
        })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        Box::pin(async {
            self.through(self.store.delete_topic(topic)).await?;
            self.tell(topic);
            Ok(())
        })
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        self.through(self.store.append(at, batch))
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        self.through(self.store.read(at, from, limit))
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        self.through(self.store.bounds(at))
    }

    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    // The other gateways still need it.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A gateway and its way to the store.
pub(crate) struct Gateway {
    pub(crate) server: Server,
    pub(crate) line: Arc<Line>,
}

impl Gateway {
    pub(crate) async fn start(store: &Arc<dyn Store>, instance_id: u16) -> Self {
        Self::try_start(store, instance_id, true).await.expect("a gateway")
    }

    pub(crate) async fn try_start(
        store: &Arc<dyn Store>,
        instance_id: u16,
        coordinates: bool,
    ) -> Result<Self, StartError> {
        let listener = ListenerConfig::new("test", "127.0.0.1:0".parse().unwrap());
        let cluster = ClusterSettings { beat_interval: BEAT, lease_time: LEASE, coordinates };
        let mut config =
            ServerConfig { listeners: vec![listener], instance_id, cluster: Some(cluster), ..ServerConfig::default() };
        config.groups.initial_rebalance_delay = Duration::ZERO;
        config.limits.metadata_refresh = REFRESH;
        // The clock of the store in memory stands in the past.
        config.producer_id_expiration = Duration::from_secs(100 * 365 * 86_400);
        let (watcher, known) = (Mutex::default(), Mutex::default());
        let line = Layered(Cuttable { store: Arc::clone(store), cut: watch::Sender::new(false), watcher, known });
        let line = Arc::new(line);
        let server = Box::pin(Server::start(config, Arc::clone(&line) as Arc<dyn Store>)).await?;
        Ok(Self { server, line })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.addresses()[0].address.port()
    }

    pub(crate) async fn client(&self) -> RawClient {
        RawClient::connect(("127.0.0.1", self.port())).await
    }

    /// Error, node and port that this gateway says for the group.
    pub(crate) async fn says(&self) -> (i16, i32, i32) {
        let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
        let answer = self.client().await.request(4, &request).await;
        let one = &answer.coordinators[0];
        (one.error_code, one.node_id.0, one.port)
    }

    pub(crate) async fn metadata(&self) -> MetadataResponse {
        self.client().await.request(9, &MetadataRequest::default().with_topics(None)).await
    }
}

/// Waits until all gateways name the same node, which must be one of them, and answers it.
pub(crate) async fn agreed(gateways: &[&Gateway]) -> i32 {
    let since = Instant::now();
    loop {
        let mut answers = Vec::new();
        for gateway in gateways {
            answers.push(gateway.says().await);
        }
        let first = answers[0];
        let there = gateways.iter().any(|gateway| i32::from(gateway.port()) == first.2);
        if first.0 == 0 && there && answers.iter().all(|answer| *answer == first) {
            return first.1;
        }
        assert!(since.elapsed() < TAKEN_OVER, "no agreement: {answers:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A member of the group that asks `gateway` where its coordinator is, as clients do.
pub(crate) async fn member(gateway: &Gateway) -> Member {
    let since = Instant::now();
    loop {
        if let (0, _, port) = gateway.says().await
            && let Ok(client) = RawClient::try_connect(("127.0.0.1", u16::try_from(port).unwrap())).await
        {
            return Member::over(client);
        }
        assert!(since.elapsed() < TAKEN_OVER, "no coordinator is found");
        sleep(Duration::from_millis(20)).await;
    }
}
