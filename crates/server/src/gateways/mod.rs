//! Several gateways in front of one store: who is there, and which one coordinates consumer groups.
//!
//! Data needs no agreement, since the store orders appends. Committed offsets and membership need one writer, so one
//! gateway at a time has a lease for all groups. All of them say in one log, every few seconds, that they are there; the
//! order of that log decides who has the lease, and who has an instance number.
//!
//! - [`record`]: what is appended to the log
//! - [`view`]: what the log says; pure
//! - `machine`: what a gateway does about it, and why there are never two coordinators; pure
//! - `log`, `driver`, `shared`: the store, the task, and what others are told
//!
//! One gateway in front of a store that nobody else can reach needs none of this, and writes no log.

mod driver;
mod log;
mod machine;
pub mod record;
mod shared;
#[cfg(test)]
mod simulation;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use milena_store::{Store, StoreError};
use rand::random;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::config::{ConfigError, ServerConfig};
use crate::groups::{Coordinators, Endpoint};
use crate::lifecycle::{Lifecycle, Phase};
use crate::listener::Bound;
use driver::Driver;
use machine::{Me, Standing};
use record::Incarnation;
use shared::Shared;
use view::GATEWAYS_MAX;

/// How gateways in front of one store go about each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Time between two signs of life. Each is one append to the store.
    pub beat_interval: Duration,
    /// Silence after which a gateway is taken to be gone, and another one may coordinate groups in its place. The same for
    /// all gateways of a store.
    pub lease_time: Duration,
    /// Whether this gateway coordinates groups when no other does.
    pub coordinates: bool,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self { beat_interval: Duration::from_secs(3), lease_time: Duration::from_secs(10), coordinates: true }
    }
}

impl ClusterSettings {
    /// Checks that a lease outlasts a beat that is lost.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let beat = millis(self.beat_interval);
        if beat == 0 {
            return Err(ConfigError::Zero { name: "cluster.beat_interval" });
        }
        let longest = millis(Duration::from_secs(3_600));
        crate::config::in_range("cluster.lease_time", millis(self.lease_time), beat.saturating_mul(3), longest)
    }
}

/// Why a gateway could not join the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Another gateway has the instance number.
    #[error(
        "instance number {instance} belongs to a gateway of this store that is running ({at}); give each gateway an \
         `instance_id` of its own"
    )]
    Taken {
        /// The number.
        instance: u16,
        /// Where clients reach the other one.
        at: String,
    },
    /// There are as many gateways as there may be.
    #[error("this store has {GATEWAYS_MAX} gateways already, which is the most it can have")]
    Crowded,
    /// The log of gateways cannot be used.
    #[error("the log of gateways cannot be used: {0}")]
    Store(#[from] StoreError),
}

/// This gateway among the others. When it is dropped, the others find out by its silence.
pub(crate) struct Gateways {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// Time in which the others have heard of what is announced.
    heard: Duration,
}

impl Gateways {
    /// Joins the others under the instance number of the configuration.
    ///
    /// Waits until a gateway of that number that ended without a word is taken to be gone.
    ///
    /// # Errors
    /// When the number is taken, or the store cannot be used.
    pub(crate) async fn join(
        settings: &ClusterSettings,
        config: &ServerConfig,
        listeners: &[Bound],
        store: Arc<dyn Store>,
    ) -> Result<Self, JoinError> {
        let instance = config.instance_id;
        let endpoint = |bound: &Bound| Endpoint {
            listener: bound.name.clone(),
            host: bound.advertised_host.clone(),
            port: bound.advertised_port,
        };
        let me = Me {
            instance,
            incarnation: Incarnation(random()),
            endpoints: listeners.iter().map(endpoint).collect(),
            coordinates: settings.coordinates,
            beat: settings.beat_interval,
            lease: settings.lease_time,
        };
        let shared = Arc::new(Shared::new());
        let mut driver = Driver::open(store, me, Arc::clone(&shared)).await?;
        match driver.join().await? {
            Standing::Refused(other) => {
                let at = other.endpoints.first();
                let at = at
                    .map_or_else(|| "which serves no clients now".to_owned(), |at| format!("{}:{}", at.host, at.port));
                Err(JoinError::Taken { instance, at })
            }
            Standing::Crowded => Err(JoinError::Crowded),
            _ => Ok(Self { shared, task: tokio::spawn(driver.run()), heard: settings.beat_interval / 2 }),
        }
    }

    /// Tells the others where clients reach this gateway, until it drains: one that has not begun to answer, or no longer does,
    /// must not be named as a leader. Meanwhile it keeps its number and its lease.
    pub(crate) fn named_while_serving(&self, lifecycle: Arc<Lifecycle>) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            shared.serve(true);
            lifecycle.reached(Phase::Draining).await;
            shared.serve(false);
        }
    }

    /// Waits until the others name this gateway, which they do when they have looked at the log once more. A client that finds a
    /// broker in one answer and misses it in the next forgets what it has asked that one.
    pub(crate) async fn heard_of(&self) {
        if !self.shared.others().is_empty() {
            tokio::time::sleep(self.heard).await;
        }
    }

    /// Who coordinates, for the groups.
    pub(crate) fn coordinators(&self) -> Arc<dyn Coordinators> {
        Arc::clone(&self.shared) as Arc<dyn Coordinators>
    }

    /// Resolves when this gateway knows of all that had joined by now.
    pub(crate) async fn caught_up(&self) {
        self.shared.read_since(Instant::now()).await;
    }

    /// Resolves when another gateway has the instance number of this one, or the log that would say so is lost.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move { shared.displaced().await }
    }

    /// Stops coordinating and tells the others, for at most `time`.
    pub(crate) async fn leave(mut self, time: Duration) {
        self.shared.leave();
        let _ = timeout(time, &mut self.task).await;
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use milena_store::testing::{Fault, Layer, Layered, MemoryStore, TestMessage, batch_of};
    use milena_store::{INTERNAL_STREAM, StoreFuture, TopicInfo};

    use super::*;

    /// Never says what topics there are.
    struct Silent(MemoryStore);

    impl Layer for Silent {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn topic<'a>(&'a self, _stream: &'a str, _topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
            Box::pin(std::future::pending())
        }
    }

    async fn join(store: Arc<dyn Store>) -> Result<Gateways, JoinError> {
        Gateways::join(&ClusterSettings::default(), &ServerConfig::default(), &[], store).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_or_takes_nothing_ends_the_start() {
        let silent = join(Arc::new(Layered(Silent(MemoryStore::new())))).await;
        assert!(matches!(silent.err(), Some(JoinError::Store(StoreError::Busy { .. }))));
        let full = MemoryStore::new();
        for _ in 0..100 {
            full.plan(Fault::Full);
        }
        assert!(matches!(join(Arc::new(full)).await.err(), Some(JoinError::Store(StoreError::Full { .. }))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_for_a_moment_is_waited_for() {
        let store = MemoryStore::new();
        store.plan(Fault::Busy);
        store.plan(Fault::InDoubtLost);
        assert!(join(Arc::new(store)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_told_where_clients_reach_a_gateway_while_it_serves_and_not_before_or_after() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let one = join(Arc::clone(&store)).await.unwrap();
        let config = ServerConfig { instance_id: 1, ..ServerConfig::default() };
        let listeners = [Bound::advertising("kafka.example", 19_092)];
        let two = Gateways::join(&ClusterSettings::default(), &config, &listeners, store).await.unwrap();
        // Less than the time between beats, but looks at the log come in between.
        let named = || async {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            one.coordinators().others().iter().map(|node| node.endpoints.len()).collect::<Vec<_>>()
        };
        assert_eq!(named().await, [0]);
        let lifecycle = Arc::new(Lifecycle::default());
        tokio::spawn(two.named_while_serving(Arc::clone(&lifecycle)));
        assert_eq!(named().await, [1]);
        lifecycle.advance(Phase::Draining);
        assert_eq!(named().await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_to_be_heard_of_is_named_by_the_others_and_who_is_alone_does_not_wait() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let started = Instant::now();
        let one = join(Arc::clone(&store)).await.unwrap();
        let alone = started.elapsed();
        one.heard_of().await;
        assert_eq!(started.elapsed(), alone);
        // Whenever the other one's last look was.
        for (instance_id, later) in (1_u16..).zip([0, 100, 400, 700, 990]) {
            tokio::time::sleep(Duration::from_millis(later)).await;
            let config = ServerConfig { instance_id, ..ServerConfig::default() };
            let listeners = [Bound::advertising("kafka.example", 19_092)];
            let settings = ClusterSettings::default();
            let two = Gateways::join(&settings, &config, &listeners, Arc::clone(&store)).await.unwrap();
            tokio::spawn(two.named_while_serving(Arc::new(Lifecycle::default())));
            two.heard_of().await;
            let others = one.coordinators().others();
            let found = others.iter().find(|node| node.id == i32::from(instance_id)).expect("a node of that number");
            assert_eq!(found.endpoints.len(), 1, "{instance_id}");
            two.leave(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_can_no_longer_read_on_ends_and_one_that_starts_anew_serves() {
        for what in ["trimmed", "cut short", "deleted"] {
            let store = MemoryStore::new();
            let gateways = join(Arc::new(store.clone())).await.unwrap();
            let topic = store.topic(INTERNAL_STREAM, "gateways").await.unwrap().unwrap().topic;
            let at = topic.partition(0);
            match what {
                "trimmed" => {
                    store.append(&at, batch_of(&[TestMessage::new(1, b"unread")])).await.unwrap();
                    let end = store.bounds(&at).await.unwrap().end;
                    store.trim(&at, end).await.unwrap();
                }
                "cut short" => store.lose_tail(&at, 0),
                _ => store.delete_topic(&topic).await.unwrap(),
            }
            let ended = timeout(Duration::from_secs(60), gateways.displaced()).await;
            assert!(ended.is_ok(), "{what}");
            assert_ne!(gateways.coordinators().coordinator_of("group"), crate::groups::Coordinator::Here, "{what}");
            drop(gateways);
            // What is left says nothing of where it begins.
            if what != "trimmed" {
                assert!(join(Arc::new(store)).await.is_ok(), "{what}");
            }
        }
    }
}
