//! What can be measured, one file each.
//!
//! - [`offsets`]: hundreds of consumers that commit all the time, and heartbeats of others beside them
//! - [`joins`]: how long a large group takes to become stable
//! - [`idle_groups`]: memory of groups that do nothing
//! - [`start`]: how long a start takes with many stored offsets
//! - [`cold_start`]: from the start of the process to the first answers
//! - [`process`]: start on an empty folder, idle memory, idle connections
//! - [`load`]: produce, fetch, and the way from one to the other
//! - `librdkafka`: the same load through librdkafka, where it is built in
//! - `iggy`: Milena in front of an Iggy server, beside Iggy's SDK, where that is built in
//! - `meter`: throughput, CPU time and percentiles, under the names that all scenarios use
//! - [`phase`]: commits and heartbeats for some seconds, which the others are made of

pub mod cold_start;
pub mod idle_groups;
#[cfg(feature = "iggy")]
pub mod iggy;
pub mod joins;
#[cfg(feature = "librdkafka")]
pub mod librdkafka;
pub mod load;
mod meter;
pub mod offsets;
pub mod phase;
pub mod process;
pub mod start;
