//! Where the server is, who we are there, and how long anything may take.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::limits;

/// What an acknowledgement of the server means for topics that are created through this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckDurability {
    /// Every acknowledged message is in the server's segment file: it survives the death of the server process.
    #[default]
    Persisted,
    /// As `Persisted`, and flushed to the device: it survives the death of the machine too.
    Flushed,
    /// What the server does by default: acknowledged messages may be in memory only. A server that is killed loses
    /// them, and gives their offsets to other messages.
    Fast,
}

/// TLS to the server.
#[derive(Debug, Clone, Default)]
pub struct TlsConfig {
    /// Name that the server's certificate must carry; `None` takes the host of the address.
    pub domain: Option<String>,
    /// File with the certificates that are trusted, PEM; `None` trusts the public authorities.
    pub ca_file: Option<PathBuf>,
}

/// How the store reaches its server. Its debug form hides the password.
#[derive(Debug, Clone)]
pub struct IggyConfig {
    /// Addresses, `host:port`, tried in order. Those of a cluster's other nodes are learned from it.
    pub servers: Vec<String>,
    /// User name.
    pub user: String,
    /// Password. Used to get an access token, and again when that is refused.
    pub password: SecretString,
    /// TLS, if the server speaks it.
    pub tls: Option<TlsConfig>,
    /// Number of this gateway among those on one server: part of the name of its access token.
    pub instance: u16,
    /// Name on the server of the stream that holds Milena's own state. Clusters of gateways that share a server, and
    /// not their topics, have one each.
    pub state_stream: String,
    /// Connections for appends. A partition always uses the same one.
    pub append_connections: usize,
    /// Connections for reads.
    pub read_connections: usize,
    /// Durability of topics that say nothing of their own.
    pub durability: AckDurability,
    /// Most partitions on the server, all topics and Milena's own together, up to which topics are created or grow.
    pub partitions_max: u64,
    /// Longest time that one call may take, from its request to its reply.
    pub call_timeout: Duration,
    /// Longest time for connecting and logging in.
    pub connect_timeout: Duration,
    /// Longest time that [`crate::IggyStore::open`] tries to reach the server.
    pub start_timeout: Duration,
    /// How old an answer about a partition's end may be, as far as other writers are concerned.
    pub bounds_max_age: Duration,
    /// Longest pause between two looks for messages of other writers, while somebody waits for them.
    pub probe_interval_max: Duration,
    /// Bytes of records behind the newest snapshot of the journal that make another one due.
    pub snapshot_behind_bytes: usize,
    /// Age of the access token at which it is replaced; it is valid for 24 hours.
    pub token_renewal: Duration,
    /// How long no node of a cluster has had a message before it is counted as lost and readers go on behind it.
    pub lost_grace: Duration,
}

impl IggyConfig {
    /// The defaults, for one server.
    #[must_use]
    pub fn new(server: &str, user: &str, password: SecretString) -> Self {
        Self {
            servers: vec![server.to_owned()],
            user: user.to_owned(),
            password,
            tls: None,
            instance: 0,
            state_stream: milena_store::INTERNAL_STREAM.to_owned(),
            append_connections: limits::APPEND_CONNECTIONS,
            read_connections: limits::READ_CONNECTIONS,
            durability: AckDurability::default(),
            partitions_max: limits::SERVER_PARTITIONS,
            call_timeout: limits::CALL_TIMEOUT,
            connect_timeout: limits::CONNECT_TIMEOUT,
            start_timeout: limits::START_TIMEOUT,
            bounds_max_age: limits::BOUNDS_MAX_AGE,
            probe_interval_max: limits::PROBE_INTERVAL_MAX,
            snapshot_behind_bytes: limits::SNAPSHOT_BEHIND_BYTES,
            token_renewal: limits::TOKEN_RENEWAL,
            lost_grace: limits::LOST_GRACE,
        }
    }
}
