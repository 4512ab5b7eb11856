//! What the answer to a call `commit` waits for.

use super::Shared;
use crate::delivery::TopicPartition;
use crate::partition::Covering;
use crate::{Epoch, Input, Partition};

/// How it stands with what was finished at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not all of it is answered.
    Open,
    /// All of it is, or there was nothing to store. Whoever hears the answers knows of each commit whether it was taken.
    Answered {
        /// Whether the checkpoint topic has what should be there.
        saved: bool,
    },
}

fn standing(machine: &Partition, by: &mut Covering) -> Standing {
    if machine.covered(by) { Standing::Answered { saved: !machine.unsaved() } } else { Standing::Open }
}

/// An assignment that is over.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) epoch: Epoch,
    pub(super) machine: Partition,
}

impl Over {
    /// How it stood at the end.
    pub(crate) fn standing(&self, by: &mut Covering) -> Standing {
        standing(&self.machine, by)
    }
}

impl Shared {
    /// Wants everything committed that is finished now. Answers what covers it, for each assignment.
    pub(crate) fn flush(&self) -> Vec<(Epoch, TopicPartition, Covering)> {
        let mut state = self.state.lock();
        let epochs: Vec<_> = state.slots.keys().copied().collect();
        for epoch in &epochs {
            // A commit queues no record.
            self.apply(&mut state, *epoch, Input::CommitDue, None);
        }
        let slots = state.slots.iter();
        slots.map(|(epoch, slot)| (*epoch, slot.partition.clone(), slot.machine.covering())).collect()
    }

    /// How it stands with that; `None` when the assignment is over, which [`Shared::over`] tells of once.
    pub(crate) fn standing(&self, epoch: Epoch, by: &mut Covering) -> Option<Standing> {
        self.state.lock().slots.get(&epoch).map(|slot| standing(&slot.machine, by))
    }

    /// The assignments that ended since the last time.
    pub(crate) fn over(&self) -> Vec<Over> {
        std::mem::take(&mut self.state.lock().over)
    }
}
