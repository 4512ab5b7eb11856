//! Files that are read again when they change: that of users, and that of the keys that tokens are signed with.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Largest file that is read or written, in bytes: room for 100,000 users with names and salts of usual length. Passed: the file
/// is refused.
pub(super) const FILE_BYTES_MAX: u64 = 64 << 20;

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
    mode: u32,
    bytes: u64,
    modified: (i64, i64),
}

/// What others than the owner of a file should not do with it, as the bits of its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Whoever reads verifiers can try passwords as fast as they like, and whoever writes them makes users.
    Secret = 0o066,
    /// Whoever writes keys makes tokens.
    Unchanged = 0o022,
}

type Parse<T> = dyn Fn(&str) -> Result<T, String> + Send + Sync;

/// The content of a file as it is now, or what is there without one.
pub(crate) struct Watched<T> {
    what: &'static str,
    keep: Keep,
    file: Option<(PathBuf, Box<Parse<T>>)>,
    now: Mutex<Now<T>>,
    /// Held from a look to its end, so that what was read before never takes the place of what was read later.
    looking: Mutex<()>,
}

struct Now<T> {
    content: Arc<T>,
    /// `None` also when the file was not there at the last look.
    stamp: Option<Stamp>,
}

impl<T> Watched<T> {
    /// What never changes.
    pub(crate) fn fixed(content: T) -> Self {
        Self {
            what: "nothing",
            keep: Keep::Unchanged,
            file: None,
            now: Mutex::new(Now { content: Arc::new(content), stamp: None }),
            looking: Mutex::default(),
        }
    }

    /// Reads a file, which is called `what` in the log. Says so, also later, when others than its owner can do what they should not.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn open(
        what: &'static str,
        keep: Keep,
        file: &Path,
        parse: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let (content, stamp) =
            read(file, &parse).map_err(|problem| FileError { what, file: file.to_owned(), problem })?;
        keep.warn(what, file, stamp.mode);
        let now = Now { content: Arc::new(content), stamp: Some(stamp) };
        Ok(Self {
            what,
            keep,
            file: Some((file.to_owned(), Box::new(parse))),
            now: Mutex::new(now),
            looking: Mutex::default(),
        })
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
        let _looking = self.looking.lock();
        let found = stamp_of(file).ok();
        if found == self.now.lock().stamp {
            return;
        }
        match read(file, parse) {
            Ok((content, stamp)) => {
                *self.now.lock() = Now { content: Arc::new(content), stamp: Some(stamp) };
                tracing::info!(file = %file.display(), "{} read again", self.what);
                self.keep.warn(self.what, file, stamp.mode);
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
    Ok(Stamp {
        inode: found.ino(),
        mode: found.mode(),
        bytes: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}

fn read<T>(file: &Path, parse: &(impl Fn(&str) -> Result<T, String> + ?Sized)) -> Result<(T, Stamp), Problem> {
    // Before the content: what is written meanwhile is then seen as another state.
    let stamp = stamp_of(file)?;
    fits(stamp.bytes)?;
    let content = parse(&std::fs::read_to_string(file)?).map_err(Problem::Content)?;
    Ok((content, stamp))
}

/// Whether a file of that many bytes is read and written.
pub(super) fn fits(bytes: u64) -> Result<(), Problem> {
    if bytes > FILE_BYTES_MAX { Err(Problem::Large(bytes)) } else { Ok(()) }
}

impl Keep {
    /// What others than its owner can do with a file of that mode and should not.
    fn exposed(self, mode: u32) -> Option<&'static str> {
        let open = mode & self as u32;
        match (open & 0o044 != 0, open & 0o022 != 0) {
            (false, false) => None,
            (true, false) => Some("read"),
            (false, true) => Some("change"),
            (true, true) => Some("read and change"),
        }
    }

    fn warn(self, what: &str, file: &Path, mode: u32) {
        if let Some(can) = self.exposed(mode) {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(file = %file.display(), mode, "other users of this machine can {can} the {what}; chmod it");
        }
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
        let watched = Watched::open("number", Keep::Secret, &file, number).unwrap();
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
    fn what_others_can_do_with_a_file_is_seen_and_looked_at_again_when_it_changes() {
        let of = |mode| (Keep::Secret.exposed(mode), Keep::Unchanged.exposed(mode));
        assert_eq!(of(0o100_600), (None, None));
        assert_eq!(of(0o100_711), (None, None));
        assert_eq!(of(0o100_640), (Some("read"), None));
        assert_eq!(of(0o100_644), (Some("read"), None));
        assert_eq!(of(0o100_622), (Some("change"), Some("change")));
        assert_eq!(of(0o100_666), (Some("read and change"), Some("change")));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let before = stamp_of(&file).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_ne!(stamp_of(&file).unwrap(), before);
    }

    #[test]
    fn a_file_that_cannot_be_used_at_the_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let problem = || Watched::open("number", Keep::Secret, &file, number).unwrap_err().to_string();
        assert!(problem().contains("No such file"), "{}", problem());
        std::fs::write(&file, "secret").unwrap();
        assert!(problem().ends_with("cannot be used: no number"), "{}", problem());
        let large = std::fs::File::create(&file).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(problem().contains("67108865 bytes, more than"), "{}", problem());
    }
}
