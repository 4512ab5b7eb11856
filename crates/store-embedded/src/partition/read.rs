//! Entries by offset.

use std::sync::Arc;

use bytes::Bytes;
use milena_store::{Entry, ReadLimit, StoreError};

use super::{Log, Partition};
use crate::fault::{Fault, Wait, failed};
use crate::format::{ENTRY_HEADER_BYTES, EntryHeader, entry_is_sound};
use crate::handles::Handle;
use crate::index::Place;
use crate::scan::{Scanner, Step};
use crate::segment::Segment;

/// Most bytes per call into the file system, unless one entry is larger: they stay in the cache of the processor
/// between the copy and the verification, which costs a fifth of the time otherwise.
const READ_BYTES_MAX: usize = 512 * 1024;
/// Least bytes per call: a small read costs as much as this.
const READ_BYTES_MIN: usize = 16 * 1024;
/// What may lie in a block before the wanted entry.
const BLOCK_BYTES_TO_SKIP: usize = 64 * 1024;

/// A read in progress.
struct Reading {
    entries: Vec<Entry>,
    /// The offset that is wanted next.
    want: u64,
    /// No entry from here on.
    end: u64,
    left: usize,
    at_least_one: bool,
    full: bool,
}

impl Partition {
    /// Reads; see [`milena_store::Store::read`].
    pub(crate) fn read(&self, from: u64, limit: ReadLimit, wait: Wait) -> Result<Vec<Entry>, Fault> {
        self.refuse_when_gone()?;
        loop {
            let bounds = self.bounds();
            if from < bounds.start || from > bounds.end {
                return Err(StoreError::OutOfRange { bounds }.into());
            }
            if from == bounds.end {
                return Ok(Vec::new());
            }
            let log = self.log.read().clone();
            let mut reading = Reading {
                entries: Vec::new(),
                want: from,
                end: bounds.end,
                left: limit.bytes,
                at_least_one: limit.at_least_one,
                full: false,
            };
            match self.read_log(&log, &mut reading, wait) {
                Ok(()) => return Ok(reading.entries),
                Err(Fault::WouldWait) => return Err(Fault::WouldWait),
                Err(error) => {
                    // Segments can go while they are being read, and so can the partition.
                    self.refuse_when_gone()?;
                    if from >= self.bounds().start {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn read_log(&self, log: &Log, reading: &mut Reading, wait: Wait) -> Result<(), Fault> {
        let first = log.partition_point(|segment| segment.base_offset() <= reading.want);
        let mut number = first.checked_sub(1).ok_or_else(|| self.missing(reading.want))?;
        while let Some(segment) = log.get(number) {
            let next = log.get(number + 1).map(|next| next.base_offset());
            let result = self.read_segment(segment, next, reading, wait);
            match result {
                Ok(()) => {}
                // What was read before the trouble is an answer.
                Err(Fault::Store(_)) if !reading.entries.is_empty() => return Ok(()),
                Err(fault) => return Err(fault),
            }
            if reading.full || reading.want >= reading.end || next != Some(reading.want) {
                if reading.entries.is_empty() && !reading.full && reading.want < reading.end {
                    return Err(self.missing(reading.want).into());
                }
                return Ok(());
            }
            number += 1;
        }
        Ok(())
    }

    fn missing(&self, offset: u64) -> StoreError {
        self.env.metrics.damaged_entries.add(1);
        tracing::error!(partition = ?self.id, offset, "a stored message is missing");
        StoreError::Broken { context: format!("{:?}: offset {offset} is missing", self.id) }
    }

    fn read_segment(
        &self,
        segment: &Arc<Segment>,
        next: Option<u64>,
        reading: &mut Reading,
        wait: Wait,
    ) -> Result<(), Fault> {
        let handle = segment.handle(&self.env, wait)?;
        let end = reading.end.min(next.unwrap_or(u64::MAX));
        let mut place = self.place_of(segment, &handle, reading.want, wait)?;
        let skipped = if place.offset < reading.want { BLOCK_BYTES_TO_SKIP } else { 0 };
        let mut bytes = reading.bytes_wanted(skipped);
        // What the next entry claims to need. It gets that much, whatever the index says: a damaged length passes over the
        // ends of blocks, and less would be asked for again and again.
        let mut claimed = None;
        while place.offset < end && !reading.full {
            let left = usize::try_from(segment.written().saturating_sub(place.position)).unwrap_or(usize::MAX);
            if left == 0 {
                break;
            }
            let bytes_now = match claimed.take() {
                Some(claimed) => claimed,
                None if bytes < left => segment.whole_entries(&handle, place.position, bytes),
                None => left,
            };
            let block = self.read_block(segment, &handle, place, bytes_now, wait)?;
            match reading.take(&block, handle.header.nonce, &mut place, end) {
                Parsed::All => bytes = reading.bytes_wanted(0),
                Parsed::NeedsBytes(needed) if needed <= left => claimed = Some(needed),
                Parsed::NeedsBytes(_) | Parsed::Damaged => {
                    place = self.around_damage(segment, &handle, reading.want, wait)?;
                    bytes = reading.bytes_wanted(0);
                }
            }
        }
        if place.offset < reading.end {
            self.hints.lock().add(segment.base_offset(), place);
        }
        Ok(())
    }

    fn read_block(
        &self,
        segment: &Segment,
        handle: &Handle,
        place: Place,
        bytes: usize,
        wait: Wait,
    ) -> Result<Bytes, Fault> {
        let mut buffer = self.env.pool.take(bytes);
        let target = buffer.as_mut().get_mut(..bytes).unwrap_or_default();
        let read = match wait {
            Wait::No => handle.file.read_at_cached(target, place.position),
            Wait::Yes => handle.file.read_at(target, place.position),
        };
        match read {
            Ok(read) if read == bytes => Ok(buffer.freeze().slice(..bytes)),
            Ok(_) => Err(self.missing(place.offset).into()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Fault::WouldWait),
            Err(error) => Err(failed(format_args!("reading {}", segment.path.display()), &error).into()),
        }
    }

    fn place_of(&self, segment: &Segment, handle: &Handle, offset: u64, wait: Wait) -> Result<Place, Fault> {
        match self.hints.lock().find(offset) {
            Some((base, place)) if base == segment.base_offset() => return Ok(place),
            _ => {}
        }
        segment.place_before(&self.env, handle, offset, wait)
    }

    /// The place of the whole entry that holds `want`, found by verifying every entry of its block.
    fn around_damage(&self, segment: &Segment, handle: &Handle, want: u64, wait: Wait) -> Result<Place, Fault> {
        if wait == Wait::No {
            return Err(Fault::WouldWait);
        }
        let path = segment.path.display();
        let unreadable = |error: std::io::Error| failed(format_args!("reading {path}"), &error);
        let from = segment.place_before(&self.env, handle, want, wait)?;
        let mut scanner = Scanner::new(&*handle.file, handle.header.nonce, from, segment.written());
        loop {
            let before = scanner.place();
            match scanner.step().map_err(unreadable)? {
                Step::Entry { header, .. } if header.codec != 0 && !header.is_hole() => {
                    let context = format!("{path}: codec {} at offset {} is not known", header.codec, before.offset);
                    return Err(StoreError::Broken { context }.into());
                }
                Step::Entry { header, .. } if header.end_offset() > want => return Ok(before),
                Step::Entry { .. } => {}
                Step::Bad(_) | Step::End => match scanner.find_next().map_err(unreadable)? {
                    Some(next) if next.offset <= want => scanner.skip_to(next),
                    _ => {
                        self.env.metrics.damaged_entries.add(1);
                        let Place { offset, position } = before;
                        tracing::error!(partition = ?self.id, %path, offset, position, "a stored entry is damaged");
                        let context = format!("{path}: the entry at offset {offset}, position {position} is damaged");
                        return Err(StoreError::Broken { context }.into());
                    }
                },
            }
        }
    }
}

/// How far the bytes of one call went.
enum Parsed {
    /// Entry after entry, up to the limit or to the end of the bytes.
    All,
    /// The next entry needs this many bytes from its start on.
    NeedsBytes(usize),
    /// The next entry is damaged.
    Damaged,
}

impl Reading {
    /// How many bytes to read for what is left, with `skipped` bytes before it.
    fn bytes_wanted(&self, skipped: usize) -> usize {
        let bytes = self.left.saturating_add(ENTRY_HEADER_BYTES).saturating_add(skipped);
        bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX)
    }

    /// Takes the entries in `block`, which starts at `place`, and moves the place behind them.
    fn take(&mut self, block: &Bytes, nonce: u32, place: &mut Place, end: u64) -> Parsed {
        let mut at = 0;
        while at < block.len() && place.offset < end {
            let rest = block.get(at..).unwrap_or_default();
            if rest.len() < ENTRY_HEADER_BYTES {
                return if at == 0 { Parsed::NeedsBytes(ENTRY_HEADER_BYTES) } else { Parsed::All };
            }
            let header = EntryHeader::peek(rest, nonce).filter(|header| header.base_offset == place.offset);
            let Some(header) = header else { return Parsed::Damaged };
            let wanted = header.end_offset() > self.want;
            if wanted && !self.fits(&header) {
                self.full = true;
                return Parsed::All;
            }
            let Some(entry) = rest.get(..header.entry_bytes()) else {
                // The bytes of an entry that is skipped need not be there.
                if !wanted {
                    place.offset = header.end_offset();
                    place.position += header.entry_bytes() as u64;
                    return Parsed::All;
                }
                return if at == 0 { Parsed::NeedsBytes(header.entry_bytes()) } else { Parsed::All };
            };
            if wanted {
                let is_hole = header.is_hole();
                if !entry_is_sound(entry) || (header.codec != 0 && !is_hole) {
                    return Parsed::Damaged;
                }
                let frames_from = at + ENTRY_HEADER_BYTES;
                // The next entry is the answer to whoever asks for a message that was cut out. Where there is none, a reader
                // would wait in front of the end for what never comes, so that is told.
                let ends_in_hole = self.entries.is_empty() && header.end_offset() >= self.end;
                if !is_hole || ends_in_hole {
                    self.entries.push(Entry {
                        base_offset: header.base_offset,
                        count: header.count,
                        append_time_micros: header.append_micros,
                        frames: block.slice(frames_from..at + header.entry_bytes()),
                    });
                }
                self.left = self.left.saturating_sub(header.frame_bytes as usize);
                self.want = header.end_offset();
            }
            at += header.entry_bytes();
            place.offset = header.end_offset();
            place.position += header.entry_bytes() as u64;
        }
        Parsed::All
    }

    fn fits(&self, header: &EntryHeader) -> bool {
        header.frame_bytes as usize <= self.left || (self.entries.is_empty() && self.at_least_one)
    }
}
