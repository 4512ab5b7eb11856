//! The nodes of a cluster, and which of them leads which partition, as far as answers have shown.
//!
//! Every partition has a leader of its own, which alone takes appends, and no node tells which one that is: a node that
//! does not lead refuses, and the SDK tries the others after two seconds. So it is remembered where an append of a
//! partition went through. Reads go there too, since any other node may lag behind. All of this is a guess that an
//! answer corrects; a single server needs none of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy_common::{ClusterMetadata, ClusterNodeRole};
use milena_store::{PartitionRef, TopicRef};
use parking_lot::RwLock;

use crate::limits;

/// Address of a node, `host:port`.
pub(crate) type Node = Arc<str>;

#[derive(Default)]
pub(crate) struct Roster {
    nodes: RwLock<Nodes>,
    homes: RwLock<HashMap<PartitionRef, Home>>,
    /// Partitions of whose leader's log something is not known, and since when: whether an append is there, or how far it
    /// goes.
    doubts: RwLock<HashMap<PartitionRef, Instant>>,
}

/// Where a partition is led.
struct Home {
    node: Node,
    /// False when it is the next one to try.
    is_proven: bool,
}

#[derive(Default)]
struct Nodes {
    all: Vec<Node>,
    /// The one that leads what is not a partition; new partitions are its own more often than not.
    leader: Option<Node>,
}

impl Roster {
    /// Takes in what a node says of its cluster.
    pub(crate) fn learn(&self, cluster: &ClusterMetadata) {
        let mut nodes = Nodes::default();
        for node in cluster.nodes.iter().take(limits::NODES_MAX) {
            let address = Node::from(format!("{}:{}", node.ip, node.endpoints.tcp));
            if node.role == ClusterNodeRole::Leader {
                nodes.leader = Some(Arc::clone(&address));
            }
            nodes.all.push(address);
        }
        if nodes.all.len() > 1 {
            *self.nodes.write() = nodes;
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !self.nodes.read().all.is_empty()
    }

    /// All nodes, those that are worth an attempt first: `wanted`, the leader of the cluster, the others.
    pub(crate) fn candidates(&self, wanted: Option<&Node>) -> Vec<Node> {
        let nodes = self.nodes.read();
        let mut found: Vec<Node> = Vec::new();
        for node in wanted.into_iter().chain(&nodes.leader).chain(&nodes.all) {
            if !found.contains(node) {
                found.push(Arc::clone(node));
            }
        }
        found
    }

    /// Where a partition is led, or what comes closest; `None` for a single server.
    pub(crate) fn home(&self, at: Option<&PartitionRef>) -> Option<Node> {
        let known = at.and_then(|at| self.homes.read().get(at).map(|home| Arc::clone(&home.node)));
        known.or_else(|| {
            let nodes = self.nodes.read();
            nodes.leader.as_ref().or(nodes.all.first()).cloned()
        })
    }

    /// Who led a partition when it was last asked for something that only a leader can do.
    pub(crate) fn leader(&self, at: &PartitionRef) -> Option<Node> {
        self.homes.read().get(at).filter(|home| home.is_proven).map(|home| Arc::clone(&home.node))
    }

    /// A partition of a topic with so many whose leader is known, so that its node can be asked about the topic.
    pub(crate) fn led(&self, topic: &TopicRef, partitions: u32) -> Option<PartitionRef> {
        let homes = self.homes.read();
        if homes.is_empty() {
            return None;
        }
        (0..partitions).map(|number| topic.partition(number)).find(|at| homes.contains_key(at))
    }

    /// An append went through at that node.
    pub(crate) fn found(&self, at: &PartitionRef, node: &Node) {
        self.place(at, node, true);
    }

    fn place(&self, at: &PartitionRef, node: &Node, is_proven: bool) {
        if self.homes.read().get(at).is_some_and(|known| known.node == *node && known.is_proven == is_proven) {
            return;
        }
        let mut homes = self.homes.write();
        if homes.len() >= limits::HOMES_MAX {
            homes.clear();
        }
        homes.insert(at.clone(), Home { node: Arc::clone(node), is_proven });
    }

    /// That node does not lead a partition. Who does is not known, although the SDK may have found it: it does not say.
    /// So each of the others is tried in its turn.
    pub(crate) fn refused(&self, at: &PartitionRef, node: &Node) {
        let next = {
            let nodes = self.nodes.read();
            let position = nodes.all.iter().position(|known| known == node).map_or(0, |position| position + 1);
            nodes.all.iter().cycle().nth(position).cloned()
        };
        if let Some(next) = next {
            self.place(at, &next, false);
        }
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.read().all.len()
    }

    /// An append is in doubt: the leader may have been lost with it, and only the next one's log has the answer.
    pub(crate) fn doubt(&self, at: &PartitionRef, now: Instant) {
        if self.is_cluster() {
            self.doubts.write().insert(at.clone(), now);
        }
    }

    /// A lower end than the known one is seen: only the leader knows whether it fell.
    pub(crate) fn suspect(&self, at: &PartitionRef, now: Instant) {
        self.doubts.write().entry(at.clone()).or_insert(now);
    }

    /// For how long a partition is in doubt; `None` when it is not.
    pub(crate) fn doubted(&self, at: &PartitionRef, now: Instant) -> Option<Duration> {
        let doubts = self.doubts.read();
        doubts.get(at).map(|since| now.saturating_duration_since(*since))
    }

    /// The leader has answered for what came before.
    pub(crate) fn settled(&self, at: &PartitionRef) {
        if !self.doubts.read().is_empty() {
            self.doubts.write().remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use iggy_common::{ClusterNode, ClusterNodeStatus, TransportEndpoints};

    use super::*;

    fn roster(leader: u16) -> Roster {
        let role = |port| if port == leader { ClusterNodeRole::Leader } else { ClusterNodeRole::Follower };
        let node = |port: u16| ClusterNode {
            name: format!("node-{port}"),
            ip: "10.0.0.1".to_owned(),
            endpoints: TransportEndpoints { tcp: port, quic: 0, http: 0, websocket: 0 },
            role: role(port),
            status: ClusterNodeStatus::Healthy,
        };
        let roster = Roster::default();
        roster.learn(&ClusterMetadata { name: "c".to_owned(), nodes: [1, 2, 3].map(node).to_vec() });
        roster
    }

    fn node(port: u16) -> Node {
        Node::from(format!("10.0.0.1:{port}"))
    }

    fn at(partition: u32) -> PartitionRef {
        TopicRef::new("kafka", "orders", 1, 2, 3).partition(partition)
    }

    #[test]
    fn a_single_server_has_no_homes() {
        let roster = Roster::default();
        assert!(!roster.is_cluster() && roster.home(Some(&at(0))).is_none());
        roster.doubt(&at(0), Instant::now());
        assert_eq!(roster.doubted(&at(0), Instant::now()), None, "whatever it stored is where it is read");
    }

    #[test]
    fn a_partition_is_at_home_where_an_append_went_through_and_until_then_with_the_leader() {
        let roster = roster(1);
        assert_eq!(roster.home(Some(&at(0))), Some(node(1)));
        roster.found(&at(0), &node(3));
        assert_eq!(roster.home(Some(&at(0))), Some(node(3)));
        assert_eq!(roster.home(Some(&at(1))), Some(node(1)));
        assert_eq!(roster.led(&at(0).topic, 4), Some(at(0)));
        assert_eq!(roster.candidates(Some(&node(3))), [node(3), node(1), node(2)]);
    }

    #[test]
    fn after_refusals_every_node_is_tried_in_its_turn() {
        let roster = roster(1);
        for (refused, next) in [(1, 2), (2, 3), (3, 1), (1, 2)] {
            roster.refused(&at(0), &node(refused));
            assert_eq!(roster.home(Some(&at(0))), Some(node(next)));
            assert_eq!(roster.leader(&at(0)), None, "it is a guess");
        }
    }

    #[test]
    fn a_suspicion_is_a_doubt_and_does_not_make_an_older_one_younger() {
        let (roster, start) = (roster(1), Instant::now());
        roster.suspect(&at(0), start);
        roster.suspect(&at(0), start + Duration::from_secs(2));
        assert_eq!(roster.doubted(&at(0), start + Duration::from_secs(3)), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_doubt_lasts_until_the_leader_has_answered() {
        let (roster, start) = (roster(1), Instant::now());
        roster.doubt(&at(0), start);
        assert_eq!(roster.doubted(&at(0), start + Duration::from_secs(3)), Some(Duration::from_secs(3)));
        assert_eq!(roster.doubted(&at(1), start), None);
        roster.settled(&at(0));
        assert_eq!(roster.doubted(&at(0), start), None);
    }
}
