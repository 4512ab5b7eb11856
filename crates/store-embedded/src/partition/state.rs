//! The file that holds the start of the log. It exists once the start moved for the first time.
//!
//! Bytes: magic `MilenaSt`, u32 version, u32 zero, u64 start offset, u32 CRC-32C of what is before it.

use std::path::Path;

use milena_store::StoreError;

use crate::fault::failed;
use crate::format::{Fields, crc32c, u32_at, u64_at};
use crate::fs::{Fs, ReplaceError, read_small, replace_small};

/// Its name.
pub(crate) const NAME: &str = "start";
const MAGIC: [u8; 8] = *b"MilenaSt";
const VERSION: u32 = 1;
const BYTES: usize = 28;

/// The stored start of the log; `None` when it never moved.
pub(crate) fn load(fs: &dyn Fs, dir: &Path) -> Result<Option<u64>, StoreError> {
    let path = dir.join(NAME);
    let read = read_small(fs, &path, 4096);
    let content = read.map_err(|error| failed(format_args!("reading {}", path.display()), &error))?;
    let Some(content) = content else { return Ok(None) };
    let sound = content.len() == BYTES
        && content.starts_with(&MAGIC)
        && u32_at(&content, 8) == VERSION
        && u32_at(&content, 24) == crc32c(&[content.get(..24).unwrap_or_default()]);
    if sound {
        return Ok(Some(u64_at(&content, 16)));
    }
    // Going on without it would bring deleted messages back.
    let path = path.display();
    Err(StoreError::Broken { context: format!("{path}, which holds the first offset of the partition, is damaged") })
}

/// Stores the start of the log, durably.
pub(crate) fn save(fs: &dyn Fs, dir: &Path, start: u64) -> Result<(), StoreError> {
    let head =
        Fields::<24>::new().put(&MAGIC).put(&VERSION.to_le_bytes()).put(&[0; 4]).put(&start.to_le_bytes()).done();
    let bytes = Fields::<BYTES>::new().put(&head).put(&crc32c(&[&head]).to_le_bytes()).done();
    replace_small(fs, dir, NAME, &bytes).map_err(|error| {
        let path = dir.join(NAME);
        match error {
            ReplaceError::Before(error) => failed(format_args!("writing {}", path.display()), &error),
            ReplaceError::After(error) => {
                StoreError::InDoubt { reason: format!("flushing {}: {error}", path.display()) }
            }
        }
    })
}
