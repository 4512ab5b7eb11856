//! Consumer offsets that a crash left behind the ends of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use milena_server::answered;
use milena_store::{StoreError, TopicRef};

use super::{Incarnation, Record, State, Table};

/// Partitions that are looked at side by side. The first look at one opens it.
const LOOKS_AT_ONCE: usize = 16;

/// Partitions in one record.
const ENDS_MAX: usize = 1_000;

impl State {
    /// Moves offsets that lie beyond the end of their partition back to its last message, or forgets them where there is none:
    /// a crash took messages that were read, and those that come in their place are to be read. So this has to be over before
    /// anybody can append. Not for offsets that may be anything.
    ///
    /// # Errors
    /// When the store does not answer for 60 s. A partition that cannot be read keeps its offsets.
    pub(crate) async fn settle_offsets(&self) -> Result<(), StoreError> {
        let highest = self.look(Table::highest_offsets);
        if highest.is_empty() {
            return Ok(());
        }
        for info in answered("the list of topics", self.store.topics()).await? {
            let of = Incarnation::of(&info.topic);
            let Some(highest) = highest.get(&of) else { continue };
            let passed = self.passed_ends(&info.topic, highest).await?;
            if let Some((partition, end)) = passed.first() {
                let (topic, partitions) = (info.topic.topic(), passed.len());
                tracing::warn!(topic, partitions, partition, end, "offsets beyond the ends of partitions move back");
            }
            for ends in passed.chunks(ENDS_MAX) {
                let record = Record::Ends { of, ends: ends.to_vec() };
                answered("a record of Iggy consumer offsets", self.write(record)).await?;
            }
        }
        Ok(())
    }

    /// The partitions that end at or before the highest offset that is stored for them, with their ends.
    async fn passed_ends(&self, topic: &TopicRef, highest: &BTreeMap<u32, u64>) -> Result<Vec<(u32, u64)>, StoreError> {
        let look = |(partition, offset): (&u32, &u64)| {
            let (store, at, offset) = (Arc::clone(&self.store), topic.partition(*partition), *offset);
            async move { (at.partition, offset, answered("the end of a partition", store.bounds(&at)).await) }
        };
        let looks: Vec<_> = highest.iter().map(look).collect();
        let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
        let mut passed = Vec::new();
        while let Some((partition, offset, bounds)) = looks.next().await {
            match bounds {
                Ok(bounds) if offset >= bounds.end => passed.push((partition, bounds.end)),
                Ok(_) => {}
                // The others would be waited for as long, one after the other.
                Err(error @ StoreError::Busy { .. }) => return Err(error),
                Err(error) => {
                    let topic = topic.topic();
                    tracing::warn!(topic, partition, %error, "offsets are kept without a look at the end");
                }
            }
        }
        passed.sort_unstable();
        Ok(passed)
    }
}
