//! The configuration of one server process, typed.

use std::path::PathBuf;
use std::time::Duration;

use milena_monitor::MonitorSettings;
use milena_server::ServerConfig;
use milena_server::gateways::ClusterSettings;
use milena_store::Durability;
use milena_store_embedded::EmbeddedConfig;

use super::iggy_door::IggyDoorSettings;
use super::sasl::SaslKeys;

/// The name under which the store keeps everything in memory and nothing on disk.
pub(crate) const MEMORY: &str = "memory://";

/// Everything that is configured.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) data_dir: String,
    pub(crate) durability: Level,
    pub(crate) flush_interval: Duration,
    pub(crate) flush_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) open_files_max: usize,
    pub(crate) log_level: String,
    pub(crate) log_format: Format,
    pub(crate) monitor: MonitorSettings,
    #[cfg(feature = "iggy")]
    pub(crate) iggy: super::iggy::IggySettings,
    pub(crate) iggy_door: IggyDoorSettings,
    pub(crate) sasl: SaslKeys,
    pub(crate) gateways: Gateways,
    pub(crate) cluster: ClusterSettings,
    pub(crate) server: ServerConfig,
}

/// `cluster.gateways`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gateways {
    /// As many as can reach the store.
    Auto,
    One,
    Several,
}

/// `durability`, without the numbers of `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Os,
    Interval,
    Always,
}

/// Form of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: "./milena-data".to_owned(),
            durability: Level::Os,
            flush_interval: Duration::from_secs(1),
            flush_bytes: 16 << 20,
            segment_bytes: 256 << 20,
            open_files_max: 1_024,
            log_level: "info".to_owned(),
            log_format: Format::Text,
            monitor: MonitorSettings::default(),
            #[cfg(feature = "iggy")]
            iggy: super::iggy::IggySettings::default(),
            iggy_door: IggyDoorSettings::default(),
            sasl: SaslKeys::default(),
            gateways: Gateways::Auto,
            cluster: ClusterSettings::default(),
            server: ServerConfig::default(),
        }
    }
}

impl Settings {
    /// The part of the server. `shared` says that other gateways can reach the store.
    pub(crate) fn server(&self, shared: bool) -> ServerConfig {
        let several = match self.gateways {
            Gateways::Auto => shared,
            Gateways::One => false,
            Gateways::Several => true,
        };
        ServerConfig { cluster: several.then(|| self.cluster.clone()), ..self.server.clone() }
    }

    /// The part of the embedded store.
    pub(crate) fn store(&self) -> EmbeddedConfig {
        EmbeddedConfig {
            dir: (self.data_dir != MEMORY).then(|| PathBuf::from(&self.data_dir)),
            durability: match self.durability {
                Level::Os => Durability::Os,
                Level::Interval => Durability::Interval { every: self.flush_interval, bytes: self.flush_bytes },
                Level::Always => Durability::Always,
            },
            segment_bytes: self.segment_bytes,
            open_files_max: self.open_files_max,
            ..EmbeddedConfig::default()
        }
    }
}

impl Gateways {
    pub(crate) const NAMES: &[&str] = &["auto", "one", "several"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::One => "one",
            Self::Several => "several",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Auto, Self::One, Self::Several].into_iter().find(|gateways| gateways.name() == name)
    }
}

impl Level {
    pub(crate) const NAMES: &[&str] = &["os", "interval", "always"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Interval => "interval",
            Self::Always => "always",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Os, Self::Interval, Self::Always].into_iter().find(|level| level.name() == name)
    }
}

impl Format {
    pub(crate) const NAMES: &[&str] = &["text", "json"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Text, Self::Json].into_iter().find(|format| format.name() == name)
    }
}
