//! The produce path over a store that fails on command.

mod doubt;
mod model;
mod phantoms;
mod requests;
mod restarts;
mod retries;
