//! Faults that tests plan. None of this is in a build without the feature `faults`.

use std::io;
use std::path::{Path, PathBuf};

use milena_store::StoreError;

use crate::fault::failed;
use crate::folder::{AtRest, OpenError, load_catalog};
use crate::fs::real::RealFs;
use crate::partition::partition_dir;

/// The files of a partition as they are at one moment. Put back, they are what an engine that writes behind its answers would
/// have after it was killed: what was acknowledged later is lost, and its offsets are given again.
pub struct Saved {
    folder: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Saved {
    /// What the data folder has of a partition now, be it in use or not.
    ///
    /// # Errors
    /// When there is no such topic, or a file cannot be read.
    pub fn of(root: &Path, stream: &str, topic: &str, partition: u32) -> Result<Self, OpenError> {
        let topics = load_catalog(&RealFs, root)?;
        let known = topics.topics().find(|info| info.topic.stream() == stream && info.topic.topic() == topic);
        let missing = || StoreError::NotFound { what: format!("topic {stream}/{topic}") };
        let known = known.ok_or_else(|| OpenError::Store { dir: root.to_owned(), error: missing() })?;
        let folder = partition_dir(root, &known.topic.partition(partition));
        let files = files_of(&folder).map_err(|error| in_root(root, "reading a partition", &error))?;
        Ok(Self { folder, files })
    }

    /// Puts the files back in the place of those that are there.
    ///
    /// # Errors
    /// When a process has the data folder open, or a file cannot be written.
    pub fn put_back(&self, root: &Path) -> Result<(), OpenError> {
        let rest = AtRest::of(&RealFs, root)?;
        let replaced = std::fs::remove_dir_all(&self.folder)
            .and_then(|()| std::fs::create_dir(&self.folder))
            .and_then(|()| self.files.iter().try_for_each(|(path, bytes)| std::fs::write(path, bytes)));
        drop(rest);
        replaced.map_err(|error| in_root(root, "writing a partition", &error))
    }
}

fn files_of(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    std::fs::read_dir(folder)?
        .map(|item| {
            let path = item?.path();
            let bytes = std::fs::read(&path)?;
            Ok((path, bytes))
        })
        .collect()
}

fn in_root(root: &Path, what: &str, error: &io::Error) -> OpenError {
    OpenError::Store { dir: root.to_owned(), error: failed(what, error) }
}
