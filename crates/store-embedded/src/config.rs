//! How the store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milena_store::{Durability, TopicSettings};

/// How the embedded store is opened.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// Data folder; `None` is `memory://`.
    pub dir: Option<PathBuf>,
    /// Durability where a topic does not say.
    pub durability: Durability,
    /// Segment size in bytes where a topic does not say.
    pub segment_bytes: u64,
    /// Age by append time of its first entry after which a segment is sealed, where a topic does not say.
    pub segment_age: Option<Duration>,
    /// Age by append time after which whole segments are removed, where a topic does not say; `None` keeps them.
    pub retention: Option<Duration>,
    /// Bytes per partition above which the oldest whole segments are removed, where a topic does not say.
    pub retention_bytes: Option<u64>,
    /// Most open segment files.
    pub open_files_max: usize,
    /// Bytes reserved on the device ahead of the data where the policy flushes; 0 reserves nothing.
    pub preallocate_bytes: u64,
    /// Time between two rounds of retention; `None` runs none, and the caller calls
    /// [`crate::EmbeddedStore::maintain`].
    pub maintenance_every: Option<Duration>,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            dir: None,
            durability: Durability::Os,
            segment_bytes: 256 * 1024 * 1024,
            segment_age: Some(Duration::from_secs(7 * 24 * 3600)),
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            open_files_max: 512,
            preallocate_bytes: 0,
            maintenance_every: Some(Duration::from_secs(15)),
        }
    }
}

/// The time in microseconds since the Unix epoch, as the store sees it.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The clock of the operating system.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        micros(since)
    })
}

/// A duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Smallest segment: below it a partition would be nothing but files.
const SEGMENT_BYTES_MIN: u64 = 256;

/// The settings of a topic with the store's own in place of what it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) durability: Durability,
    pub(crate) segment_bytes: u64,
    pub(crate) segment_age_micros: Option<u64>,
    pub(crate) retention_micros: Option<u64>,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) flush_messages: Option<u64>,
    /// Longest time that acknowledged bytes stay unflushed.
    pub(crate) flush_every: Option<Duration>,
    /// Most acknowledged bytes that stay unflushed.
    pub(crate) flush_bytes: Option<u64>,
}

impl Effective {
    pub(crate) fn of(config: &EmbeddedConfig, settings: &TopicSettings) -> Self {
        let durability = settings.durability.unwrap_or(config.durability);
        let (interval, flush_bytes) = match durability {
            Durability::Interval { every, bytes } => (Some(every), Some(bytes)),
            Durability::Os | Durability::Always => (None, None),
        };
        let retention = settings.retention.unwrap_or(config.retention).filter(|_| !settings.keep_forever);
        let retention_bytes =
            settings.retention_bytes.unwrap_or(config.retention_bytes).filter(|_| !settings.keep_forever);
        Self {
            durability,
            segment_bytes: settings.segment_bytes.unwrap_or(config.segment_bytes).max(SEGMENT_BYTES_MIN),
            segment_age_micros: settings.segment_age.or(config.segment_age).map(micros),
            retention_micros: retention.map(micros),
            retention_bytes,
            flush_messages: settings.flush_messages,
            flush_every: [interval, settings.flush_every].into_iter().flatten().min(),
            flush_bytes,
        }
    }

    /// True when acknowledged bytes are promised to reach the device at some time.
    pub(crate) fn flushes(&self) -> bool {
        self.durability != Durability::Os || self.flush_messages.is_some() || self.flush_every.is_some()
    }
}
