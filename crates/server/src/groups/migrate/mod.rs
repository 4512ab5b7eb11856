//! Moving committed offsets from where they are kept to where they shall be kept, while no server runs.
//!
//! It can be killed at any point and run again, since the source is whole until the end:
//!
//! 1. It joins the gateways of the store as one that coordinates, and ends when another one is there.
//! 2. It writes down that a move is under way. No server starts from then on, and who started before is among the gateways.
//! 3. It writes down which groups it moves, copies them into a target without offsets of theirs, reads the target, and
//!    compares.
//! 4. It reads the source again: what changed meanwhile was written by a server that should not run.
//! 5. It writes the new place down, and that the old one is to be cleared, and only then clears it.
//!
//! - `alone`: step 1
//! - `place`: reading, writing and clearing either place

mod alone;
mod place;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use milena_groups::GroupError;
use milena_store::offsets::ProbeRefusal;
use milena_store::{Store, StoreError};

use super::storage::{Kept, Record, RecordLog, allows};
use crate::config::ServerConfig;
use crate::gateways::JoinError;
use crate::topics::{OpenError, TopicDirectory};
use alone::Alone;
use place::{Offsets, Places};

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Migrated {
    /// Groups.
    pub groups: usize,
    /// Offsets of all groups.
    pub offsets: usize,
    /// Offsets that the new place cannot hold, and that were given up.
    pub given_up: usize,
    /// Offsets that lost their text or leader epoch, which the new place cannot hold.
    pub bare: usize,
    /// They were where they should be.
    pub was_there: bool,
}

/// Why committed offsets were not moved. Unless it says otherwise, they are where they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The store leaves no choice.
    #[error("this store keeps committed offsets in its topic only; consumer offsets need an Iggy server as the store")]
    NotOffered,
    /// The store does not let Kafka groups have consumer offsets.
    #[error("committed offsets cannot be kept as consumer offsets of this server: {0}")]
    Refused(ProbeRefusal),
    /// A server runs on the store.
    #[error("a server runs on this store, or was killed less than its lease ago; stop all of them, and try again")]
    Running,
    /// Some offsets have no place where they shall go.
    #[error(
        "{unfit} committed offsets cannot be kept as consumer offsets: their topic or partition is not in this cluster, or \
         the id of their group is longer than {id_bytes_max} bytes; delete them, or give them up with --drop-unfit"
    )]
    Unfit {
        /// How many.
        unfit: usize,
        /// Longest id of a group there.
        id_bytes_max: usize,
    },
    /// Source or target changed while it went on.
    #[error(
        "committed offsets changed while they were moved, so a server runs on this store; stop it, and run this again"
    )]
    Changed,
    /// The target does not hold what was written there.
    #[error("what was copied is not what is there now; the move is not done, and can be run again")]
    Different,
    /// An offset has no place in the table.
    #[error("an offset cannot be moved: {0}")]
    Group(GroupError),
    /// It could not join the gateways of the store.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The topics could not be loaded.
    #[error(transparent)]
    Topics(#[from] OpenError),
    /// The store failed.
    #[error("the store cannot be used: {0}; the move is not done, and can be run again")]
    Store(#[from] StoreError),
}

/// Moves all committed offsets to `to`. `drop_unfit` gives up those that have no place there.
///
/// # Errors
/// See [`MigrateError`]. After most of them it can be run again; until it succeeds no server starts once the move has begun,
/// except after a run with `to` as the place where they are, which calls the move off.
pub async fn migrate(
    config: &ServerConfig,
    store: Arc<dyn Store>,
    to: Kept,
    drop_unfit: bool,
) -> Result<Migrated, MigrateError> {
    if store.offset_store().is_none() {
        return Err(MigrateError::NotOffered);
    }
    let alone = Alone::claim(config, &store).await?;
    let moved = run(config, &store, &alone, to, drop_unfit).await;
    alone.leave().await;
    moved
}

async fn run(
    config: &ServerConfig,
    store: &Arc<dyn Store>,
    alone: &Alone,
    to: Kept,
    drop_unfit: bool,
) -> Result<Migrated, MigrateError> {
    let mut log = RecordLog::open(store, config.instance_id).await?;
    let record = log.record.unwrap_or(Record::at(Kept::Topic));
    let topics = TopicDirectory::open(Arc::clone(store), config).await?;
    let places = Places { config, store, topics: &topics };
    let from = record.storage;
    if from == to {
        // A move that is called off may have copied already.
        let left_in = record.moving_to.or(record.left_in);
        note(&mut log, Record { left_in, ..Record::at(to) }).await?;
        clear(&mut log, &places).await?;
        return Ok(Migrated { was_there: true, ..Migrated::default() });
    }
    let source = places.read(from).await?;
    if to == Kept::ConsumerOffsets {
        if source.unfit > 0 && !drop_unfit {
            let id_bytes_max = places.group_id_bytes_max();
            return Err(MigrateError::Unfit { unfit: source.unfit, id_bytes_max });
        }
        allows(store, config.instance_id).await?.map_err(MigrateError::Refused)?;
    }
    note(&mut log, Record { moving_to: Some(to), left_in: record.left_in, ..Record::at(from) }).await?;
    // Who joins from here on finds the move, and who had joined is known after this.
    alone.confirm().await?;
    if !log.name(source.groups()).await? {
        return Err(MigrateError::Changed);
    }
    places.write(to, &source, &log.moved).await?;
    if !places.holds(to, &source, &log.moved).await? {
        return Err(MigrateError::Different);
    }
    alone.confirm().await?;
    if places.read(from).await?.rows != source.rows {
        return Err(MigrateError::Changed);
    }
    note(&mut log, Record { left_in: Some(from), ..Record::at(to) }).await?;
    // They are moved, whatever becomes of this; another run with the same target clears what is left.
    if let Err(error) = clear(&mut log, &places).await {
        tracing::warn!(%error, "committed offsets are moved, and some are still in the old place too");
    }
    Ok(summary(&source, to))
}

/// Clears what a move left in the other place, as the log says. What it does not name is not of these gateways: others in
/// front of the same topics may keep their offsets there.
async fn clear(log: &mut RecordLog, places: &Places<'_>) -> Result<(), MigrateError> {
    let Some(record) = log.record else { return Ok(()) };
    if let Some(left_in) = record.left_in {
        places.clear(left_in, &log.moved).await?;
        note(log, Record::at(record.storage)).await?;
    }
    Ok(())
}

async fn note(log: &mut RecordLog, record: Record) -> Result<(), MigrateError> {
    if log.record == Some(record) || log.write(record).await? { Ok(()) } else { Err(MigrateError::Changed) }
}

fn summary(source: &Offsets, to: Kept) -> Migrated {
    let bare = to == Kept::ConsumerOffsets;
    Migrated {
        groups: source.groups().len(),
        offsets: source.rows.values().map(std::collections::BTreeMap::len).sum(),
        given_up: source.unfit,
        bare: if bare { source.with_text } else { 0 },
        was_there: false,
    }
}
