//! A connection to some node of a cluster, when it is not certain which of them answers.
//!
//! A node does not answer a login while nobody leads the cluster, and does not answer it later either: it is to be sent again.
//! So each node is given a short time, again and again, and longer only in the end: then they share what is left before the
//! deadline of the call that waits.

use std::time::{Duration, Instant};

use iggy_common::Credentials;
use milena_store::PartitionRef;

use crate::dialer::{DialError, Dialed, Dialer, Settle};
use crate::limits;
use crate::roster::Node;

/// What came of one attempt at each node.
struct Sweep {
    /// The last error, where none answered; `None` without nodes.
    outcome: Result<Dialed, Option<DialError>>,
    /// Nodes that did not answer in time.
    silent: Vec<Node>,
}

impl Dialer {
    /// A connection to one of the nodes; the last error, if there are any.
    pub(crate) async fn dial_nodes(
        &self,
        credentials: &Credentials,
        at: Option<&PartitionRef>,
        deadline: Instant,
    ) -> Result<Dialed, Option<DialError>> {
        let (started, whole) = (Instant::now(), self.config().connect_timeout);
        loop {
            let is_last = started.elapsed() >= whole || limits::NODE_GLANCE >= whole;
            let patience = if is_last { whole } else { limits::NODE_GLANCE };
            let sweep = self.dial_each(credentials, at, patience, deadline).await;
            match sweep.outcome {
                Err(Some(error)) if !is_last && !sweep.silent.is_empty() && !error.is_final() => {}
                outcome => {
                    // A node was silent while another one was not, or was so for the whole time.
                    if outcome.is_ok() || is_last {
                        sweep.silent.iter().for_each(|node| self.roster.unreachable(node, Instant::now()));
                    }
                    return outcome;
                }
            }
        }
    }

    /// One attempt at each node, until one answers.
    async fn dial_each(
        &self,
        credentials: &Credentials,
        at: Option<&PartitionRef>,
        patience: Duration,
        deadline: Instant,
    ) -> Sweep {
        let mut sweep = Sweep { outcome: Err(None), silent: Vec::new() };
        let candidates = self.roster.candidates(at, Instant::now());
        let count = candidates.len();
        for (turn, node) in candidates.into_iter().enumerate() {
            let patience = share(deadline.saturating_duration_since(Instant::now()), count - turn).min(patience);
            if patience.is_zero() {
                sweep.outcome = sweep.outcome.map_err(|last| last.or(Some(DialError::TooLate)));
                return sweep;
            }
            self.roster.attempts(&node, patience, Instant::now());
            match self.dial_one(&node, credentials, Settle::Stay, patience).await {
                Ok(client) => {
                    self.roster.reached(&node, Instant::now());
                    self.learn_roster(&client).await;
                    sweep.outcome = Ok(Dialed { client, node: Some(node) });
                    return sweep;
                }
                Err(error) if error.is_final() => {
                    sweep.outcome = Err(Some(error));
                    return sweep;
                }
                Err(error) => {
                    match error {
                        DialError::Late { .. } => sweep.silent.push(node),
                        _ => self.roster.unreachable(&node, Instant::now()),
                    }
                    sweep.outcome = Err(Some(error));
                }
            }
        }
        sweep
    }
}

/// The time of one attempt, where so many are still to be made: as long as a login takes, as far as there is time.
pub(crate) fn share(left: Duration, attempts: usize) -> Duration {
    (left / u32::try_from(attempts).unwrap_or(u32::MAX).max(1)).max(limits::NODE_GLANCE).min(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_share_what_is_left_and_each_has_the_time_for_a_login_as_far_as_there_is_any() {
        let seconds = Duration::from_secs;
        assert_eq!(share(seconds(12), 3), seconds(4));
        assert_eq!(share(seconds(12), 1), seconds(12));
        assert_eq!(share(seconds(2), 3), limits::NODE_GLANCE);
        assert_eq!(share(limits::NODE_GLANCE / 2, 3), limits::NODE_GLANCE / 2);
        assert_eq!(share(Duration::ZERO, 3), Duration::ZERO);
        assert_eq!(share(seconds(1), 0), seconds(1));
    }
}
