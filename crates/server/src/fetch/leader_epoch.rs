//! Leader epochs as clients see them (KIP-320): whether what a client knows is of today, and where what it read ends.

use milena_store::Epochs;
use milena_wire::kafka_protocol::ResponseError;

use super::reader::kafka_offset;

/// What a request says when it knows no epoch.
pub const NO_EPOCH: i32 = -1;

/// An epoch as Kafka writes it.
#[must_use]
pub fn kafka_epoch(epoch: u32) -> i32 {
    i32::try_from(epoch).unwrap_or(i32::MAX)
}

/// Compares the leader epoch that a client knows with that of the partition.
///
/// # Errors
/// `FENCED_LEADER_EPOCH` (74) for an older one: the client asks for metadata and checks where its position ends.
/// `UNKNOWN_LEADER_EPOCH` (75) for a newer one, which another gateway has shown and this one has not read yet: the client
/// tries again.
pub fn check(known: i32, epochs: &Epochs) -> Result<(), ResponseError> {
    let current = kafka_epoch(epochs.current());
    match known {
        NO_EPOCH => Ok(()),
        older if older < current => Err(ResponseError::FencedLeaderEpoch),
        newer if newer > current => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Epoch and end offset of what a reader of epoch `asked` holds; `end` is the end of the partition. `None` for no epoch and
/// for one that has not begun.
#[must_use]
pub fn end_of(asked: i32, epochs: &Epochs, end: u64) -> Option<(i32, i64)> {
    let (epoch, end) = epochs.end_of(u32::try_from(asked).ok()?, end)?;
    Some((kafka_epoch(epoch), kafka_offset(end)))
}
