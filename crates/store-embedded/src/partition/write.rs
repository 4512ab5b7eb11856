//! Entries into the active segment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_store::{Durability, StoreError};

use super::append::Prepared;
use super::{Partition, Writer};
use crate::config::Effective;
use crate::fault::{Fault, Wait, failed};
use crate::format::{ENTRY_HEADER_BYTES, EntryHeader, SEGMENT_HEADER_BYTES};
use crate::fs::Fs;
use crate::handles::Handle;
use crate::index::{self, Block, Index, Place};
use crate::segment::Segment;
#[cfg(test)]
use crate::tests::Mutant;

/// What a group of appends became.
pub(crate) struct Written {
    /// How many appends of the group were taken.
    pub(crate) appends: usize,
    /// Offset of the first message.
    pub(crate) base_offset: u64,
    /// Offset behind the last message.
    pub(crate) end_offset: u64,
    /// Append time of all of them.
    pub(crate) append_micros: u64,
    /// Bytes of frames.
    pub(crate) frame_bytes: usize,
    /// True when the policy wants them on the device before the answer.
    pub(crate) must_flush: bool,
    /// True when they must not be seen before that.
    pub(crate) hidden: bool,
}

impl Partition {
    /// Writes as many appends of the group as fit into the active segment, and one at least.
    pub(super) fn write_group(&self, group: &[Prepared]) -> Result<Written, StoreError> {
        let mut writer = self.writer.lock();
        let effective = self.effective();
        self.write_locked(&mut writer, &effective, group, Wait::Yes).map_err(Fault::into_store)
    }

    /// Flushes what was written if the policy says so, and makes it readable.
    pub(super) fn settle(&self, written: &Written) -> Result<(), StoreError> {
        if !written.hidden {
            self.publish(written.end_offset, written.frame_bytes);
        }
        #[cfg(test)]
        let written =
            &Written { must_flush: written.must_flush && self.env.mutant != Mutant::AnswersBeforeFlush, ..*written };
        if written.must_flush {
            self.flush_up_to(written.end_offset)?;
        }
        if written.hidden {
            self.publish(written.end_offset, written.frame_bytes);
        }
        Ok(())
    }

    /// True when the append needs neither a flush nor a new segment.
    pub(super) fn is_quick(&self, writer: &Writer, effective: &Effective, append: &Prepared) -> bool {
        let Some(active) = &writer.active else { return false };
        let entry_bytes = entry_bytes(append);
        !must_roll(writer, effective, active, entry_bytes, self.env.now())
            && !must_flush(writer, effective, entry_bytes, u64::from(append.batch.count))
    }

    pub(super) fn write_locked(
        &self,
        writer: &mut Writer,
        effective: &Effective,
        group: &[Prepared],
        wait: Wait,
    ) -> Result<Written, Fault> {
        if let Some(reason) = &writer.poisoned {
            let context = format!("{:?} takes no writes until the store is opened again: {reason}", self.id);
            return Err(StoreError::Broken { context }.into());
        }
        // Under the lock, so that nothing is written behind the last flush of a store that closes.
        self.refuse_when_gone()?;
        let append_micros = self.env.now().max(1);
        let first_bytes = group.first().map_or(0, entry_bytes);
        let active = match &writer.active {
            Some(active) if !must_roll(writer, effective, active, first_bytes, append_micros) => active.clone(),
            _ if wait == Wait::No => return Err(Fault::WouldWait),
            _ => self.roll(writer)?,
        };
        let handle = active.handle(&self.env, wait)?;
        let position = active.written();
        let batch = Batch::of(writer, effective, &handle, group, position, append_micros);
        self.reserve(writer, effective, &handle, batch.end_position);
        let mut parts: Vec<&[u8]> = Vec::with_capacity(batch.headers.len() * 2);
        for (header, append) in batch.headers.iter().zip(group) {
            parts.push(header);
            parts.push(&append.batch.frames);
        }
        if let Err(error) = handle.file.write_at(&parts, position) {
            return Err(self.cut_back(writer, effective, &active, &handle, &error).into());
        }
        Ok(self.note_written(writer, effective, &active, &handle, &batch, append_micros))
    }

    fn note_written(
        &self,
        writer: &mut Writer,
        effective: &Effective,
        active: &Arc<Segment>,
        handle: &Handle,
        batch: &Batch,
        append_micros: u64,
    ) -> Written {
        let base_offset = writer.next_offset;
        let start = Place { offset: base_offset, position: active.written() };
        let messages = batch.end_offset - base_offset;
        let bytes = batch.end_position - start.position;
        let must_flush = must_flush(writer, effective, bytes, messages);
        if let Some(live) = &mut *active.live.write() {
            batch.blocks.iter().for_each(|block| live.push(*block));
        }
        active.written.store(batch.end_position, Ordering::Release);
        writer.first_append.get_or_insert(append_micros);
        writer.next_offset = batch.end_offset;
        let metrics = &self.env.metrics;
        metrics.appends.add(batch.headers.len() as u64);
        metrics.messages.add(messages);
        metrics.bytes.add(bytes);
        writer.unflushed_bytes += bytes;
        writer.unflushed_messages += messages;
        if writer.unflushed.last().is_none_or(|last| last.key != active.key) {
            writer.unflushed.push(active.clone());
        }
        self.schedule_flush(writer, effective);
        if batch.end_position - writer.indexed.1 >= index::FLUSH_BYTES {
            self.write_index(writer, active, handle);
        }
        self.hints.lock().add(active.base_offset(), start);
        Written {
            appends: batch.headers.len(),
            base_offset,
            end_offset: batch.end_offset,
            append_micros,
            frame_bytes: batch.frame_bytes,
            must_flush,
            hidden: effective.durability == Durability::Always,
        }
    }

    /// Takes back what a failed write may have left, so that nothing half-written is ever found.
    fn cut_back(
        &self,
        writer: &mut Writer,
        effective: &Effective,
        active: &Segment,
        handle: &Handle,
        error: &std::io::Error,
    ) -> StoreError {
        let position = active.written();
        let mut cut = handle.file.truncate(position);
        if cut.is_ok() && effective.flushes() {
            // Without it a crash could bring back an entry that was answered as not stored.
            cut = handle.file.sync_data();
        }
        writer.reserved = writer.reserved.min(position);
        let path = active.path.display();
        match cut {
            Ok(()) => failed(format_args!("writing {path}"), error),
            Err(second) => {
                let reason = format!("{path} could not be written ({error}) nor cut back ({second})");
                tracing::error!(partition = ?self.id, %reason, "the partition refuses writes");
                writer.poisoned = Some(reason.clone());
                StoreError::InDoubt { reason }
            }
        }
    }

    /// Seals the active segment and starts the next one.
    fn roll(&self, writer: &mut Writer) -> Result<Arc<Segment>, StoreError> {
        self.create_dirs(writer)?;
        let segment = Segment::new(self.number, &self.dir, writer.next_offset, SEGMENT_HEADER_BYTES as u64);
        // Before the name is there: when creating fails, its removal has to reach the device as well.
        writer.names.change();
        segment.create(&self.env, writer.durable_end)?;
        self.seal(writer);
        *segment.live.write() = Some(Index::new(writer.next_offset));
        let segment = Arc::new(segment);
        let mut log = self.log.write();
        let mut segments = Vec::clone(&log);
        segments.push(segment.clone());
        *log = Arc::new(segments);
        drop(log);
        writer.active = Some(segment.clone());
        writer.first_append = None;
        writer.indexed = (0, SEGMENT_HEADER_BYTES as u64);
        writer.reserved = 0;
        Ok(segment)
    }

    /// Ends the active segment; the next append starts a new one.
    pub(super) fn seal(&self, writer: &mut Writer) {
        let Some(active) = writer.active.take() else { return };
        let Ok(handle) = active.handle(&self.env, Wait::Yes) else {
            // Its index is built again when somebody needs it.
            *active.live.write() = None;
            return;
        };
        if let Some(live) = &mut *active.live.write() {
            live.seal();
        }
        self.write_index(writer, &active, &handle);
        if writer.reserved > active.written() {
            // Gives back what was reserved beyond the end. A failure costs space and nothing else.
            drop(handle.file.truncate(active.written()));
        }
        let index = active.live.write().take();
        if let Some(index) = index {
            drop(handle.index.set(Arc::new(index)));
        }
    }

    /// Brings the index file up to date. It is no evidence, so a failure is no error of the append.
    fn write_index(&self, writer: &mut Writer, active: &Segment, handle: &Handle) {
        let live = active.live.read();
        let Some(live) = &*live else { return };
        let (records, _) = writer.indexed;
        if live.closed().len() > records
            && let Err(error) = active.extend_index(&self.env, &handle.header, live.closed(), records)
        {
            tracing::debug!(partition = ?self.id, %error, "the index could not be extended");
            return;
        }
        writer.indexed = (live.closed().len(), live.closed_end().position);
    }

    fn reserve(&self, writer: &mut Writer, effective: &Effective, handle: &Handle, end: u64) {
        let ahead = self.env.config.preallocate_bytes;
        if ahead == 0 || !effective.flushes() || end <= writer.reserved {
            return;
        }
        let from = writer.reserved.max(end.saturating_sub(ahead));
        // Space that cannot be reserved is found missing by the write, which has an answer for it.
        if handle.file.reserve(from, end.saturating_add(ahead).saturating_sub(from)).is_ok() {
            writer.reserved = end.saturating_add(ahead);
        }
    }

    /// Creates the folders on the way to the partition's own.
    fn create_dirs(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.has_dir {
            return Ok(());
        }
        create_dirs(&*self.env.fs, &self.dir)?;
        writer.has_dir = true;
        writer.names.change();
        Ok(())
    }
}

/// Creates the folder of a partition, and those above it.
pub(super) fn create_dirs(fs: &dyn Fs, partition: &Path) -> Result<(), StoreError> {
    let topic = partition.parent();
    let stream = topic.and_then(Path::parent);
    for dir in [stream, topic, Some(partition)].into_iter().flatten() {
        match fs.create_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(format_args!("creating {}", dir.display()), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn entry_bytes(append: &Prepared) -> u64 {
    (ENTRY_HEADER_BYTES + append.batch.frames.len()) as u64
}

fn must_roll(writer: &Writer, effective: &Effective, active: &Segment, entry_bytes: u64, now: u64) -> bool {
    let written = active.written();
    if written <= SEGMENT_HEADER_BYTES as u64 {
        return false;
    }
    let aged = match (writer.first_append, effective.segment_age_micros) {
        (Some(first), Some(age)) => now.saturating_sub(first) > age,
        _ => false,
    };
    aged || written.saturating_add(entry_bytes) > effective.segment_bytes
}

/// True when these bytes and messages, on top of what is unflushed, must not be acknowledged without a flush.
fn must_flush(writer: &Writer, effective: &Effective, bytes: u64, messages: u64) -> bool {
    effective.durability == Durability::Always
        || effective.flush_bytes.is_some_and(|limit| writer.unflushed_bytes.saturating_add(bytes) > limit)
        || effective.flush_messages.is_some_and(|limit| writer.unflushed_messages.saturating_add(messages) >= limit)
}

/// A group on its way into a segment.
struct Batch {
    headers: Vec<[u8; ENTRY_HEADER_BYTES]>,
    blocks: Vec<Block>,
    frame_bytes: usize,
    end_offset: u64,
    end_position: u64,
}

impl Batch {
    fn of(
        writer: &Writer,
        effective: &Effective,
        handle: &Handle,
        group: &[Prepared],
        position: u64,
        append_micros: u64,
    ) -> Self {
        let mut batch = Self {
            headers: Vec::with_capacity(group.len()),
            blocks: Vec::with_capacity(group.len()),
            frame_bytes: 0,
            end_offset: writer.next_offset,
            end_position: position,
        };
        for append in group {
            let end_position = batch.end_position.saturating_add(entry_bytes(append));
            if !batch.headers.is_empty() && end_position > effective.segment_bytes {
                break;
            }
            let untimed = append.has_untimed.then_some((append_micros, append_micros));
            let times = append.origins.into_iter().chain(untimed);
            let (time_min, time_max) =
                times.reduce(|left, right| (left.0.min(right.0), left.1.max(right.1))).unwrap_or_default();
            let header = EntryHeader {
                nonce: handle.header.nonce,
                // The batch was checked against a limit far below.
                frame_bytes: u32::try_from(append.batch.frames.len()).unwrap_or(u32::MAX),
                count: append.batch.count,
                codec: 0,
                base_offset: batch.end_offset,
                append_micros,
                time_min,
                time_max,
                durable_end: writer.durable_end,
            };
            batch.headers.push(header.encode(&append.batch.frames));
            batch.end_offset = header.end_offset();
            batch.end_position = end_position;
            batch.frame_bytes += append.batch.frames.len();
            batch.blocks.push(Block {
                end_offset: batch.end_offset,
                end_position,
                time_max,
                append_max: append_micros,
            });
        }
        batch
    }
}
