//! What is damaged in one partition.

use std::io;
use std::path::{Path, PathBuf};

use milena_store::StoreError;

use super::{Repair, RepairKind};
use crate::fault::failed;
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::fs::real::RealFs;
use crate::fs::{Access, Fs};
use crate::index::Place;
use crate::partition::{START, load_start};
use crate::scan::{Scanner, Step};
use crate::segment::{ReadHeader, Segment, bases};

/// What to do about one partition.
pub(super) struct Plan {
    start: PathBuf,
    /// New start, with the old one where it is known.
    pub(super) new_start: Option<(Option<u64>, u64)>,
    /// True when the start is damaged and there is no segment to tell another one.
    lost_start: bool,
    pub(super) segments: Vec<SegmentPlan>,
}

/// What to do about one segment.
pub(super) struct SegmentPlan {
    pub(super) path: PathBuf,
    /// The head to write; `None` when none is known and nothing can be done.
    pub(super) header: Option<SegmentHeader>,
    pub(super) new_head: bool,
    /// In order; what lies between them stays.
    pub(super) cuts: Vec<Cut>,
    /// Where the last whole entry ends.
    pub(super) end: u64,
    /// Offset from which on the end is damaged, of a segment with no other one behind it.
    pub(super) cut_end: Option<u64>,
}

/// Bytes that go, and the offsets that a hole takes the place of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) from: Place,
    pub(super) to: Place,
}

impl Plan {
    /// `closed` says that the store was closed, so that everything in it was whole.
    pub(super) fn of(dir: &Path, closed: bool) -> Result<Self, StoreError> {
        let mut plan = Self { start: dir.join(START), new_start: None, lost_start: false, segments: Vec::new() };
        let items = match RealFs.list(dir) {
            Ok(items) => items,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(plan),
            Err(error) => return Err(failed(format_args!("listing {}", dir.display()), &error)),
        };
        let bases = bases(&items);
        let first = bases.first().copied();
        plan.new_start = match (load_start(&RealFs, dir), first) {
            (Ok(start), Some(first)) if first > start.unwrap_or(0) => Some((Some(start.unwrap_or(0)), first)),
            (Ok(_), _) => None,
            (Err(StoreError::Broken { .. }), Some(first)) => Some((None, first)),
            (Err(StoreError::Broken { .. }), None) => {
                plan.lost_start = true;
                None
            }
            (Err(error), _) => return Err(error),
        };
        for (number, base) in bases.iter().enumerate() {
            let next = bases.get(number + 1).copied();
            plan.segments.push(segment(dir, *base, next, closed)?);
        }
        Ok(plan)
    }

    pub(super) fn repairs(&self, partition: &str) -> Vec<Repair> {
        let repair = |path: &Path, kind| Repair { path: path.to_owned(), partition: partition.to_owned(), kind };
        let start = self.new_start.map(|(from, to)| match from {
            Some(from) => repair(&self.start, RepairKind::MoveStart { from, to }),
            None => repair(&self.start, RepairKind::NewStart { to }),
        });
        let lost = self.lost_start.then(|| repair(&self.start, RepairKind::Hopeless));
        let mut repairs: Vec<Repair> = start.into_iter().chain(lost).collect();
        for segment in &self.segments {
            if segment.header.is_none() {
                repairs.push(repair(&segment.path, RepairKind::Hopeless));
            } else if segment.new_head {
                repairs.push(repair(&segment.path, RepairKind::Head));
            }
            for Cut { from, to } in &segment.cuts {
                repairs.push(repair(&segment.path, RepairKind::CutOut { from: from.offset, to: to.offset }));
            }
            if let Some(from) = segment.cut_end {
                repairs.push(repair(&segment.path, RepairKind::CutEnd { from }));
            }
        }
        repairs
    }
}

fn segment(dir: &Path, base: u64, next: Option<u64>, closed: bool) -> Result<SegmentPlan, StoreError> {
    let segment = Segment::new(0, dir, base, 0);
    let path = segment.path.clone();
    let unreadable = |error: io::Error| failed(format_args!("reading {}", path.display()), &error);
    let file = RealFs.open(&path, Access::Read).map_err(unreadable)?;
    let size = file.size().map_err(unreadable)?;
    let first = Place { offset: base, position: SEGMENT_HEADER_BYTES as u64 };
    let Some(ReadHeader { header, is_copy }) = segment.read_header(&RealFs, &*file)? else {
        let torn = next.is_none() && Segment::was_never_flushed(&*file, size).map_err(unreadable)?;
        let end = first.position;
        let plan = |header, cuts| SegmentPlan { path: path.clone(), header, new_head: true, cuts, end, cut_end: None };
        return Ok(match next {
            // A start removes it by itself.
            None if torn => SegmentPlan { new_head: false, ..plan(Some(SegmentHeader::unmarked(base)), Vec::new()) },
            None => plan(None, Vec::new()),
            Some(next) => {
                let to = Place { offset: next, position: size };
                plan(Some(SegmentHeader::unmarked(base)), vec![Cut { from: first, to }])
            }
        });
    };
    let mut plan = SegmentPlan {
        path: path.clone(),
        header: Some(header),
        new_head: is_copy,
        cuts: Vec::new(),
        end: 0,
        cut_end: None,
    };
    let mut scanner = Scanner::new(&*file, header.nonce, first, size);
    loop {
        match scanner.step().map_err(unreadable)? {
            Step::Entry { .. } => {}
            Step::Bad(from) => match scanner.find_next().map_err(unreadable)? {
                Some(to) if next.is_none_or(|next| to.offset < next) => {
                    plan.cuts.push(Cut { from, to });
                    scanner.skip_to(to);
                }
                _ => break,
            },
            Step::End => break,
        }
    }
    let end = scanner.place();
    plan.end = end.position;
    match next {
        Some(next) if end.offset < next => {
            plan.cuts.push(Cut { from: end, to: Place { offset: next, position: size } });
        }
        // Unless the store was closed it is a torn end, which the next start cuts off.
        None if closed && end.position < size => plan.cut_end = Some(end.offset),
        _ => {}
    }
    Ok(plan)
}
