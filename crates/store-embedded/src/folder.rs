//! The data folder: lock, format version, and whether the last session ended well.

use std::path::{Path, PathBuf};

use milena_store::{StoreError, TopicInfo};

use crate::catalog::{self, Catalog};
use crate::fault::failed;
use crate::fs::{Fs, Lock, ReplaceError, read_small, replace_small};
use crate::partition::Origin;

const LOCK: &str = "lock";
pub(crate) const FORMAT: &str = "format";
const SESSION: &str = "session";
const FORMAT_LINE: &str = "milena-store 1\n";

/// Why a data folder could not be opened. Every message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the folder open.
    #[error("the data folder {} is in use by another process; stop that one or choose another folder", dir.display())]
    Locked {
        /// The folder.
        dir: PathBuf,
    },
    /// A newer version of Milena wrote the folder.
    #[error("the data folder {} has format {found:?}, which this version does not know; use the version that wrote it", dir.display())]
    Format {
        /// The folder.
        dir: PathBuf,
        /// What its format file says.
        found: String,
    },
    /// The folder has data and no catalog.
    #[error("the data folder {} holds data but no catalog; restore the file `{}` or choose another folder", dir.display(), catalog::NAME)]
    NoCatalog {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder could not be read or written, or its catalog is damaged.
    #[error("the data folder {} cannot be opened: {error}", dir.display())]
    Store {
        /// The folder.
        dir: PathBuf,
        /// What went wrong.
        error: StoreError,
    },
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store { error, .. } => error,
            OpenError::Locked { .. } => Self::Busy { reason: error.to_string() },
            _ => Self::Broken { context: error.to_string() },
        }
    }
}

/// An open folder.
pub(crate) struct Folder {
    pub(crate) catalog: Catalog,
    pub(crate) origin: Origin,
    pub(crate) lock: Lock,
}

impl Folder {
    /// Locks the folder, creating it where it is missing, and reads what it says.
    pub(crate) fn open(fs: &dyn Fs, root: &Path) -> Result<Self, OpenError> {
        let store = |error: StoreError| OpenError::Store { dir: root.to_owned(), error };
        let io = |what: &str, error: std::io::Error| store(failed(what, &error));
        fs.create_root(root).map_err(|error| io("creating it", error))?;
        let lock = lock(fs, root)?;
        let known = read_format(fs, root)?;
        let loaded = Catalog::load(fs, root).map_err(store)?;
        let fresh = !known && loaded.is_none();
        let catalog = match loaded {
            Some(catalog) => catalog,
            None => {
                let items = fs.list(root).map_err(|error| io("listing it", error))?;
                if items.iter().any(|item| item.is_dir && item.name.parse::<u32>().is_ok()) {
                    return Err(OpenError::NoCatalog { dir: root.to_owned() });
                }
                Catalog::default()
            }
        };
        if !known {
            let put = |name: &str, error: ReplaceError| store(in_folder(name, error));
            catalog.save(fs, root).map_err(|error| put(catalog::NAME, error))?;
            replace_small(fs, root, FORMAT, FORMAT_LINE.as_bytes()).map_err(|error| put(FORMAT, error))?;
        }
        // What was just read may be there in memory only, when the flush of its name failed or never came. Nothing must
        // rest on it before it is on the device.
        fs.sync_dir(root).map_err(|error| io("flushing it", error))?;
        let origin = read_origin(fs, root, fresh).map_err(store)?;
        if origin == Origin::Closed {
            mark(fs, root, false).map_err(store)?;
        }
        Ok(Self { catalog, origin, lock })
    }
}

/// A folder that no process uses, held so, for work on its files.
pub(crate) struct AtRest {
    /// Its topics, by number.
    pub(crate) topics: Vec<TopicInfo>,
    /// True when the store was closed, so that everything in it was whole.
    pub(crate) closed: bool,
    _lock: Lock,
}

impl AtRest {
    pub(crate) fn of(fs: &dyn Fs, root: &Path) -> Result<Self, OpenError> {
        let lock = lock(fs, root)?;
        read_format(fs, root)?;
        let mut topics: Vec<TopicInfo> = load_catalog(fs, root)?.topics().collect();
        topics.sort_by_key(|info| info.topic.topic_id());
        Ok(Self { topics, closed: was_closed(fs, root)?, _lock: lock })
    }
}

/// The catalog of a folder that has one.
pub(crate) fn load_catalog(fs: &dyn Fs, root: &Path) -> Result<Catalog, OpenError> {
    let loaded = Catalog::load(fs, root).map_err(|error| OpenError::Store { dir: root.to_owned(), error })?;
    loaded.ok_or_else(|| OpenError::NoCatalog { dir: root.to_owned() })
}

/// True when the last process that used the folder closed it.
pub(crate) fn was_closed(fs: &dyn Fs, root: &Path) -> Result<bool, OpenError> {
    let origin = read_origin(fs, root, false).map_err(|error| OpenError::Store { dir: root.to_owned(), error })?;
    Ok(origin == Origin::Closed)
}

/// Locks the folder against other processes.
fn lock(fs: &dyn Fs, root: &Path) -> Result<Lock, OpenError> {
    let lock = fs.lock(&root.join(LOCK)).map_err(|error| {
        let error = failed("locking it", &error);
        OpenError::Store { dir: root.to_owned(), error }
    })?;
    lock.ok_or_else(|| OpenError::Locked { dir: root.to_owned() })
}

/// True when the folder has the format of this version, false when it has none yet.
pub(crate) fn read_format(fs: &dyn Fs, root: &Path) -> Result<bool, OpenError> {
    let format = read_small(fs, &root.join(FORMAT), 4096).map_err(|error| {
        let error = failed("reading its format", &error);
        OpenError::Store { dir: root.to_owned(), error }
    })?;
    let Some(format) = format else { return Ok(false) };
    if format == FORMAT_LINE.as_bytes() {
        return Ok(true);
    }
    Err(OpenError::Format { dir: root.to_owned(), found: String::from_utf8_lossy(&format).trim().to_owned() })
}

pub(crate) fn in_folder(name: &str, error: ReplaceError) -> StoreError {
    match error {
        ReplaceError::Before(error) | ReplaceError::After(error) => failed(format_args!("writing {name}"), &error),
    }
}

/// Notes that this run of the machine has the store open, or that it was closed with everything flushed.
///
/// The note of an open store is only made once no partition is left that a crash before may have damaged.
pub(crate) fn mark(fs: &dyn Fs, root: &Path, closed: bool) -> Result<(), StoreError> {
    let boot = fs.boot_id().unwrap_or_default();
    let content = format!("{} {boot}\n", if closed { "closed" } else { "open" });
    replace_small(fs, root, SESSION, content.as_bytes()).map_err(|error| in_folder(SESSION, error))
}

fn read_origin(fs: &dyn Fs, root: &Path, fresh: bool) -> Result<Origin, StoreError> {
    if fresh {
        return Ok(Origin::Closed);
    }
    let content = read_small(fs, &root.join(SESSION), 4096).map_err(|error| failed("reading its session", &error))?;
    let content = String::from_utf8_lossy(&content.unwrap_or_default()).into_owned();
    let boot = fs.boot_id().filter(|boot| !boot.is_empty());
    Ok(match (content.trim().split_once(' '), boot) {
        (None, _) if content.trim() == "closed" => Origin::Closed,
        (Some(("closed", _)), _) => Origin::Closed,
        (Some(("open", noted)), Some(boot)) if noted == boot => Origin::SameBoot,
        _ => Origin::MaybeCrashed,
    })
}

/// Removes a folder and all that is in it, as far as it goes. What is left is removed at the next start.
pub(crate) fn remove_tree(fs: &dyn Fs, dir: &Path) {
    for item in fs.list(dir).unwrap_or_default() {
        let path = dir.join(&item.name);
        if item.is_dir {
            remove_tree(fs, &path);
        } else if let Err(error) = fs.remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "a file of a deleted topic could not be removed");
        }
    }
    if let Err(error) = fs.remove_dir(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %dir.display(), %error, "the folder of a deleted topic could not be removed");
    }
}
