//! Error codes of Iggy's server, and the one map from store errors to them.

use milena_store::StoreError;

/// A code that says why a request was refused. The numbers are the server's; the arguments of its errors do not travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(u32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:expr;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($code);)*
            /// Every code that the door answers, with its name.
            pub const ALL: &[(&str, Self)] = &[$((stringify!($name), Self::$name)),*];
        }
    };
}

codes! {
    /// The body is not what the command asks for.
    INVALID_COMMAND = 3;
    /// The body is not the one that its checksum was made of, or a login is malformed.
    INVALID_FORMAT = 4;
    /// This server does not do that.
    FEATURE_UNAVAILABLE = 5;
    /// An identifier that cannot be.
    INVALID_IDENTIFIER = 6;
    /// The target of an append or of a consumer offset does not exist, or is not the caller's.
    RESOURCE_NOT_FOUND = 20;
    /// The connection has not logged in.
    UNAUTHENTICATED = 40;
    /// A token of that name exists.
    TOKEN_EXISTS = 51;
    /// There are as many tokens as there may be.
    TOKENS_LIMIT = 52;
    /// A token that would have expired before it was made.
    INVALID_TOKEN_EXPIRY = 56;
    /// It may have been done.
    NOT_COMMITTED = 57;
    /// It was not done; the same request may succeed later.
    NOT_ACCEPTED = 58;
    /// No such stream.
    STREAM_NOT_FOUND = 1009;
    /// A stream of that name exists.
    STREAM_EXISTS = 1012;
    /// A name that no stream can have.
    INVALID_STREAM_NAME = 1013;
    /// A size of a topic that is less than that of a segment.
    INVALID_TOPIC_SIZE = 1019;
    /// There are as many streams as there may be.
    TOO_MANY_STREAMS = 1020;
    /// No such topic.
    TOPIC_NOT_FOUND = 2010;
    /// A topic of that name exists.
    TOPIC_EXISTS = 2013;
    /// A name that no topic can have.
    INVALID_TOPIC_NAME = 2014;
    /// More partitions than one request may ask for.
    TOO_MANY_PARTITIONS = 2015;
    /// A number of partitions that cannot be.
    INVALID_PARTITIONS_COUNT = 2019;
    /// No such partition.
    PARTITION_NOT_FOUND = 3007;
    /// No offset is stored for that consumer.
    OFFSET_NOT_FOUND = 3021;
    /// There are as many consumer offsets as there may be.
    TOO_MANY_OFFSETS = 3024;
    /// The messages could not be written.
    CANNOT_APPEND = 4010;
    /// Stored messages could not be read.
    CANNOT_READ = 4011;
    /// More bytes of user headers than a message may have.
    TOO_BIG_HEADERS = 4017;
    /// More bytes of payload than a message may have.
    TOO_BIG_PAYLOAD = 4022;
    /// A message without payload.
    EMPTY_PAYLOAD = 4025;
    /// A message is not the one that its checksum was made of.
    INVALID_MESSAGE_CHECKSUM = 4027;
    /// Origin times of one batch lie too far apart.
    INVALID_TIMESTAMP_DELTA = 4038;
    /// A batch is not the one that its checksum was made of.
    INVALID_BATCH_CHECKSUM = 4039;
    /// An option that is not known.
    UNSUPPORTED_OPTION = 4041;
    /// An option with a value that cannot be.
    INVALID_OPTION = 4042;
    /// An offset outside of the partition.
    INVALID_OFFSET = 4100;
    /// No such consumer group.
    GROUP_NOT_FOUND = 5000;
    /// A consumer group of that name exists.
    GROUP_EXISTS = 5004;
    /// The connection is no member of the group.
    MEMBER_NOT_FOUND = 5006;
    /// There are as many groups, or members, as there may be.
    CANNOT_CREATE_GROUP = 5007;
}

impl Code {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// A code by number, for faults that tests plan.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Why a request gets no ordinary answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Refused before anything was done: the code travels in the header of the answer.
    Denied(Code),
    /// Refused by the state of things: the code travels in the result section, where the operation has one.
    Rejected(Code),
    /// It may have been done. No code says that without inviting a client to send it again, so the connection is closed:
    /// clients know that they do not know.
    InDoubt,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::Rejected(code)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match code_of(&error) {
            Some(code) => Self::Rejected(code),
            None => Self::InDoubt,
        }
    }
}

/// The code of a store error that no handler expects; `None` when nobody knows what happened.
fn code_of(error: &StoreError) -> Option<Code> {
    Some(match error {
        StoreError::InDoubt { .. } => return None,
        StoreError::NotFound { .. } => Code::RESOURCE_NOT_FOUND,
        StoreError::Exists { .. } => Code::TOPIC_EXISTS,
        StoreError::OutOfRange { .. } => Code::INVALID_OFFSET,
        StoreError::Unsupported { .. } => Code::FEATURE_UNAVAILABLE,
        StoreError::Refused { what, .. } if what.contains("partitions") => Code::INVALID_PARTITIONS_COUNT,
        StoreError::Refused { what, .. } if what.contains("payload") => Code::TOO_BIG_PAYLOAD,
        StoreError::Refused { what, .. } if what.contains("header") => Code::TOO_BIG_HEADERS,
        StoreError::Refused { .. } => Code::INVALID_COMMAND,
        StoreError::Full { .. } => Code::CANNOT_APPEND,
        StoreError::Broken { .. } => Code::CANNOT_READ,
        // A client tries again for as long as it thinks right, which is what a full disk or a restart needs.
        _ => Code::NOT_ACCEPTED,
    })
}

#[cfg(test)]
mod tests {
    use iggy_common::IggyError;
    use milena_store::Bounds;

    use super::*;

    #[test]
    fn every_code_is_the_one_of_the_error_that_it_is_named_after() {
        let id = iggy_common::Identifier::default;
        let text = String::new;
        let expected = [
            (Code::INVALID_COMMAND, IggyError::InvalidCommand),
            (Code::INVALID_FORMAT, IggyError::InvalidFormat),
            (Code::FEATURE_UNAVAILABLE, IggyError::FeatureUnavailable),
            (Code::INVALID_IDENTIFIER, IggyError::InvalidIdentifier),
            (Code::RESOURCE_NOT_FOUND, IggyError::ResourceNotFound(text())),
            (Code::UNAUTHENTICATED, IggyError::Unauthenticated),
            (Code::TOKEN_EXISTS, IggyError::PersonalAccessTokenAlreadyExists(text(), 0)),
            (Code::TOKENS_LIMIT, IggyError::PersonalAccessTokensLimitReached(0, 0)),
            (Code::INVALID_TOKEN_EXPIRY, IggyError::InvalidPersonalAccessTokenExpiry),
            (Code::NOT_COMMITTED, IggyError::TransientNotCommitted),
            (Code::NOT_ACCEPTED, IggyError::TransientNotAccepted),
            (Code::STREAM_NOT_FOUND, IggyError::StreamIdNotFound(id())),
            (Code::STREAM_EXISTS, IggyError::StreamNameAlreadyExists(text())),
            (Code::INVALID_STREAM_NAME, IggyError::InvalidStreamName),
            (Code::INVALID_TOPIC_SIZE, IggyError::InvalidTopicSize(Default::default(), Default::default())),
            (Code::TOO_MANY_STREAMS, IggyError::TooManyStreams),
            (Code::TOPIC_NOT_FOUND, IggyError::TopicIdNotFound(id(), id())),
            (Code::TOPIC_EXISTS, IggyError::TopicNameAlreadyExists(text(), id())),
            (Code::INVALID_TOPIC_NAME, IggyError::InvalidTopicName),
            (Code::TOO_MANY_PARTITIONS, IggyError::TooManyPartitions),
            (Code::INVALID_PARTITIONS_COUNT, IggyError::InvalidPartitionsCount),
            (Code::PARTITION_NOT_FOUND, IggyError::PartitionNotFound(0, id(), id())),
            (Code::OFFSET_NOT_FOUND, IggyError::ConsumerOffsetNotFound(0)),
            (Code::TOO_MANY_OFFSETS, IggyError::TooManyConsumerOffsets),
            (Code::CANNOT_APPEND, IggyError::CannotAppendMessage),
            (Code::CANNOT_READ, IggyError::CannotReadMessage),
            (Code::TOO_BIG_HEADERS, IggyError::TooBigUserHeaders),
            (Code::TOO_BIG_PAYLOAD, IggyError::TooBigMessagePayload),
            (Code::EMPTY_PAYLOAD, IggyError::InvalidMessagePayloadLength),
            (Code::INVALID_MESSAGE_CHECKSUM, IggyError::InvalidMessageChecksum(0, 0, 0)),
            (Code::INVALID_TIMESTAMP_DELTA, IggyError::InvalidMessageTimestampDelta(0)),
            (Code::INVALID_BATCH_CHECKSUM, IggyError::InvalidBatchChecksum(0, 0, 0)),
            (Code::UNSUPPORTED_OPTION, IggyError::UnsupportedOptionKey(text())),
            (Code::INVALID_OPTION, IggyError::InvalidOptionValue(text())),
            (Code::INVALID_OFFSET, IggyError::InvalidOffset(0)),
            (Code::GROUP_NOT_FOUND, IggyError::ConsumerGroupIdNotFound(id(), id())),
            (Code::GROUP_EXISTS, IggyError::ConsumerGroupNameAlreadyExists(text(), id())),
            (Code::MEMBER_NOT_FOUND, IggyError::ConsumerGroupMemberNotFound(0, id(), id())),
            (Code::CANNOT_CREATE_GROUP, IggyError::CannotCreateConsumerGroupInfo(0, id(), id())),
        ];
        assert_eq!(expected.len(), Code::ALL.len());
        for (code, error) in expected {
            assert_eq!(code.number(), error.as_code(), "{error}");
        }
    }

    #[test]
    fn only_an_unknown_outcome_closes_the_connection() {
        let text = String::new;
        let errors = [
            StoreError::NotFound { what: text() },
            StoreError::Exists { what: text() },
            StoreError::OutOfRange { bounds: Bounds { start: 0, end: 0 } },
            StoreError::Busy { reason: text() },
            StoreError::Full { context: text() },
            StoreError::Refused { what: "x", actual: 1, limit: 0 },
            StoreError::Broken { context: text() },
            StoreError::Unsupported { what: "x" },
            StoreError::Closed,
        ];
        for error in errors {
            assert!(matches!(Refusal::from(error.clone()), Refusal::Rejected(_)), "{error}");
        }
        assert_eq!(Refusal::from(StoreError::InDoubt { reason: text() }), Refusal::InDoubt);
    }
}
