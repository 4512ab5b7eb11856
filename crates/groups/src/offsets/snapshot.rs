//! The whole table as records, part by part.

use std::sync::Arc;

use super::Offsets;
use super::codec;
use super::record::{Change, Mark, Store, Write};
use super::table::{Slots, TopicKey};
use crate::types::Timestamp;
use crate::walk::Walk;

/// Rows in one record, at most, and bytes of metadata about.
const ROWS_PER_RECORD: usize = 4_096;
const METADATA_PER_RECORD: usize = 256 << 10;

/// One group: its name, whether it has members, its topics.
type FrozenGroup = (Arc<str>, Mark, Vec<(TopicKey, Slots)>);

/// Part of the table as it was when it was frozen. It costs a reference count per group and topic; later changes copy what
/// they touch, so that it can be written out while the table goes on.
#[derive(Debug)]
pub struct Frozen {
    groups: Vec<FrozenGroup>,
}

impl Offsets {
    /// What the next slice of a walk over the table holds, which is the effect of every record that was settled.
    ///
    /// The slices of one walk make a snapshot if no record is settled while it is under way. Offsets that expire and topics
    /// that are deleted in the meantime do no harm: their records are appended behind the snapshot, and take away from it
    /// what an earlier slice still had.
    #[must_use]
    pub fn freeze(&self, walk: &mut Walk) -> Frozen {
        let mut groups = Vec::new();
        for (group, offsets) in walk.next_of(&self.table.groups) {
            groups.push((group.clone(), offsets.mark, offsets.topics.clone()));
            if !walk.passed(group, offsets.topics.len()) {
                break;
            }
        }
        Frozen { groups }
    }
}

impl Frozen {
    /// Records that put this part into an empty table. None is much larger than 300 KiB.
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
