//! The whole table as records.

use std::sync::Arc;

use super::Offsets;
use super::codec;
use super::record::{Change, Mark, Store, Write};
use super::table::{Slots, TopicKey};
use crate::types::Timestamp;

/// Rows in one record, at most, and bytes of metadata about.
const ROWS_PER_RECORD: usize = 4_096;
const METADATA_PER_RECORD: usize = 256 << 10;

/// One group: its name, whether it has members, its topics.
type FrozenGroup = (Arc<str>, Mark, Vec<(TopicKey, Slots)>);

/// The table as it was when it was frozen. It costs a reference count per group and topic; later changes copy what
/// they touch, so that it can be written out while the table goes on.
#[derive(Debug)]
pub struct Frozen {
    groups: Vec<FrozenGroup>,
}

impl Offsets {
    /// What the table holds now, which is the effect of every record that was settled.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let mut groups: Vec<_> = self
            .table
            .groups
            .iter()
            .map(|(group, offsets)| (group.clone(), offsets.mark, offsets.topics.clone()))
            .collect();
        groups.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        Frozen { groups }
    }
}

impl Frozen {
    /// Records that make an empty table this one. None is much larger than 300 KiB.
    pub fn records(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.groups.iter().flat_map(|(group, mark, topics)| {
            let mut records = group_records(group, topics);
            if *mark != Mark::Never {
                records.push(codec::encode(&Change::Mark { group: group.clone(), mark: *mark }));
            }
            records
        })
    }
}

fn group_records(group: &Arc<str>, topics: &[(TopicKey, Slots)]) -> Vec<Vec<u8>> {
    let mut chunk = Chunk { group, records: Vec::new(), topics: Vec::new(), rows: 0, metadata: 0 };
    for (key, slots) in topics {
        chunk.topics.push((key.clone(), Vec::new()));
        for slot in slots.iter() {
            if chunk.is_full() {
                chunk.flush();
                chunk.topics.push((key.clone(), Vec::new()));
            }
            chunk.rows += 1;
            chunk.metadata += slot.value.metadata().len();
            if let Some((_, writes)) = chunk.topics.last_mut() {
                writes.push(Write { partition: slot.partition, value: Some(slot.value.clone()) });
            }
        }
    }
    chunk.flush();
    chunk.records
}

struct Chunk<'a> {
    group: &'a Arc<str>,
    records: Vec<Vec<u8>>,
    topics: Vec<(TopicKey, Vec<Write>)>,
    rows: usize,
    metadata: usize,
}

impl Chunk<'_> {
    fn is_full(&self) -> bool {
        self.rows >= ROWS_PER_RECORD || self.metadata >= METADATA_PER_RECORD
    }

    fn flush(&mut self) {
        let topics = std::mem::take(&mut self.topics);
        let first = topics.iter().find_map(|(_, writes)| writes.first()?.value.as_ref());
        let at = first.map_or(Timestamp(0), |value| value.commit_time);
        if self.rows > 0 {
            let store = Store { group: self.group.clone(), by_member: false, at, topics };
            self.records.push(codec::encode(&Change::Store(store)));
        }
        self.rows = 0;
        self.metadata = 0;
    }
}

#[cfg(test)]
mod tests;
