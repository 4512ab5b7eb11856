//! The file of users, which is read again when it changes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use milena_auth::Users;
use milena_auth::users::UsersError;
use parking_lot::Mutex;

use super::SaslSettings;
use crate::lifecycle::{Lifecycle, Phase};

/// Largest file that is read, in bytes: room for all users that one may have. Passed: the file is refused.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why a file of users is not used.
#[derive(Debug, thiserror::Error)]
#[error("the users file {} cannot be used: {problem}", .file.display())]
pub struct UsersFileError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file of users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It holds something else.
    #[error(transparent)]
    Content(#[from] UsersError),
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

/// Users, as they are now.
#[derive(Debug)]
pub(crate) struct UserStore {
    fixed: Users,
    file: Option<PathBuf>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    users: Arc<Users>,
    stamp: Option<Stamp>,
}

impl UserStore {
    pub(crate) fn open(settings: &SaslSettings) -> Result<Self, UsersFileError> {
        let fixed = settings.users.clone();
        let (users, stamp) = match &settings.users_file {
            Some(file) => {
                let (users, stamp) = read(file)?;
                warn_of_readers(file);
                (fixed.clone().or(users), Some(stamp))
            }
            None => (fixed.clone(), None),
        };
        let now = Now { users: Arc::new(users), stamp };
        Ok(Self { fixed, file: settings.users_file.clone(), now: Mutex::new(now) })
    }

    pub(crate) fn current(&self) -> Arc<Users> {
        Arc::clone(&self.now.lock().users)
    }

    /// Looks at the file, and reads it when it has changed. A file that cannot be used changes nothing, and is told once.
    fn refresh(&self) {
        let Some(file) = &self.file else { return };
        let found = stamp_of(file).ok();
        if found == self.now.lock().stamp {
            return;
        }
        match read(file) {
            Ok((users, stamp)) => {
                let count = users.len();
                *self.now.lock() = Now { users: Arc::new(self.fixed.clone().or(users)), stamp: Some(stamp) };
                tracing::info!(file = %file.display(), users = count, "users file read again");
            }
            Err(error) => {
                self.now.lock().stamp = found;
                tracing::error!(%error, "the users of before stay in force");
            }
        }
    }
}

fn stamp_of(file: &Path) -> io::Result<Stamp> {
    std::fs::metadata(file).map(|found| stamp(&found))
}

fn stamp(found: &std::fs::Metadata) -> Stamp {
    Stamp { inode: found.ino(), bytes: found.size(), modified: (found.mtime(), found.mtime_nsec()) }
}

fn read(file: &Path) -> Result<(Users, Stamp), UsersFileError> {
    let of = || {
        // Before the content: what is written meanwhile is then seen as another state.
        let stamp = stamp_of(file)?;
        if stamp.bytes > FILE_BYTES_MAX {
            return Err(Problem::Large(stamp.bytes));
        }
        Ok((Users::parse(&std::fs::read_to_string(file)?)?, stamp))
    };
    of().map_err(|problem| UsersFileError { file: file.to_owned(), problem })
}

/// Whoever reads the file can try passwords as fast as they like.
fn warn_of_readers(file: &Path) {
    if std::fs::metadata(file).is_ok_and(|found| found.mode() & 0o044 != 0) {
        tracing::warn!(file = %file.display(), "other users of this machine can read the users file; chmod 600 it");
    }
}

/// Looks at the file every now and then, until the server drains.
pub(crate) async fn keep_current(store: Arc<UserStore>, every: Duration, lifecycle: Arc<Lifecycle>) {
    if store.file.is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = lifecycle.reached(Phase::Draining) => return,
        }
        let looking = Arc::clone(&store);
        if tokio::task::spawn_blocking(move || looking.refresh()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use milena_auth::{Hash, Verifier};

    use super::*;

    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", Verifier::derive(Hash::Sha512, password, b"0123456789abcdef", 4_096).unwrap())
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_bad_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, line("alice", "a")).unwrap();
        let settings = SaslSettings { users_file: Some(file.clone()), ..SaslSettings::default() };
        let store = UserStore::open(&settings).unwrap();
        assert!(store.current().is("alice", "a"));
        std::fs::write(&file, line("alice", "a") + &line("bob", "b")).unwrap();
        store.refresh();
        assert!(store.current().is("bob", "b"));
        std::fs::write(&file, "nonsense").unwrap();
        store.refresh();
        assert!(store.current().is("bob", "b"));
        std::fs::remove_file(&file).unwrap();
        store.refresh();
        assert!(store.current().is("bob", "b"));
        std::fs::write(&file, line("carol", "c")).unwrap();
        store.refresh();
        assert!(store.current().is("carol", "c") && store.current().get("bob").is_none());
    }

    #[test]
    fn a_server_does_not_start_with_a_file_that_it_cannot_use() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let open = || {
            let settings = SaslSettings { users_file: Some(file.clone()), ..SaslSettings::default() };
            UserStore::open(&settings).unwrap_err().to_string()
        };
        assert!(open().contains("No such file"), "{}", open());
        std::fs::write(&file, "alice:secret").unwrap();
        assert!(open().contains("line 1"), "{}", open());
        assert!(!open().contains("secret"), "{}", open());
    }
}
