//! What an operator can set.

use std::net::SocketAddr;
use std::sync::Arc;

use milena_tls::TlsFiles;

use crate::limits::DoorLimits;

/// How the door is opened.
#[derive(Debug, Clone)]
pub struct DoorConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Host and port that clients are told; `None` tells each client the address that it reached.
    pub advertised: Option<(String, u16)>,
    /// Name of the one user.
    pub username: String,
    /// Password of the one user; `None` makes one up at the first start, of which only a digest is stored.
    pub password: Option<Secret>,
    /// What a consumer offset may be.
    pub offset_rules: OffsetRules,
    /// Number of this process among those that write the store, as on the Kafka side.
    pub instance_id: u16,
    /// Certificate and key, where connections begin with TLS.
    pub tls: Option<TlsFiles>,
    /// Bounds.
    pub limits: DoorLimits,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Rules about consumer offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffsetRules {
    /// As Iggy's server: an offset lies within what the partition holds, only a member stores for its group, and names of
    /// plain consumers are told apart by 32 bits of their hash.
    #[default]
    Server,
    /// Any offset of any consumer or group, whether or not the group exists.
    Free,
}
