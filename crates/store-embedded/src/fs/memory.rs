//! Files that live in memory and die with the process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_store::Volume;
use parking_lot::{Mutex, RwLock};

use super::{Access, File, Fs, Item, Lock};

/// Content is kept in pieces of this size, so that a growing file is never copied as a whole.
const PIECE_BYTES: usize = 256 * 1024;

/// Files in memory.
#[derive(Default)]
pub(crate) struct MemoryFs {
    nodes: Mutex<BTreeMap<PathBuf, Node>>,
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<MemoryFile>),
}

impl Fs for MemoryFs {
    fn can_block(&self) -> bool {
        false
    }

    fn boot_id(&self) -> Option<String> {
        None
    }

    fn create_root(&self, path: &Path) -> io::Result<()> {
        self.nodes.lock().insert(path.to_owned(), Node::Dir);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes.lock();
        if nodes.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        require_parent(&nodes, path)?;
        nodes.insert(path.to_owned(), Node::Dir);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Item>> {
        let nodes = self.nodes.lock();
        if !matches!(nodes.get(path), Some(Node::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = nodes.range(path.to_owned()..).take_while(|(at, _)| at.starts_with(path));
        let children = below.filter(|(at, _)| at.parent() == Some(path));
        Ok(children
            .filter_map(|(at, node)| {
                let name = at.file_name()?.to_str()?.to_owned();
                Some(Item { name, is_dir: matches!(node, Node::Dir) })
            })
            .collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut nodes = self.nodes.lock();
        match (nodes.get(path), access) {
            (Some(_), Access::Create) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(file)), _) => Ok(file.clone()),
            (Some(Node::Dir), _) => Err(io::ErrorKind::IsADirectory.into()),
            (None, Access::Create) => {
                require_parent(&nodes, path)?;
                let file = Arc::new(MemoryFile::default());
                nodes.insert(path.to_owned(), Node::File(file.clone()));
                Ok(file)
            }
            (None, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = self.nodes.lock();
        let node = nodes.remove(from).ok_or(io::ErrorKind::NotFound)?;
        nodes.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.nodes.lock().remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes.lock();
        if nodes.keys().any(|at| at.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        nodes.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_everything(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn volume(&self, _path: &Path) -> io::Result<Option<Volume>> {
        Ok(None)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Box::new(())))
    }
}

fn require_parent(nodes: &BTreeMap<PathBuf, Node>, path: &Path) -> io::Result<()> {
    let parent = path.parent().and_then(|parent| nodes.get(parent));
    if matches!(parent, Some(Node::Dir)) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[derive(Default)]
struct MemoryFile(RwLock<Pieces>);

/// All pieces but the last are full.
#[derive(Default)]
struct Pieces {
    pieces: Vec<Vec<u8>>,
    size: usize,
}

impl Pieces {
    fn read(&self, buffer: &mut [u8], at: usize) -> usize {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let position = at.saturating_add(filled);
            let piece = self.pieces.get(position / PIECE_BYTES).and_then(|piece| piece.get(position % PIECE_BYTES..));
            let Some(piece) = piece.filter(|piece| !piece.is_empty()) else { break };
            let count = rest.len().min(piece.len());
            if let (Some(to), Some(from)) = (rest.get_mut(..count), piece.get(..count)) {
                to.copy_from_slice(from);
            }
            filled += count;
        }
        filled
    }

    fn write(&mut self, mut data: &[u8], mut at: usize) {
        if at > self.size {
            self.resize(at);
        }
        while !data.is_empty() {
            let (index, within) = (at / PIECE_BYTES, at % PIECE_BYTES);
            let count = data.len().min(PIECE_BYTES - within);
            let (now, rest) = data.split_at(count);
            if index == self.pieces.len() {
                self.pieces.push(Vec::new());
            }
            if let Some(piece) = self.pieces.get_mut(index) {
                let overwritten = count.min(piece.len().saturating_sub(within));
                let (over, new) = now.split_at(overwritten);
                if let Some(target) = piece.get_mut(within..within + overwritten) {
                    target.copy_from_slice(over);
                }
                piece.extend_from_slice(new);
            }
            at += count;
            data = rest;
        }
        self.size = self.size.max(at);
    }

    fn resize(&mut self, size: usize) {
        if size < self.size {
            self.pieces.truncate(size.div_ceil(PIECE_BYTES));
            if let Some(last) = self.pieces.last_mut()
                && !size.is_multiple_of(PIECE_BYTES)
            {
                last.truncate(size % PIECE_BYTES);
            }
            self.size = size;
        }
        while self.size < size {
            let count = (size - self.size).min(PIECE_BYTES);
            self.write(&vec![0; count], self.size);
        }
    }
}

fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl File for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.read().size as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.0.read().read(buffer, offset(at)))
    }

    fn read_at_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(buffer, at)
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        let mut pieces = self.0.write();
        let mut position = offset(at);
        for part in parts {
            pieces.write(part, position);
            position = position.saturating_add(part.len());
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.write().resize(offset(size));
        Ok(())
    }

    fn reserve(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_across_pieces_read_back_and_cut_files_grow_with_zeros() {
        let file = MemoryFile::default();
        let data: Vec<u8> = (0..PIECE_BYTES * 2 + 100).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (head, tail) = data.split_at(PIECE_BYTES - 7);
        file.write_at(&[head, tail], 3).unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(file.read_at(&mut back, 3).unwrap(), data.len());
        assert_eq!(back, data);
        file.truncate(10).unwrap();
        file.truncate(20).unwrap();
        let mut back = [9; 30];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), 20);
        assert_eq!(back[..3], [0; 3]);
        assert_eq!(back[3..10], data[..7]);
        assert_eq!(back[10..20], [0; 10]);
    }
}
