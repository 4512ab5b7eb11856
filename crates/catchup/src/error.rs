//! What can go wrong for the user of a consumer.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::{CommitFailure, TopicPartition};

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is missing or does not fit to the others.
    #[error("setting `{setting}`: {reason}")]
    Setting {
        /// Name of the setting, as librdkafka or the builder has it.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The client refused a call, or could not be made.
    #[error("Kafka client: {0}")]
    Client(#[from] KafkaError),
    /// The client has ended for good, for instance because another member has its `group.instance.id`.
    #[error("the Kafka client cannot go on: {0}")]
    Fatal(KafkaError),
    /// The broker will not let this consumer work as it is set up: a wrong setting, a missing right. The client goes on trying, so that
    /// the consumer goes on when the reason goes away.
    #[error("the broker refuses ({code}): {reason}")]
    Refused {
        /// Kafka's, or librdkafka's own below zero.
        code: i16,
        /// What the client says of it.
        reason: String,
    },
    /// The broker did not take a commit.
    #[error("the broker did not take a commit: {0:?}")]
    Commit(CommitFailure),
    /// This partition was taken away before the answer to a commit came: revoked with more to store than there was time for, or lost. What
    /// was acknowledged of it may not be stored, and comes again where it has its next owner then.
    #[error("the assignment of {0} ended before its commit was answered")]
    AssignmentOver(TopicPartition),
    /// A checkpoint could not be read from its topic, or not be written there.
    #[error("checkpoint: {0}")]
    Checkpoint(String),
    /// The thread of the consumer could not be started.
    #[error("no thread for the consumer: {0}")]
    Thread(String),
    /// The consumer is closed.
    #[error("the consumer is closed")]
    Closed,
}

/// The number of an error code, as Kafka's protocol or librdkafka (below zero) has it.
pub(crate) fn number(code: RDKafkaErrorCode) -> i16 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "codes are numbers of 16 bits on the wire, and librdkafka's own are small"
    )]
    let number = code as i32 as i16;
    number
}

/// Whether an error that belongs to no partition will come again however often the client tries, until somebody changes a setting or a
/// right: -169 (librdkafka's `_AUTHENTICATION`), 17 `INVALID_TOPIC_EXCEPTION`, 23 `INCONSISTENT_GROUP_PROTOCOL`, 24 `INVALID_GROUP_ID`,
/// 26 `INVALID_SESSION_TIMEOUT`, 29 to 31 (no right to the topic, the group, the cluster), 33 `UNSUPPORTED_SASL_MECHANISM`,
/// 35 `UNSUPPORTED_VERSION`, 54 `SECURITY_DISABLED`, 58 `SASL_AUTHENTICATION_FAILED`, 81 `GROUP_MAX_SIZE_REACHED`,
/// 112 `UNSUPPORTED_ASSIGNOR`. An unknown topic (3) is none of them: it may be created later.
pub(crate) fn refuses(code: i16) -> bool {
    matches!(code, -169 | 17 | 23 | 24 | 26 | 29..=31 | 33 | 35 | 54 | 58 | 81 | 112)
}
