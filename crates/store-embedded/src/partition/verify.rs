//! Finds out what of a partition's files can be believed, and cuts off what cannot.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_store::{PartitionRef, StoreError};

use super::recover::Origin;
use super::state;
use crate::env::Env;
use crate::fault::failed;
use crate::format::SegmentHeader;
use crate::fs::{Access, File, TEMPORARY_SUFFIX};
use crate::index::{Index, Place};
use crate::scan::{Scanner, Step};
use crate::segment::{ReadHeader, Segment, base_of, block_of, gap};

/// A partition on its way from files to memory.
pub(super) struct Recovery<'a> {
    pub(super) env: &'a Env,
    dir: &'a Path,
    id: &'a PartitionRef,
    pub(super) origin: Origin,
    pub(super) segments: Vec<Found>,
    pub(super) start: u64,
    pub(super) has_dir: bool,
    /// Everything below is known to have been flushed.
    pub(super) evidence: u64,
    /// True when files were cut or removed.
    changed: bool,
}

/// A segment file.
pub(super) struct Found {
    pub(super) segment: Segment,
    size: u64,
    /// True when it has no header that can be read.
    headless: bool,
    pub(super) verified: Option<Verified>,
}

/// What the verification of a segment found.
pub(super) struct Verified {
    pub(super) file: Arc<dyn File>,
    pub(super) header: SegmentHeader,
    pub(super) index: Index,
    /// Records of the index that its file has already.
    pub(super) indexed: usize,
    /// Where the last whole entry ends.
    pub(super) end: Place,
    /// Damaged places, each with the next whole entry behind it.
    bad: Vec<(Place, Option<Place>)>,
    /// Largest durable end that an entry names.
    evidence: u64,
}

impl<'a> Recovery<'a> {
    /// Lists the files; temporary ones, and segments below the start of the log, are removed.
    pub(super) fn load(
        env: &'a Env,
        dir: &'a Path,
        number: u64,
        id: &'a PartitionRef,
        origin: Origin,
    ) -> Result<Self, StoreError> {
        let mut recovery =
            Self { env, dir, id, origin, segments: Vec::new(), start: 0, has_dir: true, evidence: 0, changed: false };
        let items = match env.fs.list(dir) {
            Ok(items) => items,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                recovery.has_dir = false;
                return Ok(recovery);
            }
            Err(error) => return Err(failed(format_args!("listing {}", dir.display()), &error)),
        };
        if let Some(start) = state::load(&*env.fs, dir)? {
            recovery.start = start;
            if origin != Origin::Closed {
                // Its name may be in memory only. No crash must bring an older start back once this one was seen, or
                // once segments below it are gone.
                recovery.try_io("flushing the folder", || env.fs.sync_dir(dir))?;
            }
        }
        for item in items.iter().filter(|item| !item.is_dir) {
            if item.name.ends_with(TEMPORARY_SUFFIX) {
                recovery.try_io("removing a temporary file in", || env.fs.remove_file(&dir.join(&item.name)))?;
            } else if let Some(base) = base_of(item) {
                let segment = Segment::new(number, dir, base, 0);
                let size =
                    recovery.try_io("opening a segment in", || env.fs.open(&segment.path, Access::Read)?.size())?;
                segment.written.store(size, Ordering::Release);
                recovery.segments.push(Found { segment, size, headless: false, verified: None });
            }
        }
        recovery.segments.sort_by_key(|found| found.segment.base_offset());
        // A crash can bring back a file whose removal was not flushed.
        while recovery.segments.get(1).is_some_and(|second| second.segment.base_offset() <= recovery.start) {
            let removed = recovery.segments.remove(0);
            recovery.remove(&removed)?;
        }
        Ok(recovery)
    }

    /// Verifies what has to be, and cuts off a torn tail.
    pub(super) fn verify(&mut self) -> Result<(), StoreError> {
        self.drop_headless()?;
        let mut next_base = None;
        for number in (0..self.segments.len()).rev() {
            if next_base.is_some_and(|next| self.origin != Origin::MaybeCrashed || self.evidence >= next) {
                break;
            }
            self.verify_segment(number, next_base)?;
            next_base = self.segments.get(number).map(|found| found.segment.base_offset());
        }
        let cut = self.first_torn();
        if let Some((number, place)) = cut {
            self.cut(number, place)?;
            if let Some(last) = self.segments.len().checked_sub(1)
                && self.segments.last().is_some_and(|last| last.verified.is_none())
            {
                self.verify_segment(last, None)?;
            }
        }
        self.drop_trimmed()?;
        if self.changed {
            // Otherwise a crash could bring back what was cut, in the midst of what is written from here on.
            if let Some(verified) = self.segments.last().and_then(|last| last.verified.as_ref()) {
                self.try_io("flushing a segment in", || verified.file.sync_data())?;
            }
            self.try_io("flushing the folder", || self.env.fs.sync_dir(self.dir))?;
        }
        Ok(())
    }

    /// Removes newest segments whose header was never on the device.
    fn drop_headless(&mut self) -> Result<(), StoreError> {
        while let Some(last) = self.segments.last() {
            let env = self.env;
            let path = last.segment.path.clone();
            let file = self.try_io("opening a segment in", || env.fs.open(&path, Access::Write))?;
            if last.segment.read_header(&*env.fs, &*file)?.is_some() {
                return Ok(());
            }
            if !self.try_io("reading a segment in", || Segment::was_never_flushed(&*file, last.size))? {
                // Its messages may have been acknowledged, and how many there are nobody knows: going on would give
                // their offsets to others.
                return Err(StoreError::Broken { context: format!("the head of {} is damaged", path.display()) });
            }
            tracing::warn!(partition = ?self.id, path = %path.display(), bytes = last.size, "a segment that was never flushed is removed");
            if let Some(removed) = self.segments.pop() {
                self.remove(&removed)?;
            }
        }
        Ok(())
    }

    fn verify_segment(&mut self, number: usize, next_base: Option<u64>) -> Result<(), StoreError> {
        let env = self.env;
        let Some(found) = self.segments.get(number) else { return Ok(()) };
        let path = &found.segment.path;
        let file = self.try_io("opening a segment in", || env.fs.open(path, Access::Write))?;
        let Some(ReadHeader { header, is_copy }) = found.segment.read_header(&*env.fs, &*file)? else {
            if let Some(found) = self.segments.get_mut(number) {
                found.headless = true;
            }
            return Ok(());
        };
        if is_copy {
            // The copies may be cut off next.
            self.try_io("writing a segment in", || file.write_at(&[&header.encode()], 0))?;
        }
        let trusted = if self.origin == Origin::MaybeCrashed { None } else { found.segment.load_index(env, &header) };
        let quick = trusted.and_then(|index| {
            let expected = index.end();
            let count = index.closed().len().checked_sub(1)?;
            let mut kept = index;
            kept.keep(count);
            let verified = self.walk(&file, header, kept, found.size, next_base, Some(expected));
            verified.transpose()
        });
        let verified = match quick.transpose()? {
            Some(verified) => Some(verified),
            None => self.walk(&file, header, Index::new(header.base_offset), found.size, next_base, None)?,
        };
        if let Some(verified) = &verified {
            self.evidence = self.evidence.max(verified.evidence).max(header.durable_end);
        }
        self.changed |= is_copy;
        if let Some(found) = self.segments.get_mut(number) {
            found.verified = verified;
        }
        Ok(())
    }

    /// Verifies entry by entry from the end of the index on. `None` when it does not pass `expected` on its way, so
    /// that the index is wrong.
    fn walk(
        &self,
        file: &Arc<dyn File>,
        header: SegmentHeader,
        mut index: Index,
        size: u64,
        next_base: Option<u64>,
        expected: Option<Place>,
    ) -> Result<Option<Verified>, StoreError> {
        let indexed = index.closed().len();
        let mut scanner = Scanner::new(&**file, header.nonce, index.end(), size);
        let (mut bad, mut evidence, mut passed) = (Vec::new(), 0, expected.is_none());
        let before_next = |offset: u64| next_base.is_none_or(|next| offset < next);
        loop {
            let place = scanner.place();
            passed |= Some(place) == expected;
            if !before_next(place.offset) {
                break;
            }
            match self.try_io("reading a segment in", || scanner.step())? {
                Step::Entry { header, .. } => {
                    index.push(block_of(&header, scanner.place()));
                    evidence = evidence.max(header.durable_end);
                }
                Step::Bad(_) if !passed => return Ok(None),
                Step::Bad(place) => {
                    let next = self.try_io("reading a segment in", || scanner.find_next())?;
                    let next = next.filter(|next| before_next(next.offset));
                    bad.push((place, next));
                    let Some(next) = next else { break };
                    index.push(gap(next));
                    scanner.skip_to(next);
                }
                Step::End => break,
            }
        }
        if !passed {
            return Ok(None);
        }
        let end = scanner.place();
        if bad.last().is_none_or(|(_, next)| next.is_some()) && next_base.is_some_and(|next| end.offset < next) {
            bad.push((end, None));
        }
        let header = SegmentHeader { ..header };
        Ok(Some(Verified { file: file.clone(), header, index, indexed, end, bad, evidence }))
    }

    /// The first damaged place with no evidence that it had been flushed.
    fn first_torn(&self) -> Option<(usize, Place)> {
        let last = self.segments.len().checked_sub(1)?;
        if let Some(first) = self.segments.first().map(|first| first.segment.base_offset())
            && first > self.start
        {
            // The names of the first segments are missing.
            if self.origin == Origin::MaybeCrashed && self.evidence <= self.start {
                return Some((0, Place { offset: self.start, position: 0 }));
            }
            tracing::error!(partition = ?self.id, from = self.start, to = first, "stored messages are missing");
        }
        for (number, found) in self.segments.iter().enumerate() {
            let head = (Place { offset: found.segment.base_offset(), position: 0 }, None);
            let bad = found.verified.iter().flat_map(|verified| &verified.bad);
            for (place, next) in found.headless.then_some(&head).into_iter().chain(bad) {
                let proven = match self.origin {
                    // What lies below the start matters to nobody, and is known to be flushed for that reason alone.
                    Origin::MaybeCrashed => self.evidence > place.offset.max(self.start),
                    Origin::Closed | Origin::SameBoot => next.is_some() || number < last,
                };
                if !proven {
                    return Some((number, *place));
                }
                self.env.metrics.damaged_entries.add(1);
                let (path, Place { offset, position }) = (found.segment.path.display(), *place);
                tracing::error!(partition = ?self.id, %path, offset, position, "stored messages are damaged");
            }
        }
        None
    }

    /// Cuts segment `number` off at the place, and removes those behind it.
    fn cut(&mut self, number: usize, place: Place) -> Result<(), StoreError> {
        let kept = if place.position == 0 { number } else { number + 1 };
        while self.segments.len() > kept {
            if let Some(removed) = self.segments.pop() {
                let (path, bytes) = (removed.segment.path.display(), removed.size);
                tracing::warn!(partition = ?self.id, %path, bytes, "a segment behind a torn one is removed");
                self.remove(&removed)?;
            }
        }
        let Some(Found { segment, size, verified: Some(verified), .. }) = self.segments.get(number) else {
            return Ok(());
        };
        let (file, header, path) = (verified.file.clone(), verified.header, segment.path.display().to_string());
        let mut rest = Scanner::new(&*file, header.nonce, place, *size);
        let zero = self.try_io("reading a segment in", || rest.rest_is_zero())?;
        let bytes = size.saturating_sub(place.position);
        let Place { offset, position } = place;
        if self.origin == Origin::Closed {
            // Everything was whole and flushed then, so this is no torn tail.
            self.env.metrics.damaged_entries.add(1);
            tracing::error!(
                partition = ?self.id, %path, offset, position, bytes,
                "acknowledged messages at the end of a partition are lost: the server was stopped cleanly, and since then \
                 their bytes were damaged; they are cut off, and their offsets will be given to others. Before a start, \
                 `milena repair` does the same and keeps the damaged file"
            );
        } else if zero {
            tracing::info!(partition = ?self.id, %path, offset, position, bytes, "zeros at the end of a segment are cut off");
        } else {
            tracing::warn!(partition = ?self.id, %path, offset, position, bytes, "the torn end of a segment is cut off");
        }
        self.try_io("cutting a segment in", || file.truncate(place.position))?;
        self.changed = true;
        let kept = if verified.index.end().position > place.position || verified.indexed > 0 {
            self.walk(&file, header, Index::new(header.base_offset), place.position, None, None)?
        } else {
            None
        };
        if let Some(found) = self.segments.get_mut(number) {
            found.size = place.position;
            found.segment.written.store(place.position, Ordering::Release);
            if kept.is_some() {
                found.verified = kept;
            }
        }
        Ok(())
    }

    /// Removes all segments when none of them reaches the start of the log: what was flushed of them is less than what
    /// was deleted.
    fn drop_trimmed(&mut self) -> Result<(), StoreError> {
        let end = self.segments.last().and_then(|last| last.verified.as_ref()).map(|verified| verified.end.offset);
        if end.is_some_and(|end| end < self.start) {
            while let Some(removed) = self.segments.pop() {
                self.remove(&removed)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, found: &Found) -> Result<(), StoreError> {
        self.changed = true;
        self.try_io("removing a segment in", || found.segment.remove_files(self.env))
    }

    fn try_io<T>(&self, what: &str, work: impl FnOnce() -> io::Result<T>) -> Result<T, StoreError> {
        work().map_err(|error| failed(format_args!("{what} {}", self.dir.display()), &error))
    }
}
