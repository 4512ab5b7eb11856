//! Every topic config of Kafka 4, with its default, its rule, and whether it has an effect here.

use super::value::Check;

/// Type of a value, as DescribeConfigs numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A 32-bit number.
    Int,
    /// A 64-bit number.
    Long,
    /// A number with a fraction.
    Double,
    /// Words between commas.
    List,
}

impl Kind {
    /// The number of the type in a DescribeConfigs answer (KIP-569).
    #[must_use]
    pub fn code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
        }
    }
}

/// Whether a config does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It does what its documentation says.
    Enforced,
    /// It is checked, kept and shown, and has no effect: tools set it on every topic and read it back.
    Kept,
}

/// One topic config.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// Name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Whether it does something.
    pub class: Class,
    /// Value where neither the topic nor the operator says; Kafka's unless the documentation says otherwise.
    pub default: &'static str,
    /// What values are valid.
    pub check: Check,
    /// Name of the broker config that holds the default in Kafka; empty when there is none.
    pub broker: &'static str,
    /// One sentence for the user.
    pub doc: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    class: Class,
    default: &'static str,
    check: Check,
    broker: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { name, kind, class, default, check, broker, doc }
}

const UNLIMITED: &str = "9223372036854775807";
const DAY: &str = "86400000";
const WEEK: &str = "604800000";

use Class::{Enforced, Kept};
use Kind::{Boolean, Double, Int, List, Long, String};

/// All topic configs, sorted by name.
#[rustfmt::skip]
pub const TOPIC_KEYS: &[ConfigKey] = &[
    key("cleanup.policy", List, Enforced, "delete", Check::SubsetOf(&["compact", "delete"]), "log.cleanup.policy",
        "What becomes of old data: 'delete' removes old segments; with 'compact' alone nothing is removed, and records need a key. Compaction itself is not done yet."),
    key("compression.gzip.level", Int, Enforced, "-1", Check::GzipLevel, "compression.gzip.level",
        "Level of gzip where compression.type is gzip: more work at each Fetch for fewer bytes. -1 is the codec's own."),
    key("compression.lz4.level", Int, Enforced, "9", Check::Between(1, 17), "compression.lz4.level",
        "Level of lz4 where compression.type is lz4. 9 is the fast compressor, as in Kafka; all others search longer the higher they are, those above 11 no longer than that."),
    key("compression.type", String, Enforced, "producer", Check::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), "compression.type",
        "Codec in which consumers get records. 'producer' and 'uncompressed' send them plain."),
    key("compression.zstd.level", Int, Enforced, "3", Check::Between(-131_072, 22), "compression.zstd.level",
        "Level of zstd where compression.type is zstd: more work at each Fetch for fewer bytes."),
    key("delete.retention.ms", Long, Kept, DAY, Check::AtLeast(0), "log.cleaner.delete.retention.ms",
        "How long a compacted topic keeps tombstones, in milliseconds."),
    key("errors.deadletterqueue.group.enable", Boolean, Kept, "false", Check::Any, "",
        "Whether share groups may write what they cannot deliver to this topic."),
    key("file.delete.delay.ms", Long, Kept, "60000", Check::AtLeast(0), "log.segment.delete.delay.ms",
        "How long a removed segment stays on disk, in milliseconds."),
    key("flush.messages", Long, Enforced, UNLIMITED, Check::AtLeast(1), "log.flush.interval.messages",
        "Messages after which data is flushed to the device, on top of the durability of the store."),
    key("flush.ms", Long, Enforced, UNLIMITED, Check::AtLeast(0), "log.flush.interval.ms",
        "Longest time in milliseconds that data stays unflushed, on top of the durability of the store."),
    key("follower.replication.throttled.replicas", List, Kept, "", Check::ThrottledReplicas, "",
        "Replicas whose replication is throttled on the follower's side. There is no replication to throttle."),
    key("index.interval.bytes", Int, Kept, "4096", Check::AtLeast(0), "log.index.interval.bytes",
        "Bytes between two entries of the offset index."),
    key("leader.replication.throttled.replicas", List, Kept, "", Check::ThrottledReplicas, "",
        "Replicas whose replication is throttled on the leader's side. There is no replication to throttle."),
    key("local.retention.bytes", Long, Kept, "-2", Check::AtLeast(-2), "log.local.retention.bytes",
        "Bytes kept locally where remote storage is on; -2 is retention.bytes."),
    key("local.retention.ms", Long, Kept, "-2", Check::AtLeast(-2), "log.local.retention.ms",
        "Time in milliseconds that data is kept locally where remote storage is on; -2 is retention.ms."),
    key("max.compaction.lag.ms", Long, Kept, UNLIMITED, Check::AtLeast(1), "log.cleaner.max.compaction.lag.ms",
        "Longest time in milliseconds that a message stays uncompacted."),
    key("max.decompressed.message.bytes", Int, Kept, "2147483639", Check::AtLeast(1), "max.decompressed.message.bytes",
        "Largest decompressed record in bytes."),
    key("max.message.bytes", Int, Enforced, "1048588", Check::AtLeast(0), "message.max.bytes",
        "Largest record batch that is taken, in bytes. It cannot exceed the largest request of the server."),
    key("message.timestamp.after.max.ms", Long, Enforced, UNLIMITED, Check::AtLeast(0), "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie in the future, in milliseconds. Unlimited by default, unlike Kafka's hour, which refuses replays."),
    key("message.timestamp.before.max.ms", Long, Enforced, UNLIMITED, Check::AtLeast(0), "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie in the past, in milliseconds."),
    key("message.timestamp.type", String, Enforced, "CreateTime", Check::OneOf(&["CreateTime", "LogAppendTime"]), "log.message.timestamp.type",
        "Whether consumers see the timestamp of the producer or that of the append."),
    key("min.cleanable.dirty.ratio", Double, Kept, "0.5", Check::Ratio, "log.cleaner.min.cleanable.ratio",
        "Share of uncompacted data above which a topic is compacted."),
    key("min.compaction.lag.ms", Long, Kept, "0", Check::AtLeast(0), "log.cleaner.min.compaction.lag.ms",
        "Shortest time in milliseconds that a message stays uncompacted."),
    key("min.insync.replicas", Int, Kept, "1", Check::AtLeast(1), "min.insync.replicas",
        "In-sync replicas that acks=all asks for. Replication is the engine's, and each partition shows one replica."),
    key("preallocate", Boolean, Kept, "false", Check::Any, "log.preallocate",
        "Whether the file of a new segment is preallocated."),
    key("remote.copy.lag.bytes", Long, Kept, "-1", Check::AtLeast(-1), "log.remote.copy.lag.bytes",
        "Newer bytes behind a segment after which it may be copied to remote storage; -1 is local.retention.bytes."),
    key("remote.copy.lag.ms", Long, Kept, "0", Check::AtLeast(-1), "log.remote.copy.lag.ms",
        "Age in milliseconds after which a segment may be copied to remote storage; -1 is local.retention.ms."),
    key("remote.log.copy.disable", Boolean, Kept, "false", Check::Any, "",
        "Whether data is no longer copied to remote storage."),
    key("remote.log.delete.on.disable", Boolean, Kept, "false", Check::Any, "",
        "Whether remote data is deleted when remote storage is switched off."),
    key("remote.storage.enable", Boolean, Kept, "false", Check::NotTrue("this server has no remote storage"), "",
        "Whether the topic uses remote storage. This server has none, so only 'false' is taken."),
    key("retention.bytes", Long, Enforced, "-1", Check::Any, "log.retention.bytes",
        "Bytes per partition above which the oldest segments are removed; negative is unlimited."),
    key("retention.ms", Long, Enforced, WEEK, Check::AtLeast(-1), "log.retention.ms",
        "Age in milliseconds, by append time, after which whole segments are removed; -1 is unlimited."),
    key("segment.bytes", Int, Enforced, "1073741824", Check::AtLeast(1_048_576), "log.segment.bytes",
        "Bytes after which a segment is sealed. Retention removes whole sealed segments."),
    key("segment.index.bytes", Int, Kept, "10485760", Check::AtLeast(4), "log.index.size.max.bytes",
        "Largest size of a segment's index in bytes."),
    key("segment.jitter.ms", Long, Kept, "0", Check::AtLeast(0), "log.roll.jitter.ms",
        "Random time by which a segment is sealed early, in milliseconds."),
    key("segment.ms", Long, Enforced, WEEK, Check::AtLeast(1), "log.roll.ms",
        "Age in milliseconds after which a segment is sealed even if it is not full."),
    key("unclean.leader.election.enable", Boolean, Kept, "false", Check::Any, "unclean.leader.election.enable",
        "Whether a replica that is not in sync may become leader."),
];

/// The config of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ConfigKey> {
    TOPIC_KEYS.binary_search_by(|key| key.name.cmp(name)).ok().and_then(|at| TOPIC_KEYS.get(at))
}

impl ConfigKey {
    /// The documentation that DescribeConfigs sends. A config without effect says so.
    #[must_use]
    pub fn documentation(&self) -> std::string::String {
        match self.class {
            Class::Enforced => self.doc.to_owned(),
            Class::Kept => format!("{} Kept and shown; it has no effect on this server.", self.doc),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_sorted_so_that_each_is_found() {
        for key in TOPIC_KEYS {
            assert_eq!(find(key.name).map(|found| found.name), Some(key.name));
        }
    }

    #[test]
    fn every_default_passes_its_own_check_and_is_written_as_it_is_shown() {
        for key in TOPIC_KEYS {
            assert_eq!(super::super::value::parse(key, key.default).as_deref(), Ok(key.default), "{}", key.name);
        }
    }

    #[test]
    fn a_name_that_kafka_4_does_not_know_is_not_found() {
        for name in ["", "nothing", "message.format.version", "Retention.ms", "retention.m", "retention.msx"] {
            assert!(find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_keys_that_kafka_4_4_added_are_taken() {
        for (name, value) in [
            ("errors.deadletterqueue.group.enable", "true"),
            ("max.decompressed.message.bytes", "1"),
            ("remote.copy.lag.bytes", "-1"),
            ("remote.copy.lag.ms", "-1"),
        ] {
            assert_eq!(super::super::value::parse(find(name).unwrap(), value).as_deref(), Ok(value));
        }
    }

    #[test]
    fn a_kept_config_says_that_it_has_no_effect() {
        let key = find("min.insync.replicas").unwrap();
        assert!(key.documentation().contains("no effect"), "{}", key.documentation());
        assert!(!find("retention.ms").unwrap().documentation().contains("no effect"));
    }
}
