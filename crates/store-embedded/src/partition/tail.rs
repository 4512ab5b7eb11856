//! From verified files to a writer.

use std::sync::atomic::Ordering;

use milena_store::StoreError;

use super::recover::Origin;
use super::verify::{Recovery, Verified};
use crate::fault::failed;
use crate::format::{ENTRY_HEADER_BYTES, EntryHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::fs::{File, read_exact_at};

/// State of the writer after recovery.
pub(super) struct Tail {
    pub(super) end: u64,
    pub(super) first_append: Option<u64>,
    pub(super) indexed: (usize, u64),
    pub(super) durable_end: u64,
    /// Number of the first segment that is not known to be flushed.
    pub(super) unflushed_from: usize,
    pub(super) unflushed_names: bool,
}

impl Recovery<'_> {
    /// Prepares the newest segment for appends.
    pub(super) fn tail(&mut self) -> Result<Tail, StoreError> {
        let start = self.start;
        let nothing = (0, SEGMENT_HEADER_BYTES as u64);
        let evidence = self.evidence;
        let Some(last) = self.segments.last_mut() else {
            let (end, unflushed_names) = (start, self.has_dir);
            let durable_end = if self.has_dir { 0 } else { start };
            let (first_append, indexed) = (None, nothing);
            return Ok(Tail { end, first_append, indexed, durable_end, unflushed_from: 0, unflushed_names });
        };
        let Some(Verified { file, header, index, indexed, end, .. }) = last.verified.take() else {
            return Err(StoreError::Broken { context: format!("{} is unreadable", last.segment.path.display()) });
        };
        let mut indexed = (indexed, index.start_of(indexed).position);
        if indexed.0 == 0 {
            last.segment.replace_index(self.env, &header, &index);
            indexed = (index.closed().len(), index.closed_end().position);
        }
        last.segment.written.store(end.position, Ordering::Release);
        if self.origin != Origin::Closed {
            // The size may be in memory only, and what was cut off before on the device still.
            let cut = file.truncate(end.position);
            cut.map_err(|error| failed(format_args!("cutting {}", last.segment.path.display()), &error))?;
        }
        let first_append = first_append_of(&*file, &header);
        let refresh_from = index.place_before(evidence.max(header.base_offset));
        *last.segment.live.write() = Some(index);
        let ends = self.segments.iter().skip(1).map(|found| found.segment.base_offset()).chain([end.offset]);
        // The newest one is always among them, since it was just cut to size.
        let newest = self.segments.len() - 1;
        let unflushed_from = ends.take_while(|end| *end <= evidence).count().min(newest);
        let mut tail = Tail {
            end: end.offset,
            first_append,
            indexed,
            durable_end: evidence.min(end.offset),
            unflushed_from,
            unflushed_names: true,
        };
        if self.origin == Origin::Closed {
            tail.all_flushed(self.segments.len());
            return Ok(tail);
        }
        for (number, found) in self.segments.iter().enumerate().skip(unflushed_from) {
            // The header is among what may not have been written, unless some of the entries are known to be.
            let from = if number == newest && evidence > header.base_offset { refresh_from.position } else { 0 };
            found.segment.doubt(from..found.segment.written());
        }
        Ok(tail)
    }
}

impl Tail {
    fn all_flushed(&mut self, segments: usize) {
        self.durable_end = self.end;
        self.unflushed_from = segments;
        self.unflushed_names = false;
    }
}

fn first_append_of(file: &dyn File, header: &SegmentHeader) -> Option<u64> {
    let mut head = [0; ENTRY_HEADER_BYTES];
    let whole = read_exact_at(file, &mut head, SEGMENT_HEADER_BYTES as u64).ok()?;
    let first = EntryHeader::peek(&head, header.nonce).filter(|_| whole)?;
    Some(first.append_micros)
}
