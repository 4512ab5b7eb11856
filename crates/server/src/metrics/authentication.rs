//! Counters of authentication.

use milena_auth::Mechanism;

use super::Counter;

/// What became of clients that were not let in.
const REFUSED: &str = "refused";

/// How clients that tried to authenticate fared.
#[derive(Debug, Default)]
pub struct AuthenticationMetrics {
    accepted: [Counter; Mechanism::ALL.len()],
    refused: [Counter; Mechanism::ALL.len()],
    /// Clients that asked for a mechanism that their listener does not have.
    pub unsupported: Counter,
}

impl AuthenticationMetrics {
    /// Every counter, with the name of its mechanism and what became of the clients it counts.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &Counter)> {
        let names = || Mechanism::ALL.iter().map(|mechanism| mechanism.name());
        let accepted = names().zip(&self.accepted).map(|(name, counter)| (name, "accepted", counter));
        let refused = names().zip(&self.refused).map(|(name, counter)| (name, REFUSED, counter));
        accepted.chain(refused).chain([("other", REFUSED, &self.unsupported)])
    }

    /// The counter of a mechanism, of those that were let in or of those that were not.
    #[must_use]
    pub fn of(&self, mechanism: Mechanism, accepted: bool) -> Option<&Counter> {
        let counters = if accepted { &self.accepted } else { &self.refused };
        Mechanism::ALL.iter().zip(counters).find(|(known, _)| **known == mechanism).map(|(_, counter)| counter)
    }
}
