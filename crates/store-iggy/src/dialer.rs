//! One way to a connection: which address, which credentials, and how an access token lives.
//!
//! Logging in with a password costs the server tens of milliseconds of hashing on the thread that serves requests, a
//! token costs one. So the password is used once, for a token; the token is renewed long before it expires, and when
//! the server refuses it. Its name carries the number of this gateway, and what an earlier run of
//! the same number left behind is deleted at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use iggy::prelude::{Client, TcpClient};
use iggy_common::{
    AutoLogin, ClusterClient, Credentials, IggyDuration, IggyError, IggyExpiry, PersonalAccessTokenClient,
    TcpClientConfig, TcpClientReconnectionConfig, UserClient,
};
use milena_store::PartitionRef;
use milena_store::metrics::EngineMetrics;
use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::IggyConfig;
use crate::error::{Class, class};
use crate::limits;
use crate::roster::{Node, Roster};
use crate::sweep::share;

/// Makes connections that are logged in.
pub(crate) struct Dialer {
    config: IggyConfig,
    /// Nodes of the cluster as it last named them.
    pub(crate) roster: Roster,
    /// Which address answered last.
    preferred: AtomicUsize,
    token: RwLock<Option<SecretString>>,
    /// Which of the two names the token in use has.
    token_turn: AtomicUsize,
    renewal: tokio::sync::Mutex<()>,
    refusals: Notify,
    /// Counts connections that broke. One that was made before another broke may be just as dead.
    breaks: AtomicUsize,
    /// What the store counts.
    pub(crate) metrics: Arc<EngineMetrics>,
    /// True while the last attempt failed, so that an outage is logged once and not by every connection.
    down: AtomicBool,
}

/// A connection, and of a cluster the node that it is to.
pub(crate) struct Dialed {
    pub(crate) client: Arc<TcpClient>,
    pub(crate) node: Option<Node>,
}

/// Where a connection ends up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Where the SDK takes it: to the leader of a cluster.
    AtLeader,
    /// Where it was dialed.
    Stay,
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum DialError {
    /// Nobody answered in time.
    #[error("{address} did not answer within {waited:?}; is an Iggy server of protocol 0.11 listening there?")]
    Late { address: String, waited: Duration },
    /// The SDK or the server said no.
    #[error("{address}: {error} (code {})", error.as_code())]
    Refused { address: String, error: IggyError },
    /// No connection with TLS. The SDK does not say why; its log does.
    #[error(
        "{address} cannot be connected to with TLS: nobody listens there, it does not speak TLS, or its certificate is \
         not one for {name} that an authority trusted here has signed"
    )]
    NoTls { address: String, name: String },
    /// Others did not answer for so long that nobody waits any more.
    #[error("no node was reached in time")]
    TooLate,
    /// The login was cut off.
    #[error("{address} closed the connection before the login was answered; does it speak TLS, or another protocol?")]
    CutOff { address: String },
}

impl DialError {
    /// True when another attempt would come to the same end.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Late { .. } | Self::NoTls { .. } | Self::CutOff { .. } | Self::TooLate => false,
            Self::Refused { error, .. } => {
                class(error) == Class::Identity
                    || matches!(
                        error,
                        IggyError::InvalidTlsDomain
                            | IggyError::InvalidTlsCertificatePath
                            | IggyError::InvalidTlsCertificate
                            | IggyError::InvalidServerAddress
                            | IggyError::InvalidConfiguration
                    )
            }
        }
    }
}

impl Dialer {
    pub(crate) fn new(config: IggyConfig) -> Self {
        Self {
            config,
            roster: Roster::default(),
            preferred: AtomicUsize::new(0),
            token: RwLock::new(None),
            token_turn: AtomicUsize::new(0),
            renewal: tokio::sync::Mutex::new(()),
            refusals: Notify::new(),
            breaks: AtomicUsize::new(0),
            metrics: Arc::new(EngineMetrics::new("iggy")),
            down: AtomicBool::new(false),
        }
    }

    /// A connection that is logged in: with the token, or with the password when there is no token or it is refused.
    pub(crate) async fn dial(&self) -> Result<Arc<TcpClient>, DialError> {
        self.dial_to(None, self.deadline()).await.map(|dialed| dialed.client)
    }

    /// As [`Self::dial`]; of a cluster to the node that leads a partition, as far as is known, or to the next one that
    /// answers. However many nodes there are, no attempt goes on behind the deadline.
    pub(crate) async fn dial_to(&self, at: Option<&PartitionRef>, deadline: Instant) -> Result<Dialed, DialError> {
        let dialed = self.dial_quietly(at, deadline).await;
        match &dialed {
            Ok(_) if self.down.swap(false, Ordering::Relaxed) => tracing::info!("the Iggy server is reached again"),
            Err(error) if !self.down.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the Iggy server cannot be reached");
            }
            _ => {}
        }
        dialed
    }

    /// Until when somebody waits for a connection who calls now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.config.call_timeout
    }

    async fn dial_quietly(&self, at: Option<&PartitionRef>, deadline: Instant) -> Result<Dialed, DialError> {
        let token = self.token.read().clone();
        if let Some(token) = token {
            match self.dial_with(&Credentials::PersonalAccessToken(token), at, deadline).await {
                Err(DialError::Refused { error, .. }) if class(&error) == Class::Identity => {
                    tracing::warn!(%error, "the server refuses the access token, logging in with the password");
                    *self.token.write() = None;
                    self.refusals.notify_one();
                }
                answered => return answered,
            }
        }
        self.dial_with_password(at, deadline).await
    }

    async fn dial_with_password(&self, at: Option<&PartitionRef>, deadline: Instant) -> Result<Dialed, DialError> {
        let password = Credentials::UsernamePassword(self.config.user.clone(), self.config.password.clone());
        self.dial_with(&password, at, deadline).await
    }

    async fn dial_with(
        &self,
        credentials: &Credentials,
        at: Option<&PartitionRef>,
        deadline: Instant,
    ) -> Result<Dialed, DialError> {
        if !self.roster.is_cluster() {
            let client = self.dial_configured(credentials, deadline).await?;
            if !self.roster.is_cluster() {
                return Ok(Dialed { client, node: None });
            }
            // It was the first, which went where the SDK wanted, and nobody says which node that is.
            let _ = client.disconnect().await;
        }
        // The last part of the time is for the configured addresses.
        let left = deadline.saturating_duration_since(Instant::now());
        let for_nodes = deadline.checked_sub(self.config.connect_timeout.min(left / 3)).unwrap_or(deadline);
        match self.dial_nodes(credentials, at, for_nodes).await {
            Ok(dialed) => Ok(dialed),
            Err(Some(error)) if error.is_final() => Err(error),
            // The nodes may have moved; the configured addresses are what stays.
            Err(last) => match self.dial_configured(credentials, deadline).await {
                Ok(client) => Ok(Dialed { client, node: None }),
                Err(error) => Err(last.unwrap_or(error)),
            },
        }
    }

    async fn dial_configured(&self, credentials: &Credentials, deadline: Instant) -> Result<Arc<TcpClient>, DialError> {
        let addresses = &self.config.servers;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..addresses.len() {
            let index = (first + turn) % addresses.len().max(1);
            let Some(address) = addresses.get(index) else { continue };
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = share(left, addresses.len() - turn).min(self.config.connect_timeout);
            if patience.is_zero() {
                last = last.or(Some(DialError::TooLate));
                break;
            }
            match self.dial_one(address, credentials, Settle::AtLeader, patience).await {
                Ok(client) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    self.learn_roster(&client).await;
                    return Ok(client);
                }
                Err(error) if error.is_final() => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| DialError::Refused {
            address: "no address".to_owned(),
            error: IggyError::InvalidServerAddress,
        }))
    }

    pub(crate) async fn dial_one(
        &self,
        address: &str,
        credentials: &Credentials,
        settle: Settle,
        patience: Duration,
    ) -> Result<Arc<TcpClient>, DialError> {
        let refused = |error| DialError::Refused { address: address.to_owned(), error };
        let auto_login = match settle {
            Settle::AtLeader => AutoLogin::Enabled(credentials.clone()),
            // The SDK takes a connection that it logs in by itself to the leader of the cluster.
            Settle::Stay => AutoLogin::Disabled,
        };
        let client = TcpClient::create(Arc::new(self.client_config(address, auto_login))).map_err(refused)?;
        let connect = async {
            Client::connect(&client).await?;
            match (settle, credentials) {
                (Settle::AtLeader, _) => Ok(()),
                (Settle::Stay, Credentials::PersonalAccessToken(token)) => {
                    client.login_with_personal_access_token(token.expose_secret()).await.map(drop)
                }
                (Settle::Stay, Credentials::UsernamePassword(user, password)) => {
                    client.login_user(user, password.expose_secret()).await.map(drop)
                }
            }
        };
        match timeout(patience, connect).await {
            Ok(Ok(())) => Ok(Arc::new(client)),
            Ok(Err(error)) => Err(self.dial_error(address, error)),
            Err(_) => Err(DialError::Late { address: address.to_owned(), waited: patience }),
        }
    }

    fn dial_error(&self, address: &str, error: IggyError) -> DialError {
        let address = address.to_owned();
        match (&self.config.tls, error) {
            (Some(tls), IggyError::CannotEstablishConnection) => {
                let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
                let name = tls.domain.clone().unwrap_or_else(|| host.to_owned());
                DialError::NoTls { address, name }
            }
            (None, IggyError::Disconnected) => DialError::CutOff { address },
            (_, error) => DialError::Refused { address, error },
        }
    }

    fn client_config(&self, address: &str, auto_login: AutoLogin) -> TcpClientConfig {
        let tls = self.config.tls.as_ref();
        let ca_file = tls.and_then(|tls| tls.ca_file.as_ref());
        TcpClientConfig {
            server_address: address.to_owned(),
            tls_enabled: tls.is_some(),
            tls_domain: tls.and_then(|tls| tls.domain.clone()).unwrap_or_default(),
            tls_ca_file: ca_file.map(|path| path.display().to_string()),
            tls_validate_certificate: true,
            auto_login,
            // A connection that broke is replaced here: the SDK would retry for as long as it likes, and holds up
            // every request behind it meanwhile.
            reconnection: TcpClientReconnectionConfig { enabled: false, ..TcpClientReconnectionConfig::default() },
            nodelay: true,
            ..TcpClientConfig::default()
        }
    }

    /// Remembers the other nodes of a cluster, so that they are found when the configured ones are gone.
    pub(crate) async fn learn_roster(&self, client: &TcpClient) {
        let Ok(Ok(cluster)) = timeout(self.config.connect_timeout, client.get_cluster_metadata()).await else { return };
        self.roster.learn(&cluster);
    }

    /// Whether the node at the other end says that it leads the cluster; `None` when it does not answer.
    pub(crate) async fn leads(&self, client: &TcpClient, node: &Node) -> Option<bool> {
        let asked = timeout(self.config.connect_timeout, client.get_cluster_metadata());
        let cluster = asked.await.ok()?.ok()?;
        self.roster.learn(&cluster);
        Some(self.roster.home(None, Instant::now()).as_ref() == Some(node))
    }

    /// A connection to this node and no other, whether or not it leads anything.
    pub(crate) async fn dial_node(&self, node: &Node) -> Result<Arc<TcpClient>, DialError> {
        let token = self.token.read().clone();
        let credentials = match token {
            Some(token) => Credentials::PersonalAccessToken(token),
            None => Credentials::UsernamePassword(self.config.user.clone(), self.config.password.clone()),
        };
        self.dial_one(node, &credentials, Settle::Stay, self.config.connect_timeout).await
    }

    /// Until the server refuses the access token.
    pub(crate) async fn token_refused(&self) {
        self.refusals.notified().await;
    }

    /// Replaces the access token by a new one. Connections that are logged in stay so.
    pub(crate) async fn renew_token(&self) -> Result<(), DialError> {
        let client = self.dial_with_password(None, self.deadline()).await?.client;
        self.renew_token_over(&client).await
    }

    /// As [`Self::renew_token`], over a connection that is logged in with the password already; it is closed.
    pub(crate) async fn renew_token_over(&self, client: &TcpClient) -> Result<(), DialError> {
        let _one_at_a_time = self.renewal.lock().await;
        let turn = self.token_turn.load(Ordering::Relaxed) + 1;
        let (name, old) = (self.token_name(turn), self.token_name(turn + 1));
        let refused = |error| DialError::Refused { address: name.clone(), error };
        let expiry = IggyExpiry::ExpireDuration(IggyDuration::from(limits::TOKEN_LIFE));
        let renewed = timeout(self.config.call_timeout, async {
            // One of this name was left behind by an earlier run that was killed.
            let _ = client.delete_personal_access_token(&name).await;
            client.create_personal_access_token(&name, expiry).await
        });
        let token = match renewed.await {
            Ok(token) => token.map_err(refused)?.token,
            Err(_) => return Err(DialError::Late { address: name, waited: self.config.call_timeout }),
        };
        *self.token.write() = Some(token.into());
        self.token_turn.store(turn, Ordering::Relaxed);
        let _ = timeout(self.config.call_timeout, client.delete_personal_access_token(&old)).await;
        let _ = client.disconnect().await;
        Ok(())
    }

    /// Deletes the token, so that nothing is left behind on the server.
    pub(crate) async fn forget_token(&self, client: &TcpClient) {
        if self.token.write().take().is_some() {
            let name = self.token_name(self.token_turn.load(Ordering::Relaxed));
            let _ = timeout(self.config.connect_timeout, client.delete_personal_access_token(&name)).await;
        }
    }

    fn token_name(&self, turn: usize) -> String {
        format!("milena-{}-{}", self.config.instance, if turn.is_multiple_of(2) { "a" } else { "b" })
    }

    /// How many connections broke so far.
    pub(crate) fn breaks(&self) -> usize {
        self.breaks.load(Ordering::Relaxed)
    }

    pub(crate) fn note_break(&self) {
        self.breaks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn config(&self) -> &IggyConfig {
        &self.config
    }
}
