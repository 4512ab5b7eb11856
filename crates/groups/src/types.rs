//! Numbers and names that the whole crate shares.

use std::sync::Arc;

/// A point of the monotonic clock, in milliseconds since whatever the caller chose. Sessions and rebalances run on
/// it, so that a wall clock that is set does not evict anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The moment `millis` milliseconds after the caller's zero.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the caller's zero.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// `millis` milliseconds later.
    #[must_use]
    pub const fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds since `earlier`; 0 when that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Wall time in milliseconds since the Unix epoch: what is stored with offsets and outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// `millis` milliseconds later.
    #[must_use]
    pub const fn plus(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// Both clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For sessions.
    pub moment: Moment,
    /// For commit times and expiry.
    pub wall: Timestamp,
}

/// The caller's name for a request whose answer may come later. Every token is answered once, unless
/// [`Coordinator::forget`](crate::Coordinator::forget) takes it back. Tokens of requests that wait must differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The number of a rebalance that completed; the first one is 1. Kafka calls it generation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i32);

impl Generation {
    /// What a client sends that is in no generation.
    pub const NONE: Self = Self(-1);
    /// Of a group whose first rebalance did not complete yet.
    pub const ZERO: Self = Self(0);

    /// The next one. It stops at the largest number instead of falling.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// True for what a client sends that is in no generation.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 < 0
    }
}

/// The name that the coordinator gave a member.
pub type MemberId = Arc<str>;

/// Bytes of a client that are relayed as they are.
pub type Blob = Arc<[u8]>;

/// One incarnation of a topic, in whatever 128 bits the engine tells incarnations apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u128);

impl TopicId {
    /// Of a topic that is not in the cluster: what foreign offsets are stored under. No engine gives this id.
    pub const FOREIGN: Self = Self(0);
}

/// States of a group, named as DescribeGroups and ListGroups name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// No members, though there may be offsets.
    Empty,
    /// Members are asked to join again.
    PreparingRebalance,
    /// The generation stands, its leader has not filed assignments yet.
    CompletingRebalance,
    /// Every member may have its assignment.
    Stable,
    /// There is no such group.
    Dead,
}

impl GroupState {
    /// Every one.
    pub(crate) const ALL: [Self; 5] =
        [Self::Empty, Self::PreparingRebalance, Self::CompletingRebalance, Self::Stable, Self::Dead];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}
