//! The embedded engine: a segmented log on local disk.
//!
//! ```text
//! <data folder>/
//!   lock       held while a process has the folder open
//!   format     version of this layout
//!   session    which run of the machine has it open, or that it was closed
//!   catalog    streams, topics, settings, numbers
//!   <stream>/<topic>/<partition>/      by number
//!     <base offset>.log     segment: header and entries
//!     <base offset>.index   sparse index, derived from the segment
//!     start                 first retained offset, once it moved
//! ```
//!
//! - `config`: how the store is opened
//! - `engine`: [`EmbeddedStore`], the [`milena_store::Store`] of this crate; `facade` takes blocking calls off async threads
//! - `store`, `gone`, `catalog`, `folder`: topics, and the files at the top of the data folder
//! - `backup`: [`backup`](fn@backup), a copy of a folder, in use or not
//! - `check`: [`check_data`], every checksum of a folder that is not in use
//! - `repair`: [`repair_data`], which cuts damaged messages out
//! - `partition`: appends, reads, flushes, recovery
//! - `faults` (feature `faults`): a tail that a restart loses
//! - `segment`, `format`, `index`, `scan`: one segment file and its bytes
//! - `fs`: the file-system layer; `handles` and `pool` bound open files and reuse buffers
//!
//! It knows nothing of Kafka. It does not replicate, compress or compact.

use std::sync::Arc;

use milena_store::{Store, StoreError};

mod backup;
mod catalog;
mod check;
mod config;
mod engine;
mod env;
mod facade;
mod fault;
#[cfg(feature = "faults")]
pub mod faults;
mod folder;
mod format;
mod fs;
pub mod fuzzing;
mod gone;
mod handles;
mod index;
mod limits;
mod partition;
mod pool;
mod repair;
mod scan;
mod segment;
mod store;
#[cfg(test)]
mod tests;
mod threads;

pub use backup::{BackupError, BackupReport, backup};
pub use check::{CheckReport, Problem, check_data};
pub use config::{Clock, EmbeddedConfig, system_clock};
pub use engine::EmbeddedStore;
pub use folder::OpenError;
pub use repair::{Repair, RepairKind, RepairReport, repair_data};

/// Opens (or creates) the store and recovers it. Blocking; call it off the async threads.
///
/// # Errors
/// When the folder is locked by another process, of a newer format, or cannot be read.
pub fn open(config: &EmbeddedConfig) -> Result<Arc<dyn Store>, StoreError> {
    Ok(EmbeddedStore::open(config)?)
}
