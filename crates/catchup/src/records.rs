//! Records on their way from a client to the application.
//!
//! The thread that drives the clients copies them one after the other into a block, one for each batch, and the task that receives a
//! record makes of it what the application gets. So most allocations are made and freed by the same thread, which costs an allocator
//! far less than one that makes what others free, and the thread that all records go through does less. A block is let go with the
//! last record of its batch that leaves the queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdkafka::Timestamp;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers, Message, OwnedHeaders, OwnedMessage};

use crate::delivery::TopicPartition;

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
    fn into_bytes(self, block: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Null => None,
            Self::InBlock(start, length) => {
                let (start, length) = (start as usize, length as usize);
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
    block: Arc<Vec<u8>>,
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
    block: Vec<u8>,
    /// Each with what it weighs in memory.
    records: Vec<(Parts, u64)>,
    /// Bytes that the last block had.
    last: usize,
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
        if self.records.is_empty() {
            self.block.reserve(self.last);
        }
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

    /// Takes all records out, each with what it weighs.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Record, u64)> {
        self.last = self.block.len();
        let block = Arc::new(std::mem::take(&mut self.block));
        let fetched = move |parts| Record::Fetched(Fetched { parts, block: Arc::clone(&block) });
        self.records.drain(..).map(move |(parts, bytes)| (fetched(parts), bytes))
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
            let drained: Vec<_> = batch.drain().collect();
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

    #[test]
    fn a_block_goes_with_the_last_record_of_its_batch() {
        let mut batch = Batch::default();
        for offset in 0..3 {
            batch.push_parts(offset, Timestamp::NotAvailable, None, Some(&[1; 10]), None);
        }
        let mut drained: Vec<_> = batch.drain().map(|(record, _)| record).collect();
        let last = drained.pop().unwrap();
        let Record::Fetched(Fetched { block, .. }) = &last else { panic!("fetched") };
        let block = Arc::downgrade(block);
        drop(drained);
        assert!(block.upgrade().is_some_and(|block| block.len() == 30));
        drop(last);
        assert!(block.upgrade().is_none());
    }
}
