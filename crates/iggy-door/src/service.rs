//! What all connections share.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use milena_server::lifecycle::Lifecycle;
use milena_server::memory::Memory;
use milena_server::metrics::Counter;
use milena_server::quiet::QuietLog;
use milena_store::{Store, StoreError};
use milena_tls::TlsPort;
use tokio::sync::Semaphore;

use crate::admin::TopicAdmin;
use crate::auth::Root;
use crate::catalog::Catalog;
use crate::clients::Clients;
use crate::config::{DoorConfig, Secret};
#[cfg(feature = "faults")]
use crate::faults::Faults;
use crate::members::Members;
use crate::state::State;

/// Counters of the door, since the start of the process.
#[derive(Debug, Default)]
pub struct DoorMetrics {
    /// Connections that were accepted and served.
    pub accepted: Counter,
    /// Closed at accept: connections in all.
    pub refused: Counter,
    /// Closed at accept: connections of one client address.
    pub refused_per_address: Counter,
    /// Failures of accept itself, such as too many open files.
    pub accept_errors: Counter,
    /// Closed because the TLS handshake failed.
    pub closed_handshake: Counter,
    /// Closed because no request came in time.
    pub closed_idle: Counter,
    /// Closed because a request or an answer stopped on its way.
    pub closed_stalled: Counter,
    /// Closed because bytes were no request, or one that is too large.
    pub closed_protocol: Counter,
    /// Logins with the password.
    pub logins_by_password: Counter,
    /// Logins with an access token.
    pub logins_by_token: Counter,
    /// Failed logins.
    pub logins_failed: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Requests refused with a code.
    pub refusals: Counter,
    /// Messages stored.
    pub messages_in: Counter,
    /// Messages returned by polls.
    pub messages_out: Counter,
    /// The certificate and the handshakes, where connections begin with TLS.
    pub tls: OnceLock<Arc<TlsPort>>,
}

/// What all connections share.
pub(crate) struct Service {
    pub(crate) config: DoorConfig,
    pub(crate) root: Root,
    pub(crate) catalog: Catalog,
    pub(crate) admin: Arc<dyn TopicAdmin>,
    pub(crate) members: Members,
    pub(crate) clients: Clients,
    pub(crate) memory: Arc<Memory>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) metrics: DoorMetrics,
    pub(crate) quiet: QuietLog,
    /// Room for answers to polls, in mebibytes.
    pub(crate) polls: Arc<Semaphore>,
    /// Where the next send without a partition of its own goes.
    pub(crate) next_partition: AtomicU32,
    pub(crate) started_at_micros: u64,
    #[cfg(feature = "faults")]
    pub(crate) faults: Faults,
}

impl Service {
    /// The service, and the password of its user if one was made up.
    pub(crate) async fn open(
        config: DoorConfig,
        store: Arc<dyn Store>,
        state: State,
        admin: Arc<dyn TopicAdmin>,
        memory: Arc<Memory>,
    ) -> Result<(Self, Option<Secret>), StoreError> {
        let (root, made_up) = Root::open(&config, &state).await?;
        let service = Self {
            root,
            catalog: Catalog::new(store, state, config.limits.streams_max),
            admin,
            members: Members::default(),
            clients: Clients::new(),
            memory,
            lifecycle: Arc::default(),
            metrics: DoorMetrics::default(),
            quiet: QuietLog::default(),
            polls: Arc::new(Semaphore::new(config.limits.polls_mib_max.max(1))),
            next_partition: AtomicU32::new(0),
            started_at_micros: crate::auth::now_micros(),
            #[cfg(feature = "faults")]
            faults: Faults::default(),
            config,
        };
        Ok((service, made_up))
    }
}
