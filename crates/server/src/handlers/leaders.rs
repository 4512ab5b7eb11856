//! Which gateway leads a partition, as clients are told.
//!
//! Every gateway serves every partition, so any answer is a right one. But an idempotent producer that changes between gateways
//! costs each of them a look at the log, and meets the one race that no look can see: a batch of its own that the other one is
//! still sending. So all gateways name the same leader without asking each other: of those that are alive, the one whose number
//! and the partition have the largest digest together (rendezvous hashing). When one comes or goes, only its own partitions move.

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::brokers::Known;

/// The gateways that may lead, as one client is told of them.
pub(super) struct Leaders {
    /// Node ids; never empty.
    nodes: Vec<i32>,
}

impl Leaders {
    /// Of `known`, the first of which is this gateway.
    pub(super) fn new(known: &[Known]) -> Self {
        Self { nodes: known.iter().map(|broker| broker.id).collect() }
    }

    /// Node id of the leader of a partition.
    pub(super) fn of(&self, topic: Uuid, partition: u32) -> i32 {
        match self.nodes.as_slice() {
            [alone] => *alone,
            nodes => nodes.iter().copied().max_by_key(|node| (weight(*node, topic, partition), *node)).unwrap_or(-1),
        }
    }
}

/// Gateways of different versions must agree, so this never changes.
fn weight(node: i32, topic: Uuid, partition: u32) -> u64 {
    let mut place = [0; 24];
    let (id, rest) = place.split_at_mut(16);
    let (index, number) = rest.split_at_mut(4);
    id.copy_from_slice(topic.as_bytes());
    index.copy_from_slice(&partition.to_le_bytes());
    number.copy_from_slice(&node.to_le_bytes());
    xxh3_64(&place)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn leaders(nodes: &[i32]) -> Leaders {
        Leaders { nodes: nodes.to_vec() }
    }

    fn topic(number: u128) -> Uuid {
        Uuid::from_u128(number << 64 | 0x8_0000)
    }

    #[test]
    fn the_leader_of_a_partition_never_changes_for_one_set_of_gateways() {
        let leaders = leaders(&[1, 2, 3]);
        let named: Vec<_> = (0..8).map(|partition| leaders.of(topic(7), partition)).collect();
        assert_eq!(named, [2, 2, 2, 2, 1, 2, 3, 1]);
    }

    #[test]
    fn the_order_in_which_gateways_are_known_does_not_matter() {
        let (ours, theirs) = (leaders(&[1, 2, 3]), leaders(&[3, 1, 2]));
        for partition in 0..1_000 {
            assert_eq!(ours.of(topic(1), partition), theirs.of(topic(1), partition));
        }
    }

    #[test]
    fn partitions_are_spread_over_the_gateways() {
        let leaders = leaders(&[0, 1, 2, 3]);
        let mut counts: HashMap<i32, u32> = HashMap::new();
        for (number, partition) in (0..250).flat_map(|number| (0..4).map(move |partition| (number, partition))) {
            *counts.entry(leaders.of(topic(number), partition)).or_default() += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| (200..300).contains(count)), "{counts:?}");
    }

    #[test]
    fn when_a_gateway_goes_only_its_own_partitions_move() {
        let (before, after) = (leaders(&[1, 2, 3]), leaders(&[1, 3]));
        let moved = (0..1_000).filter(|partition| before.of(topic(1), *partition) != after.of(topic(1), *partition));
        assert!(moved.map(|partition| before.of(topic(1), partition)).all(|node| node == 2));
    }

    #[test]
    fn a_gateway_that_is_alone_leads_everything() {
        assert_eq!(leaders(&[5]).of(topic(1), 9), 5);
    }
}
