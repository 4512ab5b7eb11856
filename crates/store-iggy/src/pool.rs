//! The connections of one store, by what they are for.
//!
//! Appends to one partition always take the same connection, so that they arrive in the order in which they were
//! sent. Reads, questions about topics, consumer offsets and Milena's own state have connections of their own: a fetch that waits for a
//! large reply must not hold up a commit.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use milena_store::{INTERNAL_STREAM, PartitionRef};

use crate::dialer::Dialer;
use crate::limits;
use crate::line::Line;

pub(crate) struct Pool {
    appends: Vec<Line>,
    reads: Vec<Line>,
    control: Vec<Line>,
    offsets: Vec<Line>,
    state: Line,
}

impl Pool {
    pub(crate) fn new(dialer: &Arc<Dialer>) -> Self {
        let lines = |count: usize| -> Vec<Line> {
            (0..count.clamp(1, limits::CONNECTIONS_MAX)).map(|_| Line::new(Arc::clone(dialer))).collect()
        };
        Self {
            appends: lines(dialer.config().append_connections),
            reads: lines(dialer.config().read_connections),
            control: lines(limits::CONTROL_CONNECTIONS),
            offsets: lines(limits::OFFSET_CONNECTIONS),
            state: Line::new(Arc::clone(dialer)),
        }
    }

    /// The connection for appends to a partition.
    pub(crate) fn append(&self, at: &PartitionRef) -> &Line {
        if at.topic.stream() == INTERNAL_STREAM {
            return &self.state;
        }
        self.appends.get(index_of(at, self.appends.len())).unwrap_or(&self.state)
    }

    /// The connection for reads that has least to do.
    pub(crate) fn read(&self) -> &Line {
        self.reads.iter().min_by_key(|line| line.waiting()).unwrap_or(&self.state)
    }

    /// The connection for everything else that has least to do.
    pub(crate) fn control(&self) -> &Line {
        self.control.iter().min_by_key(|line| line.waiting()).unwrap_or(&self.state)
    }

    /// The connection for consumer offsets that has least to do. It is made with the first of them.
    pub(crate) fn offsets(&self) -> &Line {
        self.offsets.iter().min_by_key(|line| line.waiting()).unwrap_or(&self.state)
    }

    /// All connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Line> {
        self.appends.iter().chain(&self.reads).chain(&self.control).chain(&self.offsets).chain([&self.state])
    }
}

/// Which of `count` connections a partition has. The partitions of one topic follow each other, so that a topic with
/// as many partitions as there are connections uses all of them.
fn index_of(at: &PartitionRef, count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    at.topic.hash(&mut hasher);
    let first = hasher.finish().wrapping_add(u64::from(at.partition));
    usize::try_from(first % (count.max(1) as u64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use milena_store::TopicRef;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_partition_always_has_the_same_connection_and_neighbours_have_others(
            id in any::<u32>(), created in any::<u64>(), partition in 0..1_000u32, count in 2..64usize,
        ) {
            let topic = TopicRef::new("s", "t", 1, id, created);
            let again = TopicRef::new("s", "t", 1, id, created);
            let index = index_of(&topic.partition(partition), count);
            prop_assert!(index < count);
            prop_assert_eq!(index, index_of(&again.partition(partition), count));
            prop_assert_ne!(index, index_of(&topic.partition(partition + 1), count));
        }
    }
}
