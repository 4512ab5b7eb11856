//! Records on their way from a client to the application.
//!
//! The thread that drives the clients copies them one after the other into a block, one for each batch, and the task that receives a
//! record makes of it what the application gets. So most allocations are made and freed by the same thread, which costs an allocator
//! far less than one that makes what others free, and the thread that all records go through does less. A block has the bytes of the
//! records that are kept, and no more: what a partition counts is what it has in memory. It is let go with the last record of its batch
//! that leaves the queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdkafka::Timestamp;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers, Message, OwnedHeaders, OwnedMessage};

use crate::delivery::TopicPartition;
use crate::partition::Taken;

/// Longer keys and values are not put into a block, in bytes: copying them once more would cost more than allocating them.
const IN_BLOCK_MAX: usize = 1_024;

/// A key or a value.
#[derive(Debug)]
enum Part {
    Null,
    /// Start and length in the block of its batch.
    InBlock(u32, u32),
    Own(Vec<u8>),
}

impl Part {
    /// Moves it down in the block of its batch, to `end`, which goes up behind it. Parts are moved in the order in which they were added,
    /// so none is written over.
    fn move_down(&mut self, block: &mut [u8], end: &mut u32) {
        let Self::InBlock(start, length) = self else { return };
        if start != end {
            block.copy_within(*start as usize..(*start + *length) as usize, *end as usize);
            *start = *end;
        }
        *end += *length;
    }

    fn into_bytes(self, block: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Null => None,
            Self::InBlock(start, length) => {
                let (start, length) = (start as usize, length as usize);
                debug_assert!(start + length <= block.len(), "{start} and {length} bytes of {}", block.len());
                Some(block.get(start..start + length).unwrap_or_default().to_vec())
            }
            Self::Own(bytes) => Some(bytes),
        }
    }
}

#[derive(Debug)]
struct Parts {
    offset: i64,
    timestamp: Timestamp,
    key: Part,
    value: Part,
    headers: Option<OwnedHeaders>,
}

/// A record that the application does not have.
#[derive(Debug)]
pub(crate) enum Record {
    /// As it was fetched, with the block of its batch.
    Fetched(Fetched),
    /// The application gave it back.
    Back(OwnedMessage),
}

/// A record of a batch.
#[derive(Debug)]
pub(crate) struct Fetched {
    parts: Parts,
    block: Arc<[u8]>,
}

impl Record {
    pub(crate) fn offset(&self) -> i64 {
        match self {
            Self::Fetched(fetched) => fetched.parts.offset,
            Self::Back(record) => record.offset(),
        }
    }

    /// The record of that partition as the application gets it.
    pub(crate) fn into_message(self, of: &TopicPartition) -> OwnedMessage {
        match self {
            Self::Fetched(Fetched { parts, block }) => {
                let Parts { offset, timestamp, key, value, headers } = parts;
                let (key, value) = (key.into_bytes(&block), value.into_bytes(&block));
                OwnedMessage::new(value, key, of.topic.as_ref().to_owned(), timestamp, of.partition, offset, headers)
            }
            Self::Back(record) => record,
        }
    }
}

/// Records of one lane of one partition, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Kept from one batch to the next for its memory: records get a copy.
    block: Vec<u8>,
    /// Each with what it weighs in memory.
    records: Vec<(Parts, u64)>,
    /// What becomes of them; empty until they are handed over.
    taken: Vec<Taken>,
}

impl Batch {
    /// Adds a copy of a record, and answers what it weighs in memory: key, value and headers, in bytes.
    pub(crate) fn push(&mut self, record: &BorrowedMessage<'_>) -> u64 {
        // librdkafka parses them anew each time that it is asked, also of a record without any.
        let headers = record.headers().map(BorrowedHeaders::detach);
        self.push_parts(record.offset(), record.timestamp(), record.key(), record.payload(), headers)
    }

    pub(crate) fn push_parts(
        &mut self,
        offset: i64,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Option<OwnedHeaders>,
    ) -> u64 {
        let mut bytes = headers.as_ref().map_or(0, weight);
        let mut part = |part: Option<&[u8]>| {
            let Some(part) = part else { return Part::Null };
            bytes += part.len();
            match (u32::try_from(self.block.len()), u32::try_from(part.len())) {
                (Ok(start), Ok(length)) if part.len() <= IN_BLOCK_MAX => {
                    self.block.extend_from_slice(part);
                    Part::InBlock(start, length)
                }
                _ => Part::Own(part.to_vec()),
            }
        };
        let (key, value) = (part(key), part(value));
        let bytes = bytes as u64;
        self.records.push((Parts { offset, timestamp, key, value, headers }, bytes));
        bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Takes all records out. `take` says of each, by its offset and what it weighs, what becomes of it; those that are not dropped come
    /// out, with a block of their bytes alone.
    pub(crate) fn hand_over(
        &mut self,
        mut take: impl FnMut(i64, u64) -> Taken,
    ) -> impl Iterator<Item = (Record, Taken)> {
        let Self { block, records, taken } = self;
        let mut end = 0;
        records.retain_mut(|(parts, bytes)| {
            let what = take(parts.offset, *bytes);
            if what == Taken::Drop {
                return false;
            }
            parts.key.move_down(block, &mut end);
            parts.value.move_down(block, &mut end);
            taken.push(what);
            true
        });
        let kept: Arc<[u8]> = Arc::from(block.get(..end as usize).unwrap_or_default());
        block.clear();
        let fetched = move |parts| Record::Fetched(Fetched { parts, block: Arc::clone(&kept) });
        records.drain(..).zip(taken.drain(..)).map(move |((parts, _), taken)| (fetched(parts), taken))
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        self.block.clear();
        self.records.clear();
    }
}

/// Bytes of headers.
fn weight(headers: &OwnedHeaders) -> usize {
    let bytes = || headers.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len)).sum();
    // rust-rdkafka panics over a name that is not UTF-8, and brokers may take such a record. It weighs its key and value then.
    catch_unwind(AssertUnwindSafe(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rdkafka::message::Header;

    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_and_weigh_what_they_have() {
        let partition = TopicPartition::new("orders", 3);
        let long = vec![7; IN_BLOCK_MAX + 1];
        let keys: [Option<&[u8]>; 6] = [None, Some(b""), Some(b"key"), None, Some(&long), Some(b"k")];
        let values = [None, None, Some(&b""[..]), Some(&long[1..]), Some(b"v"), Some(&long)];
        let all: Vec<_> = keys.into_iter().zip(values).collect();
        let mut batch = Batch::default();
        // The second time with what the first one left.
        for _ in 0..2 {
            for (offset, (key, value)) in (5_i64..).zip(all.clone()) {
                let header = Header { key: "name", value: Some("four") };
                let headers = (offset == 6).then(|| OwnedHeaders::new().insert(header));
                let bytes = batch.push_parts(offset, Timestamp::CreateTime(offset * 2), key, value, headers);
                let parts = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
                assert_eq!(bytes, parts as u64 + if offset == 6 { 8 } else { 0 });
            }
            let drained: Vec<_> = batch.hand_over(|_, _| Taken::Deliver).collect();
            assert!(batch.is_empty() && drained.len() == all.len());
            for ((offset, (key, value)), (record, _)) in (5_i64..).zip(all.clone()).zip(drained) {
                assert_eq!(record.offset(), offset);
                let message = record.into_message(&partition);
                assert_eq!((message.topic(), message.partition(), message.offset()), ("orders", 3, offset));
                assert_eq!((message.key(), message.payload()), (key, value));
                assert_eq!(message.timestamp(), Timestamp::CreateTime(offset * 2));
                assert_eq!(message.headers().map_or(0, Headers::count), usize::from(offset == 6));
                let back = Record::Back(message);
                assert_eq!(back.offset(), offset);
                assert_eq!(back.into_message(&partition).payload(), value);
            }
        }
    }

    fn block_of(record: &Record) -> &Arc<[u8]> {
        let Record::Fetched(Fetched { block, .. }) = record else { panic!("fetched") };
        block
    }

    #[test]
    fn a_block_goes_with_the_last_record_of_its_batch() {
        let mut batch = Batch::default();
        for offset in 0..3 {
            batch.push_parts(offset, Timestamp::NotAvailable, None, Some(&[1; 10]), None);
        }
        let mut drained: Vec<_> = batch.hand_over(|_, _| Taken::Deliver).map(|(record, _)| record).collect();
        let last = drained.pop().unwrap();
        let block = Arc::downgrade(block_of(&last));
        drop(drained);
        assert!(block.upgrade().is_some_and(|block| block.len() == 30));
        drop(last);
        assert!(block.upgrade().is_none());
    }

    proptest! {
        /// Of a batch that kept much or little, or nothing, behind batches that were larger or smaller.
        #[test]
        fn blocks_have_the_bytes_of_the_records_that_are_kept_and_no_more(
            batches in prop::collection::vec(
                prop::collection::vec((0..2 * IN_BLOCK_MAX, 0..2 * IN_BLOCK_MAX, 0..3_usize), 0..40), 1..6),
        ) {
            let mut batch = Batch::default();
            for records in batches {
                let bytes = |offset: i64, length: usize| vec![offset.to_le_bytes()[0]; length];
                for (offset, (key, value, _)) in (0_i64..).zip(&records) {
                    let (key, value) = (bytes(offset, *key), bytes(offset + 100, *value));
                    batch.push_parts(offset, Timestamp::NotAvailable, Some(&key), Some(&value), None);
                }
                let what = |offset: i64| [Taken::Drop, Taken::Hold, Taken::Deliver][records[usize::try_from(offset).unwrap()].2];
                let out: Vec<_> = batch.hand_over(|offset, _| what(offset)).collect();
                prop_assert!(batch.is_empty());
                let kept: Vec<i64> = (0..).take(records.len()).filter(|offset| what(*offset) != Taken::Drop).collect();
                prop_assert_eq!(out.iter().map(|(record, _)| record.offset()).collect::<Vec<_>>(), kept.clone());
                let in_block = |length: usize| if length <= IN_BLOCK_MAX { length } else { 0 };
                let counted = kept.iter().map(|offset| records[usize::try_from(*offset).unwrap()]);
                let counted: usize = counted.map(|(key, value, _)| in_block(key) + in_block(value)).sum();
                for (record, _) in &out {
                    prop_assert_eq!(block_of(record).len(), counted);
                    prop_assert!(Arc::ptr_eq(block_of(record), block_of(&out[0].0)));
                }
                for (record, taken) in out {
                    let offset = record.offset();
                    prop_assert_eq!(taken, what(offset));
                    let (key, value, _) = records[usize::try_from(offset).unwrap()];
                    let message = record.into_message(&TopicPartition::new("orders", 3));
                    prop_assert_eq!(message.key(), Some(&bytes(offset, key)[..]));
                    prop_assert_eq!(message.payload(), Some(&bytes(offset + 100, value)[..]));
                }
            }
        }
    }
}
