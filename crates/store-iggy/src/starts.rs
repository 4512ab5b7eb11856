//! Where partitions begin.
//!
//! The server counts messages apart from offsets, and a node that was restarted can count too few: then messages that are
//! there would be hidden. So a start that is behind the known one is believed when the first message that is delivered
//! shows it; in a cluster, where one node alone may have lost what it had at first, the first message that most nodes have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_binary_protocol::WirePollingStrategy;
use iggy_common::{BinaryTransport, IggyError, Partition};
use milena_store::PartitionId;

use crate::error::breaks_connection;
use crate::inner::Inner;
use crate::limits;
use crate::poll::{self, ONE, Polled};
use crate::topics::TopicState;

/// What the server's figures say of a partition, where it is more than is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    partition: PartitionId,
    said: u64,
    known: u64,
    end: u64,
}

impl Claim {
    /// `None` where there is nothing to check.
    fn of(described: &Partition, known: u64) -> Option<Self> {
        let end = described.current_offset.saturating_add(1);
        let said = end.saturating_sub(described.messages_count);
        let is_untouched = described.messages_count == 0 && described.current_offset == 0;
        (said > known && !is_untouched).then_some(Self { partition: described.id, said, known, end })
    }

    fn is_empty(&self) -> bool {
        self.said == self.end
    }

    /// The first message that any of the nodes has that answered; `None` when too few did.
    fn earliest<'a>(&self, answers: impl Iterator<Item = &'a Polled>, nodes: usize) -> Option<u64> {
        let (mut answered, mut is_proven, mut earliest) = (0, false, self.end);
        for polled in answers {
            // That nothing is delivered says something only where the partition may be empty.
            is_proven |= polled.first.is_some() || self.is_empty() && polled.names_end(self.end);
            answered += usize::from(polled.first.is_some() || self.is_empty());
            earliest = earliest.min(polled.first.unwrap_or(self.end));
        }
        (is_proven && answered * 2 > nodes).then_some(earliest)
    }
}

/// That a claim was not believed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refuted {
    said: u64,
    /// When it is looked into again; `None`: when another start is claimed.
    until: Option<Instant>,
}

impl Refuted {
    /// `None` where what was found bears the claim out.
    fn new(claim: &Claim, found: Option<u64>, is_cluster: bool, now: Instant) -> Option<Self> {
        let until = match found {
            Some(found) if found >= claim.said => return None,
            // Other nodes remove what is too old after the one that was asked has done so.
            Some(_) => is_cluster.then(|| now + limits::STARTS_PAUSE),
            None if is_cluster => Some(now + limits::NODES_PAUSE),
            None => return None,
        };
        Some(Self { said: claim.said, until })
    }

    fn holds(self, said: u64, now: Instant) -> bool {
        self.said == said && self.until.is_none_or(|until| now < until)
    }
}

impl Inner {
    /// Corrects where partitions begin, in what the server says of them.
    pub(crate) async fn check_starts(&self, state: &TopicState, partitions: &mut [Partition]) {
        let claim = |described: &Partition| {
            let known = state.partition(described.id)?.lock().server_start();
            Claim::of(described, known)
        };
        let claims: Vec<Claim> = partitions.iter().filter_map(claim).collect();
        let now = Instant::now();
        let doubtful: Vec<Claim> = {
            let refuted = state.refuted.lock();
            let is_new = |claim: &Claim| !refuted.get(&claim.partition).is_some_and(|old| old.holds(claim.said, now));
            claims.iter().filter(|claim| is_new(claim)).copied().collect()
        };
        let is_cluster = self.dialer.roster.is_cluster();
        let found = match is_cluster {
            _ if doubtful.is_empty() => HashMap::new(),
            true => self.earliest(state, &doubtful).await,
            false => self.first_offsets(state, &doubtful).await,
        };
        let now = Instant::now();
        for claim in &doubtful {
            let found = found.get(&claim.partition).copied();
            let mut known = state.refuted.lock();
            match Refuted::new(claim, found, is_cluster, now) {
                Some(refuted) => known.insert(claim.partition, refuted),
                None => known.remove(&claim.partition),
            };
        }
        for claim in claims {
            let Some(described) = partitions.iter_mut().find(|said| said.id == claim.partition) else { continue };
            let start = found.get(&claim.partition).copied().unwrap_or(claim.known);
            described.messages_count = claim.end.saturating_sub(start);
        }
    }

    async fn first_offsets(&self, state: &TopicState, claims: &[Claim]) -> HashMap<PartitionId, u64> {
        let mut found = HashMap::new();
        for claim in claims {
            let end = claim.is_empty().then_some(claim.end);
            let first = self.first_offset(&state.topic.partition(claim.partition), end).await;
            found.extend(first.map(|first| (claim.partition, first)));
        }
        found
    }

    /// Where these partitions begin, as far as most nodes answer. Each is asked once for all of them.
    async fn earliest(&self, state: &TopicState, claims: &[Claim]) -> HashMap<PartitionId, u64> {
        let poll = |claim: &Claim| {
            let at = state.topic.partition(claim.partition);
            Some((claim.partition, self.poll_request(&at, WirePollingStrategy::first(), 1).ok()?))
        };
        let polls: Arc<[_]> = claims.iter().filter_map(poll).collect();
        let ask = move |client: Arc<TcpClient>, _| {
            let polls = Arc::clone(&polls);
            async move {
                // What there is no time for is asked with the next look; a node that is slow is not one that is away.
                let until = Instant::now() + limits::NODE_PATIENCE / 2;
                let mut said = HashMap::new();
                for (partition, poll) in polls.iter().take_while(|_| Instant::now() < until) {
                    match client.send_poll_with_response(poll).await {
                        Ok(body) => {
                            said.insert(*partition, poll::decode(&body, 0, ONE));
                        }
                        Err(error) if breaks_connection(&error) => return Err(error),
                        Err(_) => {}
                    }
                }
                Ok::<_, IggyError>(said)
            }
        };
        let answers = self.ask_nodes(&state.topic, ask).await;
        let nodes = self.dialer.roster.len();
        let earliest = |claim: &Claim| {
            let said = answers.iter().filter_map(|(_, said)| said.get(&claim.partition));
            Some((claim.partition, claim.earliest(said, nodes)?))
        };
        claims.iter().filter_map(earliest).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLAIM: Claim = Claim { partition: 0, said: 10, known: 0, end: 20 };

    fn begins(first: u64) -> Polled {
        Polled { first: Some(first), current_offset: 19, ..Polled::default() }
    }

    #[test]
    fn a_partition_begins_at_the_first_message_that_any_node_has_once_most_have_answered() {
        let silent = Polled { current_offset: 19, ..Polled::default() };
        assert_eq!(CLAIM.earliest([begins(10), begins(4)].iter(), 3), Some(4));
        assert_eq!(CLAIM.earliest([begins(10)].iter(), 3), None);
        assert_eq!(CLAIM.earliest([begins(10), silent].iter(), 3), None, "its disk may be at fault");
    }

    #[test]
    fn an_empty_partition_begins_where_it_ends_when_a_node_names_that_end() {
        let empty = Claim { said: 20, ..CLAIM };
        let (named, silent) = (Polled { current_offset: 19, ..Polled::default() }, Polled::default());
        assert_eq!(empty.earliest([&silent, &named].into_iter(), 3), Some(20));
        assert_eq!(empty.earliest([&silent, &silent].into_iter(), 3), None);
    }

    #[test]
    fn a_start_that_other_nodes_refuted_is_looked_into_again_since_they_remove_messages_later() {
        let now = Instant::now();
        let refuted = Refuted::new(&CLAIM, Some(0), true, now).unwrap();
        assert!(refuted.holds(10, now + limits::STARTS_PAUSE / 2));
        assert!(!refuted.holds(10, now + limits::STARTS_PAUSE));
        assert!(!refuted.holds(11, now), "another claim");
        assert!(Refuted::new(&CLAIM, Some(10), true, now).is_none());
    }

    #[test]
    fn a_start_that_a_single_server_refuted_itself_stays_refuted() {
        let refuted = Refuted::new(&CLAIM, Some(0), false, Instant::now()).unwrap();
        assert!(refuted.holds(10, Instant::now() + Duration::from_secs(86_400)));
    }

    #[test]
    fn a_start_of_which_too_few_nodes_know_is_not_asked_for_with_each_look() {
        let now = Instant::now();
        let unknown = Refuted::new(&CLAIM, None, true, now).unwrap();
        assert!(unknown.holds(10, now) && !unknown.holds(10, now + limits::NODES_PAUSE));
        assert!(Refuted::new(&CLAIM, None, false, now).is_none(), "a single server has nobody else to wait for");
    }
}
