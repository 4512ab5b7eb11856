//! Logs of which reads leave messages out without a word, as a server does whose files have holes.

use std::ops::Range;

use super::*;
use crate::engine::StoreFuture;
use crate::state_log::port::Port;
use crate::testing::{Layer, Layered};
use crate::types::{Entry, PartitionRef, ReadLimit};

/// A store that delivers what is behind the hole to whoever asks for what is in it.
struct Holed {
    memory: MemoryStore,
    hole: Range<u64>,
}

impl Layer for Holed {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        Box::pin(async move {
            let from = if self.hole.contains(&from) { self.hole.end } else { from };
            let end = self.memory.bounds(at).await?.end;
            if from >= end {
                return Ok(Vec::new());
            }
            let mut entries = self.memory.read(at, from, limit).await?;
            entries.retain(|entry| !self.hole.contains(&entry.base_offset));
            Ok(entries)
        })
    }
}

/// What is read of a log with that hole.
fn open_holed(memory: &MemoryStore, hole: Range<u64>) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut table: Vec<Vec<u8>> = Vec::new();
    // A copy, since opening writes a claim.
    let store = Arc::new(Layered(Holed { memory: memory.copy(), hole }));
    let opened = StateLog::open(store, TOPIC, StateLogOptions::default(), |event| match event {
        StateEvent::Reset => table.clear(),
        StateEvent::Record(record) => table.push(record.to_vec()),
    });
    pollster::block_on(opened)?;
    Ok(table)
}

/// What a reader is told of a log that has a hole now.
fn follow_holed(memory: &MemoryStore, hole: Range<u64>) -> Result<Vec<Vec<u8>>, StoreError> {
    let port = Port::open(Arc::new(Layered(Holed { memory: memory.copy(), hole })), TOPIC, StateLogOptions::default());
    let mut reader = StateLogReader::new(pollster::block_on(port)?);
    let mut table: Vec<Vec<u8>> = Vec::new();
    pollster::block_on(reader.follow(|event| match event {
        StateEvent::Reset => table.clear(),
        StateEvent::Record(record) => table.push(record.to_vec()),
    }))?;
    Ok(table)
}

#[test]
fn a_log_with_a_hole_anywhere_is_an_error_and_never_a_shorter_table() {
    let store = MemoryStore::new();
    // Two terms, a snapshot in several messages, and records on both of its sides.
    let options = StateLogOptions { chunk_bytes: 1, ..StateLogOptions::default() };
    let (log, _) = open_with(&store, options.clone()).unwrap();
    for record in [b"a", b"b", b"c"] {
        append(&log, record).unwrap();
    }
    drop(log);
    let (log, table) = open_with(&store, options).unwrap();
    pollster::block_on(log.snapshot(table)).unwrap();
    for record in [b"d", b"e"] {
        append(&log, record).unwrap();
    }
    let whole = [b"a", b"b", b"c", b"d", b"e"];
    assert_eq!(open_holed(&store, 0..0).unwrap(), whole);
    let Bounds { start, end } = bounds(&store, &log);
    assert!(start > 0 && end - start >= 5, "{start}..{end}");
    for from in start..end {
        for until in from + 1..=end {
            for read in [open_holed(&store, from..until), follow_holed(&store, from..until)] {
                assert!(matches!(read, Err(StoreError::Broken { .. })), "{from}..{until}: {read:?}");
            }
        }
    }
}
