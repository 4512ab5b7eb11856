//! What an operator can set.

use std::net::SocketAddr;

/// Settings of metrics and health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorSettings {
    /// Where HTTP is spoken; `None` is nowhere. There is no authentication: loopback unless the network is trusted.
    pub listen: Option<SocketAddr>,
    /// How closely the lag of groups is told.
    pub lag: LagDetail,
    /// Series about the lag of groups, at most. Passed: partitions of further groups are told in their group's sum only, and
    /// groups beyond that not at all, which is counted.
    pub lag_series_max: usize,
}

/// How closely the lag of groups is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagDetail {
    /// Not at all.
    Off,
    /// One series for each group.
    Group,
    /// One for each group, and one for each of its partitions.
    Partition,
}

impl Default for MonitorSettings {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9644))),
            lag: LagDetail::Partition,
            lag_series_max: 10_000,
        }
    }
}
