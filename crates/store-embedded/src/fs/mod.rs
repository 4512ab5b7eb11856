//! The file-system layer: the engine touches storage through [`Fs`] and [`File`] only.
//!
//! - [`real`]: the operating system
//! - [`memory`]: the same without files, behind `memory://`
//! - `faulty` (tests): loses what was not synced, tears writes, fills up and fails

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use milena_store::Volume;

#[cfg(test)]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod real;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// For reading only.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new file, for reading and writing; an existing one is an error.
    Create,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// The name, without the path.
    pub(crate) name: String,
    /// True when it is a folder.
    pub(crate) is_dir: bool,
}

/// Held as long as the folder is locked.
pub(crate) type Lock = Box<dyn Send + Sync>;

/// A file system.
pub(crate) trait Fs: Send + Sync + 'static {
    /// True when calls can wait for a device, so that async threads must not make the long ones.
    fn can_block(&self) -> bool;
    /// Names the current run of the machine: while it is the same, no machine crash lay between. `None` is unknown.
    fn boot_id(&self) -> Option<String>;
    /// Creates the folder and its missing parents; an existing one is success.
    fn create_root(&self, path: &Path) -> io::Result<()>;
    /// Creates one folder.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<Item>>;
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name; open handles stay readable.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything durable that was written to the file system of that folder, in one go; `Unsupported` where
    /// that cannot be done.
    fn sync_everything(&self, path: &Path) -> io::Result<()>;
    /// The volume of that folder; `None` where there is none.
    fn volume(&self, path: &Path) -> io::Result<Option<Volume>>;
    /// Locks the file of that name against other processes; `None` when another one holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>>;
}

/// An open file. All methods may be called from several threads at once.
pub(crate) trait File: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads into `buffer` up to its length or the end of the file; the answer says how much.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// As [`File::read_at`], but fails with [`io::ErrorKind::WouldBlock`] where it had to wait for a device.
    fn read_at_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all parts back to back. After an error any part of them may have been written.
    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()>;
    /// Makes the contents and the size durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts the file to `size`, or extends it with zeros.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Reserves space for the bytes from `at` on without changing the size.
    fn reserve(&self, at: u64, bytes: u64) -> io::Result<()>;
}

/// Reads exactly the bytes of `buffer`; false when the file ends before.
pub(crate) fn read_exact_at(file: &dyn File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    Ok(file.read_at(buffer, at)? == buffer.len())
}

/// The whole content of a small file, or `None` when there is none of that name.
pub(crate) fn read_small(fs: &dyn Fs, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match fs.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = file.size()?;
    if size > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is too large: {size} bytes", path.display()),
        ));
    }
    let mut content = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut content, 0)?;
    content.truncate(read);
    Ok(Some(content))
}

/// Replaces a small file so that after a crash either the old or the new content is there, and durably the new one
/// once this returned: write under another name, flush, rename, flush the folder.
pub(crate) fn replace_small(fs: &dyn Fs, dir: &Path, name: &str, content: &[u8]) -> Result<(), ReplaceError> {
    let temporary = dir.join(format!("{name}{TEMPORARY_SUFFIX}"));
    write_temporary(fs, &temporary, content).map_err(ReplaceError::Before)?;
    fs.rename(&temporary, &dir.join(name)).map_err(ReplaceError::Before)?;
    fs.sync_dir(dir).map_err(ReplaceError::After)
}

/// Ending of a file that is not yet whole; such files are removed when found.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// When the replacement of a file failed.
#[derive(Debug)]
pub(crate) enum ReplaceError {
    /// The old content is in force.
    Before(io::Error),
    /// The new content is visible; whether it survives a crash is not known.
    After(io::Error),
}

fn write_temporary(fs: &dyn Fs, path: &Path, content: &[u8]) -> io::Result<()> {
    remove_if_there(fs, path)?;
    let file = fs.open(path, Access::Create)?;
    file.write_at(&[content], 0)?;
    file.sync_data()
}

/// Removes a file; one that is not there is success.
pub(crate) fn remove_if_there(fs: &dyn Fs, path: &Path) -> io::Result<()> {
    match fs.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Calls `write` with the parts as I/O slices, again and again until all bytes are written. `write` answers how many
/// bytes it took.
pub(crate) fn write_all(
    parts: &[&[u8]],
    at: u64,
    mut write: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    let mut position = at;
    while rest.iter().any(|slice| !slice.is_empty()) {
        match write(rest, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                position = position.saturating_add(written as u64);
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
