//! What DescribeConfigs answers for groups and for subscriptions to client metrics: the defaults of Kafka 4.1.
//!
//! All of them are for the protocols of new consumer groups, share groups and streams groups, and for client telemetry,
//! none of which this server has: its groups are classic, with the timeouts that their members send. Tools ask for them all
//! the same, for every group that they list.

use super::keys::Kind;
use super::{ConfigEntry, Source, Synonym};

/// Name, type, default and meaning.
type Config = (&'static str, Kind, &'static str, &'static str);

#[rustfmt::skip]
const GROUP: [Config; 10] = [
    ("consumer.heartbeat.interval.ms", Kind::Int, "5000", "Time in milliseconds between the heartbeats of a member."),
    ("consumer.session.timeout.ms", Kind::Int, "45000", "Time in milliseconds after which a silent member is taken for dead."),
    ("share.auto.offset.reset", Kind::String, "latest", "Where a share group begins to read."),
    ("share.heartbeat.interval.ms", Kind::Int, "5000", "Time in milliseconds between the heartbeats of a member of a share group."),
    ("share.isolation.level", Kind::String, "read_uncommitted", "Which records of transactions a share group gets."),
    ("share.record.lock.duration.ms", Kind::Int, "30000", "Time in milliseconds for which a share group locks a record."),
    ("share.session.timeout.ms", Kind::Int, "45000", "Time in milliseconds after which a silent member of a share group is taken for dead."),
    ("streams.heartbeat.interval.ms", Kind::Int, "5000", "Time in milliseconds between the heartbeats of a member of a streams group."),
    ("streams.num.standby.replicas", Kind::Int, "0", "Standby replicas of each task of a streams group."),
    ("streams.session.timeout.ms", Kind::Int, "45000", "Time in milliseconds after which a silent member of a streams group is taken for dead."),
];

#[rustfmt::skip]
const CLIENT_METRICS: [Config; 3] = [
    ("interval.ms", Kind::Int, "300000", "Time in milliseconds between two pushes of metrics."),
    ("match", Kind::List, "", "Clients that the subscription is for."),
    ("metrics", Kind::List, "", "Prefixes of the names of the metrics."),
];

/// The configs of any group.
#[must_use]
pub fn group() -> Vec<ConfigEntry> {
    let synonym = |&(name, _, value, _): &Config| Synonym { name, value: value.to_owned(), source: Source::Default };
    GROUP.iter().map(|config| entry(config, vec![synonym(config)])).collect()
}

/// The configs of any subscription to client metrics. As in Kafka they have no synonyms.
#[must_use]
pub fn client_metrics() -> Vec<ConfigEntry> {
    CLIENT_METRICS.iter().map(|config| entry(config, Vec::new())).collect()
}

fn entry(&(name, kind, value, meaning): &Config, synonyms: Vec<Synonym>) -> ConfigEntry {
    ConfigEntry {
        name,
        value: value.to_owned(),
        source: Source::Default,
        read_only: true,
        kind,
        synonyms,
        documentation: format!("{meaning} It has no effect on this server."),
    }
}
