//! What happened to groups, told for counters: nothing has to be done about an event, and it is fine to throw it away.

/// Something that happened to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// Members are asked to join again.
    RebalanceBegan(RebalanceCause),
    /// The leader's assignments are there, so many milliseconds after the members were first asked. A rebalance that
    /// is overtaken by another before that counts as one long wait.
    RebalanceEnded {
        /// The time it took.
        millis: u64,
    },
    /// A client became a member.
    MemberJoined,
    /// A static member took the place of its old self.
    MemberReturned,
    /// A member is gone.
    MemberGone(Departure),
    /// Offsets were let go because they were too old.
    OffsetsExpired {
        /// How many.
        count: u64,
    },
}

/// Why a group rebalances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceCause {
    /// Somebody joined.
    Joined,
    /// A member joined again with other topics or assignors.
    Subscription,
    /// The leader joined again with nothing new: it wants to assign anew, for instance because a topic grew.
    Leader,
    /// A member went.
    Gone(Departure),
}

/// Why a member is not in its group any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It said so, or an admin did.
    Left,
    /// It was silent for longer than its session.
    SessionEnded,
    /// It did not join again within the rebalance timeout.
    NotRejoined,
    /// It did not ask for its assignment within the rebalance timeout.
    NotSynced,
    /// Its connection was gone before it knew its member id.
    Disconnected,
    /// The group is coordinated elsewhere now, or its coordinator forgot all members and loads again.
    CoordinatorMoved,
}

impl RebalanceCause {
    /// All of them. Who does not join again in time is left behind by a rebalance and causes none; neither does the end of
    /// coordinating.
    pub const ALL: [Self; 7] = [
        Self::Joined,
        Self::Subscription,
        Self::Leader,
        Self::Gone(Departure::Left),
        Self::Gone(Departure::SessionEnded),
        Self::Gone(Departure::NotSynced),
        Self::Gone(Departure::Disconnected),
    ];

    /// A name for labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Subscription => "subscription",
            Self::Leader => "leader",
            Self::Gone(departure) => departure.name(),
        }
    }
}

impl Departure {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Left,
        Self::SessionEnded,
        Self::NotRejoined,
        Self::NotSynced,
        Self::Disconnected,
        Self::CoordinatorMoved,
    ];

    /// A name for labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::SessionEnded => "session_ended",
            Self::NotRejoined => "not_rejoined",
            Self::NotSynced => "not_synced",
            Self::Disconnected => "disconnected",
            Self::CoordinatorMoved => "coordinator_moved",
        }
    }
}

#[cfg(test)]
mod tests;
