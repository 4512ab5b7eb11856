//! What goes into the machine and what comes out.

use super::CommitFailure;
use crate::event::Event;
use crate::lane::Lane;
use crate::{LogId, Progress};

/// Which assignment of a partition something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Which commit or checkpoint an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// What `auto.offset.reset` says: where to start when there is no committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reset {
    /// At the start of the log.
    Earliest,
    /// At its end.
    Latest,
    /// Nowhere: it is an error.
    Error,
}

/// What was read before a partition can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Committed offset and its metadata; `None` when none is committed.
    pub committed: Option<(i64, String)>,
    /// What the checkpoint topic has. Its `floor` is the last committed floor that its writer knew to be
    /// acknowledged.
    pub checkpoint: Option<Progress>,
    /// Which log this is.
    pub log: LogId,
    /// The first offset that the log still has.
    pub low: i64,
    /// The end of the log (one more than the last offset), as a reader of the lanes' isolation level sees it.
    pub high: i64,
    /// What to do without a committed offset.
    pub reset: Reset,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// All that is needed for the start.
    Resolved(Resolved),
    /// It could not be read.
    ResolveFailed,
    /// A reader has a record. Records of one lane must come in the order of the log and without omissions from where
    /// the lane's reader was told to begin; repetitions are recognized.
    Fetched {
        /// Whose reader.
        lane: Lane,
        /// Of the record.
        offset: i64,
        /// Key, value and headers.
        bytes: u64,
    },
    /// A reader has come to the end of the log, and everything below `next` was passed on before.
    End {
        /// Whose reader.
        lane: Lane,
        /// The offset that it would read next.
        next: i64,
    },
    /// The log begins at `low` now: what a lane has not read below it is gone.
    LogStart {
        /// The first offset that is still there.
        low: i64,
    },
    /// A queued record is about to be given to the application: no output means "do", [`Output::Drop`] means "don't".
    HandOut {
        /// Of the record.
        offset: i64,
    },
    /// The application is done with a record that was handed out.
    Ack {
        /// Of the record.
        offset: i64,
    },
    /// The application gives a record back, to get it again.
    Defer {
        /// Of the record.
        offset: i64,
    },
    /// What the user wants to have in the metadata, from the next commit on.
    UserMetadata(String),
    /// The interval is over, or the application wants a commit.
    CommitDue,
    /// The answer to [`Output::Commit`].
    Committed {
        /// Of the commit.
        id: CommitId,
        /// `Ok` when the broker took it.
        result: Result<(), CommitFailure>,
    },
    /// The answer to [`Output::ReadBack`].
    ReadBack {
        /// The committed offset.
        floor: i64,
        /// Its metadata.
        metadata: String,
    },
    /// The answer to [`Output::Save`] and [`Output::Clear`].
    Saved {
        /// Of the checkpoint.
        id: CommitId,
        /// Whether it is stored.
        ok: bool,
    },
    /// The partition is taken away in good order, or the consumer closes.
    Revoke,
    /// The drain has taken long enough: once, commit what is finished; once more, leave without waiting for the answer.
    DrainDeadline,
    /// The partition was lost: somebody else may own it already.
    Lost,
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AckOutcome {
    /// The record is finished, and the next commit says so.
    Counted,
    /// It was finished before.
    Duplicate,
    /// It belongs to an assignment that is over, or to a record that is not in the application's hand (it was
    /// deferred). Nothing changed.
    Stale,
}

/// Something to do. "The record" is the one of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Let the member read from here. It stays paused until [`Output::Resume`].
    Seek {
        /// First offset to read.
        offset: i64,
    },
    /// Let the backfill reader begin.
    StartReader {
        /// First offset to read.
        from: i64,
        /// Where it will end.
        fork: i64,
    },
    /// Let the backfill reader jump forward, over what is finished.
    SeekReader {
        /// Next offset to read.
        offset: i64,
    },
    /// The backfill reader is not needed any more.
    StopReader,
    /// Stop fetching in a lane.
    Pause(Lane),
    /// Fetch again.
    Resume(Lane),
    /// Put a record (the one of the input, one that was held or deferred) at the end of the queue to the application.
    /// With [`Order::Offset`](crate::Order::Offset) one queue must serve both lanes.
    Deliver {
        /// Its lane.
        lane: Lane,
        /// Of the record.
        offset: i64,
    },
    /// Keep the record until [`Output::Deliver`] names it.
    Hold,
    /// Forget the record, or do not hand it out.
    Drop,
    /// Forget all records of the partition that the application does not have: they will not be handed out.
    DropQueued,
    /// The answer to [`Input::Ack`], always the first output.
    Ack(AckOutcome),
    /// Commit. At most one is not answered at any time, but for `last`.
    Commit {
        /// For the answer.
        id: CommitId,
        /// The offset to commit.
        floor: i64,
        /// Its metadata.
        metadata: String,
        /// How often this was tried before without success: wait the longer the more.
        attempt: u32,
        /// The partition leaves with it: send it at once and wait for the answer.
        last: bool,
    },
    /// Read committed offset and metadata: does this broker keep metadata?
    ReadBack,
    /// Store a checkpoint.
    Save {
        /// For the answer.
        id: CommitId,
        /// What to store.
        checkpoint: Progress,
        /// As in `Commit`.
        attempt: u32,
    },
    /// Remove the checkpoint.
    Clear {
        /// For the answer.
        id: CommitId,
        /// As in `Commit`.
        attempt: u32,
    },
    /// Tell the user.
    Event(Event),
    /// The partition is done; forget it. Acknowledgements that still come are stale.
    Released,
    /// Read everything for the start again, after a while.
    RetryResolve {
        /// How often it failed so far: wait the longer the more.
        attempt: u32,
    },
}
