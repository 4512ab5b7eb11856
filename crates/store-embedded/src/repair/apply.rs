//! Does what a plan says.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use milena_store::StoreError;

use super::Repair;
use super::plan::{Cut, Plan, SegmentPlan};
use crate::fault::failed;
use crate::format::{EntryHeader, SegmentHeader};
use crate::fs::real::RealFs;
use crate::fs::{Fs, TEMPORARY_SUFFIX, remove_if_there};
use crate::partition::{START, save_start};
use crate::segment::INDEX_SUFFIX;

/// Folder for files as they were.
const KEPT: &str = "repaired";
/// One line for each repair.
const LOG: &str = "repairs.log";

/// The repair of one partition.
pub(super) struct Work<'a> {
    pub(super) root: &'a Path,
    /// Folder of the partition.
    pub(super) dir: &'a Path,
    /// Called before each change of the folder. An error ends the repair there, as a crash would.
    pub(super) before_change: &'a dyn Fn() -> io::Result<()>,
}

impl Work<'_> {
    /// Does what the plan says; the log is written first, so that no change goes without its line.
    pub(super) fn apply(&self, plan: &Plan, repairs: &[Repair], time: &str) -> Result<(), StoreError> {
        self.log(repairs, time).map_err(|error| failed(format_args!("writing {LOG}"), &error))?;
        for segment in &plan.segments {
            if let Some(header) =
                segment.header.filter(|_| segment.new_head || !segment.cuts.is_empty() || segment.cut_end.is_some())
            {
                let path = segment.path.display();
                self.rewrite(segment, header).map_err(|error| failed(format_args!("repairing {path}"), &error))?;
            }
        }
        if let Some((_, start)) = plan.new_start {
            let path = self.dir.join(START);
            let failed = |error| failed(format_args!("repairing {}", path.display()), &error);
            let model = fs::metadata(self.dir).map_err(failed)?;
            if path.exists() {
                self.keep(&path).map_err(failed)?;
            }
            (self.before_change)().map_err(failed)?;
            save_start(&RealFs, self.dir, start)?;
            (self.before_change)().map_err(failed)?;
            own_as(&path, &model).map_err(failed)?;
        }
        Ok(())
    }

    fn log(&self, repairs: &[Repair], time: &str) -> io::Result<()> {
        (self.before_change)()?;
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.root.join(LOG))?;
        for repair in repairs.iter().filter(|repair| !repair.is_left()) {
            (self.before_change)()?;
            writeln!(file, "{time} {repair}")?;
        }
        file.sync_all()?;
        RealFs.sync_dir(self.root)
    }

    /// Writes the segment anew beside itself and then gives it the name, so that a crash leaves one of both.
    fn rewrite(&self, plan: &SegmentPlan, header: SegmentHeader) -> io::Result<()> {
        let mut temporary = plan.path.clone().into_os_string();
        temporary.push(TEMPORARY_SUFFIX);
        let temporary = PathBuf::from(temporary);
        remove_if_there(&RealFs, &temporary)?;
        let mut from = fs::File::open(&plan.path)?;
        (self.before_change)()?;
        let mut to = fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        (self.before_change)()?;
        to.write_all(&header.encode())?;
        let mut position = crate::format::SEGMENT_HEADER_BYTES as u64;
        for cut in &plan.cuts {
            (self.before_change)()?;
            copy(&mut from, &mut to, position, cut.from.position)?;
            (self.before_change)()?;
            holes(&mut to, &header, cut)?;
            position = cut.to.position;
        }
        (self.before_change)()?;
        copy(&mut from, &mut to, position, plan.end)?;
        let model = from.metadata()?;
        to.set_permissions(model.permissions())?;
        own_as(&temporary, &model)?;
        to.sync_all()?;
        self.keep(&plan.path)?;
        (self.before_change)()?;
        fs::rename(&temporary, &plan.path)?;
        RealFs.sync_dir(self.dir)?;
        (self.before_change)()?;
        // The index tells other positions, and is made anew. It goes last: when the head is damaged, it has the one copy of the
        // segment's nonce.
        remove_if_there(&RealFs, &plan.path.with_extension(INDEX_SUFFIX.trim_start_matches('.')))
    }

    /// Gives the file a second name in the folder of kept ones: `<stream>-<topic>-<partition>-<file>`, numbered when it was
    /// repaired before.
    fn keep(&self, path: &Path) -> io::Result<()> {
        let kept = self.root.join(KEPT);
        (self.before_change)()?;
        fs::create_dir_all(&kept)?;
        let parts = self.dir.strip_prefix(self.root).unwrap_or(self.dir).iter().chain(path.file_name());
        let name = parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-");
        (self.before_change)()?;
        for number in 1..=u32::MAX {
            match fs::hard_link(path, kept.join(format!("{name}.{number}"))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.and_then(|()| RealFs.sync_dir(&kept)).and_then(|()| RealFs.sync_dir(self.root)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Gives the file to the owner of the other one: a repair may be run by an administrator, and the server must still be
/// able to open it.
fn own_as(path: &Path, model: &fs::Metadata) -> io::Result<()> {
    let is = fs::metadata(path)?;
    if (is.uid(), is.gid()) == (model.uid(), model.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(model.uid()), Some(model.gid()))
}

fn copy(from: &mut fs::File, to: &mut fs::File, start: u64, end: u64) -> io::Result<()> {
    from.seek(SeekFrom::Start(start))?;
    let bytes = end.saturating_sub(start);
    let copied = io::copy(&mut from.take(bytes), to)?;
    if copied == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Entries without frames for the offsets of the cut; one, unless it is of billions.
fn holes(to: &mut fs::File, segment: &SegmentHeader, cut: &Cut) -> io::Result<()> {
    let mut offset = cut.from.offset;
    while offset < cut.to.offset {
        let count = u32::try_from(cut.to.offset - offset).unwrap_or(u32::MAX);
        to.write_all(&EntryHeader::hole(segment.nonce, offset, count).encode(&[]))?;
        offset += u64::from(count);
    }
    Ok(())
}
