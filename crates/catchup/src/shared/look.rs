//! What can be seen of the partitions.

use std::collections::BTreeSet;

use super::Shared;
use crate::State::{CatchingUp, Live, Merging};
use crate::delivery::TopicPartition;
use crate::{Buffers, PartitionStatus};

impl Shared {
    fn status_of(&self, of: &TopicPartition) -> Option<PartitionStatus> {
        self.state.lock().slot(of).map(|slot| slot.machine.status())
    }

    /// The highest offset that one of its lanes would read next.
    pub(crate) fn position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        Some(status.backfill.map_or(0, |lane| lane.position).max(status.live.position))
    }

    /// The offset that the backfill lane reads next; `None` without one.
    pub(crate) fn backfill_position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        status.backfill.filter(|_| status.state == CatchingUp).map(|lane| lane.position)
    }

    /// The offset that the live lane reads next; `None` before it has begun.
    pub(crate) fn live_position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        matches!(status.state, Live | CatchingUp | Merging).then_some(status.live.position)
    }

    /// Whether the application has records of that partition in hand.
    pub(crate) fn in_hand(&self, of: &TopicPartition) -> bool {
        self.status_of(of)
            .is_some_and(|status| status.live.in_hand + status.backfill.map_or(0, |lane| lane.in_hand) > 0)
    }

    /// All partitions there are.
    pub(crate) fn partitions(&self) -> Vec<TopicPartition> {
        self.state.lock().epochs.keys().cloned().collect()
    }

    /// True while one of these is there.
    pub(crate) fn any(&self, of: &BTreeSet<TopicPartition>) -> bool {
        let state = self.state.lock();
        of.iter().any(|partition| state.epochs.contains_key(partition))
    }

    pub(crate) fn status(&self) -> Vec<(TopicPartition, PartitionStatus)> {
        let state = self.state.lock();
        let mut all: Vec<_> =
            state.slots.values().map(|slot| (slot.partition.clone(), slot.machine.status())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    pub(crate) fn buffers(&self, partition: &TopicPartition) -> Option<Buffers> {
        self.state.lock().slot(partition).map(|slot| slot.machine.buffers())
    }
}
