//! The nodes of a cluster, and which of them leads which partition, as far as answers have shown.
//!
//! Every partition has a leader of its own, which alone takes appends, and no node tells which one that is: a node that
//! does not lead refuses, and the SDK tries the others after two seconds. So it is remembered where an append of a
//! partition went through, and until one does, who refused it. Reads go there too, since any other node may lag behind.
//! All of this is a guess that an answer corrects; a single server needs none of it.
//!
//! A node that cannot be reached is tried again after a pause, by one call; the others go to the next node meanwhile. Its
//! partitions stay its own until another node has had the time to take them over: a node that is restarted leads them
//! still, and to find that out for each of them would take two seconds each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy_common::{ClusterMetadata, ClusterNodeRole};
use milena_store::{PartitionRef, TopicRef};
use parking_lot::RwLock;

use crate::limits;
use crate::pause::Pause;

/// Address of a node, `host:port`.
pub(crate) type Node = Arc<str>;

#[derive(Default)]
pub(crate) struct Roster {
    nodes: RwLock<Nodes>,
    homes: RwLock<HashMap<PartitionRef, Node>>,
    /// Who refused a partition since an append to it last went through.
    refusals: RwLock<HashMap<PartitionRef, Vec<Node>>>,
    /// Nodes to which the last connection failed.
    down: RwLock<HashMap<Node, Down>>,
    /// Partitions of whose leader's log something is not known: whether an append is there, or how far it goes.
    doubts: RwLock<HashMap<PartitionRef, Instant>>,
    /// When the last doubt about a partition was over.
    settled: RwLock<HashMap<PartitionRef, Instant>>,
}

#[derive(Default)]
struct Nodes {
    all: Vec<Node>,
    /// The one that leads what is not a partition; new partitions are its own more often than not.
    leader: Option<Node>,
}

/// Of a node that cannot be reached.
struct Down {
    since: Instant,
    pause: Pause,
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

    /// All nodes, those that are worth an attempt first: where the partition is led, the leader of the cluster, the
    /// others. Behind them are the nodes that do not answer, and then those that refused the partition.
    pub(crate) fn candidates(&self, at: Option<&PartitionRef>, now: Instant) -> Vec<Node> {
        let home = at.and_then(|at| self.homes.read().get(at).cloned());
        let mut found: Vec<Node> = Vec::new();
        {
            let nodes = self.nodes.read();
            for node in home.iter().chain(&nodes.leader).chain(&nodes.all) {
                if !found.contains(node) {
                    found.push(Arc::clone(node));
                }
            }
        }
        let (refusals, down) = (self.refusals.read(), self.down.read());
        let refused = at.and_then(|at| refusals.get(at));
        if refused.is_some() || !down.is_empty() {
            let refused = refused.map(Vec::as_slice).unwrap_or_default();
            found.sort_by_key(|node| (refused.contains(node), pauses(&down, node, now)));
        }
        found
    }

    /// All nodes but those that could not be reached a moment ago.
    pub(crate) fn reachable(&self, now: Instant) -> Vec<Node> {
        let (nodes, down) = (self.nodes.read(), self.down.read());
        nodes.all.iter().filter(|node| !pauses(&down, node, now)).cloned().collect()
    }

    /// Where a partition is led, or what comes closest; `None` for a single server.
    pub(crate) fn home(&self, at: Option<&PartitionRef>, now: Instant) -> Option<Node> {
        self.candidates(at, now).into_iter().next()
    }

    /// Who led a partition when it was last asked for something that only a leader can do.
    pub(crate) fn leader(&self, at: &PartitionRef) -> Option<Node> {
        self.homes.read().get(at).cloned()
    }

    /// The partitions of a topic with so many whose leader is known, together those that one node leads.
    pub(crate) fn led(&self, topic: &TopicRef, partitions: u32) -> Vec<Vec<PartitionRef>> {
        let homes = self.homes.read();
        let mut led: Vec<(&Node, Vec<PartitionRef>)> = Vec::new();
        if homes.is_empty() {
            return Vec::new();
        }
        for at in (0..partitions).map(|number| topic.partition(number)) {
            let Some(home) = homes.get(&at) else { continue };
            match led.iter_mut().find(|(node, _)| *node == home) {
                Some((_, partitions)) => partitions.push(at),
                None => led.push((home, vec![at])),
            }
        }
        led.into_iter().map(|(_, partitions)| partitions).collect()
    }

    /// An append went through at that node.
    pub(crate) fn found(&self, at: &PartitionRef, node: &Node) {
        if !self.refusals.read().is_empty() {
            self.refusals.write().remove(at);
        }
        if self.homes.read().get(at).is_some_and(|known| known == node) {
            return;
        }
        let mut homes = self.homes.write();
        if homes.len() >= limits::HOMES_MAX {
            homes.clear();
        }
        homes.insert(at.clone(), Arc::clone(node));
    }

    /// That node does not lead a partition. Who does is not known, although the SDK may have found it: it does not say.
    /// So each of the others is tried in its turn, also when the one that should be asked does not answer.
    pub(crate) fn refused(&self, at: &PartitionRef, node: &Node, now: Instant) {
        let mut homes = self.homes.write();
        if homes.get(at).is_some_and(|known| known == node) {
            homes.remove(at);
        }
        drop(homes);
        let nodes = self.nodes.read();
        let mut refusals = self.refusals.write();
        if refusals.len() >= limits::HOMES_MAX {
            refusals.clear();
        }
        let refused = refusals.entry(at.clone()).or_default();
        if !refused.contains(node) {
            refused.push(Arc::clone(node));
        }
        let down = self.down.read();
        if nodes.all.iter().all(|known| refused.contains(known) || pauses(&down, known, now)) {
            // Nobody led it yet, or it changed hands meanwhile: the others come once more.
            *refused = vec![Arc::clone(node)];
        }
    }

    /// A connection to that node is attempted, which may take as long as `patience`. When it could not be reached before,
    /// other calls need not wait for the same.
    pub(crate) fn attempts(&self, node: &Node, patience: Duration, now: Instant) {
        if self.down.read().contains_key(node)
            && let Some(down) = self.down.write().get_mut(node)
        {
            down.pause.hold(now + patience);
        }
    }

    /// That node cannot be reached.
    pub(crate) fn unreachable(&self, node: &Node, now: Instant) {
        let mut all = self.down.write();
        if !all.contains_key(node) && all.len() >= limits::NODES_MAX {
            all.clear();
        }
        let down = all.entry(Arc::clone(node)).or_insert_with(|| Down { since: now, pause: Pause::default() });
        down.pause.failed(limits::NODE_PAUSE_MAX, now);
        let since = down.since;
        drop(all);
        self.disown(node, since, now);
    }

    /// There is a connection to that node.
    pub(crate) fn reached(&self, node: &Node, now: Instant) {
        if self.down.read().is_empty() {
            return;
        }
        let down = self.down.write().remove(node);
        if let Some(down) = down {
            self.disown(node, down.since, now);
        }
    }

    /// A node that was away for long leads nothing any more.
    fn disown(&self, node: &Node, since: Instant, now: Instant) {
        if now.saturating_duration_since(since) >= limits::LEADER_LOST {
            self.homes.write().retain(|_, home| home != node);
        }
    }

    /// A topic is gone.
    pub(crate) fn forget(&self, topic: &TopicRef) {
        if !self.is_cluster() {
            return;
        }
        self.homes.write().retain(|at, _| at.topic != *topic);
        self.refusals.write().retain(|at, _| at.topic != *topic);
        self.doubts.write().retain(|at, _| at.topic != *topic);
        self.settled.write().retain(|at, _| at.topic != *topic);
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

    /// True when a partition was in doubt at any time since then: what anybody but its leader said meanwhile does not count.
    pub(crate) fn doubted_since(&self, at: &PartitionRef, then: Instant) -> bool {
        // In this order: a doubt that ends in between was there.
        self.doubts.read().contains_key(at) || self.settled.read().get(at).is_some_and(|settled| *settled >= then)
    }

    /// The leader has answered a question that was asked at `asked`. What came into doubt behind that is in doubt still.
    pub(crate) fn settled(&self, at: &PartitionRef, asked: Instant, now: Instant) {
        if self.doubts.read().is_empty() {
            return;
        }
        let mut doubts = self.doubts.write();
        if doubts.get(at).is_none_or(|since| *since > asked) {
            return;
        }
        let mut settled = self.settled.write();
        if settled.len() >= limits::HOMES_MAX {
            settled.retain(|_, settled| now.saturating_duration_since(*settled) < limits::SETTLED_KEPT);
        }
        settled.insert(at.clone(), now);
        doubts.remove(at);
    }
}

/// True when it is too early for another attempt to reach that node.
fn pauses(down: &HashMap<Node, Down>, node: &Node, now: Instant) -> bool {
    down.get(node).is_some_and(|down| down.pause.holds(now))
}

#[cfg(test)]
mod tests;
