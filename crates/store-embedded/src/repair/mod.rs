//! Cuts damaged messages out of a data folder that no process has open, so that reads pass over them.
//!
//! - `plan`: what is damaged and what to do about it; changes nothing
//! - `apply`: does it, one file at a time
//!
//! What was cut out is a *hole*: an entry without frames that stands for the offsets (`format`). The offsets of all other
//! messages stay. Every file that is changed is kept as it was in `repaired/` of the data folder, and every change is a
//! line in `repairs.log` there. A repair that was interrupted is done again from the start.

mod apply;
mod plan;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use milena_store::{INTERNAL_STREAM, StoreError};

use crate::folder::{AtRest, OpenError};
use crate::fs::real::RealFs;
use crate::partition::partition_dir;
use apply::Work;
use plan::Plan;

/// What a repair did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// In the order of the files.
    pub repairs: Vec<Repair>,
}

/// One change, or one place that nothing can be done about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The file.
    pub path: PathBuf,
    /// Topic and partition, as `stream/topic/partition`.
    pub partition: String,
    /// What it is.
    pub kind: RepairKind,
}

/// What is done about damage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairKind {
    /// The messages `from..to` are damaged or missing and are cut out.
    CutOut {
        /// First offset.
        from: u64,
        /// Offset behind the last one.
        to: u64,
    },
    /// The messages from there on, at the end of the partition, are damaged and are cut off. How many there were is not known;
    /// their offsets will be given to others.
    CutEnd {
        /// First offset.
        from: u64,
    },
    /// The head of the segment is written again from its copies.
    Head,
    /// The start of the partition moves up to where its segments begin.
    MoveStart {
        /// Where it was.
        from: u64,
        /// First offset that is there.
        to: u64,
    },
    /// The file that holds the start of the partition is damaged: it is set to where the segments begin, which can bring
    /// deleted messages back.
    NewStart {
        /// First offset that is there.
        to: u64,
    },
    /// Nothing can be done: where the partition begins or ends is not known, and guessing could give the offsets of
    /// acknowledged messages to others.
    Hopeless,
    /// Nothing is done: it is state of the server, where a missing message changes what those behind it mean. A copy of the
    /// folder of that topic from a backup is the repair.
    State,
}

impl Repair {
    /// True when nothing is done about it.
    #[must_use]
    pub fn is_left(&self) -> bool {
        matches!(self.kind, RepairKind::Hopeless | RepairKind::State)
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, partition, kind } = self;
        write!(f, "{partition}: ")?;
        match kind {
            RepairKind::CutOut { from, to } => {
                write!(f, "the messages from offset {from} up to {to} are damaged or missing and are cut out")?;
            }
            RepairKind::CutEnd { from } => {
                write!(
                    f,
                    "the messages from offset {from} on, at the end, are damaged and are cut off; their offsets will be given again"
                )?;
            }
            RepairKind::Head => f.write_str("the head of the segment is written again")?,
            RepairKind::MoveStart { from, to } => write!(f, "the first offset moves from {from} to {to}")?,
            RepairKind::NewStart { to } => {
                write!(f, "the first offset is not known and becomes {to}; deleted messages can come back")?;
            }
            RepairKind::Hopeless => {
                f.write_str("where the partition begins or ends is not known, and it cannot be repaired")?;
            }
            RepairKind::State => f.write_str("state of the server is damaged, and is only repaired from a backup")?,
        }
        write!(f, " ({})", path.display())
    }
}

impl RepairReport {
    /// Places that were left as they are.
    #[must_use]
    pub fn left(&self) -> usize {
        self.repairs.iter().filter(|repair| repair.is_left()).count()
    }
}

/// Cuts out what is damaged, when `execute` is set; else only says what it would do. Blocking, and as long as reading the
/// folder takes. `time` is written into the log of repairs.
///
/// # Errors
/// When the folder is in use, has another format, its catalog cannot be read, or a file cannot be read or written.
pub fn repair_data(dir: &Path, execute: bool, time: &str) -> Result<RepairReport, OpenError> {
    repair_until(dir, execute, time, &|| Ok(()))
}

/// As [`repair_data`]; an error of `before_change`, which is called before each change, ends it there.
pub(crate) fn repair_until(
    dir: &Path,
    execute: bool,
    time: &str,
    before_change: &dyn Fn() -> io::Result<()>,
) -> Result<RepairReport, OpenError> {
    let store = |error: StoreError| OpenError::Store { dir: dir.to_owned(), error };
    let at_rest = AtRest::of(&RealFs, dir)?;
    let mut report = RepairReport::default();
    for info in &at_rest.topics {
        for partition in 0..info.partitions {
            let id = info.topic.partition(partition);
            let folder = partition_dir(dir, &id);
            let plan = Plan::of(&folder, at_rest.closed).map_err(store)?;
            let mut repairs = plan.repairs(&format!("{id:?}"));
            if info.topic.stream() == INTERNAL_STREAM {
                repairs.iter_mut().for_each(|repair| repair.kind = RepairKind::State);
            } else if execute && !repairs.is_empty() {
                let work = Work { root: dir, dir: &folder, before_change };
                work.apply(&plan, &repairs, time).map_err(store)?;
            }
            report.repairs.append(&mut repairs);
        }
    }
    Ok(report)
}
