//! The one map from the server's and the SDK's errors to ours.

use iggy_common::IggyError;
use milena_store::StoreError;

/// What was asked for: only a change can be in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Nothing changes, whatever becomes of it.
    Read,
    /// It may have been carried out although no reply came.
    Change,
}

/// What an error says of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The stream, topic or partition is not there.
    NotFound,
    /// What was to be created is there.
    Exists,
    /// Certainly not carried out; it may work later, or elsewhere.
    NotApplied,
    /// Nobody knows.
    Unknown,
    /// A limit was passed.
    Limit,
    /// The request is not one that this server takes.
    Unsupported,
    /// Files of the server failed: for a read that is damage, for a change nobody knows how far it came.
    Storage,
    /// Who we are, or what we may do.
    Identity,
}

/// The class of an error. Arguments do not travel over the wire, so only the variant counts.
///
/// What is named nowhere here is not expected in an answer to what this store asks, and counts as not known. So does
/// `InvalidFormat`: the SDK says so of a reply that it cannot read, among them that to a login which it made by itself on
/// its way to another node.
#[rustfmt::skip]
pub(crate) fn class(error: &IggyError) -> Class {
    use IggyError as E;
    match error {
        E::ResourceNotFound(_) | E::StreamIdNotFound(_) | E::StreamNameNotFound(_) | E::StreamDirectoryNotFound(_)
        | E::TopicIdNotFound(..) | E::TopicNameNotFound(..) | E::TopicDirectoryNotFound(_)
        | E::PartitionNotFound(..) | E::NoPartitions(..) | E::ConsumerGroupIdNotFound(..)
        | E::ConsumerGroupNameNotFound(..) | E::ConsumerOffsetNotFound(_) => Class::NotFound,

        E::StreamNameAlreadyExists(_) | E::TopicNameAlreadyExists(..) | E::ConsumerGroupNameAlreadyExists(..)
        | E::PersonalAccessTokenAlreadyExists(..) | E::UserAlreadyExists => Class::Exists,

        // The SDK raises these before a request is written, and the server before it takes one in.
        E::CannotEstablishConnection | E::NotConnected | E::ClientShutdown | E::TransientNotAccepted
        | E::TopicFull(..) | E::ShardNotFound(..) | E::AlreadyAuthenticated | E::InvalidSession(_)
        | E::InvalidServerAddress | E::InvalidTlsDomain | E::InvalidTlsCertificatePath | E::InvalidTlsCertificate
        | E::FailedToAddCertificate => Class::NotApplied,

        E::Unauthenticated | E::Unauthorized | E::InvalidCredentials | E::InvalidUsername | E::InvalidPassword
        | E::InvalidUserStatus | E::UserInactive | E::StaleClient | E::InvalidPersonalAccessToken
        | E::PersonalAccessTokenExpired(..) | E::PersonalAccessTokensLimitReached(..)
        | E::InvalidPersonalAccessTokenName | E::InvalidPersonalAccessTokenExpiry
        | E::AccessTokenMissing | E::InvalidAccessToken | E::IncompatibleProtocolVersion(..) => Class::Identity,

        E::TooManyPartitions | E::InvalidPartitionsCount | E::PartitionIdSpaceExhausted | E::TooManyStreams
        | E::TooManyTopics | E::TooBigUserHeaders | E::TooBigMessagePayload | E::TooManyMessages
        | E::InvalidMessageTimestampDelta(_) | E::OptionsBlockTooLarge(_) | E::InvalidTopicSize(..)
        | E::TooManyConsumerOffsets | E::CannotCreateConsumerGroupInfo(..) | E::InvalidSegmentSize(_) | E::EmptyMessagePayload
        | E::InvalidMessagePayloadLength => Class::Limit,

        E::InvalidCommand | E::FeatureUnavailable | E::InvalidIdentifier
        | E::UnsupportedOptionKey(_) | E::InvalidOptionValue(_) | E::InvalidStreamName | E::InvalidTopicName
        | E::InvalidStreamId | E::InvalidTopicId | E::InvalidReplicationFactor | E::InvalidHeaderKey
        | E::InvalidHeaderValue | E::InvalidHeaderKind(_) | E::InvalidKeyValueLength | E::InvalidMessagesCount
        | E::InvalidOffset(_) | E::InvalidReservedField(_) | E::NonZeroOffset(..) | E::NonZeroTimestamp(..)
        | E::InvalidBatchChecksum(..) | E::InvalidMessageChecksum(..) | E::InvalidSegmentsCount(_)
        | E::InvalidMessagesSize(..) | E::TooSmallMessage(..) => Class::Unsupported,

        E::CannotReadMessage | E::CannotReadMessagePayload | E::CannotReadTopics(_) | E::CannotReadStreams
        | E::CannotReadPartitions | E::CannotOpenPartitionLogFile | E::CannotPollTopic | E::SegmentNotFound
        | E::SegmentClosed(..) | E::CannotAppendMessage | E::CannotSaveMessagesToSegment | E::CannotSaveIndexToSegment
        | E::CannotSaveTimeIndexToSegment | E::CannotCreateSegmentLogFile(_) | E::CannotCreateSegmentIndexFile(_)
        | E::CannotCreateSegmentTimeIndexFile(_) | E::SegmentSizeMismatchAtOpen(..) | E::CannotReadFile
        | E::CannotReadFileMetadata | E::CannotSeekFile | E::CannotAppendToFile | E::CannotWriteToFile
        | E::CannotOverwriteFile | E::CannotDeleteFile | E::CannotSyncFile | E::CannotReadIndexOffset
        | E::CannotReadIndexPosition | E::CannotReadIndexTimestamp | E::CannotReadBatchBaseOffset
        | E::CannotReadBatchLength | E::CannotReadLastOffsetDelta | E::CannotReadMaxTimestamp
        | E::CannotReadBatchPayload | E::CannotReadMessageId | E::CannotReadMessageState
        | E::CannotReadMessageTimestamp | E::CannotReadHeadersLength | E::CannotReadHeadersPayload
        | E::CannotReadMessageLength | E::CannotReadMessageChecksum | E::IoError(_) => Class::Storage,

        _ => Class::Unknown,
    }
}

/// True when the connection that this came over cannot be trusted with another request.
pub(crate) fn breaks_connection(error: &IggyError) -> bool {
    use IggyError as E;
    match class(error) {
        Class::Identity => !matches!(error, E::Unauthorized),
        Class::NotApplied => !matches!(error, E::TransientNotAccepted | E::TopicFull(..) | E::ShardNotFound(..)),
        Class::Unknown => !matches!(error, E::TransientNotCommitted | E::RequestAlreadyApplied),
        _ => false,
    }
}

/// Our error for `error`, which was the answer to an operation of kind `op` on `what`.
pub(crate) fn store_error(op: Op, error: &IggyError, what: &str) -> StoreError {
    let said = || format!("the Iggy server or its SDK says of {what}: {error} (code {})", error.as_code());
    match (class(error), op) {
        (Class::NotFound, _) => StoreError::NotFound { what: what.to_owned() },
        (Class::Exists, _) => StoreError::Exists { what: what.to_owned() },
        (Class::NotApplied | Class::Identity, _) | (Class::Unknown, Op::Read) => StoreError::Busy { reason: said() },
        (Class::Unknown | Class::Storage, Op::Change) => StoreError::InDoubt { reason: said() },
        (Class::Storage, Op::Read) => StoreError::Broken { context: said() },
        // The server tells neither the size nor its limit.
        (Class::Limit, _) => StoreError::Refused { what: error.as_string(), actual: 1, limit: 0 },
        (Class::Unsupported, _) => StoreError::Unsupported { what: error.as_string() },
    }
}

#[cfg(test)]
mod tests;
