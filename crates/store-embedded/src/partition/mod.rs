//! One partition: a folder of segments with one writer at a time and any number of readers.
//!
//! - `append`: the queue of waiting appends and the leader that writes for all of them
//! - `write`: entries into the active segment, rolling, cutting back after an error
//! - `flush`: what makes written entries durable
//! - `read`: entries by offset
//! - `time`: messages by time
//! - `recover`: from files to a partition; `verify` finds out what of them can be believed, `tail` where to go on
//! - `retain`: the start of the log and the removal of segments
//! - `state`: the file that holds the start of the log

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use milena_store::{Bounds, PartitionRef, StoreError, TopicRef};
use parking_lot::{Mutex, RwLock};

use crate::config::Effective;
use crate::env::Env;
use crate::index::Place;
use crate::segment::Segment;

mod append;
mod flush;
mod read;
mod recover;
mod retain;
mod state;
mod tail;
mod time;
mod verify;
mod write;

pub(crate) use append::Prepared;
pub(crate) use flush::flush_together;
pub(crate) use recover::{Origin, partition_dir};
pub(crate) use state::{NAME as START, load as load_start, save as save_start};

/// What the partitions of a topic share.
pub(crate) struct TopicState {
    pub(crate) topic: TopicRef,
    pub(crate) effective: RwLock<Arc<Effective>>,
    pub(crate) deleted: AtomicBool,
}

/// Segments in the order of their offsets.
pub(crate) type Log = Arc<Vec<Arc<Segment>>>;

/// An open partition.
pub(crate) struct Partition {
    pub(crate) env: Arc<Env>,
    pub(crate) topic: Arc<TopicState>,
    pub(crate) id: PartitionRef,
    /// Names the partition in the cache of handles.
    number: u64,
    dir: PathBuf,
    queue: Mutex<Queue>,
    writer: Mutex<Writer>,
    /// Held while flushing, so that flushes of one partition follow each other and the later ones find nothing to do.
    flushing: Mutex<()>,
    log: RwLock<Log>,
    /// First retained offset.
    start: AtomicU64,
    /// Offset behind the last message that readers may see.
    end: AtomicU64,
    hints: Mutex<Hints>,
    /// Held while the start of the log moves.
    trimming: Mutex<()>,
    /// Segments that left the log and whose files are still there.
    doomed: Mutex<Vec<Arc<Segment>>>,
    /// True once nothing is written any more, as the topic is about to have no partition of that number.
    retired: AtomicBool,
    /// True once that is stored, or that the topic is deleted: no crash brings the partition back.
    forgotten: AtomicBool,
    me: Weak<Partition>,
}

/// Appends that wait for the leader.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Prepared>,
    bytes: usize,
    /// True while somebody writes; everybody else waits in the queue.
    led: bool,
}

/// What only the one who holds the lock may change.
struct Writer {
    /// The segment that grows; `None` until the next append starts one.
    active: Option<Arc<Segment>>,
    /// Offset of the next message to be written.
    next_offset: u64,
    /// Append time of the first entry in the active segment.
    first_append: Option<u64>,
    /// Records of the active segment's index that are in its file, and the position up to which they reach.
    indexed: (usize, u64),
    /// Position up to which space is reserved in the active segment.
    reserved: u64,
    /// Why the partition refuses writes.
    poisoned: Option<String>,
    /// True once the partition's folder exists.
    has_dir: bool,
    /// Segments with bytes that are not known to be on the device, oldest first.
    unflushed: Vec<Arc<Segment>>,
    names: Names,
    unflushed_bytes: u64,
    unflushed_messages: u64,
    /// True while a flush is due at a later time.
    flush_scheduled: bool,
    /// Everything below is on the device.
    durable_end: u64,
}

/// Names in the partition's folder, and the folder's own: how often they changed, and up to which change they are known
/// to be on the device.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    changed: u64,
    flushed: u64,
}

impl Names {
    fn change(&mut self) {
        self.changed += 1;
    }

    fn are_flushed(self) -> bool {
        self.changed == self.flushed
    }
}

/// Where recent reads ended and recent appends started: the place of the next read of the same consumer.
#[derive(Default)]
struct Hints {
    places: [Option<(u64, Place)>; 8],
    next: usize,
}

impl Hints {
    fn find(&self, offset: u64) -> Option<(u64, Place)> {
        self.places.iter().flatten().find(|(_, place)| place.offset == offset).copied()
    }

    fn add(&mut self, segment: u64, place: Place) {
        if self.find(place.offset).is_none()
            && let Some(slot) = self.places.get_mut(self.next)
        {
            *slot = Some((segment, place));
            self.next = (self.next + 1) % self.places.len();
        }
    }
}

impl Partition {
    pub(crate) fn bounds(&self) -> Bounds {
        // The start is read first: it never passes the end, so the pair is never upside down.
        let start = self.start.load(Ordering::Acquire);
        Bounds { start, end: self.end.load(Ordering::Acquire) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.log.read().iter().map(|segment| segment.written()).sum()
    }

    fn effective(&self) -> Arc<Effective> {
        self.topic.effective.read().clone()
    }

    /// True when the topic was deleted, or has no partition of that number any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.retired.load(Ordering::Acquire) || self.topic.deleted.load(Ordering::Acquire)
    }

    fn refuse_when_gone(&self) -> Result<(), StoreError> {
        self.env.refuse_when_closed()?;
        if self.is_gone() {
            return Err(StoreError::NotFound { what: format!("partition {:?}", self.id) });
        }
        Ok(())
    }

    /// Makes everything below `end` readable and tells the watcher.
    fn publish(&self, end: u64, bytes: usize) {
        self.end.fetch_max(end, Ordering::AcqRel);
        let watcher = self.env.watcher.read().clone();
        if let Some(watcher) = watcher {
            watcher.grown(&self.id, end, bytes);
        }
    }
}
