//! A file system that does its worst within the rules: what was not flushed can be lost in any part and any order, a
//! name that was not flushed as well; a failed flush loses data and takes it for written; writes are torn by a crash;
//! the device fills up and fails.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_store::Volume;
use parking_lot::Mutex;

use super::{Access, File, Fs, Item, Lock};

/// What reaches the device as a whole or not at all.
const SECTOR_BYTES: u64 = 64;

/// Random numbers that depend on the seed only.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub(crate) fn roll(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// The file system; clones share it.
#[derive(Clone)]
pub(crate) struct FaultyFs(Arc<Mutex<State>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

struct State {
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    /// Changes of names that were not flushed, in order.
    pending_names: Vec<NameChange>,
    files: Vec<Content>,
    dice: Dice,
    boot: u64,
    crashed: bool,
    faults: Faults,
}

/// What goes wrong, and when: each is counted down by the operations it concerns.
#[derive(Default)]
pub(crate) struct Faults {
    /// The crash comes in the midst of this change.
    pub(crate) crash_in: Option<u64>,
    /// This flush fails.
    pub(crate) sync_fails_in: Option<u64>,
    /// This write fails after a part of it.
    pub(crate) write_fails_in: Option<u64>,
    /// This read fails.
    pub(crate) read_fails_in: Option<u64>,
    /// Most bytes of all files.
    pub(crate) capacity: Option<u64>,
    /// What happens just before the next folder is listed.
    pub(crate) before_listing: Option<Box<dyn FnOnce() + Send>>,
}

enum NameChange {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Add(path, _) | Self::Remove(path) | Self::Rename(path, ..) => path.parent(),
        }
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Add(path, node) => drop(names.insert(path, node)),
            Self::Remove(path) => drop(names.remove(&path)),
            Self::Rename(from, to, node) => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

#[derive(Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

enum Change {
    Write(u64, Vec<u8>),
    Size(u64),
}

fn apply_write(content: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = usize::try_from(at).unwrap();
    if content.len() < at + data.len() {
        content.resize(at + data.len(), 0);
    }
    content[at..at + data.len()].copy_from_slice(data);
}

impl Content {
    /// Whole sectors are written, with what else is in them.
    fn make_dirty(&mut self, at: u64, bytes: u64) {
        let from = at / SECTOR_BYTES * SECTOR_BYTES;
        let to = ((at + bytes).div_ceil(SECTOR_BYTES) * SECTOR_BYTES).min(self.live.len() as u64);
        let sectors = &self.live[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
        self.pending.push(Change::Write(from, sectors.to_vec()));
    }

    fn flush(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Size(size) => self.durable.resize(usize::try_from(size).unwrap(), 0),
                Change::Write(at, data) => apply_write(&mut self.durable, at, &data),
            }
        }
    }

    /// Lets any part of what was not flushed reach the device.
    fn lose(&mut self, dice: &mut Dice) {
        let kept = [0, 50, 90, 100][usize::try_from(dice.roll(4)).unwrap()];
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Size(size) if dice.chance(50) => self.durable.resize(usize::try_from(size).unwrap(), 0),
                Change::Size(_) => {}
                Change::Write(at, data) => {
                    let end = at + data.len() as u64;
                    if dice.chance(kept / 2) && (self.durable.len() as u64) < end {
                        self.durable.resize(usize::try_from(end).unwrap(), 0);
                    }
                    let mut from = at;
                    while from < end {
                        let to = ((from / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                        if dice.chance(kept) {
                            let (first, last) =
                                (usize::try_from(from - at).unwrap(), usize::try_from(to - at).unwrap());
                            apply_write(&mut self.durable, from, &data[first..last]);
                        }
                        from = to;
                    }
                }
            }
        }
    }
}

impl State {
    /// Counts a change; true when the crash comes within it.
    fn crashes_now(&mut self) -> io::Result<bool> {
        if self.crashed {
            return Err(io::Error::other("crashed"));
        }
        self.crashed = count_down(&mut self.faults.crash_in);
        Ok(self.crashed)
    }

    /// Changes a name, or perhaps not when the crash comes just now.
    fn change(&mut self, change: NameChange) -> io::Result<()> {
        let crashes = self.crashes_now()?;
        if !crashes || self.dice.chance(50) {
            let copy = match &change {
                NameChange::Add(path, node) => NameChange::Add(path.clone(), *node),
                NameChange::Remove(path) => NameChange::Remove(path.clone()),
                NameChange::Rename(from, to, node) => NameChange::Rename(from.clone(), to.clone(), *node),
            };
            copy.apply(&mut self.names);
            self.pending_names.push(change);
        }
        if crashes { Err(io::Error::other("crashed")) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        let files = self.names.values().filter_map(|node| match node {
            Node::File(id) => Some(self.files[*id].live.len() as u64),
            Node::Dir => None,
        });
        files.sum()
    }

    fn require_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Dir) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// True when the fault comes now; then it is spent.
fn count_down(fault: &mut Option<u64>) -> bool {
    match fault {
        Some(0) => {
            *fault = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl FaultyFs {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            files: Vec::new(),
            dice: Dice::new(seed),
            boot: 1,
            crashed: false,
            faults: Faults::default(),
        })))
    }

    pub(crate) fn faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.0.lock().faults)
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.lock().used()
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.0.lock().crashed
    }

    /// The process dies: what it wrote stays. No fault is left.
    pub(crate) fn kill(&self) {
        let mut state = self.0.lock();
        state.crashed = false;
        state.faults = Faults::default();
        // Handles of the dead process are gone; see `FaultyFile::boot`.
        state.boot += 1 << 32;
    }

    /// The machine dies: what was not flushed can be lost. No fault is left.
    pub(crate) fn crash(&self) {
        self.kill();
        let mut state = self.0.lock();
        state.boot += 1;
        let state = &mut *state;
        for change in std::mem::take(&mut state.pending_names) {
            if state.dice.chance(50) {
                change.apply(&mut state.durable_names);
            }
        }
        for content in &mut state.files {
            content.lose(&mut state.dice);
            content.live = content.durable.clone();
        }
        let names = state.durable_names.clone();
        let reachable =
            |path: &PathBuf| path.ancestors().skip(1).all(|above| above == Path::new("/") || names.contains_key(above));
        state.durable_names.retain(|path, _| reachable(path));
        state.names = state.durable_names.clone();
    }

    /// Inverts a bit of a file, on the device as well.
    pub(crate) fn damage(&self, path: &Path, at: usize) {
        let mut state = self.0.lock();
        let Some(Node::File(id)) = state.names.get(path).copied() else { panic!("no file {}", path.display()) };
        let content = &mut state.files[id];
        content.live[at] ^= 1;
        if let Some(byte) = content.durable.get_mut(at) {
            *byte ^= 1;
        }
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().names.keys().cloned().collect()
    }

    fn file(&self, id: usize, boot: u64) -> Arc<dyn File> {
        Arc::new(FaultyFile { fs: self.clone(), id, boot })
    }
}

impl Fs for FaultyFs {
    fn can_block(&self) -> bool {
        false
    }

    fn boot_id(&self) -> Option<String> {
        Some((self.0.lock().boot & 0xffff_ffff).to_string())
    }

    fn create_root(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.names.entry(path.to_owned()).or_insert(Node::Dir);
        state.durable_names.entry(path.to_owned()).or_insert(Node::Dir);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.require_parent(path)?;
        state.change(NameChange::Add(path.to_owned(), Node::Dir))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Item>> {
        let before = self.faults(|faults| faults.before_listing.take());
        if let Some(before) = before {
            before();
        }
        let state = self.0.lock();
        if state.names.get(path) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let children = state.names.iter().filter(|(at, _)| at.parent() == Some(path));
        let item = |(at, node): (&PathBuf, &Node)| Item {
            name: at.file_name().unwrap().to_str().unwrap().to_owned(),
            is_dir: *node == Node::Dir,
        };
        Ok(children.map(item).collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        if state.crashed {
            return Err(io::Error::other("crashed"));
        }
        let id = match (state.names.get(path), access) {
            (Some(Node::File(_)), Access::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(id)), _) => *id,
            (Some(Node::Dir), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (None, Access::Create) => {
                state.require_parent(path)?;
                let id = state.files.len();
                state.files.push(Content::default());
                state.change(NameChange::Add(path.to_owned(), Node::File(id)))?;
                id
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let boot = state.boot;
        drop(state);
        Ok(self.file(id, boot))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let node = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned(), node))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        match state.names.get(path) {
            Some(Node::File(_)) => state.change(NameChange::Remove(path.to_owned())),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.names.keys().any(|at| at.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(NameChange::Remove(path.to_owned()))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.crashes_now()? || count_down(&mut state.faults.sync_fails_in) {
            return Err(io::Error::other("the flush failed"));
        }
        let (flushed, kept) =
            std::mem::take(&mut state.pending_names).into_iter().partition(|change| change.dir() == Some(path));
        state.pending_names = kept;
        let flushed: Vec<NameChange> = flushed;
        flushed.into_iter().for_each(|change| change.apply(&mut state.durable_names));
        Ok(())
    }

    fn sync_everything(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.crashes_now()? || count_down(&mut state.faults.sync_fails_in) {
            let State { files, dice, .. } = &mut *state;
            files.iter_mut().for_each(|content| content.lose(dice));
            return Err(io::Error::other("the flush failed"));
        }
        let State { files, pending_names, durable_names, .. } = &mut *state;
        files.iter_mut().for_each(Content::flush);
        std::mem::take(pending_names).into_iter().for_each(|change| change.apply(durable_names));
        Ok(())
    }

    fn volume(&self, _path: &Path) -> io::Result<Option<Volume>> {
        Ok(None)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Box::new(())))
    }
}

struct FaultyFile {
    fs: FaultyFs,
    id: usize,
    /// A handle of a process that died is of no use to anybody.
    boot: u64,
}

impl FaultyFile {
    fn with<T>(&self, work: impl FnOnce(&mut State, usize) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.fs.0.lock();
        if state.crashed || state.boot != self.boot {
            return Err(io::Error::other("crashed"));
        }
        work(&mut state, self.id)
    }
}

impl File for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.with(|state, id| Ok(state.files[id].live.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|state, id| {
            if count_down(&mut state.faults.read_fails_in) {
                return Err(io::Error::other("the read failed"));
            }
            let live = &state.files[id].live;
            let rest = live.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn read_at_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(buffer, at)
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        self.with(|state, id| {
            let mut data = parts.concat();
            let mut outcome = Ok(());
            if state.crashes_now()? {
                outcome = Err(io::Error::other("crashed"));
            } else if count_down(&mut state.faults.write_fails_in) {
                outcome = Err(io::Error::other("the write failed"));
            }
            if outcome.is_err() {
                data.truncate(usize::try_from(state.dice.roll(data.len() as u64 + 1)).unwrap());
            }
            if let Some(capacity) = state.faults.capacity {
                let grows = (at + data.len() as u64).saturating_sub(state.files[id].live.len() as u64);
                let missing = (state.used() + grows).saturating_sub(capacity);
                if missing > 0 {
                    data.truncate(data.len().saturating_sub(usize::try_from(missing).unwrap()));
                    outcome = Err(io::ErrorKind::StorageFull.into());
                }
            }
            if !data.is_empty() {
                let content = &mut state.files[id];
                apply_write(&mut content.live, at, &data);
                content.make_dirty(at, data.len() as u64);
            }
            outcome
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state, id| {
            let crashes = state.crashes_now()?;
            if crashes || count_down(&mut state.faults.sync_fails_in) {
                if !crashes {
                    // What the kernel does: the pages count as clean from now on.
                    let State { files, dice, .. } = state;
                    files[id].lose(dice);
                }
                return Err(io::Error::other("the flush failed"));
            }
            state.files[id].flush();
            Ok(())
        })
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.with(|state, id| {
            let crashes = state.crashes_now()?;
            if count_down(&mut state.faults.write_fails_in) {
                return Err(io::Error::other("the cut failed"));
            }
            if !crashes || state.dice.chance(50) {
                state.files[id].live.resize(usize::try_from(size).unwrap(), 0);
                state.files[id].pending.push(Change::Size(size));
            }
            if crashes { Err(io::Error::other("crashed")) } else { Ok(()) }
        })
    }

    fn reserve(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}
