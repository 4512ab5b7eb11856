//! The nodes of a cluster, asked one by one.
//!
//! A node answers questions about ends from its own state, and one that follows another, or was started a moment ago,
//! lags behind. So when an answer names a lower end than the known one, all nodes are asked. Of a partition whose leader
//! is known that one's word counts: another node may still show what the leader never had. Else it is the highest end.
//!
//! While a leader is dead even all of them lag: nobody shows what it confirmed last until the next one leads. So that an
//! end fell is believed when the partition's leader has answered something that only a leader can since the lower end
//! was first seen (see `barrier.rs`), and names that end too. An empty partition cannot be asked who leads it: there
//! most of the nodes have to say so, for longer than it takes to find a leader.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_common::{IggyError, Partition, TopicClient, TopicDetails};
use milena_store::TopicRef;

use crate::inner::{Inner, is_same};
use crate::partition::{Described, Floor};
use crate::roster::Node;
use crate::topics::TopicState;

impl Inner {
    /// Improves what one node said of the partitions of a topic by what the others say, where it names a lower end than
    /// the known one. Where that cannot be, because they were asked a moment ago, the partition is taken out.
    ///
    /// Answers the partitions whose lower end is not to be believed, however long it lasts.
    pub(crate) async fn hear(
        &self,
        state: &TopicState,
        partitions: &mut Vec<Partition>,
        floors: &[Floor],
    ) -> HashSet<u32> {
        let is_lower = |said: &Partition| {
            let floor = floors.get(said.id as usize).copied().unwrap_or_default();
            let known = state.partition(said.id);
            known.is_some_and(|known| known.lock().would_fall(&Described::from(said), floor))
        };
        let mut unproven = HashSet::new();
        if !self.dialer.roster.is_cluster() || !partitions.iter().any(is_lower) {
            return unproven;
        }
        let now = Instant::now();
        if !state.may_ask_nodes(now) {
            partitions.retain(|said| !is_lower(said));
            return unproven;
        }
        let most = self.dialer.roster.len() / 2;
        let answers = self.ask_nodes(&state.topic, |_, details| async { Ok(details.partitions) }).await;
        for said in partitions.iter_mut().filter(|said| is_lower(said)) {
            let at = state.topic.partition(said.id);
            let leader = self.dialer.roster.leader(&at);
            said.clone_from(&best(said, &answers, leader.as_ref()).clone());
            if !is_lower(said) {
                continue;
            }
            let was_seen = state.partition(said.id).is_some_and(|known| known.lock().is_falling_still(now));
            if !was_seen {
                self.dialer.roster.suspect(&at, now);
            }
            let heard = Heard {
                is_settled: was_seen && self.dialer.roster.doubted(&at, now).is_none(),
                is_empty: said.messages_count == 0 && said.current_offset == 0,
                leader_answered: answers.iter().any(|(node, _)| Some(node) == leader.as_ref()),
                most_answered: answers.len() > most,
            };
            if !heard.may_be_believed() {
                unproven.insert(said.id);
            }
        }
        unproven
    }

    /// What the nodes that can be reached answer about a topic: each that knows it is asked for `more`, with how it
    /// describes the topic.
    pub(crate) async fn ask_nodes<T, F>(
        &self,
        topic: &TopicRef,
        more: impl Fn(Arc<TcpClient>, TopicDetails) -> F + Clone + Send + Sync + 'static,
    ) -> Vec<(Node, T)>
    where
        F: Future<Output = Result<T, IggyError>> + Send + 'static,
        T: Send + 'static,
    {
        let Ok((stream, name)) = self.names.topic(topic.stream(), topic.topic()) else { return Vec::new() };
        let topic = topic.clone();
        let question = move |client: Arc<TcpClient>| {
            let (stream, name, topic, more) = (stream.clone(), name.clone(), topic.clone(), more.clone());
            async move {
                let details = client.get_topic(&stream, &name).await?;
                // A node that knows another topic of that name has no part in this.
                match details.filter(|details| is_same(&topic, details)) {
                    Some(details) => more(client, details).await.map(Some),
                    None => Ok(None),
                }
            }
        };
        let answers = self.visits.ask(self.dialer.roster.reachable(Instant::now()), question).await;
        answers.into_iter().filter_map(|(node, said)| Some((node, said?))).collect()
    }
}

/// What is known about a lower end.
#[derive(Debug, Clone, Copy)]
struct Heard {
    /// It was seen before, and since then the leader answered, or the partition was empty for long.
    is_settled: bool,
    is_empty: bool,
    /// The node that leads, as far as is known, is among those that say so.
    leader_answered: bool,
    most_answered: bool,
}

impl Heard {
    fn may_be_believed(self) -> bool {
        self.is_settled && if self.is_empty { self.most_answered } else { self.leader_answered }
    }
}

/// What counts of a partition: what its leader says, if that answered, or else the highest end.
fn best<'a>(said: &'a Partition, answers: &'a [(Node, Vec<Partition>)], leader: Option<&Node>) -> &'a Partition {
    let of = |partitions: &'a [Partition]| partitions.iter().find(|other| other.id == said.id);
    if let Some((_, partitions)) = answers.iter().find(|(node, _)| Some(node) == leader) {
        return of(partitions).unwrap_or(said);
    }
    let others = answers.iter().filter_map(|(_, partitions)| of(partitions));
    others.chain([said]).max_by_key(|said| (said.current_offset, said.messages_count)).unwrap_or(said)
}

#[cfg(test)]
mod tests {
    use iggy_common::{IggyByteSize, IggyTimestamp};

    use super::*;

    fn said(id: u32, current_offset: u64, messages_count: u64) -> Partition {
        let (created_at, size) = (IggyTimestamp::zero(), IggyByteSize::from(0));
        Partition { id, created_at, segments_count: 1, current_offset, size, messages_count }
    }

    #[test]
    fn of_a_partition_the_leaders_end_counts_and_without_it_the_highest() {
        let one = (Node::from("one"), vec![said(0, 4, 5), said(1, 0, 1)]);
        let two = (Node::from("two"), vec![said(0, 6, 7), said(1, 0, 0)]);
        let answers = [one, two];
        let end = |said: Partition, leader: Option<&str>| {
            let best = best(&said, &answers, leader.map(Node::from).as_ref()).clone();
            (best.current_offset, best.messages_count)
        };
        assert_eq!(end(said(0, 5, 6), None), (6, 7));
        assert_eq!(end(said(0, 8, 9), None), (8, 9), "an answer of a moment ago counts too");
        assert_eq!(end(said(0, 5, 6), Some("one")), (4, 5), "the other one shows what the leader has not");
        assert_eq!(end(said(0, 5, 6), Some("three")), (6, 7), "the leader does not answer");
        assert_eq!(end(said(1, 0, 0), None), (0, 1), "a single message is more than none");
        assert_eq!(end(said(2, 1, 2), None), (1, 2), "nobody else knows the partition yet");
    }

    #[test]
    fn a_lower_end_is_believed_of_the_leader_and_of_an_empty_partition_of_most_nodes() {
        let led = Heard { is_settled: true, is_empty: false, leader_answered: true, most_answered: false };
        assert!(led.may_be_believed());
        assert!(!Heard { is_settled: false, most_answered: true, ..led }.may_be_believed(), "nobody may lead now");
        assert!(!Heard { leader_answered: false, most_answered: true, ..led }.may_be_believed(), "all that answer lag");
        let empty = Heard { is_empty: true, leader_answered: false, most_answered: true, ..led };
        assert!(empty.may_be_believed());
        assert!(!Heard { most_answered: false, leader_answered: true, ..empty }.may_be_believed());
    }
}
