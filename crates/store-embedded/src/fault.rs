//! From I/O errors to [`StoreError`].

use std::fmt::Display;
use std::io;

use milena_store::StoreError;

/// Too many files are open in the system, and in this process. The numbers are the same on every Unix.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Why a step of the engine did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It had to wait for a device, and the caller asked not to.
    WouldWait,
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// The error to answer; a step that was allowed to wait never asks to.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::WouldWait => StoreError::Busy { reason: "the data is not in memory".to_owned() },
            Self::Store(error) => error,
        }
    }
}

/// Whether a step may wait for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It may.
    Yes,
    /// It answers [`Fault::WouldWait`] instead.
    No,
}

/// The error for an I/O failure while doing `what`.
pub(crate) fn failed(what: impl Display, error: &io::Error) -> StoreError {
    let context = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { context },
        // Passes when connections or segments are closed; nothing is damaged.
        _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => StoreError::Busy { reason: context },
        _ => StoreError::Broken { context },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_are_no_damage_and_pass() {
        for number in [ENFILE, EMFILE] {
            let error = failed("opening", &io::Error::from_raw_os_error(number));
            assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        }
        let error = failed("opening", &io::Error::from_raw_os_error(5));
        assert!(matches!(error, StoreError::Broken { .. }), "{error}");
    }
}
