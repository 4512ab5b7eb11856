//! Faults that tests switch on, to see that the simulation notices them. In a build without tests none can be on.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A static member's old self is not refused.
    NoFencing,
    /// Assignments of the generation before stay in place.
    StaleAssignments,
    /// A commit is answered before it is durable.
    EarlyAnswer,
    /// A follower's parked sync is forgotten when a new rebalance begins.
    ForgottenSync,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// True when a test switched that fault on in this thread.
#[cfg(test)]
pub(crate) fn on(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

#[cfg(not(test))]
pub(crate) const fn on(_: Mutant) -> bool {
    false
}

/// Runs with a fault switched on.
#[cfg(test)]
pub(crate) fn with<T>(mutant: Mutant, run: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutant));
    let result = run();
    ACTIVE.set(None);
    result
}
