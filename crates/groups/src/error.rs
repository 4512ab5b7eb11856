//! Why a request was refused: one variant per case. The server maps them to Kafka's codes; the code is named in each
//! variant's sentence, with what clients do on it where that decided the choice.

use std::fmt;

/// A refusal by the coordinator or the offset table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// The group id is empty where it may not be, or too long for the store. Kafka: 24.
    InvalidGroupId,
    /// Another node coordinates the group, or nobody is known to. Kafka: 16, upon which every client looks the coordinator
    /// up and tries again there.
    NotCoordinator,
    /// The table of offsets is still being loaded. Kafka: 14, upon which every client tries again at the same place.
    Loading,
    /// Nobody of that name is in the group. Kafka: 25, upon which clients join with an empty member id.
    UnknownMember,
    /// Another generation than the current one. Kafka: 22.
    IllegalGeneration,
    /// The group is between generations. Kafka: 27, upon which clients join again and keep their member id.
    RebalanceInProgress,
    /// Somebody else holds the `group.instance.id` now (KIP-345). Kafka: 82, fatal for the client that hears it.
    FencedInstance,
    /// Join again with the member id that comes with this answer (KIP-394). Kafka: 79.
    MemberIdRequired,
    /// No protocol that all members know, or of another type. Kafka: 23.
    InconsistentProtocol,
    /// The session timeout is outside the bounds, all in milliseconds. Kafka: 26.
    InvalidSessionTimeout {
        /// What was asked for.
        asked: i32,
        /// The smallest allowed.
        min: u32,
        /// The largest allowed.
        max: u32,
    },
    /// The group has as many members as it may have. Kafka: 81.
    GroupFull {
        /// The bound.
        max: usize,
    },
    /// There are as many groups as there may be. Kafka: 81, since it must not be retried without an operator.
    TooManyGroups {
        /// The bound.
        max: usize,
    },
    /// All groups together have as many members as they may have. Kafka: 81.
    TooManyMembers {
        /// The bound.
        max: usize,
    },
    /// The members of the group together are too many bytes for what its leader is told. Kafka: 81: the group is as
    /// large as it may be, nothing is wrong with the request.
    GroupTooLarge {
        /// What would have to be kept.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The members of all groups together are too many bytes. Kafka: 81.
    MembersTooLarge {
        /// The bound.
        max: usize,
    },
    /// A join lists too many protocols. Kafka: 42.
    TooManyProtocols {
        /// The bound.
        max: usize,
    },
    /// Protocols, metadata and names of a member are too many bytes to keep. Kafka: 42.
    MemberTooLarge {
        /// What would have to be kept.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The leader filed more bytes than are kept, for one member or for all. Kafka: 42.
    AssignmentTooLarge {
        /// What was filed.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// There is no such group. Kafka: 69.
    GroupIdNotFound,
    /// The group has members. Kafka: 68.
    NonEmptyGroup,
    /// A member subscribes to the topic whose offsets shall go. Kafka: 86.
    SubscribedToTopic,
    /// The topic or the partition does not exist. Kafka: 3.
    UnknownTopicOrPartition,
    /// The metadata string has more UTF-16 units than the bound. Kafka: 12.
    OffsetMetadataTooLarge {
        /// The bound.
        max: usize,
    },
    /// A negative offset that means nothing. Kafka: 1.
    OffsetOutOfRange,
    /// A conditional commit expected another offset than the stored one. Kafka: 95.
    OffsetMismatch {
        /// The offset now stored, -1 when there is none.
        stored: i64,
    },
    /// The request is too large for one record of the log. Kafka: 28.
    CommitTooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// There are as many stored offsets as there may be. Kafka: 28.
    TooManyOffsets {
        /// The bound.
        max: usize,
    },
    /// Too many requests wait for the store. Kafka: 14.
    TooManyInFlight {
        /// The bound.
        max: usize,
    },
    /// The store did not take the record; nothing of the request counts. Kafka: 14.
    StoreFailed,
    /// The store will not take this offset, now or later; it was logged why. Kafka: -1.
    OffsetRefused,
    /// A conditional commit where offsets are kept by something that cannot compare and store in one step. Kafka: 35.
    ConditionUnsupported,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidGroupId => f.write_str("the group id is empty or too long"),
            Self::NotCoordinator => f.write_str("the group is not coordinated here"),
            Self::Loading => f.write_str("committed offsets are still being loaded"),
            Self::UnknownMember => f.write_str("no such member in the group"),
            Self::IllegalGeneration => f.write_str("not the current generation of the group"),
            Self::RebalanceInProgress => f.write_str("the group is rebalancing"),
            Self::FencedInstance => f.write_str("another member holds the group instance id"),
            Self::MemberIdRequired => f.write_str("the member must join again with the id it was given"),
            Self::InconsistentProtocol => f.write_str("no protocol that all members of the group know"),
            Self::InvalidSessionTimeout { asked, min, max } => {
                write!(f, "a session timeout of {asked} ms is outside {min} to {max} ms")
            }
            Self::GroupFull { max } => write!(f, "the group has its {max} members"),
            Self::TooManyGroups { max } => write!(f, "there are {max} groups"),
            Self::TooManyMembers { max } => write!(f, "there are {max} members in all groups"),
            Self::GroupTooLarge { bytes, max } => write!(f, "members of {bytes} bytes, {max} are allowed in a group"),
            Self::MembersTooLarge { max } => write!(f, "the members of all groups are {max} bytes"),
            Self::TooManyProtocols { max } => write!(f, "a join may list {max} protocols"),
            Self::MemberTooLarge { bytes, max } => write!(f, "a member of {bytes} bytes, {max} are allowed"),
            Self::AssignmentTooLarge { bytes, max } => write!(f, "assignments of {bytes} bytes, {max} are allowed"),
            Self::GroupIdNotFound => f.write_str("no such group"),
            Self::NonEmptyGroup => f.write_str("the group has members"),
            Self::SubscribedToTopic => f.write_str("a member of the group subscribes to the topic"),
            Self::UnknownTopicOrPartition => f.write_str("no such topic or partition"),
            Self::OffsetMetadataTooLarge { max } => write!(f, "metadata of more than {max} UTF-16 units"),
            Self::OffsetOutOfRange => f.write_str("not an offset"),
            Self::OffsetMismatch { stored } => write!(f, "the stored offset is {stored}"),
            Self::CommitTooLarge { bytes, max } => write!(f, "a commit of {bytes} bytes, {max} are allowed"),
            Self::TooManyOffsets { max } => write!(f, "there are {max} stored offsets"),
            Self::TooManyInFlight { max } => write!(f, "{max} requests wait for the store"),
            Self::StoreFailed => f.write_str("the store did not take the record"),
            Self::OffsetRefused => f.write_str("the store refuses the offset"),
            Self::ConditionUnsupported => {
                f.write_str("conditional commits are not possible with this store of offsets")
            }
        }
    }
}

impl std::error::Error for GroupError {}
