//! The produce path over a store that fails on command.

mod doubt;
mod falls;
mod model;
mod moves;
mod moves_model;
mod phantoms;
mod requests;
mod restarts;
mod retries;
mod slow;
