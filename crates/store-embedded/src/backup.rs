//! Copies a data folder to another place, while a server uses it or not.
//!
//! Files of the store only grow, are replaced as a whole, or are removed, so a copy needs no word with the process that
//! writes them. A partition is copied from the start of its log as it was just before; whenever a segment goes away
//! meanwhile, the start has moved, and what is missing is copied again from there: the copy is the log of one moment, and
//! whatever replaced removed messages is in it. A last entry that is not whole yet is cut off, unless the store was closed:
//! then it is damage, and damage is copied as it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_store::{StoreError, TopicInfo, TopicRef};

use crate::catalog::{self, Catalog};
use crate::fault::failed;
use crate::folder::{FORMAT, OpenError, in_folder, load_catalog, mark, read_format, remove_tree, was_closed};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::fs::real::RealFs;
use crate::fs::{Access, File, Fs};
use crate::index::Place;
use crate::limits::BACKUP_ROUNDS_MAX;
use crate::partition::{load_start, partition_dir, save_start};
use crate::scan::{Scanner, Step};
use crate::segment::{DATA_SUFFIX, INDEX_SUFFIX, Segment, bases};

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Topics in the copy.
    pub topics: u64,
    /// Partitions with files.
    pub partitions: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of all segment files.
    pub bytes: u64,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The folder cannot be read as a data folder.
    #[error(transparent)]
    From(#[from] OpenError),
    /// The place for the copy is taken.
    #[error("{} is there already; a copy goes to a folder that does not exist yet", path.display())]
    Taken {
        /// What is there.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("the copy failed: {0}")]
    Io(StoreError),
    /// Segments went away faster than they were copied.
    #[error("segments of {partition} are removed faster than they can be copied")]
    Busy {
        /// Topic and partition, as `stream/topic/partition`.
        partition: String,
    },
}

/// Copies the data folder `from` to the new folder `to`, which then opens as a store that was closed cleanly. Blocking.
///
/// Topics are copied in the order of their `rank`, one after the other: what a topic of a later rank says is at least as
/// new as what one of an earlier rank says.
///
/// While it is under way, and when it fails, there is no `to` but a folder `to` with `.partial` behind its name; after a
/// failure it is removed.
///
/// # Errors
/// See [`BackupError`].
pub fn backup(from: &Path, to: &Path, rank: impl Fn(&TopicRef) -> u8) -> Result<BackupReport, BackupError> {
    // Without a slash at its end, or what is put behind the name would land below it.
    let to = &to.components().collect::<PathBuf>();
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Taken { path: to.to_owned() });
    }
    if !read_format(&RealFs, from)? {
        return Err(OpenError::NoCatalog { dir: from.to_owned() }.into());
    }
    let catalog = load_catalog(&RealFs, from)?;
    fs::create_dir(&partial).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Taken { path: partial.clone() },
        _ => BackupError::Io(failed(format_args!("creating {}", partial.display()), &error)),
    })?;
    let copied = copy_all(from, &partial, catalog, rank).and_then(|report| {
        attempt("renaming", &partial, || {
            fs::rename(&partial, to)?;
            let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
            RealFs.sync_dir(parent.unwrap_or(Path::new(".")))
        })?;
        Ok(report)
    });
    if copied.is_err() {
        drop(fs::remove_dir_all(&partial));
    }
    copied
}

fn copy_all(
    from: &Path,
    to: &Path,
    mut catalog: Catalog,
    rank: impl Fn(&TopicRef) -> u8,
) -> Result<BackupReport, BackupError> {
    let mut topics: Vec<TopicInfo> = catalog.topics().collect();
    topics.sort_by_key(|info| (rank(&info.topic), info.topic.topic_id()));
    let closed = was_closed(&RealFs, from)?;
    let mut report = BackupReport::default();
    for info in &topics {
        for partition in 0..info.partitions {
            let id = info.topic.partition(partition);
            let copy = PartitionCopy {
                from: partition_dir(from, &id),
                to: partition_dir(to, &id),
                name: format!("{id:?}"),
                done: Vec::new(),
                closed,
            };
            copy.run(&mut report)?;
        }
    }
    report.topics = topics.len() as u64;
    // Of a topic that was deleted meanwhile any file may be missing.
    let left = load_catalog(&RealFs, from)?;
    for gone in topics.iter().filter(|info| left.topics().all(|kept| kept.topic != info.topic)) {
        catalog.remove(&gone.topic);
        report.topics -= 1;
        if let Some(dir) = partition_dir(to, &gone.topic.partition(0)).parent() {
            remove_tree(&RealFs, dir);
        }
    }
    catalog.save(&RealFs, to).map_err(|error| BackupError::Io(in_folder(catalog::NAME, error)))?;
    attempt("copying", &from.join(FORMAT), || copy_file(&from.join(FORMAT), &to.join(FORMAT)))?;
    // Everything in it is whole and flushed.
    mark(&RealFs, to, true).map_err(BackupError::Io)?;
    attempt("flushing", to, || RealFs.sync_everything(to).or_else(|_| sync_tree(to)))?;
    Ok(report)
}

struct PartitionCopy {
    from: PathBuf,
    to: PathBuf,
    name: String,
    /// First offsets of segments that were copied when another one stood behind them, so that they do not grow.
    done: Vec<u64>,
    /// True when the store was closed, so that everything in it was whole.
    closed: bool,
}

impl PartitionCopy {
    fn run(mut self, report: &mut BackupReport) -> Result<(), BackupError> {
        for _ in 0..BACKUP_ROUNDS_MAX {
            if let Some(bases) = self.round()? {
                return self.finish(&bases, report);
            }
        }
        Err(BackupError::Busy { partition: self.name })
    }

    /// Copies what is there; the segments of the copy, or `None` when one of them went away meanwhile.
    fn round(&mut self) -> Result<Option<Vec<u64>>, BackupError> {
        let start = load_start(&RealFs, &self.from).map_err(BackupError::Io)?;
        let items = match RealFs.list(&self.from) {
            Ok(items) => items,
            // Never written to, or deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            Err(error) => return Err(BackupError::Io(failed(format_args!("listing {}", self.from.display()), &error))),
        };
        // It is stored before segments below it are removed: when it is still the same, none was before the listing.
        if load_start(&RealFs, &self.from).map_err(BackupError::Io)? != start {
            return Ok(None);
        }
        attempt("creating", &self.to, || fs::create_dir_all(&self.to))?;
        let mut bases = bases(&items);
        let below = bases.partition_point(|base| *base <= start.unwrap_or(0)).saturating_sub(1);
        bases.drain(..below);
        if let Some(start) = start {
            save_start(&RealFs, &self.to, start).map_err(BackupError::Io)?;
        }
        for (number, base) in bases.iter().enumerate() {
            let sealed = number + 1 < bases.len();
            if self.done.contains(base) {
                continue;
            }
            match self.copy_segment(*base, sealed) {
                Ok(()) if sealed => self.done.push(*base),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    return Err(BackupError::Io(failed(format_args!("copying {}", self.from.display()), &error)));
                }
            }
        }
        Ok(Some(bases))
    }

    fn copy_segment(&self, base: u64, sealed: bool) -> io::Result<()> {
        let name = format!("{base:020}{DATA_SUFFIX}");
        copy_file(&self.from.join(&name), &self.to.join(&name))?;
        if sealed {
            // It is derived, so one that is missing is made anew.
            let name = format!("{base:020}{INDEX_SUFFIX}");
            match copy_file(&self.from.join(&name), &self.to.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Cuts the newest segment behind its last whole entry, and removes what earlier rounds left below the start.
    fn finish(self, bases: &[u64], report: &mut BackupReport) -> Result<(), BackupError> {
        if !self.to.exists() {
            return Ok(());
        }
        report.partitions += 1;
        for base in self.done.iter().filter(|base| !bases.contains(base)) {
            for suffix in [DATA_SUFFIX, INDEX_SUFFIX] {
                let path = self.to.join(format!("{base:020}{suffix}"));
                attempt("removing", &path, || crate::fs::remove_if_there(&RealFs, &path))?;
            }
        }
        if let Some(newest) = bases.last().filter(|_| !self.closed) {
            self.cut_torn_tail(*newest).map_err(BackupError::Io)?;
        }
        for base in bases {
            let path = self.to.join(format!("{base:020}{DATA_SUFFIX}"));
            if let Ok(metadata) = path.metadata() {
                report.segments += 1;
                report.bytes += metadata.len();
            }
        }
        Ok(())
    }

    /// What stands behind damage is kept, as the store keeps it: only an end with no whole entry behind it goes.
    fn cut_torn_tail(&self, base: u64) -> Result<(), StoreError> {
        let segment = Segment::new(0, &self.to, base, 0);
        let path = segment.path.display();
        let unreadable = |error: io::Error| failed(format_args!("reading {path}"), &error);
        let file = RealFs.open(&segment.path, Access::Write).map_err(unreadable)?;
        let size = file.size().map_err(unreadable)?;
        let Some(read) = segment.read_header(&RealFs, &*file)? else {
            // A segment that was just created and has no header yet, or that a crash left.
            if Segment::was_never_flushed(&*file, size).map_err(unreadable)? {
                drop(file);
                return RealFs.remove_file(&segment.path).map_err(unreadable);
            }
            return Ok(());
        };
        let first = Place { offset: base, position: SEGMENT_HEADER_BYTES as u64 };
        let end = last_whole(&file, read.header.nonce, first, size).map_err(unreadable)?;
        if end < size {
            file.truncate(end).map_err(|error| failed(format_args!("cutting {path}"), &error))?;
        }
        Ok(())
    }
}

/// Where the last whole entry ends.
fn last_whole(file: &Arc<dyn File>, nonce: u32, first: Place, size: u64) -> io::Result<u64> {
    let mut scanner = Scanner::new(&**file, nonce, first, size);
    loop {
        match scanner.step()? {
            Step::Entry { .. } => {}
            Step::Bad(place) => match scanner.find_next()? {
                Some(next) => scanner.skip_to(next),
                None => return Ok(place.position),
            },
            Step::End => return Ok(scanner.place().position),
        }
    }
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}

/// Flushes every file and folder, where the system cannot flush a whole file system.
fn sync_tree(dir: &Path) -> io::Result<()> {
    for item in RealFs.list(dir)? {
        let path = dir.join(&item.name);
        if item.is_dir {
            sync_tree(&path)?;
        } else {
            fs::File::open(&path)?.sync_all()?;
        }
    }
    RealFs.sync_dir(dir)
}

fn attempt<T>(what: &str, path: &Path, work: impl FnOnce() -> io::Result<T>) -> Result<T, BackupError> {
    work().map_err(|error| BackupError::Io(failed(format_args!("{what} {}", path.display()), &error)))
}
