//! What all handlers share, and the one place where its parts are put together.

use std::sync::{Arc, OnceLock};

use milena_store::{GrowthWatcher, Store};
use milena_tls::TlsPort;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::authentication::Authentication;
use crate::cluster;
use crate::config::ServerConfig;
use crate::dispatch::{APIS, Api};
use crate::fetch::Fetches;
use crate::groups::{GroupService, Kept, storage};
use crate::lifecycle::Lifecycle;
use crate::memory::{Memory, STRANGERS_BYTES};
use crate::metrics::Metrics;
use crate::opening::answered;
use crate::produce::Produce;
use crate::quiet::QuietLog;
use crate::server::StartError;
use crate::topics::TopicDirectory;
use crate::watchers::Watchers;

/// The state behind every handler. One per process; cheap to share.
pub struct Broker {
    /// Configuration.
    pub config: ServerConfig,
    /// The engine.
    pub store: Arc<dyn Store>,
    /// Kafka topics.
    pub topics: TopicDirectory,
    /// Deduplication, appends and producer ids.
    pub produce: Produce,
    /// Fetch sessions and parked fetches; its watcher is registered with the store.
    pub fetches: Fetches,
    /// Consumer groups and committed offsets.
    pub groups: GroupService,
    /// Stable id of this cluster, as clients see it.
    pub cluster_id: String,
    /// The APIs that are served.
    pub apis: &'static [Api],
    /// Who is let in.
    pub authentication: Box<Authentication>,
    /// Counters.
    pub metrics: Metrics,
    /// Bytes of requests in flight.
    pub memory: Arc<Memory>,
    /// Those of clients that are not let in yet, on listeners that ask for it: nobody else waits for it.
    pub strangers: Memory,
    /// Serving, draining or dropping.
    pub lifecycle: Arc<Lifecycle>,
    /// Log lines that clients could repeat for ever.
    pub quiet: QuietLog,
    /// Those about connections that were not let in, so that a client's mistakes do not hide them.
    pub quiet_accept: QuietLog,
    /// Those about requests that took long, by api key.
    pub quiet_slow: QuietLog<i16>,
    /// The certificates of the listeners with TLS, by name of the listener; set when the server begins to serve.
    pub tls: OnceLock<Vec<(String, Arc<TlsPort>)>>,
    /// True on a multi-thread runtime, where a thread may say that it is busy.
    pub(crate) threads_can_block: bool,
}

impl Broker {
    /// Assembles everything over an open store.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the store cannot be read.
    pub async fn open(config: ServerConfig, store: Arc<dyn Store>) -> Result<Arc<Self>, StartError> {
        Self::open_with(config, store, APIS).await
    }

    /// As [`Broker::open`], with a dispatch table of the caller's.
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub async fn open_with(
        config: ServerConfig,
        store: Arc<dyn Store>,
        apis: &'static [Api],
    ) -> Result<Arc<Self>, StartError> {
        config.validate()?;
        let authentication = Box::new(Authentication::open(&config.sasl)?);
        let cluster_id = answered("the cluster id", cluster::cluster_id(&store)).await?;
        let topics = TopicDirectory::open(Arc::clone(&store), &config).await?;
        topics.keep_fresh(config.limits.metadata_refresh);
        let metrics = Metrics::default();
        let produce = Produce::start(&config, Arc::clone(&store), Arc::clone(&metrics.produce)).await?;
        let fetches = Fetches::new(&config.limits);
        let threads_can_block =
            Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
        let (of_store, of_groups) = (Arc::clone(&store), Arc::clone(&metrics.groups));
        let groups = match storage::choose(&config, &store).await? {
            Kept::Topic => {
                let mapping = topics.mapping().clone();
                GroupService::open(&config, of_store, mapping, of_groups, threads_can_block).await?
            }
            Kept::ConsumerOffsets => GroupService::open_external(&config, of_store, topics.clone(), of_groups)?,
        };
        let mut watchers = vec![fetches.watcher(), Arc::new(produce.clone()) as Arc<dyn GrowthWatcher>];
        watchers.extend(groups.watcher(topics.mapping().clone()));
        store.watch(Arc::new(Watchers(watchers)));
        Ok(Arc::new(Self {
            memory: Arc::new(Memory::new(config.limits.in_flight_bytes)),
            strangers: Memory::new(STRANGERS_BYTES),
            config,
            store,
            topics,
            produce,
            fetches,
            groups,
            cluster_id,
            apis,
            authentication,
            metrics,
            lifecycle: Arc::default(),
            quiet: QuietLog::default(),
            quiet_accept: QuietLog::default(),
            quiet_slow: QuietLog::default(),
            tls: OnceLock::new(),
            threads_can_block,
        }))
    }

    /// Node id that clients see: the instance number.
    #[must_use]
    pub fn node_id(&self) -> i32 {
        i32::from(self.config.instance_id)
    }
}
