//! Files that are read again when they change: that of users, and that of the keys that tokens are signed with.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Largest file that is read, in bytes: room for all users that one may have. Passed: the file is refused.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[error("the {what} {} cannot be used: {problem}", .file.display())]
pub struct FileError {
    /// What it should be.
    pub what: &'static str,
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It holds something else.
    #[error("{0}")]
    Content(String),
    /// It is too large.
    #[error("it has {0} bytes, more than {FILE_BYTES_MAX}")]
    Large(u64),
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

type Parse<T> = dyn Fn(&str) -> Result<T, String> + Send + Sync;

/// The content of a file as it is now, or what is there without one.
pub(crate) struct Watched<T> {
    what: &'static str,
    file: Option<(PathBuf, Box<Parse<T>>)>,
    now: Mutex<Now<T>>,
}

struct Now<T> {
    content: Arc<T>,
    /// `None` also when the file was not there at the last look.
    stamp: Option<Stamp>,
}

impl<T> Watched<T> {
    /// What never changes.
    pub(crate) fn fixed(content: T) -> Self {
        Self { what: "nothing", file: None, now: Mutex::new(Now { content: Arc::new(content), stamp: None }) }
    }

    /// Reads a file, which is called `what` in the log.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn open(
        what: &'static str,
        file: &Path,
        parse: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let (content, stamp) =
            read(file, &parse).map_err(|problem| FileError { what, file: file.to_owned(), problem })?;
        let now = Now { content: Arc::new(content), stamp: Some(stamp) };
        Ok(Self { what, file: Some((file.to_owned(), Box::new(parse))), now: Mutex::new(now) })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.now.lock().content)
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|(file, _)| file.as_path())
    }

    /// Looks at the file, and reads it when it has changed. A file that cannot be used changes nothing, and is told once.
    pub(crate) fn refresh(&self) {
        let Some((file, parse)) = &self.file else { return };
        let found = stamp_of(file).ok();
        if found == self.now.lock().stamp {
            return;
        }
        match read(file, parse) {
            Ok((content, stamp)) => {
                *self.now.lock() = Now { content: Arc::new(content), stamp: Some(stamp) };
                tracing::info!(file = %file.display(), "{} read again", self.what);
            }
            Err(problem) => {
                self.now.lock().stamp = found;
                let error = FileError { what: self.what, file: file.clone(), problem };
                tracing::error!(%error, "what was read before stays in force");
            }
        }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("file", &self.file()).finish_non_exhaustive()
    }
}

fn stamp_of(file: &Path) -> io::Result<Stamp> {
    let found = std::fs::metadata(file)?;
    Ok(Stamp { inode: found.ino(), bytes: found.size(), modified: (found.mtime(), found.mtime_nsec()) })
}

fn read<T>(file: &Path, parse: &(impl Fn(&str) -> Result<T, String> + ?Sized)) -> Result<(T, Stamp), Problem> {
    // Before the content: what is written meanwhile is then seen as another state.
    let stamp = stamp_of(file)?;
    if stamp.bytes > FILE_BYTES_MAX {
        return Err(Problem::Large(stamp.bytes));
    }
    let content = parse(&std::fs::read_to_string(file)?).map_err(Problem::Content)?;
    Ok((content, stamp))
}

/// Says so when others can read a file of verifiers: whoever has it can try passwords as fast as they like.
pub(crate) fn warn_of_readers(what: &str, file: &Path) {
    if std::fs::metadata(file).is_ok_and(|found| found.mode() & 0o044 != 0) {
        tracing::warn!(file = %file.display(), "other users of this machine can read the {what}; chmod 600 it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| "no number".to_owned())
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_bad_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let watched = Watched::open("number", &file, number).unwrap();
        let after = |change: &dyn Fn()| {
            change();
            watched.refresh();
            *watched.current()
        };
        assert_eq!(after(&|| ()), 1);
        assert_eq!(after(&|| std::fs::write(&file, "22").unwrap()), 22);
        assert_eq!(after(&|| std::fs::write(&file, "nonsense").unwrap()), 22);
        assert_eq!(after(&|| std::fs::remove_file(&file).unwrap()), 22);
        assert_eq!(after(&|| std::fs::write(&file, "333").unwrap()), 333);
    }

    #[test]
    fn a_file_that_cannot_be_used_at_the_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let problem = || Watched::open("number", &file, number).unwrap_err().to_string();
        assert!(problem().contains("No such file"), "{}", problem());
        std::fs::write(&file, "secret").unwrap();
        assert!(problem().ends_with("cannot be used: no number"), "{}", problem());
        let large = std::fs::File::create(&file).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(problem().contains("67108865 bytes, more than"), "{}", problem());
    }
}
