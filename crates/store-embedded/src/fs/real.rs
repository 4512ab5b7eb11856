//! The operating system's files.

use std::fs as os;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use milena_store::Volume;
use rustix::fs::{FallocateFlags, FlockOperation};

use super::{Access, File, Fs, Item, Lock};

/// Files of the operating system.
#[derive(Debug, Default)]
pub(crate) struct RealFs;

impl Fs for RealFs {
    fn can_block(&self) -> bool {
        true
    }

    fn boot_id(&self) -> Option<String> {
        let id = os::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let id = id.trim();
        (!id.is_empty()).then(|| id.to_owned())
    }

    fn create_root(&self, path: &Path) -> io::Result<()> {
        os::create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        os::create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Item>> {
        let mut items = Vec::new();
        for entry in os::read_dir(path)? {
            let entry = entry?;
            // A name that is no UTF-8 is none of ours.
            if let Ok(name) = entry.file_name().into_string() {
                items.push(Item { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        Ok(items)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = os::OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::Write => {
                options.write(true);
            }
            Access::Create => {
                options.write(true).create_new(true);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        os::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        os::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        os::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        os::File::open(path)?.sync_all()
    }

    #[cfg(target_os = "linux")]
    fn sync_everything(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(os::File::open(path)?)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_everything(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        let told = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Ok(Some(Volume { total_bytes: bytes(told.f_blocks), usable_bytes: bytes(told.f_bavail) }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let file = os::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

struct RealFile(os::File);

impl File for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_at_cached(&self, _buffer: &mut [u8], _at: u64) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    #[cfg(target_os = "linux")]
    fn read_at_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        use std::io::IoSliceMut;

        use rustix::io::ReadWriteFlags;

        let wanted = buffer.len();
        let read = rustix::io::preadv2(&self.0, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT);
        match read {
            // The caller never asks beyond what was written, so a short read means that the rest is not in memory.
            Ok(read) if read == wanted => Ok(read),
            Ok(_) | Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        super::write_all(parts, at, |slices, position| Ok(rustix::io::pwritev(&self.0, slices, position)?))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn reserve(&self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, at, bytes)?)
    }
}
