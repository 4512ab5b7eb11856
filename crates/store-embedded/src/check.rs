//! Verifies every checksum of a data folder that no process has open.

use std::path::{Path, PathBuf};

use milena_store::{PartitionRef, StoreError};

use crate::fault::failed;
use crate::folder::{AtRest, OpenError};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::fs::real::RealFs;
use crate::fs::{Access, Fs};
use crate::index::Place;
use crate::partition::{load_start, partition_dir};
use crate::scan::{Scanner, Step};
use crate::segment::{ReadHeader, Segment, bases};

/// What a data folder holds, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Topics in the catalog.
    pub topics: u64,
    /// Partitions that hold files.
    pub partitions: u64,
    /// Segment files.
    pub segments: u64,
    /// Whole entries.
    pub entries: u64,
    /// Messages in whole entries.
    pub messages: u64,
    /// Messages that a repair cut out.
    pub cut_out: u64,
    /// Bytes of all segment files.
    pub bytes: u64,
    /// What is wrong, in the order of the files.
    pub problems: Vec<Problem>,
}

/// Something wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file or folder.
    pub path: PathBuf,
    /// Topic and partition, as `stream/topic/partition`.
    pub partition: String,
    /// First offset that is concerned, where that is known.
    pub offset: Option<u64>,
    /// Position in the file, in bytes.
    pub position: u64,
    /// What is wrong, as a sentence.
    pub what: String,
    /// True for the end of the newest segment of a store that was not closed: the next start cuts it off, and nothing that was
    /// acknowledged under its durability is lost by that. After a clean stop everything was whole, so that such an end is
    /// damage; the next start cuts it off as well.
    pub torn_tail: bool,
}

impl CheckReport {
    /// True when nothing is wrong that a start does not put right by itself.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.torn_tail)
    }
}

/// Reads all of a data folder and verifies every checksum. Changes nothing. Blocking, and as long as reading takes.
///
/// # Errors
/// When the folder is in use, has another format, or its catalog cannot be read.
pub fn check_data(dir: &Path) -> Result<CheckReport, OpenError> {
    check_on(&RealFs, dir)
}

pub(crate) fn check_on(fs: &dyn Fs, root: &Path) -> Result<CheckReport, OpenError> {
    let store = |error: StoreError| OpenError::Store { dir: root.to_owned(), error };
    let folder = AtRest::of(fs, root)?;
    let mut report = CheckReport { topics: folder.topics.len() as u64, ..CheckReport::default() };
    for info in &folder.topics {
        for partition in 0..info.partitions {
            check_partition(fs, root, &info.topic.partition(partition), folder.closed, &mut report).map_err(store)?;
        }
    }
    Ok(report)
}

/// One segment under examination.
struct Subject<'a> {
    path: &'a Path,
    partition: &'a PartitionRef,
    /// True when its end can be torn: it is the newest one, of a store that was not closed.
    can_be_torn: bool,
}

impl Subject<'_> {
    fn problem(&self, place: Place, what: String, torn_tail: bool) -> Problem {
        Problem {
            path: self.path.to_owned(),
            partition: format!("{:?}", self.partition),
            offset: Some(place.offset),
            position: place.position,
            what,
            torn_tail,
        }
    }
}

fn check_partition(
    fs: &dyn Fs,
    root: &Path,
    id: &PartitionRef,
    closed: bool,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let dir = partition_dir(root, id);
    let items = match fs.list(&dir) {
        Ok(items) => items,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(format_args!("listing {}", dir.display()), &error)),
    };
    report.partitions += 1;
    let start = match load_start(fs, &dir) {
        Ok(start) => start.unwrap_or(0),
        Err(error) => {
            let (path, partition) = (dir.clone(), format!("{id:?}"));
            let what = error.to_string();
            report.problems.push(Problem { path, partition, offset: None, position: 0, what, torn_tail: false });
            0
        }
    };
    let bases = bases(&items);
    let mut expected = start;
    for (number, base) in bases.iter().enumerate() {
        let segment = Segment::new(0, &dir, *base, 0);
        let subject = Subject { path: &segment.path, partition: id, can_be_torn: !closed && number + 1 == bases.len() };
        if *base > expected {
            let what = format!("the messages from offset {expected} to {base} are missing");
            report.problems.push(subject.problem(Place { offset: expected, position: 0 }, what, false));
        }
        expected = expected.max(check_segment(fs, &segment, &subject, report)?);
    }
    Ok(())
}

/// Answers the offset behind the last whole entry.
fn check_segment(
    fs: &dyn Fs,
    segment: &Segment,
    subject: &Subject<'_>,
    report: &mut CheckReport,
) -> Result<u64, StoreError> {
    let path = segment.path.display();
    let unreadable = |error: std::io::Error| failed(format_args!("reading {path}"), &error);
    let file = fs.open(&segment.path, Access::Read).map_err(unreadable)?;
    let size = file.size().map_err(unreadable)?;
    report.segments += 1;
    report.bytes += size;
    let first = Place { offset: segment.base_offset(), position: SEGMENT_HEADER_BYTES as u64 };
    let head = Place { position: 0, ..first };
    let header = match segment.read_header(fs, &*file)? {
        Some(ReadHeader { header, is_copy: false }) => header,
        Some(ReadHeader { header, is_copy: true }) => {
            report.problems.push(subject.problem(head, "the head of the segment is damaged".to_owned(), false));
            header
        }
        None => {
            let torn = subject.can_be_torn && Segment::was_never_flushed(&*file, size).map_err(unreadable)?;
            report.problems.push(subject.problem(head, "the segment has no head".to_owned(), torn));
            return Ok(first.offset);
        }
    };
    let mut scanner = Scanner::new(&*file, header.nonce, first, size);
    loop {
        match scanner.step().map_err(unreadable)? {
            Step::Entry { header, .. } if header.is_hole() => report.cut_out += u64::from(header.count),
            Step::Entry { header, .. } => {
                report.entries += 1;
                report.messages += u64::from(header.count);
            }
            Step::Bad(place) => {
                let next = scanner.find_next().map_err(unreadable)?;
                let Some(next) = next else {
                    let bytes = size - place.position;
                    let what = format!("the last {bytes} bytes of the segment are no whole entry");
                    report.problems.push(subject.problem(place, what, subject.can_be_torn));
                    return Ok(place.offset);
                };
                let what = format!("the entries up to offset {} are damaged", next.offset);
                report.problems.push(subject.problem(place, what, false));
                scanner.skip_to(next);
            }
            Step::End => return Ok(scanner.place().offset),
        }
    }
}
