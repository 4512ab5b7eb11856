//! Settings and bounds, with their defaults.

/// Deleted topics whose offsets are gone from memory and not yet from the log. One over: the caller finds them after the next
/// load, by the topics that exist.
pub(crate) const OWED_REMOVALS_MAX: usize = 10_000;

/// What an operator can set for group membership. Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// How long the first rebalance of an empty group waits for more members (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay_ms: u32,
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min_ms: u32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max_ms: u32,
    /// How long a member whose first join is unanswered may wait. It has no session yet, so without this bound
    /// clients that gave up and came back under another name would pile up in a long rebalance.
    pub new_member_join_timeout_ms: u32,
    /// Members per group (`group.max.size`), and ids given out that nobody has used yet. One over:
    /// [`GroupFull`](crate::GroupError::GroupFull).
    pub group_size_max: usize,
    /// Groups that are kept. One over: [`TooManyGroups`](crate::GroupError::TooManyGroups).
    pub groups_max: usize,
    /// Members of all groups. One over: [`TooManyMembers`](crate::GroupError::TooManyMembers).
    pub members_max: usize,
    /// Bytes kept of one member: names, protocols and metadata. One over:
    /// [`MemberTooLarge`](crate::GroupError::MemberTooLarge).
    pub member_bytes_max: usize,
    /// Bytes kept of all members of a group: what its leader is told in one answer. One over:
    /// [`GroupTooLarge`](crate::GroupError::GroupTooLarge).
    pub group_bytes_max: usize,
    /// Bytes kept of all members of all groups, assignments included. One over:
    /// [`MembersTooLarge`](crate::GroupError::MembersTooLarge), of an assignment
    /// [`AssignmentTooLarge`](crate::GroupError::AssignmentTooLarge).
    pub members_bytes_max: usize,
    /// Bytes of one member's assignment. One over: [`AssignmentTooLarge`](crate::GroupError::AssignmentTooLarge).
    pub assignment_bytes_max: usize,
    /// Protocols in one join. One over: [`TooManyProtocols`](crate::GroupError::TooManyProtocols).
    pub protocols_max: usize,
    /// Bytes of a group id. One over: [`InvalidGroupId`](crate::GroupError::InvalidGroupId).
    pub group_id_bytes_max: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 3_000,
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            new_member_join_timeout_ms: 300_000,
            // Kafka has no bound here; every member is copied to the leader, so a group is quadratic in its blobs.
            group_size_max: 5_000,
            groups_max: 100_000,
            members_max: 200_000,
            // Sticky assignors put what a member owns into its metadata: 10,000 partitions are some 100 KB.
            member_bytes_max: 1 << 20,
            // librdkafka takes no answer above 100,000,000 bytes (`receive.message.max.bytes`).
            group_bytes_max: 64 << 20,
            members_bytes_max: 1 << 30,
            assignment_bytes_max: 1 << 20,
            protocols_max: 64,
            // The wire's int16 length.
            group_id_bytes_max: 32_767,
        }
    }
}

/// What an operator can set for committed offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetConfig {
    /// How long offsets of a group without members are kept, in milliseconds (`offsets.retention.minutes`).
    pub retention_ms: i64,
    /// How long after a start nothing expires, in milliseconds: what the longest session may take, so that every
    /// member had the time to come back before its group counts as empty.
    pub restart_grace_ms: i64,
    /// True stores offsets of topics and partitions that are not in the cluster (`foreign_offsets = "allow"`).
    pub foreign_offsets: bool,
    /// UTF-16 units of a metadata string (`offset.metadata.max.bytes`; Kafka counts units, whatever its name says).
    /// One over: [`OffsetMetadataTooLarge`](crate::GroupError::OffsetMetadataTooLarge).
    pub metadata_units_max: usize,
    /// Bytes of one record of the log. One over: [`CommitTooLarge`](crate::GroupError::CommitTooLarge).
    pub record_bytes_max: usize,
    /// Offsets that are kept. One over: [`TooManyOffsets`](crate::GroupError::TooManyOffsets).
    pub offsets_max: usize,
    /// Requests that wait for the store. One over: [`TooManyInFlight`](crate::GroupError::TooManyInFlight).
    pub in_flight_max: usize,
}

impl Default for OffsetConfig {
    fn default() -> Self {
        Self {
            retention_ms: 10_080 * 60_000,
            restart_grace_ms: 1_800_000,
            foreign_offsets: false,
            metadata_units_max: 4_096,
            record_bytes_max: 8 << 20,
            offsets_max: 10_000_000,
            in_flight_max: 10_000,
        }
    }
}
