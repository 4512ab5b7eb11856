//! The table of every key that holds one value.

use milena_server::config::Idempotence;
use milena_server::groups::OffsetStorage;

use super::groups::GROUPS;
use super::iggy::IGGY;
use super::iggy_door::IGGY_DOOR;
use super::kinds::{Kind, Setting};
use super::limits::LIMITS;
use super::metrics::METRICS;
use super::sasl::SASL;
use super::settings::{Format, Gateways, Level, MEMORY, Settings};

/// Where the configuration file is, when no flag says.
pub(crate) const CONFIG_VARIABLE: &str = "MILENA_CONFIG";
/// Where the client commands connect, when no flag says.
pub(crate) const BOOTSTRAP_VARIABLE: &str = "MILENA_BOOTSTRAP";
/// Whether, and with whom, the client commands speak TLS, when no flag says.
pub(crate) const TLS_VARIABLE: &str = "MILENA_TLS";
pub(crate) const TLS_CA_FILE_VARIABLE: &str = "MILENA_TLS_CA_FILE";
/// By which mechanism the client commands log in, when no flag says.
const SASL_MECHANISM_VARIABLE: &str = "MILENA_SASL_MECHANISM";
/// Variables that are no configuration of the server.
pub(super) const OTHER_VARIABLES: [&str; 5] =
    [CONFIG_VARIABLE, BOOTSTRAP_VARIABLE, TLS_VARIABLE, TLS_CA_FILE_VARIABLE, SASL_MECHANISM_VARIABLE];
/// What the name of every variable of ours begins with.
pub(super) const PREFIX: &str = "MILENA_";

/// Keys that hold a list or a table of the user's own names.
pub(super) const LISTENERS: &str = "listeners";
pub(super) const TOPIC_DEFAULTS: &str = "topic_defaults";
pub(super) const MAPPED_TOPICS: &str = "topic_mapping.topics";

/// One key.
pub(super) struct Key {
    /// Sections and name, with dots between.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// What it does, as one sentence.
    pub(super) help: &'static str,
    pub(super) get: fn(&Settings) -> Setting,
    /// `None` when the setting does not fit, which the ranges of the table exclude.
    pub(super) set: fn(&mut Settings, Setting) -> Option<()>,
}

impl Key {
    /// Name of its environment variable.
    pub(super) fn variable(&self) -> String {
        variable(self.path)
    }
}

/// Name of the environment variable of a key.
pub(super) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "_").to_ascii_uppercase())
}

/// The key of that path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// Numbers that travel in 31 bits.
pub(super) const WIRE_MAX: u64 = i32::MAX as u64;

/// Every key, sections together, in the order in which they are shown.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(IGGY).chain(IGGY_DOOR).chain(SASL).chain(GROUPS).chain(METRICS).chain(LIMITS)
}

const KEYS: &[Key] = &[
    Key {
        path: "data_dir",
        kind: Kind::Text { allowed: "a folder, or `memory://` to keep everything in memory", check: is_data_dir },
        help: "Folder of the store; `memory://` keeps everything in memory and forgets it at the end.",
        get: |settings| Setting::Text(settings.data_dir.clone()),
        set: |settings, value| text(value, &mut settings.data_dir),
    },
    Key {
        path: "durability",
        kind: Kind::Choice(Level::NAMES),
        help: "What an acknowledged record survives: `os` the death of the process; `interval` also that of the \
               machine, except for the last flush_interval or flush_bytes; `always` that too.",
        get: |settings| Setting::Text(settings.durability.name().to_owned()),
        set: |settings, value| chosen(value, Level::of, &mut settings.durability),
    },
    Key {
        path: "flush_interval",
        kind: Kind::Time { zero: false },
        help: "With durability `interval`: longest time that acknowledged records stay unflushed.",
        get: |settings| Setting::Time(settings.flush_interval),
        set: |settings, value| time(&value, &mut settings.flush_interval),
    },
    Key {
        path: "flush_bytes",
        kind: Kind::Size { min: 1, max: 1 << 40 },
        help: "With durability `interval`: most bytes of acknowledged records that stay unflushed.",
        get: |settings| Setting::Number(settings.flush_bytes),
        set: |settings, value| number(&value, &mut settings.flush_bytes),
    },
    Key {
        path: "segment_bytes",
        // As the topic config of the same meaning, which is a number of 31 bits.
        kind: Kind::Size { min: 1 << 20, max: WIRE_MAX },
        help: "Size of a segment file, where a topic does not say. Retention removes whole segments.",
        get: |settings| Setting::Number(settings.segment_bytes),
        set: |settings, value| number(&value, &mut settings.segment_bytes),
    },
    Key {
        path: "open_files_max",
        kind: Kind::Number { min: 16, max: 1 << 20 },
        help: "Most segment files that are kept open.",
        get: |settings| count(settings.open_files_max),
        set: |settings, value| number(&value, &mut settings.open_files_max),
    },
    Key {
        path: "instance_id",
        kind: Kind::Number { min: 0, max: u16::MAX as u64 },
        help: "Number of this server: its node id, and part of the producer ids it gives out. Two servers on one \
               store must never share it.",
        get: |settings| Setting::Number(settings.server.instance_id.into()),
        set: |settings, value| number(&value, &mut settings.server.instance_id),
    },
    Key {
        path: "idempotence",
        kind: Kind::Choice(&["dedup", "allocate"]),
        help: "`dedup` stores a retried batch of an idempotent producer once; `allocate` ignores sequence numbers.",
        get: |settings| Setting::Text(idempotence_name(settings.server.idempotence).to_owned()),
        set: |settings, value| chosen(value, idempotence, &mut settings.server.idempotence),
    },
    Key {
        path: "auto_create_topics",
        kind: Kind::Flag,
        help: "Create a topic when a client that allows it asks for one that is missing.",
        get: |settings| Setting::Flag(settings.server.auto_create_topics),
        set: |settings, value| flag(&value, &mut settings.server.auto_create_topics),
    },
    Key {
        path: "num_partitions",
        kind: Kind::Number { min: 1, max: WIRE_MAX },
        help: "Partitions of a topic whose creator does not say.",
        get: |settings| Setting::Number(settings.server.num_partitions.into()),
        set: |settings, value| number(&value, &mut settings.server.num_partitions),
    },
    Key {
        path: "max_partitions_per_topic",
        kind: Kind::Number { min: 1, max: WIRE_MAX },
        help: "Most partitions of one topic that a client may ask for.",
        get: |settings| Setting::Number(settings.server.max_partitions_per_topic.into()),
        set: |settings, value| number(&value, &mut settings.server.max_partitions_per_topic),
    },
    Key {
        path: "max_producers_per_partition",
        kind: Kind::Number { min: 1, max: 1 << 24 },
        help: "Idempotent producers remembered per partition; the least recently used go first.",
        get: |settings| count(settings.server.max_producers_per_partition),
        set: |settings, value| number(&value, &mut settings.server.max_producers_per_partition),
    },
    Key {
        path: "producer_id_expiration",
        kind: Kind::Time { zero: false },
        help: "Idle time after which an idempotent producer is forgotten.",
        get: |settings| Setting::Time(settings.server.producer_id_expiration),
        set: |settings, value| time(&value, &mut settings.server.producer_id_expiration),
    },
    Key {
        path: "show_internal_topics",
        kind: Kind::Flag,
        help: "Show Milena's own topics to clients.",
        get: |settings| Setting::Flag(settings.server.show_internal_topics),
        set: |settings, value| flag(&value, &mut settings.server.show_internal_topics),
    },
    Key {
        path: "offset_storage",
        kind: Kind::Choice(&["topic", "consumer-offsets", "auto"]),
        help: "Where committed offsets are kept: `topic` is a log in Milena's own stream; `consumer-offsets` are those of an \
               Iggy server, where it lets Kafka groups have them; `auto` is the latter where it works at the first start. \
               What was chosen then stays; `milena offsets migrate` moves them.",
        get: |settings| Setting::Text(storage_name(settings.server.offset_storage).to_owned()),
        set: |settings, value| chosen(value, storage, &mut settings.server.offset_storage),
    },
    Key {
        path: "topic_mapping.default_stream",
        kind: Kind::Text { allowed: "a stream name of 1 to 255 bytes, and not `__milena`", check: is_stream },
        help: "Stream that holds every topic without an override.",
        get: |settings| Setting::Text(settings.server.topic_mapping.default_stream.clone()),
        set: |settings, value| text(value, &mut settings.server.topic_mapping.default_stream),
    },
    Key {
        path: "cluster.gateways",
        kind: Kind::Choice(Gateways::NAMES),
        help: "Whether there may be other servers on the same store, which then agree on who coordinates groups: `one`, \
               `several`, or `auto`, which is `one` for a folder or memory of our own.",
        get: |settings| Setting::Text(settings.gateways.name().to_owned()),
        set: |settings, value| chosen(value, Gateways::of, &mut settings.gateways),
    },
    Key {
        path: "cluster.coordinates",
        kind: Kind::Flag,
        help: "Whether this one of several servers coordinates groups when no other does.",
        get: |settings| Setting::Flag(settings.cluster.coordinates),
        set: |settings, value| flag(&value, &mut settings.cluster.coordinates),
    },
    Key {
        path: "cluster.beat_interval",
        kind: Kind::Time { zero: false },
        help: "Time between two signs of life of one of several servers.",
        get: |settings| Setting::Time(settings.cluster.beat_interval),
        set: |settings, value| time(&value, &mut settings.cluster.beat_interval),
    },
    Key {
        path: "cluster.lease_time",
        kind: Kind::Time { zero: false },
        help: "Silence after which one of several servers is taken to be gone; the same for all of them, and at least \
               three times the beat_interval.",
        get: |settings| Setting::Time(settings.cluster.lease_time),
        set: |settings, value| time(&value, &mut settings.cluster.lease_time),
    },
    Key {
        path: "logging.level",
        kind: Kind::Text {
            allowed: "a level (`error`, `warn`, `info`, `debug`, `trace`), or directives like \
                      `info,milena_server=debug`",
            check: is_filter,
        },
        help: "What is logged to standard error.",
        get: |settings| Setting::Text(settings.log_level.clone()),
        set: |settings, value| text(value, &mut settings.log_level),
    },
    Key {
        path: "logging.format",
        kind: Kind::Choice(Format::NAMES),
        help: "Form of the log: `text` for people, `json` for machines (one object per line, and no banner).",
        get: |settings| Setting::Text(settings.log_format.name().to_owned()),
        set: |settings, value| chosen(value, Format::of, &mut settings.log_format),
    },
    Key {
        path: "logging.slow_request",
        kind: Kind::Time { zero: true },
        help: "A request that takes this long is logged, once per API and minute; `0s` is never. Time that a Fetch, \
               JoinGroup or SyncGroup is parked does not count.",
        get: |settings| Setting::Time(settings.server.slow_request),
        set: |settings, value| time(&value, &mut settings.server.slow_request),
    },
];

fn is_data_dir(text: &str) -> bool {
    !text.is_empty() && (text == MEMORY || !text.contains("://"))
}

fn is_stream(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text != milena_store::INTERNAL_STREAM
}

fn is_filter(text: &str) -> bool {
    !text.is_empty() && tracing_subscriber::EnvFilter::try_new(text).is_ok()
}

fn storage_name(storage: OffsetStorage) -> &'static str {
    match storage {
        OffsetStorage::Topic => "topic",
        OffsetStorage::ConsumerOffsets => "consumer-offsets",
        OffsetStorage::Auto => "auto",
    }
}

fn storage(name: &str) -> Option<OffsetStorage> {
    let all = [OffsetStorage::Topic, OffsetStorage::ConsumerOffsets, OffsetStorage::Auto];
    all.into_iter().find(|storage| storage_name(*storage) == name)
}

fn idempotence_name(mode: Idempotence) -> &'static str {
    match mode {
        Idempotence::Dedup => "dedup",
        Idempotence::Allocate => "allocate",
    }
}

fn idempotence(name: &str) -> Option<Idempotence> {
    [Idempotence::Dedup, Idempotence::Allocate].into_iter().find(|mode| idempotence_name(*mode) == name)
}

pub(super) fn count(number: usize) -> Setting {
    Setting::Number(u64::try_from(number).unwrap_or(u64::MAX))
}

pub(super) fn text(value: Setting, place: &mut String) -> Option<()> {
    let Setting::Text(text) = value else { return None };
    *place = text;
    Some(())
}

pub(super) fn chosen<T>(value: Setting, of: fn(&str) -> Option<T>, place: &mut T) -> Option<()> {
    let Setting::Text(name) = value else { return None };
    *place = of(&name)?;
    Some(())
}

pub(super) fn flag(value: &Setting, place: &mut bool) -> Option<()> {
    let Setting::Flag(flag) = value else { return None };
    *place = *flag;
    Some(())
}

pub(super) fn number<T: TryFrom<u64>>(value: &Setting, place: &mut T) -> Option<()> {
    let Setting::Number(number) = *value else { return None };
    *place = T::try_from(number).ok()?;
    Some(())
}

pub(super) fn time(value: &Setting, place: &mut std::time::Duration) -> Option<()> {
    let Setting::Time(time) = *value else { return None };
    *place = time;
    Some(())
}
