//! Everything an operator can set, already checked for form. The binary fills it from file, environment and flags.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use milena_auth::Mechanism;
use milena_tls::TlsFiles;

use crate::authentication::SaslSettings;
use crate::gateways::ClusterSettings;
use crate::groups::{Alone, Coordinators, GroupSettings, OffsetStorage};
use crate::limits::Limits;

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Sockets to listen on; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Instance number: node id, and the upper 16 bits of producer ids. 0..=65535.
    pub instance_id: u16,
    /// What producers' sequence numbers are used for.
    pub idempotence: Idempotence,
    /// Create topics that Metadata asks for, when the client allows it.
    pub auto_create_topics: bool,
    /// Partitions of a topic whose creator does not say.
    pub num_partitions: u32,
    /// Most partitions of one topic that a client may ask for.
    pub max_partitions_per_topic: u32,
    /// Defaults of topic configs that differ from Kafka's, by config name; shown as set by the server.
    pub topic_defaults: BTreeMap<String, String>,
    /// How Kafka topics map to (stream, topic).
    pub topic_mapping: TopicMapping,
    /// Producers remembered per partition; least recently used go first.
    pub max_producers_per_partition: usize,
    /// Idle time after which a producer is forgotten.
    pub producer_id_expiration: Duration,
    /// Show internal topics in Metadata.
    pub show_internal_topics: bool,
    /// Consumer groups and committed offsets.
    pub groups: GroupSettings,
    /// Where committed offsets are kept. What was chosen at the first start cannot be changed by this alone.
    pub offset_storage: OffsetStorage,
    /// Set where other gateways may stand in front of the same store; then `coordinators` follows from it.
    pub cluster: Option<ClusterSettings>,
    /// Who coordinates groups. The program sets it, not an operator; the default is this gateway alone.
    pub coordinators: Arc<dyn Coordinators>,
    /// Time from which on a request is logged as slow; zero is never. Time that it was parked does not count.
    pub slow_request: Duration,
    /// Time between two looks for new certificates. The program sets it, not an operator.
    pub certificate_check: Duration,
    /// How clients are authenticated, on listeners that ask for it.
    pub sasl: Box<SaslSettings>,
    /// Bounds.
    pub limits: Limits,
}

/// One socket and the address clients are told for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Name, for logs and configuration.
    pub name: String,
    /// Address to bind; port 0 lets the system choose (then the advertised port follows).
    pub bind: SocketAddr,
    /// Host clients are told; `None` takes the bind address, which must then not be a wildcard.
    pub advertised_host: Option<String>,
    /// Port clients are told; `None` takes the bound port.
    pub advertised_port: Option<u16>,
    /// Certificate and key, where its connections begin with TLS.
    pub tls: Option<TlsFiles>,
    /// Mechanisms by which its clients authenticate; none are asked to where there are none.
    pub sasl: Vec<Mechanism>,
}

/// What producers' sequence numbers are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotence {
    /// A retried batch is stored once.
    Dedup,
    /// Sequence numbers are ignored.
    Allocate,
}

/// How Kafka topics map to (stream, topic) of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMapping {
    /// Stream of every topic without an override.
    pub default_stream: String,
    /// Overrides by Kafka name.
    pub topics: BTreeMap<String, MappedTopic>,
    /// Rules by the beginning of Kafka names.
    pub prefixes: BTreeMap<String, MappedPrefix>,
}

/// Where the topics live whose names begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedPrefix {
    /// Stream.
    pub stream: String,
    /// What stands in place of the beginning there; the rest of the name follows.
    pub topic_prefix: String,
}

/// Target of an override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedTopic {
    /// Stream.
    pub stream: String,
    /// Topic within it.
    pub topic: String,
}

impl Default for TopicMapping {
    fn default() -> Self {
        Self { default_stream: "kafka".to_owned(), topics: BTreeMap::new(), prefixes: BTreeMap::new() }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listeners: vec![ListenerConfig::new("default", SocketAddr::from(([127, 0, 0, 1], 9092)))],
            instance_id: 0,
            idempotence: Idempotence::Dedup,
            auto_create_topics: true,
            num_partitions: 1,
            max_partitions_per_topic: 10_000,
            // A segment is what recovery scans and what retention removes at once; Kafka's 1 GiB is coarse for both.
            topic_defaults: BTreeMap::from([("segment.bytes".to_owned(), (256_u32 << 20).to_string())]),
            topic_mapping: TopicMapping::default(),
            max_producers_per_partition: 4096,
            producer_id_expiration: Duration::from_secs(86_400),
            show_internal_topics: false,
            groups: GroupSettings::default(),
            offset_storage: OffsetStorage::default(),
            cluster: None,
            coordinators: Arc::new(Alone),
            slow_request: Duration::from_secs(1),
            certificate_check: milena_tls::CHECK_INTERVAL,
            sasl: Box::default(),
            limits: Limits::default(),
        }
    }
}

/// What is wrong with a configuration, as a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No listener is configured.
    #[error("no listener is configured; at least one address to listen on is needed")]
    NoListener,
    /// Two listeners have one name.
    #[error("two listeners are named `{name}`; give each its own name")]
    ListenerTwice {
        /// The name.
        name: String,
    },
    /// Clients would be told an address that means nothing to them.
    #[error(
        "listener `{name}` binds {bind}, which is every address of this machine and none that a client can connect \
         to; set its advertised host to the name or address that clients reach it by"
    )]
    NoAdvertisedHost {
        /// Name of the listener.
        name: String,
        /// Address it binds.
        bind: SocketAddr,
    },
    /// The advertised host is no host.
    #[error("listener `{name}` advertises the host `{host}`, which no client can connect to")]
    AdvertisedHost {
        /// Name of the listener.
        name: String,
        /// The host, shortened.
        host: String,
    },
    /// Port 0 is advertised.
    #[error("listener `{name}` advertises port 0, which no client can connect to")]
    AdvertisedPort {
        /// Name of the listener.
        name: String,
    },
    /// Clients are asked who they are, and nobody could answer.
    #[error(
        "listener `{name}` has the mechanism {mechanism}, for which no user is known; set sasl.users_file, or \
         sasl.username and sasl.password"
    )]
    NoUsers {
        /// Name of the listener.
        name: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Clients are asked for tokens, and none could be checked.
    #[error("listener `{name}` has the mechanism OAUTHBEARER, and no keys are known; set sasl.oauthbearer.jwks_file")]
    NoKeys {
        /// Name of the listener.
        name: String,
    },
    /// A number is outside of what it may be.
    #[error("{name} is {value}; it must lie between {min} and {max}")]
    OutOfRange {
        /// Name of the setting.
        name: &'static str,
        /// What it was set to.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A time is zero.
    #[error("{name} is zero; with that nothing would ever be waited for")]
    Zero {
        /// Name of the setting.
        name: &'static str,
    },
}

impl ServerConfig {
    /// Checks everything that can be checked without opening a socket or the store.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.listeners.is_empty() {
            return Err(ConfigError::NoListener);
        }
        let mut names = BTreeSet::new();
        for listener in &self.listeners {
            listener.validate()?;
            if !names.insert(listener.name.as_str()) {
                return Err(ConfigError::ListenerTwice { name: listener.name.clone() });
            }
            self.check_credentials(listener)?;
        }
        in_range("num_partitions", self.num_partitions, 1, self.max_partitions_per_topic)?;
        in_range("max_partitions_per_topic", self.max_partitions_per_topic, 1, i32::MAX.unsigned_abs())?;
        self.groups.validate()?;
        if let Some(cluster) = &self.cluster {
            cluster.validate()?;
        }
        self.limits.validate()
    }
}

impl ServerConfig {
    /// Whether anybody could be let in by each mechanism of a listener.
    fn check_credentials(&self, listener: &ListenerConfig) -> Result<(), ConfigError> {
        let users = !self.sasl.users.is_empty() || self.sasl.users_file.is_some();
        for mechanism in &listener.sasl {
            let name = listener.name.clone();
            match mechanism {
                Mechanism::OauthBearer if self.sasl.tokens.is_none() => return Err(ConfigError::NoKeys { name }),
                Mechanism::OauthBearer => {}
                _ if users => {}
                _ => return Err(ConfigError::NoUsers { name, mechanism: *mechanism }),
            }
        }
        Ok(())
    }
}

impl ListenerConfig {
    /// A listener in plain text that asks nobody who it is, and whose clients are told the address that it binds.
    #[must_use]
    pub fn new(name: &str, bind: SocketAddr) -> Self {
        Self { name: name.to_owned(), bind, advertised_host: None, advertised_port: None, tls: None, sasl: Vec::new() }
    }

    /// Host that clients of this listener are told. IPv6 addresses are told without brackets, as clients expect them.
    #[must_use]
    pub fn host_for_clients(&self) -> String {
        let Some(host) = &self.advertised_host else {
            return self.bind.ip().to_string();
        };
        host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).to_owned()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let name = || self.name.clone();
        if self.advertised_host.is_none() && self.bind.ip().is_unspecified() {
            return Err(ConfigError::NoAdvertisedHost { name: name(), bind: self.bind });
        }
        let host = self.host_for_clients();
        let is_wildcard = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '%');
        if host.is_empty() || host.len() > HOST_BYTES_MAX || is_wildcard || !host.chars().all(is_host) {
            return Err(ConfigError::AdvertisedHost { name: name(), host: host.chars().take(100).collect() });
        }
        if self.advertised_port == Some(0) {
            return Err(ConfigError::AdvertisedPort { name: name() });
        }
        Ok(())
    }
}

/// Longest name of a host in DNS.
const HOST_BYTES_MAX: usize = 253;

/// Checks one number.
pub(crate) fn in_range<N: Into<u64>>(name: &'static str, value: N, min: N, max: N) -> Result<(), ConfigError> {
    let (value, min, max) = (value.into(), min.into(), max.into());
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::OutOfRange { name, value, min, max }) }
}
