//! Messages by time. Blocks and entries whose largest time is too small are skipped; the rest is looked at message by
//! message, so answers are exact also when times are out of order.

use std::sync::Arc;

use milena_store::frame::Frames;
use milena_store::{Bounds, Found, StoreError, TimeKind};

use super::Partition;
use crate::fault::{Fault, Wait, failed};
use crate::format::EntryHeader;
use crate::handles::Handle;
use crate::index::{Block, Place};
use crate::scan::{Scanner, Step};
use crate::segment::Segment;

impl Partition {
    /// See [`milena_store::Store::find`].
    pub(crate) fn find(&self, from: u64, time: u64, kind: TimeKind) -> Result<Option<Found>, StoreError> {
        self.while_retained(|bounds| {
            let from = from.max(bounds.start);
            for segment in self.segments_from(from) {
                if from >= bounds.end || largest(segment.maxima(&self.env)?, kind) < Some(time) {
                    continue;
                }
                let handle = segment.handle(&self.env, Wait::Yes).map_err(Fault::into_store)?;
                let index = segment.index_now(&self.env, &handle)?;
                for (start, block) in index.blocks() {
                    if block.end_offset <= from || of_block(&block, kind) < time {
                        continue;
                    }
                    let mut found = None;
                    self.each_message(&segment, &handle, (start, block), kind, |message| {
                        if message.offset >= from && message.time_micros >= time {
                            found = Some(message);
                        }
                        found.is_none()
                    })?;
                    if found.is_some() {
                        return Ok(found.filter(|found| found.offset < bounds.end));
                    }
                }
            }
            Ok(None)
        })
    }

    /// See [`milena_store::Store::newest`].
    pub(crate) fn newest(&self, kind: TimeKind) -> Result<Option<Found>, StoreError> {
        self.while_retained(|bounds| {
            let mut segments = Vec::new();
            for segment in self.segments_from(bounds.start) {
                if let Some(time) = largest(segment.maxima(&self.env)?, kind) {
                    segments.push((time, segment.base_offset(), segment));
                }
            }
            // The most promising first, so that few blocks are looked at; of equal ones the oldest.
            segments.sort_by_key(|(time, offset, _)| (std::cmp::Reverse(*time), *offset));
            let mut best: Option<Found> = None;
            for (time, offset, segment) in segments {
                if hopeless(best, time, offset) {
                    continue;
                }
                let handle = segment.handle(&self.env, Wait::Yes).map_err(Fault::into_store)?;
                let index = segment.index_now(&self.env, &handle)?;
                let mut blocks: Vec<(Place, Block)> = index.blocks().collect();
                blocks.retain(|(_, block)| block.end_offset > bounds.start);
                blocks.sort_by_key(|(start, block)| (std::cmp::Reverse(of_block(block, kind)), start.offset));
                for (start, block) in blocks {
                    if hopeless(best, of_block(&block, kind), start.offset) {
                        continue;
                    }
                    self.each_message(&segment, &handle, (start, block), kind, |message| {
                        let retained = message.offset >= bounds.start && message.offset < bounds.end;
                        if retained && !hopeless(best, message.time_micros, message.offset) {
                            best = Some(message);
                        }
                        true
                    })?;
                }
            }
            Ok(best)
        })
    }

    /// Runs a search; once more when segments went away under it.
    fn while_retained<T>(&self, search: impl Fn(Bounds) -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            self.refuse_when_gone()?;
            let bounds = self.bounds();
            match search(bounds) {
                Err(error) if self.bounds().start == bounds.start => {
                    self.refuse_when_gone()?;
                    return Err(error);
                }
                Err(_) => {}
                answer => return answer,
            }
        }
    }

    /// The segments from the one that holds `offset` on.
    fn segments_from(&self, offset: u64) -> Vec<Arc<Segment>> {
        let log = self.log.read();
        let first = log.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1);
        log.iter().skip(first).cloned().collect()
    }

    /// Calls `look` with every message of a block until it answers false.
    fn each_message(
        &self,
        segment: &Segment,
        handle: &Handle,
        (start, block): (Place, Block),
        kind: TimeKind,
        mut look: impl FnMut(Found) -> bool,
    ) -> Result<(), StoreError> {
        let mut scanner = Scanner::new(&*handle.file, handle.header.nonce, start, block.end_position);
        loop {
            let step = scanner.step();
            match step.map_err(|error| failed(format_args!("reading {}", segment.path.display()), &error))? {
                Step::Entry { header, position } => {
                    let frames = scanner.frames(&header, position);
                    if !each_of_entry(&header, frames, kind, &mut look) {
                        return Ok(());
                    }
                }
                Step::Bad(Place { offset, position }) => {
                    let path = segment.path.display();
                    tracing::error!(partition = ?self.id, %path, offset, position, "a stored entry is damaged");
                    let context = format!("{path}: the entry at offset {offset}, position {position} is damaged");
                    return Err(StoreError::Broken { context });
                }
                Step::End => return Ok(()),
            }
        }
    }
}

/// Every message of an entry; false once `look` answered false.
fn each_of_entry(header: &EntryHeader, frames: &[u8], kind: TimeKind, look: &mut impl FnMut(Found) -> bool) -> bool {
    for (offset, frame) in (header.base_offset..).zip(Frames::new(frames)) {
        let time_micros = match kind {
            TimeKind::Origin if frame.origin_micros != 0 => frame.origin_micros,
            TimeKind::Origin | TimeKind::Append => header.append_micros,
        };
        if !look(Found { offset, time_micros }) {
            return false;
        }
    }
    true
}

/// True when no message of at most that time, from that offset on, comes before the best one found.
fn hopeless(best: Option<Found>, time: u64, offset: u64) -> bool {
    best.is_some_and(|best| time < best.time_micros || (time == best.time_micros && offset > best.offset))
}

fn of_block(block: &Block, kind: TimeKind) -> u64 {
    match kind {
        TimeKind::Origin => block.time_max,
        TimeKind::Append => block.append_max,
    }
}

fn largest(maxima: Option<(u64, u64)>, kind: TimeKind) -> Option<u64> {
    maxima.map(|(time, append)| if kind == TimeKind::Origin { time } else { append })
}
