//! From what a user set to what the data path and the store act on.

use std::collections::BTreeMap;
use std::time::Duration;

use milena_records::{Codec, Compression, TimestampType};
use milena_store::TopicSettings;

use super::keys::{self, ConfigKey, TOPIC_KEYS};
use super::{ConfigEntry, Source, Synonym, value};
use crate::config::ServerConfig;
use crate::topics::names::clipped;

/// The configs that the data path acts on, typed; and what the user set.
#[derive(Debug, Clone)]
pub struct TopicConfig {
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`; `i64::MAX` is unlimited.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`; `i64::MAX` is unlimited.
    pub timestamp_after_max_ms: i64,
    /// What Fetch compresses with (`compression.type` and the level of that codec); nothing for `producer` and
    /// `uncompressed`.
    pub fetch_compression: Compression,
    /// True when `cleanup.policy` holds `compact`: records need a key.
    pub compacted: bool,
    /// What was set explicitly, by config name.
    pub set: BTreeMap<String, String>,
}

/// Why configs are refused. Its text goes to the client: it is short, whatever the client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Kafka has no such topic config.
    #[error("Unknown topic config name: {0}")]
    Unknown(String),
    /// A config without a value.
    #[error("Null value not supported for topic configs: {0}")]
    Null(&'static str),
    /// A value that its config does not take.
    #[error("{0}")]
    Value(String),
    /// Words added to or taken from a config that is no list.
    #[error("{0} is not a list, so words can neither be added to it nor taken from it")]
    NotAList(&'static str),
    /// Values that do not go together.
    #[error("{0}")]
    Conflict(&'static str),
}

/// The defaults of this server, and the checks that depend on it.
#[derive(Debug, Clone)]
pub struct ConfigRules {
    defaults: BTreeMap<&'static str, String>,
    frame_bytes_max: usize,
}

impl ConfigRules {
    /// The rules of a server: Kafka's defaults with the operator's own over them.
    ///
    /// # Errors
    /// When the operator's defaults hold an unknown name or a bad value.
    pub fn new(config: &ServerConfig) -> Result<Self, ConfigError> {
        let mut rules = Self { defaults: BTreeMap::new(), frame_bytes_max: config.limits.max_frame_bytes };
        let given = config.topic_defaults.iter().map(|(name, value)| (name.as_str(), Some(value.as_str())));
        let checked = rules.check(given)?;
        for (name, value) in checked {
            if let Some(key) = keys::find(&name) {
                rules.defaults.insert(key.name, value);
            }
        }
        Ok(rules)
    }

    /// Checks what somebody wants to set, all of it or nothing. A name given twice counts with its last value.
    ///
    /// # Errors
    /// The first unknown name, missing or bad value, or conflict.
    pub fn check<'a>(
        &self,
        given: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        let mut set = BTreeMap::new();
        for (name, value) in given {
            let key = known(name)?;
            let (key, value) = self.check_one(key.name, value.ok_or(ConfigError::Null(key.name))?)?;
            set.insert(key.name.to_owned(), value);
        }
        self.check_together(&set)?;
        Ok(set)
    }

    /// Checks a value by itself, and writes it the way it is kept.
    pub(super) fn check_one(&self, name: &str, value: &str) -> Result<(&'static ConfigKey, String), ConfigError> {
        let key = known(name)?;
        let value = value::parse(key, value).map_err(ConfigError::Value)?;
        self.check_frame(key, &value)?;
        Ok((key, value))
    }

    /// Checks values against each other and against the defaults of what is not among them.
    pub(super) fn check_together(&self, set: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if self.number(set, "min.compaction.lag.ms") > self.number(set, "max.compaction.lag.ms") {
            return Err(ConfigError::Conflict("min.compaction.lag.ms must not be above max.compaction.lag.ms"));
        }
        Ok(())
    }

    /// A batch arrives in one request, so a limit above the largest request would promise what cannot be kept.
    fn check_frame(&self, key: &ConfigKey, value: &str) -> Result<(), ConfigError> {
        let limit = self.frame_bytes_max;
        let above = value.parse::<usize>().is_ok_and(|bytes| bytes > limit);
        if key.name == "max.message.bytes" && above {
            return Err(ConfigError::Value(format!(
                "Invalid value {value} for configuration max.message.bytes: the server takes requests of up to {limit} bytes"
            )));
        }
        Ok(())
    }

    /// The value in force when nobody sets the topic's own, and where it comes from.
    fn default_of(&self, key: &ConfigKey) -> (&str, Source) {
        match self.defaults.get(key.name) {
            Some(value) => (value, Source::Server),
            None => (key.default, Source::Default),
        }
    }

    /// The value in force.
    pub(super) fn text<'a>(&'a self, set: &'a BTreeMap<String, String>, name: &str) -> &'a str {
        match (set.get(name), keys::find(name)) {
            (Some(value), _) => value,
            (None, Some(key)) => self.default_of(key).0,
            (None, None) => "",
        }
    }

    /// A number config. All values were checked when they were set, and so were the defaults; should a newer
    /// version's state hold one that this version cannot read, it counts as unlimited.
    fn number(&self, set: &BTreeMap<String, String>, name: &str) -> i64 {
        self.text(set, name).parse().unwrap_or(i64::MAX)
    }

    /// What the data path acts on.
    #[must_use]
    pub fn typed(&self, set: BTreeMap<String, String>) -> TopicConfig {
        let max_message_bytes = usize::try_from(self.number(&set, "max.message.bytes")).unwrap_or(0);
        let append_time = self.text(&set, "message.timestamp.type") == "LogAppendTime";
        TopicConfig {
            max_message_bytes: max_message_bytes.min(self.frame_bytes_max),
            timestamp_type: if append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            timestamp_before_max_ms: self.number(&set, "message.timestamp.before.max.ms"),
            timestamp_after_max_ms: self.number(&set, "message.timestamp.after.max.ms"),
            fetch_compression: self.fetch_compression(&set),
            compacted: self.has_policy(&set, "compact"),
            set,
        }
    }

    fn fetch_compression(&self, set: &BTreeMap<String, String>) -> Compression {
        let (codec, level) = match self.text(set, "compression.type") {
            "gzip" => (Codec::Gzip, "compression.gzip.level"),
            "snappy" => return Codec::Snappy.into(),
            "lz4" => (Codec::Lz4, "compression.lz4.level"),
            "zstd" => (Codec::Zstd, "compression.zstd.level"),
            _ => return Compression::NONE,
        };
        Compression { codec, level: self.text(set, level).parse().ok() }
    }

    fn has_policy(&self, set: &BTreeMap<String, String>, policy: &str) -> bool {
        value::words(self.text(set, "cleanup.policy")).any(|word| word == policy)
    }

    /// What the store acts on. Every setting is given, so that what DescribeConfigs shows is what is in force.
    #[must_use]
    pub fn settings(&self, set: &BTreeMap<String, String>) -> TopicSettings {
        let millis = |name| u64::try_from(self.number(set, name)).map(Duration::from_millis).ok();
        let unless_unlimited = |name| self.number(set, name) != i64::MAX;
        TopicSettings {
            retention: Some(millis("retention.ms").filter(|_| unless_unlimited("retention.ms"))),
            retention_bytes: Some(u64::try_from(self.number(set, "retention.bytes")).ok()),
            segment_bytes: u64::try_from(self.number(set, "segment.bytes")).ok(),
            segment_age: millis("segment.ms"),
            // Compacted data is the newest value of each key, however old; and an empty policy removes nothing.
            keep_forever: !self.has_policy(set, "delete"),
            durability: None,
            flush_messages: u64::try_from(self.number(set, "flush.messages"))
                .ok()
                .filter(|_| unless_unlimited("flush.messages")),
            flush_every: millis("flush.ms").filter(|_| unless_unlimited("flush.ms")),
        }
    }

    /// Every topic config as DescribeConfigs shows it.
    #[must_use]
    pub fn entries(&self, set: &BTreeMap<String, String>) -> Vec<ConfigEntry> {
        TOPIC_KEYS.iter().map(|key| self.entry(key, set.get(key.name))).collect()
    }

    fn entry(&self, key: &ConfigKey, own: Option<&String>) -> ConfigEntry {
        let mut synonyms = self.defaults_as(key, key.broker);
        if let Some(value) = own {
            synonyms.insert(0, Synonym { name: key.name, value: value.clone(), source: Source::Topic });
        }
        let (default, source) = self.default_of(key);
        ConfigEntry {
            name: key.name,
            value: own.map_or(default, String::as_str).to_owned(),
            source: if own.is_some() { Source::Topic } else { source },
            read_only: false,
            kind: key.kind,
            synonyms,
            documentation: key.documentation(),
        }
    }

    /// The broker configs from which topics take their defaults, under their own names.
    #[must_use]
    pub fn broker_entries(&self) -> Vec<ConfigEntry> {
        let keys = TOPIC_KEYS.iter().filter(|key| !key.broker.is_empty());
        let entries = keys.map(|key| {
            let (value, source) = self.default_of(key);
            ConfigEntry {
                name: key.broker,
                value: value.to_owned(),
                source,
                read_only: true,
                kind: key.kind,
                synonyms: self.defaults_as(key, key.broker),
                documentation: format!("Default of the topic config {}. {}", key.name, key.documentation()),
            }
        });
        entries.collect()
    }

    fn defaults_as(&self, key: &ConfigKey, name: &'static str) -> Vec<Synonym> {
        if name.is_empty() {
            return Vec::new();
        }
        let server =
            self.defaults.get(key.name).map(|value| Synonym { name, value: value.clone(), source: Source::Server });
        let kafka = Synonym { name, value: key.default.to_owned(), source: Source::Default };
        server.into_iter().chain([kafka]).collect()
    }
}

/// The config of that name.
pub(super) fn known(name: &str) -> Result<&'static ConfigKey, ConfigError> {
    keys::find(name).ok_or_else(|| ConfigError::Unknown(clipped(name).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> ConfigRules {
        ConfigRules::new(&ServerConfig { topic_defaults: BTreeMap::new(), ..ServerConfig::default() }).unwrap()
    }

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        rules().check(pairs.iter().map(|&(name, value)| (name, Some(value)))).unwrap()
    }

    fn refused(pairs: &[(&str, Option<&str>)]) -> ConfigError {
        rules().check(pairs.iter().copied()).unwrap_err()
    }

    #[test]
    fn an_unknown_name_is_refused_and_not_repeated_at_length() {
        let name = "x".repeat(60_000);
        let text = refused(&[(&name, Some("1"))]).to_string();
        assert!(text.starts_with("Unknown topic config name: xxx") && text.len() < 120, "{text}");
    }

    #[test]
    fn one_bad_config_refuses_all() {
        assert!(matches!(refused(&[("retention.ms", Some("1")), ("segment.ms", Some("0"))]), ConfigError::Value(_)));
    }

    #[test]
    fn a_config_without_a_value_is_refused() {
        assert_eq!(refused(&[("retention.ms", None)]), ConfigError::Null("retention.ms"));
    }

    #[test]
    fn compaction_lags_must_not_cross() {
        let crossed = refused(&[("min.compaction.lag.ms", Some("10")), ("max.compaction.lag.ms", Some("9"))]);
        assert!(matches!(crossed, ConfigError::Conflict(_)));
    }

    #[test]
    fn max_message_bytes_ends_at_the_largest_request() {
        let limit = ServerConfig::default().limits.max_frame_bytes;
        assert!(rules().check([("max.message.bytes", Some(limit.to_string().as_str()))].into_iter()).is_ok());
        let above = (limit + 1).to_string();
        assert!(matches!(refused(&[("max.message.bytes", Some(&above))]), ConfigError::Value(_)));
    }

    #[test]
    fn an_operators_bad_default_is_refused() {
        let defaults = BTreeMap::from([("retention.ms".to_owned(), "soon".to_owned())]);
        assert!(ConfigRules::new(&ServerConfig { topic_defaults: defaults, ..ServerConfig::default() }).is_err());
    }

    #[test]
    fn the_defaults_are_kafkas_but_timestamps_in_the_future_are_taken() {
        let config = rules().typed(BTreeMap::new());
        assert_eq!(config.max_message_bytes, 1_048_588);
        assert_eq!(config.timestamp_type, TimestampType::CreateTime);
        assert_eq!((config.timestamp_before_max_ms, config.timestamp_after_max_ms), (i64::MAX, i64::MAX));
        assert_eq!(config.fetch_compression, Compression::NONE);
        assert!(!config.compacted);
    }

    #[test]
    fn what_is_set_reaches_the_data_path() {
        let pairs = [
            ("max.message.bytes", "2000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.before.max.ms", "5"),
            ("message.timestamp.after.max.ms", "6"),
            ("compression.type", "zstd"),
            ("cleanup.policy", "compact"),
        ];
        let config = rules().typed(set(&pairs));
        assert_eq!(config.max_message_bytes, 2_000);
        assert_eq!(config.timestamp_type, TimestampType::LogAppendTime);
        assert_eq!((config.timestamp_before_max_ms, config.timestamp_after_max_ms), (5, 6));
        assert_eq!(config.fetch_compression, Compression { codec: Codec::Zstd, level: Some(3) });
        assert!(config.compacted);
    }

    #[test]
    fn fetch_compresses_at_the_level_of_the_codec_in_force_and_heeds_no_other() {
        let levels =
            [("compression.gzip.level", "2"), ("compression.lz4.level", "12"), ("compression.zstd.level", "-7")];
        let of = |codec| {
            let pairs: Vec<_> = [("compression.type", codec)].into_iter().chain(levels).collect();
            rules().typed(set(&pairs)).fetch_compression
        };
        let expected = [("gzip", Codec::Gzip, 2), ("lz4", Codec::Lz4, 12), ("zstd", Codec::Zstd, -7)];
        for (name, codec, level) in expected {
            assert_eq!(of(name), Compression { codec, level: Some(level) });
        }
        assert_eq!(of("snappy"), Compression { codec: Codec::Snappy, level: None });
        assert_eq!(of("producer"), Compression::NONE);
    }

    #[test]
    fn an_operators_default_level_is_in_force_where_the_topic_has_none() {
        let defaults = BTreeMap::from([("compression.zstd.level".to_owned(), "9".to_owned())]);
        let rules = ConfigRules::new(&ServerConfig { topic_defaults: defaults, ..ServerConfig::default() }).unwrap();
        let level = |pairs: &[(&str, &str)]| rules.typed(set(pairs)).fetch_compression.level;
        assert_eq!(level(&[("compression.type", "zstd")]), Some(9));
        assert_eq!(level(&[("compression.type", "zstd"), ("compression.zstd.level", "1")]), Some(1));
    }

    #[test]
    fn the_store_gets_kafkas_defaults_in_its_own_terms() {
        let week = Duration::from_secs(7 * 24 * 3600);
        let expected = TopicSettings {
            retention: Some(Some(week)),
            retention_bytes: Some(None),
            segment_bytes: Some(1 << 30),
            segment_age: Some(week),
            keep_forever: false,
            durability: None,
            flush_messages: None,
            flush_every: None,
        };
        assert_eq!(rules().settings(&BTreeMap::new()), expected);
    }

    #[test]
    fn what_is_set_reaches_the_store() {
        let pairs = [
            ("retention.ms", "1000"),
            ("retention.bytes", "5000"),
            ("segment.bytes", "1048576"),
            ("segment.ms", "60000"),
            ("flush.messages", "1"),
            ("flush.ms", "100"),
        ];
        let settings = rules().settings(&set(&pairs));
        assert_eq!(settings.retention, Some(Some(Duration::from_secs(1))));
        assert_eq!(settings.retention_bytes, Some(Some(5_000)));
        assert_eq!(settings.segment_bytes, Some(1 << 20));
        assert_eq!(settings.segment_age, Some(Duration::from_secs(60)));
        assert_eq!(settings.flush_messages, Some(1));
        assert_eq!(settings.flush_every, Some(Duration::from_millis(100)));
    }

    #[test]
    fn retention_of_minus_one_is_for_ever() {
        assert_eq!(rules().settings(&set(&[("retention.ms", "-1")])).retention, Some(None));
    }

    #[test]
    fn compact_alone_is_never_expired_and_compact_with_delete_is() {
        let keeps = |policy| rules().settings(&set(&[("cleanup.policy", policy)])).keep_forever;
        assert!(keeps("compact"));
        assert!(keeps(""));
        assert!(!keeps("compact,delete"));
        assert!(!keeps("delete"));
    }

    #[test]
    fn an_entry_names_its_source_and_its_synonyms() {
        let defaults = BTreeMap::from([("retention.ms".to_owned(), "5000".to_owned())]);
        let rules = ConfigRules::new(&ServerConfig { topic_defaults: defaults, ..ServerConfig::default() }).unwrap();
        let own = set(&[("retention.ms", "9")]);
        let entry = |set| rules.entries(set).into_iter().find(|entry| entry.name == "retention.ms").unwrap();
        let with_own = entry(&own);
        assert_eq!((with_own.value.as_str(), with_own.source), ("9", Source::Topic));
        let names: Vec<_> = with_own.synonyms.iter().map(|synonym| (synonym.name, synonym.value.as_str())).collect();
        assert_eq!(names, [("retention.ms", "9"), ("log.retention.ms", "5000"), ("log.retention.ms", "604800000")]);
        assert_eq!(entry(&BTreeMap::new()).source, Source::Server);
    }
}
