//! Leader epochs: how often the end of a partition moved back, and where.
//!
//! Whoever read up to some offset holds messages of a certain epoch. When the end moves back, the epoch rises at the new
//! end: what is appended from there on has the new epoch, and whoever is behind that offset with an older one holds
//! messages that are gone.

use std::sync::Arc;

/// Where an epoch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch, above 0.
    pub epoch: u32,
    /// Its first offset.
    pub start: u64,
}

/// The epochs of one partition. Epoch 0 begins at offset 0 and is not listed. Cloning is a reference count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Epochs(Option<Arc<Vec<EpochStart>>>);

impl Epochs {
    /// The epoch of what is appended next.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.starts().last().map_or(0, |last| last.epoch)
    }

    /// The later epochs, both numbers rising.
    #[must_use]
    pub fn starts(&self) -> &[EpochStart] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The epoch of the message at `offset`, and the offset at which the next epoch begins, if there is one.
    #[must_use]
    pub fn at(&self, offset: u64) -> (u32, Option<u64>) {
        let starts = self.starts();
        let behind = starts.partition_point(|begin| begin.start <= offset);
        let epoch = behind.checked_sub(1).and_then(|index| starts.get(index)).map_or(0, |begin| begin.epoch);
        (epoch, starts.get(behind).map(|begin| begin.start))
    }

    /// The largest epoch that is not above `asked`, and the offset behind the last message that a reader who knows no later
    /// epoch than `asked` can still rely on; `end` is the end of the partition. `None` for an epoch that has not begun.
    ///
    /// KIP-101 and KIP-279: a follower or consumer behind that offset holds messages that are gone.
    #[must_use]
    pub fn end_of(&self, asked: u32, end: u64) -> Option<(u32, u64)> {
        let starts = self.starts();
        if asked > self.current() {
            return None;
        }
        let behind = starts.partition_point(|begin| begin.epoch <= asked);
        let epoch = behind.checked_sub(1).and_then(|index| starts.get(index)).map_or(0, |begin| begin.epoch);
        Some((epoch, starts.get(behind).map_or(end, |begin| begin.start)))
    }

    /// Begins `epoch` at `start`; epochs that began at or behind it are gone with their messages. When `epoch` has begun
    /// already, the lower start counts; one that is older than the newest changes nothing. At most `most` are kept: of the
    /// oldest two the later one takes over the start of the earlier one, so that nobody is told to rely on what is gone.
    pub fn begin(&mut self, epoch: u32, start: u64, most: usize) {
        if epoch < self.current() || epoch == 0 {
            return;
        }
        let lower = self.starts().last().filter(|last| last.epoch == epoch).map_or(start, |last| last.start.min(start));
        let starts = Arc::make_mut(self.0.get_or_insert_default());
        starts.retain(|begin| begin.epoch < epoch && begin.start < lower);
        starts.push(EpochStart { epoch, start: lower });
        while starts.len() > most.max(1) {
            let oldest = starts.remove(0);
            if let Some(next) = starts.first_mut() {
                next.start = oldest.start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epochs(begins: &[(u32, u64)]) -> Epochs {
        let mut epochs = Epochs::default();
        for (epoch, start) in begins {
            epochs.begin(*epoch, *start, 64);
        }
        epochs
    }

    fn listed(epochs: &Epochs) -> Vec<(u32, u64)> {
        epochs.starts().iter().map(|begin| (begin.epoch, begin.start)).collect()
    }

    #[test]
    fn a_partition_whose_end_never_fell_is_in_epoch_0() {
        let epochs = Epochs::default();
        assert_eq!((epochs.current(), epochs.at(7)), (0, (0, None)));
        assert_eq!((epochs.end_of(0, 9), epochs.end_of(1, 9)), (Some((0, 9)), None));
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let epochs = epochs(&[(1, 50), (3, 70)]);
        assert_eq!(epochs.current(), 3);
        assert_eq!(
            [49, 50, 69, 70].map(|offset| epochs.at(offset)),
            [(0, Some(50)), (1, Some(70)), (1, Some(70)), (3, None)]
        );
        let ends = [0, 1, 2, 3, 4].map(|asked| epochs.end_of(asked, 100));
        assert_eq!(ends, [Some((0, 50)), Some((1, 70)), Some((1, 70)), Some((3, 100)), None]);
    }

    #[test]
    fn epochs_whose_messages_are_gone_are_not_kept() {
        assert_eq!(listed(&epochs(&[(1, 50), (2, 70), (3, 50)])), [(3, 50)]);
        let purged = epochs(&[(1, 50), (2, 70), (3, 0)]);
        assert_eq!(listed(&purged), [(3, 0)]);
        assert_eq!(purged.end_of(2, 10), Some((0, 0)));
    }

    #[test]
    fn of_two_starts_of_one_epoch_the_lower_counts_in_either_order() {
        assert_eq!(epochs(&[(1, 50), (1, 52)]), epochs(&[(1, 52), (1, 50)]));
        assert_eq!(listed(&epochs(&[(2, 50), (1, 10)])), [(2, 50)], "an older one comes too late");
    }

    #[test]
    fn the_oldest_epochs_are_joined_towards_the_lower_start() {
        let mut epochs = Epochs::default();
        for (epoch, start) in [(1, 10), (2, 20), (3, 30)] {
            epochs.begin(epoch, start, 2);
        }
        assert_eq!(listed(&epochs), [(2, 10), (3, 30)]);
        assert_eq!(epochs.end_of(1, 99), Some((0, 10)));
    }

    proptest! {
        #[test]
        fn nobody_is_ever_told_to_rely_on_a_message_that_is_gone(
            falls in prop::collection::vec((0..40_u64, 0..40_u64), 1..30), most in 1..6_usize,
        ) {
            let (mut epochs, mut log, mut end) = (Epochs::default(), Vec::<u32>::new(), 0_u64);
            // Every state of a reader: the epoch and the offset behind the last message that it read.
            let mut readers: Vec<(u32, u64, Vec<u32>)> = Vec::new();
            for (serial, (grow, fall)) in (1..).zip(falls) {
                for _ in 0..grow {
                    log.push(serial);
                }
                end += grow;
                prop_assert_eq!(epochs.at(end).0, epochs.current());
                readers.push((epochs.current(), end, log.clone()));
                end = end.saturating_sub(fall);
                log.truncate(usize::try_from(end).unwrap());
                if fall > 0 {
                    epochs.begin(epochs.current() + 1, end, most);
                }
                for (epoch, position, seen) in &readers {
                    let (_, safe) = epochs.end_of(*epoch, end).unwrap();
                    let safe = usize::try_from(safe.min(*position)).unwrap();
                    prop_assert_eq!(&seen[..safe], &log[..safe]);
                }
                prop_assert!(epochs.starts().len() <= most);
                prop_assert!(epochs.starts().is_sorted_by(|one, next| one.epoch < next.epoch && one.start < next.start));
            }
        }
    }
}
