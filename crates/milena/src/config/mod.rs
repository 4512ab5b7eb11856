//! Configuration: a TOML file, below environment variables, below flags.
//!
//! - [`keys`], [`groups`], [`iggy`], [`iggy_door`], [`sasl`], [`metrics`], [`limits`]: the table of every key: what it may be, what it does, where it goes
//! - [`kinds`]: how values are read and shown
//! - [`layers`]: the file, the environment, the flags
//! - [`load`]: from layers to [`Settings`], with every mistake in one list
//! - [`listeners`], [`listener_tls`]: the one part that is a list
//! - [`show`]: the effective configuration as TOML, each value with its source

#[cfg(test)]
mod documents;
mod groups;
mod iggy;
mod iggy_door;
mod keys;
mod kinds;
mod layers;
mod limits;
mod listener_tls;
mod listeners;
mod load;
mod metrics;
mod sasl;
mod settings;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use layers::{Assignment, Sources};
pub(crate) use load::{Loaded, Mistakes, load};
pub(crate) use metrics::METRICS_LISTEN;
pub(crate) use settings::{Format, MEMORY, Settings};
pub(crate) use show::{reference, show};
