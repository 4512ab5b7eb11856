//! The end of a gap whose last records are gone, which only the end of the log can tell.
//!
//! librdkafka reports an end of the log at the offset that the broker named, and rust-rdkafka leaves that offset out. A broker
//! that has just become the leader may name one below the fork for a moment (KIP-207 is about ListOffsets, not Fetch), and what
//! lies between would count as finished. So a report is a reason to ask the leader for the end of the log; once that is not below the
//! fork, the reader reads from its position again, and a report that comes then, before any record, is believed. One that comes later is a
//! reason to ask again: there may be another leader by then.

use std::time::{Duration, Instant};

use rdkafka::error::KafkaResult;

use super::{Driver, Later};
use crate::broker::{Doubt, Job};
use crate::delivery::TopicPartition;
use crate::{Epoch, Input, Lane};

/// Time until a question whose answer was not good enough is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// How far a report of the end has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Checked {
    #[default]
    Not,
    /// The leader is asked.
    Asked,
    /// The leader's log ends at the fork or behind it, and the reader was sent back to this position, its own: what it reads from there on
    /// comes from that leader.
    Known(i64),
}

impl Driver {
    /// The reader says that it is at the end of the log.
    pub(super) fn reader_ended(&mut self, partition: &TopicPartition) {
        let Some(epoch) = self.shared.epoch(partition) else { return };
        let position = self.shared.backfill_position(partition);
        let Some(place) = self.places.get_mut(partition) else { return };
        match place.end {
            Checked::Asked => {}
            Checked::Known(at) if position == Some(at) => {
                let next = place.fork;
                self.shared.step(partition, Input::End { lane: Lane::Backfill, next });
            }
            Checked::Not | Checked::Known(_) => {
                place.end = Checked::Asked;
                self.asking.ask(Job::LogEnds(partition.clone(), epoch, Doubt::End));
            }
        }
    }

    /// The leader says where its log ends.
    pub(super) fn log_end_is(&mut self, partition: &TopicPartition, epoch: Epoch, end: KafkaResult<i64>) {
        if self.shared.epoch(partition) != Some(epoch) {
            return;
        }
        let Some(position) = self.shared.backfill_position(partition) else { return };
        let Some(place) = self.places.get_mut(partition) else { return };
        match end {
            Ok(end) if end >= place.fork => {
                place.end = Checked::Known(position);
                self.read_on(partition, epoch, Lane::Backfill);
            }
            told => {
                tracing::debug!("{partition} seems to end before its fork at {}: {told:?}", place.fork);
                self.later.push((Instant::now() + AGAIN, Later::LogEnd(partition.clone(), epoch)));
            }
        }
    }
}
