//! The start of the log and the removal of segments.

use std::sync::Arc;

use milena_store::{Bounds, StoreError};

use super::{Partition, state};
use crate::config::Effective;
use crate::fault::Wait;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::segment::Segment;

impl Partition {
    /// See [`milena_store::Store::trim`].
    pub(crate) fn trim(&self, before: u64) -> Result<Bounds, StoreError> {
        self.refuse_when_gone()?;
        let turn = self.trimming.lock();
        let bounds = self.bounds();
        let target = before.min(bounds.end);
        if target > bounds.start {
            self.move_start(target)?;
        }
        drop(turn);
        Ok(self.bounds())
    }

    /// See [`milena_store::Store::sealed_segments`].
    pub(crate) fn sealed_ends(&self, most: usize) -> Vec<u64> {
        let (log, start) = (self.log.read().clone(), self.bounds().start);
        // A segment ends where the next one begins; the newest is the one that is written to.
        log.iter().skip(1).map(|next| next.base_offset()).filter(|end| *end > start).take(most).collect()
    }

    /// Seals an old segment, removes what is past retention, flushes what was sealed.
    pub(crate) fn maintain(&self, now: u64) -> Result<(), StoreError> {
        self.refuse_when_gone()?;
        let turn = self.trimming.lock();
        let effective = self.effective();
        self.seal_aged(&effective, now);
        let target = self.retained_from(&effective, now)?;
        if target > self.bounds().start {
            self.move_start(target)?;
        }
        self.remove_doomed();
        drop(turn);
        self.flush_sealed()
    }

    fn seal_aged(&self, effective: &Effective, now: u64) {
        let mut writer = self.writer.lock();
        let aged = match (writer.first_append, effective.segment_age_micros) {
            (Some(first), Some(age)) => now.saturating_sub(first) > age,
            _ => false,
        };
        if aged && writer.active.as_ref().is_some_and(|active| active.written() > SEGMENT_HEADER_BYTES as u64) {
            self.seal(&mut writer);
        }
    }

    /// The first offset that retention keeps. Whole segments go, the oldest first.
    fn retained_from(&self, effective: &Effective, now: u64) -> Result<u64, StoreError> {
        let log = self.log.read().clone();
        let mut bytes: u64 = log.iter().map(|segment| segment.written()).sum();
        let end = self.bounds().end;
        for (number, segment) in log.iter().enumerate() {
            let next = log.get(number + 1).map(|next| next.base_offset());
            let too_large = effective.retention_bytes.is_some_and(|limit| bytes - segment.written() >= limit);
            let expired = match effective.retention_micros {
                Some(age) => self.newest_append(segment)?.is_some_and(|newest| now.saturating_sub(newest) > age),
                None => false,
            };
            // The newest segment only goes by age: by size, at least one is kept.
            if !(expired || (too_large && next.is_some())) {
                return Ok(segment.base_offset());
            }
            bytes -= segment.written();
        }
        Ok(end)
    }

    /// Largest append time in a segment, damaged places left out; `None` when it is empty.
    fn newest_append(&self, segment: &Segment) -> Result<Option<u64>, StoreError> {
        match segment.maxima(&self.env)? {
            Some((_, u64::MAX)) => {
                let handle = segment.handle(&self.env, Wait::Yes).map_err(crate::fault::Fault::into_store)?;
                let index = segment.index_now(&self.env, &handle)?;
                let known = index.blocks().map(|(_, block)| block.append_max).filter(|time| *time != u64::MAX);
                Ok(Some(known.max().unwrap_or(0)))
            }
            maxima => Ok(maxima.map(|(_, append)| append)),
        }
    }

    /// Moves the start of the log: first on the device, so that no crash brings deleted messages back, then for
    /// readers, and then the segments go.
    fn move_start(&self, target: u64) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.env.mutant == crate::tests::Mutant::RemovesBeforeStart {
            let log = self.log.read().clone();
            let gone = log.partition_point(|segment| segment.base_offset() <= target).saturating_sub(1);
            self.doomed.lock().extend_from_slice(log.get(..gone).unwrap_or_default());
            self.remove_doomed();
        }
        self.flush_own_name()?;
        if let Err(error) = state::save(&*self.env.fs, &self.dir, target) {
            // The new start may be in the folder and not on the device, so the next flush has to cover the folder.
            self.writer.lock().names.change();
            return Err(error);
        }
        self.start.fetch_max(target, std::sync::atomic::Ordering::AcqRel);
        let mut writer = self.writer.lock();
        let log = self.log.read().clone();
        let mut kept_from = log.partition_point(|segment| segment.base_offset() <= target).saturating_sub(1);
        let newest = log.last().map(|newest| newest.base_offset());
        if writer.next_offset == target && newest != Some(target) {
            // Nothing is left, so the active segment can go as well. An empty one stays, so that no two files of one
            // partition ever have the same name.
            self.seal(&mut writer);
            kept_from = log.len();
        }
        let (gone, kept) = log.split_at(kept_from);
        *self.log.write() = Arc::new(kept.to_vec());
        writer.unflushed.retain(|segment| !gone.iter().any(|gone| gone.key == segment.key));
        // What was deleted needs no flush any more.
        writer.durable_end = writer.durable_end.max(target);
        drop(writer);
        self.doomed.lock().extend_from_slice(gone);
        self.remove_doomed();
        Ok(())
    }

    /// Removes the files of segments that are no longer part of the log. What cannot be removed is tried again.
    fn remove_doomed(&self) {
        let mut doomed = self.doomed.lock();
        if doomed.is_empty() {
            return;
        }
        doomed.retain(|segment| match segment.remove_files(&self.env) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(partition = ?self.id, path = %segment.path.display(), %error, "a segment could not be removed");
                true
            }
        });
        if let Err(error) = self.env.fs.sync_dir(&self.dir) {
            // A crash may bring the files back; the next start removes them.
            tracing::warn!(partition = ?self.id, %error, "the removal of segments could not be flushed");
        }
    }

    /// Makes the names of the folders above durable, without which what is stored in them could be lost.
    fn flush_own_name(&self) -> Result<(), StoreError> {
        let names = self.writer.lock().names;
        if !names.are_flushed() {
            self.flush_names()?;
            let mut writer = self.writer.lock();
            writer.names.flushed = writer.names.flushed.max(names.changed);
        }
        Ok(())
    }
}
