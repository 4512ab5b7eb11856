//! Several records of offsets in one record of the log, so that commits of many groups share one append.
//!
//! A version byte, then each record behind its length as four bytes, big-endian. A bundle is stored whole or not at all, as the log
//! promises; so the records of one are settled alike.

use milena_store::StoreError;

/// First byte of a bundle. A version that is not known is an error at start: to skip what a newer Milena wrote would lose
/// offsets.
const VERSION: u8 = 1;

/// Bytes of the version.
pub(super) const HEADER_BYTES: usize = 1;

/// Bytes in front of each record.
pub(super) const LENGTH_BYTES: usize = 4;

/// Puts records together. None of them is larger than 4 GiB, which the bound of a record excludes.
pub(super) fn bundle<'a>(records: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for record in records {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(record);
    }
    bytes
}

/// Calls `each` with every record of a bundle.
///
/// # Errors
/// When the bundle is of another version or is cut, or `each` refuses a record.
pub(super) fn unbundle(bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut rest = match bytes.split_first() {
        Some((&VERSION, rest)) => rest,
        Some((version, _)) => {
            return Err(broken(&format!("has version {version}, this Milena knows version {VERSION}")));
        }
        None => return Err(broken("is empty")),
    };
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some((record, behind)) = behind.split_at_checked(length) else {
            return Err(broken("is cut off"));
        };
        each(record)?;
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(broken("is cut off")) }
}

/// The log of offsets holds something that cannot be read.
pub(super) fn broken(why: &str) -> StoreError {
    StoreError::Broken { context: format!("a record of committed offsets {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(bytes: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut records = Vec::new();
        unbundle(bytes, |record| {
            records.push(record.to_vec());
            Ok(())
        })?;
        Ok(records)
    }

    /// What version 1 wrote; it must be readable for ever.
    #[test]
    fn the_stored_form_of_version_1_does_not_change() {
        let records: [&[u8]; 3] = [b"ab", b"", b"c"];
        let bytes = bundle(records.into_iter());
        assert_eq!(bytes, b"\x01\0\0\0\x02ab\0\0\0\0\0\0\0\x01c");
        assert_eq!(taken_apart(&bytes).unwrap(), records);
    }

    #[test]
    fn a_bundle_that_is_cut_or_of_another_version_is_an_error() {
        for bytes in [&b""[..], b"\x02", b"\x01\0\0\0\x02a", b"\x01\0\0", b"\x01\0\0\0\x01ab", b"\x01\xff\xff\xff\xff"]
        {
            assert!(matches!(taken_apart(bytes), Err(StoreError::Broken { .. })), "{bytes:?}");
        }
    }
}
