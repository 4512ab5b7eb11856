//! What a user may want to hear about a partition.

use std::ops::Range;

use crate::{CommitFailure, Lane, NotCounted};

/// Something that happened to one partition in one assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Committed offset and log are known, records will come.
    Assigned {
        /// The first offset that is not known to be finished.
        floor: i64,
        /// The end of the log at that moment.
        end: i64,
    },
    /// The lag is above the threshold: two lanes run.
    Forked {
        /// As in `Assigned`.
        floor: i64,
        /// The first offset of the live lane.
        fork: i64,
        /// Offsets below the fork that are not known to be finished.
        gap: u64,
    },
    /// All below the fork is finished; one lane, plain order from here on.
    CaughtUp,
    /// The log's retention removed offsets that nobody had finished.
    GapExpired(Range<i64>),
    /// Stored progress was not used.
    ProgressReset(ResetReason),
    /// The broker did not keep the ranges: after a crash the live part will be delivered again.
    MetadataNotKept,
    /// Ranges did not fit into the metadata, or into a checkpoint in a topic, and were left out, the shortest first.
    RangesDropped {
        /// How many, in this commit or checkpoint.
        ranges: usize,
    },
    /// The metadata that the user wanted to have beside the offsets is longer than
    /// [`USER_METADATA_BYTES_MAX`](crate::USER_METADATA_BYTES_MAX); the one before stays.
    UserMetadataTooLong {
        /// Of what was wanted.
        bytes: usize,
    },
    /// Committed offset or log could not be read; it is tried again.
    ResolveFailed(ResolveFault),
    /// A lane cannot read, for instance since the right to read the topic is missing. The client goes on trying.
    ReadFailed {
        /// Which.
        lane: Lane,
        /// Kafka's, or librdkafka's own below zero.
        code: i16,
        /// What the client says of it.
        reason: String,
    },
    /// The partition is leaving: nothing more is delivered, acknowledgements are waited for.
    Draining,
    /// It left after its drain.
    Revoked,
    /// It was taken away and may have another owner: nothing is committed any more.
    Lost,
    /// A commit was refused, or failed too often.
    CommitFailed(CommitFailure),
    /// The checkpoint topic could not be written, several times in a row.
    CheckpointFailed,
}

/// Why stored progress was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetReason {
    /// The committed offset is behind the end of the log, so it belongs to another one; `auto.offset.reset` is followed.
    BeyondLog {
        /// The committed offset.
        committed: i64,
        /// The end of the log.
        end: i64,
    },
    /// The ranges in the metadata do not count; the committed offset does.
    Metadata(NotCounted),
    /// The checkpoint is newer than the committed offset (somebody moved that back), or of another log; the
    /// committed offset counts.
    Checkpoint,
}

/// Why a partition could not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveFault {
    /// The broker did not answer, or with an error.
    Backend,
    /// No offset is committed (or none that counts) and `auto.offset.reset` is `error`.
    NoOffset,
    /// The answer about the log's ends makes no sense.
    Watermarks {
        /// Its start.
        low: i64,
        /// Its end.
        high: i64,
    },
}
