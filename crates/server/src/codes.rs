//! The one map from our errors to Kafka error codes.

use milena_groups::GroupError;
use milena_records::Refusal;
use milena_store::StoreError;
use milena_wire::kafka_protocol::ResponseError;

use crate::handlers::admin::AdminError;
use crate::produce::{AppendError, IdError};
use crate::topics::TopicError;

/// Kafka code of a store error. Only retriable codes for what a retry can fix.
#[must_use]
pub fn of_store(error: &StoreError) -> ResponseError {
    match error {
        StoreError::NotFound { .. } => ResponseError::UnknownTopicOrPartition,
        StoreError::Exists { .. } => ResponseError::TopicAlreadyExists,
        StoreError::OutOfRange { .. } => ResponseError::OffsetOutOfRange,
        StoreError::InDoubt { .. } => ResponseError::RequestTimedOut,
        StoreError::Refused { .. } => ResponseError::MessageTooLarge,
        StoreError::Full { .. } | StoreError::Broken { .. } => ResponseError::KafkaStorageError,
        StoreError::Unsupported { .. } => ResponseError::UnsupportedVersion,
        // The client looks the leader up again and sends the request once more.
        StoreError::Busy { .. } | StoreError::Closed => ResponseError::NotLeaderOrFollower,
        _ => ResponseError::UnknownServerError,
    }
}

/// Kafka code of a refused batch (`record-mapping` table).
#[must_use]
pub fn of_refusal(refusal: &Refusal) -> ResponseError {
    match refusal {
        Refusal::InvalidRecord { .. } | Refusal::KeyMissing { .. } => ResponseError::InvalidRecord,
        Refusal::Corrupt => ResponseError::CorruptMessage,
        Refusal::TooLarge { .. } => ResponseError::MessageTooLarge,
        Refusal::Unsupported { .. } => ResponseError::UnsupportedVersion,
        Refusal::UnsupportedCompression => ResponseError::UnsupportedCompressionType,
        Refusal::BudgetSpent => ResponseError::NotLeaderOrFollower,
        Refusal::InvalidTimestamp { .. } => ResponseError::InvalidTimestamp,
        _ => ResponseError::UnknownServerError,
    }
}

/// Kafka code of a topic that was not created, changed or deleted.
#[must_use]
pub fn of_topic(error: &TopicError) -> ResponseError {
    match error {
        TopicError::Name(_) | TopicError::Internal => ResponseError::InvalidTopicException,
        TopicError::Exists => ResponseError::TopicAlreadyExists,
        TopicError::NotFound => ResponseError::UnknownTopicOrPartition,
        TopicError::Partitions { .. } | TopicError::NotMore { .. } => ResponseError::InvalidPartitions,
        TopicError::Config(_) => ResponseError::InvalidConfig,
        // Admin clients look the controller up and send the request again after this one; they would take the code
        // that producers get for the same trouble as final.
        TopicError::Store(StoreError::Busy { .. } | StoreError::Closed) => ResponseError::NotController,
        // A bound of the store, for instance on all partitions together; the text says which.
        TopicError::Store(StoreError::Refused { .. }) => ResponseError::PolicyViolation,
        TopicError::Store(error) => of_store(error),
    }
}

/// Kafka code of a topic that Metadata was asked for and that could not be created on the way. Whatever a retry can
/// fix is "no leader yet", upon which every client asks again.
#[must_use]
pub fn of_auto_creation(error: &TopicError) -> ResponseError {
    match error {
        TopicError::Exists | TopicError::Store(_) => ResponseError::LeaderNotAvailable,
        other => of_topic(other),
    }
}

/// Kafka code of an item of an admin request that is refused.
#[must_use]
pub fn of_admin(error: &AdminError) -> ResponseError {
    match error {
        AdminError::Topic(error) => of_topic(error),
        AdminError::Request(_) => ResponseError::InvalidRequest,
        AdminError::Assignment(_) => ResponseError::InvalidReplicaAssignment,
        AdminError::NoReassignment => ResponseError::NoReassignmentInProgress,
        AdminError::ReplicationFactor(_) => ResponseError::InvalidReplicationFactor,
        AdminError::UnknownId => ResponseError::UnknownTopicId,
        AdminError::TooMuch(_) => ResponseError::PolicyViolation,
        AdminError::TimedOut => ResponseError::RequestTimedOut,
    }
}

/// Kafka code of a batch that was not stored, or is not known to be.
#[must_use]
pub fn of_append(error: &AppendError) -> ResponseError {
    match error {
        AppendError::Store(error) => of_store(error),
        AppendError::OutOfSequence => ResponseError::OutOfOrderSequenceNumber,
        AppendError::OldEpoch => ResponseError::InvalidProducerEpoch,
        AppendError::TimedOut => ResponseError::RequestTimedOut,
    }
}

/// Kafka code of a producer id that was not given out.
#[must_use]
pub fn of_producer_id(error: &IdError) -> ResponseError {
    match error {
        IdError::Spent { .. } => ResponseError::UnknownServerError,
        // Of the codes that producers retry here, the one that does not send them to look for another coordinator.
        IdError::Store(_) => ResponseError::CoordinatorLoadInProgress,
    }
}

/// Kafka code of what a consumer group refuses. What decides on each is what clients do when they hear it.
#[must_use]
pub fn of_group(error: &GroupError) -> ResponseError {
    match error {
        GroupError::InvalidGroupId => ResponseError::InvalidGroupId,
        GroupError::NotCoordinator => ResponseError::NotCoordinator,
        GroupError::UnknownMember => ResponseError::UnknownMemberId,
        GroupError::IllegalGeneration => ResponseError::IllegalGeneration,
        GroupError::RebalanceInProgress => ResponseError::RebalanceInProgress,
        GroupError::FencedInstance => ResponseError::FencedInstanceId,
        GroupError::MemberIdRequired => ResponseError::MemberIdRequired,
        GroupError::InconsistentProtocol => ResponseError::InconsistentGroupProtocol,
        GroupError::InvalidSessionTimeout { .. } => ResponseError::InvalidSessionTimeout,
        // The client's application hears of each of them and can only end. This one says where to look: the request is in
        // order, the group or the server has no room for it.
        GroupError::GroupFull { .. }
        | GroupError::TooManyGroups { .. }
        | GroupError::TooManyMembers { .. }
        | GroupError::GroupTooLarge { .. }
        | GroupError::MembersTooLarge { .. } => ResponseError::GroupMaxSizeReached,
        GroupError::TooManyProtocols { .. }
        | GroupError::MemberTooLarge { .. }
        | GroupError::AssignmentTooLarge { .. } => ResponseError::InvalidRequest,
        GroupError::GroupIdNotFound => ResponseError::GroupIdNotFound,
        GroupError::NonEmptyGroup => ResponseError::NonEmptyGroup,
        GroupError::SubscribedToTopic => ResponseError::GroupSubscribedToTopic,
        GroupError::UnknownTopicOrPartition => ResponseError::UnknownTopicOrPartition,
        GroupError::OffsetMetadataTooLarge { .. } => ResponseError::OffsetMetadataTooLarge,
        GroupError::OffsetOutOfRange => ResponseError::OffsetOutOfRange,
        GroupError::OffsetMismatch { .. } => ResponseError::InvalidUpdateVersion,
        GroupError::ConditionUnsupported => ResponseError::UnsupportedVersion,
        // It was logged, and nothing that a client does would change it.
        GroupError::OffsetRefused => ResponseError::UnknownServerError,
        GroupError::CommitTooLarge { .. } | GroupError::TooManyOffsets { .. } => ResponseError::InvalidCommitOffsetSize,
        // Every client asks again at the same coordinator.
        GroupError::Loading | GroupError::TooManyInFlight { .. } | GroupError::StoreFailed => {
            ResponseError::CoordinatorLoadInProgress
        }
        _ => ResponseError::UnknownServerError,
    }
}

/// Kafka code of one result of a consumer group, 0 for success.
#[must_use]
pub fn of_group_result(result: &Result<(), GroupError>) -> i16 {
    result.as_ref().map_or_else(|error| of_group(error).code(), |()| 0)
}

#[cfg(test)]
mod tests {
    use milena_store::Bounds;

    use super::*;

    /// Every error of a store, with its code for producers and consumers, for admin clients, and for a topic that
    /// Metadata creates on the way.
    fn store_errors() -> Vec<(StoreError, [i16; 3])> {
        let text = || "t".to_owned();
        vec![
            (StoreError::NotFound { what: text() }, [3, 3, 5]),
            (StoreError::Exists { what: text() }, [36, 36, 5]),
            (StoreError::OutOfRange { bounds: Bounds { start: 0, end: 1 } }, [1, 1, 5]),
            (StoreError::Busy { reason: text() }, [6, 41, 5]),
            (StoreError::Full { context: text() }, [56, 56, 5]),
            (StoreError::InDoubt { reason: text() }, [7, 7, 5]),
            (StoreError::Refused { what: "t", actual: 2, limit: 1 }, [10, 44, 5]),
            (StoreError::Broken { context: text() }, [56, 56, 5]),
            (StoreError::Unsupported { what: "t" }, [35, 35, 5]),
            (StoreError::Closed, [6, 41, 5]),
        ]
    }

    #[test]
    fn every_error_of_a_store_has_its_code() {
        for (error, [data, admin, creation]) in store_errors() {
            assert_eq!(of_store(&error).code(), data, "{error:?}");
            assert_eq!(of_append(&AppendError::Store(error.clone())).code(), data, "{error:?}");
            let topic = TopicError::Store(error);
            assert_eq!((of_topic(&topic).code(), of_auto_creation(&topic).code()), (admin, creation), "{topic:?}");
            assert_eq!(of_admin(&AdminError::Topic(topic)).code(), admin);
        }
    }

    #[test]
    fn what_can_pass_by_itself_is_answered_with_codes_that_clients_retry() {
        for (error, _) in store_errors() {
            let passes = matches!(
                error,
                StoreError::Busy { .. } | StoreError::Full { .. } | StoreError::InDoubt { .. } | StoreError::Closed
            );
            if passes {
                assert!(of_store(&error).is_retriable(), "{error:?}");
                assert!(of_producer_id(&IdError::Store(error.clone())).is_retriable(), "{error:?}");
                let topic = TopicError::Store(error);
                assert!(of_topic(&topic).is_retriable() && of_auto_creation(&topic).is_retriable(), "{topic:?}");
            }
        }
    }

    #[test]
    fn every_refused_batch_has_its_code() {
        let refusals = [
            (Refusal::InvalidRecord { reason: "r", index: None }, 87),
            (Refusal::KeyMissing { indexes: vec![0] }, 87),
            (Refusal::InvalidTimestamp { reason: "r", indexes: vec![0] }, 32),
            (Refusal::Corrupt, 2),
            (Refusal::UnsupportedCompression, 76),
            (Refusal::BudgetSpent, 6),
        ];
        for (refusal, code) in refusals {
            assert_eq!(of_refusal(&refusal).code(), code, "{refusal:?}");
        }
        assert_eq!(of_append(&AppendError::OutOfSequence).code(), 45);
        assert_eq!(of_append(&AppendError::OldEpoch).code(), 47);
        assert_eq!(of_append(&AppendError::TimedOut).code(), 7);
        assert_eq!(of_producer_id(&IdError::Spent { instance: 1 }).code(), -1);
    }
}
