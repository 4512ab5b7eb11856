//! What makes written entries durable.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use milena_store::StoreError;

use super::{Names, Partition, Writer};
use crate::config::Effective;
use crate::env::Env;
use crate::fault::{Fault, Wait, failed};
use crate::fs::File;
use crate::segment::Segment;
#[cfg(test)]
use crate::tests::Mutant;

impl Partition {
    /// Returns once everything below `end` is on the device.
    ///
    /// A failed flush poisons the partition: the kernel may have marked the pages clean without having written them,
    /// so a later flush that succeeds proves nothing.
    pub(super) fn flush_up_to(&self, end: u64) -> Result<(), StoreError> {
        let turn = self.flushing.lock();
        if let Some(target) = self.flush_target(end)? {
            self.flush(&target)?;
        }
        drop(turn);
        Ok(())
    }

    /// What has to be flushed so that everything below `end` is on the device; `None` when it is.
    fn flush_target(&self, end: u64) -> Result<Option<Flush>, StoreError> {
        let writer = self.writer.lock();
        refuse_when_poisoned(&writer)?;
        let done = writer.durable_end >= end && writer.names.are_flushed();
        Ok((!done).then(|| Flush::of(&writer)))
    }

    /// Flushes sealed segments where no policy does: what recovery has to verify after a crash of the machine stays
    /// small, and nobody waits for it.
    pub(super) fn flush_sealed(&self) -> Result<(), StoreError> {
        let turn = self.flushing.lock();
        let target = {
            let writer = self.writer.lock();
            refuse_when_poisoned(&writer)?;
            let end = writer.active.as_ref().map_or(writer.next_offset, |active| active.base_offset());
            if writer.durable_end >= end {
                return Ok(());
            }
            let segments = writer.unflushed.iter().filter(|segment| segment.base_offset() < end).cloned().collect();
            Flush { end, segments, names: writer.names, bytes: 0, messages: 0 }
        };
        self.flush(&target)?;
        drop(turn);
        Ok(())
    }

    fn flush(&self, target: &Flush) -> Result<(), StoreError> {
        let begun = Instant::now();
        for segment in &target.segments {
            #[cfg(test)]
            if self.env.mutant == Mutant::SkipsSealedSegments && !segment.is_live() {
                continue;
            }
            self.flush_segment(segment, |file| file.sync_data()).map_err(|error| self.poison(&error))?;
        }
        if !target.names.are_flushed()
            && let Err(error) = self.flush_names()
        {
            return Err(self.poison(&error));
        }
        self.env.metrics.flush_time.observe_time(begun.elapsed());
        target.settle(&mut self.writer.lock());
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn durable_end(&self) -> u64 {
        self.writer.lock().durable_end
    }

    /// Flushes everything that is written.
    pub(crate) fn flush_all(&self) -> Result<(), StoreError> {
        let end = self.writer.lock().next_offset;
        self.flush_up_to(end)
    }

    fn flush_segment(
        &self,
        segment: &Segment,
        sync: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let synced = segment.handle(&self.env, Wait::Yes).map_err(Fault::into_store).and_then(|handle| {
            let synced = segment.dispel_doubt(&self.env, &*handle.file).and_then(|()| sync(&*handle.file));
            synced.map_err(|error| failed(format_args!("flushing {}", segment.path.display()), &error))
        });
        // A segment that was removed meanwhile holds nothing that anybody can ask for. A partition that only is about to go
        // is none of these: it may come back, and what was acknowledged must be in it then.
        let gone =
            || self.forgotten.load(Ordering::Acquire) || self.log.read().iter().all(|kept| kept.key != segment.key);
        synced.or_else(|error| if gone() { Ok(()) } else { Err(error) })
    }

    /// A flush that was due begins.
    pub(crate) fn due_flush_begins(&self) {
        self.writer.lock().flush_scheduled = false;
    }

    /// Sees to it that what was written during the flush is flushed in its time.
    pub(crate) fn due_flush_ends(&self) {
        let mut writer = self.writer.lock();
        if writer.unflushed_bytes > 0 {
            self.schedule_flush(&mut writer, &self.effective());
        }
    }

    pub(super) fn schedule_flush(&self, writer: &mut Writer, effective: &Effective) {
        if let Some(every) = effective.flush_every
            && !writer.flush_scheduled
        {
            writer.flush_scheduled = true;
            self.env.due.add(Instant::now() + every, self.me.clone());
        }
    }

    fn poison(&self, error: &StoreError) -> StoreError {
        self.env.metrics.flush_failures.add(1);
        let reason = error.to_string();
        #[cfg(test)]
        if self.env.mutant == Mutant::GoesOnAfterFailedFlush {
            return StoreError::InDoubt { reason };
        }
        tracing::error!(partition = ?self.id, %reason, "the partition refuses writes until the store is opened again");
        self.writer.lock().poisoned = Some(reason.clone());
        StoreError::InDoubt { reason }
    }

    /// Makes the names of the partition's files, and of the folders above, durable.
    pub(super) fn flush_names(&self) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.env.mutant == Mutant::SkipsNames {
            return Ok(());
        }
        let topic = self.dir.parent();
        let stream = topic.and_then(Path::parent);
        let root = stream.and_then(Path::parent);
        for dir in [Some(self.dir.as_path()), topic, stream, root].into_iter().flatten() {
            self.env
                .fs
                .sync_dir(dir)
                .map_err(|error| failed(format_args!("flushing the folder {}", dir.display()), &error))?;
        }
        Ok(())
    }
}

/// Flushes many partitions with one call into the file system: one after the other, each with its own files and
/// folders, takes some milliseconds apiece. Only one such call at a time.
pub(crate) fn flush_together(env: &Env, partitions: &[Arc<Partition>]) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    let mut begun = Vec::new();
    for partition in partitions {
        let turn = partition.flushing.lock();
        let end = partition.writer.lock().next_offset;
        let target = partition.flush_target(end).and_then(|target| {
            // Rewritten now, these bytes are covered by the call as well.
            let segments = target.iter().flat_map(|target| &target.segments);
            segments.into_iter().try_for_each(|segment| partition.flush_segment(segment, |_| Ok(())))?;
            Ok(target)
        });
        match target {
            Ok(Some(target)) => begun.push((partition, turn, target)),
            Ok(None) => {}
            Err(error) => outcome = Err(error),
        }
    }
    let started = Instant::now();
    let synced = env.fs.sync_everything(&env.root);
    if synced.is_ok() {
        env.metrics.flush_time.observe_time(started.elapsed());
    }
    for (partition, turn, target) in begun {
        match &synced {
            Ok(()) => target.settle(&mut partition.writer.lock()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => outcome = partition.flush(&target).and(outcome),
            Err(error) => outcome = Err(partition.poison(&failed("flushing the file system", error))),
        }
        drop(turn);
    }
    outcome
}

fn refuse_when_poisoned(writer: &Writer) -> Result<(), StoreError> {
    match &writer.poisoned {
        Some(reason) => Err(StoreError::InDoubt { reason: reason.clone() }),
        None => Ok(()),
    }
}

/// What a flush covers: the state of the writer when it began.
struct Flush {
    end: u64,
    segments: Vec<Arc<Segment>>,
    names: Names,
    bytes: u64,
    messages: u64,
}

impl Flush {
    fn of(writer: &Writer) -> Self {
        Self {
            end: writer.next_offset,
            segments: writer.unflushed.clone(),
            names: writer.names,
            bytes: writer.unflushed_bytes,
            messages: writer.unflushed_messages,
        }
    }

    fn settle(&self, writer: &mut Writer) {
        writer.durable_end = writer.durable_end.max(self.end);
        writer.unflushed_bytes = writer.unflushed_bytes.saturating_sub(self.bytes);
        writer.unflushed_messages = writer.unflushed_messages.saturating_sub(self.messages);
        // A segment stays when it reaches beyond what was flushed. They follow each other without gaps.
        let ends = writer.unflushed.iter().skip(1).map(|segment| segment.base_offset()).chain([writer.next_offset]);
        let flushed = ends.take_while(|end| *end <= self.end).count();
        writer.unflushed.drain(..flushed.min(writer.unflushed.len()));
        writer.names.flushed = writer.names.flushed.max(self.names.changed);
    }
}

impl Partition {
    /// Ends the partition: nothing is written any more. The answer is the offset behind the last message that ever had one.
    pub(crate) fn retire(&self) -> u64 {
        let writer = self.writer.lock();
        self.retired.store(true, Ordering::Release);
        writer.next_offset
    }

    /// Takes [`Self::retire`] back.
    pub(crate) fn revive(&self) {
        self.retired.store(false, Ordering::Release);
    }

    /// Closes the files of a partition that is gone for good: the catalog without it is stored, and its files may be removed.
    /// A flush that is due finds nothing to do, and one that runs is no failure.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
        // Whoever was writing is done once the lock is free, and nobody starts any more.
        drop(self.trimming.lock());
        let mut writer = self.writer.lock();
        writer.unflushed.clear();
        writer.durable_end = writer.next_offset;
        writer.names.flushed = writer.names.changed;
        drop(writer);
        for segment in self.log.read().iter() {
            self.env.handles.forget(segment.key);
        }
    }
}
