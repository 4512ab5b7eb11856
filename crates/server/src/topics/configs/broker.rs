//! What DescribeConfigs answers for the broker: the configs that tools ask for, with the values in force.
//!
//! All are read only, because they come from the server's own configuration.

use std::time::Duration;

use super::{ConfigEntry, ConfigRules, Kind, Source, Synonym};
use crate::config::ServerConfig;
use crate::limits::Limits;
use crate::listener::Bound;

/// The release whose protocol is spoken. Admin tools show it as the version of the cluster.
pub const PROTOCOL_VERSION: &str = "4.1";

/// Every broker config that is shown, sorted by name. `listener` is the one that this client came in on.
#[must_use]
pub fn entries(config: &ServerConfig, rules: &ConfigRules, listener: &Bound) -> Vec<ConfigEntry> {
    let mut entries = rules.broker_entries();
    let defaults = ServerConfig::default();
    entries.extend(identity(config, listener));
    entries.extend(of_topics(config, &defaults));
    entries.extend(authentication(config, &defaults, listener));
    entries.extend(bounds(&config.limits, &defaults.limits));
    entries.sort_by_key(|entry| entry.name);
    entries
}

fn identity(config: &ServerConfig, listener: &Bound) -> Vec<ConfigEntry> {
    let node = config.instance_id.to_string();
    let (host, port) = (listener.advertised_host.as_str(), listener.advertised_port);
    // An IPv6 address needs brackets, or its last group reads as the port.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let address = format!("{}://{host}:{port}", listener.security_protocol());
    let zero = || Some("0".to_owned());
    vec![
        setting("advertised.listeners", Kind::List, address.clone(), None, "Address that clients are told."),
        setting("broker.id", Kind::Int, node.clone(), zero(), "Id of this broker."),
        fixed("inter.broker.protocol.version", Kind::String, PROTOCOL_VERSION, "Release of Kafka that is spoken."),
        setting("listeners", Kind::List, address, None, "Address of this listener."),
        setting("node.id", Kind::Int, node, zero(), "Id of this broker."),
    ]
}

/// What a client asks for that logs in again before it has to (KIP-368), and the mechanisms that it may choose from.
fn authentication(config: &ServerConfig, defaults: &ServerConfig, listener: &Bound) -> Vec<ConfigEntry> {
    let names: Vec<&str> = listener.sasl.iter().map(|mechanism| mechanism.name()).collect();
    vec![
        setting(
            "connections.max.reauth.ms",
            Kind::Long,
            config.sasl.max_reauth.as_millis().to_string(),
            Some(defaults.sasl.max_reauth.as_millis().to_string()),
            "Time after which a client has to authenticate again, in milliseconds; 0 is never.",
        ),
        setting(
            "sasl.enabled.mechanisms",
            Kind::List,
            names.join(","),
            Some(String::new()),
            "Mechanisms by which clients of this listener authenticate.",
        ),
    ]
}

fn of_topics(config: &ServerConfig, defaults: &ServerConfig) -> Vec<ConfigEntry> {
    vec![
        setting(
            "auto.create.topics.enable",
            Kind::Boolean,
            config.auto_create_topics.to_string(),
            Some(defaults.auto_create_topics.to_string()),
            "Whether a topic that a client asks for is created, if the client allows it.",
        ),
        fixed(
            "default.replication.factor",
            Kind::Int,
            "1",
            "Replicas of a topic whose creator does not say. Replication is the engine's, each partition shows one.",
        ),
        fixed("delete.topic.enable", Kind::Boolean, "true", "Whether topics can be deleted."),
        setting(
            "num.partitions",
            Kind::Int,
            config.num_partitions.to_string(),
            Some(defaults.num_partitions.to_string()),
            "Partitions of a topic whose creator does not say.",
        ),
        setting(
            "offsets.retention.minutes",
            Kind::Int,
            minutes(config.groups.offsets_retention),
            Some(minutes(defaults.groups.offsets_retention)),
            "How long offsets of a group without members are kept, in minutes, rounded up.",
        ),
        setting(
            "producer.id.expiration.ms",
            Kind::Int,
            config.producer_id_expiration.as_millis().to_string(),
            Some(defaults.producer_id_expiration.as_millis().to_string()),
            "Idle time after which a producer's sequence numbers are forgotten, in milliseconds.",
        ),
    ]
}

fn minutes(time: Duration) -> String {
    time.as_millis().div_ceil(60_000).to_string()
}

fn bounds(limits: &Limits, defaults: &Limits) -> Vec<ConfigEntry> {
    let number = |name, kind, value: u128, default: u128, documentation| {
        setting(name, kind, value.to_string(), Some(default.to_string()), documentation)
    };
    // Kafka writes "no limit" as the largest number.
    let per_address =
        |limits: &Limits| limits.max_connections_per_address.map_or(i32::MAX as u128, |most| most as u128);
    vec![
        number(
            "connections.max.idle.ms",
            Kind::Long,
            limits.idle_timeout.as_millis(),
            defaults.idle_timeout.as_millis(),
            "Time without a request after which a connection is closed, in milliseconds.",
        ),
        number(
            "fetch.max.bytes",
            Kind::Int,
            limits.fetch_response_bytes as u128,
            defaults.fetch_response_bytes as u128,
            "Largest Fetch answer, in bytes of records.",
        ),
        number(
            "max.connections",
            Kind::Int,
            limits.max_connections as u128,
            defaults.max_connections as u128,
            "Connections in all.",
        ),
        number(
            "max.connections.per.ip",
            Kind::Int,
            per_address(limits),
            per_address(defaults),
            "Connections of one client address.",
        ),
        number(
            "socket.request.max.bytes",
            Kind::Int,
            limits.max_frame_bytes as u128,
            defaults.max_frame_bytes as u128,
            "Largest request in bytes.",
        ),
    ]
}

/// A config that this server fixes.
fn fixed(name: &'static str, kind: Kind, value: &str, documentation: &str) -> ConfigEntry {
    setting(name, kind, value.to_owned(), Some(value.to_owned()), documentation)
}

/// A config with its default; it counts as set by the server's configuration when the value is another.
fn setting(name: &'static str, kind: Kind, value: String, default: Option<String>, documentation: &str) -> ConfigEntry {
    let is_default = default.as_ref() == Some(&value);
    let mut synonyms = Vec::new();
    if !is_default {
        synonyms.push(Synonym { name, value: value.clone(), source: Source::Server });
    }
    synonyms.extend(default.map(|value| Synonym { name, value, source: Source::Default }));
    ConfigEntry {
        name,
        value,
        source: if is_default { Source::Default } else { Source::Server },
        read_only: true,
        kind,
        synonyms,
        documentation: documentation.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use milena_auth::Mechanism;

    use super::*;

    fn value(config: &ServerConfig, name: &str) -> (String, Source) {
        value_at(&Bound::advertising("kafka.example", 9092), config, name)
    }

    fn value_at(listener: &Bound, config: &ServerConfig, name: &str) -> (String, Source) {
        let rules = ConfigRules::new(config).unwrap();
        let found = entries(config, &rules, listener).into_iter().find(|entry| entry.name == name);
        found.map(|entry| (entry.value, entry.source)).unwrap_or_else(|| panic!("{name} is missing"))
    }

    #[test]
    fn the_configs_that_tools_ask_for_are_there() {
        for name in [
            "default.replication.factor",
            "num.partitions",
            "auto.create.topics.enable",
            "log.retention.ms",
            "message.max.bytes",
            "inter.broker.protocol.version",
            "log.cleanup.policy",
            "min.insync.replicas",
            "advertised.listeners",
            "node.id",
        ] {
            assert!(!value(&ServerConfig::default(), name).0.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_listener_is_shown_with_its_security_and_how_long_a_login_lasts() {
        let mut config = ServerConfig::default();
        assert_eq!(value(&config, "connections.max.reauth.ms"), ("0".to_owned(), Source::Default));
        assert_eq!(value(&config, "sasl.enabled.mechanisms"), (String::new(), Source::Default));
        config.sasl.max_reauth = Duration::from_secs(90);
        let mut listener = Bound::advertising("kafka.example", 9092);
        for (tls, sasl, protocol) in [
            (false, vec![], "PLAINTEXT"),
            (true, vec![], "SSL"),
            (false, vec![Mechanism::Plain], "SASL_PLAINTEXT"),
            (true, vec![Mechanism::Plain, Mechanism::ScramSha256], "SASL_SSL"),
        ] {
            (listener.tls, listener.sasl) = (tls, sasl);
            for name in ["listeners", "advertised.listeners"] {
                assert_eq!(value_at(&listener, &config, name).0, format!("{protocol}://kafka.example:9092"));
            }
        }
        let at = |name| value_at(&listener, &config, name);
        assert_eq!(at("connections.max.reauth.ms"), ("90000".to_owned(), Source::Server));
        assert_eq!(at("sasl.enabled.mechanisms"), ("PLAIN,SCRAM-SHA-256".to_owned(), Source::Server));
    }

    #[test]
    fn the_values_are_those_in_force() {
        let config =
            ServerConfig { num_partitions: 7, auto_create_topics: false, instance_id: 3, ..ServerConfig::default() };
        assert_eq!(value(&config, "num.partitions"), ("7".to_owned(), Source::Server));
        assert_eq!(value(&config, "auto.create.topics.enable"), ("false".to_owned(), Source::Server));
        assert_eq!(value(&config, "node.id"), ("3".to_owned(), Source::Server));
        assert_eq!(value(&config, "advertised.listeners").0, "PLAINTEXT://kafka.example:9092");
        assert_eq!(value(&config, "offsets.retention.minutes"), ("10080".to_owned(), Source::Default));
        let mut config = config;
        config.groups.offsets_retention = Duration::from_millis(90_001);
        assert_eq!(value(&config, "offsets.retention.minutes"), ("2".to_owned(), Source::Server));
    }

    #[test]
    fn every_entry_is_read_only_and_named_once() {
        let config = ServerConfig::default();
        let all = entries(&config, &ConfigRules::new(&config).unwrap(), &Bound::advertising("::1", 9092));
        assert!(all.iter().all(|entry| entry.read_only));
        assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted, and no name twice");
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        let config = ServerConfig::default();
        let all = entries(&config, &ConfigRules::new(&config).unwrap(), &Bound::advertising("::1", 9092));
        let listener = all.iter().find(|entry| entry.name == "listeners").unwrap();
        assert_eq!(listener.value, "PLAINTEXT://[::1]:9092");
    }
}
