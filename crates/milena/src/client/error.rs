//! What can go wrong, as sentences that say what to do.

use std::io;
use std::time::Duration;

use milena_wire::WireError;
use milena_wire::kafka_protocol::ResponseError;

use super::Address;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The text is no list of addresses.
    #[error("`{text}` is not an address; write HOST:PORT, and several with commas between them")]
    NoAddress {
        /// The text, shortened.
        text: String,
    },
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}; is a server running, and is this its address?")]
    Connect {
        /// Where.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// There is a connection, and no TLS on it.
    #[error(
        "no TLS with {address}: {source}; does it speak TLS on this port, and is its authority among those that are trusted?"
    )]
    Tls {
        /// Where.
        address: Address,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The server does not let the client in.
    #[error("{name} is not let in: {reason}")]
    NotLetIn {
        /// Name of the user.
        name: String,
        /// Why, in the server's words.
        reason: String,
    },
    /// The address that the cluster tells its clients does not work from here.
    #[error(
        "the server tells its clients to connect to {address}, which does not work from here ({source}); set the \
         advertised address of its listener to one that clients can reach"
    )]
    Advertised {
        /// The advertised address.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// The connection ended.
    #[error(
        "{address} closed the connection while it was asked for {api}; its log says why (a port with TLS wants --tls, and one with \
         SASL wants --sasl-mechanism)"
    )]
    Closed {
        /// Whose connection.
        address: Address,
        /// What it was asked for.
        api: &'static str,
    },
    /// No answer came.
    #[error("{address} did not answer {api} within {} s; it may be overloaded, or a network is in the way", .after.as_secs())]
    TimedOut {
        /// Whose answer.
        address: Address,
        /// What it was asked for.
        api: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The answer is not Kafka's.
    #[error("what {address} answers is not Kafka's protocol ({reason}); is another service, or TLS, on this port?")]
    NotKafka {
        /// Whose answer.
        address: Address,
        /// What is wrong with it.
        reason: WireError,
    },
    /// The request cannot be put into the version that the server speaks.
    #[error("{address} is too old for this: {api} version {version} cannot say it ({reason})")]
    TooOld {
        /// Which server.
        address: Address,
        /// What it was to be asked for.
        api: &'static str,
        /// The version it speaks.
        version: i16,
        /// What cannot be said.
        reason: WireError,
    },
    /// No version of the request that both sides speak.
    #[error("{address} does not offer {api} in a version that is understood here")]
    Unsupported {
        /// Which server.
        address: Address,
        /// What it was to be asked for.
        api: &'static str,
    },
    /// There is no such topic.
    #[error("there is no topic `{topic}`; `milena topics list` shows what there is, `milena topics create` makes one")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// There is no such consumer group.
    #[error("there is no group `{group}`; `milena groups list` shows what there is")]
    NoGroup {
        /// Its id.
        group: String,
    },
    /// There is no such partition.
    #[error("topic `{topic}` has the partitions 0 to {}, and no partition {partition}", .count - 1)]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// How many there are.
        count: usize,
    },
    /// A partition is led by nobody.
    #[error("partition {partition} of `{topic}` has no leader now; try again when its broker is back")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The position is not in the log.
    #[error(
        "offset {offset} of `{topic}`-{partition} is not there: the log begins at {start} and ends before {end}; start \
         from the beginning, the end, or an offset in between"
    )]
    OutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// What was asked for.
        offset: i64,
        /// First offset that is there.
        start: i64,
        /// Offset of the next record to be written.
        end: i64,
    },
    /// The server said no.
    #[error("{what}: {}{}", meaning(*.code), said(.message.as_deref()))]
    Refused {
        /// What was asked for, as the begin of a sentence.
        what: String,
        /// Kafka's code.
        code: ResponseError,
        /// The server's own words.
        message: Option<String>,
    },
    /// A batch that was fetched is damaged.
    #[error(
        "the batch at offset {offset} of `{topic}`-{partition} cannot be read: {reason}; skip it by starting behind it"
    )]
    Damaged {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where.
        offset: i64,
        /// What is wrong.
        reason: milena_records::Refusal,
    },
    /// The answer lacks what was asked for.
    #[error("the answer of {address} to {api} lacks what was asked for; this is a fault of the server")]
    Incomplete {
        /// Whose answer.
        address: Address,
        /// What it was asked for.
        api: &'static str,
    },
}

impl ClientError {
    /// A refusal, with the server's own words if it has any.
    pub(crate) fn refused(what: impl Into<String>, code: ResponseError, message: Option<&str>) -> Self {
        let message = message.filter(|message| !message.is_empty()).map(|text| text.chars().take(500).collect());
        Self::Refused { what: what.into(), code, message }
    }

    /// True when the same request can succeed in a moment, perhaps at another broker.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Advertised { .. }
            | Self::Closed { .. }
            | Self::TimedOut { .. }
            | Self::NoLeader { .. } => true,
            Self::Refused { code, .. } => code.is_retriable(),
            _ => false,
        }
    }

    /// Kafka's code, where the server gave one.
    #[must_use]
    pub fn code(&self) -> Option<ResponseError> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NoTopic { .. } => Some(ResponseError::UnknownTopicOrPartition),
            Self::NoGroup { .. } => Some(ResponseError::GroupIdNotFound),
            Self::OutOfRange { .. } => Some(ResponseError::OffsetOutOfRange),
            _ => None,
        }
    }
}

fn said(message: Option<&str>) -> String {
    message.map(|message| format!(" (the server says: {message})")).unwrap_or_default()
}

/// What a code means to the person at the keyboard.
fn meaning(code: ResponseError) -> String {
    let sentence = match code {
        ResponseError::TopicAlreadyExists => "a topic of that name exists",
        ResponseError::UnknownTopicOrPartition | ResponseError::UnknownTopicId => {
            "there is no such topic or partition; `milena topics list` shows what there is"
        }
        ResponseError::InvalidTopicException => {
            "the name is not allowed; use letters, digits, `.`, `_` and `-`, at most 249 of them"
        }
        ResponseError::InvalidPartitions => "the number of partitions is not allowed",
        ResponseError::InvalidReplicationFactor => "the replication factor is not possible; leave it out",
        ResponseError::InvalidConfig => "a config is unknown, or its value is not allowed",
        ResponseError::PolicyViolation => "a policy of the server forbids it",
        ResponseError::TopicDeletionDisabled => "the server does not delete topics",
        ResponseError::MessageTooLarge | ResponseError::RecordListTooLarge => {
            "the batch is larger than the topic takes; send less at once, or raise its max.message.bytes"
        }
        ResponseError::InvalidRecord => "the topic does not take such a record; a compacted topic needs a key",
        ResponseError::InvalidTimestamp => "the time of a record is too far from the server's clock",
        ResponseError::UnsupportedCompressionType => "the server does not know this compression",
        ResponseError::OutOfOrderSequenceNumber
        | ResponseError::UnknownProducerId
        | ResponseError::InvalidProducerEpoch => {
            "the server has lost track of this producer; start again and look for records that are there already"
        }
        ResponseError::NotLeaderOrFollower | ResponseError::LeaderNotAvailable => {
            "the partition is moving to another broker; try again"
        }
        ResponseError::RequestTimedOut => {
            "the server could not do it in time, and may still do it; look before you try again"
        }
        ResponseError::KafkaStorageError => "the server cannot write to its disk; its log says why",
        ResponseError::UnknownMemberId | ResponseError::NonEmptyGroup => {
            "the group has members; stop its consumers first"
        }
        ResponseError::InvalidGroupId => "the group id is empty or too long",
        ResponseError::CoordinatorLoadInProgress
        | ResponseError::CoordinatorNotAvailable
        | ResponseError::NotCoordinator => "the coordinator of the group is starting or moving; try again",
        ResponseError::NotEnoughReplicas | ResponseError::NotEnoughReplicasAfterAppend => {
            "too few replicas are in sync; try again when the brokers are back"
        }
        ResponseError::TopicAuthorizationFailed
        | ResponseError::GroupAuthorizationFailed
        | ResponseError::ClusterAuthorizationFailed => "you are not allowed to",
        ResponseError::UnsupportedVersion => "the server does not do this",
        ResponseError::UnknownServerError => "the server failed; its log says why",
        other => return format!("the server answers {other:?}"),
    };
    sentence.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_tried_what_it_means_and_what_the_server_said() {
        let error =
            ClientError::refused("topic `a` was not created", ResponseError::InvalidPartitions, Some("at most 10"));
        let expected =
            "topic `a` was not created: the number of partitions is not allowed (the server says: at most 10)";
        assert_eq!(error.to_string(), expected);
        let silent = ClientError::refused("it failed", ResponseError::StaleBrokerEpoch, Some(""));
        assert_eq!(silent.to_string(), "it failed: the server answers StaleBrokerEpoch");
    }

    #[test]
    fn a_long_message_of_the_server_is_cut() {
        let error = ClientError::refused("x", ResponseError::InvalidConfig, Some(&"y".repeat(10_000)));
        assert!(error.to_string().len() < 700);
    }

    #[test]
    fn what_can_pass_by_itself_is_retriable() {
        assert!(ClientError::refused("x", ResponseError::NotLeaderOrFollower, None).is_retriable());
        assert!(!ClientError::refused("x", ResponseError::InvalidConfig, None).is_retriable());
        assert!(!ClientError::NoTopic { topic: "x".to_owned() }.is_retriable());
    }
}
