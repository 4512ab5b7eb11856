//! What Fetch needs beside its handler: sessions, parked fetches, reading, and the response frame.
//!
//! - [`want`]: one partition that a consumer asks for, in our terms
//! - [`sessions`]: incremental fetch sessions (KIP-227), pure: `now` and random ids are arguments
//! - [`purgatory`]: fetches that wait for data, and the appends that wake them
//! - [`leader_epoch`]: what a client knows of epochs against what is so
//! - [`reader`]: one pass over the wanted partitions under a shared byte budget
//! - [`arena`]: the memory that encoded records lie in until the response is written
//! - [`compressors`]: places of those that compress much
//! - [`room`]: the budget of answers that are not read yet
//! - [`response`]: the response frame
//! - [`by_time`]: search by the timestamp that a consumer sees, for ListOffsets
//! - [`serve`]: the life of one fetch, from wanted partitions to answers
//!
//! It is not the handler: decoding and the choice of topics are in `handlers/fetch.rs`.

pub mod arena;
pub mod by_time;
pub mod compressors;
pub mod leader_epoch;
pub mod purgatory;
pub mod reader;
pub mod response;
pub mod room;
pub mod serve;
pub mod sessions;
#[cfg(test)]
pub(crate) mod testing;
pub mod want;

use std::sync::Arc;
use std::time::Instant;

use milena_store::GrowthWatcher;

use crate::limits::Limits;
use purgatory::Purgatory;
use sessions::Sessions;

/// State of the fetch side that outlives a request. One per process.
pub struct Fetches {
    /// Parked fetches.
    pub purgatory: Arc<Purgatory>,
    /// Incremental fetch sessions.
    pub sessions: Sessions,
    /// Buffers that responses are built in.
    pub buffers: Arc<arena::BufferPool>,
    /// Room for answers that are not read yet: as much as requests in flight may take.
    pub room: room::Room,
    /// Places of those that compress much.
    pub compressors: compressors::Compressors,
    started: Instant,
}

impl Fetches {
    /// Nothing parked, no session. The caller hands [`Fetches::watcher`] to the store.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            purgatory: Arc::new(Purgatory::new()),
            sessions: Sessions::new(limits.fetch_sessions, limits.fetch_session_partitions),
            buffers: Arc::new(arena::BufferPool::default()),
            room: room::Room::new(limits.in_flight_bytes),
            compressors: compressors::Compressors::new(),
            started: Instant::now(),
        }
    }

    /// What the store tells of growth and deletion; without it parked fetches only end at their deadline.
    #[must_use]
    pub fn watcher(&self) -> Arc<dyn GrowthWatcher> {
        Arc::clone(&self.purgatory) as Arc<dyn GrowthWatcher>
    }

    /// Milliseconds since the start, for the ages of sessions.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
