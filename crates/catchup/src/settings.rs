//! What a user chooses, with the defaults.

use std::time::Duration;

use crate::Lane;

/// Kafka's default bound on the metadata of a committed offset (`offset.metadata.max.bytes`), in bytes.
pub const METADATA_BYTES_MAX: usize = 4_096;

/// The most that a user's own part of the metadata may have, in bytes: a quarter of Kafka's bound, so that the ranges
/// keep the most of it.
pub const USER_METADATA_BYTES_MAX: usize = METADATA_BYTES_MAX / 4;

/// The most that the ranges of one partition may have in a checkpoint topic, in bytes of their written form: half of what a broker takes
/// by default (`max.message.bytes`). That is some hundred thousand ranges; above it the shortest are left out.
pub const CHECKPOINT_BYTES_MAX: usize = 512 << 10;

/// In which order records of one partition come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Two lanes side by side: new records at once, old ones in order beside them.
    #[default]
    LiveFirst,
    /// Strictly by offset: the old ones first; new ones are fetched meanwhile into a bounded buffer and follow.
    /// A record that the application defers comes later than its offset says; that is its own wish.
    Offset,
}

/// A distance between the committed offset and the end of the log, in offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lag(u64);

impl Lag {
    /// So many offsets.
    #[must_use]
    pub fn records(count: u64) -> Self {
        Self(count)
    }

    /// More than any log has: never fork.
    #[must_use]
    pub fn never() -> Self {
        Self(u64::MAX)
    }

    /// In offsets.
    #[must_use]
    pub fn offsets(self) -> u64 {
        self.0
    }
}

/// When progress is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Commit {
    /// In this interval, and when a partition leaves.
    Every(Duration),
    /// When the application says so, and when a partition leaves.
    Manual,
}

/// Where finished ranges ahead of the committed offset are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Checkpoint {
    /// In the metadata of the committed offset.
    #[default]
    Metadata,
    /// In a compacted topic of this name, for brokers that do not keep metadata. It is made if it is missing; see
    /// [`TopicStore`](crate::TopicStore). A write there is not refused when the group has gone on without this member, as a commit is:
    /// one that wakes up late can put an older checkpoint in place of a newer one. That costs duplicates. Only where an operator has
    /// moved the group back in between, and the committed offset passes the old checkpoint's base again, what is in it is not replayed.
    Topic(String),
}

/// How much of one lane of one partition may be fetched and not yet acknowledged. When either bound is reached, the
/// lane is paused until it is below three quarters of both. The last record is taken whole, so the bound in bytes can be
/// passed by less than that record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Records; 0 counts as 1.
    pub records: usize,
    /// Bytes of keys, values and headers; 0 counts as 1.
    pub bytes: u64,
}

/// All that the state machine of a partition needs to know of the user's wishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// See [`Order`].
    pub order: Order,
    /// A lag above this forks; at it or below, one lane runs from the committed offset.
    pub fork_when: Lag,
    /// See [`Commit`].
    pub commit: Commit,
    /// Commit early after so many acknowledgements in one partition; not with [`Commit::Manual`]. 0 counts as 1.
    pub commit_acks: u64,
    /// How long a partition that leaves waits for the application's acknowledgements.
    pub drain_deadline: Duration,
    /// Of [`Lane::Live`].
    pub live: Bound,
    /// Of [`Lane::Backfill`].
    pub backfill: Bound,
    /// Finished stretches of at least so many offsets are jumped over by the backfill's reader; shorter ones cost less
    /// to read and drop than a new fetch does. 0 counts as 1.
    pub jump_offsets: u64,
    /// See [`Checkpoint`].
    pub checkpoint: Checkpoint,
    /// The broker's bound on metadata (`offset.metadata.max.bytes`).
    pub metadata_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            order: Order::default(),
            fork_when: Lag::records(10_000),
            commit: Commit::Every(Duration::from_secs(5)),
            commit_acks: 50_000,
            drain_deadline: Duration::from_secs(10),
            live: Bound { records: 10_000, bytes: 64 << 20 },
            backfill: Bound { records: 1_000, bytes: 16 << 20 },
            jump_offsets: 1_024,
            checkpoint: Checkpoint::default(),
            metadata_bytes_max: METADATA_BYTES_MAX,
        }
    }
}

impl Settings {
    /// The bound of a lane.
    #[must_use]
    pub fn bound(&self, lane: Lane) -> Bound {
        match lane {
            Lane::Live => self.live,
            Lane::Backfill => self.backfill,
        }
    }
}
