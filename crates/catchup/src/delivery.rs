//! What the application gets: records, and the tokens that say they are finished.

use std::fmt;
use std::sync::Arc;

use rdkafka::message::OwnedMessage;

use crate::shared::Shared;
use crate::{AckOutcome, Epoch, Lane};

/// One partition of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Number of the partition.
    pub partition: i32,
}

impl TopicPartition {
    /// That partition of that topic.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A record in the application's hand. Until it is acknowledged the committed offset does not pass it: dropping it means "not
/// finished", and it will be delivered again to whoever has the partition next.
#[derive(Debug)]
#[must_use = "a record that is not acknowledged holds the committed offset back"]
pub struct Delivery {
    pub(crate) record: OwnedMessage,
    pub(crate) lane: Lane,
    pub(crate) fork: Option<i64>,
    pub(crate) ack: Ack,
}

impl Delivery {
    /// The record; [`rdkafka::Message`] has its parts.
    #[must_use]
    pub fn record(&self) -> &OwnedMessage {
        &self.record
    }

    /// The lane it came through.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The assignment it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.ack.epoch
    }

    /// Where the live lane of this assignment began; `None` when there was no fork.
    #[must_use]
    pub fn fork(&self) -> Option<i64> {
        self.fork
    }

    /// Says that the record is finished.
    pub fn ack(self) -> AckOutcome {
        self.ack.ack()
    }

    /// Gives the record back: it comes again in this process, in the same lane, after those that are queued already. When the
    /// partition is leaving it is let go, and the next owner gets it.
    pub fn defer(self) {
        self.ack.shared.defer(self.ack.epoch, self.record);
    }

    /// The record, and the token to acknowledge it with, for instance in another task.
    pub fn into_parts(self) -> (OwnedMessage, Ack) {
        (self.record, self.ack)
    }
}

/// The token of one record, detached from it. Dropping it means "not finished", as with a [`Delivery`].
#[must_use = "a record that is not acknowledged holds the committed offset back"]
pub struct Ack {
    pub(crate) shared: Arc<Shared>,
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) offset: i64,
}

impl Ack {
    /// Says that the record is finished.
    pub fn ack(self) -> AckOutcome {
        self.shared.ack(self.epoch, self.offset)
    }

    /// Where the record is from.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Its offset.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, epoch, offset, .. } = self;
        write!(f, "Ack({partition}@{offset}, epoch {})", epoch.0)
    }
}
