//! One segment file: its place, how much of it holds entries, its index.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milena_store::StoreError;
use parking_lot::{Mutex, RwLock};

use crate::env::Env;
use crate::fault::{Fault, Wait, failed};
use crate::format::{ENTRY_HEADER_BYTES, EntryHeader, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader, claimed_nonce};
use crate::fs::{Access, File, Fs, Item, TEMPORARY_SUFFIX, read_exact_at, read_small, remove_if_there};
use crate::handles::{Handle, Key};
use crate::index::{self, Block, Index, Place};
use crate::scan::{Scanner, Step};

/// Ending of a segment file.
pub(crate) const DATA_SUFFIX: &str = ".log";
/// Ending of an index file.
pub(crate) const INDEX_SUFFIX: &str = ".index";
/// Largest index file that is read: records of the smallest blocks in the largest segment stay far below.
const INDEX_FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes that are written again at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// First offsets of the segments among the names in a folder, in order.
pub(crate) fn bases(items: &[Item]) -> Vec<u64> {
    let mut bases: Vec<u64> = items.iter().filter_map(base_of).collect();
    bases.sort_unstable();
    bases
}

/// First offset of a segment, when the name is one of a segment file.
pub(crate) fn base_of(item: &Item) -> Option<u64> {
    item.name.strip_suffix(DATA_SUFFIX)?.parse().ok()
}

/// A segment of a partition.
pub(crate) struct Segment {
    pub(crate) key: Key,
    pub(crate) path: PathBuf,
    index_path: PathBuf,
    /// Bytes of the file that hold the header and whole entries.
    pub(crate) written: AtomicU64,
    /// The index while the segment grows; a sealed segment has it in its file and with its handle.
    pub(crate) live: RwLock<Option<Index>>,
    /// Largest time and largest append time of a sealed segment, once known. `Some(None)` is an empty one.
    maxima: Mutex<Option<Option<(u64, u64)>>>,
    /// Bytes that an earlier process wrote and that are not known to be on the device.
    doubtful: Mutex<Range<u64>>,
}

/// The header of a segment, and where it is from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadHeader {
    pub(crate) header: SegmentHeader,
    /// True when it was put together from its second copies.
    pub(crate) is_copy: bool,
}

impl Segment {
    pub(crate) fn new(partition: u64, dir: &Path, base_offset: u64, written: u64) -> Self {
        Self {
            key: (partition, base_offset),
            path: dir.join(format!("{base_offset:020}{DATA_SUFFIX}")),
            index_path: dir.join(format!("{base_offset:020}{INDEX_SUFFIX}")),
            written: AtomicU64::new(written),
            live: RwLock::new(None),
            maxima: Mutex::new(None),
            doubtful: Mutex::new(0..0),
        }
    }

    pub(crate) fn base_offset(&self) -> u64 {
        self.key.1
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// True while it grows.
    #[cfg(test)]
    pub(crate) fn is_live(&self) -> bool {
        self.live.read().is_some()
    }

    /// Creates the file with its header.
    pub(crate) fn create(&self, env: &Env, durable_end: u64) -> Result<Arc<Handle>, StoreError> {
        let header = SegmentHeader { nonce: fresh_nonce(), base_offset: self.base_offset(), durable_end };
        let create = || -> io::Result<Arc<dyn File>> {
            // An index that an earlier segment of that name left behind has another nonce; it only wastes space.
            remove_if_there(&*env.fs, &self.index_path)?;
            let file = env.fs.open(&self.path, Access::Create)?;
            file.write_at(&[&header.encode()], 0)?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok(env.handles.keep_new(self.key, Handle { file, header, index: std::sync::OnceLock::new() })),
            Err(error) => {
                // The name must be free for the next try. When even that fails, the next try says so.
                drop(env.fs.remove_file(&self.path));
                Err(failed(format_args!("creating {}", self.path.display()), &error))
            }
        }
    }

    /// Notes that an earlier process wrote these bytes and may not have flushed them.
    pub(crate) fn doubt(&self, bytes: Range<u64>) {
        *self.doubtful.lock() = bytes;
    }

    /// Writes doubtful bytes again, so that the next flush covers them: when a flush of the earlier process failed,
    /// the kernel took their pages for clean, and a flush alone would do nothing.
    pub(crate) fn dispel_doubt(&self, env: &Env, file: &dyn File) -> io::Result<()> {
        let mut doubtful = self.doubtful.lock();
        if doubtful.is_empty() {
            return Ok(());
        }
        #[cfg(test)]
        if env.mutant == crate::tests::Mutant::BelievesTheCache {
            return Ok(());
        }
        let mut buffer = env.pool.take(CHUNK_BYTES);
        while !doubtful.is_empty() {
            let count = usize::try_from(doubtful.end - doubtful.start).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let Some(part) = buffer.as_mut().get_mut(..count) else { break };
            if !read_exact_at(file, part, doubtful.start)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_at(&[part], doubtful.start)?;
            doubtful.start += count as u64;
        }
        Ok(())
    }

    /// The open file.
    pub(crate) fn handle(&self, env: &Env, wait: Wait) -> Result<Arc<Handle>, Fault> {
        if let Some(handle) = env.handles.get(self.key) {
            return Ok(handle);
        }
        if wait == Wait::No {
            return Err(Fault::WouldWait);
        }
        let opened = env.fs.open(&self.path, Access::Write);
        let file = opened.map_err(|error| failed(format_args!("opening {}", self.path.display()), &error))?;
        let header = self.read_header(&*env.fs, &*file)?;
        let Some(ReadHeader { header, .. }) = header else {
            return Err(
                StoreError::Broken { context: format!("the head of {} is damaged", self.path.display()) }.into()
            );
        };
        Ok(env.handles.keep(self.key, Handle { file, header, index: std::sync::OnceLock::new() }))
    }

    /// The header, from its second copies when it is damaged: the index file has the nonce, and so has the first
    /// entry. `None` when there is none at all.
    pub(crate) fn read_header(&self, fs: &dyn Fs, file: &dyn File) -> Result<Option<ReadHeader>, StoreError> {
        let io = |error: io::Error| failed(format_args!("reading the head of {}", self.path.display()), &error);
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        if read_exact_at(file, &mut bytes, 0).map_err(io)? {
            match SegmentHeader::decode(&bytes) {
                Ok(header) if header.base_offset == self.base_offset() => {
                    return Ok(Some(ReadHeader { header, is_copy: false }));
                }
                Err(HeaderError::Version(version)) => {
                    let path = self.path.display();
                    let context = format!("{path} has format {version}, which a newer version of Milena wrote");
                    return Err(StoreError::Broken { context });
                }
                Ok(_) | Err(HeaderError::Damaged) => {}
            }
        }
        let size = file.size().map_err(io)?;
        let index = read_small(fs, &self.index_path, INDEX_FILE_BYTES_MAX).unwrap_or_default().unwrap_or_default();
        let mut head = [0; ENTRY_HEADER_BYTES];
        let first = SEGMENT_HEADER_BYTES as u64;
        let claimed = read_exact_at(file, &mut head, first).map_err(io)?.then(|| claimed_nonce(&head)).flatten();
        for nonce in [index::decode_header(&index, self.base_offset()), claimed].into_iter().flatten() {
            let place = Place { offset: self.base_offset(), position: first };
            let mut scanner = Scanner::new(file, nonce, place, size);
            let entry = scanner.step().map_err(io)?;
            let found = matches!(entry, Step::Entry { .. }) || scanner.find_next().map_err(io)?.is_some();
            if found {
                tracing::error!(path = %self.path.display(), "the head of a segment is damaged; its nonce was found elsewhere");
                let header = SegmentHeader { nonce, base_offset: self.base_offset(), durable_end: 0 };
                return Ok(Some(ReadHeader { header, is_copy: true }));
            }
        }
        Ok(None)
    }

    /// True when the file has no header because none was ever flushed: it is too short for one, or begins with zeros, as after a
    /// crash that kept the size but no contents.
    pub(crate) fn was_never_flushed(file: &dyn File, size: u64) -> io::Result<bool> {
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let read = file.read_at(&mut head, 0)?;
        Ok(size <= SEGMENT_HEADER_BYTES as u64 || head.iter().take(read).all(|byte| *byte == 0))
    }

    /// Where the block that holds `offset` starts.
    pub(crate) fn place_before(&self, env: &Env, handle: &Handle, offset: u64, wait: Wait) -> Result<Place, Fault> {
        if let Some(live) = &*self.live.read() {
            return Ok(live.place_before(offset));
        }
        Ok(self.sealed_index(env, handle, wait)?.place_before(offset))
    }

    /// How many of the `bytes` from `position` on to read at once, so that as few as possible belong to an entry that
    /// is cut off. Needs no I/O; what the index does not say is left as it is.
    pub(crate) fn whole_entries(&self, handle: &Handle, position: u64, bytes: usize) -> usize {
        let target = position.saturating_add(bytes as u64);
        let end = match &*self.live.read() {
            Some(live) => live.block_end_before(target),
            None => handle.index.get().and_then(|index| index.block_end_before(target)),
        };
        let whole = end.and_then(|end| usize::try_from(end.checked_sub(position)?).ok());
        whole.filter(|whole| *whole > 0).unwrap_or(bytes)
    }

    /// A copy of the index as it is now. May read all of the segment.
    pub(crate) fn index_now(&self, env: &Env, handle: &Handle) -> Result<Index, StoreError> {
        if let Some(live) = &*self.live.read() {
            return Ok(live.clone());
        }
        self.sealed_index(env, handle, Wait::Yes).map(|index| Index::clone(&index)).map_err(Fault::into_store)
    }

    /// Largest time and largest append time; `None` when there is no message.
    pub(crate) fn maxima(&self, env: &Env) -> Result<Option<(u64, u64)>, StoreError> {
        if let Some(live) = &*self.live.read() {
            return Ok(live.maxima());
        }
        if let Some(known) = *self.maxima.lock() {
            return Ok(known);
        }
        let handle = self.handle(env, Wait::Yes).map_err(Fault::into_store)?;
        let found = self.sealed_index(env, &handle, Wait::Yes).map_err(Fault::into_store)?.maxima();
        *self.maxima.lock() = Some(found);
        Ok(found)
    }

    fn sealed_index(&self, env: &Env, handle: &Handle, wait: Wait) -> Result<Arc<Index>, Fault> {
        if let Some(index) = handle.index.get() {
            return Ok(index.clone());
        }
        if wait == Wait::No {
            return Err(Fault::WouldWait);
        }
        let end = self.written();
        let index = match self.load_index(env, &handle.header) {
            Some(index) if index.end().position == end => index,
            _ => self.rebuild_index(env, handle, end)?,
        };
        Ok(handle.index.get_or_init(|| Arc::new(index)).clone())
    }

    /// The index file as far as it can be believed; `None` when there is none.
    pub(crate) fn load_index(&self, env: &Env, header: &SegmentHeader) -> Option<Index> {
        let bytes = read_small(&*env.fs, &self.index_path, INDEX_FILE_BYTES_MAX).ok()??;
        let blocks = index::decode(&bytes, header)?;
        Some(Index::from_blocks(header.base_offset, blocks))
    }

    fn rebuild_index(&self, env: &Env, handle: &Handle, end: u64) -> Result<Index, StoreError> {
        let context = |error: io::Error| failed(format_args!("reading {}", self.path.display()), &error);
        tracing::info!(path = %self.path.display(), "the index of a segment is missing or wrong and is built again");
        let mut index = Index::new(self.base_offset());
        let mut scanner = Scanner::new(&*handle.file, handle.header.nonce, index.end(), end);
        loop {
            match scanner.step().map_err(context)? {
                Step::Entry { header, .. } => index.push(block_of(&header, scanner.place())),
                Step::Bad(_) => match scanner.find_next().map_err(context)? {
                    Some(place) => {
                        index.push(gap(place));
                        scanner.skip_to(place);
                    }
                    None => {
                        index.push(gap(Place { offset: scanner.place().offset + 1, position: end }));
                        break;
                    }
                },
                Step::End => break,
            }
        }
        index.seal();
        self.replace_index(env, &handle.header, &index);
        Ok(index)
    }

    /// Writes the whole index anew. It is not worth an error when that fails: it can be built again.
    pub(crate) fn replace_index(&self, env: &Env, header: &SegmentHeader, index: &Index) {
        let mut temporary = self.index_path.clone().into_os_string();
        temporary.push(TEMPORARY_SUFFIX);
        let temporary = PathBuf::from(temporary);
        let replace = || -> io::Result<()> {
            remove_if_there(&*env.fs, &temporary)?;
            let file = env.fs.open(&temporary, Access::Create)?;
            let records = index::encode_records(index.closed(), 0, header.nonce);
            file.write_at(&[&index::encode_header(header), &records], 0)?;
            env.fs.rename(&temporary, &self.index_path)
        };
        if let Err(error) = replace() {
            tracing::warn!(path = %self.index_path.display(), %error, "an index could not be written");
            drop(remove_if_there(&*env.fs, &temporary));
        }
    }

    /// Writes the records of closed blocks from number `from` on behind those that are in the file already.
    pub(crate) fn extend_index(
        &self,
        env: &Env,
        header: &SegmentHeader,
        blocks: &[Block],
        from: usize,
    ) -> io::Result<()> {
        let records = index::encode_records(blocks, from, header.nonce);
        if from == 0 {
            remove_if_there(&*env.fs, &self.index_path)?;
            let file = env.fs.open(&self.index_path, Access::Create)?;
            return file.write_at(&[&index::encode_header(header), &records], 0);
        }
        let file = env.fs.open(&self.index_path, Access::Write)?;
        file.write_at(&[&records], (index::HEADER_BYTES + from * index::RECORD_BYTES) as u64)
    }

    /// Removes the files, the index first: without it the data are still whole.
    pub(crate) fn remove_files(&self, env: &Env) -> io::Result<()> {
        env.handles.forget(self.key);
        remove_if_there(&*env.fs, &self.index_path)?;
        remove_if_there(&*env.fs, &self.path)
    }
}

/// The note that the index takes of an entry that ends at `end`.
pub(crate) fn block_of(header: &EntryHeader, end: Place) -> Block {
    Block {
        end_offset: header.end_offset(),
        end_position: end.position,
        time_max: header.time_max,
        append_max: header.append_micros,
    }
}

/// The note for damaged bytes that end there. Its times are the largest ones, so that no search by time skips it.
pub(crate) fn gap(end: Place) -> Block {
    Block { end_offset: end.offset, end_position: end.position, time_max: u64::MAX, append_max: u64::MAX }
}

fn fresh_nonce() -> u32 {
    // Keys of the standard hasher come from the operating system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    u32::try_from(random >> 32).unwrap_or(1)
}
