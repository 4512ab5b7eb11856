//! Changes of the file of users: the whole file is written anew beside the old one and takes its place.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use milena_auth::Users;
use milena_auth::users::with_secret;
use rand::RngExt as _;
use rustix::fs::{FlockOperation, flock};

use super::files::{FileError, Problem, fits};

/// Who may read a file that is made here.
const OWNER_ONLY: u32 = 0o600;

/// Gives the text of the file to `change`, and writes what comes back in its place. Either the old or the new file is there
/// at any time, also after a loss of power; two that change it at once do so one behind the other. A missing file is empty.
///
/// # Errors
/// When the file cannot be read or written, or is no file of users before or after the change; then it is as before.
pub fn change_users_file<T>(file: &Path, change: impl FnOnce(&str) -> (String, T)) -> Result<T, FileError> {
    replace(file, change).map_err(|problem| FileError { what: "users file", file: file.to_owned(), problem })
}

fn replace<T>(file: &Path, change: impl FnOnce(&str) -> (String, T)) -> Result<T, Problem> {
    // A link stays one.
    let file = match file.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        found => found?,
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let locked = File::open(&folder)?;
    flock(&locked, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    if let Ok(found) = std::fs::metadata(&file) {
        fits(found.len())?;
    }
    let before = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    users(&before)?;
    let (after, told) = change(&before);
    if after != before {
        let after = with_secret(&after, rand::rng().random());
        // What could not be read again is not written.
        fits(after.len() as u64)?;
        users(&after)?;
        write(&file, &folder, &after)?;
        locked.sync_all()?;
    }
    Ok(told)
}

fn users(text: &str) -> Result<Users, Problem> {
    Users::parse(text).map_err(|error| Problem::Content(error.to_string()))
}

fn write(file: &Path, folder: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let new: PathBuf = folder.join(format!(".{name}.new"));
    // Of a change that did not come to its end.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut made = File::options().write(true).create_new(true).mode(OWNER_ONLY).open(&new)?;
    if let Ok(before) = std::fs::metadata(file) {
        // Only root can; where it is refused, the file belongs to whoever changes it, if it can to the same group.
        if fchown(&made, Some(before.uid()), Some(before.gid())).is_err() {
            let _ = fchown(&made, None, Some(before.gid()));
        }
        let is_same_group = made.metadata()?.gid() == before.gid();
        made.set_permissions(Permissions::from_mode(rights(before.mode(), is_same_group)))?;
    }
    made.write_all(text.as_bytes())?;
    made.sync_all()?;
    std::fs::rename(&new, file)
}

/// Who may read the new file: whoever may read the old one. Of another group that is nobody.
fn rights(before: u32, is_same_group: bool) -> u32 {
    before & if is_same_group { 0o777 } else { OWNER_ONLY }
}

#[cfg(test)]
mod tests {
    use milena_auth::{Hash, Verifier, users};

    use super::*;

    fn add(file: &Path, name: &str) -> Result<(), FileError> {
        let verifier = Verifier::derive(Hash::Sha512, name, b"0123456789abcdef", 4_096).unwrap();
        change_users_file(file, |text| (users::with(text, name, &[verifier]), ()))
    }

    #[test]
    fn a_file_is_made_for_its_owner_alone_and_keeps_the_rights_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let mode = || std::fs::metadata(&file).unwrap().mode() & 0o777;
        add(&file, "alice").unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        add(&file, "bob").unwrap();
        assert_eq!(mode(), 0o640);
        let kept = std::fs::read_to_string(&file).unwrap();
        let users = Users::parse(&kept).unwrap();
        assert!(users.is("alice", "alice") && users.is("bob", "bob"));
        assert_eq!(kept.lines().filter(|line| line.starts_with("#decoys:")).count(), 1, "{kept}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn nobody_may_read_the_new_file_who_could_not_read_the_old_one() {
        assert_eq!((rights(0o100_640, true), rights(0o100_640, false)), (0o640, 0o600));
        assert_eq!((rights(0o100_400, true), rights(0o100_466, false)), (0o400, 0o400));
    }

    #[test]
    fn a_file_that_could_not_be_read_again_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        add(&file, "alice").unwrap();
        let before = std::fs::read_to_string(&file).unwrap();
        let long = usize::try_from(super::super::files::FILE_BYTES_MAX).unwrap();
        let error = change_users_file(&file, |text| (format!("{text}#{}", "x".repeat(long)), ())).unwrap_err();
        assert!(matches!(error.problem, Problem::Large(_)), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    }

    #[test]
    fn a_link_stays_one_and_a_bad_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("users"), folder.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        add(&link, "alice").unwrap();
        assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap().starts_with("alice:"));
        std::fs::write(&file, "nonsense").unwrap();
        assert!(add(&link, "bob").is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "nonsense");
    }

    #[test]
    fn changes_at_once_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || add(file, &format!("user-{number}")).unwrap());
            }
        });
        assert_eq!(Users::parse(&std::fs::read_to_string(&file).unwrap()).unwrap().len(), 8);
    }
}
