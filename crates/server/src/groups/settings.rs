//! What an operator can set for consumer groups and their offsets.

use std::time::Duration;

use milena_groups::{GroupConfig, OffsetConfig};

use crate::config::{ConfigError, in_range};

/// Settings of consumer groups and committed offsets.
#[derive(Debug, Clone)]
pub struct GroupSettings {
    /// How long the first rebalance of an empty group waits for more members. Kafka's default.
    pub initial_rebalance_delay: Duration,
    /// Shortest session timeout that a member may ask for. Passed: 26. Half of it bounds the wait of an offset request,
    /// because the heartbeat behind it on its connection waits as long.
    pub session_timeout_min: Duration,
    /// Longest session timeout that a member may ask for. Passed: 26. Nothing expires for as long after a start.
    pub session_timeout_max: Duration,
    /// How long a member whose first join is unanswered may wait before it is forgotten.
    pub new_member_join_timeout: Duration,
    /// Members of one group. Passed: 81.
    pub group_max_size: usize,
    /// Groups with members, or that had some. Passed: 81.
    pub groups_max: usize,
    /// Members of all groups. Passed: 81.
    pub members_max: usize,
    /// Protocols that a member may list. Passed: 42.
    pub protocols_max: usize,
    /// Bytes of names and metadata kept of a member. Passed: 42.
    pub member_bytes_max: usize,
    /// Bytes of names and metadata kept of all members of a group: its leader is told them in one answer, and librdkafka
    /// takes none above 100,000,000 bytes. Passed: 81.
    pub group_metadata_bytes_max: usize,
    /// Bytes of names, metadata and assignments kept of the members of all groups. Passed: 81, by an assignment 42.
    pub members_bytes_max: usize,
    /// Bytes of the assignment of one member. Passed: 42.
    pub assignment_bytes_max: usize,
    /// How long offsets of a group without members are kept. Kafka's default.
    pub offsets_retention: Duration,
    /// How often expired offsets are looked for.
    pub offsets_check_interval: Duration,
    /// Whether offsets of topics and partitions that do not exist are stored.
    pub foreign_offsets: ForeignOffsets,
    /// UTF-16 units of the text that a client stores with an offset. Passed: 12 for that partition.
    pub offset_metadata_max: usize,
    /// Offsets of all groups. Passed: 28 for that partition.
    pub offsets_max: usize,
    /// Offset requests that wait for the store. Passed: 14.
    pub offsets_in_flight_max: usize,
    /// Bytes of records that wait for the store. Passed: 14.
    pub offsets_in_flight_bytes: usize,
    /// Bytes of records in the log of offsets after which a snapshot takes their place, which bounds the time that a
    /// start takes.
    pub offsets_snapshot_bytes: u64,
}

/// What becomes of offsets whose topic or partition is not in the cluster, as mirroring between clusters has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignOffsets {
    /// They are answered with 3, as Kafka does.
    Reject,
    /// They are stored, listed and expired like others.
    Allow,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_secs(3),
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(1_800),
            new_member_join_timeout: Duration::from_secs(300),
            group_max_size: 5_000,
            groups_max: 100_000,
            members_max: 200_000,
            protocols_max: 64,
            member_bytes_max: 1 << 20,
            group_metadata_bytes_max: 64 << 20,
            members_bytes_max: 1 << 30,
            assignment_bytes_max: 1 << 20,
            offsets_retention: Duration::from_secs(7 * 86_400),
            offsets_check_interval: Duration::from_secs(600),
            foreign_offsets: ForeignOffsets::Reject,
            offset_metadata_max: 4_096,
            offsets_max: 10_000_000,
            offsets_in_flight_max: 10_000,
            offsets_in_flight_bytes: 64 << 20,
            offsets_snapshot_bytes: 16 << 20,
        }
    }
}

impl GroupSettings {
    /// Checks what can be checked without the store.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (min, max) = (millis(self.session_timeout_min), millis(self.session_timeout_max));
        in_range("groups.session_timeout_max", max, 1, i32::MAX.unsigned_abs())?;
        in_range("groups.session_timeout_min", min, 1, max)?;
        let times = [
            ("groups.new_member_join_timeout", self.new_member_join_timeout),
            ("groups.offsets_check_interval", self.offsets_check_interval),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(ConfigError::Zero { name }),
            None => Ok(()),
        }
    }

    /// How long an offset request waits for the store before it is answered with a code that clients retry.
    #[must_use]
    pub fn offset_wait(&self) -> Duration {
        self.session_timeout_min / 2
    }

    pub(super) fn membership(&self) -> GroupConfig {
        GroupConfig {
            initial_rebalance_delay_ms: millis(self.initial_rebalance_delay),
            session_timeout_min_ms: millis(self.session_timeout_min),
            session_timeout_max_ms: millis(self.session_timeout_max),
            new_member_join_timeout_ms: millis(self.new_member_join_timeout),
            group_size_max: self.group_max_size,
            groups_max: self.groups_max,
            members_max: self.members_max,
            member_bytes_max: self.member_bytes_max,
            group_bytes_max: self.group_metadata_bytes_max,
            members_bytes_max: self.members_bytes_max,
            assignment_bytes_max: self.assignment_bytes_max,
            protocols_max: self.protocols_max,
            ..GroupConfig::default()
        }
    }

    pub(super) fn offsets(&self, record_bytes_max: usize) -> OffsetConfig {
        let defaults = OffsetConfig::default();
        OffsetConfig {
            retention_ms: i64::try_from(self.offsets_retention.as_millis()).unwrap_or(i64::MAX),
            restart_grace_ms: i64::from(millis(self.session_timeout_max)),
            foreign_offsets: self.foreign_offsets == ForeignOffsets::Allow,
            metadata_units_max: self.offset_metadata_max,
            record_bytes_max: record_bytes_max.min(defaults.record_bytes_max),
            offsets_max: self.offsets_max,
            in_flight_max: self.offsets_in_flight_max,
        }
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(GroupSettings::default().validate(), Ok(()));
    }

    #[test]
    fn a_shortest_session_above_the_longest_is_an_error() {
        let settings = GroupSettings { session_timeout_max: Duration::from_secs(5), ..GroupSettings::default() };
        let error = settings.validate().expect_err("6 s are more than 5 s");
        assert!(error.to_string().starts_with("groups.session_timeout_min is 6000"), "{error}");
    }
}
