//! From files to a partition.
//!
//! After the process alone died, everything that was written is there; only the last write can be torn. So the newest
//! segment is verified from its last index entry on. After the machine died, or when that cannot be ruled out, any
//! page that was not flushed can be missing, and the index proves nothing: segments are verified whole, from the
//! newest back to the first one that is known to have been flushed.
//!
//! The first damaged place is a torn tail, and everything behind it goes, unless there is evidence that it had been
//! flushed (or, while the machine is up, any whole entry behind it): then it is damage to acknowledged messages,
//! which stays where it is and is answered as such.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use milena_store::{PartitionRef, StoreError};
use parking_lot::{Mutex, RwLock};

use super::verify::Recovery;
use super::write::create_dirs;
use super::{Hints, Names, Partition, Queue, TopicState, Writer, state};
use crate::env::Env;
use crate::segment::Segment;

/// What lies between the last use of the folder and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The store was closed, or is new: everything is there and flushed.
    Closed,
    /// The process died and the machine ran on: everything that was written is there.
    SameBoot,
    /// The machine may have crashed.
    MaybeCrashed,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Partition {
    /// Opens the partition, recovering what is in its folder. A folder that is missing is an empty partition. It begins at
    /// `begins_at` at the earliest: what lies below was taken away with the partition that had its number before.
    pub(crate) fn open(
        env: Arc<Env>,
        topic: Arc<TopicState>,
        id: PartitionRef,
        origin: Origin,
        begins_at: u64,
    ) -> Result<Arc<Self>, StoreError> {
        let dir = partition_dir(&env.root, &id);
        if begins_at > state::load(&*env.fs, &dir)?.unwrap_or(0) {
            create_dirs(&*env.fs, &dir)?;
            state::save(&*env.fs, &dir, begins_at)?;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let flushes = topic.effective.read().flushes();
        let mut recovery = Recovery::load(&env, &dir, number, &id, origin)?;
        let has_dir = recovery.has_dir;
        recovery.verify()?;
        let tail = recovery.tail()?;
        let segments: Vec<Arc<Segment>> = recovery.segments.into_iter().map(|found| Arc::new(found.segment)).collect();
        let start = recovery.start.max(segments.first().map_or(0, |first| first.base_offset()));
        let end = tail.end.max(start);
        let writer = Writer {
            active: segments.last().cloned(),
            next_offset: end,
            first_append: tail.first_append,
            indexed: tail.indexed,
            reserved: 0,
            poisoned: None,
            has_dir,
            unflushed: segments.iter().skip(tail.unflushed_from).cloned().collect(),
            names: Names { changed: u64::from(tail.unflushed_names), flushed: 0 },
            unflushed_bytes: 0,
            unflushed_messages: 0,
            flush_scheduled: false,
            durable_end: tail.durable_end,
        };
        let partition = Arc::new_cyclic(|me| Self {
            number,
            dir,
            queue: Mutex::new(Queue::default()),
            writer: Mutex::new(writer),
            flushing: Mutex::new(()),
            log: RwLock::new(Arc::new(segments)),
            start: AtomicU64::new(start),
            end: AtomicU64::new(end),
            hints: Mutex::new(Hints::default()),
            trimming: Mutex::new(()),
            doomed: Mutex::new(Vec::new()),
            retired: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            me: me.clone(),
            env,
            topic,
            id,
        });
        if flushes {
            // Readers will see what was found, so it has to be there for good.
            partition.flush_all()?;
        }
        Ok(partition)
    }
}

/// `<root>/<stream>/<topic>/<partition>`, all by number: names of topics may hold what a file system cannot.
pub(crate) fn partition_dir(root: &Path, id: &PartitionRef) -> PathBuf {
    let topic = root.join(id.topic.stream_id().to_string()).join(id.topic.topic_id().to_string());
    topic.join(id.partition.to_string())
}
