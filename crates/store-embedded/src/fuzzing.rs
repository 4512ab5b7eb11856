//! Fuzz targets of recovery: any bytes make a log and damage it, and what cannot have been hurt must come through.
//!
//! They are plain functions, so that the tests run them over a corpus and a fuzzer needs no more than a call. All files are in
//! memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use milena_store::frame::{Frames, frame_header};
use milena_store::{AppendBatch, Bounds, Durability, PartitionRef, ReadLimit, StoreError, TopicSettings};
use parking_lot::RwLock;

use crate::config::{Effective, EmbeddedConfig};
use crate::env::Env;
use crate::fault::Wait;
use crate::format::{ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::fs::memory::MemoryFs;
use crate::fs::{Access, Fs, read_small, remove_if_there};
use crate::partition::{Origin, Partition, START, TopicState, partition_dir};
use crate::segment::{DATA_SUFFIX, INDEX_SUFFIX, bases};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Target); 2] = [("damaged_log", damaged_log), ("any_files", any_files)];

const ROOT: &str = "/data";
/// Most entries of a log.
const ENTRIES_MAX: usize = 24;
/// Most changes to its files.
const CHANGES_MAX: usize = 8;
/// Bytes of a file; far above what is written.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the frame in front of a payload.
const FRAME_BYTES: usize = 32;
/// Factor of payloads in logs that are to have an index.
const LARGE: usize = 300;

/// A log of up to 24 entries, closed or not, whose segments, indexes and start are then changed as the bytes say: bytes
/// and ranges overwritten, copied, cut, and files removed.
///
/// # Panics
/// When opening panics, when a message comes back that was never written, or when one is missing in front of the first byte that
/// was changed.
pub fn damaged_log(data: &[u8]) {
    let mut input = Input(data);
    let origin = input.origin();
    let world = World::new(input.byte());
    let payloads = world.write(&mut input, origin);
    let before = world.segments();
    let mut start_is_known = true;
    for _ in 0..usize::from(input.byte()) % (CHANGES_MAX + 1) {
        start_is_known &= world.change(&mut input);
    }
    let intact = if start_is_known { intact(&before, &world.segments(), &payloads) } else { 0 };
    let Ok(partition) = world.open(origin) else {
        // What is not opened is not lost either, and an operator hears of it.
        assert!(!start_is_known || world.segments() != before, "an untouched log is not opened");
        return;
    };
    let end = check(&partition, &payloads, intact);
    let appended = append(&partition, b"after").map(|appended| appended.base_offset);
    assert_eq!(appended, Ok(Some(end)), "the next message follows");
    drop(partition);
    let mut payloads = payloads;
    payloads.truncate(usize::try_from(end).unwrap_or(usize::MAX));
    payloads.resize(usize::try_from(end).unwrap_or(usize::MAX), Vec::new());
    payloads.push(b"after".to_vec());
    let again = world.open(Origin::SameBoot).map(|again| check(&again, &payloads, intact));
    assert_eq!(again, Ok(end + 1), "what was recovered stays");
}

/// The bytes as the files of a partition: how it is opened, whether the segment gets a header that is right, and whether there
/// is a start; then two bytes that say how long the index is, the index, and the segment.
///
/// # Panics
/// When opening or reading does.
pub fn any_files(data: &[u8]) {
    let mut input = Input(data);
    let (origin, kind) = (input.origin(), input.byte());
    let world = World::new(0);
    let len = usize::from(input.number());
    let index = input.take(len);
    let segment = if kind & 1 == 0 {
        input.0.to_vec()
    } else {
        let header = SegmentHeader { nonce: 7, base_offset: 0, durable_end: 0 };
        [&header.encode(), input.0].concat()
    };
    let name = |suffix: &str| world.dir.join(format!("{:020}{suffix}", 0));
    world.put(&name(DATA_SUFFIX), &segment);
    if !index.is_empty() {
        world.put(&name(INDEX_SUFFIX), index);
    }
    if kind & 2 != 0 {
        world.put(&world.dir.join(START), index);
    }
    if let Ok(partition) = world.open(origin) {
        let Bounds { start, end } = partition.bounds();
        read_all(&partition, start, end, |_, _| {});
        assert_eq!(append(&partition, b"after").map(|appended| appended.base_offset), Ok(Some(end)));
    }
}

/// The bytes of an input, which are zeros behind its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn origin(&mut self) -> Origin {
        match self.byte() % 3 {
            0 => Origin::Closed,
            1 => Origin::SameBoot,
            _ => Origin::MaybeCrashed,
        }
    }

    /// A place within `len` bytes, or at their end.
    fn place(&mut self, len: usize) -> usize {
        usize::from(self.number()).wrapping_mul(1 + len / usize::from(u16::MAX)) % (len + 1)
    }
}

/// A file system with one partition.
struct World {
    fs: Arc<MemoryFs>,
    config: EmbeddedConfig,
    id: PartitionRef,
    dir: PathBuf,
    is_large: bool,
}

impl World {
    /// Of a new topic. The last bits of `kind` choose durability and size.
    fn new(kind: u8) -> Self {
        let is_large = kind & 1 != 0;
        let config = EmbeddedConfig {
            durability: if kind & 2 == 0 { Durability::Os } else { Durability::Always },
            segment_bytes: if is_large { 300_000 } else { 1_100 },
            ..EmbeddedConfig::default()
        };
        let fs = Arc::new(MemoryFs::default());
        let id = PartitionRef { topic: milena_store::TopicRef::new("kafka", "t", 1, 1, 1), partition: 0 };
        let dir = partition_dir(Path::new(ROOT), &id);
        let world = Self { fs, config, id, dir, is_large };
        let mut folder = PathBuf::new();
        for part in &world.dir {
            folder.push(part);
            drop(world.fs.create_root(&folder));
        }
        world
    }

    fn env(&self) -> Env {
        // One time for all that is written: an input does the same each time but for the nonces of segments.
        Env::new(self.fs.clone(), PathBuf::from(ROOT), self.config.clone(), Arc::new(|| 1_700_000_000_000_000))
    }

    fn open(&self, origin: Origin) -> Result<Arc<Partition>, StoreError> {
        let effective = Effective::of(&self.config, &TopicSettings::default());
        let topic = TopicState {
            topic: self.id.topic.clone(),
            effective: RwLock::new(Arc::new(effective)),
            deleted: false.into(),
        };
        Partition::open(Arc::new(self.env()), Arc::new(topic), self.id.clone(), origin, 0)
    }

    /// Writes a log, and answers its payloads, one an offset.
    fn write(&self, input: &mut Input<'_>, origin: Origin) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        let Ok(partition) = self.open(Origin::Closed) else { return payloads };
        let count = usize::from(input.byte()) % (ENTRIES_MAX + 1);
        for number in 0..count {
            let len = usize::from(input.byte()) * if self.is_large { LARGE } else { 1 };
            let payload = vec![u8::try_from(number).unwrap_or(0); len];
            if append(&partition, &payload).is_ok() {
                payloads.push(payload);
            }
        }
        if origin == Origin::Closed {
            drop(partition.flush_all());
        }
        payloads
    }

    /// Changes one file. False when it is the one that holds the start of the log.
    fn change(&self, input: &mut Input<'_>) -> bool {
        let names: Vec<String> =
            self.fs.list(&self.dir).unwrap_or_default().into_iter().map(|item| item.name).collect();
        let pick = usize::from(input.byte());
        let Some(name) = names.get(pick % (names.len() + 1)) else {
            // None of them: a start, which may be of any bytes.
            let len = usize::from(input.byte());
            self.put(&self.dir.join(START), input.take(len));
            return false;
        };
        let path = self.dir.join(name);
        let mut content = read_small(&*self.fs, &path, FILE_BYTES_MAX).ok().flatten().unwrap_or_default();
        let kind = input.byte();
        let at = input.place(content.len());
        match kind % 6 {
            0 => {
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= 1 << (kind >> 5);
                }
            }
            1 => {
                let len = usize::from(input.byte());
                let bytes = input.take(len);
                let room = content.len().min(at + bytes.len());
                let bytes = bytes.get(..room - at).unwrap_or_default();
                if let Some(target) = content.get_mut(at..room) {
                    target.copy_from_slice(bytes);
                }
            }
            2 => content.truncate(at),
            3 => {
                // A page of another place, as after a write that went astray.
                let from = input.place(content.len());
                let len = usize::from(input.number()).min(content.len() - at.max(from));
                content.copy_within(from..from + len, at);
            }
            4 => content.resize(content.len() + usize::from(input.number()), kind),
            _ => {
                drop(self.fs.remove_file(&path));
                return name != START;
            }
        }
        self.put(&path, &content);
        name != START
    }

    fn put(&self, path: &Path, content: &[u8]) {
        drop(remove_if_there(&*self.fs, path));
        if let Ok(file) = self.fs.open(path, Access::Create) {
            drop(file.write_at(&[content], 0));
        }
    }

    /// The segment files, by first offset.
    fn segments(&self) -> Vec<(u64, Vec<u8>)> {
        let bases = bases(&self.fs.list(&self.dir).unwrap_or_default());
        let content = |base: u64| {
            let path = self.dir.join(format!("{base:020}{DATA_SUFFIX}"));
            read_small(&*self.fs, &path, FILE_BYTES_MAX).ok().flatten().unwrap_or_default()
        };
        bases.into_iter().map(|base| (base, content(base))).collect()
    }
}

/// How many messages lie whole in front of the first byte that changed.
fn intact(before: &[(u64, Vec<u8>)], after: &[(u64, Vec<u8>)], payloads: &[Vec<u8>]) -> u64 {
    let mut intact = 0;
    for (number, (base, old)) in before.iter().enumerate() {
        let new =
            after.get(number).filter(|(found, _)| found == base).map(|(_, new)| new.as_slice()).unwrap_or_default();
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let mut position = SEGMENT_HEADER_BYTES;
        let next = before.get(number + 1).map_or(payloads.len() as u64, |(next, _)| *next);
        for payload in (*base..next).filter_map(|offset| payloads.get(usize::try_from(offset).ok()?)) {
            position += ENTRY_HEADER_BYTES + FRAME_BYTES + payload.len();
            if position > same {
                return intact;
            }
            intact += 1;
        }
        if new.len() != old.len() {
            return intact;
        }
    }
    intact
}

/// Reads all; answers the end.
fn check(partition: &Arc<Partition>, payloads: &[Vec<u8>], intact: u64) -> u64 {
    let Bounds { start, end } = partition.bounds();
    let mut seen = 0;
    if intact > 0 {
        assert_eq!(start, 0, "the start of the log moved");
        assert!(end >= intact, "{intact} messages are whole, {end} are there");
    }
    read_all(partition, start, end, |offset, payload| {
        let written = usize::try_from(offset).ok().and_then(|offset| payloads.get(offset));
        assert_eq!(written.map(Vec::as_slice), Some(payload), "offset {offset} is not what was written");
        seen += u64::from(offset < intact);
    });
    assert_eq!(seen, intact, "messages in front of the damage are lost");
    end
}

/// Reads every message that can be read.
fn read_all(partition: &Arc<Partition>, start: u64, end: u64, mut each: impl FnMut(u64, &[u8])) {
    let (mut from, mut failures) = (start, 0);
    // Damaged files can claim any number of messages; none of these can be read.
    while from < end && failures <= ENTRIES_MAX {
        let entries = partition.read(from, ReadLimit { bytes: 1 << 20, at_least_one: true }, Wait::Yes);
        let Some((entries, last)) =
            entries.ok().and_then(|entries| entries.last().cloned().map(|last| (entries, last)))
        else {
            (from, failures) = (from + 1, failures + 1);
            continue;
        };
        for entry in &entries {
            for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                each(offset, frame.payload);
            }
        }
        let next = last.base_offset.saturating_add(u64::from(last.count));
        assert!(next > from, "a read does not go on");
        from = next;
    }
}

fn append(partition: &Arc<Partition>, payload: &[u8]) -> Result<milena_store::Appended, StoreError> {
    let mut frames = frame_header(1, 1, u32::try_from(payload.len()).unwrap_or(0), 0).to_vec();
    frames.extend_from_slice(payload);
    let batch = AppendBatch {
        frames: Bytes::from(frames),
        count: 1,
        origin_min_micros: 1,
        origin_max_micros: 1,
        has_untimed: false,
        producer: None,
    };
    let unfinished = || Err(StoreError::Broken { context: "an append in memory waits".to_owned() });
    partition.append(batch).now_or_never().unwrap_or_else(unfinished)
}
